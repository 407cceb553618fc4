"""Proof of the generations of address spaces, with two bits (ASID-8)."""

from typing import Any

from amaranth import Module, ResetInserter, Signal, Value
from amaranth.lib import data

from signalbox.hw.config import Config
from signalbox.hw.mmu.asid_generations import AsidGenerations, advancing_space
from signalbox.tb.proofs.formal import (
    AnyConst,
    Assert,
    Assume,
    Cover,
    Inside,
    Proof,
    Wrap,
    anything,
)

__all__ = ["PROOFS"]

SPACES = Config(channels=1, semaphores=8, counters=1, asids=4)


class AsidGenerationsProof(Proof):
    """For any entry of any of four address spaces, with resets at any time. After a reset, RAM has
    arbitrary contents, and there are no entries."""

    name = "mmu.asid_generations"
    shows = (
        "an entry counts until its generation ends, and never again before it is removed, though "
        "numbers come round; a closed space waits for at most one sweep of every other"
    )
    induction = 2
    cover = 20

    def build(self, m: Module, wrap: Wrap) -> None:
        dut = AsidGenerations(SPACES, 1, bits=2)
        inside = Inside(dut)
        look = inside.submodule("ram").read_port(domain="comb")
        cleaned = inside.signal("cleaned")
        self._advancing = inside.signal("advancing", advancing_space(SPACES, 2))
        restart, asid = anything(m, 1, "restart"), Signal(SPACES.asid_bits, name="asid")
        m.submodules.dut = wrap(ResetInserter(restart)(dut))
        m.d.comb += [
            asid.eq(AnyConst(len(asid))),
            dut.asid[0].eq(asid),
            look.addr.eq(dut.swept),
            Value.cast(dut.advance).eq(anything(m, len(Value.cast(dut.advance)), "advance")),
            dut.clean.eq(anything(m, 1, "clean")),
            Assume(dut.sweeps | ~dut.clean),
        ]
        row, mine = dut.row[0], dut.swept == asid
        removed = dut.clean & mine
        advancing = self._advancing
        ends = advancing.valid & (advancing.asid == asid)
        same = Value.cast(advancing.row) == Value.cast(row)
        m.d.comb += Assert(~ends | advancing.row.closed | same)
        self._entry(m, row, ends, removed | restart, cleaned & mine)
        opened = self._turn(m, dut, asid, cleaned, restart)
        m.d.comb += [
            Assert(~(cleaned & dut.sweeps)),
            Assert(~(cleaned | dut.sweeps) | look.data.closed),
            Assert(~opened | ~(look.data.closed | cleaned | dut.sweeps)),
        ]

    def _entry(self, m: Module, row: Any, ends: Value, removed: Value, clean: Value) -> None:
        """An entry may be created at any time while its space is not closed."""
        entry = Signal(data.StructLayout({"there": 1, "stamp": 2, "ended": 1}), name="entry")
        makes = anything(m, 1, "makes") & ~row.closed & ~entry.there
        counts = (row.number == entry.stamp) & ~row.closed
        with m.If(makes):
            m.d.sync += [entry.there.eq(1), entry.stamp.eq(row.number), entry.ended.eq(ends)]
        with m.Elif(ends):
            m.d.sync += entry.ended.eq(1)
        with m.If(removed):
            m.d.sync += entry.there.eq(0)
        with m.If(entry.there):
            m.d.comb += [
                Assert(counts == ~entry.ended),
                Assert(~entry.ended | row.closed | (row.number > entry.stamp)),
                Assert(~clean),
            ]
        again = Signal(name="again")
        m.d.sync += again.eq(again | removed & entry.ended)
        m.d.comb += Cover(again & entry.there & entry.ended & ~row.closed)

    def _turn(self, m: Module, dut: Any, asid: Signal, cleaned: Signal, restart: Any) -> Signal:
        """Count sweeps of other spaces while the space is closed. Returns whether another space has
        just been opened."""
        others, ahead = Signal(3, name="others"), Signal(SPACES.asid_bits, name="ahead")
        m.d.comb += ahead.eq(asid - dut.swept)
        with m.If(~dut.row[0].closed | restart):
            m.d.sync += others.eq(0)
        with m.Elif(dut.clean & (dut.swept != asid)):
            m.d.sync += others.eq(others + 1)
        opened = Signal(name="opened")
        m.d.sync += opened.eq(cleaned & ~self._advancing.valid & ~restart)
        m.d.comb += Assert(others + ahead <= 3 + (cleaned | opened))
        return opened


PROOFS = [AsidGenerationsProof()]
