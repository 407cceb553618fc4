"""The host: from rings to semaphore operations and copies (spec 10, spec 60)."""

from amaranth.hdl import Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from signalbox.hw.config import Config
from signalbox.hw.front_end.host_port import ComputePort
from signalbox.hw.host.channel_registers import ChannelRegisters
from signalbox.hw.host.channel_settings import setting_ram
from signalbox.hw.host.channel_states import ChannelStates
from signalbox.hw.host.copy_launcher import CopyLauncher
from signalbox.hw.host.fetch.arrivals import Arrivals
from signalbox.hw.host.fetch.backlog import OUTSTANDING
from signalbox.hw.host.fetch.fetch_unit import FetchUnit
from signalbox.hw.host.fetch.prefetch_buffer import PrefetchBuffer
from signalbox.hw.host.methods.execute import Execute
from signalbox.hw.host.methods.pipeline import MethodPipeline
from signalbox.hw.host.outstanding import Outstanding
from signalbox.hw.host.ports import Turns
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
from signalbox.hw.records.channel import present_time
from signalbox.hw.records.copy import CopyPort
from signalbox.hw.records.memory import ReadPort, WritePort
from signalbox.hw.records.register import RegisterPort
from signalbox.hw.records.runlist import RunlistControl
from signalbox.hw.records.semaphore import OnChipStatus, SemaphorePort
from signalbox.hw.records.translation import MmuPort
from signalbox.hw.runlists import RunlistError

__all__ = ["Host"]

_NO_LIST = RunlistError.ROOM
"""Answer to a runlist in a machine without one."""


class Host(wiring.Component):
    """Channels, their scheduling and their methods.

    Members
    -------
    registers : in, register port of the channel block; word address `channel` × 64 + offset / 4.
    doorbell : in, stream of rung channels.
    time : in, 64 bits: PTIMER, in nanoseconds.
    period : in, 32 bits: cycles between lazy write-backs of GP_GET.
    runlist : in, registers of the runlist, see `RunlistControl`.
    read : out, memory port for rings, pushbuffers, GP_PUT and runlists.
    write : out, memory port for USERD.
    semaphore : out, on-chip operations for the semaphore unit.
    fence : out, operations in memory for the semaphore unit.
    on_chip : in, state of the on-chip semaphores.
    engine : out, the copy engines, see `CopyPort`.
    mmu : out, invalidations by methods.
    compute : out, the compute engine, see `ComputePort`.
    ignored : out, strobe: a compute method without effect in this design was executed.
    error : out, per channel, level: halted by an error.
    notify : out, strobe per channel: NON_STALL_INTERRUPT, or the interrupt of a task or a report.
    copied : out, strobe per channel: a copy with an interrupt has ended, neither failed nor
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
            "runlist": In(RunlistControl()),
            "read": Out(ReadPort(config)),
            "write": Out(WritePort(config)),
            "semaphore": Out(SemaphorePort(config)),
            "fence": Out(SemaphorePort(config)),
            "on_chip": In(OnChipStatus(config)),
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
        self._connect_outside(m)
        self._connect_channels(m)
        self._connect_fetch(m)
        self._connect_service(m)
        self._connect_methods(m)
        self._connect_waits(m)
        self._connect_runlist(m)
        self._connect_status(m)
        self._slices(m)
        self._time(m)
        self._interrupts(m)
        return m

    def _build(self, m: Module) -> None:
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
        m.submodules.states = self._states = ChannelStates(config)
        m.submodules.outstanding = self._outstanding = Outstanding(config)
        self._runlists = (Runlist(config),) if config.runlists else ()
        """The runlist, if there is one."""

    def _connect_outside(self, m: Module) -> None:
        """Ports of the host, except the runlist's."""
        connect(m, flipped(self.registers), self.channels.port)
        connect(m, flipped(self.doorbell), self._fetch.doorbell)
        connect(m, flipped(self.on_chip), self.execute.on_chip, self.parking.on_chip)
        connect(m, flipped(self.write), self._writeback.write)
        connect(m, flipped(self.semaphore), self.execute.semaphore)
        connect(m, flipped(self.fence), self._fences.port)
        connect(m, flipped(self.mmu), self._memops.mmu)
        connect(m, flipped(self.compute), self._computes.port)
        for outer, inner in zip(self.engine, self.launcher.engine, strict=True):
            connect(m, flipped(outer), inner)

    def _connect_channels(self, m: Module) -> None:
        """Channel registers, starts, and state of the channels."""
        channels, execute, pipeline = self.channels, self.execute, self.pipeline
        fetch, writeback, launcher = self._fetch, self._writeback, self.launcher
        units = (fetch, writeback, execute, self._computes, launcher, self._states)
        connect(m, channels.control, *(unit.control for unit in units))
        connect(m, channels.restart, fetch.restart)
        connect(m, channels.edit, pipeline.edit)
        connect(m, channels.put, fetch.put)
        connect(m, channels.get, writeback.get)
        connect(m, execute.reports, channels.reports)
        connect(m, launcher.reports, channels.copies)
        connect(m, self._computes.reports, channels.tasks)
        starting = (self._prefetch, self._arrivals, writeback, self.parking, self._fences)
        connect(m, fetch.start, *(unit.start for unit in (*starting, *self._runlists)))
        units = (pipeline, self.parking, fetch, writeback, launcher, channels.status)
        connect(m, self._states.state, *(unit.state for unit in (*units, *self._runlists)))

    def _connect_fetch(self, m: Module) -> None:
        """From the ring to the pipeline, and the ring's progress."""
        fetch, prefetch, arrivals = self._fetch, self._prefetch, self._arrivals
        connect(m, fetch.doorbells, arrivals.doorbells)
        connect(m, fetch.beats, prefetch.beats)
        connect(m, prefetch.fetched, self._states.fetched)
        connect(m, self.pipeline.head, prefetch.head)
        connect(m, self.pipeline.entries, arrivals.entries, self._writeback.entries)
        connect(m, arrivals.order, self.scheduler.arrivals, self._computes.arrivals)

    def _connect_service(self, m: Module) -> None:
        """The served channel, and its successor."""
        pipeline, scheduler, parking = self.pipeline, self.scheduler, self.parking
        connect(m, pipeline.choice, scheduler.choice)
        connect(m, pipeline.parking, parking.pipeline)
        choosing = (scheduler, self._states, self.channels.status, *self._runlists)
        serving = (self._prefetch, self._fences, self._computes, self._outstanding)
        connect(m, pipeline.served, *(unit.served for unit in (*choosing, *serving)))
        connect(m, parking.parked, *(unit.parked for unit in choosing))
        units = (self.channels, self.launcher, self._memops, self._computes, *self._runlists)
        connect(m, pipeline.methods, *(unit.methods for unit in units))

    def _connect_methods(self, m: Module) -> None:
        """Execution of methods, and the units that it uses."""
        execute = self.execute
        connect(m, self.pipeline.service, execute.service)
        connect(m, execute.progress, self.pipeline.progress)
        connect(m, execute.slices, self.scheduler.client)
        connect(m, execute.copies, self.launcher.requests)
        connect(m, execute.acquires, self.parking.acquires)
        connect(m, execute.waits, self.parking.methods)
        connect(m, execute.timer, self._timers.client)
        connect(m, execute.in_memory, self._fences.client)
        connect(m, execute.reference, self._writeback.reference)
        connect(m, execute.barrier, self._barrier.client)
        connect(m, execute.invalidation, self._memops.client)
        connect(m, execute.compute, self._computes.client)

    def _connect_waits(self, m: Module) -> None:
        """Outstanding operations, for which channels wait."""
        launcher, barrier, computes = self.launcher, self._barrier, self._computes
        outstanding, status = self._outstanding, self.channels.status
        users = (self.execute, self.parking, self.scheduler, outstanding)
        connect(m, launcher.status, *(unit.engines for unit in users))
        connect(m, launcher.outstanding, outstanding.copies, status.copies)
        connect(m, launcher.events, barrier.copies)
        connect(m, barrier.epochs, computes.epochs)
        users = (self.execute, self.parking, outstanding, status)
        connect(m, computes.outstanding, *(unit.tasks for unit in users))
        connect(m, self._fences.outstanding, barrier.semaphores, outstanding.semaphores)
        connect(m, self._fetch.outstanding, self._states.reads, outstanding.reads)
        users = (self._fetch, self.channels, outstanding)
        connect(m, self._writeback.writes, *(unit.userd for unit in users))

    def _connect_runlist(self, m: Module) -> None:
        """The runlist, which limits the channels that may be served; without one, all may."""
        execute, fetch, turns = self.execute, self._fetch, Turns(self._config).create()
        for runlist in self._runlists:
            turns = runlist.turns
            m.submodules.runlist = runlist
            m.submodules.reads = reads = ReadShare(self._config, OUTSTANDING + 1)
            connect(m, flipped(self.runlist), runlist.control)
            connect(m, flipped(self.read), reads.port)
            connect(m, fetch.read, reads.clients[0])
            connect(m, runlist.read, reads.clients[1])
            connect(m, execute.group, runlist.client)
            m.d.comb += self._timers.resting.eq(runlist.resting)
        connect(m, turns, self.scheduler.turns, self._states.turns)
        if not self._runlists:
            refused = self.runlist.refused
            connect(m, flipped(self.read), fetch.read)
            m.d.sync += [refused.valid.eq(self.runlist.submit.valid), refused.error.eq(_NO_LIST)]

    def _connect_status(self, m: Module) -> None:
        """State of all units, for channel registers and methods that wait for all."""
        status = self.channels.status
        users = (self.execute, status, *self._runlists)
        connect(m, self._outstanding.activity, *(unit.activity for unit in users))
        connect(m, self.scheduler.floor, status.floor)

    def _slices(self, m: Module) -> None:
        """Gives the scheduler SLICE of the channel taken. The RAM is outside the scheduler, so that
        its proof covers any slice."""
        (slices,) = setting_ram(m, self._config, self.channels.control.setting, "SLICE")
        m.d.comb += [
            slices.addr.eq(self.pipeline.served.select),
            self.scheduler.slice.eq(slices.data),
        ]

    def _time(self, m: Module) -> None:
        """Present time for acquires: `units` from `time`, `cycles` from a counter."""
        now = Signal(present_time)
        m.d.sync += now.cycles.eq(now.cycles + 1)
        m.d.comb += [
            now.units.eq(self.time[10:42]),
            self.execute.time.eq(now),
            self._timers.time.eq(now),
            self._writeback.period.eq(self.period),
        ]

    def _interrupts(self, m: Module) -> None:
        """Outputs of events, per channel; `notify` combines several units."""
        execute, notify = self.execute, self.execute.notify
        m.d.comb += [
            self.ignored.eq(execute.ignored),
            self.error.eq(self.channels.control.halted),
            self.copied.eq(self.launcher.copied),
        ]
        for number in range(self._config.channels):
            m.d.comb += self.notify[number].eq(
                (notify.valid & (notify.channel == number)) | self._computes.notify[number]
            )
