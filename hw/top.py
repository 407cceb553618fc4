"""Top level of the machine, for export, simulation and FPGA."""

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from signalbox.hw.bus.axi4lite import Axi4Lite
from signalbox.hw.compute.engine import ComputeEngine
from signalbox.hw.config import Config
from signalbox.hw.control.port import ControlPort
from signalbox.hw.copy.engine import CopyEngine
from signalbox.hw.host.host import Host
from signalbox.hw.host.scheduling.wake_counter import WakeCounter
from signalbox.hw.lib.popcount import popcount
from signalbox.hw.mmu.memory_system import MemorySystem, requesters
from signalbox.hw.placement.controller import Step
from signalbox.hw.records.launch import LaunchAction
from signalbox.hw.records.semaphore import COMPUTE_CLIENTS, HOST_CLIENTS, SemaphoreError
from signalbox.hw.registers import ADDRESS_BITS
from signalbox.hw.semaphore.unit import SemaphoreUnit
from signalbox.hw.sm.port import CoreError, CoreFactory
from signalbox.hw.trace import TracePort

__all__ = ["Signalbox"]


class Signalbox(wiring.Component):
    """Host, semaphore unit, copy engines, compute engine, memory system and control port.

    Parameters
    ----------
    core : factory for the core of each SM, which replaces the built-in core; see `hw.sm.sm.Sm`.
        Raises `CoreError` on a machine without SMs.

    Members
    -------
    control : in, AXI4-Lite subordinate with the register map of `hw/registers.py`.
    axi : out, AXI4 manager: all accesses to memory. Read ids: 0 page tables, 1 rings, 2 semaphores,
        then copy engines, task unit, SMs. Write ids: 0 fault records, 1 USERD, 2 semaphores, then
        copy engines, task unit, SMs.
    irq : out, level: interrupt line, see INTR.
    trace : out, only with `config.trace`; see `TracePort`.

    Attributes
    ----------
    config : its configuration.
    """

    def __init__(self, config: Config, core: CoreFactory | None = None) -> None:
        if core is not None and not config.compute:
            raise CoreError(f"sms = {config.sms}: without SMs there is no place for a core")
        self.config = config
        self._core = core
        self._memory = MemorySystem(config, requesters(config))
        members = {
            "control": In(Axi4Lite(ADDRESS_BITS)),
            "axi": Out(self._memory.axi.signature),
            "irq": Out(1),
        }
        if config.trace:
            members["trace"] = Out(TracePort(config))
        super().__init__(members)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        m.submodules.control = control = ControlPort(config)
        m.submodules.host = host = Host(config)
        m.submodules.semaphores = semaphores = SemaphoreUnit(config)
        m.submodules.memory = memory = self._memory
        engines = []
        for number in range(config.copy_engines):
            engine = CopyEngine(config)
            m.submodules[f"copy_{number}"] = engine
            engines.append(engine)

        connect(m, flipped(self.control), control.axi)
        connect(m, flipped(self.axi), memory.axi)
        connect(m, control.channel, host.registers)
        connect(m, control.semaphore, semaphores.window)
        connect(m, control.doorbell, host.doorbell)
        connect(m, control.runlist, host.runlist)
        connect(m, host.semaphore, semaphores.client[0])
        connect(m, host.fence, semaphores.client[1])
        connect(m, control.maintain, memory.maintain[0])
        connect(m, host.mmu, memory.maintain[1])
        connect(m, control.faults, memory.faults)
        connect(m, host.read, memory.read[0])
        connect(m, host.write, memory.write[0])
        connect(m, semaphores.memory_read, memory.read[1])
        connect(m, semaphores.memory_write, memory.write[1])
        for number, engine in enumerate(engines):
            connect(m, host.engine[number], engine.port)
            connect(m, engine.semaphore, semaphores.client[HOST_CLIENTS + number])
            connect(m, engine.read, memory.read[2 + number])
            connect(m, engine.write, memory.write[2 + number])
        if config.compute:
            self._compute(m, control, host, semaphores)
        else:
            m.d.comb += control.compute.idle.eq(1)
        m.d.comb += [
            memory.time.eq(control.time),
            self.irq.eq(control.irq),
            host.time.eq(control.time),
            host.period.eq(control.writeback),
            host.on_chip.counting.eq(control.counting),
            host.on_chip.zero.eq(semaphores.zero),
            host.on_chip.update.eq(semaphores.update),
            semaphores.counting.eq(control.counting),
            semaphores.time.eq(control.time),
            control.error.eq(host.error),
            control.notify.eq(host.notify),
            control.copied.eq(host.copied),
        ]
        self._count(m, control.events, host, engines)
        if config.trace:
            self._trace(m, control, host, semaphores)
        return m

    def _compute(self, m: Module, control: ControlPort, host: Host, semaphores) -> None:
        """The compute engine, the last client of all shared units."""
        config, memory = self.config, self._memory
        m.submodules.compute = compute = ComputeEngine(config, self._core)
        connect(m, host.compute, compute.host)
        connect(m, control.compute, compute.control)
        connect(m, compute.mmu, memory.maintain[2])
        clients = semaphores.client[-COMPUTE_CLIENTS:]
        for port, client in zip(compute.semaphore, clients, strict=True):
            connect(m, port, client)
        first = 2 + config.copy_engines
        for name in ("read", "write"):
            ports = (getattr(compute, name), *getattr(compute, f"sm_{name}"))
            for port, client in zip(ports, getattr(memory, name)[first:], strict=True):
                connect(m, port, client)
        for setting, outer in zip(compute.settings, control.contexts, strict=True):
            m.d.comb += setting.eq(outer)
        self._count_compute(m, control.events, host, compute)
        if config.trace:
            self._trace_compute(m, compute)

    def _count_compute(self, m: Module, events, host: Host, compute: ComputeEngine) -> None:
        """Events of the compute engine for the performance counters."""
        over, refused = compute.host.over, compute.placement.refused
        starts = (sm.events.start.valid for sm in compute.sms)
        m.d.sync += [
            events.launches.eq(compute.host.began.valid),
            events.tasks.eq(over.valid & over.ready),
            events.blocks.eq(compute.placement.placed.valid),
            events.warp_faults.eq(compute.control.fault.valid),
            events.no_registers.eq(refused.valid & refused.registers),
            events.no_warps.eq(refused.valid & refused.warps),
            events.no_shared.eq(refused.valid & refused.shared),
            events.no_slots.eq(refused.valid & refused.slots),
            events.no_lower.eq(refused.valid & refused.lower),
            events.ignored.eq(host.ignored),
            events.context_starts.eq(compute.contexts.bound),
            events.context_switch.eq(compute.contexts.switches),
        ]
        if self.config.preemption:
            placed = compute.placement.placed
            m.d.sync += [
                events.blocks_saved.eq(compute.placement.saved),
                events.blocks_restored.eq(
                    placed.valid & placed.restores & (placed.step != Step.MOVED)
                ),
            ]
        m.d.comb += [
            events.warps.eq(popcount(m, starts, "warps")),
            events.sm_cycles.eq(popcount(m, compute.placement.occupied, "occupied")),
        ]

    def _count(self, m: Module, events, host: Host, engines) -> None:
        """Events for the performance counters."""
        acquire, mmu = host.execute.reports.acquire, self._memory.mmu
        # Registered, as these events come late in their cycle.
        m.d.sync += [
            events.methods.eq(host.pipeline.methods.executed.valid),
            events.acquire_fails.eq(acquire.valid & ~acquire.passed),
        ]
        m.d.comb += [
            events.semaphore_ops.eq(self._operations(m, host, engines)),
            events.wakes.eq(self._wakes(m, host)),
            events.switches.eq(self._switches(m, host)),
            events.copies.eq(host.launcher.reports.ended.valid),
            events.read_beats.eq(sum(engine.read_strobe for engine in engines)),
            events.write_beats.eq(sum(engine.write_strobe for engine in engines)),
            events.errors.eq(host.channels.error.valid),
            events.l1_hits.eq(popcount(m, (event.valid for event in mmu.hit), "l1_hits")),
            events.l1_misses.eq(popcount(m, (event.valid for event in mmu.missed), "l1_misses")),
            events.l2_hits.eq(mmu.found.valid),
            events.page_walks.eq(mmu.walks.valid),
            events.invalidations.eq(self._memory.maintenance.begins),
        ]

    def _trace_compute(self, m: Module, compute: ComputeEngine) -> None:
        trace, placed, over = self.trace, compute.placement.placed, compute.host.over
        launch, opens = compute.tasks.launch, compute.tasks.port.open
        schedules = launch.p.action == LaunchAction.SCHEDULE
        m.d.comb += [
            trace.launched.valid.eq(launch.valid & launch.ready & schedules),
            [trace.launched[name].eq(launch.p.task[name]) for name in ("channel", "asid", "page")],
            trace.opened.valid.eq(opens.valid & opens.ready),
            trace.opened.row.eq(opens.p.row),
            trace.opened.asid.eq(opens.p.asid),
            trace.opened.page.eq(compute.tasks.task.page),
            trace.over.valid.eq(over.valid & over.ready),
            trace.over.channel.eq(over.p.task.channel),
            trace.over.page.eq(over.p.task.page),
            trace.over.refusal.eq(over.p.verdict.refusal),
            [trace.placed[name].eq(placed[name]) for name in ("valid", "row", "sm", "step")],
            [trace.placed[name].eq(placed.at[name]) for name in ("x", "y", "z")],
        ]
        for number, sm in enumerate(compute.sms):
            start, end = sm.events.start, sm.events.end
            warp, left = trace.warp[number], trace.exit[number]
            m.d.comb += [
                [warp[name].eq(start[name]) for name in ("valid", "warp", "row", "slot", "index")],
                left.eq(end),
            ]
            if self.config.preemption:
                stop, stopped = sm.events.stop, sm.events.stopped
                gone = trace.stopped[number]
                m.d.comb += [
                    trace.stop[number].eq(stop),
                    [gone[name].eq(stopped[name]) for name in ("row", "restores")],
                    [gone[name].eq(stopped.at[name]) for name in ("x", "y", "z")],
                    gone.valid.eq(stopped.valid & stopped.some),
                ]
            if self.config.nested:
                asked, answered = sm.nested_events.asked, sm.nested_events.answered
                answer = trace.answered[number]
                m.d.comb += [
                    trace.asked[number].eq(asked),
                    [answer[name].eq(answered[name]) for name in ("valid", "slot")],
                    answer.refusal.eq(answered.verdict.refusal),
                ]

    def _operations(self, m: Module, host: Host, engines) -> Value:
        """Number of completed semaphore operations. Those of channels are counted as executed
        methods, not as responses of the semaphore unit: some responses are dropped, and some
        acquires are decided from zero flags, without a request."""
        ended = Signal(1 + len(engines))
        m.d.sync += ended[0].eq(
            host.pipeline.methods.executed.valid & host.pipeline.service.step.kind.semaphore
        )
        for number, engine in enumerate(engines, 1):
            answer = engine.semaphore.response
            good = answer.payload.error == SemaphoreError.NONE
            m.d.sync += ended[number].eq(answer.valid & answer.ready & good)
        return sum(ended)

    def _wakes(self, m: Module, host: Host) -> Value:
        """Number of parked channels made ready by semaphores."""
        m.submodules.wakes = wakes = WakeCounter(self.config)
        for name in ("waits", "ready", "holding"):
            m.d.comb += getattr(wakes, name).eq(getattr(host.parking.parked, name))
        m.d.comb += [
            wakes.retry.eq(host.parking.methods.retry),
            wakes.engine.eq(host.launcher.status.able),
        ]
        return wakes.count

    def _switches(self, m: Module, host: Host) -> Value:
        """Whether the method pipeline is given to a channel other than the previous one."""
        choice, served = host.pipeline.choice, host.pipeline.served.channel
        before = Signal.like(served)
        nobody = Signal(init=1)
        switched = Signal()
        m.d.sync += switched.eq(choice.taken & (nobody | (served != before)))
        with m.If(choice.taken):
            m.d.sync += [before.eq(served), nobody.eq(0)]
        return switched

    def _trace(self, m: Module, control: ControlPort, host: Host, semaphores) -> None:
        trace, launcher, mmu = self.trace, host.launcher, self._memory.mmu
        served, executed = host.pipeline.served, host.pipeline.methods.executed
        floor = host.scheduler.floor
        acquire, launch = host.execute.reports.acquire, host.execute.copies.launch
        m.d.comb += [
            trace.served.valid.eq(served.active),
            trace.served.channel.eq(served.channel),
            trace.floor.valid.eq(floor.valid),
            trace.floor.channel.eq(floor.channel),
            trace.doorbell.valid.eq(control.doorbell.valid & control.doorbell.ready),
            trace.doorbell.channel.eq(control.doorbell.payload.channel),
            trace.method.valid.eq(executed.valid),
            trace.method.channel.eq(executed.channel),
            trace.method.subchannel.eq(executed.method.subchannel),
            trace.method.address.eq(executed.method.address),
            trace.method.data.eq(executed.method.data),
            trace.acquire.valid.eq(acquire.valid),
            trace.acquire.channel.eq(acquire.channel),
            trace.acquire.passed.eq(acquire.passed),
            trace.semaphore.eq(semaphores.written),
            trace.error.eq(host.channels.error),
            trace.walk.eq(mmu.walks),
            trace.walked.eq(mmu.walked),
            trace.fault.eq(self._memory.fault),
            trace.invalidation.valid.eq(mmu.command.valid & mmu.command.ready),
            trace.invalidation.scope.eq(mmu.command.p.scope),
            trace.invalidation.asid.eq(mmu.command.p.asid),
        ]
        for number, (hit, missed) in enumerate(zip(mmu.hit, mmu.missed, strict=True)):
            m.d.comb += [
                trace.lookup[number].valid.eq(hit.valid | missed.valid),
                trace.lookup[number].asid.eq(Mux(hit.valid, hit.asid, missed.asid)),
                trace.lookup[number].hit.eq(hit.valid),
            ]
        for number in range(self.config.copy_engines):
            m.d.comb += [
                trace.start[number].valid.eq(launcher.events.started[number]),
                trace.start[number].channel.eq(launch.channel),
                trace.done[number].valid.eq(launcher.events.finished[number]),
                trace.done[number].channel.eq(launcher.reports.ended.channel),
                trace.done[number].failed.eq(launcher.reports.ended.failed),
            ]
