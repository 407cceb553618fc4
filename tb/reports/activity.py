"""Activity of channels, engines, semaphores, SMs and translation during a run, derived from the
trace and the records of the run.

Cycles count from the start of the run. Earlier events, when channels are set up, are left out.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from signalbox.driver.commands.disassembler import method_name
from signalbox.driver.commands.pushbuffer import COMPUTE_SUBCHANNEL
from signalbox.driver.workload.records import CopyRecord, KernelRecord, Result
from signalbox.driver.workload.specs import requests
from signalbox.hw.config import SLOT_BYTES, WINDOW_BASE
from signalbox.hw.methods import (
    CeMethod,
    ComputeMethod,
    HostMethod,
    ObjectClass,
    Reduction,
    SemaphoreExecute,
    SemOp,
)
from signalbox.tb.reports.kernel_lives import KernelActivity, KernelLife, kernel_activity
from signalbox.tb.reports.translation import Translation, translation
from signalbox.tb.reports.turns import Turn, turns
from signalbox.tb.simulation import trace

__all__ = ["HALTED", "OWN_COPY", "OWN_KERNEL", "Activity", "CopySpan", "Span", "activity"]

_SHORTEST_WAIT = 16
"""Cycles. Shorter gaps between methods are pipeline delays, and not shown as waits."""

OWN_COPY = "own copy runs"
"""Name of the wait for a copy of the same channel."""

OWN_KERNEL = "own kernel runs"
"""Name of the wait for a kernel of the same channel."""

HALTED = "halted"
"""Name of the wait for the driver to clear an error."""

_ENGINE = "waits for a copy engine"
_TASK_UNIT = "waits for the task unit"
_TURN = "waits for commands or turn"


@dataclass(frozen=True)
class Span:
    """A named interval from cycle `start` to cycle `end`."""

    start: int
    end: int
    name: str


@dataclass(frozen=True)
class CopySpan:
    """One copy on its engine. Times are cycles.

    Members
    -------
    doorbell : doorbell that announced the copy.
    accepted : acceptance by the engine.
    start : start on the engine; later than `accepted` if an earlier copy was still running.
    end : end of the copy.
    failed : whether the copy failed.
    """

    name: str
    record: CopyRecord
    engine: int
    doorbell: int
    accepted: int
    start: int
    end: int
    failed: bool = False


@dataclass
class Activity:
    """The activity of a run; see the module.

    Members
    -------
    end : cycle of the last event.
    copies : in the order in which they ended.
    methods, waits : spans of each channel, without overlaps.
    doorbells : cycles of the doorbells of each channel.
    floor : spans in which a channel held the time slice, with the channel number as name.
    turns : turns of address spaces by the runlist, if there is one.
    semaphores : (cycle, value) of each change, beginning with (0, 0), by index of the on-chip
        semaphore.
    errors : (cycle, channel, cause).
    translation : look-ups, page walks, invalidations, faults.
    compute : kernels, blocks, warps, SMs.
    """

    end: int = 0
    copies: list[CopySpan] = field(default_factory=list)
    methods: dict[int, list[Span]] = field(default_factory=lambda: defaultdict(list))
    waits: dict[int, list[Span]] = field(default_factory=lambda: defaultdict(list))
    doorbells: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    floor: list[Span] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)
    semaphores: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    errors: list[tuple[int, int, str]] = field(default_factory=list)
    translation: Translation = field(default_factory=lambda: Translation({}))
    compute: KernelActivity = field(default_factory=KernelActivity)

    priorities: bool = True
    """Whether on-chip semaphores are those of a priority policy, S2, S3, …"""

    def semaphore_name(self, index: int) -> str:
        """Name of an on-chip semaphore: S(p) as in COPY-20, or its number."""
        return f"S{index + 2}" if self.priorities else f"semaphore {index}"

    @property
    def channels(self) -> dict[int, list[str]]:
        """Channels that had work, with the names of their streams."""
        found: dict[int, set[str]] = defaultdict(set)
        for record in (
            *(copy.record for copy in self.copies),
            *(kernel.record for kernel in self.compute.kernels),
        ):
            found[record.channel].add(record.stream)
        return {channel: sorted(found[channel]) for channel in sorted(found)}

    def of_engine(self, engine: int) -> list[CopySpan]:
        """Copies of one engine, in order and without overlaps."""
        return [copy for copy in self.copies if copy.engine == engine]

    def busy_cycles(self, engine: int) -> int:
        """Number of cycles in which an engine was busy."""
        return sum(copy.end - copy.start for copy in self.of_engine(engine))


def activity(result: Result, events: Sequence[trace.Event]) -> Activity:
    """Derive the activity from the trace and the records of a run. Raises
    `tb.reports.kernel_lives.Lost` if they disagree about kernels."""
    workload = result.workload
    kernels = (
        kernel_activity(result, events, workload.config) if workload.launches else KernelActivity()
    )
    found = _Reader(result, kernels)
    for event in events:
        found.take(event)
    done = found.finish()
    done.turns = turns(result, [(one.start, one.end, int(one.name)) for one in done.floor])
    done.translation = translation(result.spaces, events, result.start)
    return done


@dataclass
class _Channel:
    """State of a channel: its work (of which `launched` has begun), its semaphore registers, its
    methods. `fences` : acquires in memory since the latest of the begun work."""

    records: list[CopyRecord | KernelRecord]
    launched: int = 0
    fences: int = 0
    address_low: int = 0
    address_high: int = 0
    payload: int = 0
    methods: list[tuple[int, str, str]] = field(default_factory=list)
    """Cycle, name, and the name of the wait before it, if there was one."""


class _Reader:
    """Processes events in order."""

    def __init__(self, result: Result, kernels: KernelActivity) -> None:
        self._result = result
        self._activity = Activity(priorities=result.policy != "none", compute=kernels)
        records = sorted([*result.records, *result.kernels], key=lambda record: record.submitted)
        self._names = {(r.name, r.index): result.title(r) for r in records}
        self._needs = {request.key: request.needs for request in requests(result.workload.work)}
        self._channel_of = {(r.name, r.index): r.channel for r in records}
        for spec in result.workload.kernels:
            # A wait for a child's data ends with the parent, which is listed before the child.
            if spec.parent:
                for index in range(spec.count):
                    parent, child = (spec.parent, index), (spec.name, index)
                    self._names[child] = self._names[parent]
                    self._channel_of[child] = self._channel_of[parent]
        self._channels: dict[int, _Channel] = {}
        for record in records:
            self._channels.setdefault(record.channel, _Channel([])).records.append(record)
        self._running: dict[int, list[tuple[int, CopyRecord]]] = defaultdict(list)
        self._floor: tuple[int, int | None] = 0, None

    def take(self, event: trace.Event) -> None:
        """Process one event."""
        cycle = event.cycle - self._result.start
        done = self._activity
        match event:
            case trace.Floor(_, channel):
                self._floor_to(max(0, cycle), channel)
            case trace.Semaphore(_, index, value):
                done.semaphores.setdefault(index, [(0, 0)]).append((max(0, cycle), value))
            case trace.Method():
                self._method(cycle, event)
        if cycle < 0:
            return
        done.end = cycle
        match event:
            case trace.Doorbell(_, channel):
                done.doorbells[channel].append(cycle)
            case trace.Start(_, engine, channel):
                record = self._begun(self._channels[channel])
                assert isinstance(record, CopyRecord), record
                self._running[engine].append((cycle, record))
            case trace.Done(_, engine, _, failed):
                self._ended(cycle, engine, failed)
            case trace.Error(_, channel, cause):
                done.errors.append((cycle, channel, cause.name))

    @staticmethod
    def _begun(state: _Channel) -> CopyRecord | KernelRecord:
        """Begin the channel's next copy or kernel."""
        state.launched += 1
        state.fences = 0
        return state.records[state.launched - 1]

    def _floor_to(self, cycle: int, channel: int | None) -> None:
        since, holder = self._floor
        if holder is not None and cycle > since:
            self._activity.floor.append(Span(since, cycle, str(holder)))
        self._floor = cycle, channel

    def _ended(self, cycle: int, engine: int, failed: bool) -> None:
        accepted, record = self._running[engine].pop(0)
        before = self._activity.of_engine(engine)
        start = max(accepted, before[-1].end if before else 0)
        bells = self._activity.doorbells[record.channel]
        doorbell = max(bell for bell in bells if bell <= record.submitted)
        name = self._names[record.name, record.index]
        span = CopySpan(name, record, engine, doorbell, accepted, start, cycle, failed)
        self._activity.copies.append(span)

    # Methods

    def _method(self, cycle: int, event: trace.Method) -> None:
        state = self._channels.get(event.channel)
        if state is None:
            return
        match event.offset:
            case HostMethod.SEM_ADDR_LO:
                state.address_low = event.data
            case HostMethod.SEM_ADDR_HI:
                state.address_high = event.data
            case HostMethod.SEM_PAYLOAD_LO:
                state.payload = event.data
        if cycle < 0:
            return
        launches = event.subchannel == COMPUTE_SUBCHANNEL
        kind = ObjectClass.COMPUTE if launches else ObjectClass.COPY
        name, wait = method_name(event.offset, kind), _TURN
        if event.offset == HostMethod.SEM_EXECUTE:
            name, wait = self._semaphore(state, event.data)
        elif event.offset == CeMethod.LAUNCH_DMA:
            wait = _ENGINE
        elif launches and event.offset == ComputeMethod.SEND_SIGNALING_PCAS2_B:
            self._begun(state)
            wait = _TASK_UNIT
        state.methods.append((cycle, name, wait))

    def _semaphore(self, state: _Channel, word: int) -> tuple[str, str]:
        """Description of a semaphore operation, and name of the wait before it."""
        fields = SemaphoreExecute.from_bits(word)
        address = state.address_high << 32 | state.address_low
        target, operation = self._target(address), SemOp(fields.operation)
        if operation == SemOp.RELEASE:
            return f"release {target}", _TURN
        if operation == SemOp.REDUCTION:
            if fields.reduction == Reduction.IADD:
                amount = state.payload - (state.payload >> 31 << 32)
                return f"{target} {amount:+}", _TURN
            return f"{target} {Reduction(fields.reduction).name}", _TURN
        sign = "==" if operation == SemOp.ACQUIRE else operation.name
        if address >= WINDOW_BASE:
            return f"acquire {target} {sign} {state.payload}", f"waits for {target} {sign} 0"
        copy = self._awaited(state)
        return f"acquire end of {copy}", f"waits for the end of {copy}"

    def _target(self, address: int) -> str:
        """Name of a semaphore."""
        if address < WINDOW_BASE:
            return f"fence {address:#x}"
        index = (address - WINDOW_BASE) // SLOT_BYTES
        return self._activity.semaphore_name(index)

    def _awaited(self, state: _Channel) -> str:
        """Name of the copy or kernel that the channel's next fence in memory waits for."""
        record = state.records[state.launched]
        needs = (*self._needs[record.name, record.index], *record.behind)
        others = [need for need in needs if self._channel_of[need] != record.channel]
        state.fences += 1
        return self._names[others[state.fences - 1]]

    # Waits

    def finish(self) -> Activity:
        """The complete activity."""
        done = self._activity
        self._floor_to(done.end, None)
        for channel, state in self._channels.items():
            kernels = [one for one in done.compute.roots if one.record.channel == channel]
            copies = [copy for copy in done.copies if copy.record.channel == channel]
            self._waits(channel, state, copies, kernels)
        return done

    def _waits(
        self,
        channel: int,
        state: _Channel,
        copies: list[CopySpan],
        kernels: list[KernelLife],
    ) -> None:
        """Record spans of methods, and of the waits between them."""
        done, before = self._activity, 0
        for cycle, name, wait in [*state.methods, (done.end, "", "")]:
            start = self._own_kernel(channel, kernels, before, cycle)
            self._gap(channel, copies, start, cycle, wait)
            if name:
                done.methods[channel].append(Span(cycle, cycle + 1, name))
            before = cycle + 1

    def _own_kernel(self, channel: int, kernels: list[KernelLife], start: int, end: int) -> int:
        """End of the channel's kernel that runs at `start`, at most `end`; `start` if there is
        none. Records the wait for it."""
        ends = [one.over for one in kernels if one.launched <= start < one.over]
        until = min(end, max(ends, default=start))
        if until - start >= _SHORTEST_WAIT:
            self._activity.waits[channel].append(Span(start, until, OWN_KERNEL))
        return until

    def _gap(self, channel: int, copies: list[CopySpan], start: int, end: int, wait: str) -> None:
        """Record the reasons for the gap from `start` to `end`, in which the channel executed no
        method."""
        waits = self._activity.waits[channel]
        errors = self._activity.errors
        halted = [at for at, who, _ in errors if who == channel and start <= at < end]
        if halted:
            waits.append(Span(halted[0], end, HALTED))
            end = halted[0]
        running = [copy.end for copy in copies if copy.accepted <= start < copy.end]
        if running:
            until = min(end, max(running))
            if until > start:
                waits.append(Span(start, until, OWN_COPY))
            start = until
        if not any(copy.doorbell <= start and copy.accepted >= end for copy in copies):
            bells = self._activity.doorbells[channel]
            start = next((bell for bell in bells if start <= bell < end), end)
        if wait and end - start >= _SHORTEST_WAIT:
            waits.append(Span(start, end, wait))
