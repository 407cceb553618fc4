"""The compute engine: from a launch to the last warp and the task's release."""

from amaranth.hdl import Module
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.config import Config
from hw.records import MmuPort, ReadPort, SemaphorePort, WritePort
from hw.sm.sm import Sm
from hw.work.contexts import Contexts, context_setting
from hw.work.faults import WarpFaults, warp_fault
from hw.work.finish import Finish, task_completed
from hw.work.launches import Launches
from hw.work.lists import list_area
from hw.work.metadata import task_verdict
from hw.work.placement import Placement
from hw.work.share import share_memory
from hw.work.tasks import Tasks, task_launch

__all__ = ["Compute"]


class Compute(wiring.Component):
    """Task unit, contexts, global logic controller and SMs.

    Members
    -------
    area : where the task lists lie.
    settings, slice, broken, mend : of contexts; see `Contexts`.
    launch, answer : a channel's task, and what became of its launch.
    began, over : a dependent task is launched; a task is over. See `Launches`.
    fault : strobe, what a warp could not do. lost : strobe; see `Tasks`.
    semaphore : the semaphore unit. mmu : the translation, for binds.
    read, write : memory of the task unit. sm_read, sm_write : of each SM.
    idle : nothing is held anywhere: no task in a list, a row or at its end.

    Attributes
    ----------
    placement, sms, tasks : units that counters and trace look into.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        self.placement, self.tasks = Placement(config), Tasks(config)
        self.sms = [Sm(config) for _ in range(config.sms)]
        verdict = data.StructLayout({"valid": 1, "verdict": task_verdict})
        super().__init__({
            "area": In(list_area(config)),
            "settings": In(context_setting()).array(config.contexts),
            "slice": In(32),
            "broken": Out(config.contexts),
            "mend": In(config.contexts),
            "launch": In(stream.Signature(task_launch(config))),
            "answer": Out(verdict),
            "began": Out(data.StructLayout({"valid": 1, "channel": 6})),
            "over": Out(stream.Signature(task_completed)),
            "fault": Out(warp_fault(config)),
            "lost": Out(1),
            "semaphore": Out(SemaphorePort(config)),
            "mmu": Out(MmuPort(config)),
            "read": Out(ReadPort(config)),
            "write": Out(WritePort(config)),
            "sm_read": Out(ReadPort(config)).array(config.sms),
            "sm_write": Out(WritePort(config)).array(config.sms),
            "idle": Out(1),
        })
        self._contexts, self._launches = Contexts(config), Launches(config)
        self._finish, self._faults = Finish(config), WarpFaults(config)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.contexts, m.submodules.launches = self._contexts, self._launches
        m.submodules.tasks, m.submodules.finish = self.tasks, self._finish
        m.submodules.placement, m.submodules.faults = self.placement, self._faults
        self._launch(m)
        self._context(m)
        readers, writers = (self.tasks, self._finish, self._contexts), (self.tasks, self._finish)
        share_memory(m, self._config, self, readers, writers)
        self._sms(m)
        return m

    def _launch(self, m: Module) -> None:
        """From launches to tasks, and from their end back."""
        tasks, finish, launches = self.tasks, self._finish, self._launches
        connect(m, flipped(self.launch), launches.channel)
        connect(m, launches.launch, tasks.launch)
        connect(m, tasks.ended, finish.ended)
        connect(m, tasks.failed, launches.failed)
        connect(m, finish.act, launches.act)
        connect(m, finish.completed, launches.completed)
        connect(m, finish.semaphore, flipped(self.semaphore))
        connect(m, launches.over, flipped(self.over))
        m.d.comb += [
            launches.launched.eq(tasks.launched),
            launches.context.eq(tasks.context),
            self.answer.eq(launches.answer),
            self.began.eq(launches.began),
            self.lost.eq(tasks.lost),
            tasks.area.eq(self.area),
            tasks.fault.eq(self._faults.rows),
            self.fault.eq(self._faults.fault),
        ]
        m.d.sync += self.idle.eq(tasks.idle & finish.idle & launches.idle)

    def _context(self, m: Module) -> None:
        contexts, tasks = self._contexts, self.tasks
        connect(m, contexts.mmu, flipped(self.mmu))
        m.d.comb += [
            [
                inner.eq(outer)
                for inner, outer in zip(contexts.settings, self.settings, strict=True)
            ],
            contexts.slice.eq(self.slice),
            contexts.mend.eq(self.mend),
            contexts.waiting.eq(tasks.waiting),
            # What is at its end belongs to the context, and so do tasks that depend on it.
            contexts.empty.eq(tasks.empty & self._finish.idle & self._launches.calm),
            self.broken.eq(contexts.broken),
            [
                getattr(tasks, name).eq(getattr(contexts, name))
                for name in ("context", "active", "leave", "automatic")
            ],
        ]

    def _sms(self, m: Module) -> None:
        tasks, placement = self.tasks, self.placement
        connect(m, tasks.port, placement.port)
        for number, sm in enumerate(self.sms):
            m.submodules[f"sm_{number}"] = sm
            connect(m, placement.sm[number], sm.link)
            connect(m, sm.fault, self._faults.sm[number])
            connect(m, sm.read, flipped(self.sm_read[number]))
            connect(m, sm.write, flipped(self.sm_write[number]))
            # Far away, and long before the row's first block.
            m.d.sync += [sm.kernel.eq(tasks.kernel), sm.kill.eq(tasks.kill)]
