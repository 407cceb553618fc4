"""Copy engine."""

from amaranth import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.copy import records
from signalbox.hw.copy.chunks import Chunks
from signalbox.hw.copy.flop_queue import FlopQueue
from signalbox.hw.copy.lines import Lines
from signalbox.hw.copy.read_requests import ReadRequests
from signalbox.hw.copy.realign import Realign
from signalbox.hw.copy.realign_steps import RealignSteps
from signalbox.hw.copy.records import COPIES, QUEUE
from signalbox.hw.copy.retire import Retire, completion
from signalbox.hw.copy.write_requests import WriteRequests, outstanding_write
from signalbox.hw.copy.write_responses import WriteResponses
from signalbox.hw.lib.stream import StreamRegister
from signalbox.hw.records.copy import CopyPort
from signalbox.hw.records.memory import ReadPort, WritePort
from signalbox.hw.records.semaphore import SemaphorePort

__all__ = ["CopyEngine"]


class CopyEngine(wiring.Component):
    """Executes copies, with reads ahead of writes (HOST-8, COPY-4, COPY-11, COPY-12).

    A command is accepted once the previous copy is split into chunks; their reads may still be
    outstanding. So queued copies keep memory busy: one beat per cycle in each direction, at up to
    200 cycles of read latency. The first read is requested 7 cycles after the command; at 128 bits,
    the first write 7 cycles after the last of its read beats. Lines shorter than a beat take 3
    cycles each. Read-ahead adapts to the latency of memory (`ReadWindow`).

    A remapped copy (HOST-16) is split into lines (`Lines`). Beats of a source may pass
    `ComponentMap` on their way to the realigner; beats without a source are made there. Fills, and
    swizzles of elements that divide the beat, move one beat per cycle. The first read of a remapped
    copy is requested 2 cycles later than that of others.

    A failed access ends its copy early. No further chunk is started. Chunks in flight drain, but
    data read after the failure are not written. The copy is reported as failed, without a release
    of its semaphore. Copies before and after it are not affected.

    Members
    -------
    port : in, the host, see `CopyPort`. `done` comes once all bytes are visible and the semaphore
        was released.
    read : out, memory client. Bursts of up to 17 beats; `va` of the first burst of a line is its
        first byte.
    write : out, memory client. Bursts of up to 16 beats; `va` of the first burst of a line is its
        first byte.
    semaphore : out, the semaphore unit.
    read_strobe : out, strobe: a read beat is transferred.
    write_strobe : out, strobe: a write beat is transferred.
    """

    def __init__(self, config: Config) -> None:
        super().__init__({
            "port": In(CopyPort(config)),
            "read": Out(ReadPort(config)),
            "write": Out(WritePort(config)),
            "semaphore": Out(SemaphorePort(config)),
            "read_strobe": Out(1),
            "write_strobe": Out(1),
        })
        self.config = config

    def elaborate(self, platform) -> Module:
        m = Module()
        config = self.config
        m.submodules.lines = self.lines = Lines(config)
        m.submodules.bursts = self.bursts = Chunks(config)
        m.submodules.fetch = self.fetch = ReadRequests(config)
        m.submodules.steps = self.steps = RealignSteps(config)
        m.submodules.realign = self.realign = Realign(config)
        m.submodules.drain = self.drain = WriteRequests(config)
        m.submodules.answers = self.answers = WriteResponses(config)
        m.submodules.retire = self.retire = Retire(config)
        self._accept(m)
        self._abort(m)
        self._read_side(m)
        self._write_side(m)
        self._retire(m)
        m.d.comb += [
            self.read_strobe.eq(self.read.beat.valid & self.read.beat.ready),
            self.write_strobe.eq(self.write.beat.valid & self.write.beat.ready),
        ]
        return m

    def _accept(self, m: Module) -> None:
        """Assigns a tag to a command and queues its completion."""
        m.submodules.endings = self.endings = FlopQueue(completion(self.config), COPIES)
        command, lines = self.port.command, self.lines
        room = Signal(init=1)
        unfinished = Signal(range(COPIES + 1))
        accepted = Signal()
        ended = Signal()
        free = Signal()
        m.d.comb += [
            free.eq(room & ~(command.p.remap & self.steps.busy)),
            lines.command.valid.eq(command.valid & free),
            lines.command.payload.eq(command.payload),
            command.ready.eq(lines.command.ready & free),
            accepted.eq(command.valid & command.ready),
            ended.eq(self.port.done.valid & self.port.done.ready),
            self.port.idle.eq(unfinished == 0),
        ]
        # `Lines` holds the whole command, so its other fields are taken from there.
        m.d.comb += [
            self.endings.i.p[name].eq(lines.copy[name]) for name in completion(self.config).members
        ]
        m.d.comb += [
            self.steps.settings.valid.eq(self.endings.i.valid & lines.copy.remap),
            self.steps.settings.tag.eq(lines.current),
            *(
                self.steps.settings.value[name].eq(lines.copy[name])
                for name in records.remap_settings().members
            ),
        ]
        m.d.sync += [
            self.endings.i.valid.eq(accepted),
            # One cycle late, in time: two commands are never accepted in successive cycles.
            room.eq(unfinished != COPIES),
            lines.tag.eq(lines.tag + accepted),
        ]
        with m.If(accepted & ~ended):
            m.d.sync += unfinished.eq(unfinished + 1)
        with m.If(ended & ~accepted):
            m.d.sync += unfinished.eq(unfinished - 1)

    def _abort(self, m: Module) -> None:
        """Stops splitting a copy when one of its accesses has failed, or on request of the host."""
        stop = Signal()
        current = self.lines.current
        by_read = self.steps.failure.valid & (self.steps.failure_tag == current)
        by_write = self.answers.failed & (self.answers.failed_tag == current)
        with m.If(self.lines.command.valid & self.lines.command.ready):
            m.d.sync += stop.eq(self.port.stop)
        with m.Elif(by_read | by_write | self.port.stop):
            m.d.sync += stop.eq(1)
        m.d.comb += [self.lines.stop.eq(stop), self.bursts.stop.eq(stop)]

    def _read_side(self, m: Module) -> None:
        m.submodules.segments = segments = FlopQueue(records.segment(self.config), QUEUE)
        wiring.connect(m, self.lines.o, self.bursts.i)
        wiring.connect(m, self.bursts.o, self.fetch.i)
        wiring.connect(m, self.fetch.request, wiring.flipped(self.read.request))
        wiring.connect(m, self.fetch.segment, segments.i)
        # Register slice, as the end of a segment is known late in its cycle.
        m.submodules.segment = segment = StreamRegister(records.segment(self.config))
        wiring.connect(m, segments.o, segment.i)
        wiring.connect(m, segment.o, self.steps.segment)
        wiring.connect(m, wiring.flipped(self.read.beat), self.steps.beat)
        m.d.comb += self.realign.i.eq(self.steps.o)

    def _write_side(self, m: Module) -> None:
        m.submodules.plans = plans = FlopQueue(records.pending_write(self.config), QUEUE)
        m.submodules.owed = owed_ = FlopQueue(outstanding_write(self.config), QUEUE)
        m.submodules.failures = failures = FlopQueue(records.failure(), COPIES)
        wiring.connect(m, self.fetch.write, plans.i)
        wiring.connect(m, plans.o, self.drain.plan)
        wiring.connect(m, self.drain.request, wiring.flipped(self.write.request))
        wiring.connect(m, self.drain.data, wiring.flipped(self.write.beat))
        wiring.connect(m, self.drain.owed, owed_.i)
        wiring.connect(m, owed_.o, self.answers.owed)
        wiring.connect(m, wiring.flipped(self.write.done), self.answers.done)
        wiring.connect(m, failures.o, self.answers.read_failure)
        m.d.comb += [
            self.drain.beat.eq(self.realign.o),
            self.drain.beat_valid.eq(self.realign.valid),
            self.fetch.freed.eq(self.drain.freed),
            self.fetch.taken.eq(self.steps.taken),
            failures.i.valid.eq(self.steps.failure.valid),
            failures.i.payload.eq(self.steps.failure.payload),
        ]

    def _retire(self, m: Module) -> None:
        m.submodules.outcomes = outcomes = FlopQueue(records.outcome(), COPIES)
        wiring.connect(m, self.answers.o, outcomes.i)
        wiring.connect(m, outcomes.o, self.retire.outcome)
        wiring.connect(m, self.endings.o, self.retire.ending)
        m.d.comb += self.retire.stop.eq(self.port.stop)
        wiring.connect(m, self.retire.semaphore, wiring.flipped(self.semaphore))
        wiring.connect(m, self.retire.done, wiring.flipped(self.port.done))
