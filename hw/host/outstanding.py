"""Outstanding operations of all units."""

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.host.copy_launcher import EngineStatus, OutstandingCopies
from signalbox.hw.host.fetch.fetch_unit import OutstandingReads
from signalbox.hw.host.ports import Activity, Served, UserdWrites
from signalbox.hw.host.waits.compute_waits import OutstandingTasks
from signalbox.hw.host.waits.memory_semaphores import OutstandingSemaphores

__all__ = ["Outstanding"]


class Outstanding(wiring.Component):
    """Combines the outstanding operations of all units, one cycle late.

    Members
    -------
    engines : in, channels that have outstanding copies (`copying`).
    copies : in, whether no copy at all is outstanding (`all_idle`).
    tasks : in, tasks and compute methods.
    semaphores : in, semaphore operations in memory.
    reads : in, reads of rings and pushbuffers.
    userd : in, writes to USERD.
    served : in, the served channel, and whether it has an operation in the semaphore unit.
    activity : out, the result.
    """

    def __init__(self, config: Config) -> None:
        self._channels = config.channels
        super().__init__({
            "engines": In(EngineStatus(config)),
            "copies": In(OutstandingCopies(config)),
            "tasks": In(OutstandingTasks(config)),
            "semaphores": In(OutstandingSemaphores(config)),
            "reads": In(OutstandingReads(config)),
            "userd": In(UserdWrites(config)),
            "served": In(Served(config)),
            "activity": Out(Activity(config)),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        tasks, semaphores, served = self.tasks, self.semaphores, self.served
        asked = served.asked.replicate(self._channels)
        m.d.sync += [
            self.activity.active.eq(
                (self.engines.copying | tasks.some | tasks.busy)
                | (semaphores.busy | ((1 << served.channel) & asked))
                | (self.reads.reading | self.userd.writing)
            ),
            # One cycle late, without harm: the channel that uses this, for a WFI of scope ALL, had
            # no operation outstanding in that cycle either.
            self.activity.all_idle.eq(
                self.copies.all_idle & ~semaphores.changing.any() & ~tasks.some.any()
            ),
        ]
        return m
