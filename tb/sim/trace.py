"""Events of a simulation, read from the file that the monitor wrote.

for event in read(run / "trace.txt"):
    match event:
        case Start(cycle, engine, channel): ...
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from hw.errors import Cause

__all__ = [
    "Acquire",
    "Done",
    "Doorbell",
    "Error",
    "Event",
    "Floor",
    "Method",
    "Semaphore",
    "Served",
    "Start",
    "parse",
    "read",
]


@dataclass(frozen=True, slots=True)
class Served:
    """From `cycle` on the method pipeline serves `channel`, or none."""

    cycle: int
    channel: int | None


@dataclass(frozen=True, slots=True)
class Floor:
    """From `cycle` on `channel` holds the time slice, or none does."""

    cycle: int
    channel: int | None


@dataclass(frozen=True, slots=True)
class Doorbell:
    """`channel` was rung."""

    cycle: int
    channel: int


@dataclass(frozen=True, slots=True)
class Method:
    """`channel` executed one method; `offset` in bytes."""

    cycle: int
    channel: int
    subchannel: int
    offset: int
    data: int


@dataclass(frozen=True, slots=True)
class Acquire:
    """An acquire of `channel` was decided."""

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
    """`channel` halted for `cause`."""

    cycle: int
    channel: int
    cause: Cause


Event = Served | Floor | Doorbell | Method | Acquire | Semaphore | Start | Done | Error


def _channel(word: str) -> int | None:
    return None if word == "-" else int(word)


def _hex(word: str) -> int:
    return int(word, 16)


def _flag(word: str) -> bool:
    return word == "1"


def _cause(word: str) -> Cause:
    return Cause(int(word))


_READERS: dict[str, tuple[type, tuple[Callable, ...]]] = {
    "served": (Served, (_channel,)),
    "floor": (Floor, (_channel,)),
    "doorbell": (Doorbell, (int,)),
    "method": (Method, (int, int, _hex, _hex)),
    "acquire": (Acquire, (int, _flag)),
    "sem": (Semaphore, (int, int)),
    "start": (Start, (int, int)),
    "done": (Done, (int, int, _flag)),
    "error": (Error, (int, _cause)),
}


def parse(lines: Iterable[str]) -> Iterator[Event]:
    """Events of a trace in its order; `ValueError` names the line that is none."""
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
    """All events of a trace file."""
    with file.open() as lines:
        return list(parse(lines))
