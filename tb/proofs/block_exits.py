"""Proof that an SM gives each block back once, and with all of its warps (PREEMPT-7)."""

from dataclasses import replace

from amaranth import Module, Mux, Signal

from signalbox.hw.records.placement import INDEX_BITS
from signalbox.hw.sm.controller import SmController
from signalbox.tb.proofs.formal import (
    Assert,
    Assume,
    Cover,
    Inside,
    Proof,
    Wrap,
    stays,
    surround,
)
from signalbox.tb.proofs.placement import TWO_SMS

__all__ = ["PROOFS"]

CONFIG = replace(TWO_SMS, save_places=2)
SLOTS, WARPS = CONFIG.sm_blocks, CONFIG.sm_warps


class BlockExitsProof(Proof):
    """Follows one block, accepted in any cycle. To tell it from the others, its x position is odd,
    and theirs are even.

    Assumed: blocks fit the SM, and come only while a slot is free; a stop or recall comes after the
    answer to the previous one; the core ends each warp once, and saves a stopped block once, after
    `finish`. Rows are killed and blocks stopped, recalled and claimed at any time.
    """

    name = "sm.block_exits"
    shows = (
        "a block leaves the SM once, in one of three ways: it ends, it is returned, or it is "
        "stopped; as many blocks are inside as were accepted and have not left; its warps start "
        "once each, in order; unless its row was killed, it ends only when all of them have "
        "started and ended; it is returned only before the first; it is stopped only when those "
        "that have started have ended, and the core has saved it; it leaves under its own name and "
        "with the save place that was given to it; the core is told of starts and stops of a block "
        "only after its `begin`"
    )
    bounded = 17
    cover = 17
    long = True

    def build(self, m: Module, wrap: Wrap) -> None:
        self._dut = dut = SmController(CONFIG)
        inside = Inside(dut)
        inside.abstract("needs")
        self._needs, self._table = inside.submodule("needs"), inside.submodule("blocks")
        self._queue = inside.submodule("queue")
        m.submodules.dut = wrap(dut)
        surround(m, dut, "dut")
        self._arrivals(m)
        self._requests(m)
        self._core(m)
        self._exits(m)
        self._warps(m)
        self._names(m)

    def _arrivals(self, m: Module) -> None:
        """Blocks with their needs. `mine`: the block that is followed has come."""
        arrive, link = self._needs.o, self._dut.link
        needs, held = arrive.p.needs, Signal(range(SLOTS + 1), name="slots_held")
        self._comes, self._mine = Signal(name="mine_comes"), Signal(name="mine_came")
        self._block = Signal.like(arrive.p, name="mine")
        accepted = arrive.valid & arrive.ready
        stays(m, arrive, Assume, "arrive")
        m.d.comb += [
            Assume(~arrive.valid | (held < SLOTS)),
            Assume((needs.warps != 0) & (needs.warps <= WARPS)),
            Assume(needs.registers != 0),
            Assume(needs.block_registers == needs.registers * needs.warps),
            Assume(needs.block_registers <= CONFIG.register_units),
            Assume(needs.shared <= CONFIG.shared_units),
            Assume(~arrive.valid | ~(self._mine & arrive.p.at.x[0])),
            self._comes.eq(accepted & arrive.p.at.x[0]),
        ]
        freed = link.freed.block + (link.returned.valid & link.returned.some)
        m.d.sync += [held.eq(held + accepted - freed), self._mine.eq(self._mine | self._comes)]
        with m.If(self._comes):
            m.d.sync += self._block.eq(arrive.p)
        self._accepted = accepted

    def _requests(self, m: Module) -> None:
        """At most one recall and one stop at a time."""
        link = self._dut.link
        for name, asks, answers in (
            ("recall", link.recall, link.returned.valid),
            ("stop", link.stop.valid, link.stopped.valid & link.stopped.ready),
        ):
            pending = Signal(name=f"{name}_pending")
            m.d.sync += pending.eq(asks | (pending & ~answers))
            m.d.comb += [Assume(~(pending & asks)), Assert(pending | ~answers)]

    def _core(self, m: Module) -> None:
        """The core ends warps that run, and saves the stopped block."""
        port = self._dut.port
        runs, finished = Signal(WARPS, name="running"), Signal(SLOTS, name="finished")
        started = (port.start.valid & port.start.ready) << port.start.p.warp
        ended = (port.end.valid & port.end.ready) << port.end.payload
        stops = (port.stop.valid & port.stop.ready) << port.stop.p.slot
        told, known = Signal(SLOTS, name="told"), Signal(SLOTS, name="known_to_core")
        begins = (port.begin.valid & port.begin.ready) << port.begin.p.slot
        m.d.sync += [
            known.eq((known & ~(port.finish & ~told) & ~port.saved) | begins),
            runs.eq((runs | started) & ~ended),
            told.eq((told | stops) & ~port.saved),
            finished.eq((finished | (told & port.finish)) & ~port.saved),
        ]
        m.d.comb += [
            Assume(~port.end.valid | runs.bit_select(port.end.payload, 1)),
            Assume((port.saved & ~finished) == 0),
            Assert((started & runs) == 0),
            Assert(~port.stop.valid | known.bit_select(port.stop.p.slot, 1)),
            Assert(~port.start.valid | known.bit_select(port.start.p.slot, 1)),
        ]
        self._saved = port.saved

    def _exits(self, m: Module) -> None:
        """Ways in which blocks, and the followed one, leave."""
        link, table = self._dut.link, self._table
        ended, returned, stopped = link.ended, link.returned, link.stopped
        ends = ended.valid & ended.ready
        returns = returned.valid & returned.some
        leaves = stopped.valid & stopped.ready & stopped.p.some
        self._ends = ends & ended.p.number[0]
        self._returns = returns & returned.at.x[0]
        self._leaves = leaves & stopped.p.at.x[0]
        mine = (self._ends, self._returns, self._leaves)
        self._in = Signal(name="mine_inside")
        m.d.sync += self._in.eq(self._comes | (self._in & ~sum(mine)))
        inside = Signal(range(-4, 16), name="blocks_inside")
        m.d.sync += inside.eq(inside + self._accepted - sum((ends, returns, leaves)))
        entering, answers = Signal(name="entering"), stopped.valid & stopped.p.some
        m.d.sync += entering.eq(self._accepted)
        known = sum((*table.valid, entering, answers, returns)) + self._queue.level
        m.d.comb += [
            Assert(sum(mine) <= self._in),
            Assert(inside == known),
            *(Cover(way) for way in mine),
        ]

    def _warps(self, m: Module) -> None:
        """Warps of the block, from its `begin` on."""
        port, block = self._dut.port, self._block
        begins, begun = port.begin.valid & port.begin.ready, Signal(name="mine_begun")
        owns = Signal(name="mine_owns_slot")
        slot = Signal.like(port.begin.p.slot, name="mine_slot")
        hardware = Signal(WARPS, name="mine_warps")
        count, over = (Signal(INDEX_BITS + 1, name=f"mine_{name}") for name in ("started", "ended"))
        killed, saved = Signal(name="mine_killed"), Signal(name="mine_saved")
        starts = Signal(name="mine_starts")
        ends = port.end.valid & port.end.ready & hardware.bit_select(port.end.payload, 1)
        m.d.comb += starts.eq(
            port.start.valid & port.start.ready & owns & (port.start.p.slot == slot)
        )
        with m.If(begins & port.begin.p.at.x[0]):
            m.d.comb += Assert(self._in & ~begun)
            m.d.sync += [begun.eq(1), owns.eq(1), slot.eq(port.begin.p.slot)]
        with m.Elif(begins & (port.begin.p.slot == slot)):
            m.d.sync += owns.eq(0)
        with m.If(starts):
            m.d.comb += [
                Assert(self._in & (port.start.p.index == count)),
                Assert(count < block.needs.warps),
            ]
            m.d.sync += hardware.bit_select(port.start.p.warp, 1).eq(1)
        with m.If(ends):
            m.d.sync += hardware.bit_select(port.end.payload, 1).eq(0)
        m.d.sync += [
            count.eq(count + starts),
            over.eq(over + ends),
            killed.eq(killed | (self._mine & self._dut.kill.bit_select(block.row, 1))),
            saved.eq(saved | (owns & self._saved.bit_select(slot, 1))),
        ]
        whole = (count == block.needs.warps) & (over == count)
        m.d.comb += [
            Assert(~self._ends | killed | whole),
            Assert(~self._ends | (over == count)),
            Assert(~self._returns | (~begun & (count == 0))),
            Assert(~self._leaves | ((over == count) & (saved == begun))),
            Cover(self._leaves & saved),
            Cover(self._leaves & saved & (count < block.needs.warps)),
            Cover(self._ends & ~killed & (count == WARPS)),
        ]
        self._begun = begun

    def _names(self, m: Module) -> None:
        """Data that the SM reports for the block when it leaves."""
        link, block = self._dut.link, self._block
        ended, returned, stopped = link.ended.p, link.returned, link.stopped.p
        given = Signal.like(stopped.save_place, name="given_place")
        was_given = Signal(name="was_given")
        with m.If(link.stop.valid):
            m.d.sync += [given.eq(link.stop.save_place), was_given.eq(link.stop.given)]
        place = Mux(was_given, given, block.save_place)
        m.d.comb += [
            Assert(~self._ends | (ended.row == block.row)),
            Assert(~self._ends | (ended.restores == block.restores)),
            Assert(~(self._ends & block.restores) | (ended.save_place == block.save_place)),
            *(
                Assert(~self._returns | (returned[name] == block[name]))
                for name in ("row", "at", "restores", "save_place", "needs")
            ),
            Assert(~self._leaves | ((stopped.row == block.row) & (stopped.at == block.at))),
            Assert(~self._leaves | (stopped.save_place == place)),
            Assert(~self._leaves | (stopped.given == ~block.restores)),
            Assert(~self._leaves | (stopped.restores == (block.restores | self._begun))),
        ]


PROOFS = [BlockExitsProof()]
