"""Task unit: from a slot back to a list, or to the end of the task."""

from typing import Any

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data

from signalbox.hw.errors import Refusal
from signalbox.hw.records.memory import MemoryStatus
from signalbox.hw.task_unit.children import Children, linked
from signalbox.hw.task_unit.parts import JobStates
from signalbox.hw.task_unit.qmd_writes import Stored
from signalbox.hw.task_unit.queue_table import QueueNext

__all__ = ["Departure"]


class Departure(JobStates):
    """Stops rows, and frees those with no block left on an SM: the task ends, fails, or returns to
    its list. Before a return with undistributed blocks, the resume position is written into the
    QMD, or OUTER_GET of a queue."""

    def __init__(self, *shared: Any, children: Children | None) -> None:
        super().__init__(*shared)
        self._children = children

    def wire(self, m: Module, place: data.View) -> None:
        parts, job = self._parts, self._job
        stores = parts.stores
        m.d.comb += [
            stores.request.p.what.eq(job.store),
            stores.request.p.asid.eq(job.task.asid),
            stores.request.p.page.eq(job.task.page),
            stores.place.eq(place),
            stores.record.eq(parts.metadata.record),
            stores.got.eq(parts.queues.freed),
        ]

    def stop(self, m: Module) -> None:
        """Stop a row: its task loses its slot (ASID-25). If the task is killed later, the row is
        stopped once more, to withdraw its saved blocks, too."""
        unit, parts, job = self._unit, self._parts, self._job
        stop, stopped, slots = unit.port.stop, unit.port.stopped, parts.slots
        m.d.comb += [
            stop.p.eq(job.row),
            slots.stopped.row.eq(job.row),
            slots.stopped.left.eq(stopped.p.blocks != 0),
        ]
        drops = Signal(init=1)
        m.d.comb += slots.stopped.drops.eq(drops)
        if self._config.preemption:
            m.d.comb += [
                unit.port.drops.eq((slots.kill | slots.saves).bit_select(job.row, 1)),
                unit.port.leave.eq(slots.leave),
            ]
        with m.State("STOP"):
            m.d.comb += stop.valid.eq(1)
            with m.If(stop.ready):
                m.next = "STOPPED"
                if self._config.preemption:
                    m.d.sync += drops.eq(unit.port.drops)
        with m.State("STOPPED"):
            m.d.comb += [stopped.ready.eq(1), slots.stopped.valid.eq(stopped.valid)]
            with m.If(stopped.valid):
                m.next = "IDLE"

    def end_or_return(self, m: Module, kept: data.View) -> None:
        """Handle a drained row: its task ends, or, if it was stopped with blocks left, returns to
        its list (ASID-25) by STORE, PUSH and CLOSE. Also advance a queue with a new oldest
        unfinished block, unless it is killed: its blocks may have ended early, so its entries do
        not count as processed."""
        unit, parts, job = self._unit, self._parts, self._job
        with m.State("LOOK"):
            m.next = "KNOW"
        with m.State("KNOW"):
            m.d.sync += [
                job.task.eq(kept.task),
                job.level.eq(kept.level),
                job.context.eq(unit.context),
                job.head.eq(1),
                job.holds.eq(~job.advances),
                job.store.eq(Stored.PLACE),
                job.verdict.refusal.eq(
                    Mux(parts.slots.late.bit_select(job.row, 1), Refusal.TIMEOUT, Refusal.KERNEL)
                ),
            ]
            if self._children:
                m.d.sync += job.kin.eq(self._children.kins.kin)
            if self._config.preemption:
                m.d.sync += job.saved.form.eq(kept.form)
            with m.If(parts.slots.kill.bit_select(job.row, 1)):
                m.next = "DIE"
                with m.If(job.advances):
                    m.next = "IDLE"
            with m.Elif(job.advances):
                m.next = "ADVANCE"
            with m.Elif(kept.task.is_queue):
                m.next = "DRAIN"
            if self._config.preemption:
                with m.Elif(parts.slots.leave.bit_select(job.row, 1)):
                    m.next = "KEEP"
            with m.Elif(job.returns):
                m.next = "STORE"
            with m.Else():
                m.next = "END"
        with m.State("DIE"):  # `KillFilter` is late by a cycle
            m.next = "FAIL"
        # `ended` is free: `JobChoice` selects no END or RECALL until the previous ended task is
        # taken.
        with m.State("END"), m.If(linked(self._children)):
            m.d.sync += [
                unit.ended.valid.eq(1),
                unit.ended.p.task.eq(job.task),
                unit.ended.p.context.eq(job.context),
            ]
            if self._config.nested:
                m.d.sync += unit.ended.p.kin.eq(job.kin)
            m.d.comb += parts.queues.leave.valid.eq(job.task.is_queue)
            with m.If(job.task.is_queue):  # nothing to restore in its QMD
                m.d.sync += unit.ended.p.task.resumed.eq(0)
            with m.If(job.holds):
                m.next = "CLOSE"
            with m.Else():
                m.next = "IDLE"
        if self._config.preemption:
            self._keep_blocks(m)

    def _keep_blocks(self, m: Module) -> None:
        """KEEP: take back the saved blocks of a row. A task with saved blocks returns to its list,
        even if all its other blocks have ended. DISCARD: give up the saved blocks of a failing
        task."""
        unit, job = self._unit, self._job
        keep, kept, discard = unit.port.keep, unit.port.kept, unit.port.discard
        m.d.comb += [
            keep.payload.eq(job.row),
            kept.ready.eq(1),
            discard.payload.eq(job.saved.save_place),
        ]
        with m.State("KEEP"):
            m.d.comb += keep.valid.eq(1)
            with m.If(keep.ready):
                m.next = "KEPT"
        with m.State("KEPT"):
            m.d.sync += [
                job.saved.save_place.eq(kept.p.save_place),
                job.saved.placed.eq(~job.returns),
            ]
            with m.If(kept.valid):
                m.d.sync += job.task.saved.eq(kept.p.some)
                with m.If(job.returns):
                    m.next = "STORE"
                with m.Elif(kept.p.some):
                    m.d.sync += job.task.resumed.eq(1)
                    m.next = "PUSH"
                with m.Else():
                    m.next = "END"
        with m.State("DISCARD"):
            m.d.comb += discard.valid.eq(1)
            with m.If(discard.ready):
                m.next = "IDLE"
                with m.If(job.holds):
                    m.next = "CLOSE"

    def write(self, m: Module) -> None:
        """Write a field of the QMD."""
        parts = self._parts
        request, answer = parts.stores.request, parts.stores.answer
        with m.State("STORE"):
            m.d.comb += request.valid.eq(1)
            with m.If(request.ready):
                m.next = "STORED"
        with m.State("STORED"):
            with m.If(answer.valid):
                self._written(m)

    def _written(self, m: Module) -> None:
        """Continue after a write. A failed RESTORE is ignored: the counter was writable just
        before. So is a failed GET while the row goes on: it is written again at the end."""
        unit, parts, job = self._unit, self._parts, self._job
        status, last = parts.stores.answer.status, parts.stores.answer.last
        restores = job.store == Stored.RESTORE
        with m.If((job.store == Stored.GET) & ~job.holds):
            m.next = "IDLE"
        with m.Elif((status != MemoryStatus.OK) & ~restores):
            bus = status == MemoryStatus.BUS
            m.d.sync += job.verdict.refusal.eq(Mux(bus, Refusal.BUS, Refusal.FAULT))
            m.next = "FAIL"
        with m.Else():
            with m.Switch(job.store):
                with m.Case(Stored.PLACE):
                    m.d.sync += job.task.resumed.eq(1)
                    m.next = "PUSH"
                with m.Case(Stored.COUNTER):
                    m.d.sync += job.counted.eq(last)
                    m.next = "GO"
                    with m.If(~last):
                        m.d.comb += unit.launched.valid.eq(1)
                        m.next = "IDLE"
                    with m.Elif(parts.metadata.record.IS_QUEUE):
                        m.next = "ENTER"
                with m.Case(Stored.RESTORE):
                    m.next = "FAIL"
                with m.Case(Stored.GET):
                    self._drained(m)

    def _drained(self, m: Module) -> None:
        """Next step of a queue after its row is drained."""
        parts, job = self._parts, self._job
        m.d.sync += job.task.resumed.eq(1)
        with m.Switch(parts.queues.outcome):
            with m.Case(QueueNext.LIST):
                m.next = "PUSH"
            with m.Case(QueueNext.END):
                m.next = "END"
            with m.Default():
                m.next = "CLOSE"

    def close(self, m: Module) -> None:
        """Free the row."""
        unit, parts, job = self._unit, self._parts, self._job
        close, slots = unit.port.close, parts.slots
        m.d.comb += [close.p.eq(job.row), slots.closed.row.eq(job.row)]
        with m.State("CLOSE"):
            m.d.comb += close.valid.eq(1)
            with m.If(close.ready):
                m.d.comb += slots.closed.valid.eq(1)
                m.next = "IDLE"
