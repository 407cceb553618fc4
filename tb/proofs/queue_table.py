"""Proof of the table of open queues (ASID-26)."""

from typing import ClassVar
from unittest.mock import patch

from amaranth import Module, Mux, Signal, Value
from amaranth.hdl import Cat
from amaranth.lib import data

from signalbox.hw.config import Config
from signalbox.hw.errors import Refusal
from signalbox.hw.qmd import SkedCheck
from signalbox.hw.task_unit import queue_table
from signalbox.hw.task_unit.queue_table import QueueNext, QueueOp, QueuePlace, QueueTable
from signalbox.tb.proofs.formal import (
    AnyConst,
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

CONTEXTS, WINDOW = 2, 2
NARROW = {"_COUNT_BITS": 6, "BLOCK_COUNT_BITS": 7, "_START_BITS": 4}
"""Widths of counts in bits. In the machine they are 31, 32 and 24 bits; with these the solver does
not finish."""
ENTRIES, BLOCKS, STARTS = NARROW.values()
SIZE, GROUP = 16, 4
"""Maxima of CIRCULAR_QUEUE_SIZE and QUEUE_ENTRIES_PER_CTA_LOG2. The maximum 4 covers shifts in both
halves of the products."""
SEARCHES = (QueueOp.ENTER, QueueOp.APPEND)
SEEKING = ("SEEK", "FOUND", "ROOM")
READING = ("READ", "LOOK")
KEEPING = ("WEIGH", "COMPARE", "CHANGE")
CHANGED = ("NEAR", "FAR", "TOTAL", "COUNT", "DECIDE")
CHOSEN = (*READING, *KEEPING, *CHANGED, "DONE")
"""`SEEKING` … `CHOSEN`, groups of states: the table searches; it reads the queue; it holds the
unchanged queue; it holds the queue as changed by the request; it has found the queue (`CHOSEN`)."""


class QueueTableProof(Proof):
    """For any place of a table of two, chosen by the solver, with narrow counts and two contexts.
    The number of entries appended at once fits into a count.

    Assumptions on the task unit: during a request its inputs do not change, and no queue leaves.
    Assumptions on the queue in that place: TAKE is requested if the last answer sent the queue to a
    list, DRAIN if it is in a row, UNDO directly after the APPEND that sent it to its list, RECALL
    if it is open. A stopped row continues at one of the blocks given to it, or after them. A record
    that enters has been checked, so its entries have room. Requests for other places, `runs`, and
    the leaving of queues are unconstrained. `oldest` models the oldest unfinished block of the
    queue's row: it moves at any time, ADVANCE gives it or an earlier one, and DRAIN comes when
    there is none.

    Attributes
    ----------
    places : number of places in the table.
    """

    places: ClassVar[int] = 2

    name = "task_unit.queue_table"
    shows = (
        "blocks that are handed to rows are consecutive from 0 on, each has its entries, and none "
        "is forgotten; at most a window of them is not done; "
        "a queue ends once, closed, with all blocks done and all entries freed; "
        "freed entries are those before the oldest unfinished block, and never fewer than before; "
        "no place is given twice, and one is "
        "kept for each other context that has none; none is open when it is said so; every "
        "request is answered, in as many cycles as the table says"
    )
    induction = 2
    cover = 24
    long = True

    def build(self, m: Module, wrap: Wrap) -> None:
        config = Config(
            contexts=CONTEXTS,
            queues=self.places,
            queue_window=WINDOW,
            slots=4,
            spare_rows=1,
            sms=1,
        )
        with patch.multiple(queue_table, **NARROW):
            self._dut = dut = QueueTable(config)
            inside = Inside(dut)
        self._state, self._inside = inside.machine("queues"), inside
        table = inside.submodule("table")
        self._shape = table.shape
        self._asked = inside.signal("asked", dut.request.p.shape())
        self._current = inside.signal("kept", self._shape)
        self._held, self._step = inside.signal("open_queues"), inside.signal("step")
        m.submodules.dut = wrap(dut)
        self._table = []
        for number in range(self.places):
            port = table.read_port(domain="comb")
            m.d.comb += port.addr.eq(number)
            self._table.append(port.data)
        self._queue = Signal(config.queue_bits, name="followed")
        m.d.comb += [self._queue.eq(AnyConst(config.queue_bits)), Assume(self._queue < self.places)]
        self._kept = Signal(self._shape, name="model")
        self._open, self._ended = Signal(name="is_open"), Signal(name="has_ended")
        self._woken, self._before = Signal(name="woken"), Signal(ENTRIES, name="put_before")
        self._oldest, self._brought = Signal(BLOCKS, name="oldest"), Signal(8, name="brought")
        self._then = Signal(self._shape, name="model_then")
        self._inputs(m)
        self._protocol(m)
        self._change(m)
        self._steps(m)
        self._answers(m)
        self._products(m)
        self._check(m)
        self._follow(m)
        self._counts(m)
        self._search(m)
        self._ends(m)

    def _asks(self, *ops: QueueOp) -> Value:
        """The current request is one of these."""
        return Cat(self._asked.op == op for op in ops).any()

    @property
    def _busy(self) -> Value:
        return ~self._state.ongoing("IDLE")

    @property
    def _done(self) -> Value:
        """A request has been completed."""
        return self._dut.done & (self._dut.verdict.refusal == Refusal.NONE)

    @property
    def _mine(self) -> Value:
        """The request is for the followed queue."""
        return self._dut.queue == self._queue

    def _inputs(self, m: Module) -> None:
        """Inputs for any queue."""
        dut = self._dut
        for name in ("task", "context", "level", "span", "record", "runs", "leave"):
            arbitrary(m, getattr(dut, name), name)
        arbitrary(m, dut.request.valid, "request")
        arbitrary(m, dut.request.p, "request_payload")
        record = dut.record
        fields = (record.CIRCULAR_QUEUE_SIZE, record.QUEUE_ENTRIES_PER_CTA_LOG2, record.INNER_PUT)
        for number, port in enumerate((dut.task, dut.context, dut.level, dut.span, *fields)):
            value = Value.cast(port)
            before = Signal(len(value), name=f"before_{number}")
            m.d.sync += before.eq(value)
            m.d.comb += Assume(~self._busy | (value == before))
        m.d.comb += [
            Assume(dut.context < CONTEXTS),
            Assume(Cat(dut.request.p.op == op for op in QueueOp).any()),
            Assume(dut.request.p.queue < self.places),
            Assume(dut.leave.queue < self.places),
            Assume(~(dut.leave.valid & (self._busy | dut.request.valid))),
            Assume(record.INNER_PUT <= record.CIRCULAR_QUEUE_SIZE),
            Assume(dut.span.start < 1 << STARTS),
            Assume(dut.span.count < 1 << ENTRIES),
            Assume(record.CIRCULAR_QUEUE_SIZE <= SIZE),
            Assume(record.QUEUE_ENTRIES_PER_CTA_LOG2 <= GROUP),
        ]

    def _protocol(self, m: Module) -> None:
        """The order of requests for the queue, when they are accepted and when they are
        executed."""
        dut, kept = self._dut, self._kept
        for check, when, request, queue in (
            (Assume, dut.request.valid & dut.request.ready, dut.request.p, dut.request.p.queue),
            (Assert, self._busy, self._asked, dut.queue),
        ):
            ops = {op: when & (queue == self._queue) & (request.op == op) for op in QueueOp}
            last = Mux(request.stopped, request.next, kept.taken)
            drains, advances = ops[QueueOp.DRAIN], ops[QueueOp.ADVANCE]
            m.d.comb += [
                check(~ops[QueueOp.TAKE] | (self._open & (kept.place == QueuePlace.LIST))),
                check(~ops[QueueOp.DRAIN] | (self._open & (kept.place == QueuePlace.ROW))),
                check(~ops[QueueOp.UNDO] | (self._open & self._woken)),
                check(~ops[QueueOp.UNDO] | (dut.span.count == self._brought)),
                check(~ops[QueueOp.RECALL] | self._open),
                check(~drains | ((last == self._oldest) & (last <= kept.taken))),
                check(~advances | (self._open & (kept.place == QueuePlace.ROW))),
                check(~advances | (self._moved(request) <= self._oldest)),
            ]

    def _moved(self, request: data.View) -> Value:
        """The oldest unfinished block given by the request: at or after the last known one."""
        done = self._kept.done
        return (done + (request.oldest - done)[: len(request.oldest)])[:BLOCKS]

    def _change(self, m: Module) -> None:
        """The queue after the request, except for the blocks given out and for its location."""
        dut, kept, then = self._dut, self._kept, self._then
        span, record = dut.span, dut.record
        m.d.comb += then.eq(kept)
        with m.Switch(self._asked.op):
            with m.Case(QueueOp.ENTER):
                m.d.comb += [
                    then.eq(0),
                    then.task.eq(dut.task),
                    then.context.eq(dut.context),
                    then.level.eq(dut.level),
                    then.size.eq(record.CIRCULAR_QUEUE_SIZE),
                    then.group.eq(record.QUEUE_ENTRIES_PER_CTA_LOG2),
                    then.put.eq(record.INNER_PUT),
                ]
            with m.Case(QueueOp.APPEND):
                m.d.comb += [then.put.eq(kept.put + span.count), then.closed.eq(span.count == 0)]
            with m.Case(QueueOp.UNDO):
                m.d.comb += [
                    then.put.eq(self._before),
                    then.closed.eq(0),
                    then.place.eq(QueuePlace.REST),
                ]
            with m.Case(QueueOp.DRAIN):
                with m.If(self._asked.stopped):
                    m.d.comb += then.taken.eq(self._asked.next)
                m.d.comb += then.done.eq(then.taken)
            with m.Case(QueueOp.ADVANCE):
                m.d.comb += then.done.eq(self._moved(self._asked))

    def _steps(self, m: Module) -> None:
        """Invariants of each state."""
        dut, asked = self._dut, self._asked
        refused = dut.verdict.refusal != Refusal.NONE
        checked = dut.verdict.refusal == Refusal.CHECK
        searches = self._asks(*SEARCHES)
        table = Signal(self._shape, name="looked_at")
        m.d.comb += table.eq(self._table[0])
        for number, place in enumerate(self._table):
            with m.If(dut.queue == number):
                m.d.comb += table.eq(place)
        enters = self._asks(QueueOp.ENTER)
        record = Mux(enters, own(dut.task, dut.context), own(table.task, table.context))
        carried = self._state.ongoing(*CHOSEN) & self._mine & (~refused | checked)
        current = self._current
        kept = Value.cast(current)
        with m.If(self._mine & ~refused):
            m.d.comb += [
                Assert(~self._state.ongoing(*KEEPING) | enters | (kept == Value.cast(self._kept))),
                Assert(~self._state.ongoing(*CHANGED) | (kept == Value.cast(self._then))),
            ]
        same = own(current.task, current.context) == record
        m.d.comb += [
            Assert(dut.done == self._state.ongoing("DONE")),
            Assert(~self._state.ongoing(*KEEPING) | enters | same),
            Assert(~self._state.ongoing(*CHANGED) | same),
            Assert(~self._state.ongoing("WEIGH", "COMPARE") | self._asks(QueueOp.APPEND)),
            Assert(Cat(asked.op == op for op in QueueOp).any()),
            Assert(~self._state.ongoing(*SEEKING) | searches),
            Assert(~self._state.ongoing(*READING) | ~enters),
            Assert(~self._state.ongoing(*SEEKING, *READING, *KEEPING) | ~refused),
            Assert(~(self._state.ongoing(*CHANGED) & refused) | checked),
            Assert(~(self._busy & checked) | self._asks(QueueOp.APPEND)),
            Assert(~(self._busy & ~searches) | (dut.queue == asked.queue)),
            Assert(
                ~self._state.ongoing(*CHOSEN) | (refused & ~checked) | (dut.queue < self.places)
            ),
            Assert(~(carried & ~enters) | self._open),
            Assert(~(carried & enters) | ~self._open),
        ]
        m.d.comb += Assert(~self._open | (Value.cast(self._at()) == Value.cast(self._kept)))

    def _answers(self, m: Module) -> None:
        """Upper bounds for the cycle of each state, from the request on. So each request is
        answered."""
        dut, places, enters = self._dut, self.places, self._asks(QueueOp.ENTER)
        asked, cycles = Signal(name="is_asked"), Signal(6, name="cycles_since")
        m.d.sync += [
            asked.eq((dut.request.valid & dut.request.ready) | (asked & ~dut.done)),
            cycles.eq(Mux(asked, cycles + 1, 1)),
        ]
        m.d.comb += [
            Assert(asked == self._busy),
            Assert(~self._state.ongoing("SEEK") | (cycles == self._step + 1)),
            Assert(~self._state.ongoing("FOUND", "ROOM") | (cycles <= places + 3)),
        ]
        for number, state in enumerate(CHOSEN, 1):
            direct = number if state in READING else number - 2  # two fewer states
            found = number + places + 3
            most = Mux(self._asks(*SEARCHES), Mux(enters, found - 4, found), direct)
            m.d.comb += Assert(~self._state.ongoing(state) | (cycles <= most))

    def _products(self, m: Module) -> None:
        """Intermediate values of the decision, each in the states that use it."""
        dut, kept, then = self._dut, self._current, self._then
        after, room, joins, much = (
            self._inside.signal(name) for name in ("after", "room", "joins", "much")
        )
        blocks_now, begun_now, odd, none = (
            self._inside.signal(name) for name in ("total", "begun", "odd", "none")
        )
        window_end, clips, full, all_done = (
            self._inside.signal(name) for name in ("window_end", "clips", "full", "all_done")
        )
        span, total = dut.span, blocks(then)
        near, begun = then.group[:2], (then.done << then.group)[:ENTRIES]
        end = then.done + WINDOW
        part = (then.put & ((1 << then.group) - 1)).any()
        with m.If(
            self._state.ongoing("COMPARE", "CHANGE") & self._mine & self._asks(QueueOp.APPEND)
        ):
            m.d.comb += [
                Assert(after == kept.put + span.count),
                Assert(room == kept.freed + kept.size),
                Assert(joins == (span.behind | (span.start[:STARTS] == kept.put[:STARTS]))),
            ]
            with m.If(self._state.ongoing("CHANGE")):
                m.d.comb += Assert(much == ((after > room) | after[ENTRIES]))
        with m.If(self._mine & (dut.verdict.refusal == Refusal.NONE)):
            with m.If(self._state.ongoing("FAR")):
                m.d.comb += [
                    Assert(blocks_now == then.put >> near),
                    Assert(begun_now == (then.done << near)[:ENTRIES]),
                ]
            with m.If(self._state.ongoing("TOTAL")):
                m.d.comb += [
                    Assert(blocks_now == then.put >> then.group),
                    Assert(odd == (then.closed & part)),
                ]
            with m.If(self._state.ongoing("TOTAL", "COUNT", "DECIDE")):
                m.d.comb += Assert(begun_now == begun)
            with m.If(self._state.ongoing("COUNT", "DECIDE")):
                m.d.comb += Assert(blocks_now == total)
            with m.If(self._state.ongoing("FAR", "TOTAL", "COUNT", "DECIDE")):
                m.d.comb += Assert(window_end == end)
            with m.If(self._state.ongoing("DECIDE")):
                m.d.comb += [
                    Assert(dut.blocks == (total - then.taken)[:BLOCKS]),
                    Assert(none == (total == then.taken)),
                    Assert(clips == (total > end)),
                    Assert(full == (end == then.taken)),
                    Assert(all_done == (total == then.done)),
                ]

    def _check(self, m: Module) -> None:
        """An append continues at the end of the queue, and must have room."""
        dut, kept, span = self._dut, self._kept, self._dut.span
        after = Signal(ENTRIES + 8, name="after")
        wrong, late = Signal(name="is_wrong"), Signal(name="is_late")
        m.d.comb += [
            after.eq(kept.put + span.count),
            late.eq(~span.behind & (span.start[:STARTS] != kept.put[:STARTS])),
            wrong.eq(late | kept.closed | (after - kept.freed > kept.size) | after[ENTRIES]),
        ]
        appends = self._state.ongoing(*CHANGED, "DONE") & self._mine & self._asks(QueueOp.APPEND)
        with m.If(appends & (dut.verdict.refusal != Refusal.QUEUE)):
            m.d.comb += [
                Assert((dut.verdict.refusal == Refusal.CHECK) == wrong),
                Assert(~late | (dut.verdict.check == SkedCheck.SPAN)),
                Assert(~wrong | late | (dut.verdict.check == SkedCheck.QUEUE_GET_PUT)),
            ]

    def _at(self) -> data.View:
        """The table's entry for the queue."""
        words = Cat(Value.cast(place) for place in self._table)
        word = words.word_select(self._queue, len(Value.cast(self._table[0])))
        return data.View(self._shape, word)

    def _follow(self, m: Module) -> None:
        """Update the queue from the outputs."""
        dut, kept, then = self._dut, self._kept, self._then
        done, outcome = self._done & self._mine, dut.outcome
        leaves = dut.leave.valid & (dut.leave.queue == self._queue)
        gives = self._asks(QueueOp.TAKE) | (outcome == QueueNext.ADD)
        request = dut.request
        asks = request.valid & request.ready & (request.p.queue == self._queue)
        drains = (asks & (request.p.op == QueueOp.DRAIN)) | (
            self._busy & self._mine & self._asks(QueueOp.DRAIN)
        )
        runs = (kept.place == QueuePlace.ROW) & (self._oldest != kept.taken) & ~drains
        m.d.sync += self._oldest.eq(self._oldest + (runs & anything(m, 1, "moves")))
        with m.If(leaves):
            m.d.sync += self._open.eq(0)
        with m.If(dut.done):
            m.d.sync += self._woken.eq(0)
        with m.If(done):
            m.d.sync += kept.eq(then)
            m.d.comb += [
                Assert(own(dut.owner, dut.home) == own(then.task, then.context)),
                Assert(dut.owner.is_queue & (dut.owner.queue == self._queue)),
                Assert((dut.owner.channel == then.task.channel) & (dut.rank == then.level)),
            ]
            m.d.comb += Cover(self._asks(QueueOp.TAKE))
            with m.If(gives):
                m.d.sync += kept.taken.eq(dut.first + dut.blocks)
                self._give(m)
            with m.If(outcome == QueueNext.LIST):
                m.d.sync += kept.place.eq(QueuePlace.LIST)
            with m.Switch(self._asked.op):
                with m.Case(QueueOp.ENTER):
                    m.d.sync += [self._open.eq(1), self._ended.eq(0)]
                    m.d.comb += Assert(~self._open)
                with m.Case(QueueOp.TAKE):
                    m.d.sync += [
                        kept.place.eq(QueuePlace.ROW),
                        kept.row.eq(self._asked.row),
                        self._oldest.eq(dut.first),
                    ]
                with m.Case(QueueOp.DRAIN, QueueOp.ADVANCE):
                    m.d.sync += kept.freed.eq(dut.freed)
                    m.d.comb += [
                        Assert(dut.freed >= kept.freed),
                        Assert(dut.freed <= self._oldest << then.group),
                    ]
                    ends = (outcome == QueueNext.REST) | (outcome == QueueNext.END)
                    with m.If(ends & self._asks(QueueOp.DRAIN)):
                        m.d.sync += kept.place.eq(QueuePlace.REST)
                with m.Case(QueueOp.APPEND):
                    m.d.sync += [
                        self._woken.eq(outcome == QueueNext.LIST),
                        self._before.eq(kept.put),
                        self._brought.eq(dut.span.count),
                    ]
            with m.If(outcome == QueueNext.END):
                m.d.sync += self._ended.eq(1)
                m.d.comb += Assert(~self._ended & then.closed)

    def _give(self, m: Module) -> None:
        """Blocks are given to a row."""
        dut, kept, then = self._dut, self._kept, self._then
        last = Signal(BLOCKS, name="last_block")
        begins, ends = last << then.group, (last + 1) << then.group
        m.d.comb += [
            last.eq(dut.first + dut.blocks - 1),
            Assert(dut.first == then.taken),
            Assert(dut.blocks != 0),
            Assert(last < then.done + WINDOW),
            Assert((last + 1 == blocks(then)) | (last + 1 == then.done + WINDOW)),
            Assert(self._asks(QueueOp.TAKE) | (dut.row == kept.row)),
            Assert(begins < then.put),
            Assert(then.closed | (ends <= then.put)),
        ]

    def _counts(self, m: Module) -> None:
        """Invariants of the counts of an open queue."""
        kept = self._kept
        total, done = blocks(kept), kept.done << kept.group
        freed = Mux(kept.closed & (kept.done == total), kept.put, done)
        with m.If(self._open):
            m.d.comb += [
                Assert(kept.taken <= total),
                Assert((kept.group <= GROUP) & (kept.size <= SIZE)),
                Assert(kept.freed <= kept.put),
                Assert(kept.put - kept.freed <= kept.size),
                Assert(
                    (kept.place != QueuePlace.REST)
                    | ((kept.taken == total) & (kept.closed == self._ended))
                ),
                Assert((kept.place != QueuePlace.LIST) | (kept.taken != total)),
                Assert(kept.freed == freed),
                Assert((kept.done <= kept.taken) & (kept.taken <= kept.done + WINDOW)),
                Assert((kept.place == QueuePlace.ROW) | (kept.done == kept.taken)),
                Assert(
                    (kept.place != QueuePlace.ROW)
                    | ((kept.done <= self._oldest) & (self._oldest <= kept.taken))
                ),
                Assert(~self._ended | ((kept.freed == kept.put) & (kept.place == QueuePlace.REST))),
            ]
            with m.If(self._woken):
                m.d.comb += [
                    Assert(kept.place == QueuePlace.LIST),
                    Assert(kept.put == self._before + self._brought),
                    Assert(self._before >> kept.group == kept.taken),
                    Assert(kept.freed <= self._before),
                    Assert(kept.closed == (self._brought == 0)),
                ]

    def _search(self, m: Module) -> None:
        """Of the places compared so far: matching places, free places, and contexts that have a
        queue."""
        dut, held, places = self._dut, self._held, range(self.places)
        inside = self._inside
        free_entry, left = inside.signal("free_entry"), inside.signal("entries_left")
        fits, seen = Signal(self.places, name="fits"), Signal(self.places, name="seen")
        compared = Signal(self.places, name="compared")
        has, others = Signal(CONTEXTS, name="have_one"), Signal(CONTEXTS, name="others_seen")
        record = own(self._kept.task, self._kept.context)
        for number, place in enumerate(self._table):
            same = held[number] & (own(place.task, place.context) == record)
            m.d.comb += [
                fits[number].eq(held[number] & self._fits(place)),
                seen[number].eq((self._step > number + 1) | self._state.ongoing("ROOM")),
                compared[number].eq((self._step > number + 2) | self._state.ongoing("ROOM")),
                Assert(~(self._open & same) | (self._queue == number)),
            ]
        for number in range(CONTEXTS):
            at = Cat(place.context == number for place in self._table) & held
            other = dut.context != number
            m.d.comb += [has[number].eq(at.any()), others[number].eq((at & seen).any() & other)]
        with m.If(self._state.ongoing("SEEK", "ROOM")):
            free = sum(~held[number] & seen[number] for number in places)
            m.d.comb += [
                Assert((fits & compared) == 0),
                Assert(inside.signal("others") == others),
                Assert(left == free + sum(others[number] for number in range(CONTEXTS))),
                Assert(~(~held & seen).any() | (free_entry < self.places)),
                Assert(~(~held & seen).any() | ~held.bit_select(free_entry, 1)),
            ]
        self._stride(m, fits)
        self._find(m, fits, has)

    def _stride(self, m: Module, fits: Signal) -> None:
        """Progress of the search: each step after the first two has compared one queue."""
        dut, found = self._dut, self._inside.signal("found")
        back, fitting = Signal.like(dut.queue, name="compared_last"), Signal(name="fits_last")
        with m.If(self._state.ongoing("SEEK")):
            m.d.comb += [
                back.eq(dut.queue - 2),
                Assert(self._step <= self.places + 1),
                Assert(dut.queue == self._step[: len(dut.queue)]),
                Assert((self._step < 2) | (found == fitting)),
            ]
        with m.If(self._state.ongoing("FOUND")):
            m.d.comb += [back.eq(dut.queue - 3), Assert(fitting), Assert(back < self.places)]
        m.d.comb += fitting.eq(fits.bit_select(back, 1))

    def _find(self, m: Module, fits: Signal, has: Signal) -> None:
        """Result of a search."""
        dut, held, places = self._dut, self._held, range(self.places)
        enters, refused = self._asks(QueueOp.ENTER), dut.verdict.refusal == Refusal.QUEUE
        needs, free = Signal(2, name="others_need"), Signal(2, name="free_places")
        carried, told = self._state.ongoing(*CHOSEN) & ~refused, dut.done & refused
        fit = fits.bit_select(dut.queue, 1)
        m.d.comb += [
            free.eq(sum(~held[number] for number in places)),
            needs.eq(sum(~has[n] & (dut.context != n) for n in range(CONTEXTS))),
            Assert(free >= sum(~has[number] for number in range(CONTEXTS))),
            Assert(~(carried & enters) | ((fits == 0) & (free > needs))),
            Assert(~(carried & enters) | ~held.bit_select(dut.queue, 1)),
            Assert(~(carried & self._asks(QueueOp.APPEND)) | fit),
            Assert(~(told & enters) | fits.any() | (free <= needs)),
            Assert(~(told & ~enters) | ~fits.any()),
        ]

    def _fits(self, place: data.View) -> Value:
        """Whether a place matches the search."""
        dut = self._dut
        return own(place.task, place.context) == own(dut.task, dut.context)

    def _ends(self, m: Module) -> None:
        """A resting queue that must end is reported until it leaves. The report is two cycles
        late."""
        dut, leave, ending = self._dut, self._dut.leave, self._inside.signal("ending_queues")
        told, rests = Signal(name="told_to_end"), Signal(name="rests")
        rested, left = Signal(2, name="rested"), Signal(2, name="has_left")
        closes = self._asks(QueueOp.APPEND) & (dut.outcome == QueueNext.END)
        over = dut.over.valid & (dut.over.queue == self._queue)
        m.d.comb += rests.eq(told & self._open)
        m.d.sync += [
            told.eq(rests | (self._done & self._mine & closes)),
            rested.eq(Cat(rests, rested)),
            left.eq(Cat(leave.valid & (leave.queue == self._queue), left)),
        ]
        m.d.comb += [
            Assert(self._held.bit_select(self._queue, 1) == self._open),
            Assert(ending.bit_select(self._queue, 1) == rests),
            Assert(~rests | self._ended),
            Assert(~(over & ~left.any()) | (self._open & self._ended)),
            Assert(~rested[1] | dut.over.valid),
        ]


def own(task: data.View, context: Value) -> Value:
    """Identity of a record."""
    return Cat(task.asid, task.page, context)


def blocks(queue: data.View) -> Value:
    """Number of blocks: complete ones, and a partial one if the queue is closed."""
    rest = queue.put & ((1 << queue.group) - 1)
    return (queue.put >> queue.group) + (queue.closed & rest.any())


class QueueTableThreeProof(QueueTableProof):
    """With three places: the third is not reserved for any context."""

    name = "task_unit.queue_table_three"
    cover = 0
    breaks = ()
    places = 3


PROOFS = [QueueTableProof(), QueueTableThreeProof()]
