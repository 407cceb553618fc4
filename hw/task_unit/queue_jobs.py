"""Task unit: entries of queues."""

from typing import Any

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data

from signalbox.hw.errors import Refusal
from signalbox.hw.task_unit.kill_jobs import KillJobs
from signalbox.hw.task_unit.parts import JobStates
from signalbox.hw.task_unit.qmd_writes import Stored
from signalbox.hw.task_unit.queue_table import QueueNext, QueueOp

__all__ = ["QueueJobs"]


class QueueJobs(JobStates):
    """Operations of the queue table, and blocks added to the row of a queue."""

    def __init__(self, *shared: Any, kills: KillJobs) -> None:
        super().__init__(*shared)
        self._kills, self._op = kills, Signal(QueueOp, name="op")

    def wire(self, m: Module, place: data.View) -> None:
        unit, parts, job = self._unit, self._parts, self._job
        queues, add = parts.queues, unit.port.add
        m.d.comb += [
            queues.task.eq(job.task),
            queues.context.eq(job.context),
            queues.level.eq(parts.metadata.needs.priority),
            queues.span.eq(job.span),
            queues.record.eq(parts.metadata.record),
            queues.runs.eq(parts.slots.runs),
            queues.leave.queue.eq(job.task.queue),
            queues.request.p.queue.eq(job.task.queue),
            queues.request.p.row.eq(parts.slots.free.row),
            queues.request.p.stopped.eq(job.returns),
            queues.request.p.next.eq(place.x),
            queues.request.p.oldest.eq(job.number),
            add.p.row.eq(queues.row),
            add.p.blocks.eq(queues.blocks),
        ]
        self._wire_oldest(m)

    def _wire_oldest(self, m: Module) -> None:
        """Tell `OldestBlocks` when a row with a queue opens, gets more blocks after it was drained,
        or closes."""
        unit, parts, job = self._unit, self._parts, self._job
        oldest, slots, queues, add = parts.oldest, parts.slots, parts.queues, unit.port.add
        opens = slots.opened.valid & job.task.is_queue
        refills = add.valid & add.ready & (self._op == QueueOp.DRAIN)
        m.d.comb += [
            parts.choice.refills.eq(refills),
            oldest.begin.valid.eq(opens | refills),
            oldest.begin.row.eq(Mux(opens, slots.opened.row, queues.row)),
            oldest.begin.number.eq(queues.first),
            oldest.close.valid.eq(slots.closed.valid),
            oldest.close.row.eq(slots.closed.row),
            oldest.close.drops.eq(slots.kill.bit_select(slots.closed.row, 1)),
            slots.clears.eq(oldest.clears),
            slots.rests.eq(parts.choice.rests),
            oldest.ended.eq(unit.port.ended),
        ]

    def states(self, m: Module) -> None:
        """Queue operations, one request after another."""
        unit, parts, job = self._unit, self._parts, self._job
        queues, add = parts.queues, unit.port.add
        for op in QueueOp:
            self._ask_queue(m, op)
        with m.State("QUEUE"):
            with m.If(queues.done & (queues.verdict.refusal != Refusal.NONE)):
                m.d.sync += [job.verdict.eq(queues.verdict), job.task.is_queue.eq(0)]
                job.give_up(m)
            with m.Elif(queues.done):
                self._queue_done(m)
        with m.State("ADD"):
            m.d.comb += add.valid.eq(1)
            with m.If(add.ready):
                m.d.comb += unit.launched.valid.eq(job.launches)
                m.next = "STORE"
                with m.If(job.launches):
                    m.next = "IDLE"

    def _ask_queue(self, m: Module, op: QueueOp) -> None:
        parts, job = self._parts, self._job
        request = parts.queues.request
        with m.State(op.name):
            m.d.comb += [request.valid.eq(1), request.p.op.eq(op)]
            m.d.sync += self._op.eq(op)
            if op == QueueOp.RECALL:
                over, visit = parts.queues.over, parts.sweep.visit
                m.d.comb += request.p.queue.eq(Mux(job.visits, visit.queue, over.queue))
            with m.If(request.ready):
                m.next = "QUEUE"

    def _queue_done(self, m: Module) -> None:
        unit, parts, job = self._unit, self._parts, self._job
        queues = parts.queues
        rests = queues.outcome == QueueNext.REST
        with m.Switch(self._op):
            with m.Case(QueueOp.ENTER):
                m.d.sync += [job.task.is_queue.eq(1), job.task.queue.eq(queues.queue)]
                m.next = "GO"
                with m.If(rests):
                    m.d.comb += unit.launched.valid.eq(1)
                    m.next = "IDLE"
            with m.Case(QueueOp.APPEND):
                self._appended(m)
            with m.Case(QueueOp.TAKE):
                m.d.comb += parts.words.start.eq(1)
                m.next = "WORDS"
            with m.Case(QueueOp.DRAIN, QueueOp.ADVANCE):
                m.d.sync += job.store.eq(Stored.GET)
                m.next = "STORE"
                with m.If(queues.outcome == QueueNext.ADD):
                    m.d.sync += job.holds.eq(0)
                    m.next = "ADD"
            with m.Case(QueueOp.RECALL):
                m.d.sync += [job.task.eq(queues.owner), job.context.eq(queues.home)]
                m.next = "END"
                with m.If(job.visits):
                    m.next = "JUDGE"
                with m.If(job.visits & ~queues.rests):
                    self._kills.pass_on(m)
            with m.Case(QueueOp.UNDO):
                m.next = "FAIL"

    def _appended(self, m: Module) -> None:
        unit, parts, job = self._unit, self._parts, self._job
        queues = parts.queues
        with m.Switch(queues.outcome):
            with m.Case(QueueNext.ADD):
                m.next = "ADD"
            with m.Case(QueueNext.LIST):
                m.d.sync += [
                    job.task.eq(queues.owner),
                    job.context.eq(queues.home),
                    job.level.eq(queues.rank),
                    job.head.eq(0),
                    job.wakes.eq(1),
                ]
                m.next = "PUSH"
            with m.Default():
                m.d.comb += unit.launched.valid.eq(1)
                m.next = "IDLE"
