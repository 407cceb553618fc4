"""Testbench of the method pipeline: models the prefetch buffer, the scheduler, the execution of
methods and the channel registers, and compares every cycle with the model of the pipeline."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

from signalbox.hw.config import CONFIGS
from signalbox.hw.errors import Cause
from signalbox.hw.host.methods.pipeline import MethodPipeline
from signalbox.hw.host.records import ObjectKind
from signalbox.hw.methods import ENGINE_SUBCHANNELS, HostMethod
from signalbox.hw.registers import Wait
from signalbox.tb.models.method_pipeline import (
    HEADERS,
    Answer,
    Beat,
    Edit,
    Entry,
    Flow,
    Inputs,
    Look,
    Outcome,
    Outputs,
    Phase,
    PipelineModel,
    acquires,
)
from signalbox.tb.models.methods import Kind, Method, Settings, launch_modelled, operation
from signalbox.tb.testbench.clocked import Testbench, component
from signalbox.tb.testbench.ends import always
from signalbox.tb.testbench.masks import mask

__all__ = ["CHANNELS", "CONFIG", "LIMIT", "WIDTH", "PipelineTestbench", "Plan", "at_once"]

LIMIT = {"timeout_time": 20, "timeout_unit": "ms"}

CONFIG = CONFIGS[os.environ.get("SIZE", "default")]

CHANNELS, WIDTH = CONFIG.channels, CONFIG.beat_dwords

BINDABLE = (ObjectKind.NONE, ObjectKind.COPY, ObjectKind.COPY, ObjectKind.COPY, ObjectKind.COMPUTE)
"""Objects that SET_OBJECT binds."""

_ENGINE_METHODS = 0x100
"""First byte offset of engine methods."""

UNUSED = ("drained", "empty", "busy", "working", "reserving")
"""States of channels that the pipeline ignores."""


@dataclass
class Plan:
    """Execution of a method: `busy` cycles, then the answer. `asks`: from its second cycle on, the
    method waits for the semaphore unit."""

    answer: Answer
    busy: int = 0
    asks: bool = False


def at_once(look: Look) -> Plan:
    """Every method completes in its first cycle; illegal headers are refused."""
    illegal = look.method.cause != Cause.NONE
    return Plan(Answer(Outcome.REFUSE if illegal else Outcome.DONE))


class PipelineTestbench(Testbench):
    """Serves channels. All channels start from reset.

    Members
    -------
    model : the model; its `flows` hold the fetched beats, which tests `add`.
    alive : channels that are alive. Changes of this and the following take effect in the next
        `step`.
    target : channel to serve next.
    edit : edit on offer until it is taken.
    leave, stay : see `ChoicePort`.
    pace : whether the next beat is offered in this cycle.
    plan : execution of a method; methods that set state complete at once.
    yields : whether the next YIELD has an effect.
    refused : channels with a refused method and no edit since.
    executed : methods executed by each channel.
    ended : ends of entries, in order.
    objects : objects bound in each channel.
    """

    def __init__(self, dut: Any) -> None:
        super().__init__(dut, component(MethodPipeline, CONFIG))
        self.model = PipelineModel(CHANNELS)
        self.alive = {*range(CHANNELS)}
        self.target: int | None = None
        self.edit: Edit | None = None
        self.leave = self.stay = False
        self.pace: Callable[[], bool] = always
        self.plan: Callable[[Look], Plan] = at_once
        self.yields: Callable[[], bool] = lambda: False
        self.refused: set[int] = set()
        self.executed: list[list[Method]] = [[] for _ in range(CHANNELS)]
        self.ended: list[Entry] = []
        self.objects = [(ObjectKind.NONE,) * ENGINE_SUBCHANNELS for _ in range(CHANNELS)]
        self._asked = False
        self._plan: Plan | None = None
        self._offered = False
        self._head = 0
        self._ended_at: tuple[int, int] | None = None
        record = self.ports["progress__state"].record
        place, settings = record.fields["settings"]
        inner, objects = settings.fields["objects"]
        self._objects_at, self._objects_width = place + inner, objects.width
        self._state_width = record.width
        # State of each channel, and in the registers of the execution.
        self._states, self._state = [0] * CHANNELS, 0

    async def start(self) -> Self:
        await super().start()
        for channel in range(CHANNELS):
            await self.change(Edit(channel, reset=True))
        return self

    @property
    def asking(self) -> bool:
        """Whether the served channel waits for the semaphore unit."""
        return self._asked

    # -- actions -----------------------------------------------------------------------------------

    def add(self, channel: int, *beats: Beat) -> None:
        """Add fetched beats to a channel."""
        self.model.flows[channel].beats += beats

    def flow(self, channel: int) -> Flow:
        """Progress of a channel."""
        return self.model.flows[channel]

    async def change(self, edit: Edit) -> None:
        """Offer an edit until it has taken effect."""
        self.edit = edit
        await self.until(lambda: self.edit is None, "the edit is taken")
        await self.step()

    async def serve(self, channel: int) -> None:
        """Serve a channel until it is let go."""
        assert self.model.phase is Phase.SELECT
        self.target = channel
        await self.step()
        self.target = None
        await self.until(lambda: self.model.phase is Phase.SELECT, "the channel is let go")

    # -- one cycle ---------------------------------------------------------------------------------

    async def step(self) -> Outputs:
        """One cycle."""
        model, channel = self.model, self.model.served
        objects, asked = self.objects[channel], self._asked
        look = model.look(objects, asked=asked)
        answer = self._answer(look)
        now = Inputs(
            alive=frozenset(self.alive),
            head=self._offer(),
            objects=objects,
            target=self.target,
            edit=self.edit,
            leave=self.leave,
            stay=self.stay,
            answer=answer,
            asked=asked,
        )
        self._drive(now, look)
        phase, flow = model.phase, self.flow(channel)
        loads_ahead = self._claims(flow)
        await super().step()
        expected = model.cycle(now)
        self._check(expected, now)
        self._follow(expected, phase, channel, look, answer)
        if loads_ahead is not None and self.get("service__early"):
            # The response of an acquire requested again ahead of the service is claimed.
            self._asked, self._plan = True, loads_ahead
        return expected

    def _claims(self, flow: Flow) -> Plan | None:
        """Plan of an acquire requested ahead, while its channel is loaded; None: there is none."""
        held, model = flow.held, self.model
        if model.phase is not Phase.LOAD or held is None:
            return None
        look = Look(model.served, held, Kind.SEMAPHORE, True)
        if held.cause != Cause.NONE or held.place != HostMethod.SEM_EXECUTE:
            return None
        plan = self.plan(look)
        return plan if plan.asks and acquires(held) else None

    def _answer(self, look: Look | None) -> Answer:
        """Outcome of the method."""
        if look is None:
            assert not self._asked or self.model.phase is not Phase.RUN, "unasked"
            self._plan = None
            return Answer(Outcome.NONE)
        if look.kind is Kind.STATE:
            yields = look.method.place == HostMethod.YIELD and self.yields()
            return Answer(Outcome.DONE, yields=yields)
        if self._plan is None:
            self._plan = self.plan(look)
        plan, leaves = self._plan, self.leave or self.edit is not None
        quits = (self.leave and not self.stay) or self.edit is not None
        acquire = look.kind is Kind.SEMAPHORE and acquires(look.method)
        if not self._asked and (
            (leaves and acquire) or (quits and look.kind is Kind.LAUNCH and plan.busy == 0)
        ):
            if plan.answer.outcome in (Outcome.DONE, Outcome.BUSY):
                self._plan = None
                return Answer(Outcome.NONE)
        if plan.busy:
            plan.busy -= 1
            return Answer(Outcome.BUSY)
        return plan.answer

    def _offer(self) -> bool:
        """Whether the served channel's oldest beat is offered, as row `_head` on the wires."""
        model = self.model
        if model.phase is Phase.SELECT or not model.flow.beats:
            self._offered = False
        elif not self._offered and self.pace():
            self._offered, self._head = True, self._row(model.flow.beats[0])
        return self._offered

    def _row(self, beat: Beat) -> int:
        """The beat at the output of the prefetch buffer, with noise where it has no dwords."""
        numbers, port = self.random, self.ports["head__oldest"].record
        low, high = beat.low, beat.low + len(beat.dwords) - 1
        if not beat.dwords:
            low, high = numbers.randrange(WIDTH), numbers.randrange(WIDTH)
        value, refusals = numbers.getrandbits(CONFIG.data_width), []
        for number in range(WIDTH):
            refusal = None
            if 0 <= number - low < len(beat.dwords):
                dword = beat.dwords[number - low]
                value &= ~(0xFFFF_FFFF << 32 * number)
                value |= dword.value << 32 * number
                refusal = dword.refusal
            refusals.append(numbers.randrange(4) if refusal is None else refusal)
        return port.pack({
            "beat": {
                "data": value,
                "low": low,
                "high": high,
                "empty": beat.empty,
                "first": beat.first,
                "end": beat.end,
                "get": beat.get,
                "cause": beat.cause,
            },
            "single": low == high or not beat.dwords,
            "refusals": refusals,
        })

    def _drive(self, now: Inputs, look: Look | None) -> None:
        numbers, answer, model = self.random, now.answer, self.model
        outcome = answer.outcome
        done, parks = outcome is Outcome.DONE, outcome is Outcome.PARK
        noise = {f"state__{name}": numbers.getrandbits(CHANNELS) for name in UNUSED}
        occupied = mask(number for number, flow in enumerate(model.flows) if flow.beats)
        self.drive(
            **noise,
            state__alive=mask(now.alive),
            state__occupied=occupied,
            head__valid=now.head,
            head__oldest=self._head if now.head else 0,
            choice__target=numbers.randrange(CHANNELS) if now.target is None else now.target,
            choice__found=now.target is not None,
            choice__leave=now.leave if model.phase is Phase.RUN else numbers.getrandbits(1),
            choice__stay=now.stay if now.leave else numbers.getrandbits(1),
            progress__state=self._state,
            progress__done=done,
            progress__park=parks,
            progress__busy=outcome is Outcome.BUSY,
            progress__refuse=outcome is Outcome.REFUSE,
            progress__wait=answer.wait if parks else numbers.randrange(len(Wait)),
            progress__sets=done and look is not None and look.kind is Kind.STATE,
            progress__keep=answer.keep if parks else numbers.getrandbits(1),
            progress__yields=answer.yields,
            progress__asked=now.asked,
            edit__valid=now.edit is not None,
            edit__payload=0 if now.edit is None else self._packed(now.edit),
        )

    def _packed(self, edit: Edit) -> dict[str, Any]:
        """Fields of an edit; those without meaning are noise."""
        numbers, method = self.random, edit.method
        if method is None:
            record = self.ports["edit__payload"].record.fields["method"][1]
            word = numbers.getrandbits(record.width)
            fields: Any = record.replaced(word, valid=0 if edit.replace else word & 1)
            held = self.flow(edit.channel).held
            if held is not None and numbers.random() < 0.5:
                # The wires show the method that is replaced, but it is not valid.
                same = {"subchannel": held.subchannel, "address": held.place >> 2}
                fields = record.replaced(fields, **same)
        else:
            fields = {
                "valid": 1,
                "subchannel": method.subchannel,
                "address": method.place >> 2,
                "data": method.data,
            }
        replaces = numbers.getrandbits(1) if edit.reset else edit.replace
        return {
            "channel": edit.channel,
            "reset": edit.reset,
            "replace": replaces,
            "method": fields,
        }

    # -- checks ------------------------------------------------------------------------------------

    def _check(self, out: Outputs, now: Inputs) -> None:
        """Compare the outputs of the last cycle with the model's."""
        for name, shown, expected in self._compared(out, now):
            assert shown == expected, f"cycle {self.cycle - 1}: {name}: {shown}, not {expected}"
        if out.run is not None:
            self._check_step(*out.run)

    def _compared(self, out: Outputs, now: Inputs) -> list[tuple[str, object, object]]:
        get, active = self.get, out.active is not None
        pairs: list[tuple[str, object, object]] = [
            ("served.active", get("served__active"), active),
            ("served.asked", get("served__asked"), now.asked),
            ("choice.take", get("choice__take"), out.take),
            ("choice.taken", get("choice__taken"), out.taken),
            ("ahead", get("service__ahead"), out.ahead),
            ("reset", get("service__reset"), out.reset),
            ("replace", get("service__replace"), out.replace),
            ("head.take", get("head__take"), out.pops),
            ("run", get("service__run"), out.run is not None),
            ("early", get("service__early"), out.early and bool(get("service__load"))),
        ]
        if active:
            pairs += [
                ("channel", get("served__channel"), out.active),
                ("service.channel", get("service__channel"), out.active),
            ]
        if out.select is not None:
            pairs += [
                ("select", get("served__select"), out.select),
                ("service.select", get("service__select"), out.select),
            ]
        if now.edit is not None:
            pairs.append(("edit.ready", get("edit__ready"), out.edited))
        if out.replace and out.again is not None:
            pairs.append(("again", get("service__again"), out.again))
        if out.leave is not None:
            pairs += [
                ("leave", get("service__leave"), out.leave),
                ("quit", get("service__quit"), out.quit),
            ]
        return pairs + self._compared_events(out)

    def _compared_events(self, out: Outputs) -> list[tuple[str, object, object]]:
        executed, park = self.get("methods__executed"), self.get("parking__park")
        done = None
        if executed["valid"]:
            done = executed["channel"], executed["method"]["address"], executed["method"]["data"]
        expected = None
        if out.executed is not None:
            channel, method = out.executed
            expected = channel, method.place >> 2, method.data
        shown: Any = (park["wait"], bool(park["lasts"])) if park["valid"] else None
        wanted: Any = out.park
        if shown and wanted and wanted[0] is None:
            assert shown[0] in (Wait.NONE, Wait.TURN), shown
            shown = wanted
        if shown:
            assert park["channel"] == out.active, park
        return [
            ("executed", done, expected),
            ("park", shown, wanted),
            ("unpark", self._number("parking__unpark"), out.unpark),
            ("cleared", self._number("methods__cleared"), out.cleared),
            ("released", self._number("methods__released"), out.released),
            ("started", self._entry("entries__started"), out.started),
            ("finished", self._entry("entries__finished"), out.finished),
        ]

    def _number(self, port: str) -> int | None:
        event = self.get(port)
        return event["channel"] if event["valid"] else None

    def _entry(self, port: str) -> Entry | None:
        event = self.get(port)
        return Entry(event["channel"], event["get"]) if event["valid"] else None

    def _check_step(self, method: Method, kind: Kind) -> None:
        """Check the executed method, its kind and its properties."""
        step = self.get("service__step")
        shown, kinds, traits = step["method"], step["kind"], step["traits"]
        assert shown["cause"] == method.cause, (shown, method)
        if method.cause in (Cause.NONE, *HEADERS):
            found = shown["address"] << 2, shown["data"], shown["subchannel"]
            assert found == (method.place, method.data, method.subchannel), (shown, method)
        one = {
            Kind.STATE: "host" if method.place < _ENGINE_METHODS else "copy",
            Kind.SEMAPHORE: "semaphore",
            Kind.LAUNCH: "launch",
            Kind.CONTROL: None,
        }[kind]
        assert kinds == {name: int(name == one) for name in kinds}, (kinds, method, kind)
        if kind is Kind.SEMAPHORE:
            meant = operation(method, Settings())
            assert traits["known"] == (meant.code is not None), method
            assert traits["acquires"] == meant.acquires, method
            assert traits["plain"] == meant.plain, method
            assert traits["idle"] == meant.idle, method
        if kind is Kind.LAUNCH:
            assert traits["modelled"] == launch_modelled(method.data), method

    # -- effects -----------------------------------------------------------------------------------

    def _follow(
        self, out: Outputs, phase: Phase, channel: int, look: Look | None, answer: Answer
    ) -> None:
        """Effects of the cycle outside the pipeline."""
        outcome = answer.outcome
        if out.edited:
            self.edit = None
        if out.pops:
            self._offered = False
        if phase is Phase.LOAD:
            self._load(out, channel)
        if outcome is not Outcome.NONE and look is not None:
            self._set(channel, look, done=outcome is Outcome.DONE)
        if outcome is Outcome.BUSY and self._plan is not None:
            acquire = look is not None and look.kind is Kind.SEMAPHORE
            self._asked = self._asked or (self._plan.asks and acquire)
        elif outcome is not Outcome.NONE or phase is Phase.RUN:
            self._plan, self._asked = None, False
        if outcome is Outcome.REFUSE:
            self.refused.add(channel)
            self.alive.discard(channel)
        if out.executed is not None:
            self.executed[channel].append(out.executed[1])
        if out.finished is not None:
            assert (self.cycle - 2, channel) != self._ended_at, "two ends in successive cycles"
            self._ended_at = self.cycle - 1, channel
            self.ended.append(out.finished)

    def _load(self, out: Outputs, channel: int) -> None:
        """Load the state of the served channel into the registers of the execution."""
        if self.get("service__load"):
            self._state = self.ports["service__loaded"].bits()
        if out.reset:
            self._state = self._states[channel] = 0
            self.objects[channel] = (ObjectKind.NONE,) * ENGINE_SUBCHANNELS
        if not out.taken:
            self.refused.discard(channel)
        expected = self._states[channel]
        assert self._state == expected, f"cycle {self.cycle - 1}: state of channel {channel}"

    def _set(self, channel: int, look: Look, *, done: bool) -> None:
        """Change the channel's state: SET_OBJECT binds an object, other methods change the rest."""
        numbers, method = self.random, look.method
        objects = ((1 << self._objects_width) - 1) << self._objects_at
        self._state ^= numbers.getrandbits(self._state_width) & ~objects
        binds = method.place == HostMethod.SET_OBJECT and method.subchannel < ENGINE_SUBCHANNELS
        if done and binds:
            bound = [*self.objects[channel]]
            bound[method.subchannel] = numbers.choice(BINDABLE)
            self.objects[channel] = tuple(bound)
            word = sum(one.value << 2 * place for place, one in enumerate(bound))
            self._state = (self._state & ~objects) | word << self._objects_at
        self._states[channel] = self._state
