"""Selects the next job of the task unit, evictions included (ASID-22 … ASID-26)."""

from amaranth.hdl import Module, Signal
from amaranth.lib import enum, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.task_unit.highest_level import highest_level
from signalbox.hw.task_unit.slot_table import row_choice, row_victim

__all__ = ["Job", "JobChoice"]

_SETTLE = 3
"""Cycles after a job until the inputs reflect its effects; see `SlotTable`."""


class Job(enum.Enum, shape=4):
    """Jobs of the task unit."""

    NONE = 0
    STOP = 1
    """Stop `row`."""
    END = 2
    """The task of `row` has ended."""
    RETURN = 3
    """Return the task of `row` to its list."""
    RECALL = 4
    """A resting queue has ended."""
    VISIT = 5
    """Visit a task that may have to be killed."""
    LAUNCH = 6
    """Accept the offered launch."""
    FILL = 7
    """Give a slot to the first task of the highest list."""
    EVICT = 8
    """Stop `row` in favour of another task."""
    ADVANCE = 9
    """The queue in `row` has another oldest unfinished block."""


class JobChoice(wiring.Component):
    """Selects one job at a time, by priority:

    1. stop a task that must end early;
    2. hand on an ended task and free its row, or add blocks to a queue whose blocks have ended;
    3. return a stopped task with undistributed blocks to its list, once its blocks on SMs have
       ended;
    4. hand on a closed resting queue;
    5. while `leave` is 1, stop a running task, unless `drains`;
    6. visit a task, unless the last job was a visit and another job can be done;
    7. advance a queue;
    8. accept a launch, if 9 or 10 was done since the last launch, or neither can be done now;
    9. give a free slot to the first task of the highest non-empty list;
    10. if no slot is free, stop the task of lowest priority in favour of a waiting task of higher
        priority.

    After a job that advances a queue or adds blocks to one, 2 and 7 yield to any other job that can
    be done; visits do not count.

    Members
    -------
    rests : in, the task unit is idle; a `job` starts in the cycle in which it appears.
    job : out, a `Job`, registered: the next job; NONE until the inputs reflect the previous job.
    row : out, `row_bits` bits, registered: row of that job.
    settled : out, no job was done recently or starts now.
    visiting : out, the last job was a visit, and no other one starts now.
    active : in, tasks of the running context may have slots.
    leave : in, all tasks of the running context must give up their slots.
    drains : in, running tasks are not stopped in favour of others, nor while `leave` is 1.
    highest : in, a `highest_level`: the highest non-empty list.
    faulty : in, a `row_choice`: a row to be stopped, as its task must end early.
    ended : in, a `row_choice`: the task of this row has ended.
    returning : in, a `row_choice`: the task of this row returns to its list.
    victim : in, a `row_victim`: the running row of lowest priority; valid while `sure`.
    sure : in, `victim` is up to date.
    free : in, a `row_choice`: a free row, if a slot is free, too.
    crowded : in, a row is free, but no slot.
    delivers : in, the previous ended task has not been taken yet, so no other can be handed on.
    over : in, a resting queue must end.
    visits : in, a task must be visited.
    moved : in, a `row_choice`: the queue in this row must be advanced.
    refills : in, strobe: the current job adds blocks to a queue whose blocks had ended.
    offered : in, a launch is offered.
    """

    def __init__(self, config: Config) -> None:
        choice = row_choice(config)
        super().__init__({
            "rests": In(1),
            "job": Out(Job),
            "row": Out(config.row_bits),
            "settled": Out(1),
            "visiting": Out(1),
            "active": In(1),
            "leave": In(1),
            "drains": In(1),
            "highest": In(highest_level(config)),
            "faulty": In(choice),
            "ended": In(choice),
            "returning": In(choice),
            "victim": In(row_victim(config)),
            "sure": In(1),
            "free": In(choice),
            "crowded": In(1),
            "delivers": In(1),
            "over": In(1),
            "visits": In(1),
            "moved": In(choice),
            "refills": In(1),
            "offered": In(1),
        })
        self._settle = Signal(range(_SETTLE + 1), name="settle")
        """Remaining settle cycles."""
        self._some = Signal(name="some")
        """A job is selected. It starts at once, since a selection is made only while the task unit
        is idle."""
        self._visited, self._advanced = Signal(name="visited"), Signal(name="advanced")
        """`_visited`: the last job was a visit. `_advanced`: the last job other than a visit
        advanced a queue or added blocks to one."""
        self._lower = Signal()
        self._known = Signal()
        """`_lower`: the victim's priority is below that of the highest list; valid with `_known`:
        the victim is known."""

    def elaborate(self, platform: object) -> Module:
        m = Module()
        settle, some, due = self._settle, self._some, Signal()
        m.d.comb += [
            self.settled.eq((settle == 0) & ~some),
            self.visiting.eq(self._visited & (~some | (self.job == Job.VISIT))),
        ]
        m.d.sync += [
            some.eq(0),
            self.job.eq(Job.NONE),
            self._lower.eq(self.victim.valid & (self.victim.priority < self.highest.level)),
            self._known.eq(self.sure),
        ]
        with m.If(some):
            m.d.sync += settle.eq(_SETTLE)
            with m.Switch(self.job):
                with m.Case(Job.FILL, Job.EVICT):
                    m.d.sync += due.eq(1)
                with m.Case(Job.LAUNCH):
                    m.d.sync += due.eq(0)
            m.d.sync += self._visited.eq(self.job == Job.VISIT)
            with m.If(self.job != Job.VISIT):
                m.d.sync += self._advanced.eq(self.job == Job.ADVANCE)
        with m.Elif(self.rests & (settle != 0)):
            m.d.sync += settle.eq(settle - 1)
        with m.If(self.refills):
            m.d.sync += self._advanced.eq(1)
        with m.If((settle <= 1) & ~some):
            self._choose(m, due)
        return m

    def _choose(self, m: Module, due: Signal) -> None:
        """Select a job. An eviction, and a launch that would go ahead of it, wait until the victim
        is known and has been compared with the highest list."""
        victim, row = self.victim, self.row
        known, places, fills = (Signal(name=name) for name in ("known", "places", "fills"))
        evicts = Signal()
        ends = Signal(name="ends")
        waits = Signal()
        m.d.comb += [
            known.eq(self._known & (self._settle == 0)),
            places.eq(self.active & ~self.leave & self.highest.valid),
            fills.eq(places & self.free.valid),
            evicts.eq(places & self.crowded & known & self._lower & ~self.drains),
            waits.eq(places & self.crowded & ~known & ~self.drains),
        ]

        def choose(job: Job) -> list:
            return [self._some.eq(1), self.job.eq(job)]

        end = [*choose(Job.END), row.eq(self.ended.row)]
        advance = [*choose(Job.ADVANCE), row.eq(self.moved.row)]
        stops = self.leave & ~self.drains
        m.d.comb += ends.eq(self.ended.valid & ~self.delivers)
        m.d.sync += row.eq(victim.row)
        with m.If(self.faulty.valid):
            m.d.sync += [*choose(Job.STOP), row.eq(self.faulty.row)]
        with m.Elif(ends & ~self._advanced):
            m.d.sync += end
        with m.Elif(self.returning.valid):
            m.d.sync += [*choose(Job.RETURN), row.eq(self.returning.row)]
        with m.Elif(self.over & ~self.delivers):
            m.d.sync += choose(Job.RECALL)
        with m.Elif(stops & ~self.sure):
            pass  # the victim will be known soon
        with m.Elif(stops & victim.valid):
            m.d.sync += choose(Job.STOP)
        with m.Elif(self.visits & ~self._visited):
            m.d.sync += choose(Job.VISIT)
        with m.Elif(self.moved.valid & ~self._advanced):
            m.d.sync += advance
        with m.Elif(self.offered & (due | ~(fills | evicts | waits))):
            m.d.sync += choose(Job.LAUNCH)
        with m.Elif(fills):
            m.d.sync += choose(Job.FILL)
        with m.Elif(evicts):
            m.d.sync += choose(Job.EVICT)
        with m.Elif(ends & ~waits):
            m.d.sync += end
        with m.Elif(self.moved.valid & ~waits):
            m.d.sync += advance
        with m.Elif(self.visits & ~waits):
            m.d.sync += choose(Job.VISIT)
