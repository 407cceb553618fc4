"""Proofs of the task table's slots (ASID-24, ASID-25)."""

from amaranth import Module, Mux, Signal
from amaranth.hdl import Cat, Value
from amaranth.lib import data

from signalbox.hw.config import Config
from signalbox.hw.task_unit.slot_table import RowState, SlotTable
from signalbox.tb.proofs.formal import (
    Assert,
    Assume,
    Cover,
    Inside,
    Proof,
    Wrap,
    anything,
    arbitrary,
)

__all__ = ["PROOFS"]

CONFIG = Config(slots=4, spare_rows=1, sms=1)
ROWS = CONFIG.rows


class SlotTableProof(Proof):
    """The task unit does one job at a time, with a row from a choice made after the last change.
    `busy` models the kernel status register table: a row gets blocks when it opens, or more while
    it runs, and loses them at any time."""

    name = "task_unit.slot_table"
    shows = (
        "as many slots are held as rows run, never more than there are; a row that is given away "
        "is free, one that is freed has no block, and is no unfinished task unless that had a "
        "fault or was killed; a killed row is stopped until it has no block to be placed; the "
        "victim is a row of the lowest priority; idle is said after all "
        "rows were free"
    )
    induction = 3
    cover = 20

    def build(self, m: Module, wrap: Wrap) -> None:
        self._dut = dut = SlotTable(CONFIG)
        self._inside = inside = Inside(dut)
        m.submodules.dut = wrap(dut)
        states = inside.signal("states", data.ArrayLayout(RowState, ROWS))
        self._states = [Value.cast(state) for state in states]
        self._running = inside.signal("running")
        self._busy, self._age = Signal(ROWS), Signal(2)
        arbitrary(m, dut.fault, "fault")
        arbitrary(m, dut.kills, "kills")
        arbitrary(m, dut.limit, "limit")
        arbitrary(m, dut.clears, "clears")
        arbitrary(m, dut.rests, "rests")
        m.d.comb += [Assume(dut.limit <= CONFIG.slots), dut.drained.eq(~self._busy)]
        self._events(m)
        self._table(m)
        self._choices(m)
        self._victim(m)
        idle = Signal(init=1)
        m.d.sync += idle.eq(Cat(state == RowState.FREE for state in self._states).all())
        was_first = Signal()
        m.d.sync += was_first.eq(1)
        m.d.comb += Assert(~was_first | (dut.idle == idle))

    def _is(self, row: Value, state: RowState) -> Value:
        return Cat(one == state for one in self._states).bit_select(row, 1)

    def _events(self, m: Module) -> None:
        """Events of the task unit."""
        dut, busy, counts = self._dut, self._busy, self._age == 2
        ends, stops = Signal(ROWS, name="may_end"), Signal(ROWS, name="may_stop")
        add = Signal(dut.closed.shape(), name="add")
        events = (dut.opened, dut.stopped, dut.closed, add)
        for n, event in enumerate(events):
            told = Signal(event.row.shape(), name=f"told_{n}")
            m.d.sync += told.eq(event.row)
            m.d.comb += [
                event.as_value().eq(anything(m, len(event.as_value()), f"event_{n}")),
                Assume(~event.valid | counts),
                Assume(event.row < ROWS),
                Assume(~event.valid | (event.row == told)),
            ]
        happens = Cat(event.valid for event in events)
        named = [
            Mux(counts & one.valid & sure, 1 << one.row, 0)
            for one, sure in (
                (dut.ended, 1),
                (dut.returning, 1),
                (dut.faulty, 1),
                (dut.victim, dut.sure),
            )
        ]
        m.d.comb += [
            Assume((happens & (happens - 1)) == 0),
            Assume(~dut.opened.valid | (dut.free.valid & (dut.opened.row == dut.free.row))),
            Assume(~dut.stopped.valid | stops.bit_select(dut.stopped.row, 1)),
            Assume(~dut.closed.valid | ends.bit_select(dut.closed.row, 1)),
            Assume(~add.valid | self._is(add.row, RowState.RUNS)),
            Assert(~dut.closed.valid | ~busy.bit_select(dut.closed.row, 1)),
        ]
        m.d.sync += [
            self._age.eq(Mux(happens.any(), 0, Mux(counts, 2, self._age + 1))),
            ends.eq(Mux(happens.any(), 0, ends | named[0] | named[1])),
            stops.eq(Mux(happens.any(), 0, stops | named[2] | named[3])),
        ]
        gets = Mux(dut.opened.valid, 1 << dut.opened.row, Mux(add.valid, 1 << add.row, 0))
        m.d.sync += busy.eq((busy & anything(m, ROWS, "stays")) | gets)
        for number, state in enumerate(self._states):
            m.d.comb += [
                Assert(~ends[number] | ((state != RowState.FREE) & ~busy[number])),
                Assert(~stops[number] | (state == RowState.RUNS) | dut.kill[number]),
                Assert(~stops[number] | (state != RowState.FREE)),
                Assert(~busy[number] | (state != RowState.FREE)),
                Assert(~dut.kill[number] | (state != RowState.FREE)),
            ]
        m.d.comb += Cover(dut.closed.valid & self._is(dut.closed.row, RowState.RETURNS))
        self._kills(m)

    def _kills(self, m: Module) -> None:
        """Rows with blocks that must be stopped for a kill: rows that run, and rows whose last stop
        left saved blocks."""
        dut, dropped, due = self._dut, Signal(ROWS, name="saves_none"), Signal(2, name="were_due")
        waits = Signal(ROWS, name="to_be_stopped")
        for number, state in enumerate(self._states):
            may_place = (state == RowState.RUNS) | ((state != RowState.FREE) & ~dropped[number])
            m.d.comb += waits[number].eq(dut.kill[number] & self._busy[number] & may_place)
        with m.If(dut.stopped.valid):
            m.d.sync += dropped.bit_select(dut.stopped.row, 1).eq(dut.stopped.drops)
        again = ~self._is(dut.stopped.row, RowState.RUNS)
        m.d.sync += due.eq(Cat(waits.any(), due))
        m.d.comb += [
            Assert(dut.faulty.valid == due[1]),
            Assert(dropped == self._inside.signal("dropped")),
            Cover(dut.stopped.valid & again),
        ]

    def _table(self, m: Module) -> None:
        states = self._states
        m.d.comb += [
            Assert(self._running == sum((state == RowState.RUNS for state in states), start=0)),
            Assert(self._running <= CONFIG.slots),
            Cover(self._running == CONFIG.slots),
        ]

    def _choices(self, m: Module) -> None:
        """Properties of the choices once they are valid."""
        dut, counts = self._dut, self._age == 2
        free, ended, returning = dut.free, dut.ended, dut.returning
        self._stays(m)
        before = [Signal(ROWS, name=f"cleared_{ago}_ago") for ago in (1, 2)]
        m.d.sync += [before[0].eq(dut.clears), before[1].eq(before[0])]
        m.d.comb += Assert(~free.valid | ~before[1].bit_select(free.row, 1))
        unfinished = self._is(ended.row, RowState.RETURNS)
        with m.If(counts):
            m.d.comb += [
                Assert(~free.valid | self._is(free.row, RowState.FREE)),
                Assert(~(free.valid & dut.crowded)),
                Assert(~free.valid | (self._running < CONFIG.slots)),
                Assert(~returning.valid | self._is(returning.row, RowState.RETURNS)),
                Assert(~dut.faulty.valid | ~self._is(dut.faulty.row, RowState.FREE)),
                Assert(~dut.faulty.valid | dut.kill.bit_select(dut.faulty.row, 1)),
                Assert(~(ended.valid & unfinished) | dut.kill.bit_select(ended.row, 1)),
            ]
            for choice in (ended, returning):
                with m.If(choice.valid):
                    m.d.comb += [
                        Assert(choice.row < ROWS),
                        Assert(~self._busy.bit_select(choice.row, 1)),
                        Assert(~self._is(choice.row, RowState.FREE)),
                    ]

    def _stays(self, m: Module) -> None:
        """During a job, the free row stays the same while no row opens or closes. A row begins to
        be cleared when it closes."""
        dut, calm = self._dut, Signal(range(5), name="calm")
        cleared, closed = Signal(ROWS, name="cleared_before"), Signal(ROWS, name="closed_before")
        m.d.sync += [
            cleared.eq(dut.clears),
            closed.eq(Mux(dut.closed.valid, 1 << dut.closed.row, 0)),
        ]
        m.d.comb += Assume((dut.clears & ~cleared & ~closed) == 0)
        changes = dut.rests | dut.opened.valid | dut.stopped.valid | dut.closed.valid
        was = Signal.like(dut.free.row, name="was_free")
        some, was_some = dut.free.valid | dut.crowded, Signal(name="was_some")
        m.d.sync += [
            calm.eq(Mux(changes, 0, Mux(calm == 4, 4, calm + 1))),
            was.eq(dut.free.row),
            was_some.eq(some),
        ]
        with m.If((calm == 4) & was_some & some):
            m.d.comb += Assert(dut.free.row == was)

    def _victim(self, m: Module) -> None:
        dut, counts = self._dut, self._age == 2
        runs = Cat(state == RowState.RUNS for state in self._states)
        priorities = [Signal(6, name=f"level_{number}") for number in range(ROWS)]
        with m.If(dut.opened.valid):
            with m.Switch(dut.opened.row):
                for number, priority in enumerate(priorities):
                    with m.Case(number):
                        m.d.sync += priority.eq(dut.opened.priority)
        for number, priority in enumerate(priorities):
            m.d.comb += Assert(self._inside.signal(f"priority_{number}") == priority)
        with m.If(counts & dut.sure):
            m.d.comb += Assert(dut.victim.valid == runs.any())
            for number, priority in enumerate(priorities):
                chosen = dut.victim.valid & (dut.victim.row == number)
                m.d.comb += [
                    Assert(~runs[number] | (priority >= dut.victim.priority)),
                    Assert(~chosen | (runs[number] & (priority == dut.victim.priority))),
                ]


PROOFS = [SlotTableProof()]
