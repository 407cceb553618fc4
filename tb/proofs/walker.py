"""Proof of the page walker, with 2 walks and a walk cache of 2 entries."""

from typing import Any

from amaranth import Array, Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data

from signalbox.hw.config import Config
from signalbox.hw.mmu.page_table_entry import Depth, skips
from signalbox.hw.mmu.records import (
    VPN_BITS,
    Outcome,
    PageSize,
    Scope,
    covers,
    page_request,
    touches,
)
from signalbox.hw.mmu.walk_cache import cached_region
from signalbox.hw.mmu.walk_registers import (
    walk_candidate,
    walk_decided,
    walk_decoded,
    walk_end,
    walk_ending,
    walk_entered,
    walk_entering,
    walk_looked_up,
    walk_owner,
    walk_page,
    walk_step,
    walk_turn,
)
from signalbox.hw.mmu.walker import State, Walker
from signalbox.hw.page_tables import FaultType
from signalbox.hw.records.memory import MemoryStatus
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
    queue_of_two,
)

__all__ = ["PROOFS"]

WALKS = 2
CONFIG = Config(
    channels=1, semaphores=8, counters=1, asids=2, address_width=32, walks=WALKS, walk_cache=2
)
TAG = 2

FIRST, SECOND, AROUND = 22, 11, 8
"""Maximum cycles at one depth, for a walk that may follow another; the same after a restart, when
it does not follow; and cycles before and after all depths."""
WAIT = 6 * (FIRST + SECOND) + AROUND
"""Maximum cycles from request to result."""

_NAMES = (35, 26, 17, 9, 4, 0)
"""By `Depth`: lowest page number bit that identifies an entry."""
_TABLES = (VPN_BITS, 35, 26, 17, 9, 9)
"""By `Depth`: lowest page number bit that identifies its table."""
_REGION = 9
"""Lowest page number bit that identifies a page of the largest size."""

_OLD = 31
"""Bit of a physical address that is 1 in outdated data only; below, its position in an entry."""
_OLD_IN_ENTRY, _SPARSE_IN_ENTRY = 27, 3


class _Mark:
    """A further mark of outdated data, chosen by the solver: an error, a sparse entry or a
    refusal."""

    def __init__(self, m: Module) -> None:
        mark = Signal(2, name="mark")
        m.d.comb += mark.eq(AnyConst(2))
        self.error, self.sparse, self.refused = (mark == n for n in (1, 2, 3))

    def entries(self, beat: Value) -> Value:
        """Whether no entry in the beat is outdated."""
        halves = [beat[:64], beat[64:]]
        old = [half[_OLD_IN_ENTRY] | (self.sparse & half[_SPARSE_IN_ENTRY]) for half in halves]
        return ~Cat(old).any()

    def end(self, end: Any) -> Value:
        """Whether the result is not outdated."""
        fault = end.outcome == Outcome.FAULT
        old = [
            (end.outcome == Outcome.PAGE) & end.page.ppn[_OLD - 12],
            self.error & fault & (end.fault == FaultType.POISONED),
            self.sparse & (end.outcome == Outcome.SPARSE),
            self.refused & fault & (end.fault == FaultType.UNBOUND_INST_BLOCK),
            self.refused & fault & (end.fault == FaultType.VA_LIMIT),
        ]
        return ~Cat(old).any()


def above(vpn: Value, depth: Value, cuts: tuple[int, ...]) -> Value:
    """The bits of a page number above the cut of the depth."""
    return Array([vpn >> cut for cut in cuts])[depth]


class WalkerProof(Proof):
    """For any page of any address space, any tag, and any invalidation that covers the page, all
    chosen by the solver. Data requested before the invalidation, or in its cycle, may be outdated;
    outdated entries are marked."""

    name = "mmu.walker"
    shows = (
        "every request has exactly one result, once no other has its tag; at most as many reads as "
        "walks are under way; no result but RETRY rests on an entry, a table in the walk cache or "
        "a row of the ASID table from before an invalidation that covers it, its own cycle "
        "excepted, or for a page of 512 MiB that came after the request; who follows, follows a "
        "read that is under way"
    )
    induction = 1
    cover = 12
    long = True

    def build(self, m: Module, wrap: Wrap) -> None:
        self._base(m, wrap)
        self._fresh_tables(m)
        self._fresh_reads(m)
        self._reached(m)

    def _base(self, m: Module, wrap: Wrap) -> None:
        """The parts that do not distinguish old from new data."""
        dut = Walker(CONFIG, TAG)
        inside = Inside(dut)
        self._dut, self._mark = dut, _Mark(m)
        self._sets = {state: inside.signal(f"is_{state.name.lower()}") for state in State}
        self._look(m, inside)
        m.submodules.dut = wrap(dut)
        self._asid, self._vpn = Signal(CONFIG.asid_bits, name="asid"), Signal(VPN_BITS, name="vpn")
        self._tag = Signal(TAG, name="tag")
        for signal in (self._asid, self._vpn, self._tag):
            m.d.comb += signal.eq(AnyConst(len(signal)))
        self._inputs(m)
        self._invalidated(m)
        self._memory(m)
        self._results(m)
        self._states(m)
        self._owes(m)
        self._places(m)
        self._follows(m)

    def _look(self, m: Module, inside: Inside) -> None:
        """Internal signals."""
        self._waiting = inside.signal("waiting", walk_page(CONFIG))
        self._row = inside.signal("bound_to", self._dut.row.shape())
        self._offered, self._ready = inside.signal("offered"), inside.signal("at_hand")
        self._anew = inside.signal("anew")
        self._look_at_walks(inside)
        self._look_at_stages(inside)

        def rows(memory: Any) -> list[Any]:
            ports = [memory.read_port(domain="comb") for _ in range(WALKS)]
            for n, port in enumerate(ports):
                m.d.comb += port.addr.eq(n)
            return [port.data for port in ports]

        self._tags, self._names, self._first, self._fits = (
            rows(inside.submodule(name)) for name in ("tags", "names", "starts", "fits")
        )
        self._grant = inside.submodule("turns").grant
        self._done = inside.submodule("done_turns").grant
        self._pending = inside.submodule("pending")
        self._look_at_reads(m, Inside(self._pending))
        within, row = Inside(inside.submodule("directories")), cached_region(CONFIG)
        self._known = within.signal("rows", data.ArrayLayout(row, CONFIG.walk_cache))
        self._comes = within.signal("comes", row)
        self._hits = within.signal("found")

    def _look_at_walks(self, inside: Inside) -> None:
        """The registers of each walk, and bits per walk."""

        def each(name: str, shape: data.Layout) -> list[Any]:
            return [inside.signal(f"{name}_{n}", shape) for n in range(WALKS)]

        self._pages, self._steps = each("page", walk_page(CONFIG)), each("step", walk_step(CONFIG))
        self._ends = each("end", walk_end(CONFIG))
        self._alone, self._jumped, self._starts, self._nearer, self._stale, self._before = (
            inside.signal(name)
            for name in ("alone", "jumped", "at_start", "nearer", "stale", "before")
        )

    def _look_at_stages(self, inside: Inside) -> None:
        """The pipeline registers."""
        self._asked = inside.signal("asked", page_request(CONFIG, TAG))
        self._entering = inside.signal("entering", walk_entering(CONFIG))
        self._found = inside.signal("looked_up", walk_looked_up(CONFIG))
        self._entered = inside.signal("entered", walk_entered(CONFIG))
        self._chosen = inside.signal("chosen", walk_turn(CONFIG))
        self._candidate = inside.signal("candidate", walk_candidate(CONFIG))
        self._here = inside.signal("here", walk_decoded(CONFIG))
        self._next = inside.signal("next", walk_decided(CONFIG))
        self._leaving = inside.signal("leaving", walk_turn(CONFIG))
        self._left = inside.signal("left", walk_ending(CONFIG, TAG))

    def _look_at_reads(self, m: Module, inside: Inside) -> None:
        """The reads that have been added, oldest first; `_owed` is their number. Memory has not yet
        taken the last `_unasked` of them, whose addresses are `_asks`."""
        pending = self._pending
        asks, order = inside.submodule("asks"), inside.submodule("order")
        width = len(pending.added)
        behind, self._owed = Signal(width, name="behind"), Signal(width, name="owed")
        self._unasked, self._behind = Signal(width, name="unasked"), behind
        m.d.comb += [
            behind.eq(pending.added - pending.seen),
            self._owed.eq(behind + pending.held),
            self._unasked.eq(pending.added - pending.taken),
        ]
        self._head = inside.signal("oldest", order.shape)
        self._held, self._slot = pending.held, pending.slot
        self._reads, self._asks = [], []
        for n in range(WALKS):
            ram, ask = order.read_port(domain="comb"), asks.read_port(domain="comb")
            read = Signal(order.shape, name=f"read_{n}")
            first = self._head if n == 0 else ram.data
            m.d.comb += [
                ram.addr.eq(pending.seen + n - pending.held),
                ask.addr.eq(pending.taken + n),
                read.eq(Mux(pending.held, first, ram.data)),
            ]
            self._reads.append(read)
            self._asks.append(ask.data.address)

    def _inputs(self, m: Module) -> None:
        dut = self._dut
        inputs = {
            "request_valid": dut.request.valid,
            "request": dut.request.payload,
            "result_ready": dut.result.ready,
            "row": dut.row,
            "read_ready": dut.read.request.ready,
            "beat_valid": dut.read.beat.valid,
            "beat": dut.read.beat.payload,
            "invalidate": dut.invalidate,
        }
        for name, target in inputs.items():
            arbitrary(m, target, name)
        m.d.comb += [
            Assume(Value.cast(dut.invalidate.scope) <= Scope.PAGE.value),
            Assume(Value.cast(dut.read.beat.p.status) <= MemoryStatus.FAULT.value),
            Assume(dut.read.beat.p.last),
        ]

    # -- specification -----------------------------------------------------------------------------

    def _is(self, one: Any) -> Value:
        """Whether a request or result is for the page."""
        return (one.asid == self._asid) & (one.vpn == self._vpn)

    def _invalidated(self, m: Module) -> None:
        """One of the invalidations that cover the page, for any size, is the last one with outdated
        data before it; rows looked up afterwards are not outdated."""
        self._fresh = Signal(name="fresh")
        covered = covers(self._dut.invalidate, self._asid, self._vpn, PageSize.HUGE)
        with m.If(covered & anything(m, 1, "this_one")):
            m.d.sync += self._fresh.eq(1)
        row = self._dut.row
        with m.If(self._entering.valid & (self._asked.asid == self._asid) & self._fresh):
            m.d.comb += Assume(self._new(row))

    def _new(self, row: Any) -> Value:
        """Whether the row is not outdated."""
        return ~row.base[_OLD - 12] & ((row.bound & row.last.all()) | ~self._mark.refused)

    def _memory(self, m: Module) -> None:
        """A read of an entry on the way to the page, requested after the invalidation in a table
        that is not outdated, returns no outdated data."""
        request, beat = self._dut.read.request, self._dut.read.beat
        asked = Array(self._reads)[(self._owed - self._unasked)[: (WALKS - 1).bit_length()]]
        owner = Signal(walk_owner(CONFIG), name="owner")
        m.d.comb += owner.as_value().eq(asked.owner)
        fresh = self._fresh & self._on_way(owner) & ~request.p.va[_OLD] & self._clean(owner)
        first, second, level = queue_of_two(
            m, 1, request.valid & request.ready, fresh, beat.valid & beat.ready, "reads"
        )
        self._promises, self._level = [first, second], level
        m.d.comb += Assume(~beat.valid | (level != 0))
        clean = self._mark.entries(beat.p.data)
        error = self._mark.error & (beat.p.status == MemoryStatus.BUS)
        m.d.comb += Assume(~(beat.valid & first) | (clean & ~error))
        self._came_fresh, self._next_fresh = Signal(name="came_fresh"), Signal(name="next_fresh")
        m.d.sync += [self._came_fresh.eq(beat.valid & first), self._next_fresh.eq(self._came_fresh)]

    def _clean(self, place: Any) -> Value:
        """Whether the remembered entry of small pages is not outdated, or not used."""
        below = place.below
        old = below.address[_OLD - 12] | (self._mark.sparse & below.sparse)
        return (place.depth != Depth.BIG) | ~old

    def _on_way(self, place: Any, cuts: tuple[int, ...] = _NAMES) -> Value:
        """Whether the entry or table to be read next is on the way to the page."""
        depth = Value.cast(place.depth)
        same = above(place.vpn, depth, cuts) == above(self._vpn, depth, cuts)
        return (place.asid == self._asid) & same

    def _results(self, m: Module) -> None:
        """The tag of a request is in one place until its result is taken."""
        request, result = self._dut.request, self._dut.result
        open_, mine = Signal(name="open"), Signal(name="mine")
        asks = request.valid & request.ready & (request.p.tag == self._tag)
        ends = result.valid & (result.p.tag == self._tag)
        m.d.comb += [Assume(~(asks & open_)), Assert(~ends | open_)]
        with m.If(asks):
            m.d.sync += [open_.eq(1), mine.eq(self._is(request.p))]
        with m.Elif(ends & result.ready):
            m.d.sync += open_.eq(0)
        with m.If(ends & mine & self._fresh):
            m.d.comb += Assert(self._mark.end(result.p.end))
        left = self._left
        enters = self._entering.valid & (self._asked.tag == self._tag)
        leaves = left.valid & (left.tag == self._tag)
        holds = [
            ~self._sets[State.FREE][n] & (tag == self._tag) for n, tag in enumerate(self._tags)
        ]
        m.d.comb += Assert(enters + sum(holds) + leaves + ends == open_)
        with m.If(open_ & mine):
            m.d.comb += [
                Assert(~enters | self._is(self._asked)),
                Assert(~leaves | self._is(left.page)),
                Assert(~ends | self._is(self._waiting)),
            ]
            m.d.comb += [
                Assert(~here | self._is(page))
                for here, page in zip(holds, self._pages, strict=True)
            ]
        with m.If(result.valid & self._fresh & self._is(self._waiting)):
            m.d.comb += Assert(self._mark.end(result.p.end))
        self._touched(m, open_ & mine, asks, enters, holds)

    def _touched(
        self, m: Module, mine: Value, asks: Value, enters: Value, holds: list[Value]
    ) -> None:
        """A request for a page in a page of 512 MiB has the result RETRY if an invalidation of its
        space came after it."""
        dut, left, result = self._dut, self._left, self._dut.result
        touched = Signal(name="touched")
        with m.If(asks):
            m.d.sync += touched.eq(0)
        with m.Elif(touches(dut.invalidate, self._asid)):
            m.d.sync += touched.eq(1)
        retries = left.end.outcome == Outcome.RETRY
        with m.If(mine & touched):
            m.d.comb += [
                Assert(~enters),
                *(Assert(~one | before) for one, before in zip(holds, self._before, strict=True)),
            ]
            with m.If(left.valid & (left.tag == self._tag) & left.end.whole):
                m.d.comb += Assert(retries | (left.slot & self._before).any())
            with m.If(result.valid & (result.p.tag == self._tag) & result.p.whole):
                m.d.comb += Assert(result.p.end.outcome == Outcome.RETRY)

    # -- invariants --------------------------------------------------------------------------------

    def _states(self, m: Module) -> None:
        """Each walk is in one state and in the corresponding place."""
        sets = self._sets
        entering, found, entered = self._entering, self._found, self._entered
        chosen, pick, here, next_ = self._chosen, self._candidate, self._here, self._next
        for one in (entering, found, pick):
            m.d.comb += Assert(Mux(one.valid, one.slot == 1 << one.number, one.slot == 0))
        m.d.comb += [
            Assert(~(here.came & here.picked)),
            Assert(Mux(here.came | here.picked, here.slot == 1 << here.number, here.slot == 0)),
            Assert(~next_.slot.all() & (next_.slot.any() | ~next_.came)),
            Assert(~entered.slot.all() & ((entered.slot == 0) | self._numbered(entered))),
            Assert(self._offered.any() == self._ready),
            Assert(~self._offered.all()),
            Assert(~entered.straight | (pick.valid & pick.enters & (pick.slot == entered.slot))),
            Assert(~(pick.valid & pick.enters) | entered.straight),
            Assert(~(next_.slot.any() & ~next_.came) | (next_.goes ^ next_.follows)),
            Assert(
                ~(next_.goes | next_.follows) | (next_.slot.any() & ~next_.came) | next_.descends
            ),
            Assert(~(next_.goes & next_.follows)),
            Assert(next_.finds + next_.descends + next_.anew <= 1),
            Assert(~next_.anew | next_.came),
            Assert(~next_.jumps | next_.follows),
            Assert(Mux(chosen.valid, _one(chosen.slot), chosen.slot == 0)),
            Assert(self._pending.room),
        ]
        for n in range(WALKS):
            is_ = {state: one[n] for state, one in sets.items()}
            queued = pick.slot[n] & ~pick.enters
            picks = (here.slot[n] & here.picked) + (next_.slot[n] & ~next_.came)
            came = (here.slot[n] & here.came) + (next_.slot[n] & next_.came)
            waits = sum((self._owed > k) & (r.number == n) for k, r in enumerate(self._reads))
            m.d.comb += [
                Assert(sum(is_.values()) == 1),
                Assert(~(entering.slot[n] | self._offered[n]) | is_[State.FREE]),
                Assert(~(entering.slot[n] & self._offered[n])),
                Assert(found.slot[n] + entered.slot[n] == is_[State.ENTER]),
                Assert(chosen.slot[n] + queued + picks == is_[State.PICKED]),
                Assert(came <= is_[State.SENT]),
                Assert(waits == (is_[State.SENT] & (came == 0)) + (next_.slot[n] & next_.goes)),
                Assert(~self._stale[n] | self._before[n]),
                Assert(~self._leaving.slot[n] | is_[State.DONE]),
            ]
        leaving = self._leaving
        m.d.comb += [
            Assert(Mux(leaving.valid, _one(leaving.slot), leaving.slot == 0)),
            Assert(~self._left.slot.all()),
            Assert((self._left.slot == 0) | self._left.valid),
        ]

    def _numbered(self, one: Any) -> Value:
        return one.slot == 1 << one.number

    def _owes(self, m: Module) -> None:
        next_, numbers = self._next, Array([read.number for read in self._reads])
        last = numbers[(self._owed - 1)[: (WALKS - 1).bit_length()]]
        with m.If(next_.goes):
            m.d.comb += Assert((self._owed != 0) & (next_.slot == 1 << last))
        m.d.comb += [
            Assert((self._owed <= WALKS) & (self._behind <= WALKS)),
            Assert(self._unasked <= self._owed),
            Assert(self._level == self._owed - self._unasked),
            Assert(self._held | ((self._behind <= 1) & (self._level == 0))),
            Assert(self._slot == Mux(self._held, 1 << self._head.number, 0)),
        ]

    def _places(self, m: Module) -> None:
        """The copies of a walk's data in several places agree."""
        found, pick, here, next_ = self._found, self._candidate, self._here, self._next
        for n, (page, step) in enumerate(zip(self._pages, self._steps, strict=True)):
            used = ~self._sets[State.FREE][n]
            enters = self._sets[State.ENTER][n] & ~self._entered.slot[n]
            depth = Value.cast(step.depth)
            m.d.comb += [
                Assert(~used | (Value.cast(self._names[n]) == Value.cast(page))),
                Assert(~used | enters | (depth < len(_NAMES))),
                Assert(
                    ~used
                    | enters
                    | ~self._starts[n]
                    | self._jumped[n]
                    | (depth == self._first_depth(n))
                ),
                Assert(
                    ~used
                    | enters
                    | ~self._jumped[n]
                    | self._sets[State.FOLLOW][n]
                    | self._sets[State.DONE][n]
                ),
                Assert(~used | enters | ~step.lent | (depth > Depth.PD0.value)),
                Assert(~found.slot[n] | (Value.cast(found.page) == Value.cast(page))),
                Assert(~pick.slot[n] | self._as(pick.place, n, self._table(n))),
                Assert(
                    ~here.slot[n]
                    | self._as(here.place, n, Mux(here.came, here.place.table, self._table(n)))
                ),
            ]
            for k, read in enumerate(self._reads):
                owner = read.owner
                with m.If((self._owed > k) & (read.number == n)):
                    m.d.comb += Assert((owner.asid == page.asid) & (owner.vpn == page.vpn))
                    new = next_.slot[n] & next_.came
                    below = Mux(new, next_.below.as_value(), step.below.as_value())
                    same = owner.below.as_value() == below
                    lent = step.lent & ~(new & (next_.depth == Depth.PD0))
                    m.d.comb += Assert((owner.depth != Depth.BIG) | same)
                    m.d.comb += Assert(owner.lent == lent)
                    with m.If(next_.slot[n]):
                        m.d.comb += Assert(owner.depth == next_.following)
                    with m.Else():
                        m.d.comb += Assert(owner.depth == step.depth)
            with m.If(next_.slot[n]):
                m.d.comb += [
                    Assert((next_.page.asid == page.asid) & (next_.page.vpn == page.vpn)),
                    Assert(next_.depth == step.depth),
                    Assert(next_.came | (next_.following == step.depth)),
                    Assert(~next_.anew | step.lent),
                    Assert(~next_.came | ~next_.descends | self._below(next_)),
                ]
        m.d.comb += Assert(here.skips == (here.came & skips(here.place.depth, here.entry)))
        near = Value.cast(here.place.depth) + here.came
        m.d.comb += Assert(~(here.came | here.picked) | (Value.cast(here.near) == near))

    def _below(self, next_: Any) -> Value:
        """The depth after an entry: the next one, or SMALL after PD0."""
        more = Value.cast(next_.following) == Value.cast(next_.depth) + 1
        skips = (next_.depth == Depth.PD0) & (next_.following == Depth.SMALL)
        return (Value.cast(next_.following) < len(_NAMES)) & (more | skips)

    def _table(self, n: int) -> Value:
        return Mux(self._starts[n], self._first[n], self._steps[n].table)

    def _first_depth(self, n: int) -> Value:
        """The first depth of the walk."""
        return Mux(self._nearer[n], Depth.PD0.value, Depth.PD3.value)

    def _as(self, place: Any, n: int, table: Value) -> Value:
        """Whether this is the place of the walk."""
        page, step = self._pages[n], self._steps[n]
        below = Value.cast(place.below) == Value.cast(step.below)
        return (
            (place.asid == page.asid)
            & (place.vpn == page.vpn)
            & (place.depth == step.depth)
            & (place.lent == step.lent)
            & (below | (step.depth != Depth.BIG))
            & (place.table == table)
        )

    def _same(self, depth: Any) -> Value:
        """Whether both walks read the same entry at this depth."""
        one, other = self._pages
        depth = Value.cast(depth)
        same = above(one.vpn, depth, _NAMES) == above(other.vpn, depth, _NAMES)
        return (one.asid == other.asid) & same

    def _follows(self, m: Module) -> None:
        """A follower, or a walk about to follow, has a leader that has requested the same entry."""
        here, next_ = self._here, self._next
        for n, other in ((0, 1), (1, 0)):
            step, leader = self._steps[n], self._steps[other]
            sent = self._sets[State.SENT][other]
            with m.If(self._sets[State.FOLLOW][n]):
                m.d.comb += Assert(sent & (step.depth == leader.depth) & self._same(step.depth))
            with m.If(next_.slot[n] & next_.follows):
                depth = Mux(next_.jumps, next_.joined, next_.following)
                same = Value.cast(leader.depth) == depth
                further = Value.cast(next_.joined) > Value.cast(next_.following)
                m.d.comb += [
                    Assert(sent & same & self._same(depth)),
                    Assert(~next_.jumps | further),
                ]
            known = ~(self._sets[State.FREE] | self._found.slot)[other]
            settled = known & ~self._sets[State.ENTER][other]
            for one, was in ((here, known), (next_, settled)):
                with m.If(one.slot[n] & one.came & was):
                    m.d.comb += Assert(
                        one.alike[other]
                        == self._same(one.place.depth if one is here else one.depth)
                    )
            with m.If(next_.slot[n] & settled & (next_.goes | next_.follows)):
                m.d.comb += Assert(next_.joins[other] == self._same(next_.following))
            with m.If(here.slot[n]):
                quiet = ~next_.slot[other]
                skips = here.came & (here.place.depth == Depth.PD0)
                m.d.comb += [
                    Assert(~here.led[n] & ~here.ahead[n]),
                    Assert(~skips | ~here.led_small[n]),
                ]
                with m.If(here.ahead[other]):
                    ahead = Value.cast(leader.depth) > Value.cast(here.near)
                    m.d.comb += [
                        Assert(sent & quiet & ahead & self._same(leader.depth)),
                        Assert(~skips | here.led_small[other]),
                    ]
                with m.If(here.behind & next_.goes):
                    further = Value.cast(next_.following) > Value.cast(here.near)
                    joins = next_.slot[other] & self._same(next_.following)
                    m.d.comb += Assert(joins & further)
                for led, same, depth, counts in (
                    (here.led, here.same, here.near, Value.cast(here.near) < len(_NAMES)),
                    (here.led_small, here.same_small, Const(5, 3), skips),
                ):
                    with m.If(counts & known):
                        m.d.comb += Assert(same[other] == self._same(depth))
                    with m.If(counts & led[other]):
                        m.d.comb += Assert(
                            sent
                            & quiet
                            & (Value.cast(leader.depth) == Value.cast(depth))
                            & self._same(depth)
                        )

    def _trusts(self, n: int) -> Value:
        """Whether the walk's data for the page cannot be outdated."""
        region = (self._pages[n].vpn >> _REGION) == (self._vpn >> _REGION)
        return self._fresh & ~self._stale[n] & (~self._before[n] | region)

    def _way(self, n: int, depth: Any, cuts: tuple[int, ...] = _NAMES) -> Value:
        page, depth = self._pages[n], Value.cast(depth)
        same = above(page.vpn, depth, cuts) == above(self._vpn, depth, cuts)
        return (page.asid == self._asid) & same

    def _fresh_tables(self, m: Module) -> None:
        mark = self._mark
        found, entered, left = self._found, self._entered, self._left
        for n, (page, step, end) in enumerate(
            zip(self._pages, self._steps, self._ends, strict=True)
        ):
            is_ = {state: one[n] for state, one in self._sets.items()}
            walks = is_[State.READ] | is_[State.PICKED] | is_[State.SENT] | is_[State.FOLLOW]
            trusts = self._trusts(n)
            with m.If((walks | entered.slot[n]) & trusts & self._way(n, step.depth, _TABLES)):
                m.d.comb += [
                    Assert(~self._table(n)[_OLD - 8]),
                    Assert(self._clean(step) | self._jumped[n]),
                ]
            began = self._way(n, self._first_depth(n), _TABLES)
            with m.If((walks | entered.slot[n]) & trusts & began):
                m.d.comb += Assert(~self._first[n][_OLD - 8])
            with m.If(found.slot[n] & trusts & (page.asid == self._asid)):
                m.d.comb += Assert(self._new(self._row))
            for k, row in enumerate(self._known):
                with m.If(found.slot[n] & self._hits[k]):
                    here = (row.asid == page.asid) & (row.region == page.vpn >> 17)
                    m.d.comb += Assert(here)
                    with m.If(trusts & self._way(n, Depth.PD0, _TABLES)):
                        m.d.comb += Assert(~row.table[_OLD - 8])
            new = self._fresh & ~self._stale[n] & self._is(page)
            with m.If(entered.slot[n] & new):
                m.d.comb += [
                    Assert(~entered.ends | mark.end(entered.end)),
                    Assert(~mark.refused | entered.fits.all()),
                ]
            with m.If(~is_[State.FREE] & ~is_[State.ENTER] & new):
                m.d.comb += Assert(~mark.refused | self._fits[n].all())
            with m.If(is_[State.DONE] & new):
                m.d.comb += Assert(mark.end(end))
        old = (left.slot & self._stale).any()
        with m.If(left.valid & self._fresh & self._is(left.page) & ~old):
            fits = left.fits.all() | (left.end.outcome != Outcome.PAGE)
            m.d.comb += Assert(mark.end(left.end) & (~mark.refused | fits))
        for n in range(WALKS):
            with m.If(left.slot[n]):
                m.d.comb += Assert(Value.cast(left.page) == Value.cast(self._pages[n]))
        for row in (*self._known, self._comes):
            here = (row.asid == self._asid) & (row.region == self._vpn >> 17)
            with m.If(row.valid & here & self._fresh):
                m.d.comb += Assert(~row.table[_OLD - 8])

    def _reached(self, m: Module) -> None:
        """Results, and walks under way, that are valid after the invalidation."""
        result = self._dut.result
        counts = result.valid & self._fresh & self._is(self._waiting)
        on_way = [
            self._sets[State.SENT][n] & self._trusts(n) & (step.depth == Depth.PD2)
            for n, step in enumerate(self._steps)
        ]
        m.d.comb += [
            Cover(counts & (result.p.end.outcome != Outcome.RETRY)),
            Cover(Cat(on_way).any()),
        ]

    def _fresh_reads(self, m: Module) -> None:
        """Data requested in time are not outdated, until the walk has settled."""
        here, next_, mark = self._here, self._next, self._mark
        error = mark.error & (here.status == MemoryStatus.BUS)
        old = mark.sparse & next_.below.sparse
        m.d.comb += [
            Assert(~self._came_fresh | here.came),
            Assert(~self._next_fresh | next_.came),
        ]
        with m.If(self._came_fresh):
            m.d.comb += Assert(mark.entries(here.entry) & ~error & self._clean(here.place))
        with m.If(self._next_fresh):
            m.d.comb += Assert(mark.end(next_.end) | next_.descends)
            with m.If(next_.descends | (next_.finds & (next_.depth == Depth.PD1))):
                m.d.comb += Assert(~next_.table[_OLD - 8])
            with m.If(next_.descends):
                with m.If(next_.depth == Depth.PD0):
                    m.d.comb += Assert(~next_.below.address[_OLD - 12] & ~old)
        for k, read in enumerate(self._reads):
            with m.If(self._level > k):
                m.d.comb += Assert(~self._promises[k] | self._clean(read.owner))
        for one, depth, fresh in (
            (here, here.place.depth, self._came_fresh),
            (next_, next_.depth, self._next_fresh),
        ):
            for n, other in ((0, 1), (1, 0)):
                way, mine = self._way(n, depth), one.slot[n] & one.came
                waits = self._sets[State.FOLLOW][other]
                if one is here:
                    waits |= next_.slot[other] & next_.follows
                heir = waits & ~one.before & self._trusts(other)
                known = self._fresh & ~one.before & one.quiet
                counts = mine & (self._trusts(n) | heir | known)
                with m.If(counts & way):
                    m.d.comb += Assert(fresh)
                # The entry after one of a 64 KiB page was in PD0.
                with m.If(counts & self._way(n, depth, _TABLES)):
                    if one is here:
                        m.d.comb += Assert(self._clean(here.place))
                    else:
                        passes = (next_.depth == Depth.BIG) & next_.descends
                        m.d.comb += Assert(~passes | ~next_.table[_OLD - 8])
        for n in range(WALKS):
            for k, read in enumerate(self._reads):
                trusts = self._trusts(n) & (read.number == n)
                counts = trusts & self._on_way(read.owner)
                with m.If(trusts & (self._owed > k) & self._on_way(read.owner, _TABLES)):
                    m.d.comb += Assert(self._clean(read.owner))
                with m.If(counts & (self._level > k)):
                    m.d.comb += Assert(self._promises[k])
                with m.If(counts & (self._owed > k) & (self._level <= k)):
                    ask = Array(self._asks)[(k - self._level)[: (WALKS - 1).bit_length()]]
                    m.d.comb += Assert(~ask[_OLD])


def _one(slot: Value) -> Value:
    return slot.any() & ~slot.all()


class WalkerWaitsProof(WalkerProof):
    """The invariant bounds the last cycle of each phase of a walk at one depth. In the longest
    case, the walk waits for its turn, and finds another walk that reads the same entry; the read
    fails for the other walk only; the walk waits for its turn again, and reads the entry itself. A
    walk may restart once, and does not follow afterwards."""

    name = "mmu.walker_waits"
    shows = (
        "without invalidations, and while memory takes and answers reads at once and results are "
        f"taken: a walk ends at most {WAIT} cycles after its request"
    )
    induction = 1
    cover = 18
    long = True

    def build(self, m: Module, wrap: Wrap) -> None:
        self._base(m, wrap)
        dut = self._dut
        m.d.comb += [
            Assume(dut.read.request.ready & (dut.read.beat.valid == (self._level != 0))),
            Assume(dut.result.ready & ~dut.invalidate.valid),
            Assert((self._level <= 1) & (self._unasked == self._next.goes) & self._pending.ample),
            Assert((self._before == 0) & ~self._here.before & ~self._next.before & ~self._fresh),
        ]
        for n, other in ((0, 1), (1, 0)):
            self._waits(m, n, other)

    def _turn(self, n: int) -> Value:
        """Upper bound of the cycles, including this one, until the walk has found its next read: a
        beat has precedence, and the one other walk never has two turns in a row."""
        beat, comes = self._level != 0, self._unasked != 0
        turn = Mux(self._chosen.valid, 7, Mux(self._grant[n], 6, 8))
        for one, cycles in (
            (self._chosen, 4 + comes),
            (self._candidate, 3 + beat),
            (self._here, 2),
            (self._next, 1),
        ):
            turn = Mux(one.slot[n], cycles, turn)
        return turn

    def _read(self, n: int) -> Value:
        """Number of cycles, including this one, until the walk is SENT."""
        return Mux(self._next.slot[n], 1, Mux(self._here.slot[n], 2, 3))

    def _waits(self, m: Module, n: int, other: int) -> None:
        is_ = {state: one[n] for state, one in self._sets.items()}
        depth, before = Value.cast(self._steps[n].depth), Signal(3, name=f"depth_{n}")
        count, waited = Signal(5, name=f"count_{n}"), Signal(5, name=f"waited_{n}")
        followed, again = Signal(name=f"followed_{n}"), Signal(name=f"again_{n}")
        turn, age = Signal(3, name=f"turn_{n}"), Signal(8, name=f"age_{n}")
        anew = Signal(name=f"anew_{n}")
        walks = ~(is_[State.FREE] | is_[State.ENTER])
        goes_on = depth != before
        m.d.comb += [waited.eq(Mux(goes_on, 0, count)), again.eq(followed & ~goes_on)]
        m.d.sync += [
            before.eq(depth),
            count.eq(Mux(walks, waited + 1, 0)),
            followed.eq(walks & (again | is_[State.FOLLOW])),
            turn.eq(Mux(is_[State.FOLLOW], 0, turn + 1)),
            age.eq(Mux(is_[State.FREE] & ~self._entering.slot[n], 0, age + 1)),
            anew.eq(walks & (anew | self._anew[n])),
        ]
        reads = is_[State.READ] | is_[State.PICKED] | is_[State.SENT]
        self._must_not_follow(m, n, (walks & anew) | (reads & again))
        # A walk that restarts therefore changes its depth.
        began = self._first_depth(n) + self._jumped[n]
        with m.If((walks & ~is_[State.DONE]) | self._entered.slot[n]):
            m.d.comb += Assert(depth >= began)
        turns, ends, most = self._turn(n), Mux(self._done[n], 2, 3), Mux(again, FIRST, SECOND)
        with m.If(is_[State.READ] | is_[State.PICKED]):
            m.d.comb += Assert(waited + turns <= Mux(again, 19, 8))
            with m.If(again):
                m.d.comb += [Assert(turn + turns <= 8), Cover(turn == 1)]
        with m.Elif(is_[State.FOLLOW]):
            m.d.comb += Assert(waited + self._read(other) <= SECOND)
        with m.Elif(is_[State.SENT]):
            m.d.comb += Assert(waited + self._read(n) <= most)
        with m.Elif(is_[State.DONE]):
            m.d.comb += Assert(waited + Mux(self._leaving.slot[n], 1, ends) <= most + 3)
        with m.If(walks & anew):
            m.d.comb += [
                Assert(age <= waited + 6 * FIRST + SECOND * depth + 3),
                Assert(~again & ~self._steps[n].lent),
                Assert(age <= WAIT - 3),
            ]
        with m.Elif(walks):
            m.d.comb += Assert(age <= waited + FIRST * depth + 3)
        with m.Elif(is_[State.ENTER]):
            m.d.comb += Assert(age == Mux(self._found.slot[n], 1, 2))
        with m.Elif(self._offered[n] | self._entering.slot[n]):
            m.d.comb += Assert(age == 0)

    def _must_not_follow(self, m: Module, n: int, has_to: Value) -> None:
        """A walk that must no longer follow does not follow, and is not about to."""
        here, next_ = self._here, self._next
        alone, used = self._alone[n], ~(self._sets[State.FREE][n] | self._sets[State.ENTER][n])
        m.d.comb += [
            Assert(~has_to | alone),
            Assert(~here.slot[n] | (here.alone == alone) | self._sets[State.ENTER][n]),
        ]
        with m.If(used & alone):
            follows = self._sets[State.FOLLOW][n] | (next_.slot[n] & next_.follows)
            m.d.comb += Assert(~follows)


PROOFS = [WalkerProof(), WalkerWaitsProof()]
