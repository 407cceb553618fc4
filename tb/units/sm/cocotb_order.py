"""Order of block slots alone: every choice in every cycle (PLACE-20)."""

import os
from dataclasses import dataclass
from typing import Any

import cocotb

from signalbox.hw.sm.block_order import BlockOrder
from signalbox.tb.testbench.clocked import Testbench, component
from signalbox.tb.testbench.goals import Rounds
from signalbox.tb.testbench.masks import mask
from signalbox.tb.testbench.strobe import Strobe

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


class OrderTestbench(Testbench):
    """Drives the unit and checks all its outputs.

    Members
    -------
    table : the current blocks, by slot.
    comes : slot and block that enter in this cycle.
    chosen : numbers of choices of the first and of the last block, among at least two blocks.
    """

    def __init__(self, dut: Any) -> None:
        super().__init__(dut, component(BlockOrder, SLOTS, CHOICES))
        self._arrive = Strobe(self, "arrive")
        self.table: dict[int, Block] = {}
        self.comes: tuple[int, Block] | None = None
        self.chosen = [0, 0]
        self.count = 0

    async def step(self, priority: int | None = None) -> None:
        """One cycle. A block of `priority` arrives, if a slot is free."""
        used = {*self.table, *([self.comes[0]] if self.comes else ())}
        free = [slot for slot in range(SLOTS) if slot not in used]
        arrives = None
        if priority is not None and free:
            arrives = self.random.choice(free), Block(priority, self.count)
            self.count += 1
            self._arrive.send(place=1 << arrives[0], priority=priority)
        asked = [self._some() for _ in range(CHOICES + 1)]
        for n, slots in enumerate(asked[1:]):
            self.drive(**{f"candidates__{n}": mask(slots)})
        self.drive(last_of=mask(asked[0]))
        await super().step()
        self._check(asked)
        if self.comes:
            self.table[self.comes[0]] = self.comes[1]
        self.comes = arrives

    def leave(self) -> None:
        """Remove a random block."""
        if self.table:
            del self.table[self.random.choice(sorted(self.table))]

    def _some(self) -> list[int]:
        """Some of the slots in use."""
        share = self.random.choice((0.3, 0.7, 1.0))
        return [slot for slot in self.table if self.random.random() < share]

    def _check(self, asked: list[list[int]]) -> None:
        table = self.table
        last = max(asked[0], key=lambda slot: table[slot].rank, default=None)
        assert self.get("last") == _one(last), f"last of {asked[0]}: {table}"
        self.chosen[1] += len(asked[0]) > 1
        for n, slots in enumerate(asked[1:]):
            first = min(slots, key=lambda slot: table[slot].rank, default=None)
            told = self.get(f"first__{n}")
            assert told == _one(first), f"first of {slots}: {table}"
            self.chosen[0] += len(slots) > 1
        slot, block = self.comes or (None, None)
        assert self.get("placed") == _one(slot)
        behind = self.get("behind")
        levels = self.get("levels")
        for other, there in table.items():
            lower = block is not None and there.priority < block.priority
            assert behind >> other & 1 == lower, f"{block} and {there}"
            assert levels[other] == there.priority + 1
        assert block or not behind, "slots behind no block"


def _one(slot: int | None) -> int:
    return 0 if slot is None else 1 << slot


@cocotb.test(**LIMIT)
async def random_order(dut: Any) -> None:
    """The first and the last of random sets of blocks are correct in every cycle, while blocks of
    few priorities arrive, also in successive cycles, and leave."""
    tb = await OrderTestbench(dut).start()
    numbers, rounds = tb.random, Rounds(40)
    while rounds.more(min(tb.chosen) > 300, tb.chosen):
        priorities = numbers.choice(([3, 4], [0, 1, 63], [5], range(64)))
        share = numbers.choice((0.2, 0.6, 1.0))
        for _ in range(40):
            await tb.step(numbers.choice(priorities) if numbers.random() < share else None)
            if numbers.random() < 0.4:
                tb.leave()
