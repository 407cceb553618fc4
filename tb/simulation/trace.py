"""Events of a simulation, read from the monitor's file.

    for event in read(run / "trace.txt"):
        match event:
            case Start(cycle, engine, channel): ...

Cycles are those of the simulation top's counter.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TypeVar

from signalbox.hw.errors import Cause, Refusal
from signalbox.hw.mmu.records import Access, Scope
from signalbox.hw.page_tables import FaultType
from signalbox.hw.placement.controller import Step

__all__ = [
    "Acquire",
    "Answered",
    "Asked",
    "BlockPlaced",
    "BlockStop",
    "BlockStopped",
    "Done",
    "Doorbell",
    "Error",
    "Event",
    "Fault",
    "Floor",
    "Invalidation",
    "Lookup",
    "Method",
    "Semaphore",
    "Served",
    "Start",
    "TaskLaunched",
    "TaskOpened",
    "TaskOver",
    "Walk",
    "Walked",
    "WarpEnded",
    "WarpStarted",
    "parse",
    "read",
]


Numbered = TypeVar("Numbered", bound=Enum)


@dataclass(frozen=True, slots=True)
class Served:
    """From `cycle` on, the method pipeline serves `channel`; None for no channel."""

    cycle: int
    channel: int | None


@dataclass(frozen=True, slots=True)
class Floor:
    """From `cycle` on, `channel` holds the time slice; None for no channel."""

    cycle: int
    channel: int | None


@dataclass(frozen=True, slots=True)
class Doorbell:
    """The doorbell of `channel` was rung."""

    cycle: int
    channel: int


@dataclass(frozen=True, slots=True)
class Method:
    """`channel` executed a method; `offset` is in bytes."""

    cycle: int
    channel: int
    subchannel: int
    offset: int
    data: int


@dataclass(frozen=True, slots=True)
class Acquire:
    """An acquire of `channel` was evaluated."""

    cycle: int
    channel: int
    passed: bool


@dataclass(frozen=True, slots=True)
class Semaphore:
    """On-chip semaphore `index` was written and now holds `value`."""

    cycle: int
    index: int
    value: int


@dataclass(frozen=True, slots=True)
class Start:
    """`engine` accepted a copy of `channel`."""

    cycle: int
    engine: int
    channel: int


@dataclass(frozen=True, slots=True)
class Done:
    """A copy of `channel` on `engine` has ended."""

    cycle: int
    engine: int
    channel: int
    failed: bool


@dataclass(frozen=True, slots=True)
class Error:
    """`channel` was halted for `cause`."""

    cycle: int
    channel: int
    cause: Cause


@dataclass(frozen=True, slots=True)
class Lookup:
    """Memory client `client` looked up an address of `asid` in its first-level TLB."""

    cycle: int
    client: int
    asid: int
    hit: bool


@dataclass(frozen=True, slots=True)
class Walk:
    """A page walk of `asid` begins."""

    cycle: int
    asid: int


@dataclass(frozen=True, slots=True)
class Walked:
    """A page walk of `asid` has ended."""

    cycle: int
    asid: int


@dataclass(frozen=True, slots=True)
class Invalidation:
    """Translations of `scope` are invalidated, explicitly or by a bind."""

    cycle: int
    asid: int
    scope: Scope


@dataclass(frozen=True, slots=True)
class Fault:
    """An access of `client` (as in fault records) to `va` has faulted, and the record was
    written."""

    cycle: int
    client: int
    asid: int
    va: int
    physical: bool
    access: Access
    cause: FaultType


@dataclass(frozen=True, slots=True)
class TaskLaunched:
    """The task unit begins a launch of `channel`, in `asid`, with the record at `page` << 8."""

    cycle: int
    channel: int
    asid: int
    page: int


@dataclass(frozen=True, slots=True)
class TaskOpened:
    """The task has a slot, kernel row `row`. Its blocks may be placed."""

    cycle: int
    row: int
    asid: int
    page: int


@dataclass(frozen=True, slots=True)
class TaskOver:
    """A task of `channel` is over."""

    cycle: int
    channel: int
    page: int
    refusal: Refusal


@dataclass(frozen=True, slots=True)
class BlockPlaced:
    """Block (x, y, z) of kernel row `row` was sent to `sm`."""

    cycle: int
    row: int
    sm: int
    step: Step
    x: int
    y: int
    z: int


@dataclass(frozen=True, slots=True)
class WarpStarted:
    """Hardware warp `warp` of `sm` starts as warp `index` of the block in `slot`."""

    cycle: int
    sm: int
    warp: int
    row: int
    slot: int
    index: int


@dataclass(frozen=True, slots=True)
class WarpEnded:
    """Hardware warp `warp` of `sm` has ended."""

    cycle: int
    sm: int
    warp: int


@dataclass(frozen=True, slots=True)
class BlockStop:
    """The warps of the block in `slot` of `sm` are being saved."""

    cycle: int
    sm: int
    slot: int


@dataclass(frozen=True, slots=True)
class BlockStopped:
    """Block (x, y, z) of kernel row `row` has left `sm`. `saved` : its state is saved; otherwise it
    had never begun."""

    cycle: int
    sm: int
    row: int
    saved: bool
    x: int
    y: int
    z: int


@dataclass(frozen=True, slots=True)
class Asked:
    """The block in `slot` of `sm`, of kernel row `row`, launches the record at `page` << 8."""

    cycle: int
    sm: int
    slot: int
    row: int
    page: int


@dataclass(frozen=True, slots=True)
class Answered:
    """The launch by the block in `slot` of `sm` was accepted (Refusal.NONE), or refused."""

    cycle: int
    sm: int
    slot: int
    refusal: Refusal


Event = (
    Served
    | Floor
    | Doorbell
    | Method
    | Acquire
    | Semaphore
    | Start
    | Done
    | Error
    | Lookup
    | Walk
    | Walked
    | Invalidation
    | Fault
    | TaskLaunched
    | TaskOpened
    | TaskOver
    | BlockPlaced
    | WarpStarted
    | WarpEnded
    | BlockStop
    | BlockStopped
    | Asked
    | Answered
)


def _channel(word: str) -> int | None:
    return None if word == "-" else int(word)


def _hex(word: str) -> int:
    return int(word, 16)


def _flag(word: str) -> bool:
    return word == "1"


def _numbered(kind: type[Numbered]) -> Callable[[str], Numbered]:
    return lambda word: kind(int(word))


_READERS: dict[str, tuple[type, tuple[Callable, ...]]] = {
    "served": (Served, (_channel,)),
    "floor": (Floor, (_channel,)),
    "doorbell": (Doorbell, (int,)),
    "method": (Method, (int, int, _hex, _hex)),
    "acquire": (Acquire, (int, _flag)),
    "sem": (Semaphore, (int, int)),
    "start": (Start, (int, int)),
    "done": (Done, (int, int, _flag)),
    "error": (Error, (int, _numbered(Cause))),
    "lookup": (Lookup, (int, int, _flag)),
    "walk": (Walk, (int,)),
    "walked": (Walked, (int,)),
    "invalidation": (Invalidation, (int, _numbered(Scope))),
    "launched": (TaskLaunched, (int, int, int)),
    "opened": (TaskOpened, (int, int, int)),
    "over": (TaskOver, (int, int, _numbered(Refusal))),
    "placed": (BlockPlaced, (int, int, _numbered(Step), int, int, int)),
    "warp": (WarpStarted, (int, int, int, int, int)),
    "exit": (WarpEnded, (int, int)),
    "stop": (BlockStop, (int, int)),
    "stopped": (BlockStopped, (int, int, _flag, int, int, int)),
    "asked": (Asked, (int, int, int, int)),
    "answered": (Answered, (int, int, _numbered(Refusal))),
    "fault": (Fault, (int, int, int, _flag, _numbered(Access), _numbered(FaultType))),
}


def parse(lines: Iterable[str]) -> Iterator[Event]:
    """Events of a trace, in order. Raises `ValueError` with a line that is not an event."""
    for number, line in enumerate(lines, 1):
        try:
            cycle, word, *values = line.split()
            kind, readers = _READERS[word]
            yield kind(
                int(cycle),
                *(reader(value) for reader, value in zip(readers, values, strict=True)),
            )
        except (KeyError, ValueError) as error:
            raise ValueError(f"trace line {number}: {line.rstrip()!r} is no event") from error


def read(file: Path) -> list[Event]:
    """All events of a trace file. Raises the same errors as `parse`."""
    with file.open() as lines:
        return list(parse(lines))
