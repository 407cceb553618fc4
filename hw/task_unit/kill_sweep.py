"""Visits all tasks to find those that must be killed (PREEMPT-7)."""

from amaranth.hdl import Module, Signal
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.lib.onehot import lowest_number
from signalbox.hw.records.compute_control import kill_request
from signalbox.hw.records.placement import task_level

__all__ = ["KillSweep", "Place", "visit"]


class Place(enum.Enum, shape=2):
    """Places of tasks, in the order in which they are visited."""

    ROW = 0
    QUEUE = 1
    """A queue that rests, outside of rows and lists."""
    LIST = 2


def visit(config: Config) -> data.StructLayout:
    """The task to be visited: of `row`; of `queue`; the next one of list `where`, with `first` its
    first one."""
    return data.StructLayout({
        "valid": 1,
        "place": Place,
        "row": config.row_bits,
        "where": task_level(config),
        "first": 1,
        "queue": config.queue_bits,
    })


class KillSweep(wiring.Component):
    """Visits every row, every open queue, and every task of every list: one sweep after a channel
    is disabled, and one for each kill request. If either comes during a sweep, or a task could not
    be visited or marked because the memory of its list failed, another sweep follows.

    Visits are jobs of the task unit among others, so tasks move between them. None is missed:
    `KillFilter` also checks each task when it is launched and when it gets a slot. All other moves
    lead from a row to a list or to rest, or from rest to a list, in the order of the visits.

    From a list's last task to the next list: 3 cycles, and 2 per context without tasks.

    A request stays in progress until a task on its way from its list to a slot has been checked,
    kernels that wait for their descendants have been visited (`sweep_ends`), and tasks that were
    just ending have launched their dependent tasks, so these launches are refused. Only then is the
    request accepted.

    Members
    -------
    on : in, per channel: enabled.
    request : in, stream of `kill_request`; accepted when it is complete, so it is stable meanwhile.
    requested : out, the request is in progress.
    waiting : in, per level of each context: its list is not empty.
    queues : in, per queue: open.
    rows : in, per row: its task has faulted or must be killed.
    rests : in, the task unit is between two jobs.
    ends : in, strobe: `TaskEnd` accepts a task.
    finishing : in, a task is ending, or is about to end.
    taken : in, with nested launches: no task with all blocks ended waits to be taken by
        `KernelEnds`, or it is being taken.
    sweep_ends : out, with nested launches: `KernelEnds` visits the kernels that have ended.
    ends_swept : in, with nested launches, strobe: all are visited.
    calm : in, no launch is in progress.
    visit : out, a `visit`: the next one.
    next : in, strobe: the visit is done.
    last : in, with `next`: the list has no further task.
    missed : in, with `next`: the visit failed.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        nested = {"taken": In(1), "sweep_ends": Out(1), "ends_swept": In(1)}
        super().__init__({
            **(nested if config.nested else {}),
            "on": In(config.channels),
            "request": In(stream.Signature(kill_request(config))),
            "requested": Out(1),
            "waiting": In(config.contexts * config.levels),
            "queues": In(config.queues),
            "rows": In(config.rows),
            "rests": In(1),
            "ends": In(1),
            "finishing": In(1),
            "calm": In(1),
            "visit": Out(visit(config)),
            "next": In(1),
            "last": In(1),
            "missed": In(1),
        })
        self._again = Signal()
        """Another sweep is due."""
        self._left = Signal(config.rows, name="left")
        """Rows that had to be killed at the end of the sweep, until they are free. Others may fault
        later, one after the other; the request does not wait for those."""
        self._below = Signal(config.levels)
        """Mask of the levels of the context that are done."""
        self._behind = 2 if config.nested else 1
        """Tasks behind the one that is ending: the one offered by the task unit, and the one
        offered by `KernelEnds`."""
        self._begun = Signal(range(self._behind + 1))
        """Tasks that have begun to end since the last visit."""

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, visit = self._config, self.visit
        was = Signal(config.channels)
        m.d.sync += [was.eq(self.on), self._left.eq(self._left & self.rows)]
        with m.FSM(name="sweep"):
            with m.State("IDLE"):
                for counter in (visit.row, visit.where, visit.queue, self._below):
                    m.d.sync += counter.eq(0)
                with m.If(self._again):
                    m.d.sync += self._again.eq(0)
                    m.next = "ROWS"
                with m.Elif(self.requested & ~self._left.any()):
                    m.d.comb += self.request.ready.eq(1)
                    m.d.sync += self.requested.eq(0)
                with m.Elif(self.request.valid & ~self.requested):
                    m.d.sync += [self.requested.eq(1), self._again.eq(1)]
            self._visit_rows(m)
            self._visit_queues(m)
            self._visit_lists(m)
            self._wait_for_ends(m)
        with m.If((was & ~self.on).any() | self.missed):
            m.d.sync += self._again.eq(1)
        return m

    def _visit_rows(self, m: Module) -> None:
        visit = self.visit
        with m.State("ROWS"):
            m.d.comb += [visit.valid.eq(1), visit.place.eq(Place.ROW)]
            with m.If(self.next):
                m.d.sync += visit.row.eq(visit.row + 1)
                with m.If(visit.row == self._config.rows - 1):
                    m.next = "QUEUES"

    def _visit_queues(self, m: Module) -> None:
        visit = self.visit
        with m.State("QUEUES"):
            m.d.comb += [
                visit.valid.eq(self.queues.bit_select(visit.queue, 1)),
                visit.place.eq(Place.QUEUE),
            ]
            with m.If(self.next | ~visit.valid):
                m.d.sync += visit.queue.eq(visit.queue + 1)
                with m.If(visit.queue == self._config.queues - 1):
                    m.next = "SEEK"

    def _visit_lists(self, m: Module) -> None:
        config, visit = self._config, self.visit
        levels = self.waiting.word_select(visit.where.context, config.levels) & ~self._below
        found, level = lowest_number(m, levels)
        with m.State("SEEK"):
            m.next = "FOUND"
        with m.State("FOUND"):
            m.d.sync += [visit.first.eq(1), visit.where.level.eq(level)]
            m.next = "LISTS"
            with m.If(~found):
                m.d.sync += [self._below.eq(0), visit.where.context.eq(visit.where.context + 1)]
                m.next = "SEEK"
                with m.If(visit.where.context == config.contexts - 1):
                    m.next = "IDLE"
                    with m.If(self.requested):
                        m.next = "JOB"
        with m.State("LISTS"):
            m.d.comb += [visit.valid.eq(1), visit.place.eq(Place.LIST)]
            with m.If(self.next):
                m.d.sync += visit.first.eq(0)
                with m.If(self.last):
                    m.d.sync += self._below.eq((2 << visit.where.level) - 1)
                    m.next = "SEEK"

    def _wait_for_ends(self, m: Module) -> None:
        """Wait for the job in progress, for the tasks that are ending and those behind them, and
        then for a launch."""
        with m.State("JOB"):
            m.d.sync += self._left.eq(self.rows)
            with m.If(self.rests):
                m.next = "TAKEN" if self._config.nested else "ENDS"
        if self._config.nested:
            with m.State("TAKEN"):
                with m.If(self.taken):
                    m.next = "VISIT"
            with m.State("VISIT"):
                m.d.comb += self.sweep_ends.eq(1)
                with m.If(self.ends_swept):
                    m.next = "ENDS"
        with m.State("ENDS"):
            with m.If(self.ends):
                m.d.sync += self._begun.eq(self._begun + 1)
            with m.If(~self.finishing | (self.ends & (self._begun == self._behind))):
                m.d.sync += self._begun.eq(0)
                m.next = "LAUNCHES"
        with m.State("LAUNCHES"):
            with m.If(self.calm):
                m.next = "IDLE"
