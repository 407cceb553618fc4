"""Oldest unfinished blocks of queues that end their blocks in any order (ASID-26)."""

import os
from dataclasses import dataclass, field
from typing import Any

import cocotb

from signalbox.hw.task_unit.oldest_blocks import OldestBlocks
from signalbox.tb.testbench.clocked import Testbench, component
from signalbox.tb.testbench.configs import OLDEST
from signalbox.tb.testbench.goals import Rounds
from signalbox.tb.testbench.strobe import Strobe

CONFIG = OLDEST[os.environ["OLDEST_CONFIG"]]
WINDOW, ROWS = CONFIG.queue_window, CONFIG.rows
QUIET = 3
"""Minimum cycles from the last end of a row to its next `begin`."""


@dataclass
class Row:
    """A row. Blocks from `told` on are unfinished according to the last report; `next` is the first
    block that was not placed; `running` blocks have not ended. A row without a queue ends blocks
    with any numbers."""

    number: int
    follows: bool = False
    told: int = 0
    next: int = 0
    running: list[int] = field(default_factory=list)
    ended: int = 0
    """Cycle of the last end."""
    due: int | None = None
    """Cycle in which the oldest block moved."""

    @property
    def oldest(self) -> int:
        return min(self.running, default=self.next)


class OldestTestbench(Testbench):
    """Places and ends blocks, at most one end per cycle.

    Members
    -------
    rows : all rows.
    moves : moves of the oldest block that were told.
    stalls : whether no move is taken.
    """

    def __init__(self, dut: Any, share: float = 1.0) -> None:
        super().__init__(dut, component(OldestBlocks, CONFIG))
        self.rows = [Row(number) for number in range(ROWS)]
        self.moves, self.stalls = 0, False
        self._begin, self._close = Strobe(self, "begin"), Strobe(self, "close")
        self._ended = Strobe(self, "ended")
        self._event = -1  # cycle of the last begin or close, in which no move is taken
        self._pace, self._takes = self.share(share), False
        self.late = 0
        """Maximum cycles until a move was reported."""

    def changes(self) -> bool:
        """A row begins or closes in this cycle."""
        return self._event == self.cycle

    async def step(self) -> None:
        changes = self.changes()
        takes, self._takes = self._takes and not (self.stalls or changes), False
        self.drive(take=takes)
        await super().step()
        moved = self.get("moved")
        if takes:
            self._on_move(moved)
        elif moved["valid"] and not changes:
            self._takes = self._pace()

    def begin(self, row: Row, number: int) -> None:
        assert not row.running
        self._event = self.cycle
        self._begin.send(row=row.number, number=number % (2 * WINDOW))
        row.follows, row.told, row.next, row.due = True, number, number, None

    def close(self, row: Row, *, drops: bool = False) -> None:
        """`drops` : its unfinished blocks never end."""
        assert drops or not row.running
        self._event = row.ended = self.cycle
        self._close.send(row=row.number, drops=drops)
        row.follows, row.due, row.running = False, None, []

    def clears(self, row: Row) -> bool:
        """Whether the row is being cleared and must not begin yet; valid from two cycles after
        `close` on."""
        return bool(self.get("clears") >> row.number & 1)

    def place(self, row: Row) -> None:
        assert row.next < row.told + WINDOW
        row.running.append(row.next)
        row.next += 1

    def end(self, row: Row, block: int) -> None:
        """A block ends."""
        self._ended.send(row=row.number, number=block % (2 * WINDOW))
        row.ended = self.cycle
        if not row.follows:
            return
        before = row.oldest
        row.running.remove(block)
        if row.oldest != before and row.due is None:
            row.due = self.cycle

    def rests(self, row: Row) -> bool:
        return not row.running and self.cycle - row.ended >= QUIET

    def _on_move(self, move: dict[str, int]) -> None:
        row = self.rows[move["row"]]
        assert row.follows, "no queue"
        passed = (move["number"] - row.told) % (2 * WINDOW)
        assert 0 < passed <= row.oldest - row.told, "not the oldest unfinished block"
        row.told += passed
        if row.due is not None:
            self.late = max(self.late, self.cycle - row.due)
        row.due = None if row.told == row.oldest else self.cycle
        self.moves += 1


@cocotb.test()
async def out_of_order(dut: Any) -> None:
    """Blocks of a window that end in reverse order move the oldest block once; blocks that end in
    order move it each time."""
    tb = await OldestTestbench(dut).start()
    row = tb.rows[1]
    tb.begin(row, 5)
    await tb.step()
    for turn in range(5):
        for _ in range(WINDOW):
            tb.place(row)
        blocks = sorted(row.running, reverse=turn % 2 == 0)
        moves = tb.moves
        for block in blocks:
            tb.end(row, block)
            await tb.steps(1 if turn % 2 == 0 else ROWS + 8)
        await tb.until(lambda: row.told == row.next, "all told", 2 * (ROWS + WINDOW) + 8)
        assert tb.moves - moves == (1 if turn % 2 == 0 else WINDOW)


@cocotb.test()
async def begins_anew(dut: Any) -> None:
    """A row begins with any block, and no earlier move of the row is reported: neither of another
    queue, nor of a task without a queue, nor of blocks still unchecked when all had ended."""
    tb = await OldestTestbench(dut).start()
    row = tb.rows[0]
    for _ in range(40):
        tb.begin(row, tb.random.getrandbits(32))
        await tb.step()
        for _ in range(tb.random.randint(0, 3)):
            tb.stalls = bool(tb.random.getrandbits(1))
            blocks = tb.random.randint(0, WINDOW)
            if row.next + blocks > row.told + WINDOW:
                break
            for _ in range(blocks):
                tb.place(row)
            tb.random.shuffle(row.running)
            for block in list(row.running):
                tb.end(row, block)
                await tb.step()
            await tb.steps(QUIET + tb.random.randint(0, 2 * ROWS))
            if tb.random.random() < 0.5:
                tb.begin(row, row.next)  # all of its blocks have ended, and more follow
                await tb.step()
        tb.stalls = False
        tb.close(row)
        await tb.step()
        for _ in range(tb.random.randint(0, 5)):
            tb.end(row, tb.random.getrandbits(32))
            await tb.step()
        await tb.steps(QUIET)


@cocotb.test(skip=not CONFIG.preemption)
async def dropped(dut: Any) -> None:
    """If some blocks of a queue never ended, no block of the row's next queue counts as ended too
    early, in any of its windows; other rows continue meanwhile. A row that lost no block, or had no
    queue, may begin at once."""
    tb = await OldestTestbench(dut).start()
    # No other test has used the row before: its first bits are 1 when their blocks have ended.
    row, other, look = tb.rows[2], tb.rows[-1], 2 * (ROWS + WINDOW) + 8
    tb.begin(other, 0)
    await tb.steps(2)
    for turn in range(12):
        tb.begin(row, turn)
        await tb.step()
        count = tb.random.randint(1, WINDOW) if turn % 2 else WINDOW
        for _ in range(count):
            tb.place(row)
        ended = tb.random.sample(row.running, tb.random.randrange(count // 2, count))
        if turn == 0:  # so that the first clearing affects each bit
            ended = row.running[1:]
        for block in ended:
            tb.end(row, block)
            await tb.step()
        await tb.steps(QUIET)
        tb.close(row, drops=True)
        await tb.steps(2)
        assert tb.clears(row)
        while tb.clears(row):
            if tb.random.getrandbits(1) and other.next < other.told + WINDOW:
                tb.place(other)
                tb.end(other, other.next - 1)
            await tb.step()
        tb.begin(row, 7)
        await tb.step()
        for _ in range(3):
            for _ in range(WINDOW):
                tb.place(row)
            # The oldest one ends first, or last.
            for block in row.running[::-1] if turn & 2 else [*row.running]:
                await tb.steps(look)
                tb.end(row, block)
            await tb.until(lambda: row.told == row.next, "all told", look)
        await tb.steps(QUIET)
        tb.close(row)
        await tb.steps(2)
        assert not tb.clears(row)
        tb.close(row, drops=True)
        await tb.steps(2)
        assert not tb.clears(row), "it had no queue"


@cocotb.test()
async def random_rows(dut: Any) -> None:
    """With any number of queues at once, each move is reported in time, and in the end all are
    reported."""
    tb = await OldestTestbench(dut, share=0.5).start()
    rng, rounds = tb.random, Rounds(6000)
    while rounds.more(tb.moves > 100, tb.moves):
        row = rng.choice(tb.rows[: rng.choice((1, 2, ROWS))])
        if not row.follows and tb.rests(row) and not tb.clears(row) and rng.random() < 0.2:
            tb.begin(row, rng.getrandbits(32))
        elif CONFIG.preemption and row.follows and rng.random() < 0.02:
            if tb.cycle - row.ended >= QUIET:
                tb.close(row, drops=True)
        elif row.follows and tb.rests(row) and rng.random() < 0.1:
            if rng.getrandbits(1):
                tb.close(row)
            else:
                tb.begin(row, row.next)
        for one in tb.rows:
            if one.follows and one.next < one.told + WINDOW and rng.random() < 0.5:
                tb.place(one)
        rests = row if tb.changes() else None  # its blocks may end from the next cycle on
        busy = [one for one in tb.rows if (one.running or not one.follows) and one is not rests]
        if busy and rng.random() < 0.8:
            one = rng.choice(busy)
            tb.end(one, rng.choice(one.running) if one.follows else rng.getrandbits(32))
        await tb.step()
    for row in tb.rows:
        for block in list(row.running):
            tb.end(row, block)
            await tb.step()
    await tb.until(lambda: all(one.told == one.next for one in tb.rows if one.follows), "all told")
    print(f"{tb.moves} moves, told within {tb.late} cycles")
    # Per row: passed blocks, states, and the time until the move is taken.
    assert tb.late <= 2 * ROWS * (WINDOW + 5 + 20)
