"""Proof of the queue of page table reads (ASID-4)."""

from amaranth import Mux, Signal
from amaranth.hdl import Module, Value

from signalbox.hw.config import Config
from signalbox.hw.mmu.page_table_reads import PageTableReads
from signalbox.tb.proofs.formal import (
    AnyConst,
    Assert,
    Assume,
    Cover,
    Inside,
    Proof,
    Wrap,
    anything,
    arbitrary,
)

__all__ = ["PROOFS"]

CONFIG = Config(channels=1, semaphores=8, counters=1, asids=2, address_width=32)
WALKS, WAITING, OWNER = 8, 4, 2


class PageTableReadsProof(Proof):
    """For any one read, chosen by the solver: its position among the reads that memory has not
    taken, and among those in flight."""

    name = "mmu.page_table_reads"
    shows = (
        "a read that is added while there is room is offered to memory in its turn, with its "
        "address, and its beat comes out in its turn, for its walk; where there is ample room, "
        "there is room in the next cycle"
    )
    induction = 2
    cover = 14

    def build(self, m: Module, wrap: Wrap) -> None:
        dut = PageTableReads(CONFIG, WALKS, OWNER)
        inside = Inside(dut)
        asks, order = inside.submodule("asks"), inside.submodule("order")
        ask, owed = asks.read_port(domain="comb"), order.read_port(domain="comb")
        m.submodules.dut = wrap(dut)
        width = len(dut.added)
        waiting, under_way = Signal(width, name="waiting"), Signal(width, name="under_way")
        behind = Signal(width, name="behind")
        m.d.comb += [
            waiting.eq(dut.added - dut.taken),
            behind.eq(dut.added - dut.seen),
            under_way.eq(behind + dut.held),
        ]
        self._inputs(m, dut, waiting, under_way)
        m.d.comb += [
            Assert(waiting <= WAITING),
            Assert(~dut.room | (waiting < WAITING)),
            Assert((behind <= WALKS) & (under_way <= WALKS) & (waiting <= under_way)),
            Assert(dut.held | ((behind <= 1) & (waiting == behind))),
            Assert(Value.cast(dut.slot) == (dut.held << dut.number_head)),
        ]
        before = Signal(name="ample_before")
        m.d.sync += before.eq(dut.ample)
        with m.If(before):
            m.d.comb += Assert(dut.room)
        self._one(m, dut, (ask, owed), (waiting, under_way))
        m.d.comb += [Cover(waiting == WAITING), Cover(under_way == WALKS)]

    def _inputs(self, m: Module, dut: PageTableReads, waiting: Value, under_way: Value) -> None:
        """Reads are added only while there is room, at most one per walk; memory answers the reads
        that it has taken."""
        inputs = {
            "add": dut.add,
            "address": dut.address,
            "number": dut.number,
            "owner": dut.owner,
            "taken": dut.read.request.ready,
            "beat_valid": dut.read.beat.valid,
            "beat": dut.read.beat.payload,
        }
        for name, target in inputs.items():
            arbitrary(m, target, name)
        m.d.comb += [
            Assume(~dut.add | (dut.room & (under_way < WALKS))),
            Assume(~dut.read.beat.valid | (under_way > waiting)),
            Assume(dut.read.beat.p.last),
        ]

    def _one(self, m: Module, dut: PageTableReads, ports: tuple, levels: tuple) -> None:
        """The chosen read."""
        (ask, owed), (waiting, under_way), width = ports, levels, len(dut.added)
        address, number = Signal(len(dut.address)), Signal(len(dut.number))
        owner, place = Signal(OWNER), Signal(len(dut.added))
        chosen, unasked = Signal(name="chosen"), Signal(name="unasked")
        request, came = dut.read.request, dut.came
        ahead = Signal(len(dut.added), name="reads_ahead")
        first = Signal(len(dut.added), name="asks_ahead")
        takes = request.valid & request.ready
        for signal in (address, number, owner):
            m.d.comb += signal.eq(AnyConst(len(signal)))
        is_it = (dut.address == address) & (dut.number == number) & (dut.owner == owner)
        with m.If(~chosen):
            with m.If(dut.add & is_it & anything(m, 1, "chooses")):
                m.d.sync += [
                    chosen.eq(1),
                    unasked.eq(1),
                    place.eq(dut.added),
                    ahead.eq(under_way - came),
                    first.eq(waiting - takes),
                ]
        with m.Else():
            m.d.sync += [ahead.eq(ahead - came), first.eq(first - takes)]
            with m.If(came & (ahead == 0)):
                m.d.sync += chosen.eq(0)
            with m.If(takes & (first == 0)):
                m.d.sync += unasked.eq(0)
        m.d.comb += [ask.addr.eq(place), owed.addr.eq(place)]
        with m.If(chosen & unasked):
            m.d.comb += [
                Assert((first == (place - dut.taken)[:width]) & (first < waiting)),
                Assert(ask.data.address == address),
                Assert(request.valid & ((first != 0) | (request.p.va == address))),
            ]
        with m.If(chosen):
            at_head = dut.held & (ahead == 0)
            kept = (owed.data.number == number) & (owed.data.owner == owner)
            head = (dut.number_head == number) & (dut.head == owner)
            m.d.comb += [
                Assert(ahead == (place - dut.seen + dut.held)[:width]),
                Assert(ahead < Mux(unasked, under_way, under_way - waiting)),
                Assert(Mux(at_head, head, kept)),
                Assert(~came | ~at_head | ~unasked),
            ]


PROOFS = [PageTableReadsProof()]
