"""Control of the realigner."""

from amaranth import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.copy import records
from signalbox.hw.copy.component_map import ComponentMap, stored_settings
from signalbox.hw.copy.records import TAG_BITS
from signalbox.hw.records.memory import MemoryStatus, read_beat

__all__ = ["RealignSteps", "realign_step"]


def realign_step(config: Config) -> data.StructLayout:
    """One step of the realigner: `take` a source beat, `put` a destination beat, or both.

    `mask`: bytes of `data` that may be written. `first`, `last`: the destination beat is the first
    or last of its line. `close`: it completes a chunk. `poison`: a read of this copy has failed, so
    nothing more is written. `failed`: the first failed read is in this chunk. `head`, `final`,
    `rotate`: as in `segment`.
    """
    return data.StructLayout({
        "data": config.data_width,
        "mask": config.beat_bytes,
        "take": 1,
        "put": 1,
        "first": 1,
        "last": 1,
        "close": 1,
        "poison": 1,
        "failed": 1,
        "head": config.offset_bits,
        "final": config.offset_bits,
        "rotate": config.offset_bits,
    })


class RealignSteps(wiring.Component):
    """Matches read beats with their segments, one step per cycle (COPY-12).

    A burst that ends early, for instance after a fault, is padded to its planned length, so that
    later stages can rely on that length.

    Beats of a remapped line pass `ComponentMap` or, without a source, are made there, one per
    cycle. The first segment of a remapped copy is accepted only after the settings of the copy are
    loaded, at least 2 cycles after the end of the previous segment.

    Members
    -------
    segment : in, stream of `segment`: planned reads, in order.
    beat : in, stream of `read_beat` from memory. Stalls for one cycle where the last destination
        beat of a line needs no further source beat.
    settings : in, strobe: stores the settings of a copy, for `ComponentMap`; not while `busy`.
    busy : out, settings are being expanded, for 17 cycles.
    o : out, the `realign_step`, 1 cycle later; no back-pressure.
    taken : out, strobe, with `o`: a requested beat has arrived, or will not.
    failure : out, stream of `failure`, always ready: the first failed read of a copy, in the same
        cycle as its step.
    failure_tag : out, `TAG_BITS` bits, with `failure`: tag of that copy.
    """

    def __init__(self, config: Config) -> None:
        super().__init__({
            "segment": In(stream.Signature(records.segment(config))),
            "beat": In(stream.Signature(read_beat(config))),
            "settings": In(stored_settings()),
            "busy": Out(1),
            "o": Out(realign_step(config)),
            "taken": Out(1),
            "failure": Out(stream.Signature(records.failure(), always_ready=True)),
            "failure_tag": Out(TAG_BITS),
        })
        self.config = config

    def elaborate(self, platform) -> Module:
        m = Module()
        self.part = Signal(records.segment(self.config))
        self.active = Signal()
        self.fill = Signal()
        """The burst ended early; its remaining beats are padding."""
        self.taking = Signal()
        self.only = Signal()
        self.ending = Signal()
        """`taking`: source beats are left. `only`: exactly one is left. `ending`: the next step is
        the segment's last."""
        self.reads = Signal()
        """The next source beat comes from memory."""
        self.fire = Signal()
        finish = Signal()
        unprepared = self._prepare(m)
        m.d.comb += [
            self.reads.eq(self.taking & ~self.fill & ~self.part.sourceless),
            self.beat.ready.eq(self.active & self.reads),
            self.fire.eq(self.active & (~self.reads | self.beat.valid)),
            finish.eq(self.fire & self.ending),
            self.segment.ready.eq((~self.active | finish) & ~unprepared),
        ]
        put = self._advance(m, finish)
        poison, failed = self._fail(m, finish)
        self._emit(m, finish, put, poison, failed)
        return m

    def _prepare(self, m: Module) -> Signal:
        """Loads the settings of a remapped copy before its first segment. Returns whether they are
        missing."""
        m.submodules.map = self.map = map_ = ComponentMap(self.config)
        segment, unprepared = self.segment, Signal()
        changes = segment.valid & segment.p.remap & segment.p.start
        m.d.comb += [
            map_.settings.eq(self.settings),
            self.busy.eq(map_.busy),
            map_.tag.eq(segment.p.tag),
            map_.load.eq(changes & ~self.active),
            unprepared.eq(changes & ~map_.loaded),
            map_.restart.eq(segment.valid & segment.ready & segment.p.first),
            map_.advance.eq(self.fire & self.taking),
            map_.beat.eq(self.beat.p.data),
            map_.remap.eq(self.part.remap),
            map_.sourceless.eq(self.part.sourceless),
        ]
        return unprepared

    def _advance(self, m: Module, finish: Signal) -> Signal:
        """Moves through the segment; returns whether this step puts a destination beat."""
        part = self.part
        put = Signal()
        head = Signal()
        m.d.comb += put.eq(~(self.taking & part.lead))
        with m.If(self.fire):
            m.d.sync += [part.lead.eq(0), part.takes.eq(part.takes - 1)]
            self._count(m, part.takes, 1, part.tail)
            with m.If(self.reads):
                m.d.sync += self.fill.eq(self.beat.p.last & ~self.only)
            with m.If(put):
                m.d.sync += head.eq(0)
        with m.If(self.fill & self.only):
            m.d.sync += self.fill.eq(0)
        with m.If(self.segment.ready):
            m.d.sync += [self.active.eq(self.segment.valid), part.eq(self.segment.payload)]
            self._count(m, self.segment.p.takes, 0, self.segment.p.tail)
            with m.If(self.segment.valid & self.segment.p.first):
                m.d.sync += head.eq(1)
        with m.Elif(finish):
            m.d.sync += self.active.eq(0)
        m.d.sync += [
            self.o.first.eq(head),
            self.o.last.eq(finish & part.last & part.close),
            self.o.close.eq(finish & part.close),
        ]
        return put

    def _count(self, m: Module, takes, more: int, tail) -> None:
        """Updates the flags for the number of source beats left, `takes` - `more`."""
        m.d.sync += [
            self.taking.eq(takes != more),
            self.only.eq(takes == more + 1),
            self.ending.eq(Mux(tail, takes == more, takes == more + 1)),
        ]

    def _fail(self, m: Module, finish: Signal) -> tuple[Signal, Signal]:
        """Remembers a failed read until its copy ends, and whether it happened in this chunk.
        Returns `poison` and `failed` of the step."""
        part = self.part
        bad = Signal()
        fresh = Signal()
        poisoned = Signal()
        chunk_failed = Signal()
        m.d.comb += [
            bad.eq(self.reads & (self.beat.p.status != MemoryStatus.OK)),
            fresh.eq(self.fire & bad & ~poisoned),
        ]
        with m.If(fresh):
            m.d.sync += [poisoned.eq(1), chunk_failed.eq(1)]
        with m.If(finish & part.close):
            m.d.sync += chunk_failed.eq(0)
        with m.If(self.segment.valid & self.segment.ready & self.segment.p.start):
            m.d.sync += poisoned.eq(0)
        m.d.sync += [
            self.failure.valid.eq(fresh),
            self.failure.p.status.eq(self.beat.p.status),
            self.failure.p.va.eq(part.va),
            self.failure_tag.eq(part.tag),
        ]
        return poisoned | bad, chunk_failed | fresh

    def _emit(self, m: Module, finish: Signal, put: Signal, poison, failed) -> None:
        part = self.part
        m.d.sync += [
            self.o.data.eq(self.map.data),
            self.o.mask.eq(self.map.mask),
            self.o.take.eq(self.fire & self.taking),
            self.o.put.eq(self.fire & put),
            self.o.poison.eq(poison),
            self.o.failed.eq(failed),
            self.o.head.eq(part.head),
            self.o.final.eq(part.final),
            self.o.rotate.eq(part.rotate),
            self.taken.eq(self.fire & self.taking & ~part.sourceless),
        ]
