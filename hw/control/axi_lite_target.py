"""AXI4-Lite subordinate: turns the five channels into one stream of register accesses."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.bus.axi4lite import Axi4Lite, Response
from signalbox.hw.registers import ADDRESS_BITS

__all__ = ["Access", "AxiLiteTarget", "Outcome"]


class Access(data.Struct):
    """Register access: `word` address (bytes / 4); `lanes` of `data` to write."""

    word: ADDRESS_BITS - 2
    write: 1
    data: 32
    lanes: 4


class Outcome(data.Struct):
    """Response to an access. `refused` becomes SLVERR; `data` is valid for reads."""

    data: 32
    refused: 1


class AxiLiteTarget(wiring.Component):
    """Accepts one access at a time from the bus; alternates between reads and writes.

    AW and W come in any order. One further access of each kind is buffered, and started once the
    previous response of its kind was accepted: a response stalled on B does not block reads, one
    stalled on R does not block writes. Addresses are in words: the lowest two bits are ignored,
    `wstrb` selects bytes. Every output is a flip-flop or an inverted flip-flop.

    Latency: `access` is valid 2 cycles after the last handshake that it needs; BVALID or RVALID
    rises 1 cycle after `outcome`.

    Members
    -------
    axi : in, AXI4-Lite bus.
    access : out, stream of `Access`; accepted together with its outcome.
    outcome : in, `Outcome` of `access`, valid in the cycle that accepts it.
    """

    axi: In(Axi4Lite(ADDRESS_BITS))
    access: Out(stream.Signature(Access))
    outcome: In(stream.Signature(Outcome, always_ready=True))

    def elaborate(self, platform: object) -> Module:
        m = Module()
        axi, access, outcome = self.axi, self.access, self.outcome
        address = Signal(14)
        value = Signal(36)
        place = Signal(14)
        have_aw = Signal()
        have_w = Signal()
        have_ar = Signal()
        may_write = Signal()
        may_read = Signal()

        def take(valid, ready, have, into, what) -> None:
            m.d.comb += ready.eq(~have)
            with m.If(valid & ready):
                m.d.sync += [have.eq(1), into.eq(what)]

        take(axi.awvalid, axi.awready, have_aw, address, axi.awaddr[2:])
        take(axi.wvalid, axi.wready, have_w, value, Cat(axi.wdata, axi.wstrb))
        take(axi.arvalid, axi.arready, have_ar, place, axi.araddr[2:])

        m.d.comb += [
            may_write.eq(have_aw & have_w & ~axi.bvalid),
            may_read.eq(have_ar & ~axi.rvalid),
        ]
        # Reads and writes alternate: the kind just answered is blocked for a cycle by its response.
        with m.If(~access.valid):
            with m.If(may_read):
                m.d.sync += [
                    access.valid.eq(1),
                    access.p.write.eq(0),
                    access.p.word.eq(place),
                    have_ar.eq(0),
                ]
            with m.Elif(may_write):
                m.d.sync += [
                    access.valid.eq(1),
                    access.p.write.eq(1),
                    access.p.word.eq(address),
                    Cat(access.p.data, access.p.lanes).eq(value),
                    have_aw.eq(0),
                    have_w.eq(0),
                ]
        with m.Elif(access.ready):
            m.d.sync += access.valid.eq(0)

        with m.If(axi.bready):
            m.d.sync += axi.bvalid.eq(0)
        with m.If(axi.rready):
            m.d.sync += axi.rvalid.eq(0)
        with m.If(outcome.valid):
            self._answer(m)
        return m

    def _answer(self, m: Module) -> None:
        axi, outcome = self.axi, self.outcome
        response = Signal(Response)
        m.d.comb += response.eq(Response.OKAY)
        with m.If(outcome.p.refused):
            m.d.comb += response.eq(Response.SLVERR)
        with m.If(self.access.p.write):
            m.d.sync += [axi.bvalid.eq(1), axi.bresp.eq(response)]
        with m.Else():
            m.d.sync += [
                axi.rvalid.eq(1),
                axi.rresp.eq(response),
                axi.rdata.eq(outcome.p.data),
            ]
