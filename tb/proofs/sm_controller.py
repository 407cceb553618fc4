"""Proof that blocks with warps that wait for each other become fully resident (PLACE-26)."""

from amaranth import Module, Mux, Signal, Value

from signalbox.hw.config import Config
from signalbox.hw.sm.controller import SmController
from signalbox.tb.proofs.formal import (
    Assert,
    Assume,
    Cover,
    Inside,
    Proof,
    Wrap,
    arbitrary,
    surround,
)

__all__ = ["PROOFS"]

WARPS = 4
CONFIG = Config(
    slots=4, spare_rows=1, sm_blocks=3, sm_warps=WARPS, sm_registers=6 * 128, sm_shared=5 * 1024
)  # fmt: skip


class BarrierProof(Proof):
    """The block table may behave in any way that `sm.choice` allows. `owed` is the number of warps
    that have not started, in blocks with a barrier that have begun.

    It follows that each such block has all its warps after at most 2 · (hardware warps - 1) further
    starts of any warps, and that these warps wait only for the core.
    """

    name = "sm.barrier"
    shows = (
        "a block with a barrier begins only with a hardware warp for each of its warps, which no "
        "other block gets; there is always one for the next; it starts as soon as the core takes "
        "it, or one warp of another block does, after which it is its turn; only looks at "
        "blocks to be withdrawn (`stall`) and recalls (`freezes`) hold it up; a block that is "
        "returned has not begun"
    )
    induction = 3
    cover = 12

    def build(self, m: Module, wrap: Wrap) -> None:
        dut = SmController(CONFIG)
        inside = Inside(dut)
        inside.abstract("blocks")
        self._turn, self._go, self._room = (inside.signal(name) for name in ("turn", "go", "room"))
        self._blocks, self._warps = inside.submodule("blocks"), inside.submodule("warps")
        slots = Inside(self._warps)
        self._free, self._picked = slots.signal("free"), slots.signal("pick")
        self._withdrawal, self._returns = (
            inside.submodule(name) for name in ("withdrawal", "returns")
        )
        m.submodules.dut = wrap(dut)
        for name in ("block", "ended"):
            surround(m, getattr(dut.link, name), name)
        for name in ("claim", "recall"):
            arbitrary(m, getattr(dut.link, name), name)
        arbitrary(m, dut.kill, "kill")
        for name in ("begin", "start", "end"):
            surround(m, getattr(dut.port, name), name)
        self._owed = owed = Signal(range(-1, 2 * WARPS), name="owed")
        urgent, whole, go = self._blocks.urgent, self._blocks.whole, self._go
        self._mine = urgent.begun & urgent.block.needs.barrier
        begins = go[0] & ~urgent.begun & urgent.block.needs.barrier
        starts = go[2] | (go[0] & self._mine)
        warps = urgent.block.needs.warps
        m.d.sync += owed.eq(owed + Mux(begins, warps - 1, 0) - starts)
        self._table(m)
        free, left = sum(self._free), dut.left.warps
        end, running = self._warps.end, ~self._free
        m.d.comb += [
            Assume(~end.valid | ((end.warp < WARPS) & running.bit_select(end.warp, 1))),
            Assert(free == left + self._warps.ended.valid + owed),
            Assert((owed >= 0) & (owed < WARPS)),
            Assert(~begins | (warps <= left)),
            Assert(~go.any() | self._warps.found),
            Assert((go & (go - 1)) == 0),
            Cover((owed == WARPS - 1) & whole.valid),
        ]
        self._pick(m)
        self._turns(m, starts)

    def _table(self, m: Module) -> None:
        """The known properties of the block table (see `sm.choice`)."""
        blocks, owed, go = self._blocks, self._owed, self._go
        urgent, whole = blocks.urgent, blocks.whole
        quiet = Signal(name="quiet")
        undisturbed = ~blocks.overtaken & ~(blocks.withdraw | blocks.leaves).any()
        leaves = blocks.leaves.any()
        m.d.comb += [
            Assert(~leaves | (urgent.valid & ~urgent.begun & ~go.any() & ~blocks.overtaken)),
            Assert(~leaves | ((blocks.leaves == urgent.place) & ~blocks.withdraw.any())),
            Cover(leaves),
        ]
        m.d.sync += quiet.eq(urgent.valid & ~go.any() & undisturbed)
        for choice, name in ((urgent, "urgent"), (whole, "whole"), (blocks.going, "going")):
            was = Signal(choice.shape(), name=f"{name}_before")
            m.d.sync += was.eq(choice)
            used = True if choice is not blocks.going else ~urgent.begun
            m.d.comb += Assume(~(quiet & was.valid & used) | (choice == was))
        needs = urgent.block.needs
        mine = urgent.valid & self._mine
        m.d.comb += [
            Assume((needs.warps != 0) & (needs.warps <= WARPS)),
            Assume(~self._mine | ~Value.cast(urgent.takes).any()),
            Assume(urgent.takes.warps == Mux(self._mine, 0, Mux(needs.barrier, needs.warps, 1))),
            Assume(blocks.going.takes.warps == 1),
            # A begun block that waits is owed a warp, and a block that is owed a warp is chosen.
            Assume(owed >= mine + whole.valid),
            Assume(~urgent.valid | (owed == 0) | mine | whole.valid | go.any()),
            Assume(~whole.valid | whole.block.needs.barrier),
        ]

    def _pick(self, m: Module) -> None:
        """A free hardware warp is found at once, except in the cycle after a start."""
        warps, before = self._warps, Signal(WARPS, init=(1 << WARPS) - 1, name="free_before")
        started = Signal(name="started")
        free, picked = self._free, self._picked
        m.d.sync += [before.eq(free), started.eq(warps.start.valid)]
        m.d.comb += [
            Assert((picked & ~free) == 0),
            Assert(warps.found == picked.any()),
            Assert((picked & (picked - 1)) == 0),
            Assert(~(before & free).any() | warps.found | started),
        ]

    def _turns(self, m: Module, starts: Value) -> None:
        """Of two warps that start while a warp is owed, one is an owed warp; and a warp starts when
        the core has taken the previous one."""
        urgent, overtaken = self._blocks.urgent, self._blocks.overtaken
        able, could, started = Signal(name="able"), Signal(name="could"), Signal(name="just")
        go, others = self._go, Signal(name="another_started")
        with m.If(go.any()):
            m.d.sync += others.eq(~starts & (self._owed != 0))
        m.d.comb += able.eq(
            (self._room & ~self._withdrawal.stall & ~self._returns.freezes & (self._owed != 0))
            & (urgent.valid & ~overtaken & ~go.any() & ~started)
        )
        m.d.sync += [could.eq(able), started.eq(go.any())]
        m.d.comb += [
            Assert(~could | go.any()),
            Assert(~others | self._turn),
            Assert(~(others & go.any() & ~starts & (self._owed != 0))),
        ]


PROOFS = [BarrierProof()]
