"""Compute engine: from a launch to the last warp and the releases of the task."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from signalbox.hw.compute.warp_faults import WarpFaults
from signalbox.hw.config import Config
from signalbox.hw.front_end.compute_methods import ComputeMethodUnit
from signalbox.hw.front_end.contexts import Contexts, context_setting
from signalbox.hw.front_end.host_port import ComputePort
from signalbox.hw.front_end.kept_settings import KeptSettings
from signalbox.hw.front_end.launch_arbiter import LaunchArbiter
from signalbox.hw.lib.shared import Shared
from signalbox.hw.methods import ComputeMethod
from signalbox.hw.nested.nested_kernels import NestedKernels
from signalbox.hw.nested.sm_hub import SmHub
from signalbox.hw.placement.controller import GlobalController
from signalbox.hw.records.compute_control import ComputeControl
from signalbox.hw.records.memory import ReadPort, WritePort
from signalbox.hw.records.semaphore import COMPUTE_CLIENTS, SemaphorePort
from signalbox.hw.records.translation import MmuPort
from signalbox.hw.sm.port import CoreFactory
from signalbox.hw.sm.sm import Sm
from signalbox.hw.task_unit.kill_filter import KillFilter
from signalbox.hw.task_unit.memory_share import share_memory
from signalbox.hw.task_unit.task_end import TaskEnd
from signalbox.hw.task_unit.task_unit import TaskUnit

__all__ = ["ComputeEngine"]

_OF_CONTEXT = "context", "active", "leave", "automatic", "level", "saves", "save_area"
"""Context signals passed to the task unit."""

_RESTORE_CYCLES = 255
"""Cycles without an event for which a restore still counts as in progress; it may wait for
memory."""

_LOCAL_MEMORY = {
    ComputeMethod.SET_SHADER_LOCAL_MEMORY_B: 32,
    ComputeMethod.SET_SHADER_LOCAL_MEMORY_A: 17,
    ComputeMethod.SET_SHADER_LOCAL_MEMORY_NON_THROTTLED_B: 32,
    ComputeMethod.SET_SHADER_LOCAL_MEMORY_NON_THROTTLED_A: 8,
    ComputeMethod.SET_SHADER_LOCAL_MEMORY_NON_THROTTLED_C: 9,
}
"""Settings with the area of a channel's local memory, in the order of `local_area`."""


class ComputeEngine(wiring.Component):
    """Front end, task unit, contexts, global logic controller and SMs with `core` (see `Sm`).

    Members
    -------
    host : in, methods of channels, and completions of tasks, see `ComputePort`.
    control : in, registers of the engine, see `ComputeControl`.
    settings : in, per context: its `context_setting`.
    semaphore : out, two ports of the semaphore unit: for task releases, for channel reports.
    mmu : out, binds, see `MmuPort`.
    read : out, memory client of the task unit, reads.
    write : out, memory client of the task unit, writes.
    sm_read : out, one memory client per SM, reads.
    sm_write : out, one memory client per SM, writes.

    Attributes
    ----------
    placement : the global logic controller, for counters and trace.
    contexts : the context scheduler, for counters.
    sms : the SMs, for counters.
    tasks : the task unit, for counters.
    """

    def __init__(self, config: Config, core: CoreFactory | None = None) -> None:
        self._config = config
        self.placement, self.tasks = GlobalController(config), TaskUnit(config)
        sm = Sm(config, core)
        self.sms = [Shared(sm, "sm") for _ in range(config.sms)]
        super().__init__({
            "host": In(ComputePort(config)),
            "control": In(ComputeControl(config)),
            "settings": In(context_setting()).array(config.contexts),
            "semaphore": Out(SemaphorePort(config)).array(COMPUTE_CLIENTS),
            "mmu": Out(MmuPort(config)),
            "read": Out(ReadPort(config)),
            "write": Out(WritePort(config)),
            "sm_read": Out(ReadPort(config)).array(config.sms),
            "sm_write": Out(WritePort(config)).array(config.sms),
        })
        self._front = ComputeMethodUnit(config)
        self.contexts, self._launches = Contexts(config), LaunchArbiter(config)
        self._finish, self._faults = TaskEnd(config), WarpFaults(config)
        self._local = KeptSettings(config, _LOCAL_MEMORY)
        if config.nested:
            self._nested, self._hub = NestedKernels(config), SmHub(config)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.front = self._front
        m.submodules.contexts, m.submodules.launches = self.contexts, self._launches
        m.submodules.tasks, m.submodules.finish = self.tasks, self._finish
        m.submodules.placement, m.submodules.faults = self.placement, self._faults
        self._launch(m)
        self._context(m)
        self._ending, self._busy, self._empty = Const(0), Const(0), Const(1)
        """`_ending`: the end of a kernel in the kernel tree is being processed. `_busy`: that, or a
        launch or notice of an SM. `_empty`: there is no kernel in the tree."""
        if self._config.nested:
            self._nest(m)
        else:
            connect(m, self.tasks.ended, self._finish.ended)
            connect(m, self.tasks.failed, self._launches.failed)
            connect(m, self._finish.completed, self._launches.completed)
        self._tell(m)
        readers = (self.tasks, self._finish, self.contexts)
        writers = (self.tasks, self._finish, self._front)
        self._local_memory(m)
        share_memory(m, self._config, self, readers, writers)
        self._sms(m)
        if self._config.preemption:
            self._restore(m)
        return m

    def _launch(self, m: Module) -> None:
        """Launches to the task unit, and completions back."""
        tasks, finish, launches, front = self.tasks, self._finish, self._launches, self._front
        for name in ("setting", "clear", "skip"):
            m.d.comb += getattr(front.host, name).eq(getattr(self.host, name))
        connect(m, flipped(self.host.method), front.host.method)
        connect(m, front.launch, launches.channel)
        connect(m, launches.launch, tasks.launch)
        connect(m, flipped(self.control.kill), tasks.kill_request)
        connect(m, finish.act, launches.act)
        for port, unit in zip(self.semaphore, (finish, front), strict=True):
            connect(m, unit.semaphore, flipped(port))
        connect(m, launches.over, flipped(self.host.over))
        m.d.comb += [
            launches.launched.eq(tasks.launched),
            front.launched.eq(launches.answer),
            tasks.limit.eq(front.limit),
            tasks.on.eq(self.host.on),
            tasks.calm.eq(launches.calm),
            self.host.answer.eq(front.host.answer),
            self.control.lost.eq(tasks.lost),
            tasks.area.eq(self.control.area),
            tasks.fault.eq(self._faults.rows),
            self._faults.kernel.eq(tasks.kernel),
            self.control.fault.eq(self._faults.fault),
        ]
        began, dependent = self.host.began, launches.began
        m.d.comb += began.eq(front.host.began)
        with m.If(dependent.valid):
            m.d.comb += [
                began.valid.eq(1),
                began.channel.eq(dependent.task.channel),
                began.epoch.eq(dependent.task.epoch),
            ]

    def _nest(self, m: Module) -> None:
        """Kernels that launch kernels: their ends wait for those of their descendants."""
        m.submodules.nested, m.submodules.hub = nested, hub = self._nested, self._hub
        tasks, launches = self.tasks, self._launches
        for name in ("ended", "failed", "disowned"):
            connect(m, getattr(tasks, name), getattr(nested, name))
        connect(m, nested.complete, self._finish.ended)
        connect(m, nested.given_up, launches.failed)
        connect(m, self._finish.completed, nested.completed)
        connect(m, nested.reported, launches.completed)
        connect(m, tasks.tree, nested.births)
        connect(m, hub.blocks, nested.blocks)
        connect(m, self.placement.lost, nested.lost)
        connect(m, hub.child, launches.child)
        taken = nested.complete.valid & nested.complete.ready
        m.submodules.kills = kills = KillFilter(self._config)
        m.d.comb += [
            tasks.ends.eq(taken),
            nested.sweep.eq(tasks.sweep_ends),
            tasks.ends_swept.eq(nested.swept),
            kills.on.eq(self.host.on),
            kills.request.eq(self.control.kill.p),
            kills.requested.eq(1),
            kills.task.eq(nested.visited.task),
            kills.context.eq(nested.visited.context),
            nested.named.eq(kills.kills),
            tasks.nesting.eq(self.contexts.nesting),
            tasks.told.eq(nested.told),
            nested.on.eq(self.host.on),
            nested.limit.eq(self.control.child_limit),
            self.control.refused.eq(launches.refused),
            hub.told.eq(nested.told),
            hub.answer.eq(launches.child_answer),
            launches.block.eq(tasks.block),
            launches.task.eq(tasks.task),
            launches.parent.eq(tasks.parent),
        ]
        # Families of saved blocks that are dropped may make kernels complete.
        drops = self.placement.lists_change
        self._ending, self._busy = nested.ending | drops, ~(nested.idle & hub.idle) | drops
        self._empty = nested.empty

    def _tell(self, m: Module) -> None:
        """Reports whether there are tasks."""
        tasks, finish, launches = self.tasks, self._finish, self._launches
        idle = tasks.idle & finish.idle & launches.idle & self._front.idle
        m.d.comb += [
            tasks.finishing.eq(~finish.idle | self._ending),
            # An ending task may launch another one, so its context is not empty yet.
            self.contexts.empty.eq(tasks.empty & finish.idle & launches.calm & ~self._busy),
        ]
        m.d.sync += self.control.idle.eq(idle & ~self._busy & self._empty)

    def _local_memory(self, m: Module) -> None:
        """Local-memory area of the task being processed: the area of its channel."""
        m.submodules.local, local, tasks = self._local, self._local, self.tasks
        m.d.comb += [
            local.setting.eq(self.host.setting),
            local.clear.eq(self.host.clear),
            local.channel.eq(tasks.channel),
            tasks.local.eq(Cat(local[method] for method in _LOCAL_MEMORY)),
        ]

    def _context(self, m: Module) -> None:
        contexts, tasks, control = self.contexts, self.tasks, self.control
        connect(m, contexts.mmu, flipped(self.mmu))
        m.d.comb += [
            [
                inner.eq(outer)
                for inner, outer in zip(contexts.settings, self.settings, strict=True)
            ],
            contexts.slice.eq(control.slice),
            contexts.timeout.eq(control.timeout),
            contexts.placed.eq(self.placement.placed.valid),
            tasks.overdue.eq(contexts.overdue),
            contexts.mend.eq(control.mend),
            contexts.waiting.eq(tasks.waiting),
            control.broken.eq(contexts.broken),
            control.starting.eq(contexts.starting),
            control.active.eq(contexts.active),
            control.context.eq(contexts.context),
            [getattr(tasks, name).eq(getattr(contexts, name)) for name in _OF_CONTEXT],
        ]

    def _restore(self, m: Module) -> None:
        """Whether blocks are being restored: in each cycle in which one is offered to an SM or an
        SM reads state, and for `_RESTORE_CYCLES` cycles after it."""
        left = Signal(range(_RESTORE_CYCLES + 1), name="restore_cycles")
        events = [
            link.block.valid & link.block.p.restores | read.request.valid & read.request.p.physical
            for link, read in zip(self.placement.sm, self.sm_read, strict=True)
        ]
        restores = Signal(name="restores")
        m.d.sync += [
            restores.eq(Cat(events).any()),
            left.eq(Mux(restores, _RESTORE_CYCLES, left - left.bool())),
        ]
        m.d.comb += self.contexts.restoring.eq(restores | left.bool())

    def _sms(self, m: Module) -> None:
        tasks, placement = self.tasks, self.placement
        connect(m, tasks.port, placement.port)
        for number, sm in enumerate(self.sms):
            m.submodules[f"sm_{number}"] = sm
            connect(m, placement.sm[number], sm.link)
            m.d.comb += sm.number.eq(number)
            if self._config.nested:
                connect(m, self._hub.sm[number], sm.nested)
            connect(m, sm.fault, self._faults.sm[number])
            connect(m, sm.read, flipped(self.sm_read[number]))
            connect(m, sm.write, flipped(self.sm_write[number]))
            # Registered for distance; the words arrive long before the first block of the row.
            m.d.sync += [sm.kernel.eq(tasks.kernel), sm.kill.eq(tasks.kill)]
