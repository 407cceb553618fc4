"""A deep queue whose outputs are flip-flops."""

from amaranth import Module, ShapeLike, Value
from amaranth.hdl import Shape
from amaranth.lib import stream, wiring
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.wiring import In, Out

from hw.lib.stream import StreamRegister

__all__ = ["Queue"]


class Queue(wiring.Component):
    """Block RAM behind a register: the RAM's slow output reaches no logic.

    Holds at least `depth` payloads; latency 3 cycles, one payload per cycle.

    Members
    -------
    i, o : streams of `shape`.
    """

    def __init__(self, shape: ShapeLike, depth: int) -> None:
        super().__init__({"i": In(stream.Signature(shape)), "o": Out(stream.Signature(shape))})
        self.shape = shape
        self.depth = depth

    def elaborate(self, platform) -> Module:
        m = Module()
        width = Shape.cast(self.shape).width
        m.submodules.fifo = fifo = SyncFIFOBuffered(width=width, depth=self.depth + 1)
        m.submodules.register = register = StreamRegister(self.shape)
        wiring.connect(m, register.o, wiring.flipped(self.o))
        m.d.comb += [
            fifo.w_data.eq(Value.cast(self.i.payload)),
            fifo.w_en.eq(self.i.valid),
            self.i.ready.eq(fifo.w_rdy),
            Value.cast(register.i.payload).eq(fifo.r_data),
            register.i.valid.eq(fifo.r_rdy),
            fifo.r_en.eq(register.i.ready),
        ]
        return m
