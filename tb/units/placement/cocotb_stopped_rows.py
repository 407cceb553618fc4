"""Stops of rows whose blocks are being saved and placed again (PREEMPT-3, ASID-25)."""

import ast
import os
from typing import Any

import cocotb

from signalbox.hw.config import Config
from signalbox.hw.placement.controller import GlobalController
from signalbox.tb.testbench.clocked import Testbench, component
from signalbox.tb.testbench.ends import Sink, Source
from signalbox.tb.units.placement.kernel import Kernel

CONFIG = Config(**ast.literal_eval(os.environ["CONFIG"]))
BLOCKS = 3
"""Blocks of the row; two fit."""

WHEN = range(30)
"""Cycles from the answer of the SM to the stop of the row. The saved block is placed again
meanwhile."""

ROW, LEVEL = 1, 1


class StopsTestbench(Testbench):
    """A `GlobalController` with one SM, and a row.

    Members
    -------
    stop, keep, discard, close : requests for the row.
    left, kept : answers to `stop` and `keep`.
    blocks : blocks on the SM.
    placed : number of times that each block was placed, by its number.
    ends : whether blocks on the SM end.
    """

    def __init__(self, dut: Any) -> None:
        super().__init__(dut, component(GlobalController, CONFIG))
        self.blocks: list[dict[str, Any]] = []
        self.placed = [0] * BLOCKS
        self.ends = False
        self._received = 0
        self._freed = 0
        """Number of blocks whose freed resources have yet to be reported."""
        self._ending: list[int] = []
        """Blocks whose end has yet to be reported."""
        self.open, self.stop, self.keep, self.discard, self.close = (
            Source(self, f"port__{name}") for name in ("open", "stop", "keep", "discard", "close")
        )
        self.left, self.kept = Sink(self, "port__stopped"), Sink(self, "port__kept")
        Sink(self, "sm__0__block", then=self._take)
        self.saved = Source(self, "sm__0__stopped")
        self._ended = Source(self, "sm__0__ended")

    def _take(self, block: dict[str, Any]) -> None:
        self.blocks.append(block)
        self._received += 1

    async def step(self) -> None:
        if self.ends and self.blocks:
            block = self.blocks.pop()
            self._freed += 1
            names = "row", "restores", "save_place"
            self._ended.put({name: block[name] for name in names})
        freed = {"registers": CONFIG.register_units // 2, "warps": 1, "block": 1}
        self.drive(
            sm__0__freed=freed if self._freed else 0,
            sm__0__highest=LEVEL if self.blocks else 0,
            sm__0__received=self._received % 64,
        )
        self._freed = max(0, self._freed - 1)
        await super().step()
        if (placed := self.get("placed"))["valid"]:
            self.placed[placed["at"]["x"]] += 1

    async def save_one(self, then: int) -> None:
        """Stop one block; `then` : cycles from its answer to the stop of the row."""
        block = self.blocks[-1]
        victim = {"valid": 1, "restores": block["restores"], "level": LEVEL}
        self.drive(sm__0__victim=victim, sm__0__lacks={"valid": 1, "level": LEVEL + 1})
        await self.until(lambda: self.get("sm__0__stop")["valid"], "a block is to be stopped")
        stop = self.get("sm__0__stop")
        self.drive(sm__0__victim=0, sm__0__lacks=0)
        self.blocks.remove(block)
        self._freed += 1
        place = stop["save_place"] if stop["given"] else block["save_place"]
        answer = {"some": 1, "given": stop["given"], "restores": 1, "save_place": place}
        self.saved.put({**answer, "row": ROW, "at": block["at"]})
        self.stop.put(ROW, then)

    def drained(self) -> bool:
        return bool(self.get("port__drained") >> ROW & 1)


@cocotb.test(timeout_time=5, timeout_unit="ms")
@cocotb.parametrize(drops=[False, True])
async def stops_in_any_cycle(dut: Any, drops: bool) -> None:
    """If a row is stopped while one of its blocks goes to the list of saved blocks, waits there, or
    is placed again, the answer gives the blocks that were never placed, and the saved block is
    placed once more; if the row drops its blocks, it may stay in the list."""
    tb = await StopsTestbench(dut).start()
    tb.drive(port__drops=drops)
    again = set()
    for delay in WHEN:
        tb.placed = [0] * BLOCKS
        kernel = Kernel(ROW, blocks=BLOCKS, registers=CONFIG.register_units // 2)
        tb.open.put({**kernel.request(), "saved": {"some": 0}})
        await tb.until(lambda: len(tb.blocks) == 2, "two blocks are on the SM")
        await tb.steps(20)
        await tb.save_one(delay)
        await tb.until(lambda: tb.left.taken, "the row is stopped")
        ((_, left),) = tb.left.taken
        tb.left.taken.clear()
        new = tb.placed.count(0)
        assert left["blocks"] == new and left["next"]["x"] == BLOCKS - new, (delay, left, tb.placed)
        tb.ends = True
        await tb.until(lambda: tb.drained() and not tb.saved.pending, "its blocks are over")
        tb.ends = False
        tb.keep.put(ROW)
        await tb.until(lambda: tb.kept.taken, "the list leaves the row")
        ((_, kept),) = tb.kept.taken
        tb.kept.taken.clear()
        assert sum(tb.placed) == BLOCKS - new + (not kept["some"]), (delay, tb.placed)
        assert drops or not kept["some"], delay
        again.add(kept["some"])
        if kept["some"]:
            tb.discard.put(kept["save_place"])
        tb.close.put(ROW)
        await tb.until(lambda: not (tb.close.pending or tb.discard.pending), "the row is closed")
        await tb.steps(20)
    assert again == ({0, 1} if drops else {0})
