"""Proof of the cycle in which a block is placed, on two SMs (PLACE-2 … 6, PLACE-10)."""

from dataclasses import replace
from typing import Any

from amaranth import Const, Module, Mux, Signal, Value
from amaranth.hdl import Cat

from signalbox.hw.placement.controller import GlobalController
from signalbox.hw.placement.sm_table import Rank
from signalbox.tb.proofs.formal import (
    Assert,
    Assume,
    Cover,
    Inside,
    Proof,
    Wrap,
    arbitrary,
)
from signalbox.tb.proofs.placement import (
    TWO_SMS,
    Holdings,
    decisions,
    moves,
    run_of_blocks,
    sm_rows,
)

__all__ = ["PROOFS"]

SLOTS = TWO_SMS.sm_blocks
LEVELS = 2  # bits of a step: 3 is A, 2 is B, 1 is C, 0 is none


class CommitProof(Proof):
    """Any kernel may be served in any cycle, and SMs may free resources at any time."""

    name = "placement.commit"
    shows = (
        "when a block is placed, its SM has room in that very cycle: in step A for a whole block, "
        "in step B for its first warp; in step C it has only less urgent work; it has a slot and "
        "its link is free; no SM had qualified by a better step when the decision began; if one "
        "had qualified at all, and no block was sent since, the decision does not fail"
    )
    induction = 2
    cover = 10
    breaks = ("freeze",)  # a design that forgets everything at once stays consistent
    masks = False

    def build(self, m: Module, wrap: Wrap) -> None:
        config = replace(TWO_SMS, sm_masks=self.masks)
        self._dut = dut = GlobalController(config)
        inside = Inside(dut)
        inside.abstract("kernels", "numbering", "recall")
        self._steps, self._batch = decisions(dut, inside), run_of_blocks(inside, config)
        self._barred = self._bars(m)
        self._commits = inside.signal("commit")
        self._rows = [(row, Holdings(row)) for row in sm_rows(inside)]
        m.submodules.dut = wrap(dut)
        self._move = moves(m, inside)
        self._environment(m)
        for one in (*self._steps, self._batch):
            m.d.comb += self._fits_empty(one.needs, Assume if one is self._steps[0] else Assert)
        self._sms(m)
        self._commit(m)
        self._best(m)

    def _environment(self, m: Module) -> None:
        port = self._dut.port
        for one in (port.open, port.add, port.stop, port.close):
            arbitrary(m, one.valid, "asks")
            arbitrary(m, one.payload, "asked")
        arbitrary(m, port.stopped.ready, "told")

    def _bars(self, m: Module) -> list[Value]:
        """SMs on which a decision places no block; per step, as `_steps`."""
        bars = [self._dut.kernels.barred if self.masks else Const(0, TWO_SMS.sms)]
        for n in range(1, len(self._steps)):
            bars.append(Signal(TWO_SMS.sms, name=f"barred_{n}"))
            m.d.sync += bars[n].eq(bars[n - 1])
        return bars

    @staticmethod
    def _fits_empty(needs: Any, check: Any) -> list:
        return [
            check(needs.warps <= TWO_SMS.sm_warps),
            check(needs.block_registers <= TWO_SMS.register_units),
            check(needs.shared <= TWO_SMS.shared_units),
        ]

    def _sms(self, m: Module) -> None:
        """Blocks on an SM hold the resources that are not available, and free them at any time."""
        for n, ((row, holds), link) in enumerate(zip(self._rows, self._dut.sm, strict=True)):
            for port, name in (
                (link.freed, "freed"), (link.highest, "highest"), (link.received, "received"),
                (link.block.ready, "ready"), (link.ended.payload, "end_of"),
                (link.ended.valid, "ended"),
            ):  # fmt: skip
                arbitrary(m, port, f"{name}_{n}")
            freed, needs = link.freed, self._move.needs
            back = freed.block + row.returned
            m.d.comb += [
                Assume((back == 0) | (holds.blocks >= back + link.block.valid)),
                Assume(link.highest <= holds.top),
                Assert(holds.blocks <= SLOTS),
            ]
            for left, size, amount, returned in (
                (holds.registers, TWO_SMS.register_units, freed.registers, needs.block_registers),
                (holds.warps, TWO_SMS.sm_warps, freed.warps, needs.warps),
                (holds.shared, TWO_SMS.shared_units, freed.shared, needs.shared),
            ):
                held, free = size - left, amount + Mux(row.returned, returned, 0)
                m.d.comb += [
                    Assume((free <= held) & (held - free <= size * (holds.blocks - back))),
                    Assert((held >= 0) & (held <= size * holds.blocks)),
                ]

    @staticmethod
    def _level(holds: Holdings, needs: Any) -> tuple[Value, Value, Value]:
        """Whether an SM has room for a block, has room for a warp of it, and has only less urgent
        work."""
        shared = holds.shared >= needs.shared
        whole = (holds.registers >= needs.block_registers) & (holds.warps >= needs.warps) & shared
        warp = (holds.registers >= needs.registers) & (holds.warps > 0) & shared & ~needs.barrier
        return whole, warp, holds.top <= needs.priority

    def _commit(self, m: Module) -> None:
        """A candidate still qualifies when it is taken, and the next one has room."""
        dut, batch, steps = self._dut, self._batch, self._steps
        best, number, begins = dut.choice.best.rank, dut.choice.number, steps[0]
        for one, valid, check in (
            (begins, batch.valid, Assume),
            (steps[1], batch.valid, Assert),
        ):  # the needs of a row do not change
            same = (one.row == batch.row) & valid
            m.d.comb += check(~same | (one.needs == batch.needs))
        same = steps[2].valid & (begins.row == steps[2].row)
        m.d.comb += [
            Assume(~same | (begins.needs == steps[2].needs)),
            Assert(~batch.valid | (batch.at == 1 << batch.sm)),
        ]
        for n, ((row, holds), link) in enumerate(zip(self._rows, dut.sm, strict=True)):
            for rank, needs, barred in (
                (row.candidate.rank, steps[1].needs, self._barred[1]),
                (Mux(number == n, best, Rank.NONE), steps[2].needs, self._barred[2]),
            ):
                whole, warp, lower = self._level(holds, needs)
                step = Mux(rank >= Rank.WHOLE, whole, Mux(rank >= Rank.WARP, warp, lower))
                room = (holds.blocks < SLOTS) & ~link.block.valid
                m.d.comb += Assert((rank == Rank.NONE) | (room & step & ~barred[n]))
            whole, _, _ = self._level(holds, batch.needs)
            follows = (batch.sm == n) & Mux(batch.just, row.two, row.one)
            known = batch.valid & follows & (steps[1].row == batch.row)
            m.d.comb += [
                Assert(~known | (whole & (holds.blocks < SLOTS))),
                Assert(~row.taken | (holds.blocks < SLOTS)),
                Assert(~row.taken | ~link.block.valid | link.block.ready),
                Assert(~(row.taken & batch.valid) | whole),
                Assert(~row.taken | batch.valid | self._move.valid | ~self._barred[-1][n]),
                Cover(row.taken & (rank == Rank.LOWER)),
                Cover(row.taken & (rank == Rank.WARP)),
                Cover(row.taken & batch.valid),
            ]

    def _best(self, m: Module) -> None:
        """The best step for which any SM qualified when the decision began."""
        dut = self._dut
        level = Signal(LEVELS, name="level_0")
        levels = []
        for n, (row, holds) in enumerate(self._rows):
            whole, warp, lower = self._level(holds, self._steps[0].needs)
            may = (holds.blocks < SLOTS - row.spares) & row.ready & ~self._barred[0][n]
            levels.append(Mux(may, Mux(whole, 3, Mux(warp, 2, lower)), 0))
        one, other = levels
        m.d.comb += level.eq(Mux(one > other, one, other))
        for n in range(1, len(self._steps)):
            later = Signal(LEVELS, name=f"level_{n}")
            m.d.sync += later.eq(level)
            level = later
        rank = dut.choice.best.rank
        step = Mux(rank >= Rank.WHOLE, 3, Mux(rank >= Rank.WARP, 2, rank != Rank.NONE))
        started, sent = Signal(2, name="started"), Signal(2, init=3, name="sent")
        m.d.sync += [
            started.eq(Cat(1, started[0])),
            sent.eq(Cat(self._commits | self._move.valid, sent[0])),
        ]
        chosen = self._steps[-1].valid & ~self._batch.valid
        decided = chosen & ~dut.kernels.flush & ~dut.numbering.empty
        with m.If(decided & started[1]):
            m.d.comb += [
                Assert(~self._commits | (step >= level)),
                Assert(self._commits | (level == 0) | sent.any()),
            ]


class MaskedCommitProof(CommitProof):
    """Decisions place no blocks on certain SMs, chosen by the solver."""

    name = "placement.masked_commit"
    shows = (
        "so it is with SM masks, among the SMs to which blocks of the kernel may go; a block is "
        "placed on none of the others"
    )
    masks = True
    long = True  # an option: at night

    def build(self, m: Module, wrap: Wrap) -> None:
        super().build(m, wrap)
        m.d.comb += Cover(self._commits & self._barred[-1][0] & ~self._batch.valid)


PROOFS = [CommitProof(), MaskedCommitProof()]
