"""Models the rows behind the task unit, whose blocks are placed and end."""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from amaranth.lib import data

from signalbox.hw.config import Config
from signalbox.hw.records.placement import kernel_open, row_blocks, row_left
from signalbox.tb.testbench.streams import Sink, Source

__all__ = ["ENDLESS", "Opened", "Rows"]

Place = tuple[int, int, int]
ENDLESS = ((1 << 32) - 1, 1, 1)
"""The grid of a queue."""


@dataclass
class Opened:
    """An open row, with `left` blocks to be placed, from number `next` on."""

    row: int
    priority: int
    policy: int
    asid: int
    grid: Place
    next: int
    left: int
    placed: list[int] = field(default_factory=list)
    running: int = 0
    stopped: bool = False


class Rows:
    """The kernel status register table, stepped once per clock cycle.

    In each cycle a block of some row is placed with probability `place`, and one ends with
    probability `end`. Hooks are called when a row is opened, gets more blocks, is stopped, or is
    closed.
    """

    def __init__(self, dut: Any, config: Config, rng: Random, place: float, end: float) -> None:
        self.dut, self.config, self.rng = dut, config, rng
        self.place, self.end = place, end
        row = data.StructLayout({"row": config.row_bits})

        def pace() -> bool:
            return rng.random() < 0.8

        self._open = Sink(dut, "port__open", kernel_open(config), pace)
        self._add = Sink(dut, "port__add", row_blocks(config), pace)
        self._stop = Sink(dut, "port__stop", row, pace)
        self._close = Sink(dut, "port__close", row, pace)
        self._stopped = Source(dut, "port__stopped", row_left(config), pace)
        self.rows: dict[int, Opened] = {}
        self.opened: Callable[[Opened], None] = lambda row: None
        self.added: Callable[[Opened, int], None] = lambda row, blocks: None
        self.stopped: Callable[[Opened], None] = lambda row: None
        self.closed: Callable[[Opened], None] = lambda row: None
        dut.port__drained.value = self.drained = (1 << config.rows) - 1
        dut.port__stopped__payload.value = 0

    def step(self, cycle: int) -> None:
        self._stopped.step(cycle)
        opened, stop, close = self._open.step(), self._stop.step(), self._close.step()
        add = self._add.step()
        if opened is not None:
            self._begin(opened)
        if add is not None:
            row = self.rows[add["row"]]
            assert not row.stopped and add["blocks"] > 0
            row.left += add["blocks"]
            self.added(row, add["blocks"])
        if stop is not None:
            self._end(self.rows[stop["row"]])
        if close is not None:
            row = self.rows.pop(close["row"])
            assert not row.left and not row.running, "closed before it was drained"
            self.closed(row)
        self._work()
        drained = (1 << self.config.rows) - 1
        for number, row in self.rows.items():
            if row.left or row.running:
                drained &= ~(1 << number)
        if drained != self.drained:
            self.dut.port__drained.value = self.drained = drained

    def _begin(self, word: dict[str, int]) -> None:
        number = word["row"]
        assert number not in self.rows, "opened twice"
        assert word["blocks"] > 0
        grid, first = _place(word["grid"]), _place(word["first"])
        row = Opened(
            row=number,
            priority=word["needs"] & 63,
            policy=word["policy"],
            asid=word["asid"],
            grid=grid,
            next=(first[2] * grid[1] + first[1]) * grid[0] + first[0],
            left=word["blocks"],
        )
        if grid != ENDLESS:
            assert row.next + row.left == grid[0] * grid[1] * grid[2]
        self.rows[number] = row
        self.opened(row)

    def _end(self, row: Opened) -> None:
        assert not row.stopped, "stopped twice"
        grid, at, left = row.grid, row.next, row.left
        place = at % grid[0] | at // grid[0] % grid[1] << 32 | at // (grid[0] * grid[1]) << 48
        self._stopped.put(0, lambda: {"row": row.row, "blocks": left, "next": place})
        self.stopped(row)
        row.stopped, row.left = True, 0

    def _work(self) -> None:
        """Place a block, end a block."""
        rows = list(self.rows.values())
        ready = [row for row in rows if row.left]
        if ready and self.rng.random() < self.place:
            row = self.rng.choice(ready)
            row.placed.append(row.next)
            row.next, row.left, row.running = row.next + 1, row.left - 1, row.running + 1
        busy = [row for row in rows if row.running]
        if busy and self.rng.random() < self.end:
            self.rng.choice(busy).running -= 1


def _place(word: int) -> Place:
    return word & 0xFFFF_FFFF, word >> 32 & 0xFFFF, word >> 48
