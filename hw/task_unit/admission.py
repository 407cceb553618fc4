"""Task unit: from a list or a launch to a slot or a list."""

from typing import Any

from amaranth.hdl import Const, Module, Mux, Signal, Value

from signalbox.hw.errors import Refusal
from signalbox.hw.qmd import Placement, Urgency
from signalbox.hw.records.launch import KILLED, LaunchAction
from signalbox.hw.records.placement import Policy, block_form
from signalbox.hw.task_unit.children import Children, linked
from signalbox.hw.task_unit.parts import JobStates
from signalbox.hw.task_unit.qmd_check import sm_mask
from signalbox.hw.task_unit.qmd_writes import Stored
from signalbox.hw.task_unit.task_lists import ListOutcome

__all__ = ["Admission"]


class Admission(JobStates):
    """Takes a task from the highest list, or a launch. Reads and checks its QMD; then the task gets
    a slot, goes to its list, or fails.

    Attributes
    ----------
    has_area : the running context has a save area.
    may_stop : the task is allowed to cause blocks of lower priority to be stopped.
    form : form of the task's blocks, according to its QMD.
    """

    def __init__(self, *shared: Any, children: Children | None) -> None:
        super().__init__(*shared)
        self._children = children
        self.has_area, self.may_stop = Signal(name="has_area"), Signal(name="may_stop")
        self.form = Signal(block_form, name="form")
        self._enters = Signal(name="enters")

    def choose_urgency(self, m: Module) -> None:
        """Whether the task may have blocks of lower priority stopped. Where kernels are nested, all
        tasks may, as a wait for children might not end otherwise (NEST-12)."""
        unit, parts = self._unit, self._parts
        wanted = Signal()
        nests = unit.nesting > 1 if self._config.nested else Const(0)
        m.d.sync += self.has_area.eq(unit.save_area != 0)
        m.d.comb += self.may_stop.eq(wanted & self.has_area)
        with m.Switch(parts.metadata.record.MODEL_URGENCY):
            with m.Case(Urgency.SAVE):
                m.d.comb += wanted.eq(1)
            with m.Case(Urgency.DRAIN):
                m.d.comb += wanted.eq(nests)
            with m.Default():
                m.d.comb += wanted.eq(unit.saves)

    def find_form(self, m: Module) -> None:
        metadata = self._parts.metadata
        needs = ("barrier", "warps", "shared")
        m.d.comb += [
            [self.form[name].eq(metadata.needs[name]) for name in needs],
            self.form.registers.eq(metadata.record.REGISTER_COUNT_V),
        ]

    def _other_form(self) -> Value:
        """Whether the task has saved blocks, and its QMD now gives its blocks another form.
        Restored with that form, they might load state that other tasks have left in the places."""
        job = self._job
        if not self._config.preemption:
            return Const(0)
        return job.task.saved & (job.saved.form != self.form)

    def choose_policy(self, m: Module) -> None:
        unit, parts = self._unit, self._parts
        policy = unit.port.open.p.policy
        with m.Switch(parts.metadata.record.MODEL_PLACEMENT):
            for name in Policy:
                with m.Case(Placement[name.name]):
                    m.d.comb += policy.eq(name)
            with m.Default():
                m.d.comb += policy.eq(unit.automatic)

    def see_room(self, m: Module) -> None:
        """Whether a launch may go straight into a slot. Registered: the lists do not change while
        the QMD is read."""
        unit, parts, job = self._unit, self._parts, self._job
        best = parts.levels.highest
        level = Mux(job.bears, job.level, parts.metadata.needs.priority)
        first = Signal()
        room = parts.slots.free.valid
        runs = unit.active & ~unit.leave & (job.context == unit.context)
        m.d.sync += [
            first.eq((level > best.level) | ~best.valid),
            self._enters.eq(runs & room & first),
        ]

    def fill(self, m: Module) -> None:
        """Take the first task of the highest list."""
        unit, parts, job = self._unit, self._parts, self._job
        pop, popped = parts.lists.pop, parts.lists.popped
        level = parts.levels.highest.level
        with m.State("POP"):
            m.d.comb += [
                pop.valid.eq(1),
                pop.p.level.eq(level),
                pop.p.context.eq(unit.context),
            ]
            with m.If(pop.ready):
                m.next = "POPPED"
        with m.State("POPPED"):
            m.d.sync += [
                job.task.eq(popped.task),
                job.context.eq(unit.context),
                job.level.eq(level),
            ]
            if self._config.preemption:
                m.d.sync += job.saved.eq(popped.second.saved)
            if self._config.nested:
                m.d.sync += job.kin.eq(popped.second.kin)
            with m.If(popped.valid):
                m.next = "READ"
                with m.If(popped.outcome != ListOutcome.DONE):
                    m.d.comb += unit.lost.eq(1)
                    m.next = "IDLE"
                with m.Elif(popped.task.dropped):
                    m.next = "IDLE"

    def check(self, m: Module) -> None:
        """Read the QMD and decide the next step."""
        unit, parts, job = self._unit, self._parts, self._job
        metadata, needs = parts.metadata, parts.metadata.needs
        record = metadata.record
        other_kind = ~job.launches & (record.IS_QUEUE != job.task.is_queue)
        with m.State("READ"):
            m.d.comb += metadata.request.valid.eq(1)
            with m.If(metadata.request.ready):
                m.next = "CHECK"
        with m.State("CHECK"):
            m.d.sync += [
                job.verdict.eq(metadata.verdict),
                job.head.eq(record.ADD_TO_HEAD_OF_QMD_GROUP_LINKED_LIST),
            ]
            with m.If(job.launches & ~job.bears):
                m.d.sync += job.level.eq(needs.priority)
            with m.If(metadata.done):
                with m.If(parts.filter.kills):
                    m.d.sync += job.verdict.eq(KILLED)
                    m.next = "FAIL"
                with m.Elif(metadata.verdict.refusal != Refusal.NONE):
                    m.next = "FAIL"
                with m.Elif(other_kind | (job.bears & record.IS_QUEUE) | self._other_form()):
                    m.d.sync += job.verdict.refusal.eq(Refusal.MODEL)
                    m.next = "FAIL"
                with m.Elif(job.decrements):
                    m.d.sync += job.store.eq(Stored.COUNTER)
                    m.next = "STORE"
                with m.Elif(job.launches & record.IS_QUEUE):
                    m.next = "ENTER"
                with m.Else():
                    self._go(m)
        with m.State("GO"):
            self._go(m)
        taken = unit.failed.valid & unit.failed.ready
        with m.State("FAIL"):
            m.d.comb += [
                unit.launched.valid.eq(job.launches),
                unit.failed.valid.eq(~job.launches & linked(self._children)),
                parts.queues.leave.valid.eq(job.task.is_queue & ~job.wakes),
            ]
            with m.If(job.holds & taken):
                m.next = "CLOSE"
            with m.Elif(job.launches | taken):
                m.next = "IDLE"
            if self._config.preemption:
                with m.If(job.task.saved & taken):
                    m.next = "DISCARD"
            if self._config.nested:
                with m.If(job.launches & job.kin.known):
                    m.next = "DISOWN"
        appends = job.action == LaunchAction.INCREMENT_PUT
        # The row keeps a kill request in progress.
        killed = job.holds & parts.filter.kills
        m.d.comb += [
            unit.failed.p.verdict.eq(Mux(killed, KILLED, job.verdict)),
            unit.launched.verdict.eq(job.verdict),
            unit.launched.nothing.eq(appends | (job.decrements & ~job.counted)),
        ]

    def _go(self, m: Module) -> None:
        """To a list, or into a slot."""
        parts, job = self._parts, self._job
        with m.If(job.launches & ~self._enters):
            m.next = "PUSH"
        with m.Elif(job.task.is_queue):
            m.next = "TAKE"
        with m.Else():
            m.d.comb += parts.words.start.eq(1)
            m.next = "WORDS"

    def open(self, m: Module) -> None:
        """The task gets a slot."""
        unit, parts, job = self._unit, self._parts, self._job
        metadata, slots, opens = parts.metadata, parts.slots, unit.port.open
        queued = job.task.is_queue
        m.d.comb += [
            opens.p.row.eq(slots.free.row),
            opens.p.asid.eq(job.task.asid),
            [opens.p[name].eq(getattr(metadata, name)) for name in ("needs", "grid")],
            opens.p.blocks.eq(Mux(queued, parts.queues.blocks, metadata.blocks)),
            opens.p.first.eq(Mux(queued, parts.queues.first, metadata.first.as_value())),
            opens.p.needs.priority.eq(job.level),
            opens.p.needs.saves.eq(self.may_stop),
            slots.opened.row.eq(slots.free.row),
            slots.opened.priority.eq(job.level),
        ]
        if self._config.masked_sms:
            # Bits of further SMs are cut off.
            m.d.comb += opens.p.disabled.eq(sm_mask(metadata.record))
        with m.State("WORDS"):
            with m.If(parts.words.done):
                m.next = "OPEN"
        with m.State("OPEN"):
            m.d.comb += opens.valid.eq(1)
            with m.If(opens.ready):
                m.d.comb += [
                    slots.opened.valid.eq(1),
                    unit.launched.valid.eq(job.launches),
                ]
                m.next = "IDLE"

    def return_blocks(self, m: Module) -> None:
        """The row gets the task's saved blocks; with `placed`, only these."""
        unit, job = self._unit, self._job
        row, saved = unit.port.open.p, job.saved
        m.d.comb += [row.saved.some.eq(job.task.saved), row.saved.save_place.eq(saved.save_place)]
        with m.If(job.task.saved & saved.placed):
            m.d.comb += row.blocks.eq(0)

    def push(self, m: Module) -> None:
        """The task goes to its list."""
        unit, parts, job = self._unit, self._parts, self._job
        push, pushed = parts.lists.push, parts.lists.pushed
        m.d.comb += [
            push.p.where.level.eq(job.level),
            push.p.where.context.eq(job.context),
            push.p.head.eq(job.head),
            push.p.task.eq(job.task),
        ]
        if self._config.preemption:
            m.d.comb += push.p.second.saved.eq(job.saved)
        if self._config.nested:
            m.d.comb += push.p.second.kin.eq(job.kin)
        with m.State("PUSH"):
            m.d.comb += push.valid.eq(1)
            with m.If(push.ready):
                m.next = "PUSHED"
        with m.State("PUSHED"):
            full = pushed.outcome == ListOutcome.FULL
            with m.If(pushed.valid & (pushed.outcome != ListOutcome.DONE)):
                m.d.sync += job.verdict.refusal.eq(Mux(full, Refusal.FULL, Refusal.LISTS))
                job.give_up(m)
            with m.Elif(pushed.valid & job.launches):
                m.d.comb += unit.launched.valid.eq(1)
                m.next = "IDLE"
            with m.Elif(pushed.valid):
                m.next = "CLOSE"
