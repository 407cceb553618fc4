"""States of the task table's rows, and selection of rows for the next job (ASID-24, ASID-25)."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, enum, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.lib.onehot import lowest_number
from signalbox.hw.lib.tournament import tournament

__all__ = ["RowState", "SlotTable", "row_choice", "row_victim"]


class RowState(enum.Enum, shape=2):
    """State of a row."""

    FREE = 0
    RUNS = 1
    """It holds a slot: not all of its blocks are placed, or not all have ended."""
    LEAVES = 2
    """Stopped with no block left to be placed; not all of its blocks have ended."""
    RETURNS = 3
    """Stopped with blocks left to be placed: once the placed ones have ended, it returns to its
    list."""


def row_choice(config: Config) -> data.StructLayout:
    """A row, if any."""
    return data.StructLayout({"valid": 1, "row": config.row_bits})


def row_victim(config: Config) -> data.StructLayout:
    """A row that may be stopped, and its priority."""
    return data.StructLayout({"valid": 1, "row": config.row_bits, "priority": config.level_bits})


_EVENTS = "opened", "stopped", "closed"


class SlotTable(wiring.Component):
    """Tracks the row states and selects rows. A selection lags a change of state by two cycles, so
    it reflects an event from the third cycle on; the victim takes one cycle per round of its tree.
    The row of an event is given one cycle ahead of its strobe.

    Members
    -------
    opened : in, strobe: `row` runs, with `priority`; `saves`: its blocks on SMs are saved when
        it is stopped.
    stopped : in, strobe: `row` was stopped; `left`: not all of its blocks were placed; `drops`: its
        saved blocks were withdrawn, too.
    closed : in, strobe: `row` is free.
    drained : in, per row: no block is undistributed or on an SM; see `GlobalPort`.
    fault : in, strobe per row: one of its warps faulted.
    kills : in, strobe: the task of `row` must be killed.
    overdue : in, tasks of all rows that are not drained must be killed.
    clears : in, per row: must not be opened yet.
    rests : in, no job is in progress; only then are cleared rows given out, so that `free` does not
        change during a job.
    limit : in, 0 … `slots`: number of slots that may be held.
    free : out, a `row_choice`: a free row, if a slot is free, too.
    crowded : out, a row is free, but no slot.
    victim : out, a `row_victim`: the running row of lowest priority; valid while `sure`.
    sure : out, `victim` is up to date.
    faulty : out, a `row_choice`: a row to be stopped because its task must end early. It runs, or
        was stopped and may still have saved blocks to be placed.
    ended : out, a `row_choice`: the task of this row has ended.
    returning : out, a `row_choice`: the task of this row returns to its list.
    kill : out, per row: had a fault, or must be killed.
    late : out, per row: its kill is due to a time-out.
    runs : out, per row: it runs, and `kill` is 0.
    saves : out, per row: its blocks on SMs are saved when it is stopped.
    leave : out, per row: it is stopped, and its blocks are saved; late by one cycle.
    idle : out, all rows are free.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        row = config.row_bits
        super().__init__({
            "opened": In(
                data.StructLayout({
                    "valid": 1,
                    "row": row,
                    "priority": config.level_bits,
                    "saves": 1,
                })
            ),
            "stopped": In(data.StructLayout({"valid": 1, "row": row, "left": 1, "drops": 1})),
            "closed": In(row_choice(config)),
            "drained": In(config.rows),
            "fault": In(config.rows),
            "kills": In(row_choice(config)),
            "overdue": In(1),
            "clears": In(config.rows),
            "rests": In(1),
            "limit": In(range(config.slots + 1)),
            "free": Out(row_choice(config)),
            "crowded": Out(1),
            "victim": Out(row_victim(config)),
            "sure": Out(1),
            "faulty": Out(row_choice(config)),
            "ended": Out(row_choice(config)),
            "returning": Out(row_choice(config)),
            "kill": Out(config.rows),
            "late": Out(config.rows),
            "runs": Out(config.rows),
            "saves": Out(config.rows),
            "leave": Out(config.rows),
            "idle": Out(1),
        })
        self._at = [Signal(config.rows, name=f"{name}_at") for name in _EVENTS]
        """Rows of the events, one-hot."""
        self._states = Signal(data.ArrayLayout(RowState, config.rows), name="states")
        """State of each row."""
        self._dropped = Signal(config.rows, name="dropped")
        """Per row: its saved blocks were withdrawn when it was stopped."""
        self._running = Signal(range(config.slots + 1), name="running")
        """Slots held."""

    def elaborate(self, platform: object) -> Module:
        m = Module()
        rows = self._config.rows
        runs = Signal(rows)
        none = Signal(rows)
        priorities = []
        faulty = Signal(rows)
        ended = Signal(rows)
        returning = Signal(rows)
        slot = Signal()
        for number in range(rows):
            state = self._states[number]
            priority = Signal(self._config.level_bits, name=f"priority_{number}")
            priorities.append(priority)
            self._follow(m, number, priority)
            drained = self.drained[number]
            returns = (state == RowState.RETURNS) & ~self.kill[number]
            places = runs[number] | (~none[number] & ~self._dropped[number])
            m.d.comb += [
                runs[number].eq(state == RowState.RUNS),
                none[number].eq(state == RowState.FREE),
                faulty[number].eq(places & self.kill[number] & ~drained),
                ended[number].eq(drained & ~none[number] & ~returns),
                returning[number].eq(drained & returns),
            ]
        m.d.comb += self.runs.eq(runs & ~self.kill)
        if self._config.preemption:
            m.d.sync += self.leave.eq(self.saves & ~(runs | none))
        m.d.sync += [
            at.eq(1 << getattr(self, name).row) for name, at in zip(_EVENTS, self._at, strict=True)
        ]
        ends = [
            getattr(self, name).valid & (runs & at).any()
            for name, at in zip(_EVENTS[1:], self._at[1:], strict=True)
        ]
        m.d.sync += [
            self._running.eq(self._running + self.opened.valid - (ends[0] | ends[1])),
            self.idle.eq(none.all()),
            slot.eq(self._running < self.limit),
        ]
        unused, held = Signal(rows, name="unused"), Signal(rows, name="held")
        m.d.comb += unused.eq(none & ~(self.clears | held))
        m.d.sync += held.eq(self.clears | (held & ~self.rests.replicate(rows)))
        valid, row = lowest_number(m, unused)
        m.d.sync += [
            self.free.valid.eq(valid & slot),
            self.free.row.eq(row),
            self.crowded.eq(valid & ~slot),
        ]
        for choice, bits in (
            (self.faulty, faulty),
            (self.ended, ended),
            (self.returning, returning),
        ):
            valid, row = lowest_number(m, bits)
            m.d.sync += [choice.valid.eq(valid), choice.row.eq(row)]
        self._victim(m, runs, priorities)
        return m

    def _follow(self, m: Module, number: int, priority: Signal) -> None:
        """State of one row."""
        state, kill, late = self._states[number], self.kill[number], self.late[number]
        opened, stopped, closed = (
            getattr(self, name).valid & at[number]
            for name, at in zip(_EVENTS, self._at, strict=True)
        )
        killed = self.kills.valid & (self.kills.row == number)
        overdue = self.overdue & ~self.drained[number]
        with m.If((self.fault[number] | killed | overdue) & (state != RowState.FREE)):
            m.d.sync += [kill.eq(1), late.eq(late | ~(kill | self.fault[number] | killed))]
        with m.If(opened):
            m.d.sync += [state.eq(RowState.RUNS), priority.eq(self.opened.priority)]
        with m.If(stopped):
            m.d.sync += [
                state.eq(Mux(self.stopped.left, RowState.RETURNS, RowState.LEAVES)),
                self._dropped[number].eq(self.stopped.drops),
            ]
        with m.If(closed):
            m.d.sync += state.eq(RowState.FREE)
        with m.If(opened | closed):
            m.d.sync += [kill.eq(0), late.eq(0)]
        if self._config.preemption:
            with m.If(opened):
                m.d.sync += self.saves[number].eq(self.opened.saves)

    def _victim(self, m: Module, runs: Signal, priorities: list[Signal]) -> None:
        """A tree with one level per cycle; ties go to the highest row number."""
        shape = self.victim.shape()
        level = [Signal(shape, name=f"candidate_{number}") for number in range(len(runs))]
        for number, candidate in enumerate(level):
            m.d.comb += [
                candidate.row.eq(number),
                candidate.priority.eq(priorities[number]),
                candidate.valid.eq(runs[number]),
            ]
        victim, rounds = tournament(m, level, _lower)
        m.d.comb += self.victim.eq(victim)
        changes = Signal()
        recent = Signal(rounds)
        m.d.comb += [
            changes.eq(self.opened.valid | self.stopped.valid | self.closed.valid),
            self.sure.eq(~recent.any()),
        ]
        m.d.sync += recent.eq(Cat(changes, recent))


def _lower(one: data.View, other: data.View) -> Value:
    """Whether the first one is valid and, if both are, of lower priority."""
    return one.valid & (~other.valid | (one.priority < other.priority))
