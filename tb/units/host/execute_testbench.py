"""Testbench of the execution of methods: serves channels as the method pipeline does, models the
environment, and compares every cycle with the model."""

import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from amaranth.lib import data

from signalbox.hw.config import CONFIGS, WINDOW_BASE
from signalbox.hw.errors import Cause
from signalbox.hw.host.methods.execute import Execute
from signalbox.hw.host.records import InlinePhase
from signalbox.hw.methods import AcquireTimer, SemaphoreExecute, pack
from signalbox.hw.qmd import SkedCheck
from signalbox.hw.records.semaphore import SemaphoreError
from signalbox.hw.registers import CHANNEL, Wait, channel_word
from signalbox.tb.models.execution import (
    EVENTS,
    ChannelConfig,
    ExecutionModel,
    Now,
    Refusal,
    State,
)
from signalbox.tb.models.methods import (
    Inline,
    Kind,
    Method,
    Settings,
    kind,
    launch_modelled,
    operation,
)
from signalbox.tb.testbench.clocked import Testbench, component
from signalbox.tb.testbench.masks import mask
from signalbox.tb.testbench.strobe import Strobe

__all__ = ["CHANNELS", "CONFIG", "COUNTERS", "LIMIT", "Channel", "ExecuteTestbench", "window"]

LIMIT = {"timeout_time": 60, "timeout_unit": "ms"}

CONFIG = CONFIGS[os.environ.get("SIZE", "default")]

CHANNELS, COUNTERS = CONFIG.channels, CONFIG.counters

UNITS = ("barrier", "invalidation", "compute")
"""Units that a control method may wait for."""

_PORTS = {
    **{name: f"reports__{name}" for name in ("halt", "resume", "bound", "acquire")},
    "launch": "copies__launch",
    "reserve": "copies__reserve",
    "watch": "acquires__watch",
    "guard": "acquires__guard",
    "unguard": "acquires__unguard",
    "arm": "timer__arm",
    "disarm": "timer__disarm",
    "begin": "in_memory__begin",
    "collect": "in_memory__collect",
    "write": "reference__write",
    **{f"{unit}_{event}": f"{unit}__{event}" for unit in UNITS for event in ("ask", "drop")},
    "compute_setting": "compute__setting",
    "compute_skip": "compute__skip",
}
"""Output of each event of the model, if it has another name."""

_OUTPUTS = {name: _PORTS.get(name, name) for name in EVENTS if name != "request"}

_SWITCH = data.Layout.cast(SemaphoreExecute)["acquire_switch"].offset
"""Place of ACQUIRE_SWITCH_TSG in both semaphore methods."""

_FLAGS = ("done", "busy", "sets", "yields", "asked")
"""Outputs of one bit, in `progress`."""

WHYS = [
    Refusal(Cause.COMPUTE_MODE, SkedCheck.NONE, 0),
    Refusal(Cause.INLINE_FAULT, SkedCheck.NONE, 0x1_2345_6789_ABCD),
    Refusal(Cause.TASK_CHECK, SkedCheck.REGISTER_COUNT, 0xFE_0000_0100),
]


def window(slot: int) -> int:
    """Address of an on-chip semaphore."""
    return WINDOW_BASE | slot << 4


@dataclass
class Channel:
    """A channel, including its state in the units around.

    Members
    -------
    state : while it is not served.
    method : held method, or None.
    alive : enabled and not halted.
    refused : its method was refused.
    wait : wait with which it is parked.
    copies : outstanding copies.
    able, queue, tasks : see `EngineStatus` and `Execute`.
    result : of its outstanding operation in memory: passed, name of the error.
    ended : that operation has ended.
    write : its write of REF is outstanding.
    unwritten : the last write has failed.
    asking : units that it waits for.
    over : units that it no longer needs to wait for.
    uninvalidated, why : refusal of its invalidation, of its compute method.
    """

    state: State = field(default_factory=State)
    method: Method | None = None
    alive: bool = True
    refused: bool = False
    wait: Wait = Wait.NONE
    copies: int = 0
    able: bool = True
    queue: bool = True
    tasks: bool = False
    result: tuple[bool, str] | None = None
    ended: bool = False
    write: bool = False
    unwritten: bool = False
    asking: set[str] = field(default_factory=set)
    over: set[str] = field(default_factory=set)
    uninvalidated: bool = False
    why: Refusal | None = None

    @property
    def ready(self) -> bool:
        """Its wait has ended; a wait for an engine, its group or an update may have."""
        match self.wait:
            case Wait.COPIES:
                return not self.copies
            case Wait.TASKS:
                return not self.tasks
            case Wait.FENCE:
                return self.ended
            case Wait.WRITEBACK:
                return not self.write
            case Wait.ALL_IDLE | Wait.TRANSLATION | Wait.COMPUTE:
                return bool(self.over)
        return True


class ExecuteTestbench(Testbench):
    """Serves channels.

    `serve` serves one until it is parked. All conditions are those of the cycle that begins; they
    change only where a test, or `live`, changes them.

    Members
    -------
    model : the reference.
    channels : all channels.
    served : channel on `service.channel`; `serving`: it is loaded or executes.
    spent, held, all_idle, accepts, leave, quit : inputs.
    candidate : input; None: not valid.
    zero : counting semaphores that are 0.
    cycles, units : present time.
    answer : next response of the semaphore unit: passed, name of an error.
    result : result of the next operation in memory, likewise.
    latency : cycles from its acceptance of a request to the response.
    progress : the compute engine's answers about an inline transfer, open and room; None: random.
    live : called at the beginning of each cycle; changes conditions at random.
    """

    def __init__(self, dut: Any) -> None:
        super().__init__(dut, component(Execute, CONFIG))
        self.model = ExecutionModel(CONFIG)
        self.channels = [Channel() for _ in range(CHANNELS)]
        self.served = 0
        self.spent = self.leave = self.quit = self.all_idle = False
        self.held = self.accepts = True
        self.candidate: int | None = None
        self.zero: set[int] = set()
        self.cycles, self.units = 0xFFFFF000, 0xFFFFFF00
        self.answer = self.result = (True, "NONE")
        self.latency = 3
        self.progress: tuple[bool, int] | None = None
        self.live: Any = lambda: None
        self._setting = Strobe(self, "control__setting")
        self._answers: int | None = None  # cycle of the response
        self._kept = False  # the registers hold the served channel's state, which is not saved yet
        self._select = 0
        self.serving = self._edits = self._gap = False
        offset, acquire = self.ports["progress__state"].record.fields["acquire"]
        low, deadline = acquire.fields["deadline"]
        self._deadline = (1 << deadline.width) - 1 << offset + low

    # -- setting up --------------------------------------------------------------------------------

    async def configure(self, channel: int, config: ChannelConfig) -> None:
        """Write CONFIG and ACQUIRE of a channel that is not served."""
        fields = {
            "ASID": config.asid,
            "AUTH_LEVEL": config.privileged,
            "CONTEXT": config.context,
            "EARLY_WAITS": config.early_waits,
        }
        word = sum(value << CHANNEL["CONFIG"].field(name).lo for name, value in fields.items())
        retry, timeout = _scaled(config.retry, 7), _scaled(config.timeout, 16)
        timer = pack(
            AcquireTimer,
            retry_man=retry[0],
            retry_exp=retry[1],
            timeout_man=timeout[0],
            timeout_exp=timeout[1],
            timeout_enable=config.timed,
        )
        for name, value in (("CONFIG", word), ("ACQUIRE", timer)):
            self._setting.send(channel=channel, word=channel_word(name), value=value)
            await self.select(channel)
        self.model.configs[channel] = replace(
            config, retry=retry[0] << retry[1], timeout=timeout[0] << timeout[1]
        )
        for _ in range(3):
            await self.select(channel)

    async def place(self, channel: int, state: State, **members: Any) -> Channel:
        """Start a channel anew, then give it a state, as if it had executed methods."""
        await self.edit(channel, reset=True)
        self.channels[channel] = one = Channel(state, **members)
        self._kept = False
        return one

    async def edit(
        self, channel: int, *, reset: bool = False, method: Method | None = None
    ) -> None:
        """Change the channel's context from outside: reset it, replace its method, or let it
        continue."""
        one = self.channels[channel]
        self._edits = True
        await self.select(channel)
        self._edits = False
        again = method is not None and _repeats(method, one.method)
        await self._load(channel, reset=reset, replace=method is not None, again=again)
        self.channels[channel].wait = Wait.NONE
        one.alive, one.refused = True, False
        if reset:
            # A channel starts only when its operations have ended.
            self.channels[channel] = Channel(able=one.able, queue=one.queue)
        elif method is not None:
            one.method = method
        await self.select(channel)

    # -- service -----------------------------------------------------------------------------------

    async def select(self, channel: int) -> None:
        """A cycle in which no channel is served, and this one is selected."""
        self._select, self.serving = channel, False
        await self._cycle(ahead=True)
        self.serving = True
        if self.served != channel:
            self._kept = False
        self.served = channel

    async def _load(
        self, channel: int, *, reset: bool = False, replace: bool = False, again: bool = False
    ) -> None:
        one, kept, edits = self.channels[channel], self._kept, reset or replace
        loaded = None if kept else one.state.copied()
        early = not kept and one.alive and not edits
        await self._cycle(load=loaded, early=early, reset=reset, replace=replace, again=again)
        self._kept, self._gap = True, False

    async def serve(self, channel: int, *, kept: bool = False) -> dict[str, Any]:
        """Serve the channel from its selection until its held method has an outcome, or the channel
        leaves. Returns the outputs of the last cycle."""
        if not kept:
            self._kept = False
        await self.select(channel)
        await self._load(channel)
        return await self.execute()

    async def execute(self) -> dict[str, Any]:
        """Execute the held method. After a method that did more than set state, the pipeline lets a
        cycle pass, which the execution does not need."""
        one, was = self.channels[self.served], True
        one.wait = Wait.NONE
        if self._gap and self.random.random() < 0.5:
            await self._cycle()
        while True:
            runs = one.method is not None and (was or self.model.asked)
            was = one.alive
            shown = await self._cycle(run=runs)
            if not shown["busy"]:
                break
        if shown["refuse"] is not None:
            one.alive, one.refused = False, True
        if shown["park"] is not None:
            one.wait = shown["park"]
        if shown["done"]:
            one.method = None
        self._gap = not shown["sets"]
        return shown

    # -- a cycle -----------------------------------------------------------------------------------

    async def _cycle(
        self,
        *,
        run: bool = False,
        load: State | None = None,
        reset: bool = False,
        replace: bool = False,
        again: bool = False,
        early: bool = False,
        ahead: bool = False,
    ) -> dict[str, Any]:
        self.live()
        channel, channels = self.served, self.channels
        one = channels[channel]
        responds = self._answers is not None and self.cycle >= self._answers
        error = SemaphoreError.FAULT.name if self.random.random() < 0.5 else "NONE"

        now = Now(
            channel=channel,
            method=one.method if run else None,
            load=load,
            reset=reset,
            replace=replace,
            again=again,
            early=early,
            ahead=ahead,
            leave=self.leave or self.quit or self._edits,
            quit=self.quit or self._edits,
            candidate=self.candidate,
            spent=self.spent,
            held=self.held,
            zero=frozenset(self.zero),
            able=_those(channels, "able"),
            queue=_those(channels, "queue"),
            copying=_those(channels, "copies"),
            tasks=_those(channels, "tasks"),
            all_idle=self.all_idle,
            cycles=self.cycles,
            units=self.units,
            accepts=self.accepts,
            response=self.answer if responds else None,
            ended=_those(channels, "ended"),
            result=one.result if one.ended and one.result else (False, error),
            failed=_those(channels, "unwritten"),
            over={
                unit: frozenset(c for c, other in enumerate(channels) if unit in other.over)
                for unit in UNITS
            },
            refused=_those(channels, "uninvalidated"),
            why=one.why,
            progress=self.progress
            or (bool(self.random.getrandbits(1)), self.random.choice((0, 1, 63))),
        )
        self._drive(now, one)
        expected = self.model.cycle(now)
        await self.step()
        self._compare(expected, now)
        self._react(one, expected, responds)
        self.cycles = self.cycles + 1 & 0xFFFFFFFF
        return expected

    def _decoded(self, one: Channel) -> dict[str, Any]:
        """The held method as the pipeline decodes it; traits without meaning are random."""
        method = one.method or Method(self.random.getrandbits(14) & ~3)
        what, bits = kind(method, one.state.settings.objects), self.random.getrandbits(5)
        names = ("known", "acquires", "plain", "modelled", "idle")
        traits = {name: bits >> bit & 1 for bit, name in enumerate(names)}
        if what == Kind.SEMAPHORE:
            op = operation(method, Settings())
            traits |= {"known": op.code is not None, "acquires": op.acquires}
            traits |= {"plain": op.plain, "idle": op.idle}
        elif what == Kind.LAUNCH:
            traits["modelled"] = launch_modelled(method.data)
        state = {"host" if method.place < 0x100 else "copy": 1} if what == Kind.STATE else {}
        kinds = {Kind.SEMAPHORE: {"semaphore": 1}, Kind.LAUNCH: {"launch": 1}}
        return {
            "method": {
                "valid": one.method is not None,
                "cause": method.cause,
                "subchannel": method.subchannel,
                "address": method.place >> 2,
                "data": method.data,
            },
            "kind": kinds.get(what, state),
            "traits": traits,
        }

    def _drive(self, now: Now, one: Channel) -> None:
        numbers, noise = self.random, self.random.getrandbits(32)
        self.drive(
            service__channel=now.channel,
            service__step=self._decoded(one),
            service__run=now.method is not None,
            service__select=self._select if now.ahead else now.channel,
            service__load=now.load is not None,
            service__reset=now.reset,
            service__replace=now.replace,
            service__again=now.again,
            service__early=now.early,
            service__ahead=now.ahead,
            service__leave=now.leave,
            service__quit=now.quit,
            time={"cycles": now.cycles, "units": now.units},
            on_chip__zero=mask(now.zero),
            on_chip__counting=self.model.counting,
            engines__able=mask(now.able),
            engines__queue=mask(now.queue),
            engines__copying=mask(now.copying),
            engines__keeping=noise & (1 << CHANNELS) - 1,
            tasks__some=mask(now.tasks),
            activity__all_idle=now.all_idle,
            slices__spent=now.spent,
            acquires__held=now.held,
            semaphore__request__ready=now.accepts,
            semaphore__response__valid=now.response is not None,
            in_memory__ended=mask(now.ended),
            in_memory__result=_response(now.result),
            reference__failed=mask(now.failed),
            reference__referring=mask(_those(self.channels, "write")),
            timer__expired=noise >> 8 & (1 << CHANNELS) - 1,
            invalidation__refused=mask(now.refused),
            compute__refused=mask({c for c, any_ in enumerate(self.channels) if any_.why}),
            compute__why={
                **vars(now.why or numbers.choice(WHYS)),
                "inline": dict(zip(("open", "room"), now.progress, strict=True)),
            },
        )
        self.drive(**{f"{unit}__over": mask(now.over[unit]) for unit in UNITS})
        self.drive(semaphore__response__payload=_response(now.response or (bool(noise & 1), "BUS")))
        candidate = now.candidate
        if candidate is None:
            self.drive(slices__candidate={"valid": 0, "channel": noise % CHANNELS})
        else:
            self.drive(slices__candidate={"valid": 1, "channel": candidate})
        if now.load is not None:
            self.drive(service__loaded=self._record(now.load))

    def _record(self, state: State) -> dict[str, Any]:
        acquire = {name: getattr(state, name) for name in ("confirm", "failed", "deadline")}
        settings = state.settings.record(self.model.counting)
        return {
            "settings": settings,
            "acquire": acquire,
            "referred": state.referred,
            "inline": {"phase": _phase(state.inline), "room": state.inline.room},
        }

    def _compare(self, expected: dict[str, Any], now: Now) -> None:
        wrong = {}

        def check(name: str, shown: Any, wanted: Any) -> None:
            if shown != wanted:
                wrong[name] = {"shown": shown, "expected": wanted}

        for name in _FLAGS:
            check(name, bool(self.get(f"progress__{name}")), expected[name])
        check("ignored", bool(self.get("ignored")), expected["ignored"])
        check("give_up", bool(self.get("slices__give_up")), expected["yields"])
        parks, wait = self.get("progress__park"), expected["park"]
        check("park", self.get("progress__wait") if parks else None, wait)
        if parks:
            check("keep", bool(self.get("progress__keep")), expected["keep"])
        check("refuse", bool(self.get("progress__refuse")), expected["refuse"] is not None)
        for event, port in _OUTPUTS.items():
            wanted, bits = expected[event], self.ports[port].bits()
            if wanted is None and isinstance(bits, int) and not bits & 1:
                continue
            shown = self.get(port)
            valid = shown.pop("valid")
            if not valid or wanted is None:
                check(event, shown if valid else None, wanted)
            else:
                check(event, _like(wanted, shown), wanted)
        self._compare_ports(check, expected, now)
        request, offered = expected["request"], self.get("semaphore__request__valid")
        check("offered", bool(offered), request is not None)
        if request is not None and offered:
            check("request", _like(request, self.get("semaphore__request__payload")), request)
        if now.response is not None:
            check("response", self.get("semaphore__response__ready"), 1)
        port, state = self.ports["progress__state"], expected["state"]
        meant = -1 if state.failed else ~self._deadline
        shown, wanted = port.bits(), port.record.pack(self._record(state))
        if not isinstance(shown, int) or (shown ^ wanted) & meant:
            check("state", port.get(), port.record.unpack(wanted))
        assert not wrong, f"cycle {self.cycle - 1}: {wrong}\n{now}"

    def _compare_ports(
        self, check: Callable[[str, Any, Any], None], expected: dict[str, Any], now: Now
    ) -> None:
        """Compare the outputs to other units about waits and events."""
        for name, port in (("reserve", "slices__reserves"), ("launch", "slices__launches")):
            check(port, bool(self.get(port)), expected[name] is not None)
        acquire, failed = expected["acquire"], self.get("group__failed")
        fails = acquire is not None and not acquire["passed"]
        check("failed", bool(failed["valid"]), fails)
        if fails and now.method is not None:
            yields = now.method.data >> _SWITCH & 1
            check("failed", failed, {"valid": 1, "channel": now.channel, "yields": yields})
        waits = {
            "retry": self.get("timer__expired"),
            "fenced": mask(now.ended),
            "over": mask(frozenset().union(*now.over.values())),
            "referring": mask(_those(self.channels, "write")),
        }
        for name, wanted in waits.items():
            check(name, self.get(f"waits__{name}"), wanted)

    def _react(self, one: Channel, out: dict[str, Any], responded: bool) -> None:
        """Let the units around react, where they must."""
        if self.serving:
            one.state = self.model.state
        if responded:
            self._answers = None
        if out["request"] is not None and self.accepts:
            self._answers = self.cycle - 1 + self.latency
        if out["launch"] is not None:
            one.copies += 1
        if out["begin"] is not None:
            assert one.result is None, "one operation in memory per channel"
            one.result, one.ended = self.result, False
        if out["collect"] is not None:
            one.result, one.ended = None, False
        if out["write"] is not None:
            assert not one.write, "one write of REF per channel"
            one.write, one.unwritten = True, False
        for unit in UNITS:
            if out[f"{unit}_ask"] is not None:
                one.asking.add(unit)
            if out[f"{unit}_drop"] is not None:
                one.asking.discard(unit)
                one.over.discard(unit)
        if not one.asking:
            one.uninvalidated, one.why = False, None


def _those(channels: list[Channel], name: str) -> frozenset[int]:
    """Channels for which this member is true."""
    return frozenset(c for c, channel in enumerate(channels) if getattr(channel, name))


def _repeats(method: Method, held: Method | None) -> bool:
    """Whether a method is of the same subchannel and offset as the held one."""
    return held is not None and (held.subchannel, held.place) == (method.subchannel, method.place)


def _phase(inline: Inline) -> InlinePhase:
    if inline.dropped:
        return InlinePhase.DROPPED
    if inline.failed:
        return InlinePhase.FAILED
    if inline.ended:
        return InlinePhase.ENDED
    return InlinePhase.OPEN if inline.open else InlinePhase.CLOSED


def _scaled(value: int, bits: int) -> tuple[int, int]:
    """Mantissa of this width, and exponent."""
    exponent = max(0, value.bit_length() - bits)
    return value >> exponent, exponent


def _response(answer: tuple[bool, str]) -> dict[str, Any]:
    return {"passed": answer[0], "error": SemaphoreError[answer[1]]}


def _like(wanted: Any, shown: Any) -> Any:
    """The fields of `shown` that are wanted."""
    if isinstance(wanted, dict) and isinstance(shown, dict):
        return {name: _like(one, shown[name]) for name, one in wanted.items()}
    return shown
