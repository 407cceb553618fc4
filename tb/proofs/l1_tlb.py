"""Proofs of a first-level TLB, with two entries and two or three misses."""

from typing import Any

from amaranth import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data

from signalbox.hw.config import Config
from signalbox.hw.mmu.l1_tlb import L1Tlb, entry_tag, first_step, second_step
from signalbox.hw.mmu.records import (
    PAGE_BITS,
    VPN_BITS,
    Access,
    Outcome,
    PageSize,
    Scope,
    covers,
    invalidation,
    overlap,
    page,
    page_result,
)
from signalbox.hw.page_tables import FaultType
from signalbox.tb.proofs.formal import (
    AnyConst,
    Assert,
    Assume,
    Cover,
    Inside,
    Proof,
    Wrap,
    arbitrary,
)

__all__ = ["PROOFS"]

CONFIG = Config(channels=1, semaphores=8, counters=1, asids=2, address_width=32)
ENTRIES = 2
TAG = data.StructLayout({"number": 1})

_ALLOWED = 31
"""A number that is not that of any fault; it stands for an allowed access."""


class Points:
    """Named points of a first-level TLB (`L1Tlb`).

    Members
    -------
    tags, pages : the entries.
    used : the entry used in the last cycle.
    entering, held : contents of the first and of the second step.
    before : the last cycle's invalidation.
    gone, outdated, accepts, unanswered, withdrawn : single bits, `gone` per entry.
    """

    def __init__(self, inside: Inside, misses: int) -> None:
        self.tags = inside.signal("tags", data.ArrayLayout(entry_tag(CONFIG), ENTRIES))
        self.pages = inside.signal("pages", data.ArrayLayout(page(CONFIG), ENTRIES))
        self.used = inside.submodule("recency").use
        self.entering = inside.signal("entering", first_step(CONFIG, TAG, misses))
        self.held = inside.signal("holding", second_step(CONFIG, TAG, misses, ENTRIES))
        self.before = inside.signal("before", invalidation(CONFIG))
        self.gone, self.outdated, self.accepts, self.unanswered, self.withdrawn = (
            inside.signal(name)
            for name in ("gone", "outdated", "accepts", "unanswered", "withdrawn")
        )


def inputs(m: Module, dut: L1Tlb) -> None:
    """Leave the inputs unconstrained, except that their values are meaningful."""
    ports = {
        "request_valid": dut.request.valid,
        "request": dut.request.payload,
        "result_valid": dut.result.valid,
        "result": dut.result.payload,
        "invalidate": dut.invalidate,
        "answer_ready": dut.answer.ready,
        "miss_ready": dut.miss.ready,
    }
    for name, target in ports.items():
        arbitrary(m, target, name)
    m.d.comb += [
        Assume(Value.cast(dut.invalidate.scope) <= Scope.PAGE.value),
        Assume(Value.cast(dut.result.p.page.size) <= PageSize.HUGE.value),
    ]


class L1TlbProof(Proof):
    """For any page of the smallest size in any address space, chosen by the solver."""

    name = "mmu.l1_tlb"
    shows = (
        "an answer is what the last result for that page of that address space said, by its "
        "permissions, or that there is none, and no invalidation for it came since that result; "
        "entries never overlap"
    )
    induction = 2
    cover = 12

    def build(self, m: Module, wrap: Wrap) -> None:
        dut = L1Tlb(CONFIG, TAG, entries=ENTRIES, misses=2)
        inside = Inside(dut)
        self._points = Points(inside, misses=2)
        m.submodules.dut = wrap(dut)
        inputs(m, dut)
        self._asid, self._vpn = Signal(CONFIG.asid_bits, name="asid"), Signal(VPN_BITS, name="vpn")
        m.d.comb += [self._asid.eq(AnyConst(CONFIG.asid_bits)), self._vpn.eq(AnyConst(VPN_BITS))]
        known = self._specify(m, dut, inside.submodule("misses").lookup)
        self._entries(m, known)
        self._answers(m, dut, known)
        self._refusals(m, dut, inside)

    def _mine(self, asid: Value, vpn: Value, size: Any) -> Value:
        """Whether this page contains the chosen one."""
        return (asid == self._asid) & overlap(vpn, size, self._vpn, PageSize.SMALL)

    def _specify(self, m: Module, dut: L1Tlb, asker: Any) -> Any:
        """The last result for the chosen page, while it may be used: on its way to the entries
        (`coming`), and stored there."""
        layout = data.StructLayout({"valid": 1, "page": page(CONFIG)})
        coming, known = Signal(layout, name="coming"), Signal(layout, name="known")
        result = dut.result.payload
        m.d.comb += Assume(~dut.result.valid | ~asker.physical)
        came = dut.result.valid & dut.result.ready & (result.outcome == Outcome.PAGE)
        comes = came & self._mine(asker.asid, asker.va[PAGE_BITS:], result.page.size)
        arrives = coming.valid & self._points.held.came
        with m.If(dut.result.valid & dut.result.ready):
            m.d.sync += [
                coming.valid.eq(comes & ~self._gone(dut.invalidate, result.page.size)),
                coming.page.eq(result.page),
            ]
        with m.Elif(arrives | self._gone(dut.invalidate, coming.page.size)):
            m.d.sync += coming.valid.eq(0)
        with m.If(arrives & ~self._gone(dut.invalidate, coming.page.size)):
            m.d.sync += [known.valid.eq(1), known.page.eq(coming.page)]
        with m.Elif(self._gone(dut.invalidate, known.page.size)):
            m.d.sync += known.valid.eq(0)
        self._under_way(m, coming)
        return known

    def _under_way(self, m: Module, coming: Any) -> None:
        """The result on its way is in exactly one of the two places."""
        entering, held = self._points.entering, self._points.held
        pages = [
            (entering.result & (entering.end.outcome == Outcome.PAGE), entering),
            (held.came, held),
        ]
        here = [
            pending
            & self._mine(one.lookup.asid, one.lookup.va[PAGE_BITS:], one.end.page.size)
            & (one.end.page == coming.page)
            for pending, one in pages
        ]
        with m.If(coming.valid):
            m.d.comb += Assert(Cat(here).any())
        for pending, one in pages:
            mine = self._mine(one.lookup.asid, one.lookup.va[PAGE_BITS:], one.end.page.size)
            # The invalidation in the cycle of acceptance takes effect one cycle later.
            before = self._gone(self._points.before, one.end.page.size) & (one is entering)
            stale = one.stale.any() | before
            with m.If(pending & mine & ~stale):
                m.d.comb += Assert(coming.valid & (one.end.page == coming.page))
            with m.If(pending & mine & stale):
                m.d.comb += Assert(~coming.valid)
            m.d.comb += Assert(Value.cast(one.end.page.size) <= PageSize.HUGE.value)
        m.d.comb += [
            Assert(~(entering.result & held.came)),
            Assert(~(entering.result & entering.again)),
        ]

    def _gone(self, event: Any, size: Any) -> Value:
        return covers(event, self._asid, self._vpn, size)

    def _entries(self, m: Module, known: Any) -> None:
        held, entering = self._points.held, self._points.entering
        tags = list(zip(self._points.tags, self._points.pages, strict=True))
        (one, one_page), (other, other_page) = tags
        same = (one.asid == other.asid) & overlap(
            one.vpn, one_page.size, other.vpn, other_page.size
        )
        m.d.comb += Assert(~(one.valid & other.valid & same))
        looks = held.new | held.again
        for n, (tag, entry) in enumerate(tags):
            leaves = self._points.gone[n] | (self._points.outdated & self._points.used[n])
            with m.If(tag.valid & self._mine(tag.asid, tag.vpn, entry.size) & ~leaves):
                m.d.comb += Assert(known.valid & (known.page == entry))
            size = Mux(held.came, held.end.page.size, PageSize.SMALL)
            vpn = held.lookup.va[PAGE_BITS:]
            matches = (tag.asid == held.lookup.asid) & overlap(tag.vpn, entry.size, vpn, size)
            matches &= tag.valid & ~held.lookup.physical
            with m.If(matches & (looks | held.came)):
                m.d.comb += Assert(held.matches[n])
            with m.If(held.matches[n] & ((looks & ~self._points.unanswered) | held.came)):
                m.d.comb += Assert(matches)
            m.d.comb += Assert(Value.cast(entry.size) <= PageSize.HUGE.value)
        m.d.comb += [
            # Nothing is compared while entries change.
            Assert(~(held.came & (self._points.accepts | entering.again | entering.result))),
            Assert(~(self._points.outdated & (looks | held.came | held.refused))),
            Assert(~(self._points.accepts & (entering.again | entering.result))),
            Assert(~(entering.result & entering.lookup.physical)),
            Assert(~(held.came & held.lookup.physical)),
            Assert(looks + held.came + held.refused <= 1),
            Assert(~held.came | (held.end.outcome == Outcome.PAGE)),
            Assert(~held.refused | _refused(held.end.outcome)),
        ]

    def _answers(self, m: Module, dut: L1Tlb, known: Any) -> None:
        answer, held = dut.answer, self._points.held
        look = held.lookup
        mine = ~look.physical & self._mine(look.asid, look.va[PAGE_BITS:], PageSize.SMALL)
        is_page = answer.valid & (answer.p.outcome == Outcome.PAGE)
        with m.If(is_page & mine):
            ppn, at = known.page.ppn, self._vpn
            translated = Cat(
                look.va[:PAGE_BITS],
                Mux(known.page.size == PageSize.SMALL, ppn[:4], at[:4]),
                Mux(known.page.size == PageSize.HUGE, at[4:9], ppn[4:9]),
                ppn[9:],
            )
            m.d.comb += [Assert(known.valid), Assert(answer.p.pa == translated)]
        with m.If(answer.valid & mine & ~held.refused):
            fault = self._denied(known.page, look)
            allowed = fault == _ALLOWED
            m.d.comb += [
                Assert(known.valid & (is_page == allowed)),
                Assert(allowed | (answer.p.outcome == Outcome.FAULT)),
                Assert(allowed | (Value.cast(answer.p.fault) == fault)),
            ]
        with m.If(answer.valid & look.physical):
            inside = look.va < CONFIG.memory_bytes
            m.d.comb += [
                Assert(is_page == inside),
                Assert(~is_page | (answer.p.pa == look.va)),
                Assert(is_page | (answer.p.fault == FaultType.REGION)),
            ]
        m.d.comb += [
            Assert(answer.p.outcome != Outcome.RETRY),
            Cover(is_page & mine & (known.page.size == PageSize.BIG) & held.new),
        ]

    @staticmethod
    def _denied(page: Any, look: Any) -> Value:
        """Fault number, from page 60's table, for an access that a page forbids."""
        fault = Const(_ALLOWED)
        fault = Mux(page.no_atomics & (look.access == Access.ATOMIC), 0xF, fault)
        fault = Mux(page.read_only & (look.access != Access.READ), 6, fault)
        return Mux(page.privileged & ~look.privileged, 5, fault)

    def _refusals(self, m: Module, dut: L1Tlb, inside: Inside) -> None:
        """A result without a page, for the chosen page, may be used until an invalidation that
        covers it for any size: first on its way (`coming`), then as the answer (`there`)."""
        layout = data.StructLayout({"valid": 1, "end": page_result(CONFIG)})
        coming, there = Signal(layout, name="refused_coming"), Signal(layout, name="refused")
        entering, held, result = self._points.entering, self._points.held, dut.result.payload
        gone = self._gone(dut.invalidate, PageSize.HUGE)
        misses = inside.submodule("misses")
        asker, moves = misses.lookup, misses.moves
        takes = dut.result.valid & dut.result.ready
        mine = self._mine(asker.asid, asker.va[PAGE_BITS:], PageSize.SMALL)
        with m.If(moves):
            m.d.sync += [
                coming.valid.eq(takes & _refused(result.outcome) & mine & ~gone),
                coming.end.outcome.eq(result.outcome),
                coming.end.fault.eq(result.fault),
                there.valid.eq(coming.valid & ~gone),
                there.end.eq(coming.end),
            ]
        with m.Elif(gone):
            m.d.sync += [coming.valid.eq(0), there.valid.eq(0)]
        for one, ghost, refused, stale in (
            (entering, coming, entering.result & _refused(entering.end.outcome), 0),
            (held, there, held.refused, self._points.withdrawn),
        ):
            mine = self._mine(one.lookup.asid, one.lookup.va[PAGE_BITS:], PageSize.SMALL)
            before = self._gone(self._points.before, PageSize.HUGE) & (one is entering)
            usable = refused & mine & ~one.stale.any() & ~before & ~stale
            same = (one.end.outcome == ghost.end.outcome) & (one.end.fault == ghost.end.fault)
            m.d.comb += Assert(ghost.valid == usable)
            with m.If(ghost.valid):
                m.d.comb += Assert(same)
        mine = self._mine(held.lookup.asid, held.lookup.va[PAGE_BITS:], PageSize.SMALL)
        with m.If(dut.answer.valid & held.refused & mine):
            fault = dut.answer.p.fault == there.end.fault
            m.d.comb += [
                Assert(there.valid & (dut.answer.p.outcome == there.end.outcome)),
                Assert(fault | (there.end.outcome == Outcome.SPARSE)),
            ]


class L1TlbWaitsProof(Proof):
    """For any tag, chosen by the solver, and three waiting look-ups. The next level answers only
    its requests."""

    name = "mmu.l1_tlb_waits"
    shows = (
        "every look-up has exactly one answer, once no other has its tag; while it waits its page "
        "is asked for, by itself or by one that it follows, or it is about to be looked up again"
    )
    induction = 1
    cover = 14

    MISSES = 3

    def build(self, m: Module, wrap: Wrap) -> None:
        dut = L1Tlb(CONFIG, TAG, entries=ENTRIES, misses=self.MISSES)
        whole = Inside(dut)
        self._points = Points(whole, misses=self.MISSES)
        self._misses = misses = whole.submodule("misses")
        inside = Inside(misses)
        shape = data.ArrayLayout(misses.lookup.shape(), self.MISSES)
        self._lookups = inside.signal("lookups", shape)
        self._same, self._free, self._ask, self._offer, self._sent, self._follow, self._again = (
            inside.signal(name)
            for name in (
                "same_page", "is_free", "is_ask", "is_offer", "is_sent", "is_follow", "is_again",
            )
        )  # fmt: skip
        m.submodules.dut = wrap(dut)
        inputs(m, dut)
        self._next_level(m, dut)
        self._places(m, dut)
        self._waits(m)
        self._counts(m, dut)

    def _next_level(self, m: Module, dut: L1Tlb) -> None:
        """The next level answers requests that are outstanding."""
        wanted = dut.result.p.miss
        under_way = self._results
        for n in range(self.MISSES):
            with m.If(dut.result.valid & (wanted == n)):
                m.d.comb += Assume(self._sent[n] & ~under_way[n])
        m.d.comb += Assume(~dut.result.valid | (wanted < self.MISSES))

    @property
    def _results(self) -> Value:
        """Slots whose result is in the pipeline and has not ended the wait."""
        entering, held = self._points.entering, self._points.held
        first = Mux(entering.result, entering.slot, 0)
        return first | Mux(held.refused | held.retry, held.slot, 0)

    def _places(self, m: Module, dut: L1Tlb) -> None:
        """The pipeline agrees with the slots, and slots for the same page are known."""
        entering, held, misses = self._points.entering, self._points.held, self._misses
        slotted = held.again | held.came | held.refused | held.retry
        m.d.comb += [
            Assert(held.new + held.again + held.came + held.refused + held.retry <= 1),
            Assert(~(entering.result & entering.again)),
            Assert(~(self._points.accepts & (entering.result | entering.again))),
            Assert(~(entering.result & (held.came | held.refused | held.retry))),
            Assert(~(self._points.outdated & (held.new | slotted))),
            Assert(~(held.came & (self._points.accepts | entering.again))),
            Assert(~(self._points.unanswered & dut.answer.valid)),
        ]
        for one, used in ((entering, entering.result | entering.again), (held, slotted)):
            m.d.comb += Assert(~used | _one(one.slot))
            for n in range(self.MISSES):
                with m.If(used & one.slot[n]):
                    same = Value.cast(one.lookup) == Value.cast(self._lookups[n])
                    m.d.comb += Assert(same & ~self._free[n])
        for n in range(self.MISSES):
            with m.If((held.new | slotted) & ~self._free[n]):
                same = _same_page(self._lookups[n], held.lookup)
                m.d.comb += Assert(self._same[n] == same)
        m.d.comb += [
            Assert(~(held.new | self._points.accepts) | misses.room[0]),
            Assert(~(held.new & self._points.accepts) | misses.room[1]),
        ]

    def _waits(self, m: Module) -> None:
        """Each slot waits for one thing, and a follower has a leader."""
        held, entering = self._points.held, self._points.entering
        results, asked = self._results, Signal(self.MISSES, name="asked")
        m.d.comb += asked.eq(self._ask | self._offer | self._sent)
        for n in range(self.MISSES):
            again = (entering.again & entering.slot[n]) + (held.again & held.slot[n])
            states = (self._ask, self._offer, self._sent, self._follow, self._again)
            m.d.comb += [
                Assert(sum(state[n] for state in states) + again == ~self._free[n]),
                Assert(~results[n] | self._sent[n]),
            ]
            leaders = Cat(
                (asked[other] | (held.came & held.slot[other]))
                & _same_page(self._lookups[n], self._lookups[other])
                for other in range(self.MISSES)
                if other != n
            )
            with m.If(self._follow[n]):
                m.d.comb += Assert(leaders.any())
        m.d.comb += [Cover(self._follow.any()), Cover(held.came & self._follow.any())]

    def _counts(self, m: Module, dut: L1Tlb) -> None:
        """The tag of a look-up is in one place until it is answered."""
        tag, open_ = Signal(TAG.size, name="tag"), Signal(name="open")
        request, given = dut.request, dut.answer
        m.d.comb += tag.eq(AnyConst(TAG.size))

        def mine(one: Any) -> Value:
            return Value.cast(one.tag) == tag

        asks = request.valid & request.ready & mine(request.p)
        ends = given.valid & given.ready & mine(given.p)
        m.d.comb += [Assume(~(asks & open_)), Assert(~(given.valid & mine(given.p)) | open_)]
        with m.If(asks):
            m.d.sync += open_.eq(1)
        with m.Elif(ends):
            m.d.sync += open_.eq(0)
        waiting = sum(
            ~free & mine(one) for free, one in zip(self._free, self._lookups, strict=True)
        )
        m.d.comb += Assert(
            (self._points.held.new & mine(self._points.held.lookup)) + waiting == open_
        )


def _one(slot: Value) -> Value:
    """Exactly one bit is set."""
    return slot.any() & ~(slot & (slot - 1)).any()


def _same_page(one: Any, other: Any) -> Value:
    return (one.asid == other.asid) & (one.va[PAGE_BITS:] == other.va[PAGE_BITS:])


def _refused(outcome: Value) -> Value:
    return (outcome == Outcome.FAULT) | (outcome == Outcome.SPARSE)


PROOFS = [L1TlbProof(), L1TlbWaitsProof()]
