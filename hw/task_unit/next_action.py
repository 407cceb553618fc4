"""What the task unit does next (ASID-22 … ASID-26)."""

from amaranth.hdl import Module, Signal
from amaranth.lib import enum, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.task_unit.highest_level import highest_level
from signalbox.hw.task_unit.slot_table import row_choice, row_victim

__all__ = ["Agenda", "Job"]

_SETTLE = 3
"""Cycles until a job follows from choices that count what has changed; see `Slots`."""


class Job(enum.Enum, shape=4):
    """One thing to do."""

    NONE = 0
    STOP = 1
    """`row` is to be stopped."""
    END = 2
    """The task of `row` has come to its end."""
    RETURN = 3
    """The one of `row` goes back to its list."""
    RECALL = 4
    """A queue that rests has come to its end."""
    SHUT = 5
    """A queue of a channel that was switched off is to be closed."""
    LAUNCH = 6
    """What is offered is to be taken."""
    FILL = 7
    """The first task of the highest list gets a slot."""
    EVICT = 8
    """`row` is to be stopped, for another task."""


class Agenda(wiring.Component):
    """One thing at a time, of these the first:

    1. a task with a fault is stopped;
    2. a task that has come to its end is handed on, and its row freed;
    3. one that was stopped too early and whose blocks have ended goes back to its list;
    4. a queue that rests and is closed is handed on; one whose channel is gone is closed;
    5. while `leave` is 1, one that runs is stopped;
    6. a launch is accepted, if one is offered and 7 or 8 was done since the last, or cannot be;
    7. a free slot is given to the first task of the highest list that holds one;
    8. while no slot is free, the task of lowest priority is stopped, if a higher one waits.

    Members
    -------
    rests : nothing is being done; a `job` begins in the cycle in which it comes up.
    job, row : the next one, chosen a cycle before; none until the choices count what the last has
        changed.
    settled : no job has been done just now, nor does one begin.
    active, leave : see `Tasks`. highest : of the lists that hold tasks.
    faulty, ended, back, victim, sure, free, crowded : see `Slots`.
    delivers : a task at its end has not been taken yet, so no other can be handed on.
    over : a queue that rests is to end. departed : one of a channel that is gone may be open.
    offered : a launch is.
    """

    def __init__(self, config: Config) -> None:
        choice = row_choice(config)
        super().__init__({
            "rests": In(1),
            "job": Out(Job),
            "row": Out(config.row_bits),
            "settled": Out(1),
            "active": In(1),
            "leave": In(1),
            "highest": In(highest_level),
            "faulty": In(choice),
            "ended": In(choice),
            "back": In(choice),
            "victim": In(row_victim(config)),
            "sure": In(1),
            "free": In(choice),
            "crowded": In(1),
            "delivers": In(1),
            "over": In(1),
            "departed": In(1),
            "offered": In(1),
        })
        self.settle = Signal(range(_SETTLE + 1))
        """Cycles until then (for proofs)."""
        self._some = Signal()
        """There is a job. It begins at once: who chooses rests."""
        self._lower, self._known = Signal(), Signal()
        """The victim's priority is lower than the highest list's, if it is known."""

    def elaborate(self, platform: object) -> Module:
        m = Module()
        settle, some, due = self.settle, self._some, Signal()
        m.d.comb += self.settled.eq((settle == 0) & ~some)
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
        with m.Elif(self.rests & (settle != 0)):
            m.d.sync += settle.eq(settle - 1)
        with m.If((settle <= 1) & ~some):
            self._choose(m, due)
        return m

    def _choose(self, m: Module, due: Signal) -> None:
        """Nobody is stopped for another task, and no launch goes before that, until the victim is
        known; then for the highest list that counts since a cycle."""
        victim, row = self.victim, self.row
        known, places, fills = (Signal(name=name) for name in ("known", "places", "fills"))
        evicts, waits = Signal(), Signal()
        m.d.comb += [
            known.eq(self._known & (self.settle == 0)),
            places.eq(self.active & ~self.leave & self.highest.valid),
            fills.eq(places & self.free.valid),
            evicts.eq(places & self.crowded & known & self._lower),
            waits.eq(places & self.crowded & ~known),
        ]

        def choose(job: Job) -> list:
            return [self._some.eq(1), self.job.eq(job)]

        m.d.sync += row.eq(victim.row)
        with m.If(self.faulty.valid):
            m.d.sync += [*choose(Job.STOP), row.eq(self.faulty.row)]
        with m.Elif(self.ended.valid & ~self.delivers):
            m.d.sync += [*choose(Job.END), row.eq(self.ended.row)]
        with m.Elif(self.back.valid):
            m.d.sync += [*choose(Job.RETURN), row.eq(self.back.row)]
        with m.Elif(self.over & ~self.delivers):
            m.d.sync += choose(Job.RECALL)
        with m.Elif(self.departed):
            m.d.sync += choose(Job.SHUT)
        with m.Elif(self.leave & ~self.sure):
            pass  # whom to stop is soon known
        with m.Elif(self.leave & victim.valid):
            m.d.sync += choose(Job.STOP)
        with m.Elif(self.offered & (due | ~(fills | evicts | waits))):
            m.d.sync += choose(Job.LAUNCH)
        with m.Elif(fills):
            m.d.sync += choose(Job.FILL)
        with m.Elif(evicts):
            m.d.sync += choose(Job.EVICT)
