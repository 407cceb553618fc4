"""The victim, the block that would be stopped next, while blocks arrive and end (PREEMPT-5)."""

import os
from dataclasses import dataclass
from typing import Any, Self

import cocotb

from signalbox.hw.sm.block_stop import BlockStop
from signalbox.tb.testbench.clocked import Testbench, component
from signalbox.tb.testbench.strobe import Strobe
from signalbox.tb.units.sm.test_victim import SIZES

CONFIG = SIZES[os.environ["SM_CONFIG"]]

LEAVING = 1
"""Kernel row whose blocks must leave."""

ROUNDS = 2 * CONFIG.sm_blocks + 2
"""Cycles after which a block has been compared with all others."""


@dataclass
class Block:
    row: int
    level: int
    state: int
    since: int

    @property
    def rank(self) -> tuple[bool, int, int]:
        """The lowest is stopped first."""
        return self.row != LEAVING, self.level, self.state


class VictimTestbench(Testbench):
    """Blocks by slot. A block that ends, or returns to where it was placed, is not `there` in the
    next cycle."""

    def __init__(self, dut: Any) -> None:
        super().__init__(dut, component(BlockStop, CONFIG))
        self.there: dict[int, Block] = {}
        self._arrive, self._over = Strobe(self, "arrive"), Strobe(self, "over")

    async def start(self) -> Self:
        await super().start()
        self.drive(leave=1 << LEAVING, spare=1)
        return self

    def arrive(self, slot: int, row: int, level: int, state: int) -> None:
        """A block is there from the next cycle on."""
        needs = {"block_registers": state, "priority": level - 1}
        self._arrive.send(place=1 << slot, block={"row": row, "needs": needs})
        self.there[slot] = Block(row, level, state, self.cycle + 1)

    def leave(self, slot: int, returns: bool = False) -> None:
        if returns:
            self.drive(returns=1 << slot)
        else:
            self._over.send(place=1 << slot)
        del self.there[slot]

    async def next(self) -> None:
        """The cycle with what was sent; then the slots are as `there`."""
        await self.step()
        full = sum(1 << slot for slot in self.there)
        levels = [self.there[n].level if n in self.there else 0 for n in range(CONFIG.sm_blocks)]
        self.drive(returns=0, valid=full, begun=full, levels=levels)

    @property
    def victim(self) -> tuple[bool, int, int] | None:
        """Rank of the victim in the cycle that has ended."""
        found = self.get("victim")
        return (not found["leaves"], found["level"], found["state"]) if found["valid"] else None


@cocotb.test()
async def random_blocks(dut: Any) -> None:
    """The victim is a block that is there. No block that has been there for two rounds must be
    stopped sooner, unless both must leave; without changes for two rounds, none at all, and there
    is a victim if there is a block."""
    tb = await VictimTestbench(dut).start()
    rng, calm = tb.random, 0
    for _ in range(300):
        rate, leaving = rng.choice((0.02, 0.1, 0.5)), rng.choice((0.0, 0.2))
        for _ in range(rng.randrange(4 * ROUNDS)):
            old, calm = {*(one.rank for one in tb.there.values())}, calm + 1
            if rng.random() < rate:
                slot, calm = rng.randrange(CONFIG.sm_blocks), 0
                if slot in tb.there:
                    tb.leave(slot, rng.random() < 0.3)
                else:
                    row = LEAVING if rng.random() < leaving else 0
                    tb.arrive(slot, row, rng.randrange(1, 5), rng.randrange(1, 9))
            before = [one for one in tb.there.values() if tb.cycle - one.since > ROUNDS]
            await tb.next()
            found = tb.victim
            assert found in old or found is None, (found, old)
            if found and found[0]:  # blocks that must leave come first, in any order
                assert all(found <= one.rank for one in before), (found, before)
            if calm > ROUNDS:
                assert found == min((one.rank for one in tb.there.values()), default=None)


@cocotb.test()
async def beside_short_blocks(dut: Any) -> None:
    """A block that must leave is the victim after two rounds, however often others end."""
    tb = await VictimTestbench(dut).start()
    rng = tb.random
    for _ in range(40):
        while tb.there:
            tb.leave(next(iter(tb.there)))
            await tb.next()
        mine, gap = rng.randrange(CONFIG.sm_blocks), rng.randrange(1, CONFIG.sm_blocks + 3)
        tb.arrive(mine, LEAVING, 9, 9)
        await tb.next()
        others = [slot for slot in range(CONFIG.sm_blocks) if slot != mine]
        for turn in range(3 * ROUNDS):
            slot = rng.choice(others) if others and turn % gap == 0 else mine
            if slot in tb.there and slot != mine:
                tb.leave(slot)
            elif slot != mine:
                tb.arrive(slot, 0, rng.randrange(1, 9), rng.randrange(1, 9))
            await tb.next()
            assert turn <= ROUNDS or tb.victim == (False, 9, 9)
