"""The host: from rings to semaphore operations and copies (spec 10, spec 60)."""

from functools import reduce
from operator import or_

from amaranth.hdl import Cat, Module, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from signalbox.hw.config import Config
from signalbox.hw.front_end.host_port import ComputePort
from signalbox.hw.host.channel_registers import ChannelRegisters
from signalbox.hw.host.channel_settings import setting_ram
from signalbox.hw.host.copy_launcher import CopyLauncher
from signalbox.hw.host.fetch.arrivals import Arrivals
from signalbox.hw.host.fetch.backlog import OUTSTANDING
from signalbox.hw.host.fetch.fetch_unit import FetchUnit
from signalbox.hw.host.fetch.prefetch_buffer import PrefetchBuffer
from signalbox.hw.host.methods.execute import Execute
from signalbox.hw.host.methods.pipeline import MethodPipeline
from signalbox.hw.host.read_share import ReadShare
from signalbox.hw.host.scheduling.parking import Parking
from signalbox.hw.host.scheduling.retry_timers import RetryTimers
from signalbox.hw.host.scheduling.runlist import Runlist
from signalbox.hw.host.scheduling.scheduler import Scheduler
from signalbox.hw.host.userd_writeback import UserdWriteback
from signalbox.hw.host.waits.barrier import Barrier
from signalbox.hw.host.waits.compute_waits import ComputeWaits
from signalbox.hw.host.waits.mem_ops import MemOps
from signalbox.hw.host.waits.memory_semaphores import MemorySemaphores
from signalbox.hw.methods import SemaphoreExecute
from signalbox.hw.records.channel import present_time
from signalbox.hw.records.copy import CopyPort
from signalbox.hw.records.memory import ReadPort, WritePort
from signalbox.hw.records.register import RegisterPort
from signalbox.hw.records.runlist import RunlistControl
from signalbox.hw.records.semaphore import SemaphorePort, semaphore_update
from signalbox.hw.records.translation import MmuPort
from signalbox.hw.registers import Wait
from signalbox.hw.runlists import RunlistError

__all__ = ["Host"]

_NO_LIST = RunlistError.ROOM
"""Answer to a runlist in a machine without one."""


class Host(wiring.Component):
    """Channels, their scheduling and their methods.

    Members
    -------
    registers : in, channel block of the control port.
    doorbell : in, stream of rung channels.
    time : in, PTIMER in ns.
    period : in, cycles between lazy write-backs of GP_GET.
    counting : in, number of counting semaphores.
    runlist : in, registers of the runlist.
    read : out, memory port for rings, pushbuffers, GP_PUT and runlists.
    write : out, memory port for USERD.
    semaphore : out, on-chip operations for the semaphore unit.
    fence : out, operations in memory for the semaphore unit.
    zero : in, zero flags of the counting semaphores.
    update : in, updates of on-chip semaphores.
    engine : out, the copy engines.
    mmu : out, invalidations by methods.
    compute : out, the compute engine.
    ignored : out, strobe: a compute method without effect in this design was executed.
    error : out, per channel, halted (level).
    notify : out, per channel, strobe: NON_STALL_INTERRUPT, or the interrupt of a task or a report.
    copied : out, per channel, strobe: a copy with an interrupt has ended, neither failed nor
        stopped.

    Attributes
    ----------
    pipeline, execute, scheduler, launcher, parking, channels : units observed by counters and
        trace.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        self.pipeline = MethodPipeline(config)
        self.execute = Execute(config)
        self.scheduler = Scheduler(config)
        self.launcher = CopyLauncher(config)
        self.parking = Parking(config)
        self.channels = ChannelRegisters(config)
        channel = data.StructLayout({"channel": config.channel_bits})
        super().__init__({
            "registers": In(RegisterPort(12)),
            "doorbell": In(stream.Signature(channel)),
            "time": In(64),
            "period": In(32),
            "counting": In(range(config.counters + 1)),
            "runlist": In(RunlistControl()),
            "read": Out(ReadPort(config)),
            "write": Out(WritePort(config)),
            "semaphore": Out(SemaphorePort(config)),
            "fence": Out(SemaphorePort(config)),
            "zero": In(config.counters),
            "update": In(semaphore_update(config)),
            "engine": Out(CopyPort(config)).array(config.copy_engines),
            "mmu": Out(MmuPort(config)),
            "compute": Out(ComputePort(config)),
            "ignored": Out(1),
            "error": Out(config.channels),
            "notify": Out(config.channels),
            "copied": Out(config.channels),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        self._build(m)
        self._connect(m)
        self._settings(m)
        self._fetched(m)
        self._schedule(m)
        self._turns(m)
        self._engines(m)
        self._waits(m)
        self._registers(m)
        self._status(m)
        return m

    def _build(self, m: Module) -> None:
        """Units, and signals shared by several of them."""
        config = self._config
        m.submodules.channels = self.channels
        m.submodules.fetch = self._fetch = FetchUnit(config)
        m.submodules.prefetch = self._prefetch = PrefetchBuffer(config)
        m.submodules.arrivals = self._arrivals = Arrivals(config)
        m.submodules.writeback = self._writeback = UserdWriteback(config)
        m.submodules.pipeline = self.pipeline
        m.submodules.execute = self.execute
        m.submodules.scheduler = self.scheduler
        m.submodules.parking = self.parking
        m.submodules.launcher = self.launcher
        m.submodules.fences = self._fences = MemorySemaphores(config)
        m.submodules.barrier = self._barrier = Barrier(config)
        m.submodules.memops = self._memops = MemOps(config)
        m.submodules.computes = self._computes = ComputeWaits(config)
        m.submodules.timers = self._timers = RetryTimers(config)
        self._alive, self._drained, self._empty = (
            Signal(config.channels, name=name) for name in ("alive", "drained", "empty")
        )
        """Per channel: enabled and not halted; nothing is left to execute of what was fetched, or
        at all."""
        self._time = Signal(present_time, name="now")
        m.d.sync += self._time.cycles.eq(self._time.cycles + 1)
        m.d.comb += self._time.units.eq(self.time[10:42])

    def _connect(self, m: Module) -> None:
        """Ports between two units."""
        channels, execute, fetch = self.channels, self.execute, self._fetch
        connect(m, flipped(self.registers), channels.port)
        connect(m, flipped(self.doorbell), fetch.doorbell)
        connect(m, flipped(self.write), self._writeback.write)
        connect(m, flipped(self.semaphore), execute.semaphore)
        connect(m, flipped(self.fence), self._fences.port)
        connect(m, flipped(self.mmu), self._memops.mmu)
        connect(m, flipped(self.compute), self._computes.port)
        for outer, inner in zip(self.engine, self.launcher.engine, strict=True):
            connect(m, flipped(outer), inner)
        connect(m, channels.restart, fetch.restart)
        connect(m, channels.edit, self.pipeline.edit)
        connect(m, self.pipeline.service, execute.service)
        connect(m, execute.progress, self.pipeline.progress)
        connect(m, execute.slices, self.scheduler.client)
        connect(m, execute.copies, self.launcher.requests)
        connect(m, execute.acquires, self.parking.acquires)
        connect(m, execute.timer, self._timers.client)
        connect(m, execute.in_memory, self._fences.client)
        connect(m, execute.reference, self._writeback.reference)
        connect(m, execute.barrier, self._barrier.client)
        connect(m, execute.invalidation, self._memops.client)
        connect(m, execute.compute, self._computes.client)
        connect(
            m,
            self.launcher.status,
            execute.engines,
            self.parking.engines,
            self.scheduler.engines,
        )

    def _settings(self, m: Module) -> None:
        """Channel registers, and the start of a channel."""
        channels, fetch, memops = self.channels, self._fetch, self._memops
        for unit in (fetch, self._writeback, self.execute, self._computes):
            m.d.comb += unit.setting.eq(channels.setting)
        (slices,) = setting_ram(m, self._config, channels.setting, "SLICE")
        m.d.comb += [
            slices.addr.eq(self.pipeline.select),
            self.scheduler.slice.eq(slices.data),
            self._prefetch.clear.eq(fetch.cleared),
            self._arrivals.clear.eq(fetch.cleared),
            self._writeback.cleared.eq(fetch.cleared),
            self.parking.clear.eq(fetch.cleared),
            self._fences.clear.eq(fetch.cleared),
            # Cleared with the context, so never in a cycle with an executed method.
            memops.clear.valid.eq(self.pipeline.service.reset),
            memops.clear.channel.eq(self.pipeline.served),
            self._computes.clear.eq(memops.clear),
            self._writeback.enabled.eq(channels.enabled),
            fetch.enabled.eq(channels.enabled),
            self.launcher.enabled.eq(channels.enabled),
            self._computes.on.eq(channels.enabled),
            self._alive.eq(channels.enabled & ~channels.halted),
        ]

    def _fetched(self, m: Module) -> None:
        """From the ring to the pipeline, and the ring's progress."""
        fetch, prefetch, pipeline = self._fetch, self._prefetch, self.pipeline
        arrivals, writeback = self._arrivals, self._writeback
        m.d.comb += [
            prefetch.fill.eq(fetch.fill),
            prefetch.select.eq(pipeline.select),
            prefetch.serving.eq(pipeline.serving),
            prefetch.take.eq(pipeline.take),
            fetch.popped.valid.eq(pipeline.take),
            fetch.popped.channel.eq(pipeline.select),
            pipeline.head.eq(prefetch.head),
            pipeline.head_valid.eq(prefetch.head_valid),
            pipeline.occupied.eq(prefetch.occupied),
            pipeline.alive.eq(self._alive),
            arrivals.now.eq(fetch.now),
            arrivals.announce.eq(fetch.announce),
            arrivals.finish.eq(pipeline.finished),
            writeback.started.eq(pipeline.started),
            writeback.period.eq(self.period),
            fetch.drained.eq(self._drained),
            fetch.unwritten.eq(writeback.failed),
            writeback.empty.eq(self._empty),
        ]
        for number in range(self._config.channels):
            served = pipeline.serving & (pipeline.served == number)
            waits = self.parking.waits[number] != Wait.NONE
            idle = ~prefetch.occupied[number] & ~waits & ~served
            m.d.comb += [
                self._drained[number].eq(idle & self._alive[number]),
                self._empty[number].eq(idle & ~fetch.busy[number]),
            ]

    def _schedule(self, m: Module) -> None:
        """The served channel, and its successor."""
        scheduler, parking, pipeline = self.scheduler, self.parking, self.pipeline
        m.d.comb += [
            scheduler.ready.eq(parking.ready),
            scheduler.wanting.eq(parking.wanting),
            scheduler.stamps.eq(self._arrivals.stamps),
            scheduler.serving.eq(pipeline.serving),
            scheduler.served.eq(pipeline.served),
            scheduler.take.eq(pipeline.taken),
            scheduler.slice_valid.eq(pipeline.slice_now),
            scheduler.reserves.eq(self.execute.copies.reserve.valid),
            scheduler.launches.eq(self.execute.copies.launch.valid),
            pipeline.target.eq(scheduler.target),
            pipeline.target_valid.eq(scheduler.target_valid),
            pipeline.leave.eq(scheduler.leave),
            pipeline.stay.eq(scheduler.stay),
        ]

    def _turns(self, m: Module) -> None:
        """Channels that may be served, by the runlist."""
        if not self._config.runlists:
            refused = self.runlist.refused
            connect(m, flipped(self.read), self._fetch.read)
            m.d.comb += self.scheduler.eligible.eq(-1)
            m.d.sync += [refused.valid.eq(self.runlist.submit.valid), refused.error.eq(_NO_LIST)]
            return
        m.submodules.runlist = runlist = Runlist(self._config)
        m.submodules.reads = reads = ReadShare(self._config, OUTSTANDING + 1)
        pipeline, acquire = self.pipeline, self.execute.acquire
        method = data.View(SemaphoreExecute, pipeline.service.step.method.data)
        connect(m, flipped(self.runlist), runlist.control)
        connect(m, flipped(self.read), reads.port)
        connect(m, self._fetch.read, reads.clients[0])
        connect(m, runlist.read, reads.clients[1])
        m.d.comb += [
            runlist.ready.eq(self.parking.ready),
            runlist.working.eq(self._alive & ~self._empty),
            runlist.serving.eq(pipeline.serving),
            runlist.served.eq(pipeline.served),
            runlist.expire.eq(self.execute.slices.expire),
            runlist.executed.valid.eq(pipeline.method.valid),
            runlist.executed.channel.eq(pipeline.method.channel),
            runlist.clear.eq(self._fetch.cleared),
            runlist.holding.eq(self.parking.holding),
            runlist.polling.eq(self._waiting(Wait.RETRY, Wait.FENCE)),
            runlist.lacking.eq(self._waiting(Wait.ENGINE, Wait.ENGINE_ONLY, Wait.ENGINE_TIMED)),
            runlist.failed.valid.eq(acquire.valid & ~acquire.passed),
            runlist.failed.channel.eq(acquire.channel),
            # The bit is in the same place of both semaphore methods.
            runlist.failed.yields.eq(method.acquire_switch),
            runlist.all_idle.eq(self.execute.all_idle),
            self.scheduler.eligible.eq(runlist.eligible),
        ]

    def _waiting(self, *waits: Wait) -> Value:
        """Per channel, it has one of these waits."""
        return Cat(reduce(or_, [wait == one for one in waits]) for wait in self.parking.waits)

    def _engines(self, m: Module) -> None:
        """Copies, and the copies, tasks and semaphore changes for which others wait."""
        launcher, barrier, computes = self.launcher, self._barrier, self._computes
        changing, all_idle = self._fences.changing, Signal()
        # One cycle late: the channel that asks has had no outstanding operations since then.
        m.d.sync += all_idle.eq(launcher.all_idle & ~changing.any() & ~computes.tasks.any())
        m.d.comb += [
            launcher.release.eq(self.pipeline.release),
            # `empty` includes dwords still to be fetched: the rest of the group may be in flight.
            # A reservation ends with the channel's turn (HOST-7).
            launcher.working.eq(
                self._alive & ~self._empty & self.parking.holding & self.scheduler.eligible
            ),
            launcher.failed_taken.eq(self.channels.failed_taken),
            barrier.started.eq(launcher.started),
            barrier.finished.eq(launcher.finished),
            barrier.changing.eq(changing),
            barrier.tasks.eq(computes.before),
            computes.begins.eq(barrier.begins),
            computes.select.eq(self.pipeline.select),
            computes.stamps.eq(self._arrivals.stamps),
            computes.failed_taken.eq(self.channels.task_failed_taken),
            self.execute.all_idle.eq(all_idle),
            self.execute.tasks.eq(computes.tasks),
        ]

    def _waits(self, m: Module) -> None:
        """Waits of the channels that are not served."""
        execute, parking, pipeline = self.execute, self.parking, self.pipeline
        m.d.comb += [
            parking.alive.eq(self._alive),
            parking.occupied.eq(self._prefetch.occupied),
            parking.park.eq(pipeline.park),
            parking.unpark.eq(pipeline.unpark),
            parking.update.eq(self.update),
            parking.zero.eq(self.zero),
            parking.retry.eq(self._timers.expired),
            parking.fenced.eq(execute.in_memory.ended),
            parking.tasks.eq(self._computes.tasks),
            parking.over.eq(
                execute.barrier.over | execute.invalidation.over | execute.compute.over
            ),
            parking.referring.eq(self._writeback.referring),
            self._timers.time.eq(self._time),
            self._fences.served.eq(pipeline.served),
            self._memops.executed.eq(pipeline.method),
            execute.time.eq(self._time),
            execute.zero.eq(self.zero),
            execute.counting.eq(self.counting),
        ]

    def _registers(self, m: Module) -> None:
        """Events and errors for the channel registers."""
        channels, execute, launcher = self.channels, self.execute, self.launcher
        m.d.comb += [
            channels.halt.eq(execute.halt),
            channels.failed.eq(launcher.failed),
            channels.ended.eq(launcher.ended),
            channels.task_failed.eq(self._computes.failed),
            channels.task_ended.eq(self._computes.ended),
            channels.resume.eq(execute.resume),
            channels.bound.eq(execute.bound),
            channels.acquire.eq(execute.acquire),
            channels.executed.valid.eq(self.pipeline.method.valid),
            channels.executed.channel.eq(self.pipeline.method.channel),
            channels.referenced.eq(self._writeback.referenced),
            self.ignored.eq(execute.ignored),
            self.error.eq(channels.halted),
        ]
        ended = launcher.ended
        for number in range(self._config.channels):
            m.d.comb += self.notify[number].eq(
                (execute.notify.valid & (execute.notify.channel == number))
                | self._computes.notify[number]
            )
            m.d.sync += self.copied[number].eq(
                (ended.valid & (ended.channel == number) & channels.enabled[number])
                & (ended.interrupt & ~ended.failed)
            )

    def _status(self, m: Module) -> None:
        """State for the channel registers."""
        channels, pipeline, fetch = self.channels, self.pipeline, self._fetch
        status = channels.status
        m.d.comb += [
            status.floor_valid.eq(self.scheduler.floor_valid),
            status.floor.eq(self.scheduler.floor),
            status.serving.eq(pipeline.serving),
            status.served.eq(pipeline.served),
            status.busy.eq(fetch.busy | ~self._drained),
            status.waits.eq(self.parking.waits),
            status.copies.eq(self.launcher.counts),
            status.tasks.eq(self._computes.counts),
            fetch.peek.eq(channels.peek),
            self._writeback.peek.eq(channels.peek),
            channels.peek_put.eq(fetch.peek_put),
            channels.peek_get.eq(self._writeback.peek_get),
        ]
        asked = self.execute.progress.asked.replicate(self._config.channels)
        m.d.sync += status.active.eq(
            (self.launcher.status.copying | self._computes.tasks | self._computes.busy)
            | (self._fences.busy | ((1 << pipeline.served) & asked))
            | (fetch.reading | self._writeback.writing)
        )
