"""Proof of the page walker, for 2 walks and a walk cache of 2 entries."""

from typing import Any

from amaranth import Array, Cat, Module, Mux, Signal, Value
from amaranth.lib import data

from hw.config import Config
from hw.mmu.entries import Depth
from hw.mmu.lookups import VPN_BITS, Outcome, PageSize, Scope, covers
from hw.mmu.walker import Walker
from hw.pagetables import FaultType
from hw.records import MemoryStatus
from tb.proofs.formal import (
    AnyConst,
    Assert,
    Assume,
    Cover,
    Inside,
    Proof,
    Wrap,
    anything,
    queue_of_two,
)

__all__ = ["PROOFS"]

CONFIG = Config(channels=1, semaphores=8, counters=1, asids=2, address_width=32)
WALKS = 2
TAG = 2
FREE, READ, SENT, FOLLOW, DONE = range(5)

WAIT = 77
"""Cycles; 12 at each of 6 depths, and 5 around."""

_NAMES = (35, 26, 17, 9, 4, 0)
"""By `Depth`: the bits of a page number from here on name an entry."""
_TABLES = (VPN_BITS, 35, 26, 17, 9, 9)
"""By `Depth`: those from here on name its table."""
_REGION = 9
"""Those from here on: the largest page."""

_KNOWN = CONFIG.asid_bits + VPN_BITS + 3 + CONFIG.address_width - 8
"""Bits of a walk's place that tell address space, page, depth and table."""

_OLD = 31
"""Bit of a physical address that only what is old may have set; and where an entry has it."""
_OLD_IN_ENTRY, _SPARSE_IN_ENTRY = 27, 3


class _Mark:
    """What else only what is old may say, chosen by the solver."""

    def __init__(self, m: Module) -> None:
        mark = Signal(2, name="mark")
        m.d.comb += mark.eq(AnyConst(2))
        self.error, self.sparse, self.refused = (mark == n for n in (1, 2, 3))

    def entries(self, beat: Value) -> Value:
        """No entry in the beat is old."""
        halves = [beat[:64], beat[64:]]
        old = [half[_OLD_IN_ENTRY] | (self.sparse & half[_SPARSE_IN_ENTRY]) for half in halves]
        return ~Cat(old).any()

    def end(self, end: Any) -> Value:
        """It is not old."""
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
    """The bits of a page number from the depth's cut on."""
    return Array([vpn >> cut for cut in cuts])[depth]


class WalkerProof(Proof):
    """For any one page of any address space, any tag, and any one invalidation that covers the
    page, chosen by the solver. Whatever was asked for before or in the cycle of the invalidation
    may be old: entries that are, tell so."""

    name = "mmu.walker"
    shows = (
        "every request has exactly one result, once no other has its tag; at most as many reads as "
        "walks are under way; no result but RETRY rests on an entry, a table in the walk cache or "
        "a row of the ASID table from before an invalidation that covers it, its own cycle "
        "excepted; who follows, follows a read that is under way"
    )
    induction = 1
    cover = 12

    def build(self, m: Module, wrap: Wrap) -> None:
        self._base(m, wrap)
        self._fresh_tables(m)
        self._fresh_reads(m)
        self._reached(m)

    def _base(self, m: Module, wrap: Wrap) -> None:
        """What does not tell old from new."""
        dut = Walker(CONFIG, TAG, walks=WALKS, directories=2)
        inside = Inside(dut)
        self._dut, self._mark = dut, _Mark(m)
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
        self._reads(m)
        self._follows(m)

    def _look(self, m: Module, inside: Inside) -> None:
        """What no port shows."""
        dut = self._dut
        self._entering, self._asked = dut._entering, dut._asked
        self._places, self._ends = dut._places, dut._ends
        self._stale, self._before, self._picked = dut._stale, dut._before, dut._picked
        self._came, self._ask = dut._came, dut._ask
        self._waiting = data.View(dut._named, inside.signal("waiting"))
        tags, order = inside.submodule("tags"), inside.submodule("order")
        self._tags, self._sent = [], []
        head = order.read_ports[0].addr
        self._ahead = order.write_ports[0].addr - head
        for n in range(WALKS):
            tag, sent = tags.read_port(domain="comb"), order.read_port(domain="comb")
            m.d.comb += [tag.addr.eq(n), sent.addr.eq(head + n)]
            self._tags.append(tag.data)
            self._sent.append(sent.data.slot)
        directories = inside.submodule("directories")
        rows = Inside(directories).signal("rows")
        self._known = data.View(data.ArrayLayout(directories._row, directories._entries), rows)

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
            value = Value.cast(target)
            m.d.comb += value.eq(anything(m, len(value), name))
        m.d.comb += [
            Assume(Value.cast(dut.invalidate.scope) <= Scope.PAGE.value),
            Assume(Value.cast(dut.read.beat.p.status) <= MemoryStatus.FAULT.value),
            Assume(dut.read.beat.p.last),
        ]

    # -- specification -----------------------------------------------------------------------------

    def _is(self, one: Any) -> Value:
        """Whether it is of the page."""
        return (one.asid == self._asid) & (one.vpn == self._vpn)

    def _invalidated(self, m: Module) -> None:
        """One of the invalidations that cover the page, whatever size that has, is the last one
        before which there was anything old; rows looked up since are not."""
        self._fresh = Signal(name="fresh")
        covered = covers(self._dut.invalidate, self._asid, self._vpn, PageSize.HUGE)
        with m.If(covered & anything(m, 1, "this_one")):
            m.d.sync += self._fresh.eq(1)
        row, mark = self._dut.row, self._mark
        with m.If(self._entering.valid & (self._asked.asid == self._asid) & self._fresh):
            known = row.bound & row.last.all()
            m.d.comb += [Assume(~row.base[_OLD - 12]), Assume(known | ~mark.refused)]

    def _memory(self, m: Module) -> None:
        """A read of an entry on the way to the page, asked for since, in a table that is not old,
        finds nothing old."""
        request, beat, place = self._dut.read.request, self._dut.read.beat, self._ask.place
        fresh = self._fresh & self._on_way(place) & ~request.p.va[_OLD]
        first, second, level = queue_of_two(
            m, 1, request.valid & request.ready, fresh, beat.valid & beat.ready, "reads"
        )
        self._promises, self._level = [first, second], level
        m.d.comb += Assume(~beat.valid | (level != 0))
        clean = self._mark.entries(beat.p.data)
        error = self._mark.error & (beat.p.status == MemoryStatus.BUS)
        m.d.comb += Assume(~(beat.valid & first) | (clean & ~error))
        self._came_fresh = Signal(name="came_fresh")
        m.d.sync += self._came_fresh.eq(beat.valid & first)

    def _on_way(self, place: Any, cuts: tuple[int, ...] = _NAMES) -> Value:
        """Whether the entry, or the table, that is read next is one for the page too."""
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
        enters = self._entering.valid & (self._asked.tag == self._tag)
        holds = [
            (Value.cast(state) != FREE) & (tag == self._tag)
            for state, tag in zip(self._dut.states, self._tags, strict=True)
        ]
        m.d.comb += Assert(enters + sum(holds) + ends == open_)
        with m.If(open_ & mine):
            m.d.comb += [Assert(~enters | self._is(self._asked))]
            m.d.comb += [Assert(~ends | self._is(self._waiting))]
            m.d.comb += [
                Assert(~here | self._is(place))
                for here, place in zip(holds, self._places, strict=True)
            ]
        with m.If(result.valid & self._fresh & self._is(self._waiting)):
            m.d.comb += Assert(self._mark.end(result.p.end))

    # -- why ---------------------------------------------------------------------------------------

    def _reads(self, m: Module) -> None:
        """A walk that is SENT has one read: to be asked for, under way, or come right now."""
        came, ask, level = self._came, self._ask, self._level
        slot = self._entering.slot
        onehot = (slot == 1) | (slot == 2)
        m.d.comb += [
            Assert(Mux(self._entering.valid, onehot, slot == 0)),
            Assert(Mux(came.valid, (came.slot == 1) | (came.slot == 2), came.slot == 0)),
            Assert(~self._picked.all()),
            Assert(self._ahead[0] == level[0]),
        ]
        for n, (state, place) in enumerate(zip(self._dut.states, self._places, strict=True)):
            state = Value.cast(state)
            asks = ask.valid & (ask.slot == n)
            under_way = [(level > k) & (self._sent[k] == n) for k in range(WALKS)]
            m.d.comb += [
                Assert(state <= DONE),
                Assert(~slot[n] | (state == FREE)),
                Assert(asks + sum(under_way) + came.slot[n] == (state == SENT)),
                Assert(~self._stale[n] | self._before[n]),
                Assert((state == FREE) | (Value.cast(place.depth) < len(_NAMES))),
            ]
            with m.If(asks):
                known, same = Value.cast(place)[:_KNOWN], Value.cast(ask.place)[:_KNOWN]
                m.d.comb += Assert(known == same)
            with m.If(came.slot[n]):
                m.d.comb += Assert(Value.cast(came.place) == Value.cast(place))

    def _follows(self, m: Module) -> None:
        for n, other in ((0, 1), (1, 0)):
            one, leader = self._places[n], self._places[other]
            depth = Value.cast(one.depth)
            same = above(one.vpn, depth, _NAMES) == above(leader.vpn, depth, _NAMES)
            with m.If(Value.cast(self._dut.states[n]) == FOLLOW):
                m.d.comb += [
                    Assert(Value.cast(self._dut.states[other]) == SENT),
                    Assert((one.asid == leader.asid) & (depth == Value.cast(leader.depth)) & same),
                ]

    def _trusts(self, n: int) -> Value:
        """Whether nothing that this walk knows may be old, as far as it is about the page."""
        place = self._places[n]
        region = (place.vpn >> _REGION) == (self._vpn >> _REGION)
        return self._fresh & ~self._stale[n] & (~self._before[n] | region)

    def _fresh_tables(self, m: Module) -> None:
        for n, place in enumerate(self._places):
            state, end = Value.cast(self._dut.states[n]), self._ends[n]
            walks = (state == READ) | (state == SENT) | (state == FOLLOW)
            with m.If(walks & self._trusts(n) & self._on_way(place, _TABLES)):
                beside = place.beside
                old = beside.address[_OLD - 12] | (self._mark.sparse & beside.sparse)
                m.d.comb += [
                    Assert(~place.table[_OLD - 8]),
                    Assert((place.depth != Depth.BIG) | ~old),
                ]
            with m.If((state != FREE) & self._fresh & ~self._stale[n] & self._is(place)):
                m.d.comb += Assert(~self._mark.refused | place.fits.all())
            with m.If((state == DONE) & self._fresh & self._is(place)):
                m.d.comb += Assert(self._mark.end(end))
            with m.If((state == DONE) & self._stale[n]):
                m.d.comb += Assert(end.outcome == Outcome.RETRY)
        for row in self._known:
            here = (row.asid == self._asid) & (row.region == self._vpn >> 17)
            with m.If(row.valid & here & self._fresh):
                m.d.comb += Assert(~row.table[_OLD - 8])

    def _reached(self, m: Module) -> None:
        """Results, and walks on their way, that count after the invalidation."""
        result = self._dut.result
        counts = result.valid & self._fresh & self._is(self._waiting)
        on_way = [
            (Value.cast(state) == SENT) & self._trusts(n) & (place.depth == Depth.PD2)
            for n, (state, place) in enumerate(zip(self._dut.states, self._places, strict=True))
        ]
        m.d.comb += [
            Cover(counts & (result.p.end.outcome != Outcome.RETRY)),
            Cover(Cat(on_way).any()),
        ]

    def _fresh_reads(self, m: Module) -> None:
        came, level = self._came, self._level
        error = self._mark.error & (came.status == MemoryStatus.BUS)
        with m.If(self._came_fresh):
            m.d.comb += Assert(came.valid & self._mark.entries(came.entry) & ~error)
        for n, place in enumerate(self._places):
            fresh = self._trusts(n) & self._on_way(place)
            with m.If(fresh & came.slot[n]):
                m.d.comb += Assert(self._came_fresh)
            for k in range(WALKS):
                with m.If(fresh & (level > k) & (self._sent[k] == n)):
                    m.d.comb += Assert(self._promises[k])


class WaitsProof(WalkerProof):
    """Why: the phases of a walk at one depth, each with its last cycle. It waits for its turn and
    finds another that reads the same; that fails, which is for itself only; it waits for its turn
    again, finds none, for a new walk does not come so far meanwhile; it reads itself."""

    name = "mmu.walker_waits"
    shows = (
        "without invalidations, and while memory takes and answers reads at once and results are "
        f"taken: a walk ends at most {WAIT} cycles after its request"
    )
    induction = 1
    cover = 14

    def build(self, m: Module, wrap: Wrap) -> None:
        self._base(m, wrap)
        dut = self._dut
        m.d.comb += [
            Assume(dut.read.request.ready & (dut.read.beat.valid == (self._level != 0))),
            Assume(dut.result.ready & ~dut.invalidate.valid),
            Assert((self._level <= 1) & (self._before == 0) & ~self._fresh),
        ]
        for n, other in ((0, 1), (1, 0)):
            self._waits(m, n, other)

    def _turn(self, n: int, other: int) -> Value:
        """Cycles in which it will be READ, this one included, at most."""
        came, picked = self._came.valid, self._picked
        ahead = picked[other] & (Value.cast(self._dut.states[other]) == READ)
        return Mux(picked[n] & ~came, 1, Mux(picked[n] | came | ahead, 2, 3))

    def _read(self, n: int) -> Value:
        """Cycles in which it will be SENT, this one included, at most."""
        return Mux(self._came.slot[n], 1, Mux(self._ask.valid & (self._ask.slot == n), 3, 2))

    def _waits(self, m: Module, n: int, other: int) -> None:
        state, rival = (Value.cast(self._dut.states[one]) for one in (n, other))
        depth, before = Value.cast(self._places[n].depth), Signal(3, name=f"depth_{n}")
        count, waited = Signal(5, name=f"count_{n}"), Signal(5, name=f"waited_{n}")
        followed, again = Signal(name=f"followed_{n}"), Signal(name=f"again_{n}")
        turn, age = Signal(2, name=f"turn_{n}"), Signal(7, name=f"age_{n}")
        goes_on = depth != before
        m.d.comb += [waited.eq(Mux(goes_on, 0, count)), again.eq(followed & ~goes_on)]
        m.d.sync += [
            before.eq(depth),
            count.eq(Mux(state == FREE, 0, waited + 1)),
            followed.eq((state != FREE) & (again | (state == FOLLOW))),
            turn.eq(Mux(state == FOLLOW, 0, turn + 1)),
            age.eq(Mux((state == FREE) & ~self._entering.slot[n], 0, age + 1)),
        ]
        reads, waits, ends = self._read(n), self._turn(n, other), Mux(self._dut._given[n], 1, 2)
        far = Mux(rival == FREE, Mux(self._entering.slot[other], 2, 1), Mux(rival == DONE, 0, 3))
        with m.If(state == READ):
            m.d.comb += Assert(waited + waits <= Mux(again, 9, 3))
            with m.If(again):
                m.d.comb += [Assert(turn + waits <= 3), Assert(far <= turn), Cover(turn == 1)]
        with m.Elif(state == FOLLOW):
            m.d.comb += Assert(waited + self._read(other) <= 6)
        with m.Elif(state == SENT):
            m.d.comb += Assert(waited + reads <= Mux(again, 12, 6))
        with m.Elif(state == DONE):
            m.d.comb += Assert(waited + ends <= 14)
        m.d.comb += Assert(~self._entering.slot[n] | (age == 0))
        with m.If(state != FREE):
            m.d.comb += [Assert(age <= waited + 12 * depth + 2), Assert(age <= WAIT - 2)]


PROOFS = [WalkerProof(), WaitsProof()]
