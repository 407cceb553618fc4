"""Register slice for ready/valid streams."""

from amaranth import Module, ShapeLike, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

__all__ = ["StreamRegister"]


class StreamRegister(wiring.Component):
    """Full-throughput register slice: no combinational path of the stream passes it, in either
    direction.

    Latency 1 cycle; holds up to two payloads. All outputs come from flip-flops: `o.valid` and
    `o.payload` directly, `i.ready` through an inverter.

    Members
    -------
    i : input, stream of `shape`.
    o : output, stream of `shape`.

    Attributes
    ----------
    spare : second payload (state, for proofs).
    full : `spare` is occupied (state, for proofs).
    """

    def __init__(self, shape: ShapeLike) -> None:
        super().__init__({"i": In(stream.Signature(shape)), "o": Out(stream.Signature(shape))})
        self.spare = Signal(shape)
        self.full = Signal()

    def elaborate(self, platform) -> Module:
        m = Module()
        m.d.comb += self.i.ready.eq(~self.full)
        with m.If(~self.full):
            m.d.sync += self.spare.eq(self.i.payload)
        with m.If(self.o.ready | ~self.o.valid):
            m.d.sync += [
                self.o.valid.eq(self.full | self.i.valid),
                self.full.eq(0),
            ]
            with m.If(self.full):
                m.d.sync += self.o.payload.eq(self.spare)
            with m.Else():
                m.d.sync += self.o.payload.eq(self.i.payload)
        with m.Elif(self.i.valid):
            m.d.sync += self.full.eq(1)
        return m
