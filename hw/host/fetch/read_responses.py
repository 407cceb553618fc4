"""Responses to the fetch unit's reads, in order: GP_PUT, ring entries, pushbuffer beats."""

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.errors import Cause
from signalbox.hw.host.records import INDEX_BITS, prefetch_beat
from signalbox.hw.methods import GpEntry
from signalbox.hw.records.channel import channel_event
from signalbox.hw.records.memory import MemoryStatus, read_beat

__all__ = ["Read", "ReadResponses", "read_order"]


class Read(enum.Enum, shape=2):
    """Purpose of an outstanding read. MARK reads nothing: it passes a cause, or the end of an
    entry, in order."""

    PUT = 0
    ENTRY = 1
    BURST = 2
    MARK = 3


def read_order(config: Config) -> data.StructLayout:
    """An outstanding read.

    `beats`: number of its beats, minus 1; `single`: it has one beat. `offset`: first wanted dword,
    in its first beat; `last`: last wanted dword, in its last beat. `first`, `end`, `get`, `cause`:
    as in `prefetch_beat`.
    """
    return data.StructLayout({
        "kind": Read,
        "channel": config.channel_bits,
        "beats": 3,
        "single": 1,
        "offset": 4,
        "last": 4,
        "first": 1,
        "end": 1,
        "get": INDEX_BITS,
        "cause": Cause,
    })


class ReadResponses(wiring.Component):
    """Routes each response to its destination.

    The first bad beat of a segment carries its cause; all later ones up to the segment's end are
    empty beats, so that exactly the reserved space is used.

    Members
    -------
    order : in, stream of outstanding reads, oldest first.
    clear : in, strobe: the channel starts; it has no outstanding reads.
    beat : in, stream of read data from memory.
    fill : out, strobe: a beat for the prefetch buffer.
    put : out, strobe, one cycle after its beat: GP_PUT of `channel`, or `cause` if it could not be
        read.
    entry : out, strobe, one cycle after its beat: a ring entry of `channel`, or `cause` if it could
        not be read.
    answered : out, strobe: a read of `channel` is complete.
    dropping : out, per channel, from a bad beat to the end of its segment.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        super().__init__({
            "order": In(stream.Signature(read_order(config))),
            "clear": In(channel_event(config)),
            "beat": In(stream.Signature(read_beat(config))),
            "fill": Out(channel_event(config, beat=prefetch_beat(config))),
            "put": Out(channel_event(config, value=32, cause=Cause)),
            "entry": Out(channel_event(config, entry=GpEntry, cause=Cause)),
            "answered": Out(channel_event(config)),
            "dropping": Out(config.channels),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        order, beat = self.order.payload, self.beat.payload
        done = Signal()
        cause = Signal(Cause)
        sent = Signal(3)
        failed = Signal()
        final = Signal()
        dropped = Signal()
        # Registered. `later`: the beat is not the first of its read. `last`: with `later`, it is
        # the last.
        later = Signal()
        last = Signal()

        with m.Switch(beat.status):
            with m.Case(MemoryStatus.BUS):
                m.d.comb += cause.eq(Cause.FETCH_BUS)
            with m.Case(MemoryStatus.FAULT):
                m.d.comb += cause.eq(Cause.FETCH_FAULT)
        m.d.comb += [
            final.eq(Mux(later, last, order.single)),
            dropped.eq(self._drop(m, order, done, cause)),
            self.order.ready.eq(done),
            self.answered.valid.eq(done),
            self.answered.channel.eq(order.channel),
        ]
        m.d.sync += [
            self.put.valid.eq(0),
            self.entry.valid.eq(0),
            self.put.channel.eq(order.channel),
            self.put.value.eq(beat.data.word_select(order.offset, 32)),
            self.put.cause.eq(cause),
            self.entry.channel.eq(order.channel),
            self.entry.entry.eq(beat.data.word_select(order.offset[1:], 64)),
            self.entry.cause.eq(cause),
        ]
        self._describe_fill(m, order, beat, cause, later, final, failed | dropped)
        with m.If(self.fill.valid):
            m.d.sync += [later.eq(~final), last.eq(sent + 1 == order.beats)]
        with m.If(self.order.valid):
            with m.Switch(order.kind):
                with m.Case(Read.PUT):
                    self._single(m, self.put, done)
                with m.Case(Read.ENTRY):
                    self._single(m, self.entry, done)
                with m.Case(Read.MARK):
                    m.d.comb += [self.fill.valid.eq(1), done.eq(1)]
                with m.Case(Read.BURST):
                    self._burst(m, beat, sent, final, failed, done)
        return m

    def _single(self, m: Module, event: data.View, done: Signal) -> None:
        m.d.comb += [self.beat.ready.eq(1), done.eq(self.beat.valid)]
        m.d.sync += event.valid.eq(self.beat.valid)

    def _burst(self, m: Module, beat, sent, final, failed, done) -> None:
        """`failed`: memory has ended the burst early; empty beats replace the missing ones."""
        moved = Signal()
        m.d.comb += [
            self.beat.ready.eq(~failed),
            moved.eq(self.beat.valid | failed),
            self.fill.valid.eq(moved),
            done.eq(moved & final),
        ]
        with m.If(moved):
            m.d.sync += sent.eq(Mux(final, 0, sent + 1))
        with m.If(self.beat.valid & beat.last & ~final & ~failed):
            m.d.sync += failed.eq(1)
        with m.Elif(done):
            m.d.sync += failed.eq(0)

    def _drop(self, m: Module, order, done: Signal, cause: Signal) -> Value:
        """The rest of a segment, from its first bad beat to its end. Returns whether the present
        beat belongs to it."""
        change = Signal(channel_event(self._config, drop=1))
        begins = (order.kind == Read.BURST) & self.beat.valid & (cause != Cause.NONE)
        ends = done & order.end
        m.d.sync += [
            change.valid.eq(self.order.valid & (begins | ends)),
            change.channel.eq(order.channel),
            change.drop.eq(~ends),
        ]
        # The flags change one cycle too late for the next beat, so the change is forwarded.
        changed = change.valid & (change.channel == order.channel)
        for channel, dropping in enumerate(self.dropping):
            with m.If(change.valid & (change.channel == channel)):
                m.d.sync += dropping.eq(change.drop)
            with m.If(self.clear.valid & (self.clear.channel == channel)):
                m.d.sync += dropping.eq(0)
        return Mux(changed, change.drop, self.dropping.bit_select(order.channel, 1))

    def _describe_fill(self, m: Module, order, beat, cause, later, final, bad) -> None:
        """`bad`: the beat only uses up reserved space."""
        filled = self.fill.beat
        mark = order.kind == Read.MARK
        m.d.comb += [
            self.fill.channel.eq(order.channel),
            filled.data.eq(beat.data),
            filled.low.eq(Mux(later, 0, order.offset)),
            filled.high.eq(Mux(final, order.last, self._config.beat_dwords - 1)),
            filled.empty.eq(mark | bad),
            filled.first.eq(order.first & ~later),
            filled.end.eq(order.end & (mark | final)),
            filled.get.eq(order.get),
        ]
        with m.If(mark):
            m.d.comb += filled.cause.eq(order.cause)
        with m.Elif(~bad):
            m.d.comb += filled.cause.eq(cause)
