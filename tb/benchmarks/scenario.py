"""Scenarios for the stage of `tb.benchmarks.stage`: address spaces, look-ups, commands."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from amaranth.lib import data
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, RisingEdge

from signalbox.driver.memory.page_tables import PageTables
from signalbox.driver.memory.physical import Memory
from signalbox.hw.mmu.records import Outcome, Scope, lookup
from signalbox.hw.mmu.translation import maintenance_command
from signalbox.tb.benchmarks.stage import MEMORY_BYTES, TAG, TRACE, Sizes

__all__ = ["PAGE", "START", "Command", "Look", "Run", "Scenario"]

PAGE = 4096

START = 1000
"""First cycle for look-ups: all spaces are bound and all sets cleared by then."""

_TABLES = MEMORY_BYTES // 2
"""Address of the first table; pages are below."""

_ROW = 16
"""Bytes of a beat."""


@dataclass
class Look:
    """A look-up of a page.

    Members
    -------
    at : earliest cycle.
    alone : wait until all earlier look-ups of the client have been answered.
    taken, answered : cycles of the look-up and of the answer.
    """

    asid: int
    va: int
    at: int = START
    alone: bool = False
    taken: int = -1
    answered: int = -1

    @property
    def took(self) -> int:
        """Cycles from the look-up to the answer."""
        return self.answered - self.taken


@dataclass(frozen=True)
class Command:
    """An invalidation; with `bind`, followed by a bind of the space to its tables.

    Members
    -------
    at : earliest cycle.
    alone : wait until all earlier commands have been acknowledged.
    """

    scope: Scope
    asid: int = 0
    va: int = 0
    at: int = START
    bind: bool = False
    alone: bool = True


@dataclass(frozen=True)
class Run:
    """Results of a run: the look-ups of each client, and the events of each kind, as tuples of the
    cycle and the numbers in parentheses.

    Kinds
    -----
    hit, miss (client, asid) : the first look-up of a request in the first level hits, misses.
    probe (number of the request) : a request is taken by the second level.
    found (asid, number) : a request hits in the second level.
    walks, walked (asid) : a walk begins, ends.
    read, beat : memory takes a read, returns a beat.
    command, done : a command is taken, acknowledged.
    """

    looks: Sequence[Sequence[Look]]
    events: dict[str, list[tuple[int, ...]]]

    def cycles(self, kind: str) -> list[int]:
        """Cycles of the events of a kind."""
        return [event[0] for event in self.events.get(kind, [])]

    def count(self, kind: str, asids: Iterable[int], since: int = 0) -> int:
        """Number of events of a kind in these spaces, from cycle `since` on."""
        place = 2 if kind in {"hit", "miss"} else 1
        wanted = set(asids)
        return sum(
            event[0] >= since and event[place] in wanted for event in self.events.get(kind, [])
        )


class Scenario:
    """Address spaces with their tables in memory, shared by all runs of a test."""

    def __init__(self, dut: Any) -> None:
        self.dut, self._content = dut, bytearray(MEMORY_BYTES)
        self._memory = Memory(self, MEMORY_BYTES, base=_TABLES)  # type: ignore[arg-type]
        self._spaces: dict[int, PageTables] = {}
        self._physical: dict[tuple[int, int], int] = {}
        config = Sizes.of_environment().config
        self._lookup, self._maintenance = lookup(config, TAG), maintenance_command(config)

    @classmethod
    def start(cls, dut: Any) -> "Scenario":
        """Start the clock."""
        dut.load.value = 1
        dut.latency.value = 100
        Clock(dut.clk, 10, unit="ns", impl="gpi").start(start_high=False)
        return cls(dut)

    # The machine, as seen by page tables

    def memory_read(self, address: int, size: int) -> bytes:
        return bytes(self._content[address : address + size])

    def memory_write(self, address: int, content: bytes) -> None:
        self._content[address : address + len(content)] = content

    # Address spaces

    def map(self, asid: int, *pages: int) -> None:
        """Map pages of a space, each to a different page of memory."""
        if asid not in self._spaces:
            self._spaces[asid] = PageTables(self._memory)
        for va in pages:
            pa = len(self._physical) * PAGE
            self._spaces[asid].map(va, pa, PAGE)
            self._physical[asid, va] = pa

    # Runs

    async def play(
        self, *streams: Sequence[Look], latency: int = 100, commands: Sequence[Command] = ()
    ) -> Run:
        """Reset everything, bind all spaces, play one stream per client, and check all answers."""
        sizes = Sizes.of_environment()
        self._write_tables()
        binds = [Command(Scope.ASID, asid, at=0, bind=True) for asid in self._spaces]
        _write("commands", self._maintenance.size, map(self._command, [*binds, *commands]))
        for client in range(sizes.clients):
            looks = streams[client] if client < len(streams) else ()
            words = (self._look(number, look) for number, look in enumerate(looks))
            _write(f"client_{client}", self._lookup.size, words)
        dut = self.dut
        dut.latency.value = latency
        dut.load.value = 1
        await ClockCycles(dut.clk, 8)
        dut.load.value = 0
        await RisingEdge(dut.idle)
        await ClockCycles(dut.clk, 4)
        return self._trace(streams, len(binds))

    def _write_tables(self) -> None:
        rows = np.frombuffer(self._content, np.uint8)[_TABLES:].reshape(-1, _ROW)
        lines = [
            f"@{_TABLES // _ROW + index:x} {rows[index].tobytes()[::-1].hex()}"
            for index in rows.any(axis=1).nonzero()[0]
        ]
        Path("tables.hex").write_text("\n".join(lines) + "\n")

    def _look(self, number: int, look: Look) -> tuple[Look, int]:
        values = {"tag": number, "asid": look.asid, "va": look.va}
        return look, _pack(self._lookup, values)

    def _command(self, command: Command) -> tuple[Command, int]:
        row = {"bound": 1, "base": self._spaces[command.asid].root // PAGE, "last": (1 << 37) - 1}
        word = self._maintenance.const({
            "scope": command.scope,
            "bind": command.bind,
            "asid": command.asid,
            "vpn": command.va // PAGE,
            "row": row if command.bind else {},
        })
        return command, word.as_bits()

    def _trace(self, streams: Sequence[Sequence[Look]], binds: int) -> Run:
        """Read the trace, without the first `binds` commands."""
        events: dict[str, list[tuple[int, ...]]] = {}
        for line in Path(TRACE).read_text().splitlines():
            cycle, kind, *numbers = line.split()
            events.setdefault(kind, []).append((int(cycle), *map(int, numbers)))
        for cycle, client, number in events.pop("take", []):
            streams[client][number].taken = cycle
        for cycle, client, number, outcome, pa in events.pop("answer", []):
            look = streams[client][number]
            look.answered = cycle
            assert outcome == Outcome.PAGE.value, look
            assert pa == self._physical[look.asid, look.va], look
        for kind in ("command", "done"):
            events[kind] = events[kind][binds:]
        return Run(streams, events)


def _pack(layout: data.StructLayout, values: dict[str, int]) -> int:
    """A word with these members, others 0; faster than `layout.const`."""
    return sum(value << layout[name].offset for name, value in values.items())


def _write(name: str, width: int, records: Iterable[tuple[Any, int]]) -> None:
    """Write the file of a player: records with their times, and the end marker."""
    words = [(one.alone << 30 | one.at) << width | payload for one, payload in records]
    end = 1 << width + 31
    Path(f"{name}.hex").write_text("\n".join(f"{word:x}" for word in [*words, end]) + "\n")
