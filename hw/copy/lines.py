"""Splits a copy command into lines."""

from amaranth import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.copy import records
from signalbox.hw.copy.records import TAG_BITS
from signalbox.hw.records.copy import copy_command

__all__ = ["Lines"]


class Lines(wiring.Component):
    """Issues the lines of each copy, then an `end` (HOST-8).

    One line per 2 cycles. After `stop` at most one more line precedes the end.

    Members
    -------
    command : copies; the next is accepted once the previous one has been issued completely.
    tag : tag of the next copy.
    stop : level, the current copy has failed; the rest of it is dropped.
    o : lines and ends of copies.
    current : tag of the current copy.
    copy : command of the current copy; `src`, `dst` and `line_count` are those of the next line.
    """

    def __init__(self, config: Config) -> None:
        super().__init__({
            "command": In(stream.Signature(copy_command(config))),
            "tag": In(TAG_BITS),
            "stop": In(1),
            "o": Out(stream.Signature(records.line(config))),
            "current": Out(TAG_BITS),
            "copy": Out(copy_command(config)),
        })
        self.config = config

    def elaborate(self, platform) -> Module:
        m = Module()
        self.extent = Signal(32)
        """`line_length` - 1."""
        start = Signal()
        no_more = Signal()
        """The last line has been issued."""
        done = Signal()
        self._measure(m)
        with m.FSM() as fsm:
            m.d.comb += self.command.ready.eq(fsm.ongoing("ACCEPT"))
            with m.State("ACCEPT"):
                with m.If(self.command.valid):
                    m.d.sync += [
                        self.copy.eq(self.command.payload),
                        self.extent.eq(self.command.p.line_length - 1),
                        self.current.eq(self.tag),
                        start.eq(1),
                        no_more.eq(~self.command.p.transfer),
                    ]
                    m.next = "MAKE"
            with m.State("MAKE"):
                self._make(m, start, no_more | self.stop)
                self._advance(m)
                m.d.sync += [self.o.valid.eq(1), start.eq(0), done.eq(no_more | self.stop)]
                with m.If(self.copy.line_count == 1):
                    m.d.sync += no_more.eq(1)
                m.next = "OFFER"
            with m.State("OFFER"), m.If(self.o.ready):
                m.d.sync += self.o.valid.eq(0)
                m.next = "MAKE"
                with m.If(done):
                    m.next = "ACCEPT"
        return m

    def _measure(self, m: Module) -> None:
        """Computes the line's destination beats, and the alignment of its ends in source beats."""
        low = self.config.offset_bits
        extent = self.extent
        source, target = self.copy.src[:low], self.copy.dst[:low]
        source_carry = (source + extent[:low])[low]
        target_carry = (target + extent[:low])[low]
        self.reach = Signal(33)
        """Index of the last byte, relative to the first destination beat."""
        self.lead = Signal()
        self.tail = Signal()
        self.rotate = Signal(low)
        m.d.comb += [
            self.reach.eq(extent + target),
            self.rotate.eq(source - target),
            self.lead.eq(source > target),
            # Steps are lead + destination beats = source beats + tail, and tail is one bit.
            self.tail.eq(self.lead ^ target_carry ^ source_carry),
        ]

    def _make(self, m: Module, start: Signal, end) -> None:
        low = self.config.offset_bits
        copy, line = self.copy, self.o.p
        m.d.sync += [
            line.asid.eq(copy.asid),
            line.src_physical.eq(copy.src_physical),
            line.dst_physical.eq(copy.dst_physical),
            line.tag.eq(self.current),
            line.end.eq(end),
            line.start.eq(start),
            line.src.eq(copy.src),
            line.dst.eq(copy.dst),
            line.beats.eq(self.reach[low:]),
            line.final.eq(self.reach[:low]),
            line.rotate.eq(self.rotate),
            line.lead.eq(self.lead),
            line.tail.eq(self.tail),
        ]

    def _advance(self, m: Module) -> None:
        m.d.sync += [
            self.copy.src.eq(self.copy.src + self.copy.pitch_in),
            self.copy.dst.eq(self.copy.dst + self.copy.pitch_out),
            self.copy.line_count.eq(self.copy.line_count - 1),
        ]
