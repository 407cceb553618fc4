"""Register slice and FIFO for ready/valid streams."""

from amaranth import Module, Shape, ShapeLike, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.wiring import In, Out

__all__ = ["StreamFIFO", "StreamRegister"]


class StreamRegister(wiring.Component):
    """Full-throughput register slice: no combinational path of the stream passes it, in either
    direction.

    Latency 1 cycle; holds up to two payloads. All outputs come from flip-flops: `o.valid` and
    `o.payload` directly, `i.ready` through an inverter.

    Members
    -------
    i : in, stream of `shape`.
    o : out, stream of `shape`.
    """

    def __init__(self, shape: ShapeLike) -> None:
        super().__init__({"i": In(stream.Signature(shape)), "o": Out(stream.Signature(shape))})
        self._spare = Signal(shape, name="spare")
        self._full = Signal(name="full")
        """`_spare` holds a second payload."""

    def elaborate(self, platform) -> Module:
        m = Module()
        m.d.comb += self.i.ready.eq(~self._full)
        with m.If(~self._full):
            m.d.sync += self._spare.eq(self.i.payload)
        with m.If(self.o.ready | ~self.o.valid):
            m.d.sync += [
                self.o.valid.eq(self._full | self.i.valid),
                self._full.eq(0),
            ]
            with m.If(self._full):
                m.d.sync += self.o.payload.eq(self._spare)
            with m.Else():
                m.d.sync += self.o.payload.eq(self.i.payload)
        with m.Elif(self.i.valid):
            m.d.sync += self._full.eq(1)
        return m


class StreamFIFO(wiring.Component):
    """FIFO for the payloads of a stream, in RAM with an output register.

    One payload per cycle; latency 2 cycles. It holds `depth` payloads, one of them in the output
    register. That register fills one cycle after the RAM, so to hold N payloads at any moment,
    `depth` must be N + 1.

    Members
    -------
    i : in, stream of `shape`.
    o : out, stream of `shape`.
    level : out, 0 … `depth`: number of payloads held.
    """

    def __init__(self, shape: ShapeLike, depth: int) -> None:
        self._shape, self._depth = shape, depth
        super().__init__({
            "i": In(stream.Signature(shape)),
            "o": Out(stream.Signature(shape)),
            "level": Out(range(depth + 1)),
        })

    def elaborate(self, platform) -> Module:
        m = Module()
        width = Shape.cast(self._shape).width
        m.submodules.fifo = fifo = SyncFIFOBuffered(width=width, depth=self._depth)
        m.d.comb += [
            fifo.w_en.eq(self.i.valid),
            fifo.w_data.eq(self.i.payload),
            self.i.ready.eq(fifo.w_rdy),
            self.o.valid.eq(fifo.r_rdy),
            Value.cast(self.o.payload).eq(fifo.r_data),
            fifo.r_en.eq(self.o.ready),
            self.level.eq(fifo.level),
        ]
        return m
