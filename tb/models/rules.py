"""Scheduling rules, checked on a trace independently of the hardware's implementation.

Pass all events of a run to `Rules.check`. For an event that breaks a rule, it raises
`AssertionError` with rule, cycle and channel.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from signalbox.tb.models.semaphores import ACQUIRES, SemaphoreMemory
from signalbox.tb.simulation import trace

__all__ = ["Rules"]

_SEM_EXECUTE = 0x6C
_AFTER_COPIES = {0x1C, 0x20, 0x24, 0x34, 0x50, 0x6C, 0x78, 0x84}
"""Host methods that take effect only after the channel's earlier copies have ended (COPY-4)."""


@dataclass
class _Channel:
    """State of one channel.

    Members
    -------
    registers : data of the latest host methods, by byte offset.
    running : number of running copies.
    acquired : (cycle, address) of the acquires passed since the last start of a copy.
    group : counting semaphores of these acquires, without those that the channel has changed since.
    """

    registers: dict[int, int] = field(default_factory=dict)
    running: int = 0
    acquired: list[tuple[int, int]] = field(default_factory=list)
    group: set[int] = field(default_factory=set)


@dataclass
class Rules:
    """Checks one run, beginning at reset.

    Members
    -------
    slots : number of on-chip semaphores.
    counting : number of counting semaphores, which are the first ones.
    engine_releases : semaphores that copy engines may write; their values are not checked.
    """

    slots: int
    counting: int
    engine_releases: frozenset[int] = frozenset()
    channels: dict[int, _Channel] = field(default_factory=lambda: defaultdict(_Channel))
    values: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    expected: list[tuple[int, int]] = field(default_factory=list)
    seen: list[tuple[int, int]] = field(default_factory=list)
    started: dict[int, list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list))
    copies: int = 0
    redecided: int = 0
    operations: int = 0
    model: SemaphoreMemory = field(init=False)

    def __post_init__(self) -> None:
        self.model = SemaphoreMemory(self.slots, self.counting)

    def check(self, events: Iterable[trace.Event]) -> None:
        """Check all events of a run. Raises `AssertionError` at the first one that breaks a rule.

        Within a cycle, semaphore writes are taken first, as the scheduler sees the values of the
        same cycle.
        """
        for event in sorted(
            events, key=lambda event: (event.cycle, not isinstance(event, trace.Semaphore))
        ):
            self.see(event)
        assert not self.expected, f"COPY-1: semaphore writes never seen: {self.expected}"
        running = {number for number, channel in self.channels.items() if channel.running}
        assert not running, f"HOST-8: copies of channels {running} never ended"

    def see(self, event: trace.Event) -> None:
        match event:
            case trace.Method():
                self._method(event)
            case trace.Semaphore():
                self._written(event)
            case trace.Acquire(passed=True):
                self._acquired(event)
            case trace.Start():
                self._start(event)
            case trace.Done():
                self._done(event)

    def _method(self, event: trace.Method) -> None:
        channel = self.channels[event.channel]
        if event.offset in _AFTER_COPIES:
            assert not channel.running, (
                f"COPY-4: cycle {event.cycle}: channel {event.channel} executed "
                f"{event.offset:#x} while its copy runs"
            )
        if event.offset == _SEM_EXECUTE:
            self._operate(event, channel)
        elif event.offset < 0x100:
            channel.registers[event.offset] = event.data

    def _address(self, channel: _Channel) -> int:
        return (channel.registers.get(0x60, 0) & 0xFF) << 32 | channel.registers.get(0x5C, 0)

    def _operate(self, event: trace.Method, channel: _Channel) -> None:
        """Replay an on-chip operation. The write of a release or reduction must be in the trace."""
        va, operation = self._address(channel), event.data & 7
        if not self.model.on_chip(va):
            return
        self.operations += 1
        wide = bool(event.data >> 24 & 1)
        payload = channel.registers.get(0x64, 0)
        payload |= channel.registers.get(0x68, 0) << 32 if wide else 0
        passed, error = self.model.execute(
            va,
            operation,
            reduction=event.data >> 27 & 0xF,
            unsigned=bool(event.data >> 31),
            wide=wide,
            payload=payload,
        )
        assert error == "NONE" and passed, (
            f"COPY-9: cycle {event.cycle}: channel {event.channel} executed operation {operation} "
            f"on {va:#x}, which the model refuses: {passed=} {error}"
        )
        if operation not in ACQUIRES:
            slot = va >> 4 & 0xFFF
            channel.group.discard(slot)
            self.expected.append((slot, self.model.read(va, 64)))
            self._match()

    def _written(self, event: trace.Semaphore) -> None:
        if event.index in self.engine_releases:
            self.model.values[event.index] = event.value
        self.values[event.index] = event.value
        self.seen.append((event.index, event.value))
        self._match()

    def _match(self) -> None:
        """Semaphore writes occur in the order of the host's operations (COPY-1, COPY-9)."""
        self.seen = [write for write in self.seen if write[0] not in self.engine_releases]
        self.expected = [write for write in self.expected if write[0] not in self.engine_releases]
        while self.expected and self.seen:
            wanted, seen = self.expected.pop(0), self.seen.pop(0)
            assert wanted == seen, f"HOST-4: semaphore write {seen}, the model says {wanted}"

    def _acquired(self, event: trace.Acquire) -> None:
        channel = self.channels[event.channel]
        channel.acquired.append((event.cycle, self._address(channel)))
        va = self._address(channel)
        if self.model.on_chip(va) and va >> 4 & 0xFFF < self.counting:
            channel.group.add(va >> 4 & 0xFFF)
        held = {slot: self.values[slot] for slot in channel.group}
        assert not any(held.values()), (
            f"COPY-13: cycle {event.cycle}: channel {event.channel} passed the acquires of a copy "
            f"while its semaphores held {held}"
        )

    def _start(self, event: trace.Start) -> None:
        """COPY-13: if a copy of another channel has started on this engine since the channel's last
        acquire, the counting semaphores of its group must still be 0."""
        channel = self.channels[event.channel]
        self.copies += 1
        if channel.acquired:
            last = channel.acquired[-1][0]
            others = [
                cycle
                for cycle, other in self.started[event.engine]
                if cycle > last and other != event.channel
            ]
            held = {slot: self.values[slot] for slot in channel.group if self.values[slot]}
            assert not (others and held), (
                f"COPY-13: cycle {event.cycle}: channel {event.channel} passed its acquire at "
                f"{last}, other copies started on engine {event.engine} at {others}, and its copy "
                f"started while semaphores held {held}"
            )
            self.redecided += bool(others)
        channel.acquired.clear()
        channel.group.clear()
        self.started[event.engine].append((event.cycle, event.channel))
        channel.running += 1

    def _done(self, event: trace.Done) -> None:
        channel = self.channels[event.channel]
        assert channel.running, f"COPY-11: cycle {event.cycle}: nothing of {event.channel} runs"
        channel.running -= 1
