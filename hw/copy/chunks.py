"""Splits lines into chunks of one write burst each."""

from amaranth import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.copy import records
from signalbox.hw.copy.records import BURST_BEATS

__all__ = ["Chunks"]


class Chunks(wiring.Component):
    """Cuts the lines of copies into chunks, at destination addresses that are multiples of
    `BURST_BEATS` beats.

    One chunk per 2 cycles, plus one cycle per line. After `stop`, at most one more chunk comes
    before the end of the copy.

    Members
    -------
    i : in, stream of `line`: lines and ends of copies.
    stop : in, level: the current copy has failed; the rest of it is dropped.
    o : out, stream of `chunk`: chunks and ends of copies.
    """

    def __init__(self, config: Config) -> None:
        super().__init__({
            "i": In(stream.Signature(records.line(config))),
            "stop": In(1),
            "o": Out(stream.Signature(records.chunk(config))),
        })
        self.config = config

    def elaborate(self, platform) -> Module:
        m = Module()
        chunk = self.o.p
        left = Signal(self.i.p.beats.shape())
        """Destination beats of the line, minus 1, from this chunk on."""
        tail = Signal()
        with m.FSM() as fsm:
            m.d.comb += self.i.ready.eq(fsm.ongoing("LINE"))
            with m.State("LINE"):
                self._load(m, left, tail)
                with m.If(self.i.valid & self.i.p.end):
                    m.d.sync += self.o.valid.eq(1)
                    m.next = "OFFER"
                with m.Elif(self.i.valid & ~self.stop):
                    m.next = "CUT"
            with m.State("CUT"):
                self._cut(m, left, tail)
                m.d.sync += self.o.valid.eq(1)
                m.next = "OFFER"
            with m.State("OFFER"), m.If(self.o.ready):
                m.d.sync += [self.o.valid.eq(0), left.eq(left - chunk.puts - 1)]
                self._advance(m)
                m.next = "CUT"
                with m.If(chunk.end | chunk.last | self.stop):
                    m.next = "LINE"
        return m

    def _load(self, m: Module, left: Signal, tail: Signal) -> None:
        chunk, line = self.o.p, self.i.p
        same = [
            *("asid", "src_physical", "dst_physical", "tag", "end", "start", "src", "dst"),
            *("final", "rotate", "lead", "remap", "sourceless"),
        ]
        m.d.sync += [chunk[name].eq(line[name]) for name in same]
        m.d.sync += [left.eq(line.beats), tail.eq(line.tail), chunk.first.eq(1)]

    def _cut(self, m: Module, left: Signal, tail: Signal) -> None:
        """Computes the beats up to the next boundary."""
        chunk = self.o.p
        low = self.config.offset_bits
        bits = (BURST_BEATS - 1).bit_length()
        room = Signal(bits)
        last = Signal()
        m.d.comb += [
            room.eq(~chunk.dst[low : low + bits]),
            last.eq((left[bits:] == 0) & (left[:bits] <= room)),
        ]
        whole = room + 1 + chunk.lead
        rest = left[:bits] + 1 + chunk.lead - tail
        m.d.sync += [
            chunk.last.eq(last),
            chunk.puts.eq(Mux(last, left[:bits], room)),
            chunk.takes.eq(Mux(last, rest, whole)),
            chunk.tail.eq(last & tail),
        ]

    def _advance(self, m: Module) -> None:
        """The next chunk of a line starts at a boundary and continues after the last source
        beat."""
        chunk = self.o.p
        low = self.config.offset_bits
        boundary = low + (BURST_BEATS - 1).bit_length()
        m.d.sync += [
            chunk.dst[:boundary].eq(0),
            chunk.dst[boundary:].eq(chunk.dst[boundary:] + 1),
            chunk.src[:low].eq(0),
            chunk.src[low:].eq(chunk.src[low:] + chunk.takes),
            chunk.start.eq(0),
            chunk.first.eq(0),
            chunk.lead.eq(0),
        ]
