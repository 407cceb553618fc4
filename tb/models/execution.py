"""Execution of methods, from the contracts of `Execute` and its ports, and from the scheduling
rules (COPY-1, COPY-4, COPY-7, COPY-13, HOST-3, HOST-4, HOST-8)."""

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any, Self

from signalbox.hw.config import WINDOW_BASE, Config
from signalbox.hw.errors import Cause
from signalbox.hw.host.records import ObjectKind
from signalbox.hw.methods import (
    ComputeMethod,
    CopyLaunch,
    HostMethod,
    LaunchTransfer,
    MemOpD,
    unpack,
)
from signalbox.hw.qmd import SkedCheck
from signalbox.hw.registers import Wait
from signalbox.tb.models.methods import (
    Action,
    Inline,
    Kind,
    Method,
    Operation,
    Settings,
    Verdict,
    bound_to,
    kind,
    launch_refusal,
    operation,
    verdict,
)
from signalbox.tb.models.remap import Remap

__all__ = ["EVENTS", "ChannelConfig", "ExecutionModel", "Now", "Refusal", "State"]

EVENTS: tuple[str, ...] = (
    "launch",
    "reserve",
    "watch",
    "guard",
    "unguard",
    "arm",
    "disarm",
    "request",
    "begin",
    "collect",
    "write",
    "barrier_ask",
    "barrier_drop",
    "invalidation_ask",
    "invalidation_drop",
    "compute_setting",
    "compute_ask",
    "compute_drop",
    "compute_skip",
    "notify",
    "resume",
    "bound",
    "halt",
    "acquire",
)
"""Outputs that are None, or a dictionary with the fields of an event. Fields without a meaning are
missing."""

_ERRORS = {
    "UNDERFLOW": Cause.SEM_UNDERFLOW,
    "OVERFLOW": Cause.SEM_OVERFLOW,
    "UNKNOWN": Cause.SEM_UNKNOWN,
    "ALIGNMENT": Cause.SEM_ALIGNMENT,
    "UNSUPPORTED": Cause.SEM_UNSUPPORTED,
    "BUS": Cause.SEM_BUS,
    "FAULT": Cause.SEM_FAULT,
}
"""Cause by name of the error of a semaphore operation."""

_ASKS = {
    Action.IDLE: ("barrier", Wait.ALL_IDLE),
    Action.INVALIDATE: ("invalidation", Wait.TRANSLATION),
    Action.COMPUTE: ("compute", Wait.COMPUTE),
}
"""Actions that wait for another unit."""

_TRANSFERS = (ComputeMethod.LAUNCH_DMA, ComputeMethod.LOAD_INLINE_DATA)
"""Methods for which the engine's answer describes the rest of the inline transfer."""

_WORD = (1 << 32) - 1


@dataclass(frozen=True)
class ChannelConfig:
    """Registers CONFIG and ACQUIRE of a channel; `retry` in cycles, `timeout` in timeout units."""

    asid: int = 0
    context: int = 0
    privileged: bool = False
    early_waits: bool = False
    retry: int = 0
    timeout: int = 0
    timed: bool = False


@dataclass
class State:
    """State of a channel; see `method_state`."""

    settings: Settings = field(default_factory=Settings)
    confirm: bool = False
    failed: bool = False
    deadline: int = 0
    referred: bool = False
    inline: Inline = field(default_factory=Inline)

    def copied(self) -> Self:
        return replace(self, settings=self.settings.copied())


@dataclass(frozen=True)
class Refusal:
    """Refusal of a compute method."""

    cause: Cause
    check: SkedCheck
    va: int


@dataclass(frozen=True)
class Now:
    """Inputs of a cycle.

    Members
    -------
    channel : served channel.
    method : method of that channel to execute, or None.
    load : state that is loaded for that channel, or None.
    reset, replace, again, early, ahead, leave, quit : see `Service`.
    candidate, spent : see `SlicePort`.
    held : see `AcquirePort`.
    zero : counting semaphores that are 0.
    able, queue, copying : channels, see `EngineStatus`.
    tasks : channels with outstanding tasks.
    all_idle : nothing is outstanding in any channel.
    cycles, units : present time, in cycles and in timeout units.
    accepts : the semaphore unit accepts a request.
    response : response to an on-chip operation: whether it passed, and the name of its error.
    ended, result : see `MemorySemaphorePort`; `result` has the form of `response`.
    failed : channels for which REF could not be written.
    over : by unit, channels with a complete wait.
    refused : channels with a refused invalidation.
    why : refusal of the served channel's compute method, or None.
    progress : `open` and `room` of the channel's inline transfer, as answered by the engine.
    """

    channel: int
    method: Method | None
    load: State | None
    reset: bool
    replace: bool
    again: bool
    early: bool
    ahead: bool
    leave: bool
    quit: bool
    candidate: int | None
    spent: bool
    held: bool
    zero: frozenset[int]
    able: frozenset[int]
    queue: frozenset[int]
    copying: frozenset[int]
    tasks: frozenset[int]
    all_idle: bool
    cycles: int
    units: int
    accepts: bool
    response: tuple[bool, str] | None
    ended: frozenset[int]
    result: tuple[bool, str]
    failed: frozenset[int]
    over: dict[str, frozenset[int]]
    refused: frozenset[int]
    why: Refusal | None
    progress: tuple[bool, int]


@dataclass
class _Known:
    """Inputs about the served channel, as registered in the previous cycle."""

    copying: bool = False
    able: bool = False
    queue: bool = False
    tasks: bool = False
    ended: bool = False
    over: bool = False


@dataclass
class _Request:
    """An outstanding request to the semaphore unit."""

    fields: dict[str, Any]
    accepted: bool = False


class ExecutionModel:
    """Executes one cycle after the other.

    Members
    -------
    configs : configuration of each channel. A test may change it while the channel is neither
        served nor selected.
    counting : number of counting semaphores. A test may change it while no channel has state.
    state : state of the served channel.
    asked : the served channel has requested an on-chip operation, and has no response yet.
    met : number of times each situation was met.
    """

    def __init__(self, config: Config) -> None:
        self.configs = [ChannelConfig() for _ in range(config.channels)]
        self.counting = 0
        self.state = State()
        self.asked = False
        self.met: Counter[str] = Counter()
        self._compute = config.compute
        self._slots = 1 << config.semaphore_bits
        self._known = _Known()
        # In the previous cycle: time; whether the deadline had passed; whether state was loaded.
        self._before = (0, 0)
        self._past = self._fresh = False
        # Outstanding request; channel for which a request ahead was made in the previous cycle.
        self._port: _Request | None = None
        self._foreseen: int | None = None
        # Last request of each channel with a failed on-chip acquire, to repeat it ahead.
        self._again: dict[int, dict[str, Any]] = {}
        self._found: Verdict | None = None
        self._out: dict[str, Any] = {}

    def cycle(self, now: Now) -> dict[str, Any]:
        """Outputs of the cycle, by name. Advances the model to the next cycle.

        `park` is a wait or None, `refuse` a cause or None. The others are flags, events (`EVENTS`),
        or registered state.
        """
        self._now, self._config = now, self.configs[now.channel]
        out: dict[str, Any] = dict.fromkeys((*EVENTS, "park", "refuse"))
        self._out = out
        for name in ("done", "busy", "sets", "keep", "yields", "ignored"):
            out[name] = False
        out["asked"], out["state"] = self.asked, self.state
        self.state = self.state.copied()
        old_deadline, was_asked = self.state.deadline, self.asked
        found, self._found = self._found, None
        answer = self._answered()
        if now.method is not None:
            match kind(now.method, self.state.settings.objects):
                case Kind.STATE:
                    self._set(now.method)
                case Kind.SEMAPHORE:
                    self._semaphore(operation(now.method, self.state.settings), answer)
                case Kind.LAUNCH:
                    self._launch(now.method)
                case Kind.CONTROL:
                    self._control(now.method, found)
        self._foresee()
        if answer is not None:
            self._port = None
            self.asked = False
            if not was_asked:
                self._meet("ahead: dropped")
        self._learn()
        self._past = (now.units - old_deadline) & _WORD < 1 << 31
        self._before = (now.cycles, now.units)
        self._context()
        return out

    def _context(self) -> None:
        """Load the state of a channel, reset it, or replace the held method."""
        now = self._now
        if now.load is not None:
            self.state = now.load.copied()
        if now.replace and self.state.inline.failed:
            self._meet("inline: again" if now.again else "inline: replaced")
        if now.replace:
            self.state.inline = self.state.inline.replaced(again=now.again)
        if now.replace and now.why is not None and not now.again:
            self._event("compute_skip")
            self._meet("control: refused, not repeated")
        if now.replace:
            self.state.failed = self.state.confirm = False
        if now.reset:
            self.state = State()
        self._fresh = now.load is not None
        if now.reset or now.replace:
            self._again.pop(now.channel, None)
            for unit, _ in _ASKS.values():
                self._event(f"{unit}_drop")
            self._known.over = False

    # -- outcomes ----------------------------------------------------------------------------------

    def _meet(self, situation: str) -> None:
        self.met[situation] += 1

    def _event(self, name: str, **fields: Any) -> None:
        self._out[name] = {"channel": self._now.channel, **fields}

    def _done(self) -> None:
        self._out["done"] = True

    def _park(self, wait: Wait, what: str) -> None:
        self._out["park"] = wait
        self._meet(f"{what}: park {wait.name}")

    def _refuse(self, cause: Cause, what: str, va: int = 0) -> None:
        self._out["refuse"] = cause
        self._meet(f"{what}: refused {cause.name}")
        method, check = self._now.method, SkedCheck.NONE
        assert method is not None
        why = self._now.why
        if what == "control" and why is not None:
            va, check = why.va, why.check
        fields = {
            "valid": 1,
            "cause": method.cause,
            "subchannel": method.subchannel,
            "address": method.place >> 2,
            "data": method.data,
        }
        self._event("halt", cause=cause, check=check, va=va, method=fields)

    # -- state methods -----------------------------------------------------------------------------

    def _set(self, method: Method) -> None:
        self.state.settings.apply(method)
        self._out["sets"] = True
        self._out["yields"] = method.place == HostMethod.YIELD and bool(method.data & 2)
        self._done()
        self._meet(f"set {method.place:#x}")
        if self._known.copying:
            self._meet("set while copying")

    # -- semaphores --------------------------------------------------------------------------------

    def _answered(self) -> tuple[bool, str] | None:
        """The response that is taken in this cycle."""
        if self._port is None or not self._port.accepted:
            return None
        return self._now.response

    @property
    def _late(self) -> bool:
        return self._config.timed and self.state.failed and self._past

    @property
    def _unsettled(self) -> bool:
        """It is not known yet whether the deadline has passed."""
        return self.state.failed and self._fresh

    def _semaphore(self, op: Operation, answer: tuple[bool, str] | None) -> None:
        settings, known = self.state.settings, self._known
        on_chip = settings.va >> 16 == WINDOW_BASE >> 16
        counter = settings.record(self.counting)["semaphore"]["counter"]
        waits = op.acquires and settings.copies and not self._config.early_waits
        if self.asked:
            if answer is None:
                self._out["busy"] = True
            else:
                in_group = counter and op.plain and settings.copies
                in_group = in_group and settings.payload & _WORD == 0
                self._judge(op, answer, "chip", reserves=waits or in_group)
        elif known.copying:
            self._park(Wait.COPIES, "semaphore")
        elif op.idle and known.tasks:
            self._park(Wait.TASKS, "semaphore")
        elif op.code is None:
            self._refuse(Cause.SEM_UNSUPPORTED, "semaphore", settings.va)
        elif not on_chip:
            self._in_memory(op, waits)
        elif counter and op.plain and settings.copies and settings.payload & _WORD == 0:
            self._in_group()
        else:
            self._on_chip(op, waits, counter)

    @property
    def _slot(self) -> int:
        return self.state.settings.va >> 4 & 0xFFF & (self._slots - 1)

    def _in_group(self) -> None:
        """Execute an acquire `== 0` of a counting semaphore. The zero flags and the acquire group
        of this cycle decide it, without the semaphore unit."""
        if self._now.leave:
            self._meet("group: leave")
            return
        self._event("guard", counter=self._slot)
        timed = self._config.timed
        if self._now.held and self._slot in self._now.zero:
            if self._known.able:
                self._decide(True, "group", reserves=True)
            else:
                self._event("disarm")
                self._park(Wait.ENGINE_TIMED if timed else Wait.ENGINE, "group")
        elif self._unsettled:
            self._out["busy"] = True
            self._meet("group: unsettled")
        else:
            if self._late:
                self._event("unguard", counter=self._slot, all=0)
            self._decide(False, "group", Wait.ENGINE)

    def _on_chip(self, op: Operation, waits: bool, counter: bool) -> None:
        """Execute an operation by the semaphore unit. `waits` : an acquire is requested only while
        an engine is available. `counter` : the semaphore is a counting one; it leaves the acquire
        group if the operation is no acquire."""
        if op.acquires and self._now.leave:
            self._meet("chip: leave")
        elif waits and not self._known.able:
            if self._unsettled:
                self._out["busy"] = True
                self._meet("chip: unsettled")
            elif self._late:
                self._decide(False, "chip without engine", Wait.ENGINE_ONLY)
            else:
                self._park(Wait.ENGINE_ONLY, "chip")
                if not self.state.failed:
                    self._event("disarm")
        else:
            self._out["busy"] = True
            if not op.acquires:
                if counter:
                    self._event("unguard", counter=self._slot, all=0)
            elif self._port is None:
                self._event("watch", index=self._slot)
            else:
                self._event("watch")  # replaced by the watch of the request
            if self._port is None:
                fields = {**op.fields, "asid": self._config.asid}
                self._port = _Request(fields)
                self.asked = True
                self._meet(f"chip: {op.code.name if op.code is not None else ''}")
            else:
                self._meet("chip: behind a dropped request")

    def _in_memory(self, op: Operation, waits: bool) -> None:
        """Begin an operation in memory, or collect its result when it has ended. `waits` : a passed
        acquire counts only if its value was read while an engine could take the copy at once."""
        able, confirms = self._known.able and self._now.held, waits and self.state.confirm
        if self._known.ended:
            passed, _ = self._now.result
            if self._unsettled:
                self._out["busy"] = True
                self._meet("memory: unsettled")
                return
            self._event("collect")
            if waits and passed and not (confirms and able):
                if not self.state.confirm:
                    self._event("disarm")
                    self._meet("memory: to be confirmed")
                else:
                    self._meet("memory: engine lost")
                self.state.confirm = True
                self._park(Wait.ENGINE, "memory")
            else:
                if self._now.leave and op.acquires:
                    self._meet("memory: decided at the last moment")
                self._judge(op, self._now.result, "memory", reserves=waits)
        elif confirms and self._now.leave:
            self._meet("memory: leave")
        elif confirms and not able:
            self._park(Wait.ENGINE, "memory confirms")
        else:
            assert op.code is not None
            self._meet(f"memory: {op.code.name}" + " confirms" * confirms)
            self._event("begin", request={**op.fields, "asid": self._config.asid})
            self._park(Wait.FENCE, "memory")
            if confirms:
                self._out["keep"] = True
                self._event("reserve")

    def _judge(
        self, op: Operation, answer: tuple[bool, str], where: str, *, reserves: bool
    ) -> None:
        passed, error = answer
        if error != "NONE":
            self._refuse(_ERRORS[error], where, self.state.settings.va)
        elif not op.acquires:
            self._meet(f"{where}: changed")
            self._done()
        else:
            wait = Wait.RETRY if where == "memory" else Wait.ONCHIP
            self._decide(passed, where, wait, reserves=reserves)

    def _decide(
        self, passed: bool, where: str, wait: Wait = Wait.NONE, *, reserves: bool = False
    ) -> None:
        """Apply the result of an acquire: it passes, or it fails and then waits or times out."""
        config, state, late, channel = self._config, self.state, self._late, self._now.channel
        cycles, units = self._before
        self._event("acquire", passed=passed)
        again = not passed and self.asked and self._port is not None
        if again and self._port is not None:
            self._again[channel] = self._port.fields
        else:
            self._again.pop(channel, None)
        deadline = state.deadline if state.failed else (units + config.timeout) & _WORD
        if passed:
            self._meet(f"{where}: passed" + " after a failure" * state.failed)
            self._done()
            self._event("disarm")
            if reserves:
                self._event("reserve")
                self._meet(f"{where}: reserves")
        elif late:
            self._refuse(Cause.ACQUIRE_TIMEOUT, where, state.settings.va)
        else:
            self._park(wait, f"{where} failed{' again' * state.failed}")
            if where == "memory":
                self._event("arm", units=0, due=(cycles + config.retry) & _WORD)
            elif config.timed:
                self._event("arm", units=1, due=deadline)
            else:
                self._event("disarm")
        state.deadline = deadline
        state.failed = not passed and not late and config.timed
        state.confirm = False

    def _foresee(self) -> None:
        """Drive the port of the semaphore unit. A failed acquire of the candidate is requested
        ahead, before the candidate is served; `_claim` then assigns the response to it."""
        now, before = self._now, self._foreseen
        self._foreseen = None
        if self._port is None and now.ahead and now.candidate in self._again:
            self._foreseen = now.candidate
            fields = self._again[now.candidate]
            meant = ("va", "operation", "wide", "timestamp", "payload")
            self._port = _Request({name: fields[name] for name in meant})
            self._meet("ahead: requested")
        if now.early and before is not None and before == now.channel:
            self._claim()
        if self._port is not None and not self._port.accepted:
            self._out["request"] = self._port.fields
            self._port.accepted = now.accepts
            if not now.accepts:
                self._meet("request waits")

    def _claim(self) -> None:
        """Let the channel being loaded take the response to the request made ahead, if its acquire
        may be decided now. Otherwise the response is dropped."""
        now, channel = self._now, self._now.channel
        assert now.load is not None
        engine = channel in now.able or self._config.early_waits
        if now.leave:
            self._meet("ahead: leave")
        elif channel in now.copying:
            self._meet("ahead: copying")
        elif now.load.settings.copies and not engine:
            self._meet("ahead: no engine")
        else:
            assert self._port is not None
            self.asked = True
            self._event("watch", index=self._port.fields["va"] >> 4 & 0xFFF & (self._slots - 1))
            self._meet("ahead: claimed")

    # -- copies ------------------------------------------------------------------------------------

    def _launch(self, method: Method) -> None:
        now, known, settings = self._now, self._known, self.state.settings
        launch = unpack(CopyLaunch, method.data)
        cause = launch_refusal(method.data, settings, self._config.privileged)
        pipelined = launch["transfer"] == LaunchTransfer.PIPELINED and not launch["interrupt"]
        follows = pipelined and not now.spent
        if known.tasks:
            self._wait_for_copy(Wait.TASKS)
        elif cause != Cause.NONE:
            if known.copying:
                self._wait_for_copy(Wait.COPIES)
            else:
                self._refuse(cause, "launch")
        elif known.copying and not follows:
            self._wait_for_copy(Wait.COPIES)
            self._meet("launch: spent" if pipelined else "launch: not pipelined")
        elif now.quit:
            self._meet("launch: quit")
        elif known.copying and now.channel not in now.copying:
            self._out["busy"] = True
            self._meet("launch: ended in this cycle")
        elif now.held and (known.queue if known.copying else known.able):
            self._start(method, launch)
        elif not known.copying:
            self._meet("launch: without its group" if known.able else "launch: no engine")
            self._wait_for_copy(Wait.ENGINE)
        else:
            self._wait_for_copy(Wait.QUEUE if now.held else Wait.COPIES)

    def _wait_for_copy(self, wait: Wait) -> None:
        self._park(wait, "launch")
        if not self._known.copying:
            self._event("disarm")

    def _start(self, method: Method, launch: dict[str, int]) -> None:
        settings, behind = self.state.settings, self._known.copying
        copy = settings.copy
        same = (
            "src_physical",
            "dst_physical",
            "remap",
            "semaphore",
            "wide",
            "reduction_enable",
            "reduction",
            "reduction_unsigned",
        )
        command = {name: launch[name] for name in same} | {
            name: copy[name]
            for name in (
                *("src", "dst", "pitch_in", "pitch_out", "line_length", "semaphore_va"),
                *("const_a", "const_b"),
            )
        }
        command |= {
            "channel": self._now.channel,
            "subchannel": method.subchannel,
            "data": method.data,
            "asid": self._config.asid,
            "transfer": launch["transfer"] != LaunchTransfer.NONE,
            "line_count": copy["line_count"] if launch["multi_line"] else 1,
            "payload": copy["payload"],
            "components": Remap.of(copy["remap"], 0, 0).components(),
        }
        interrupt = launch["interrupt"] != 0
        self._event("launch", behind=behind, interrupt=interrupt, command=command)
        self._event("unguard", all=1)
        self._done()
        self._meet("launch: behind" if behind else "launch: started")
        if interrupt:
            self._meet("launch: interrupt")

    # -- control methods ---------------------------------------------------------------------------

    def _control(self, method: Method, found: Verdict | None) -> None:
        """Execute a control method, in two cycles. `found` : the verdict of the first cycle; None
        in the first cycle."""
        now, state, channel = self._now, self.state, self._now.channel
        if found is None:
            refused = Cause.NONE
            if state.referred and method.place == HostMethod.SET_REFERENCE:
                refused = Cause.USERD_WRITE if channel in now.failed else Cause.NONE
            elif method.place == HostMethod.MEM_OP_D and channel in now.refused:
                refused = Cause.METHOD_UNDEFINED
            elif now.why is not None:
                refused = now.why.cause
            bound = bound_to(state.settings.objects, method.subchannel)
            self._found = verdict(
                method,
                bound,
                self._config.privileged,
                refused,
                state.inline,
                compute=self._compute,
            )
            self._out["busy"] = True
            return
        known, action = self._known, found.action
        referred, state.referred = state.referred, False
        if action in (Action.NOTHING, Action.BIND, Action.SET, Action.IGNORE):
            self._complete(found)
            self._meet(f"control: {action.name}" + " while copying" * known.copying)
        elif known.copying:
            self._park(Wait.COPIES, "control" + " refused" * (action == Action.REFUSE))
        elif action == Action.REFUSE:
            self._refuse(found.cause, "control")
            if self._computes(method):
                state.inline = state.inline.refused(method)
        elif found.idle and known.tasks:
            self._park(Wait.TASKS, "control")
        elif action == Action.REFERENCE and not referred:
            self._event("write", value=method.data)
            state.referred = True
            self._park(Wait.WRITEBACK, "control")
        elif action in _ASKS and not self._over(action, method):
            unit, wait = _ASKS[action]
            self._park(wait, "control")
            self._event(f"{unit}_ask")
            if action == Action.INVALIDATE:
                self._out["invalidation_ask"]["data"] = unpack(MemOpD, method.data)
            elif action == Action.COMPUTE:
                self._out["compute_ask"] |= {
                    "asid": self._config.asid,
                    "context": self._config.context,
                    "address": method.place >> 2,
                    "data": method.data,
                }
        else:
            self._complete(found)
            self._meet(f"control: {action.name}")

    def _over(self, action: Action, method: Method) -> bool:
        """Whether the wait of a control method is over. WFI of SCOPE 0 (this channel) waits for
        nothing here; of SCOPE 1 (all), until everything is idle."""
        if action == Action.IDLE:
            scope = "ALL" if method.data & 1 else "channel"
            over = scope == "channel" or self._now.all_idle or self._known.over
            self._meet(f"WFI {scope}: {'over' if over else 'waits'}")
            return over
        return self._known.over

    def _complete(self, found: Verdict) -> None:
        method, action = self._now.method, found.action
        assert method is not None
        self._done()
        place = {"address": method.place >> 2, "data": method.data}
        match action:
            case Action.BIND:
                self.state.settings.objects[method.subchannel] = found.object
                data = method.data & 0x1F_FFFF
                self._event("bound", subchannel=method.subchannel, data=data)
            case Action.NOTIFY:
                self._event("notify")
            case Action.RESUME:
                self._event("resume", target=method.data & 0xFFF)
            case Action.IGNORE:
                self._out["ignored"] = True
            case Action.SET:
                self._event("compute_setting", **place)
                if method.place == ComputeMethod.LOAD_INLINE_DATA:
                    self.state.inline = self.state.inline.loaded()
                    self._meet("inline: loaded")
            case Action.COMPUTE if method.place in _TRANSFERS:
                self.state.inline = Inline(*self._now.progress)
                self._meet("inline: goes on" if self.state.inline.open else "inline: ends")
        if action in _ASKS:
            for unit, _ in _ASKS.values():
                self._event(f"{unit}_drop")

    def _computes(self, method: Method) -> bool:
        """Whether a method is one of a compute object."""
        bound = bound_to(self.state.settings.objects, method.subchannel)
        engine = method.cause == Cause.NONE and method.place >= 0x100
        return engine and bound == ObjectKind.COMPUTE

    def _learn(self) -> None:
        """Register the inputs of this cycle for the next one, updated by the channel's own
        actions."""
        now, channel, out = self._now, self._now.channel, self._out
        self._known = _Known(
            channel in now.copying or out["launch"] is not None,
            channel in now.able,
            channel in now.queue and out["launch"] is None,
            channel in now.tasks,
            channel in now.ended and out["collect"] is None,
            any(channel in one for one in now.over.values()) and out["barrier_drop"] is None,
        )
