"""A deep queue whose payload comes from flip-flops."""

from amaranth import Module, ShapeLike, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

__all__ = ["Queue"]


class Queue(wiring.Component):
    """A block RAM with a register right behind it: the RAM's slow output reaches no logic.

    Latency 3 cycles, one payload per cycle. `amaranth.lib.fifo` would do, but for the logic that
    synthesis puts behind its RAM to define what a read of the row just being written returns; no
    such read happens here, and an attribute says so.

    Members
    -------
    i, o : streams of `shape`; at least `depth` payloads, a power of two, fit in between.
    """

    def __init__(self, shape: ShapeLike, depth: int) -> None:
        if depth < 2 or depth & (depth - 1):
            raise ValueError(f"depth = {depth} is not a power of two above 1")
        super().__init__({"i": In(stream.Signature(shape)), "o": Out(stream.Signature(shape))})
        self.shape = shape
        self.depth = depth

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.rows = rows = Memory(
            shape=self.shape, depth=self.depth, init=[], attrs={"no_rw_check": 1}
        )
        write, read = rows.write_port(), rows.read_port()
        stored = Signal(range(self.depth + 1))
        """Rows that were written in earlier cycles and not read."""
        fetched = Signal()
        """The RAM's output is a payload."""
        move = Signal()
        m.d.comb += [
            self.i.ready.eq(stored != self.depth),
            write.en.eq(self.i.valid & self.i.ready),
            write.data.eq(self.i.payload),
            move.eq(self.o.ready | ~self.o.valid),
            read.en.eq((stored != 0) & (move | ~fetched)),
        ]
        with m.If(write.en):
            m.d.sync += write.addr.eq(write.addr + 1)
        with m.If(read.en):
            m.d.sync += read.addr.eq(read.addr + 1)
        with m.If(write.en & ~read.en):
            m.d.sync += stored.eq(stored + 1)
        with m.If(read.en & ~write.en):
            m.d.sync += stored.eq(stored - 1)
        with m.If(move | ~fetched):
            m.d.sync += fetched.eq(read.en)
        with m.If(move):
            m.d.sync += [self.o.valid.eq(fetched), self.o.payload.eq(read.data)]
        return m
