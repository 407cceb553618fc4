"""FIFO with a registered output."""

from amaranth import Module, ShapeLike, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

__all__ = ["FlopQueue"]


class FlopQueue(wiring.Component):
    """FIFO in RAM with an output register, so no logic follows the slow output of a block RAM.

    One payload per cycle; latency 2 cycles, 3 with block RAM (`block`, for deep FIFOs). No row is
    read and written in the same cycle, and an attribute says so. So synthesis adds no logic for
    that case behind the block RAM, as it does for `amaranth.lib.fifo`.

    Members
    -------
    i : in, stream of `shape`. A row that was read can be written 2 cycles later.
    o : out, stream of `shape`. At least `depth` payloads, a power of two, fit between `i` and `o`.
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
        tail = Signal(range(2 * self.depth))
        head = Signal(range(2 * self.depth))
        taken = Signal(range(self.depth + 1))
        """Rows written and not yet read. A read counts one cycle late, as it is known late in its
        cycle."""
        some = Signal()
        here = Signal()
        """A row can be read; `read.data` is a payload."""
        read_now = Signal()
        read_before = Signal()
        move = Signal()
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
