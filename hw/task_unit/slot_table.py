"""States of the task table's rows, and what is to be done with which (ASID-24, ASID-25)."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, enum, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.lib.onehot import lowest_number

__all__ = ["RowState", "Slots", "row_choice", "row_victim"]


class RowState(enum.Enum, shape=2):
    """What a row is."""

    FREE = 0
    RUNS = 1
    """It holds a slot: its blocks are placed, or have all been placed and not all ended."""
    LEAVES = 2
    """It was stopped, nothing of it had been left, and its blocks have not all ended."""
    RETURNS = 3
    """It was stopped before all its blocks were placed: once those that were have ended, it goes
    back to its list."""


def row_choice(config: Config) -> data.StructLayout:
    """A row, if there is one."""
    return data.StructLayout({"valid": 1, "row": config.row_bits})


def row_victim(config: Config) -> data.StructLayout:
    """A row that may be stopped, and its priority."""
    return data.StructLayout({"valid": 1, "row": config.row_bits, "priority": 6})


_EVENTS = "opened", "stopped", "closed"


class Slots(wiring.Component):
    """Follows what the task unit does, and two cycles later chooses from it; the choices count from
    the third cycle after a change on. The victim needs a cycle per round of its choice. Which row
    changes is told a cycle before it does.

    Members
    -------
    opened : row `row` runs now, at `priority`. stopped : it was; `left`: not all was placed.
    closed : it is free again.
    drained : nothing of the row is undistributed or on an SM; see `GlobalPort`.
    fault : per row, strobe: a warp of it cannot go on.
    limit : so many slots may be held.
    free : a row that is free, if a slot is free as well. crowded : a row is free, but no slot.
    victim : of those that run one of the lowest priority, which is `priority`; it counts while
        `sure`. faulty : one that runs and had a fault.
    ended : one that has come to its end. back : one that is to go back to its list.
    kill : per row, it had a fault. runs : it runs, and had none.
    idle : all rows are free.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        row = config.row_bits
        super().__init__({
            "opened": In(data.StructLayout({"valid": 1, "row": row, "priority": 6})),
            "stopped": In(data.StructLayout({"valid": 1, "row": row, "left": 1})),
            "closed": In(row_choice(config)),
            "drained": In(config.rows),
            "fault": In(config.rows),
            "limit": In(range(config.slots + 1)),
            "free": Out(row_choice(config)),
            "crowded": Out(1),
            "victim": Out(row_victim(config)),
            "sure": Out(1),
            "faulty": Out(row_choice(config)),
            "ended": Out(row_choice(config)),
            "back": Out(row_choice(config)),
            "kill": Out(config.rows),
            "runs": Out(config.rows),
            "idle": Out(1),
        })
        self._at = [Signal(config.rows, name=f"{name}_at") for name in _EVENTS]
        """Rows of the events, one-hot."""
        self.states = Signal(data.ArrayLayout(RowState, config.rows))
        """State of every row (for proofs)."""
        self.running = Signal(range(config.slots + 1))
        """Slots that are held (for proofs)."""

    def elaborate(self, platform: object) -> Module:
        m = Module()
        rows = self._config.rows
        runs, none, priorities = Signal(rows), Signal(rows), []
        faulty, ended, back = (Signal(rows) for _ in range(3))
        slot = Signal()
        for number in range(rows):
            state = self.states[number]
            priority = Signal(6, name=f"priority_{number}")
            priorities.append(priority)
            self._follow(m, number, priority)
            drained = self.drained[number]
            returns = (state == RowState.RETURNS) & ~self.kill[number]
            m.d.comb += [
                runs[number].eq(state == RowState.RUNS),
                none[number].eq(state == RowState.FREE),
                faulty[number].eq(runs[number] & self.kill[number] & ~drained),
                ended[number].eq(drained & ~none[number] & ~returns),
                back[number].eq(drained & returns),
            ]
        m.d.comb += self.runs.eq(runs & ~self.kill)
        m.d.sync += [
            at.eq(1 << getattr(self, name).row) for name, at in zip(_EVENTS, self._at, strict=True)
        ]
        ends = (runs & self._at[-1]).any() & self.closed.valid
        m.d.sync += [
            self.running.eq(self.running + self.opened.valid - (self.stopped.valid | ends)),
            self.idle.eq(none.all()),
            slot.eq(self.running < self.limit),
        ]
        valid, row = lowest_number(m, none)
        m.d.sync += [
            self.free.valid.eq(valid & slot),
            self.free.row.eq(row),
            self.crowded.eq(valid & ~slot),
        ]
        for choice, bits in ((self.faulty, faulty), (self.ended, ended), (self.back, back)):
            valid, row = lowest_number(m, bits)
            m.d.sync += [choice.valid.eq(valid), choice.row.eq(row)]
        self._victim(m, runs, priorities)
        return m

    def _follow(self, m: Module, number: int, priority: Signal) -> None:
        """State of one row."""
        state, kill = self.states[number], self.kill[number]
        opened, stopped, closed = (
            getattr(self, name).valid & at[number]
            for name, at in zip(_EVENTS, self._at, strict=True)
        )
        with m.If(self.fault[number] & (state != RowState.FREE)):
            m.d.sync += kill.eq(1)
        with m.If(opened):
            m.d.sync += [state.eq(RowState.RUNS), priority.eq(self.opened.priority), kill.eq(0)]
        with m.If(stopped):
            m.d.sync += state.eq(Mux(self.stopped.left, RowState.RETURNS, RowState.LEAVES))
        with m.If(closed):
            m.d.sync += [state.eq(RowState.FREE), kill.eq(0)]

    def _victim(self, m: Module, runs: Signal, priorities: list[Signal]) -> None:
        """A tree, one level of it in each cycle; among equals the one with the highest number."""
        shape, rounds = self.victim.shape(), 0
        level = [Signal(shape, name=f"candidate_{number}") for number in range(len(runs))]
        for number, candidate in enumerate(level):
            m.d.comb += [
                candidate.row.eq(number),
                candidate.priority.eq(priorities[number]),
                candidate.valid.eq(runs[number]),
            ]
        while len(level) > 1:
            pairs = [level[i : i + 2] for i in range(0, len(level), 2)]
            level, rounds = [_lower(m, pair) for pair in pairs], rounds + 1
        m.d.comb += self.victim.eq(level[0])
        changes, recent = Signal(), Signal(rounds)
        m.d.comb += [
            changes.eq(self.opened.valid | self.stopped.valid | self.closed.valid),
            self.sure.eq(~recent.any()),
        ]
        m.d.sync += recent.eq(Cat(changes, recent))


def _lower(m: Module, pair: list[data.View]) -> data.View:
    """The one of lower priority, of those that are valid; a cycle later."""
    one, other = pair[0], pair[-1]
    lower, first = Signal(one.shape(), name="lower"), Signal(name="first")
    m.d.comb += first.eq(one.valid & (~other.valid | (one.priority < other.priority)))
    m.d.sync += lower.eq(Mux(first, one, other))
    return lower
