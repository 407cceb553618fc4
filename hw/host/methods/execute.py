"""Execution of methods: one per cycle unless it has to wait (HOST-3, HOST-4, HOST-8).

Methods that only set state take effect at once, even while an earlier copy of the channel runs. All
others, including refused ones, wait for the channel's own copies (COPY-1, COPY-4), so errors of
those copies are reported first. Methods that ask for idle, and copies, also wait for the channel's
tasks.
"""

from amaranth.hdl import Module, Mux
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from signalbox.hw.config import Config
from signalbox.hw.host.channel_settings import ChannelControl
from signalbox.hw.host.copy_launcher import CopyRequests, EngineStatus
from signalbox.hw.host.methods.channel_rights import ChannelRights
from signalbox.hw.host.methods.control_methods import ControlMethods
from signalbox.hw.host.methods.launch_dma import LaunchDma
from signalbox.hw.host.methods.semaphore_methods import SemaphoreMethods
from signalbox.hw.host.methods.served_channel import ServedChannel
from signalbox.hw.host.methods.service import MethodReports, Progress, Service
from signalbox.hw.host.methods.state_methods import StateMethods
from signalbox.hw.host.ports import Activity
from signalbox.hw.host.scheduling.parking import AcquirePort, MethodWaits
from signalbox.hw.host.scheduling.retry_timers import TimerPort
from signalbox.hw.host.scheduling.runlist import GroupPort
from signalbox.hw.host.scheduling.scheduler import SlicePort
from signalbox.hw.host.userd_writeback import ReferencePort
from signalbox.hw.host.waits.barrier import BarrierPort
from signalbox.hw.host.waits.compute_waits import ComputeMethodPort, OutstandingTasks
from signalbox.hw.host.waits.mem_ops import InvalidationPort
from signalbox.hw.host.waits.memory_semaphores import MemorySemaphorePort
from signalbox.hw.methods import SemaphoreExecute
from signalbox.hw.records.channel import channel_event, present_time
from signalbox.hw.records.semaphore import OnChipStatus, SemaphorePort

__all__ = ["Execute"]


class Execute(wiring.Component):
    """Executes the held method of the served channel; its parts own the state set by methods.

    Outputs are combinational from registers, in the cycle of the method. An operation on an on-chip
    semaphore takes several cycles, and a control method two; `progress.busy` is 1 meanwhile.

    Members
    -------
    service : in, a `Service`: the served channel.
    progress : out, a `Progress`: outcome of its method.
    control : in, a `ChannelControl`: writes of channel registers (`setting`).
    time : in, a `present_time`.
    on_chip : in, an `OnChipStatus`: `zero` flags and number of the counting semaphores.
    engines : in, an `EngineStatus`: copy engines, as each channel finds them.
    tasks : in, an `OutstandingTasks`: channels that have outstanding tasks.
    activity : in, an `Activity`: whether nothing is outstanding (`all_idle`).
    slices : out, a `SlicePort`: the served channel's slice, for the scheduler.
    copies : out, a `CopyRequests`: copies and reservations, for the copy launcher.
    acquires : out, an `AcquirePort`: waits for on-chip semaphores.
    timer : out, a `TimerPort`: time-outs and retries.
    semaphore : out, a `SemaphorePort`: the semaphore unit, for on-chip operations.
    in_memory : out, a `MemorySemaphorePort`: semaphores in memory.
    reference : out, a `ReferencePort`: write-back of REF.
    barrier : out, a `BarrierPort`: waits of WFI with scope ALL.
    invalidation : out, an `InvalidationPort`: waits of MEM_OP.
    compute : out, a `ComputeMethodPort`: waits of compute methods.
    waits : out, a `MethodWaits`: waits that methods have begun, for parking.
    group : out, a `GroupPort`: time-slice group of the channel, for the runlist.
    reports : out, a `MethodReports`: methods that concern the channel registers.
    notify : out, a `channel_event`: NON_STALL_INTERRUPT of `channel`.
    ignored : out, 1 bit, strobe: a compute method without effect in this design is executed.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        super().__init__({
            "service": In(Service(config)),
            "progress": Out(Progress()),
            "control": In(ChannelControl(config)),
            "time": In(present_time),
            "on_chip": In(OnChipStatus(config)),
            "engines": In(EngineStatus(config)),
            "tasks": In(OutstandingTasks(config)),
            "activity": In(Activity(config)),
            "slices": Out(SlicePort(config)),
            "copies": Out(CopyRequests(config)),
            "acquires": Out(AcquirePort(config)),
            "timer": Out(TimerPort(config)),
            "semaphore": Out(SemaphorePort(config)),
            "in_memory": Out(MemorySemaphorePort(config)),
            "reference": Out(ReferencePort(config)),
            "barrier": Out(BarrierPort(config)),
            "invalidation": Out(InvalidationPort(config)),
            "compute": Out(ComputeMethodPort(config)),
            "waits": Out(MethodWaits(config)),
            "group": Out(GroupPort(config)),
            "reports": Out(MethodReports(config)),
            "notify": Out(channel_event(config)),
            "ignored": Out(1),
        })
        self._settings = StateMethods(config)
        self._semaphores = SemaphoreMethods(config)
        self._launch = LaunchDma(config)
        self._controls = ControlMethods(config)
        self._status, self._rights = ServedChannel(config), ChannelRights(config)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.settings = self._settings
        m.submodules.semaphores = semaphores = self._semaphores
        m.submodules.launch = launch = self._launch
        m.submodules.control = control = self._controls
        m.submodules.status, m.submodules.rights = self._status, self._rights
        for part in (semaphores, launch, control):
            connect(m, flipped(self.service), part.service)
            m.d.comb += [
                part.settings.eq(self._settings.settings),
                part.rights.eq(self._rights.rights),
                part.known.eq(self._status.known),
            ]
        self._look(m)
        self._set(m)
        self._use_semaphores(m)
        self._use_engines(m)
        self._act(m)
        self._answer(m)
        return m

    def _look(self, m: Module) -> None:
        """State of the served channel in other units."""
        status, rights, service = self._status, self._rights, self.service
        connect(m, flipped(self.engines), status.engines)
        m.d.comb += [
            rights.setting.eq(self.control.setting),
            rights.select.eq(service.select),
            status.channel.eq(service.channel),
            status.tasks.eq(self.tasks.some),
            status.ended.eq(self.in_memory.ended),
            status.over.eq(self.waits.over),
            status.launched.eq(self.copies.launch.valid),
            status.collected.eq(self.in_memory.collect.valid),
            status.dropped.eq(self.barrier.drop.valid),
            self.waits.retry.eq(self.timer.expired),
            self.waits.fenced.eq(self.in_memory.ended),
            self.waits.over.eq(self.barrier.over | self.invalidation.over | self.compute.over),
            self.waits.referring.eq(self.reference.referring),
        ]

    def _set(self, m: Module) -> None:
        settings, service, kind = self._settings, self.service, self.service.step.kind
        m.d.comb += [
            settings.method.eq(service.step.method),
            settings.host.eq(service.run & kind.host),
            settings.copy.eq(service.run & kind.copy),
            settings.bind.eq(self._controls.bind),
            settings.load.eq(service.load),
            settings.loaded.eq(service.loaded.settings),
            settings.reset.eq(service.reset),
            settings.counting.eq(self.on_chip.counting),
            self.slices.give_up.eq(settings.yields),
            self.group.expire.eq(settings.expires),
        ]

    def _use_semaphores(self, m: Module) -> None:
        semaphores, service = self._semaphores, self.service
        method = data.View(SemaphoreExecute, service.step.method.data)
        decided = semaphores.decided
        connect(m, flipped(self.semaphore), semaphores.semaphore)
        connect(m, flipped(self.in_memory), semaphores.in_memory)
        connect(m, flipped(self.acquires), semaphores.acquires)
        m.d.comb += [
            semaphores.run.eq(service.run & service.step.kind.semaphore),
            semaphores.now.eq(self._status.now),
            semaphores.setting.eq(self.control.setting),
            semaphores.time.eq(self.time),
            semaphores.zero.eq(self.on_chip.zero),
            semaphores.candidate.eq(self.slices.candidate),
            semaphores.ends_group.eq(self.copies.launch.valid),
            self.timer.arm.eq(semaphores.arm),
            self.timer.disarm.valid.eq(semaphores.outcome.disarm | self._launch.outcome.disarm),
            self.timer.disarm.channel.eq(service.channel),
            self.copies.reserve.eq(semaphores.reserve),
            self.slices.reserves.eq(semaphores.reserve.valid),
            self.reports.acquire.eq(decided),
            self.group.failed.valid.eq(decided.valid & ~decided.passed),
            self.group.failed.channel.eq(decided.channel),
            # ACQUIRE_SWITCH_TSG is the same bit in both semaphore methods.
            self.group.failed.yields.eq(method.acquire_switch),
        ]

    def _use_engines(self, m: Module) -> None:
        launch = self._launch
        m.d.comb += [
            launch.run.eq(self.service.run & self.service.step.kind.launch),
            launch.now.eq(self._status.now),
            launch.held.eq(self.acquires.held),
            launch.spent.eq(self.slices.spent),
            self.copies.launch.eq(launch.launch),
            self.slices.launches.eq(launch.launch.valid),
        ]

    def _act(self, m: Module) -> None:
        control, kind = self._controls, self.service.step.kind
        for name in ("reference", "barrier", "invalidation", "compute"):
            connect(m, flipped(getattr(self, name)), getattr(control, name))
        m.d.comb += [
            control.run.eq(self.service.run & ~kind.as_value().any()),
            control.all_idle.eq(self.activity.all_idle),
            self.notify.eq(control.notify),
            self.reports.resume.eq(control.resume),
            self.reports.bound.eq(control.bound),
            self.ignored.eq(control.ignored),
        ]

    def _answer(self, m: Module) -> None:
        """Outcome of the method: wait and cause are selected by kind alone, for timing."""
        service, progress, halt = self.service, self.progress, self.reports.halt
        kind, settings = service.step.kind, self._settings.settings
        parts = (self._semaphores.outcome, self._launch.outcome, self._controls.outcome)
        semaphores, launch, control = parts
        m.d.comb += [
            progress.sets.eq(service.run & (kind.host | kind.copy)),
            progress.done.eq(progress.sets | semaphores.done | launch.done | control.done),
            progress.park.eq(semaphores.park | launch.park | control.park),
            progress.busy.eq(semaphores.busy | launch.busy | control.busy),
            progress.refuse.eq(semaphores.refuse | launch.refuse | control.refuse),
            progress.yields.eq(self._settings.yields),
            progress.keep.eq(self._semaphores.keep),
            progress.asked.eq(self._semaphores.asked),
            progress.state.settings.eq(settings),
            progress.state.acquire.eq(self._semaphores.state),
            progress.state.referred.eq(self._controls.referred),
            progress.state.inline.eq(self._controls.inline),
            halt.valid.eq(progress.refuse),
            halt.channel.eq(service.channel),
            halt.check.eq(self._controls.check),
            halt.va.eq(Mux(kind.semaphore, settings.semaphore.va, self._controls.va)),
            halt.method.eq(service.step.method),
        ]
        with m.If(kind.semaphore):
            m.d.comb += [progress.wait.eq(semaphores.wait), halt.cause.eq(semaphores.cause)]
        with m.Elif(kind.launch):
            m.d.comb += [progress.wait.eq(launch.wait), halt.cause.eq(launch.cause)]
        with m.Else():
            m.d.comb += [progress.wait.eq(control.wait), halt.cause.eq(control.cause)]
