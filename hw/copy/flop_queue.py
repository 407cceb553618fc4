"""A queue whose payload comes from flip-flops."""

from amaranth import Module, ShapeLike, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

__all__ = ["Queue"]


class Queue(wiring.Component):
    """A RAM with a register right behind it, so that a block RAM's slow output reaches no logic.

    One payload per cycle; latency 2 cycles, 3 from block RAM (`block`), which is for deep ones.
    `amaranth.lib.fifo` would do, but for the logic that synthesis puts behind its block RAM to
    define what a read of the row just being written returns; no such read happens here, and an
    attribute says so.

    Members
    -------
    i, o : streams of `shape`; at least `depth` payloads, a power of two, fit in between. A row
        that was read is free for `i` 2 cycles later.
    """

    def __init__(self, shape: ShapeLike, depth: int, *, block: bool = False) -> None:
        if depth < 2 or depth & (depth - 1):
            raise ValueError(f"depth = {depth} is not a power of two above 1")
        super().__init__({"i": In(stream.Signature(shape)), "o": Out(stream.Signature(shape))})
        self.shape = shape
        self.depth = depth
        self.block = block

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.rows = rows = Memory(
            shape=self.shape, depth=self.depth, init=[], attrs={"no_rw_check": 1}
        )
        read = rows.read_port(domain="sync" if self.block else "comb")
        write = rows.write_port()
        # Pointers have one bit more than an address.
        tail, head = Signal(range(2 * self.depth)), Signal(range(2 * self.depth))
        taken = Signal(range(self.depth + 1))
        """Rows written and not read, as of the cycle before for reads: they come late."""
        some, here = Signal(), Signal()
        """A row is to be read; what `read.data` shows is a payload."""
        read_now, read_before, move = Signal(), Signal(), Signal()
        m.d.comb += [
            self.i.ready.eq(~taken[-1]),
            write.addr.eq(tail),
            write.en.eq(self.i.valid & self.i.ready),
            write.data.eq(self.i.payload),
            some.eq(tail != head),
            read.addr.eq(head),
            move.eq(self.o.ready | ~self.o.valid),
        ]
        m.d.sync += read_before.eq(read_now)
        with m.If(write.en):
            m.d.sync += tail.eq(tail + 1)
        with m.If(write.en & ~read_before):
            m.d.sync += taken.eq(taken + 1)
        with m.If(read_before & ~write.en):
            m.d.sync += taken.eq(taken - 1)
        if self.block:
            m.d.comb += [read_now.eq(some & (move | ~here)), read.en.eq(read_now)]
            with m.If(move | ~here):
                m.d.sync += here.eq(read_now)
        else:
            m.d.comb += [here.eq(some), read_now.eq(some & move)]
        with m.If(read_now):
            m.d.sync += head.eq(head + 1)
        with m.If(move):
            m.d.sync += [self.o.valid.eq(here), self.o.payload.eq(read.data)]
        return m
