"""Task unit: visits of tasks that may have to be killed."""

from amaranth.hdl import Module, Mux
from amaranth.lib import data
from amaranth.lib.wiring import connect, flipped

from signalbox.hw.records.launch import KILLED
from signalbox.hw.task_unit.kill_sweep import Place
from signalbox.hw.task_unit.parts import JobStates
from signalbox.hw.task_unit.task_lists import ListOutcome, ListVisit

__all__ = ["KillJobs"]


class KillJobs(JobStates):
    """Visits the tasks of rows and lists and the resting queues, in the order of `KillSweep`, and
    kills those selected by `KillFilter`."""

    def wire(self, m: Module) -> None:
        unit, parts, job = self._unit, self._parts, self._job
        sweep, kills, slots = parts.sweep, parts.filter, parts.slots
        m.d.comb += [
            sweep.on.eq(unit.on),
            kills.on.eq(unit.on),
            sweep.waiting.eq(parts.lists.waiting),
            sweep.rows.eq(slots.kill),
            sweep.rests.eq(parts.choice.rests),
            sweep.queues.eq(parts.queues.open),
            sweep.ends.eq(
                unit.ends if self._config.nested else unit.ended.valid & unit.ended.ready
            ),
            sweep.finishing.eq(unit.finishing),
            sweep.calm.eq(unit.calm),
            kills.request.eq(unit.kill_request.p),
            kills.requested.eq(sweep.requested),
            kills.task.eq(job.task),
            kills.context.eq(job.context),
            slots.kills.row.eq(job.row),
            parts.lists.visit.p.where.eq(sweep.visit.where),
        ]
        connect(m, flipped(unit.kill_request), sweep.request)
        if self._config.nested:
            m.d.comb += [
                sweep.taken.eq(~unit.ended.valid | unit.ended.ready),
                unit.sweep_ends.eq(sweep.sweep_ends),
                sweep.ends_swept.eq(unit.ends_swept),
            ]

    def begin(self, m: Module) -> None:
        """Go to the task to be visited."""
        parts, job = self._parts, self._job
        visit = parts.sweep.visit
        m.d.sync += job.row.eq(visit.row)
        with m.Switch(visit.place):
            with m.Case(Place.ROW):
                m.next = "INSPECT"
            with m.Case(Place.LIST):
                m.next = "SCAN"
            with m.Default():
                m.next = "RECALL"

    def pass_on(self, m: Module, *, last: bool = False) -> None:
        parts = self._parts
        m.d.comb += [parts.sweep.next.eq(1), parts.sweep.last.eq(last)]
        m.next = "IDLE"

    def miss(self, m: Module) -> None:
        """Pass on from a task that could not be read or marked."""
        m.d.comb += self._parts.sweep.missed.eq(1)
        self.pass_on(m)

    def states(self, m: Module, kept: data.View) -> None:
        """Visit a task of a row or a list, and kill it if it must be killed."""
        unit, parts, job = self._unit, self._parts, self._job
        visit, lists = parts.sweep.visit, parts.lists
        with m.State("INSPECT"):
            m.next = "INSPECTED"
        with m.State("INSPECTED"):
            m.d.sync += [job.task.eq(kept.task), job.context.eq(unit.context)]
            m.next = "JUDGE"
        with m.State("SCAN"):
            m.d.comb += [
                lists.visit.valid.eq(1),
                lists.visit.p.step.eq(Mux(visit.first, ListVisit.FIRST, ListVisit.NEXT)),
            ]
            with m.If(lists.visit.ready):
                m.next = "SCANNED"
        with m.State("SCANNED"):
            found = lists.visited
            m.d.sync += [job.task.eq(found.task), job.context.eq(visit.where.context)]
            if self._config.preemption:
                m.d.sync += job.saved.eq(found.second.saved)
            if self._config.nested:
                m.d.sync += job.kin.eq(found.second.kin)
            with m.If(found.valid):
                m.next = "JUDGE"
                with m.If(found.outcome == ListOutcome.NONE):
                    self.pass_on(m, last=True)
                with m.Elif(found.outcome != ListOutcome.DONE):
                    self.miss(m)
                with m.Elif(found.task.dropped):
                    self.pass_on(m)
        with m.State("JUDGE"):
            m.next = "KILL"
        with m.State("KILL"):
            self.pass_on(m)
            with m.If(parts.filter.kills):
                m.d.sync += job.verdict.eq(KILLED)
                m.d.comb += parts.slots.kills.valid.eq(visit.place == Place.ROW)
                with m.Switch(visit.place):
                    with m.Case(Place.LIST):
                        m.next = "DROP"
                    with m.Case(Place.QUEUE):
                        m.next = "FAIL"
        with m.State("DROP"):
            m.d.comb += [lists.visit.valid.eq(1), lists.visit.p.step.eq(ListVisit.DROP)]
            with m.If(lists.visit.ready):
                m.next = "DROPPED"
        with m.State("DROPPED"):
            with m.If(lists.visited.valid):
                m.next = "FAIL"
                with m.If(lists.visited.outcome != ListOutcome.DONE):
                    self.miss(m)
