"""Proofs that the control of a stop is bounded (PREEMPT-6)."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from amaranth import Cat, Module, Mux, Signal, Value

from signalbox.hw.config import STATE_LINE
from signalbox.hw.lib.onehot import encode
from signalbox.hw.sm.controller import SmController
from signalbox.hw.sm.core.state_transfer import Job, StateTransfer
from signalbox.hw.sm.isa import MASKS
from signalbox.hw.sm.timing.state_transfer import StateTransfer as TimingTransfer
from signalbox.tb.proofs.formal import (
    Assert,
    Assume,
    Cover,
    Inside,
    Proof,
    Wrap,
    surround,
)
from signalbox.tb.proofs.placement import TWO_SMS

__all__ = ["PROOFS"]

CONFIG = replace(TWO_SMS, save_places=2, data_width=512)
WHOLE = replace(CONFIG, sm_registers=65536, sm_shared=228 * 1024)
"""Configuration with the largest states of warps and blocks."""

_LINES = 8
"""Number of lines per unit of shared memory."""

_WORDS = 4
"""Words of a warp's state, or of a block's fates."""

_RETIRE = ("MASKS HERE", "STATE WRITTEN", "FATES WRITTEN")
_LOAD = ("STATE LOADED", "SHARED IN HERE")
_HERE, _DRAIN, _HEAR = "SHARED OUT HERE", "DRAIN", "WORD READ"
"""States in which a job waits for its instructions to retire (`_RETIRE`); for this and its loads
(`_LOAD`); for its accesses of shared memory (`_HERE`); for all its accesses (`_DRAIN`); for one
instruction (`_HEAR`)."""

_FIND = ("LOOK", "PLACE", "LINES", "OFFER")
"""States in which the timing core finds lines, in this order."""


class After(NamedTuple):
    """Facts that hold in a state of a job.

    Members
    -------
    idle, steps, waits : numbers of idle cycles, steps and waits so far.
    below : the instruction count in this state is less.
    holds : a further fact.
    """

    state: str
    idle: Value | int
    steps: Value | int
    waits: Value | int
    below: Value | int = 1
    holds: Value | int = 1


class StopProof(Proof):
    """A stop begins with its strobe, and ends when the block has left the table. The proof counts
    the cycles in between, except waits for warps that count as ended, for the core to accept a
    block or the stop, for the ends of the warps, for the state, and for the end of another block.

    The block table may do anything, except that a block without warps to start gets none again.
    """

    name = "sm.stop"
    shows = (
        "from the stop of a block until the core is told: at most 13 cycles, apart from those in "
        "which the core does not accept it, or a new block, and those in which withdrawn warps of "
        "one other block are counted, 3 per warp unless ends are not accepted; when its "
        "warps have ended, the core is told in the next; from `saved` until the block has left, 2, "
        "apart from ends of other blocks"
    )
    induction = 2
    cover = 17

    TELL = 12
    """Counted cycles before the core can be told."""

    def build(self, m: Module, wrap: Wrap) -> None:
        dut = SmController(CONFIG)
        inside = Inside(dut)
        inside.abstract("blocks")
        self._table, self._stop = inside.submodule("blocks"), inside.submodule("stop")
        withdrawal = Inside(inside.submodule("withdrawal"))
        stop = Inside(self._stop)
        self._state, self._quiet = stop.machine("stop"), stop.signal("is_quiet")
        self._counts, self._looked = (
            withdrawal.machine("withdrawal"),
            withdrawal.signal("looked_slot"),
        )
        self._go, self._offered = inside.signal("go"), inside.signal("offered")
        m.submodules.dut = wrap(dut)
        surround(m, dut, "dut")
        self._mine = Signal(name="mine_idle")
        slot, none = self._stop.slot, Signal(name="no_warps_to_start")
        withdrawn = (self._table.withdraw & slot).any()
        m.d.comb += [
            self._mine.eq((self._table.idle & slot).any()),
            Assume(~none | ~self._mine),
        ]
        m.d.sync += none.eq(slot.any() & (~self._mine | withdrawn))
        idle = self._cycles(m, dut)
        self._bound(m, dut, idle)

    def _cycles(self, m: Module, dut: SmController) -> Signal:
        """Cycles since the stop, without waits."""
        state, port, stop = self._state.ongoing, dut.port, self._stop
        idle, ended = Signal(6, name="idle_cycles"), Signal(name="all_ended")
        waits = _any((
            state("WITHDRAW") & self._mine & self._counts.ongoing("REST", "RESERVE", "COUNT"),
            state("WITHDRAW") & port.begin.valid & ~port.begin.ready,
            state("TELL") & ~port.stop.ready,
            state("QUIET") & ~ended,
            state("SAVING") & ~(port.saved & stop.slot).any(),
            state("RELEASE") & self._table.over.valid,
            state("ANSWER"),
        ))
        m.d.sync += [idle.eq(idle + ~waits), ended.eq(ended | self._table.quiet)]
        with m.If(state("SEEK")):
            m.d.sync += [idle.eq(1), ended.eq(0)]
        answer, asked = dut.link.stopped, Signal(name="asked")
        with m.If(state("SEEK") & dut.link.stop.valid):
            m.d.sync += asked.eq(1)
        with m.If(answer.valid & answer.ready):
            m.d.sync += asked.eq(0)
        m.d.comb += [
            Assert(asked == ~state("SEEK")),
            Assert(state("SEEK", "CHECK") | (ended == self._quiet)),
        ]
        return idle

    def _bound(self, m: Module, dut: SmController, idle: Signal) -> None:
        state, port, stop = self._state.ongoing, dut.port, self._stop
        begins, left = port.begin.valid, Signal(4, name="cycles_left")
        looks = self._looked == encode(stop.slot)
        m.d.comb += left.eq(1 + (self._go.any() | begins))
        # Maximum remaining cycles of a withdrawal, at the stopped block or at another.
        with m.If(self._mine):
            m.d.comb += left.eq(6)
            for name, here, elsewhere in (
                ("TAKE", 2, 7),
                ("JUDGE", 3, 8),
                ("LOOK", 4, 9),
                ("HOLD", 5, 10),
            ):
                with m.If(self._counts.ongoing(name)):
                    m.d.comb += left.eq(Mux(looks, here, elsewhere))
        m.d.comb += [
            Assert(~begins | self._go.any() | self._offered),
            Assert(~(stop.slot & (stop.slot - 1)).any()),
            Assert(stop.slot.any() == ~state("SEEK", "ANSWER")),
            Assert(~state("CHECK") | (idle == 1)),
            Assert(~state("WITHDRAW") | (idle + left <= self.TELL)),
            Assert(~state("TELL") | (idle <= self.TELL)),
            Assert(~port.stop.valid | state("TELL")),
            Assert(~state("QUIET") | (idle <= self.TELL + 1)),
            Assert(~state("SAVING") | (idle <= self.TELL + 2)),
            Assert(~state("RELEASE") | (idle <= self.TELL + 3)),
            Assert(~state("ANSWER") | (idle <= self.TELL + 4)),
            Cover(state("TELL") & (idle == self.TELL)),
            Cover(stop.release.valid),
        ]


class SaveProof(Proof):
    """Each cycle of a job of the supplied core's `StateTransfer` is of one of three kinds:

    - step: an instruction is accepted.
    - wait: the offered instruction is not accepted, or there is no room for its access; or
      instructions have not retired, accesses have not completed, or a result is not accepted.
    - idle: all other cycles.

    The tables give for each state the numbers of idle cycles and of steps so far, and how often the
    job has waited for instructions or accesses.

    Assumed: the executor retires only instructions under way, and memory completes only accesses
    under way; the counters do not overflow; every warp has registers.
    """

    name = "sm.save"
    shows = (
        "the supplied core saves a warp with R registers and D masks by 5 + 2 D + R instructions, "
        "in 11 further cycles and 2 waits for its instructions; a block with U units of shared "
        "memory by 5 + 16 U, in 9 + 3 U and 2 + U waits, the last one for all accesses; what can "
        "be saved is chosen at once, before what can be restored; a restore that has begun takes "
        "5 + 2 D + R, 22 + 2 D and 6 + D, or 5 + 16 U, 22 + 3 U and 6 + U; for any R, D and U"
    )
    induction = 2
    cover = 13

    def build(self, m: Module, wrap: Wrap) -> None:
        dut = StateTransfer(WHOLE)
        inside = Inside(dut)
        self._job, self._state = inside.signal("job", Job), inside.machine("transfer")
        self._count, self._unit = inside.signal("count"), inside.signal("unit")
        self._masks, self._registers = inside.signal("depth"), inside.signal("registers")
        self._units, self._bad = inside.signal("shared_units"), inside.signal("bad")
        self._idle, self._steps = Signal(12, name="idle_cycles"), Signal(12, name="steps")
        self._waits = Signal(9, name="waits")
        amount = inside.submodule("amounts").read_ports[0].data
        inside.abstract("fates")
        m.submodules.dut = wrap(dut)
        surround(m, dut, "dut")
        with m.If(self._state.ongoing("CONTEXT")):
            m.d.comb += [Assume(amount != 0), Assume(dut.context.depth <= MASKS)]
        self._cycles(m, dut, inside, *self._under_way(m, dut, inside))
        tables = {
            Job.SAVE: self._save(),
            Job.CLOSE: self._close(),
            Job.OPEN: self._open(),
            Job.RESTORE: self._restore(),
        }
        for job, table in tables.items():
            self._check(m, job, table)
        warps = _any(self._job == job for job in (Job.SAVE, Job.RESTORE))
        early = self._state.ongoing("CHOOSE", "WARP", "CONTEXT")
        m.d.comb += Assert(~warps | early | (self._registers != 0))
        for state in {after.state for table in tables.values() for after in table}:
            jobs = [job for job, table in tables.items() if state in {one.state for one in table}]
            m.d.comb += Assert(~self._state.ongoing(state) | _any(self._job == job for job in jobs))
        self._choice(m, dut, inside)

    def _under_way(self, m: Module, dut: StateTransfer, inside: Inside) -> tuple[Any, ...]:
        """Numbers of instructions, memory accesses and shared memory accesses under way; and
        whether the only instruction retires."""
        sent, retires = dut.o.valid & dut.o.ready, dut.retired.valid & dut.retired.transfer
        ends, shared = dut.done.valid & dut.done.what.transfer, dut.done.shared
        asked, ended = inside.signal("asked"), inside.signal("ended")
        counts = []
        for name, begins, over, known in (
            ("instructions", sent, retires, inside.signal("flying")),
            ("accesses", sent & dut.wants.memory, ends & ~shared, (asked - ended)[: len(asked)]),
            ("inside", sent & dut.wants.shared, ends & shared, inside.signal("inside")),
        ):
            count = Signal(len(known), name=f"{name}_under_way")
            m.d.sync += count.eq(count + begins - over)
            m.d.comb += [
                Assume(~over | (count != 0)),
                Assume(~begins | ~count.all()),
                Assert(known == count),
            ]
            counts.append(count)
        m.d.comb += Assert(~self._state.ongoing(_HEAR) | (counts[0] != 0))
        return *(count != 0 for count in counts), retires & (counts[0] == 1)

    def _cycles(
        self,
        m: Module,
        dut: StateTransfer,
        inside: Inside,
        instructions: Value,
        accesses: Value,
        shared: Value,
        heard: Value,
    ) -> None:
        """Count idle cycles, steps and waits of the job, from its choice on."""
        state = self._state.ongoing
        waits = _any((
            state(*_RETIRE, *_LOAD, _HERE, _DRAIN) & instructions,
            state(*_LOAD, _DRAIN) & accesses,
            state(_HERE, _DRAIN) & shared,
            state(_HEAR) & ~heard,
        ))
        refused = _any((
            dut.o.valid & ~dut.o.ready,
            (Value.cast(dut.wants) & ~Value.cast(dut.room)).any(),
            state("DONE") & self._bad & ~dut.fault.ready,
            state("REPORT") & dut.put.valid & ~dut.put.ready,
            state("REPORT") & dut.lost.valid & ~dut.lost.ready,
            state("FATES") & ~inside.submodule("fates").load.ready,
        ))
        step = dut.o.valid & dut.o.ready
        over = state(*_RETIRE, *_LOAD, _HERE, _DRAIN, _HEAR) & ~waits
        m.d.sync += [
            self._idle.eq(self._idle + ~(step | refused | waits)),
            self._steps.eq(self._steps + step),
            self._waits.eq(self._waits + over),
        ]
        with m.If(state("CHOOSE")):
            m.d.sync += [self._idle.eq(1), self._steps.eq(0), self._waits.eq(0)]

    def _check(self, m: Module, job: Job, table: Sequence[After]) -> None:
        for after in table:
            with m.If(self._state.ongoing(after.state) & (self._job == job)):
                m.d.comb += [
                    Assert(self._idle == after.idle),
                    Assert(self._steps == after.steps),
                    Assert(self._waits == after.waits),
                    Assert(self._count < after.below),
                    Assert(after.holds),
                ]

    def _find(self, *, warp: bool) -> list[After]:
        """States that find the place of a warp or a block."""
        states = (*(("WARP", "CONTEXT") if warp else ()), "SLOT", "PLACE", "LINE")
        return [After(state, n, 0, 0, 1, self._unit == 0) for n, state in enumerate(states, 1)]

    def _save(self) -> list[After]:
        """A warp is saved in 11 idle cycles, including one in the last state. The job does not wait
        for its stores."""
        count, masks, registers = self._count, self._masks, self._registers
        all_ = _WORDS + 2 * masks
        return [
            *self._find(warp=True),
            After("STATE OUT", 6, count, 0, _WORDS),
            After("MASKS IN", 6, _WORDS + count, 0, masks + 1),
            After("MASKS HERE", 7, _WORDS + masks, 0),
            After("MASKS OUT", 8, _WORDS + masks + count, 1, masks + 1),
            After("STATE WRITTEN", 9, all_, 1),
            After("STATE SAVED", 10, all_, 2),
            After("REGISTERS OUT", 10, all_ + 1 + count, 2, registers),
            After("SENT", 10, all_ + 1 + registers, 2),
        ]

    def _move_shared(
        self, state: str, idle: Value | int, steps: Value | int, waits: Value | int
    ) -> list[After]:
        """Shared memory of a block, unit by unit."""
        count, unit, more = self._count, self._unit, self._unit < self._units
        idle, steps, waits = idle + 3 * unit, steps + 2 * _LINES * unit, waits + unit
        return [
            After(state, idle, steps, waits, 1, unit <= self._units),
            After(f"{state} LOAD", idle + 1, steps + count, waits, _LINES, more),
            After(f"{state} HERE", idle + 1, steps + _LINES, waits, 1, more),
            After(f"{state} STORE", idle + 2, steps + _LINES + count, waits + 1, _LINES, more),
            After(f"{state} DONE", idle + 2, steps + 2 * _LINES, waits + 1, 1, more),
        ]

    def _close(self) -> list[After]:
        """A block is saved in 9 idle cycles and 3 per unit. Nothing of a killed row is saved."""
        count, units = self._count, self._units
        idle, steps = 5 + 3 * units, 2 * _LINES * units
        drops, all_ = self._steps == 0, steps + _WORDS + 1
        over = Mux(drops, 0, units + 2)
        return [
            *self._find(warp=False),
            *self._move_shared("SHARED OUT", 4, 0, 0),
            After("FATES OUT", idle, steps + count, units, _WORDS),
            After("FATES WRITTEN", idle, steps + _WORDS, units),
            After("FATES SAVED", idle + 1, steps + _WORDS, units + 1),
            After("DRAIN", idle + 1, all_, units + 1),
            After("DONE", Mux(drops, 4, idle + 2), Mux(drops, 0, all_), over),
            After("REPORT", Mux(drops, 5, idle + 3), Mux(drops, 0, all_), over),
        ]

    def _read_state(self, idle: Value | int, masks: Value | int) -> list[After]:
        """First line of a warp or a block, word by word."""
        count, new = self._count, self._unit == 0
        words, more = Mux(count < _WORDS, count, _WORDS), Mux(count < _WORDS, 0, count - _WORDS)
        idle, steps, waits = idle + 3 * words + 2 * more, 1 + words + 2 * more, 1 + words + more
        below = Mux(count < _WORDS, _WORDS, _WORDS + masks)
        known = Mux(count <= _WORDS, _WORDS, _WORDS + masks) + 1
        return [
            After("STATE IN", idle, 0, 0, 1, new),
            After("STATE LOADED", idle, 1, 0, 1, new),
            After("WORD", idle + 1, steps, waits, below, new),
            After("WORD READ", idle + 1, steps + 1, waits, below, new),
            After("WORD KNOWN", idle + 2, steps + 1, waits + 1, below, new),
            After("WORD NEXT", idle, steps, waits, known, new & (count != 0)),
        ]

    def _open(self) -> list[After]:
        """A block is restored in 22 idle cycles and 3 per unit."""
        units = self._units
        idle, steps, waits = 19 + 3 * units, 1 + _WORDS + 2 * _LINES * units, 1 + _WORDS + units
        return [
            *self._find(warp=False),
            *self._read_state(4, 0),
            After("FATES", 17, 1 + _WORDS, 1 + _WORDS, 1, self._unit == 0),
            *self._move_shared("SHARED IN", 18, 1 + _WORDS, 1 + _WORDS),
            After("DRAIN", idle, steps, waits),
            After("DONE", idle + 1, steps, waits + 1),
            After("REPORT", idle + 2, steps, waits + 1),
        ]

    def _restore(self) -> list[After]:
        """A warp is restored in 22 idle cycles and 2 per mask."""
        count, masks, registers = self._count, self._masks, self._registers
        idle, steps, waits = 19 + 2 * masks, 1 + _WORDS + 2 * masks, 1 + _WORDS + masks
        return [
            *self._find(warp=True),
            *self._read_state(6, masks),
            After("REGISTERS IN", idle, steps + count, waits, registers),
            After("DRAIN", idle, steps + registers, waits),
            After("DONE", idle + 1, steps + registers, waits + 1),
            After("REPORT", idle + 2, steps + registers, waits + 1),
        ]

    def _choice(self, m: Module, dut: StateTransfer, inside: Inside) -> None:
        """A choice is made at once: a warp if another can be under way, a block when all of its
        warps have arrived."""
        issued, closing = inside.signal("issued"), inside.signal("closing_blocks")
        could, state = Signal(name="could_save"), self._state.ongoing
        warps = (dut.saving & ~issued).any() & inside.submodule("way").i.ready
        m.d.sync += could.eq(state("CHOOSE") & (warps | (closing.any() & ~issued.any())))
        saves = _any(self._job == job for job in (Job.SAVE, Job.CLOSE))
        m.d.comb += [
            Assert(~could | (state("WARP", "SLOT") & saves)),
            Assert(dut.saved.any() == (state("REPORT") & (self._job == Job.CLOSE))),
            Cover(state("MASKS IN")),
            Cover(state("FATES WRITTEN")),
        ]


class TimingSaveProof(Proof):
    """Saving part of the timing core's `StateTransfer`. A warp is handed over only while not all
    warps wait; the last beat of a state is answered once, after its acceptance.
    """

    name = "sm.timing_save"
    shows = (
        "the timing core offers the beats of a warp's or a block's state one per cycle, as many as "
        "its lines have: 1 + 4 per unit of registers, 1 + 8 per unit of shared memory; the first "
        "one at most 6 cycles after the warp was handed over, the warps of a block have ended, or "
        "the previous state was accepted, if fewer than 8 are under way; a state is saved in the "
        "cycle of its last answer, or of the acceptance of its fault"
    )
    induction = 3
    cover = 14

    def build(self, m: Module, wrap: Wrap) -> None:
        dut = TimingTransfer(WHOLE)
        inside = Inside(dut)
        inside.abstract("fates")
        self._saves, self._drops = inside.submodule("saves"), inside.signal("drops")
        saves = Inside(self._saves)
        self._lines, self._waiting = saves.machine("lines").ongoing, saves.signal("waiting")
        beats = Inside(inside.submodule("save_beats"))
        self._at, self._left = beats.signal("at"), beats.signal("left")
        self._queue, self._order = (
            inside.submodule(name) for name in ("stopped_warps", "save_order")
        )
        m.submodules.dut = wrap(dut)
        surround(m, dut, "dut")
        self._gaps(m, dut)
        self._beats(m, dut)
        self._answers(m, dut)

    def _gaps(self, m: Module, dut: TimingTransfer) -> None:
        """Consecutive cycles without a beat, although there is something to be saved and room
        among the states under way."""
        state, queue = self._lines, self._queue
        idle, gap = Signal(4, name="idle_cycles"), Signal(name="gap")
        some = ~state("CHOOSE") | self._waiting.any() | (queue.level != 0)
        m.d.comb += gap.eq(some & self._order.i.ready & ~dut.write.valid & ~self._drops)
        m.d.sync += idle.eq(Mux(gap, idle + 1, 0))
        m.d.comb += [
            Assume(~dut.save.valid | (queue.level < CONFIG.sm_warps)),
            Assert(~dut.save.valid | queue.i.ready),
            Assert(state("CHOOSE", *_FIND)),
            Assert(~(gap & state("CHOOSE")) | (idle <= (self._waiting.any() | queue.o.valid))),
            *(Assert(~(gap & state(name)) | (idle <= n)) for n, name in enumerate(_FIND, 2)),
            Assert(idle <= len(_FIND) + 2),
        ]

    def _beats(self, m: Module, dut: TimingTransfer) -> None:
        state, place, o, write = self._lines, self._saves.place, self._saves.o, dut.write
        per_line = STATE_LINE // CONFIG.beat_bytes
        lines, left = Signal(16, name="lines_of_state"), Signal(16, name="lines_left")
        number = Signal(range(per_line), name="number_in_line")
        goes, all_ = o.valid & o.ready & ~self._drops, Mux(o.p.killed, 1, lines)
        with m.If(state("PLACE")):
            m.d.sync += lines.eq(1 + Mux(o.p.block, _LINES * place.shared, 4 * place.registers))
        with m.If(goes):
            m.d.sync += [left.eq(all_), number.eq(0)]
        with m.Elif(write.ready & write.valid):
            m.d.sync += [left.eq(left - (number == per_line - 1)), number.eq(number + 1)]
        m.d.comb += [
            Assert(~state("LINES", "OFFER") | (lines != 0)),
            Assert(~state("LINES") | (o.p.count == lines)),
            Assert(~state("OFFER") | (o.p.count == all_)),
            Assert(write.valid == (left != 0)),
            Assert(~write.valid | ((left == self._left) & (number == self._at[: len(number)]))),
            Assert(~write.valid | (write.p.begins == (number == 0))),
            Assert(~write.valid | (write.p.ends == (number == per_line - 1))),
            Assert(~write.valid | (write.p.last == (left == 1))),
            Assert(~(goes & write.valid) | (write.ready & write.p.ends & write.p.last)),
        ]

    def _answers(self, m: Module, dut: TimingTransfer) -> None:
        write, written, order, last = dut.write, dut.written, self._order, dut.last[0]
        sent, asked = Signal(name="sent"), Signal(4, name="unanswered")
        ends = written.valid & written.p.last
        over = ends & written.ready
        m.d.comb += sent.eq(write.valid & write.ready & write.p.last & write.p.ends)
        m.d.sync += asked.eq(asked + sent - over)
        m.d.comb += [
            Assume(~ends | (asked != 0)),
            Assert(order.level == asked + write.valid),
            Assert(~ends | (order.o.valid & (written.ready == (last.ready | ~last.valid)))),
            Assert(~(over & order.o.p.block) | (dut.saved & (1 << order.o.p.owner.slot)).any()),
            Cover(over & order.o.p.block),
        ]


def _any(bits: Any) -> Value:
    return Cat(*bits).any()


PROOFS = [SaveProof(), StopProof(), TimingSaveProof()]
