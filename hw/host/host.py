"""The host: from rings to semaphore operations and copies (spec 10, spec 60)."""

from amaranth.hdl import Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from signalbox.hw.config import Config
from signalbox.hw.front_end.host_port import ComputePort
from signalbox.hw.host.channel_registers import ChannelRegisters
from signalbox.hw.host.channel_settings import setting_ram
from signalbox.hw.host.copy_launcher import CopyLauncher
from signalbox.hw.host.fetch.arrivals import Arrivals
from signalbox.hw.host.fetch.fetch_unit import FetchUnit
from signalbox.hw.host.fetch.prefetch_buffer import PrefetchBuffer
from signalbox.hw.host.methods.execute import Execute
from signalbox.hw.host.methods.pipeline import MethodPipeline
from signalbox.hw.host.scheduling.parking import Parking
from signalbox.hw.host.scheduling.retry_timers import RetryTimers
from signalbox.hw.host.scheduling.scheduler import Scheduler
from signalbox.hw.host.userd_writeback import UserdWriteback
from signalbox.hw.host.waits.barrier import Barrier
from signalbox.hw.host.waits.compute_waits import ComputeWaits
from signalbox.hw.host.waits.mem_ops import MemOps
from signalbox.hw.host.waits.memory_semaphores import MemorySemaphores
from signalbox.hw.records.copy import CopyPort
from signalbox.hw.records.memory import ReadPort, WritePort
from signalbox.hw.records.register import RegisterPort
from signalbox.hw.records.semaphore import SemaphorePort, semaphore_update
from signalbox.hw.records.translation import MmuPort
from signalbox.hw.registers import Wait

__all__ = ["Host"]


class Host(wiring.Component):
    """Channels, their scheduling and their methods.

    Members
    -------
    registers : in, channel block of the control port.
    doorbell : in, stream of rung channels.
    time : in, PTIMER in ns.
    period : in, cycles between lazy write-backs of GP_GET.
    counting : in, number of counting semaphores.
    read : out, memory port for rings, pushbuffers and GP_PUT.
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
    pipeline, scheduler, launcher, parking, channels : units observed by counters and trace.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        self.pipeline = MethodPipeline(config, Execute(config))
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
        config = self._config
        m = Module()
        m.submodules.channels = channels = self.channels
        m.submodules.fetch = fetch = FetchUnit(config)
        m.submodules.prefetch = prefetch = PrefetchBuffer(config)
        m.submodules.arrivals = arrivals = Arrivals(config)
        m.submodules.writeback = writeback = UserdWriteback(config)
        m.submodules.pipeline = pipeline = self.pipeline
        m.submodules.scheduler = scheduler = self.scheduler
        m.submodules.parking = parking = self.parking
        m.submodules.launcher = launcher = self.launcher
        m.submodules.fences = fences = MemorySemaphores(config)
        m.submodules.barrier = barrier = Barrier(config)
        m.submodules.memops = memops = MemOps(config)
        m.submodules.computes = computes = ComputeWaits(config)
        m.submodules.timers = timers = RetryTimers(config)
        execute = pipeline.execute
        alive, drained, empty, over = (Signal(config.channels) for _ in range(4))
        cycles, all_idle = Signal(32), Signal()
        m.d.sync += [
            cycles.eq(cycles + 1),
            # One cycle late: the channel that asks has had no outstanding operations since then.
            all_idle.eq(launcher.all_idle & ~fences.changing.any() & ~computes.tasks.any()),
        ]

        connect(m, flipped(self.registers), channels.port)
        connect(m, flipped(self.doorbell), fetch.doorbell)
        connect(m, flipped(self.read), fetch.read)
        connect(m, flipped(self.write), writeback.write)
        connect(m, flipped(self.semaphore), execute.semaphore)
        connect(m, flipped(self.fence), fences.port)
        connect(m, flipped(self.mmu), memops.mmu)
        connect(m, flipped(self.compute), computes.port)
        for outer, inner in zip(self.engine, launcher.engine, strict=True):
            connect(m, flipped(outer), inner)
        connect(m, channels.restart, fetch.restart)
        connect(m, channels.edit, pipeline.edit)

        # Settings, and the start of a channel.
        for unit in (fetch, writeback, execute):
            m.d.comb += unit.setting.eq(channels.setting)
        (slices,) = setting_ram(m, config, channels.setting, "SLICE")
        m.d.comb += [
            slices.addr.eq(pipeline.select),
            prefetch.clear.eq(fetch.cleared),
            arrivals.clear.eq(fetch.cleared),
            writeback.cleared.eq(fetch.cleared),
            writeback.enabled.eq(channels.enabled),
            writeback.reference.eq(execute.reference),
            fetch.enabled.eq(channels.enabled),
            alive.eq(channels.enabled & ~channels.halted),
        ]
        # From the ring to the pipeline.
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
            pipeline.alive.eq(alive),
            arrivals.now.eq(fetch.now),
            arrivals.announce.eq(fetch.announce),
            arrivals.finish.eq(pipeline.finished),
            writeback.started.eq(pipeline.started),
            writeback.period.eq(self.period),
            fetch.drained.eq(drained),
            fetch.unwritten.eq(writeback.failed),
            writeback.empty.eq(empty),
        ]
        for number in range(config.channels):
            served = pipeline.serving & (pipeline.served == number)
            idle = ~prefetch.occupied[number] & (parking.waits[number] == Wait.NONE) & ~served
            m.d.comb += [
                drained[number].eq(idle & alive[number]),
                empty[number].eq(idle & ~fetch.busy[number]),
            ]
        # The served channel, and waits of the others.
        m.d.comb += [
            scheduler.ready.eq(parking.ready),
            scheduler.copying.eq(launcher.copying),
            scheduler.keeping.eq(launcher.keeping),
            scheduler.wanting.eq(parking.wanting),
            scheduler.stamps.eq(arrivals.stamps),
            scheduler.serving.eq(pipeline.serving),
            scheduler.served.eq(pipeline.served),
            scheduler.take.eq(pipeline.taken),
            scheduler.slice_valid.eq(pipeline.slice_now),
            scheduler.slice.eq(slices.data),
            scheduler.give_up.eq(execute.give_up),
            scheduler.reserves.eq(execute.reserve.valid),
            scheduler.launches.eq(execute.launch.valid),
            pipeline.target.eq(scheduler.target),
            pipeline.target_valid.eq(scheduler.target_valid),
            pipeline.leave.eq(scheduler.leave),
            pipeline.stay.eq(scheduler.stay),
            parking.alive.eq(alive),
            parking.occupied.eq(prefetch.occupied),
            parking.park.eq(pipeline.park),
            parking.unpark.eq(pipeline.unpark),
            parking.watch.eq(execute.watch),
            parking.update.eq(self.update),
            parking.guard.eq(execute.guard),
            parking.unguard.eq(execute.unguard),
            parking.clear.eq(fetch.cleared),
            parking.zero.eq(self.zero),
            parking.copying.eq(launcher.copying),
            parking.engine.eq(launcher.able),
            parking.queue.eq(launcher.queue),
            parking.retry.eq(timers.expired),
            parking.fenced.eq(fences.ended),
            parking.tasks.eq(computes.tasks),
            over.eq(barrier.over | memops.over | computes.over),
            parking.over.eq(over),
            parking.referring.eq(writeback.referring),
            timers.arm.eq(execute.arm),
            timers.disarm.eq(execute.disarm),
            timers.cycles.eq(cycles),
            timers.units.eq(self.time[10:42]),
        ]
        m.d.comb += [
            execute.copying.eq(launcher.copying),
            execute.able.eq(launcher.able),
            execute.queue.eq(launcher.queue),
            execute.held.eq(parking.held),
            execute.ended.eq(fences.ended),
            execute.result.eq(fences.result),
            execute.spent.eq(scheduler.spent),
            execute.candidate.eq(scheduler.candidate),
            execute.tasks.eq(computes.tasks),
            execute.over.eq(over),
            execute.uncomputed.eq(computes.refused),
            execute.why.eq(computes.why),
            execute.refused.eq(memops.refused),
            execute.unwritten.eq(writeback.unwritten),
            execute.all_idle.eq(all_idle),
            execute.zero.eq(self.zero),
            execute.counting.eq(self.counting),
            execute.cycles.eq(cycles),
            execute.units.eq(self.time[10:42]),
            fences.begin.eq(execute.begin),
            fences.collect.eq(execute.collect),
            fences.clear.eq(fetch.cleared),
            fences.peek.eq(pipeline.served),
            barrier.ask.eq(execute.await_all),
            barrier.drop.eq(execute.drop),
            barrier.started.eq(launcher.started),
            barrier.finished.eq(launcher.finished),
            barrier.changing.eq(fences.changing),
            barrier.tasks.eq(computes.before),
            memops.executed.eq(pipeline.method),
            # Cleared with the context, so never in a cycle with an executed method.
            memops.clear.valid.eq(execute.reset),
            memops.clear.channel.eq(pipeline.served),
            memops.ask.eq(execute.invalidate),
            memops.drop.eq(execute.drop),
            computes.on.eq(channels.enabled),
            computes.setting.eq(execute.set_compute),
            computes.clear.eq(memops.clear),
            computes.ask.eq(execute.compute),
            computes.drop.eq(execute.drop),
            computes.select.eq(pipeline.select),
            computes.begins.eq(barrier.begins),
            computes.failed_taken.eq(channels.task_failed_taken),
            self.ignored.eq(execute.ignored),
            launcher.launch.eq(execute.launch),
            launcher.reserve.eq(execute.reserve),
            launcher.release.eq(pipeline.release),
            launcher.enabled.eq(channels.enabled),
            # `empty` includes dwords still to be fetched: the rest of the group may be in flight.
            launcher.working.eq(alive & ~empty & parking.holding),
            launcher.failed_taken.eq(channels.failed_taken),
        ]
        # Registers and errors.
        m.d.comb += [
            channels.halt.eq(execute.halt),
            channels.failed.eq(launcher.failed),
            channels.ended.eq(launcher.ended),
            channels.task_failed.eq(computes.failed),
            channels.task_ended.eq(computes.ended),
            channels.resume.eq(execute.resume),
            channels.acquire.eq(execute.acquire),
            channels.executed.valid.eq(pipeline.method.valid),
            channels.executed.channel.eq(pipeline.method.channel),
            channels.referenced.eq(writeback.referenced),
            channels.floor_valid.eq(scheduler.floor_valid),
            channels.floor.eq(scheduler.floor),
            channels.serving.eq(pipeline.serving),
            channels.served.eq(pipeline.served),
            channels.busy.eq(fetch.busy | ~drained),
            channels.waits.eq(parking.waits),
            channels.counts.eq(launcher.counts),
            channels.tasks.eq(computes.counts),
            fetch.peek.eq(channels.peek),
            writeback.peek.eq(channels.peek),
            channels.peek_put.eq(fetch.peek_put),
            channels.peek_get.eq(writeback.peek_get),
            self.error.eq(channels.halted),
        ]
        asking = (1 << pipeline.served) & execute.asked.replicate(config.channels)
        m.d.sync += channels.active.eq(
            (launcher.copying | computes.tasks | computes.busy)
            | (fences.busy | asking | fetch.reading | writeback.writing)
        )
        ended = launcher.ended
        for number in range(config.channels):
            m.d.comb += self.notify[number].eq(
                (execute.notify.valid & (execute.notify.channel == number))
                | computes.notify[number]
            )
            m.d.sync += self.copied[number].eq(
                (ended.valid & (ended.channel == number) & channels.enabled[number])
                & (ended.interrupt & ~ended.failed)
            )
        return m
