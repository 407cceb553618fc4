"""Testbench of the channel registers: each output of each cycle against the model."""

import os
from collections import Counter, deque
from dataclasses import dataclass, replace
from typing import Any

from signalbox.hw.config import CONFIGS
from signalbox.hw.host.channel_registers import ChannelRegisters
from signalbox.hw.host.records import INDEX_BITS
from signalbox.hw.registers import CHANNEL, Access, channel_word
from signalbox.tb.models.channel_registers import OBJECTS, Channel, Error
from signalbox.tb.testbench.clocked import Testbench, component
from signalbox.tb.testbench.ends import Sink, Source
from signalbox.tb.testbench.strobe import Strobe
from signalbox.tb.units.host.channel_events import Events, Inputs
from signalbox.tb.units.host.channel_goals import Goal
from signalbox.tb.units.host.channel_past import Past

__all__ = ["ChannelRegistersTestbench"]

CONFIG = CONFIGS[os.environ.get("SIZE", "default")]

READ, WRITE = 5, 5
"""Cycles from the acceptance of an access to the response of a read, and to the effect of a
write."""

SEEN = 3
"""Cycles from a change of a channel's state to the first write that can depend on it."""

BEFORE = 4
"""Maximum cycles from an event to the first read that shows it. A read shows the state of some
cycle between this number of cycles before its acceptance and the beginning of its response."""

_OFTEN = 0.3
"""Probability that an access to a channel that is off starts it."""

LIMIT = 5000
"""Limit of an access, in cycles."""

_FAILURES = ("failed", "task_failed")
_PORTS = {
    **{name: f"reports__{name}" for name in ("halt", "resume", "acquire", "bound")},
    **{name: f"copies__{name}" for name in ("ended", "failed")},
    **{f"task_{name}": f"tasks__{name}" for name in ("ended", "failed")},
    "executed": "methods__executed",
    "referenced": "userd__referenced",
}
"""Port of each strobe and failure."""
_TAKEN = {"failed": "copies__taken", "task_failed": "tasks__taken"}
_LEVELS = {
    "active": "activity__active",
    "busy": "state__busy",
    "serving": "served__active",
    "served": "served__channel",
    "floor_valid": "floor__valid",
    "floor": "floor__channel",
    "waits": "parked__waits",
    "copies": "copies__counts",
    "tasks": "tasks__counts",
}
"""Member of `StatusPort` of each level."""
_STATUS = {field.name: field for field in CHANNEL["STATUS"].fields}
_SETTINGS = [one.name for one in CHANNEL if one.access is Access.RW and one.reset is None]


@dataclass
class Turn:
    """The access in progress, accepted in cycle `at`."""

    channel: int
    name: str
    write: bool
    data: int
    at: int


class ChannelRegistersTestbench(Testbench):
    """Drives random events and accesses, and checks all outputs.

    Members
    -------
    channels : the model.
    met : number of times each goal was met.
    """

    def __init__(self, dut: Any) -> None:
        super().__init__(dut, component(ChannelRegisters, CONFIG))
        count = CONFIG.channels
        self._strobes = {name: Strobe(self, port) for name, port in _PORTS.items()}
        self._requests = Source(self, "port__request")
        self._responses = Sink(self, "port__response", self._takes)
        self._changes = Sink(self, "edit", self._edits)
        # A ring is emptied in the third cycle at the earliest.
        self._restarts = Sink(self, "restart", lambda: self._restarting >= 2 and self._takes())
        self.events = Events(CONFIG, self.random)
        self._inputs = Inputs()
        self.channels = [Channel() for _ in range(count)]
        self.met: Counter[Goal] = Counter()
        self._halts = [False] * count
        self._settings: dict[tuple[int, str], int] = {}
        self._rewritten: set[int] = set()
        self._forgotten: dict[int, dict[str, int]] = {}
        self._since = [0] * count
        # Per channel, cycles of each CLEAR_FAULTED that may be pending, and accesses since then.
        self._pending: list[dict[int, int]] = [{} for _ in range(count)]
        self._indices = [(0, 0)] * count
        self._peeked = 0
        self._refused: tuple[int, Error] | None = None
        self._noted: tuple[int, Error] | None = None
        self._setting: dict[str, int] | None = None
        self._offer: Turn | None = None
        self._turn: Turn | None = None
        self._phase, self._resumed, self._starts, self._began = "idle", 0, False, 0
        self._past: deque[Past] = deque(maxlen=64)
        self._executed = -1
        self._ready, self._restarting = 0.5, 0
        self._answered = False
        """Whether the response was checked, and is held."""

    def missing(self, enough: int) -> list[str]:
        """Goals not met often enough."""
        # With only one channel, its own failed copies are outstanding while its tasks wait.
        goals = {*Goal} - ({Goal.FAILURE_WAITS} if CONFIG.channels == 1 else set())
        return [goal.value for goal in Goal if goal in goals and self.met[goal] < enough]

    def change_pace(self) -> None:
        """Choose other busy channels, and another frequency of events."""
        numbers, channels = self.random, range(CONFIG.channels)
        self.events.busy = numbers.sample(channels, min(len(channels), numbers.randint(1, 3)))
        self.events.pace = numbers.choice((0.01, 0.05, 0.2, 0.5))
        self.events.choose_flood()
        self._ready = numbers.choice((0.1, 0.5, 1.0))

    async def rest(self) -> None:
        """Let all operations end."""
        self.events.quiet, self.events.pace, self._ready = True, 0.5, 1.0
        self.events.flood = None
        while any(self.events.copies) or any(self.events.tasks) or self._offer or self._turn:
            await self.step(offers=False)
        for _ in range(40):
            await self.step(offers=False)

    async def read(self, channel: int, name: str) -> None:
        """Read a register, unless it was never written, and check it."""
        if name in _SETTINGS and (channel, name) not in self._settings:
            return
        self._put(Turn(channel, name, False, 0, 0))
        while self._offer or self._turn:
            await self.step(offers=False)

    # -- one cycle ---------------------------------------------------------------------------------

    async def step(self, *, offers: bool = True) -> None:
        """One cycle."""
        numbers = self.random
        if offers and not self._offer and numbers.random() < 0.3:
            self._put(self._choose())
        if numbers.random() < 0.05:
            channel = numbers.randrange(CONFIG.channels)
            self._indices[channel] = (
                numbers.getrandbits(INDEX_BITS), numbers.getrandbits(INDEX_BITS)
            )  # fmt: skip
        self.events.moment = self._moment()
        self.events.starts = self._turn.channel if self._turn and self._phase == "restart" else None
        self._inputs = inputs = self.events.cycle()
        self._send(inputs)
        await super().step()
        halted = self._outputs(inputs)
        state = Past(tuple(self.channels), inputs.levels, halted, tuple(self._indices))
        self._past.append(state)
        self._failures(inputs)
        self._access(inputs)
        self._follow(inputs)
        self._peeked = self.get("put__channel") % CONFIG.channels  # noise between accesses
        assert self.cycle - self._began < LIMIT, f"{self._phase} of {self._turn} lasts too long"

    def _send(self, inputs: Inputs) -> None:
        failures = {name: getattr(inputs, name) for name in _FAILURES}
        for name, fields in (inputs.strobes | failures).items():
            if fields is not None:
                self._strobes[name].send(**fields)
        put, get = self._indices[self._peeked]
        levels = {f"status__{_LEVELS[name]}": value for name, value in inputs.levels.items()}
        self.drive(**levels, put__index=put, get__index=get)

    def _put(self, turn: Turn | None) -> None:
        """Offer an access."""
        self._offer = turn
        if turn:
            address = turn.channel << 6 | channel_word(turn.name)
            self._requests.put({"address": address, "write": turn.write, "data": turn.data})

    def _takes(self) -> bool:
        return self.random.random() < self._ready

    def _edits(self) -> bool:
        """Whether a change of a context is accepted: often in the cycle in which a failure ends or
        is recorded."""
        inputs = self._inputs
        if self._phase == "reset" and self._turn:
            if inputs.of("task_failed", self._turn.channel):
                return False
            if self._noted and self._noted[0] == self._turn.channel:
                return True
        return bool(inputs.strobes.get("ended", {}).get("failed")) or self._takes()

    def _moment(self) -> int | None:
        """The channel that is being resumed or started."""
        if self._phase in {"edit", "clear"} and not self._turn:
            return self._resumed
        if self._turn and self._phase in {"edit", "clear", "restart"}:
            return self._turn.channel
        return None

    def _choose(self) -> Turn | None:
        """A random access."""
        numbers = self.random
        channel = numbers.choice(self.events.busy)
        if numbers.random() < 0.05:
            channel = numbers.randrange(CONFIG.channels)
        data, model = numbers.getrandbits(32), self.channels[channel]
        kind = numbers.choice(("read", "read", "read", "control", "intr", "held", "setting"))
        if kind == "control" or (not model.enabled and numbers.random() < _OFTEN):
            off = model.enabled and numbers.random() < 0.3
            return Turn(channel, "CONTROL", True, data & ~1 | (not off), 0)
        if kind == "intr":
            name = numbers.choice(("INTR_0", "INTR_1"))
            return Turn(channel, name, True, numbers.choice((data, -1 & 0xFFFF_FFFF, 0)), 0)
        if kind == "held":
            return Turn(channel, numbers.choice(("METHOD0", "DATA0")), True, data, 0)
        if kind == "setting":
            return Turn(channel, numbers.choice(_SETTINGS), True, data, 0)
        name = numbers.choice([*CHANNEL]).name
        if name in _SETTINGS and (channel, name) not in self._settings:
            return None
        return Turn(channel, name, False, 0, 0)

    # -- strobes and levels ------------------------------------------------------------------------

    def _outputs(self, inputs: Inputs) -> int:
        """Check the outputs that do not depend on the access. Returns the halted channels."""
        halted = 0
        for number, halts in enumerate(self._halts):
            refused = self._refused is not None and self._refused[0] == number
            halted |= (halts or refused) << number
        assert self.get("control__halted") == halted, (self.get("control__halted"), halted)
        enabled = sum(one.enabled << number for number, one in enumerate(self.channels))
        assert self.get("control__enabled") == enabled
        error, setting = self.get("error"), self.get("control__setting")
        assert bool(error["valid"]) == (self._noted is not None)
        if self._noted:
            assert (error["channel"], error["cause"]) == (self._noted[0], self._noted[1].cause)
        assert bool(setting["valid"]) == (self._setting is not None)
        if self._setting:
            assert setting == {"valid": 1, **self._setting}
        free = not self._refused and not self._noted and self._phase != "clear"
        takes = bool(inputs.failed) and free
        task_takes = bool(inputs.task_failed) and free and not inputs.failed
        assert bool(self.get("copies__taken")) == takes
        assert bool(self.get("tasks__taken")) == task_takes
        if inputs.failed or inputs.task_failed:
            self.met[Goal.BEHIND_METHOD] += self._refused is not None
            self.met[Goal.BEHIND_CLEAR] += self._phase == "clear"
        self.met[Goal.TOGETHER] += bool(inputs.failed and inputs.task_failed)
        return halted

    def _failures(self, inputs: Inputs) -> None:
        """Follow errors to their records, and channels to their halts, except for clears."""
        taken = []
        self._recorded = self._noted
        if self._noted:
            channel, error = self._noted
            self._count_error(channel, error)
        noted = self._refused
        for port in ("failed", "task_failed"):
            if self.get(_TAKEN[port]):
                taken.append(port)
                noted = (getattr(inputs, port)["channel"], inputs.errors[port])
        self._refused, self._halting = None, self._refused
        if halt := inputs.strobes.get("halt"):
            self._refused = (halt["channel"], inputs.errors["halt"])
        self._noted = noted
        self.events.saw(self.get("control__enabled"), self.get("control__halted"), *taken)

    def _count_error(self, channel: int, error: Error) -> None:
        before = len(self.channels[channel].errors)
        method = error.method & 0xFFFF == 0x300
        kind = (Goal.COPY_ERROR if method else Goal.TASK_ERROR) if error.late else Goal.METHOD_ERROR
        self.met[kind] += 1
        self.met[Goal.LATE_METHOD] += before > 0 and not error.late
        self.met[Goal.SECOND] += before == 1 and error.late
        self.met[Goal.BEYOND] += before == 2 and error.late

    def _follow(self, inputs: Inputs) -> None:
        """State after this cycle's events other than clears."""
        if self._recorded:
            channel, error = self._recorded
            if not self.channels[channel].errors:
                self._since[channel] = self.cycle
            self.channels[channel] = self.channels[channel].noted(error)
        for number in range(CONFIG.channels):
            halting = self._halting is not None and self._halting[0] == number
            for port in ("ended", "task_ended"):
                if ended := inputs.of(port, number):
                    halting |= bool(ended["failed"])
            self._halts[number] |= halting
        tallies = {"executed": "METHODS", "ended": "COPIES", "task_ended": "TASKS"}
        for port, name in tallies.items():
            if strobe := inputs.strobes.get(port):
                channel = strobe["channel"]
                self.channels[channel] = self.channels[channel].counted(name)
        if strobe := inputs.strobes.get("executed"):
            self.met[Goal.FORWARDED] += self._executed == strobe["channel"]
        self._executed = inputs.strobes.get("executed", {"channel": -1})["channel"]
        if strobe := inputs.strobes.get("referenced"):
            channel = strobe["channel"]
            self.channels[channel] = self.channels[channel].counted("REFERENCE", strobe["value"])
        if strobe := inputs.strobes.get("bound"):
            channel, word = strobe["channel"], strobe["data"]
            self.channels[channel] = self.channels[channel].bound(strobe["subchannel"], word)
        if strobe := inputs.strobes.get("acquire"):
            channel = strobe["channel"]
            failed = not strobe["passed"]
            self.channels[channel] = replace(self.channels[channel], acquire_failed=failed)
        if strobe := inputs.strobes.get("resume"):
            if strobe["target"] < CONFIG.channels:
                self._pending[strobe["target"]][self.cycle] = 0
            else:
                self.met[Goal.NO_TARGET] += 1

    # -- the access --------------------------------------------------------------------------------

    def _access(self, inputs: Inputs) -> None:
        """Check the outputs that depend on the access, and follow it."""
        turn = self._turn
        accepts = bool(self.get("port__request__ready"))
        edits = bool(self._changes.offered)
        if self._phase == "idle" and edits:
            self._resume_by_method()
        assert accepts <= (self._phase == "idle")
        assert edits == (self._phase in {"edit", "reset"})
        assert bool(self.get("restart__valid")) <= (self._phase == "restart")
        assert bool(self.get("port__response__valid")) == self._responds()
        self._setting = None
        if self._phase == "idle" and accepts and self._offer:
            self._accept()
        elif self._phase == "access" and turn and turn.write and self.cycle >= turn.at + WRITE:
            self._write(turn)
        elif self._phase in {"edit", "reset"}:
            self._edited(inputs)
        elif self._phase == "clear":
            if not (self._recorded or self._halting):
                self._clear(inputs)
        elif self._phase == "restart":
            self._restart(inputs)
        elif self._responds():
            self._respond()

    def _enter(self, phase: str) -> None:
        self._phase, self._began = phase, self.cycle

    def _responds(self) -> bool:
        turn = self._turn
        if turn and not turn.write and self.cycle == turn.at + READ:
            self._phase = "respond"
        return self._phase == "respond"

    def _accept(self) -> None:
        """A request was accepted. A CLEAR_FAULTED comes before the next one, unless those for other
        channels do, each once, or one that had its turn already."""
        for number, strobes in enumerate(self._pending):
            for at, passed in [*strobes.items()]:
                if at > self.cycle - 2:
                    continue
                strobes[at] += 1
                if passed <= CONFIG.channels + 1:
                    continue
                late = self.channels[number].errors and self._since[number] <= at
                assert not late, f"CLEAR_FAULTED of {number} had no effect"
                self.met[Goal.NOT_HALTED] += 1
                del strobes[at]
        self._turn, self._offer = self._offer, None
        assert self._turn
        self._turn.at = self.cycle
        self._enter("access")

    def _visible(self, channel: int) -> Channel:
        """State of the channel on which a write in this cycle depends."""
        return self._past[-1 - SEEN].channels[channel]

    def _write(self, turn: Turn) -> None:
        """A write takes effect in this cycle."""
        channel, name, data = turn.channel, turn.name, turn.data
        model = self.channels[channel]
        seen = self._visible(channel)
        self._enter("respond")
        if name in {"INTR_0", "INTR_1"}:
            clears = seen.errors and seen.errors[0].word(name) & data
            self.met[Goal.BY_REGISTER if clears else Goal.NOT_CLEARED] += 1
            if clears:
                self._resumed = channel
                self._enter("edit")
            return
        if name in {"METHOD0", "DATA0"}:
            if self._recorded or self._halting:
                self._phase = "access"
                self.met[Goal.REWRITE_WAITS] += 1
            elif seen.errors:
                self.channels[channel] = model.rewritten(name, data)
                self._rewritten.add(channel)
            else:
                self.met[Goal.IGNORED] += 1
            return
        mask = CHANNEL[name].stored(CONFIG)
        self._setting = {"channel": channel, "word": channel_word(name), "value": data & mask}
        self._settings[channel, name] = data & mask
        if name == "CONTROL" and not data & 1:
            self.channels[channel] = replace(model, enabled=False)
        elif name == "CONTROL" and not model.enabled:
            self._starts = True
            self._enter("clear")

    def _resume_by_method(self) -> None:
        """The channel of a pending CLEAR_FAULTED is resumed."""
        self._resumed = self.get("edit__payload")["channel"]
        pending = self._pending[self._resumed]
        # Its error was chosen 5 cycles ago; a later error is another one.
        rest = {at: passed for at, passed in pending.items() if at >= self.cycle - 5}
        assert len(rest) < len(pending), f"channel {self._resumed} is resumed without a reason"
        assert self._past[-SEEN].channels[self._resumed].errors
        self._pending[self._resumed] = rest
        self.met[Goal.BY_METHOD] += 1
        self._turn = None
        self._enter("edit")

    def _edited(self, inputs: Inputs) -> None:
        """A change of a context is offered."""
        turn = self._turn
        edit = self.get("edit__payload")
        resets = self._phase == "reset"
        channel = turn.channel if turn and resets else self._resumed
        assert (edit["channel"], edit["reset"]) == (channel, resets)
        model = self.channels[channel]
        if not resets:
            error, method = model.errors[0], edit["method"]
            assert edit["replace"] == (not error.late)
            if edit["replace"]:
                assert method["data"] == error.data
                rest = {name: method[name] for name in ("subchannel", "valid")}
                head = CHANNEL["METHOD0"].unpack(error.method)
                assert method["address"] == head["ADDRESS"]
                assert rest == {"subchannel": head["SUBCHANNEL"], "valid": head["VALID"]}
        if not self._changes.open:
            self.met[Goal.EDIT_WAITS] += 1
            return
        if not resets:
            self.met[Goal.REWRITTEN] += channel in self._rewritten and bool(edit["replace"])
            self._enter("clear")
            return
        self.channels[channel] = model.started()
        if self.channels[channel].errors != model.errors or not model.errors:
            self._halt_after_clear(inputs, channel)
        self.met[Goal.FORGETS] += model.tallies["METHODS"] > 0
        self._forgotten[channel] = model.objects
        self.met[Goal.START] += 1
        self.met[Goal.LATE_FAILURE] += self._halts[channel]
        self._enter("respond")

    def _halt_after_clear(self, inputs: Inputs, channel: int) -> None:
        failing = inputs.of("failed", channel) or inputs.of("task_failed", channel)
        remains = bool(self.channels[channel].errors)
        self._halts[channel] = remains or failing is not None
        ends = inputs.of("ended", channel) or inputs.of("task_ended", channel)
        self.met[Goal.HELD_ON] += failing is not None and not remains and not ends
        self._since[channel] = self.cycle
        self._rewritten.discard(channel)

    def _clear(self, inputs: Inputs) -> None:
        """The error is cleared in this cycle; at a start, all errors are."""
        turn = self._turn
        channel = turn.channel if turn else self._resumed
        model = self.channels[channel]
        if self._starts:
            self.met[Goal.DROPS] += bool(model.errors)
            self.channels[channel] = replace(model, errors=())
        else:
            self.met[Goal.NEXT_SHOWN] += len(model.errors) > 1
            self.channels[channel] = model.cleared()
        self._halt_after_clear(inputs, channel)
        self.met[Goal.RESUMED] += not self._starts and not self._halts[channel]
        following = "restart" if self._starts else "respond" if turn else "idle"
        self._starts = False
        self._enter(following)

    def _restart(self, inputs: Inputs) -> None:
        """A start waits until the channel has no outstanding operations."""
        turn = self._turn
        assert turn
        failing = any(inputs.of(port, turn.channel) for port in ("failed", "task_failed"))
        if not self.get("restart__valid"):
            self._restarting = 0
            self.met[Goal.RESTART_WAITS] += 1
            idle = [~past.levels["active"] >> turn.channel & 1 for past in [*self._past][-4:]]
            waits = not all(idle) or self.cycle - self._began < len(idle)
            self.met[Goal.FAILURE_WAITS] += failing and not waits
            assert waits or failing
            return
        assert not failing, "a channel starts before its failure is recorded"
        assert not self._past[-SEEN].levels["active"] >> turn.channel & 1
        assert self.get("restart__payload") == {"channel": turn.channel}
        self._restarting += 1
        if self._restarts.open:
            self._restarting = 0
            self._enter("reset")

    def _respond(self) -> None:
        turn = self._turn
        assert turn
        if not turn.write and not self._answered:
            self._check_read(turn, self.get("port__response__payload")["data"])
        self._answered = not self._responses.open
        if self._responses.open:
            self._turn = None
            self._enter("idle")

    # -- reads -------------------------------------------------------------------------------------

    def _check_read(self, turn: Turn, answer: int) -> None:
        window = [*self._past][turn.at - self.cycle - BEFORE - 1 :]
        if turn.name == "STATUS":
            for name, field in _STATUS.items():
                expected = {one.status(turn.channel, name) for one in window}
                assert (answer & field.mask) >> field.lo in expected, (name, answer, expected)
            return
        if turn.name in _SETTINGS:
            expected = {self._settings[turn.channel, turn.name]}
        else:
            expected = {one.word(turn.channel, turn.name) for one in window}
        assert answer in expected, f"{turn} gave {answer:#x}, not {expected}"
        if turn.name in OBJECTS:
            others = any(window[-1].channels[turn.channel].objects.values())
            lost = self._forgotten.get(turn.channel, {}).get(turn.name, 0)
            self.met[Goal.FORGETS_OBJECTS] += others and lost > 0 and answer == 0
        if turn.name == "CAUSE":
            self.met[Goal.READ_MORE] += CHANNEL["CAUSE"].unpack(answer)["MORE"]
        self.met[Goal.READ_SECOND_CODES] += turn.name == "INTR_1" and answer > 0
