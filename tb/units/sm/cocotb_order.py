"""Order of block slots alone: every choice in every cycle (PLACE-20)."""

import os
from dataclasses import dataclass
from random import Random
from typing import Any

import cocotb
from cocotb.triggers import ReadOnly, RisingEdge

from signalbox.hw.sm.block_order import BlockOrder
from signalbox.tb.testbench.goals import Rounds
from signalbox.tb.testbench.reset import reset

LIMIT = {"timeout_time": 20, "timeout_unit": "ms"}
SLOTS, CHOICES = int(os.environ.get("SLOTS", "5")), int(os.environ.get("CHOICES", "2"))


@dataclass(frozen=True)
class Block:
    """A block of `priority`, which arrived as number `number`."""

    priority: int
    number: int

    @property
    def rank(self) -> tuple[int, int]:
        """Rank; the smallest is first."""
        return (-self.priority, self.number)


class Bench:
    """Drives the unit and checks all its outputs.

    Members
    -------
    table : the current blocks, by slot.
    comes : slot and block that enter in this cycle.
    chosen : number of choices of the first, and of the last, among at least two blocks.
    """

    def __init__(self, dut: Any) -> None:
        self.dut, self.numbers = dut, Random(cocotb.RANDOM_SEED)
        members = BlockOrder(SLOTS, CHOICES).signature.members
        self.arrival, self.levels = members["arrive"].shape, members["levels"].shape
        self.table: dict[int, Block] = {}
        self.comes: tuple[int, Block] | None = None
        self.chosen = [0, 0]
        self.count = 0

    @classmethod
    async def start(cls, dut: Any) -> "Bench":
        for name in ("arrive", "last_of", *(f"candidates__{n}" for n in range(CHOICES))):
            getattr(dut, name).value = 0
        await reset(dut)
        return cls(dut)

    async def step(self, priority: int | None = None) -> None:
        """One cycle. A block of `priority` arrives, if a slot is free."""
        dut = self.dut
        used = {*self.table, *([self.comes[0]] if self.comes else ())}
        free = [slot for slot in range(SLOTS) if slot not in used]
        arrives = None
        if priority is not None and free:
            arrives = self.numbers.choice(free), Block(priority, self.count)
            self.count += 1
        dut.arrive.value = self._arrival(arrives)
        asked = [self._some() for _ in range(CHOICES + 1)]
        for n, slots in enumerate(asked[1:]):
            getattr(dut, f"candidates__{n}").value = _mask(slots)
        dut.last_of.value = _mask(asked[0])
        await ReadOnly()
        self._check(asked)
        await RisingEdge(dut.clk)
        if self.comes:
            self.table[self.comes[0]] = self.comes[1]
        self.comes = arrives

    def leave(self) -> None:
        """Remove a random block."""
        if self.table:
            del self.table[self.numbers.choice(sorted(self.table))]

    def _arrival(self, arrives: tuple[int, Block] | None) -> int:
        """The arrival's word; invalid ones are random."""
        numbers = self.numbers
        slot, priority = numbers.randrange(SLOTS), numbers.randrange(64)
        if arrives:
            slot, priority = arrives[0], arrives[1].priority
        word = {"valid": arrives is not None, "place": 1 << slot, "priority": priority}
        return self.arrival.const(word).as_bits()

    def _some(self) -> list[int]:
        """Some of the slots in use."""
        share = self.numbers.choice((0.3, 0.7, 1.0))
        return [slot for slot in self.table if self.numbers.random() < share]

    def _check(self, asked: list[list[int]]) -> None:
        dut, table = self.dut, self.table
        last = max(asked[0], key=lambda slot: table[slot].rank, default=None)
        assert int(dut.last.value) == _one(last), f"last of {asked[0]}: {table}"
        self.chosen[1] += len(asked[0]) > 1
        for n, slots in enumerate(asked[1:]):
            first = min(slots, key=lambda slot: table[slot].rank, default=None)
            told = int(getattr(dut, f"first__{n}").value)
            assert told == _one(first), f"first of {slots}: {table}"
            self.chosen[0] += len(slots) > 1
        slot, block = self.comes or (None, None)
        assert int(dut.placed.value) == _one(slot)
        behind = int(dut.behind.value)
        levels = self.levels.from_bits(int(dut.levels.value))
        for other, there in table.items():
            lower = block is not None and there.priority < block.priority
            assert behind >> other & 1 == lower, f"{block} and {there}"
            assert levels[other] == there.priority + 1
        assert block or not behind, "slots behind no block"


def _mask(slots: list[int]) -> int:
    return sum(1 << slot for slot in slots)


def _one(slot: int | None) -> int:
    return 0 if slot is None else 1 << slot


@cocotb.test(**LIMIT)
async def random_order(dut: Any) -> None:
    """The first and the last of random sets of blocks are correct in every cycle, while blocks of
    few priorities arrive, also in successive cycles, and leave."""
    bench = await Bench.start(dut)
    numbers, rounds = bench.numbers, Rounds(40)
    while rounds.more(min(bench.chosen) > 300, bench.chosen):
        priorities = numbers.choice(([3, 4], [0, 1, 63], [5], range(64)))
        share = numbers.choice((0.2, 0.6, 1.0))
        for _ in range(40):
            await bench.step(numbers.choice(priorities) if numbers.random() < share else None)
            if numbers.random() < 0.4:
                bench.leave()
