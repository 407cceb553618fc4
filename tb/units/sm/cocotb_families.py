"""Children of the blocks on an SM, against a model that counts them (NEST-10, NEST-12)."""

import os
from collections import Counter, deque
from dataclasses import dataclass
from typing import Any

import cocotb

from signalbox.hw.config import Config
from signalbox.hw.errors import Refusal
from signalbox.hw.qmd import SkedCheck
from signalbox.hw.sm.block_families import BlockFamilies
from signalbox.tb.testbench.clocked import Testbench, component
from signalbox.tb.testbench.ends import Sink, Source
from signalbox.tb.testbench.goals import Rounds
from signalbox.tb.testbench.masks import mask
from signalbox.tb.testbench.strobe import Strobe
from signalbox.tb.units.sm.test_families import SIZES

CONFIG: Config = SIZES[os.environ["SM_CONFIG"]]


@dataclass
class Block:
    """A block in a slot. `children` : children that are not complete; `failed` : a complete child
    has failed; `told` : the SM has been told that all are complete. `launches` : it waits for an
    answer. `unknown` : it has arrived with a family, in cycle `arrival`, about which the SM has not
    been told yet. `restored` : it has a save place."""

    family: int | None = None
    children: int = 0
    failed: bool = False
    told: bool = False
    launches: bool = False
    unknown: bool = False
    arrival: int | None = None
    restored: bool = False

    @property
    def idle(self) -> bool:
        """It has launched nothing."""
        return self.family is None and not self.launches


class FamiliesTestbench(Testbench):
    """Engine and kernel tree are stand-ins that answer in a random way.

    Members
    -------
    blocks : blocks on the SM, by slot.
    away : stopped blocks.
    met : number of events of each kind.
    """

    def __init__(self, dut: Any) -> None:
        super().__init__(dut, component(BlockFamilies, CONFIG))
        self.blocks = [Block() for _ in range(CONFIG.sm_blocks)]
        self.away: list[Block] = []
        self.met: Counter[str] = Counter()
        self._free = list(range(CONFIG.nested_kernels))
        self._launches = Source(self, "launch", self.share(0.7))
        self._asked: tuple[int, int] | None = None
        self._request: dict[str, Any] | None = None
        self._leaving: deque[int] = deque()
        self._sent: deque[int] = deque()
        self._over = self._left = 0
        self._arrive = Strobe(self, "arrive")
        self._answers, self._joined = Strobe(self, "link__answer"), Strobe(self, "link__joined")
        self._seen = (0, 0)
        self._due: tuple[int, Refusal] | None = None
        """Expected in the next cycle: waits and failures; the answer."""
        Sink(self, "link__launch", self.share(0.5), self._asks)
        self._asking: deque[Block] = deque()
        """Blocks whose request has not been answered."""
        Sink(self, "link__notice", self.share(0.1), self._notices)

    def launch(self, slot: int) -> None:
        self.blocks[slot].launches = True
        self._sent.append(slot)
        self._launches.put({"slot": slot, "row": slot % CONFIG.rows, "page": 1000 + slot})

    def end(self, slot: int) -> None:
        """The block is over in the next cycle, and another one begins."""
        block = self.blocks[slot]
        assert not block.launches
        self._over = 1 << slot
        if block.family is not None:
            self._leaving.append(block.family)
            self.met["related over"] += 1
            self.met["over with children"] += block.children > 0
        self.blocks[slot] = Block(restored=block.restored)

    def _asks(self, word: dict[str, Any]) -> None:
        slot = self._sent[0]
        block = self.blocks[slot]
        assert word["row"] == slot % CONFIG.rows and word["page"] == 1000 + slot
        assert word["block"]["related"] == (block.family is not None)
        assert word["block"]["family"] == (block.family or 0)
        assert word["has_place"] == (block.restored or block.family is not None)
        assert self._request is None, "two at a time"
        self._request = word

    def leave(self, slot: int) -> None:
        """The block leaves in the next cycle, and another one begins."""
        self._left, block = 1 << slot, self.blocks[slot]
        if block.family is not None:
            self.away.append(block)
        self.blocks[slot] = Block(restored=block.restored)

    def begin(self, slot: int) -> None:
        """A block without a family is in an empty slot from the next cycle on."""
        restored = self.random.random() < 0.5
        self.blocks[slot] = Block(restored=restored)
        self._arrive.send(place=1 << slot, family={"related": 0}, restores=restored)

    def arrive(self, slot: int) -> None:
        """A block that was stopped is in an empty slot from the next cycle on."""
        block = self.away.pop(self.random.randrange(len(self.away)))
        block.unknown, block.told, block.arrival = True, False, self.cycle
        block.restored = True
        self.blocks[slot] = block
        self.met["arrived"] += 1
        family = {"related": 1, "family": block.family}
        self._arrive.send(place=1 << slot, family=family, restores=1)

    def _notices(self, word: dict[str, Any]) -> None:
        if word["asks"]:
            self.met["asked"] += 1
            # Unless it has ended meanwhile.
            every = (*self.blocks, *self.away)
            self._asking.extend(one for one in every if one.family == word["family"])
            return
        assert word["family"] == self._leaving.popleft()
        self._free.append(word["family"])

    async def step(self) -> None:
        rng = self.random
        answered = None
        if self._request is not None and rng.random() < 0.2:
            answered = self._answer()
        accepted = answered[0] if answered and answered[1] is Refusal.NONE else None
        ready = [n for n, one in enumerate(self.blocks) if one.children and n != accepted]
        if self._asking:
            block = self._asking.popleft()
            if not block.children:
                self._join(block)
        elif ready and rng.random() < 0.15:
            self._complete(self.blocks[rng.choice(ready)])
        elif self.away and rng.random() < 0.05:
            block = rng.choice(self.away)
            if block.children:
                self._complete(block)
        elif rng.random() < 0.1 and self._free:
            self._joined.send(family=rng.choice(self._free), failed=1)  # of another SM
        self.drive(over=self._over, left=self._left)
        self._over = self._left = 0
        expected = self._expected()
        await super().step()
        assert self.get("waits") == self._seen[0] and self.get("failed") == self._seen[1]
        self._seen = expected
        got = self.get("answer")
        assert got["valid"] == (self._due is not None)
        if self._due is not None:
            assert (got["slot"], got["verdict"]["refusal"]) == self._due
        self._due = answered

    def _expected(self) -> tuple[int, int]:
        waits = mask(n for n, one in enumerate(self.blocks) if one.children or one.unknown)
        return waits, mask(n for n, one in enumerate(self.blocks) if one.told)

    def _answer(self) -> tuple[int, Refusal]:
        """The engine answers: accepted, refused at once, or refused after the birth."""
        slot = self._sent.popleft()
        block, self._request = self.blocks[slot], None
        refusal = self.random.choice((Refusal.NONE, Refusal.NONE, Refusal.DEPTH, Refusal.CHECK))
        if refusal is not Refusal.DEPTH and block.family is None:
            if self._free:
                block.family = self._free.pop(self.random.randrange(len(self._free)))
            else:
                refusal = Refusal.ROOM
        block.children += refusal is Refusal.NONE
        block.launches = False
        self.met[refusal.name] += 1
        family = {"related": block.family is not None, "family": block.family or 0}
        verdict = {"refusal": refusal, "check": SkedCheck.NONE}
        self._answers.send(verdict=verdict, block=family)
        return slot, refusal

    def _complete(self, block: Block) -> None:
        """All children of the block are complete, or one of several."""
        block.children = self.random.choice((0, block.children - 1))
        if not block.children:
            block.failed |= self.random.random() < 0.3
            self._join(block)

    def _join(self, block: Block) -> None:
        if block.arrival != self.cycle:  # otherwise it is told again, as it asks
            block.unknown, block.told = False, block.failed
        self._joined.send(family=block.family, failed=block.failed)
        self.met["joined"] += 1


@cocotb.test()
async def random_families(dut: Any) -> None:
    """Blocks launch, wait, are stopped and continue, and end with or without children."""
    tb = await FamiliesTestbench(dut).start()
    rng = tb.random
    kinds = ("NONE", "DEPTH", "CHECK", "joined", "related over", "over with children", "asked")
    rounds = Rounds(1, 400)
    while rounds.more(all(tb.met[kind] > 20 for kind in kinds), tb.met):
        for _ in range(100):
            slot = rng.randrange(CONFIG.sm_blocks)
            parents = [n for n, one in enumerate(tb.blocks) if one.children and not one.launches]
            empty = tb.blocks[slot].idle
            if parents and rng.random() < 0.02:
                rng.choice((tb.end, tb.leave))(rng.choice(parents))
            elif empty and tb.away and tb.get("accepts") and rng.random() < 0.2:
                tb.arrive(slot)
            elif empty and rng.random() < 0.2:
                tb.begin(slot)
            elif not tb.blocks[slot].launches and rng.random() < 0.3:
                act = rng.choices((tb.launch, tb.end, tb.leave), (0.6, 0.3, 0.1))[0]
                act(slot)
            await tb.step()
    await tb.until(
        lambda: not any(one.unknown or one.children for one in tb.blocks),
        "all children are complete",
        5000,
    )
    print(dict(tb.met))
