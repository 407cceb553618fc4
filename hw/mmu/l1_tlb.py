"""First-level TLB of one memory client (ASID-3, ASID-10, ASID-11)."""

from typing import Any

from amaranth.hdl import Cat, Module, Mux, ShapeLike, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from signalbox.hw.config import Config
from signalbox.hw.lib.onehot import lowest, select
from signalbox.hw.mmu.mshr import MshrFile, miss_bits, miss_request
from signalbox.hw.mmu.plru import TreePlru
from signalbox.hw.mmu.records import (
    PAGE_BITS,
    VPN_BITS,
    Access,
    Outcome,
    PageSize,
    answer,
    covers,
    invalidation,
    largest,
    lookup,
    overlap,
    page,
    page_result,
)
from signalbox.hw.page_tables import FaultType

__all__ = ["L1Tlb", "entry_tag", "first_step", "miss_result", "second_step"]


def miss_result(config: Config, misses: int) -> data.StructLayout:
    """Result of a `miss_request`."""
    return data.StructLayout({"miss": miss_bits(misses), **page_result(config).members})


def entry_tag(config: Config) -> data.StructLayout:
    """Address of an entry's page."""
    return data.StructLayout({"valid": 1, "asid": config.asid_bits, "vpn": VPN_BITS})


def _waiting(config: Config, tag: data.Layout, misses: int) -> dict[str, ShapeLike]:
    """A look-up with its MSHR, its result, and whether an invalidation covers the result."""
    return {"slot": misses, "lookup": lookup(config, tag), "end": page_result(config), "stale": 2}


def first_step(config: Config, tag: data.Layout, misses: int) -> data.StructLayout:
    """Contents of the first step, unless it takes a new look-up: a look-up to be repeated, or a
    result."""
    return data.StructLayout({"again": 1, "result": 1, **_waiting(config, tag, misses)})


def second_step(config: Config, tag: data.Layout, misses: int, entries: int) -> data.StructLayout:
    """Contents of the second step: a look-up, `new` or repeated, or a result: a page that `came`,
    a refusal, or RETRY. `matches`: entries that overlap its page."""
    kinds = dict.fromkeys(("new", "again", "came", "refused", "retry"), 1)
    return data.StructLayout({**kinds, **_waiting(config, tag, misses), "matches": entries})


class L1Tlb(wiring.Component):
    """Translates the look-ups of one client. Fully associative, with pages of all sizes in one
    array; hit under miss.

    Two pipeline steps, one look-up per cycle: the request is compared with all entries in the cycle
    in which it is accepted, and answered from the matching entry in the next. A look-up that misses
    moves to the `MshrFile`; answers to others overtake it. New look-ups are accepted only while an
    MSHR is sure to be free: one per cycle while two are, every other cycle while one is.

    Results, and look-ups to be repeated, go through a register (`entering`) before the first step
    and have priority over new ones. A result is compared in the cycle after it was accepted and
    written 2 cycles later; nothing else is compared in between. The look-up that requested it is
    then repeated, and answered 4 cycles after the result was accepted.

    Entries never overlap: a new page replaces all entries that it overlaps. Otherwise it takes an
    invalid entry, except one that became invalid in the last two cycles, else the pseudo least
    recently used one (`TreePlru`).

    An invalidation takes effect in the next cycle: on entries, on a result in the pipeline, and on
    look-ups that were compared but not answered.

    While an answer is not accepted, the pipeline stalls. Whether `answer.ready` stalls it is
    decided before it is known whether there is an answer; so a look-up that misses stalls too, for
    one cycle.

    Parameters
    ----------
    entries : 2 … 64, a power of two.
    misses : outstanding misses, see `MshrFile`.

    Members
    -------
    request : in, stream of `lookup`.
    answer : out, stream of `answer`, in any order. One that is not accepted may be withdrawn by an
        invalidation.
    miss : out, stream of `miss_request`, to the next level.
    result : in, stream of `miss_result`, in any order.
    invalidate : in, see `invalidation`.
    hit : out, strobe: a look-up of `asid` hit. For counters.
    missed : out, strobe: a new look-up of `asid` missed. For counters.
    """

    def __init__(
        self, config: Config, tag: data.Layout, *, entries: int = 16, misses: int = 4
    ) -> None:
        if not 2 <= entries <= 64 or entries & (entries - 1):
            raise ValueError(f"entries = {entries!r} is not a power of two from 2 to 64")
        self._config, self._entries = config, entries
        self._lookup = lookup(config, tag)
        self._misses = MshrFile(config, tag, misses)
        self._recency = TreePlru(entries)
        self._result = miss_result(config, misses)
        self._tags = Signal(data.ArrayLayout(entry_tag(config), entries), name="tags")
        self._pages = Signal(data.ArrayLayout(page(config), entries), name="pages")
        """The entries."""
        self._gone = Signal(entries, name="gone")
        """Entries covered by the last cycle's invalidation; no longer valid."""
        self._outdated = Signal(name="outdated")
        """The last cycle's invalidation covers the entry written in that cycle, which is in
        `TreePlru.use`."""
        self._before = Signal(invalidation(config), name="before")
        """The last cycle's invalidation."""
        self._accepts = Signal(name="accepts")
        """The first step is open for a new look-up."""
        self._entering = Signal(first_step(config, tag, misses), name="entering")
        self._holding = Signal(second_step(config, tag, misses, entries), name="holding")
        self._unanswered = Signal(name="unanswered")
        """The second step has no answer, as the last cycle has shown."""
        self._withdrawn = Signal(name="withdrawn")
        """The answer in the second step was withdrawn."""
        event = data.StructLayout({"valid": 1, "asid": config.asid_bits})
        super().__init__({
            "request": In(stream.Signature(self._lookup)),
            "answer": Out(stream.Signature(answer(config, tag))),
            "miss": Out(stream.Signature(miss_request(config, misses))),
            "result": In(stream.Signature(self._result)),
            "invalidate": In(invalidation(config)),
            "hit": Out(event),
            "missed": Out(event),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.misses = misses = self._misses
        m.submodules.recency = self._recency
        connect(m, misses.ask, flipped(self.miss))
        self._first = Signal(self._lookup)
        self._moves = Signal()
        self._missed = Signal()
        self._enter(m)
        self._invalidate(m)
        self._compare(m)
        self._hold(m)
        self._answer(m)
        self._translate(m)
        self._fill(m)
        return m

    # -- entry into the first step -----------------------------------------------------------------

    def _enter(self, m: Module) -> None:
        """Selects the next input of the first step: a result, a look-up to repeat, or a new one."""
        entering, misses, result = self._entering, self._misses, self.result
        open_ = Signal()
        taken = Signal()
        m.d.comb += [
            # An entry written by a result can be compared from two cycles later on.
            open_.eq(~entering.result),
            misses.wanted.valid.eq(result.valid),
            misses.wanted.miss.eq(result.p.miss),
            misses.pick.eq(self._moves & open_ & ~result.valid),
            result.ready.eq(self._moves & open_),
            self.request.ready.eq(self._moves & self._accepts),
            taken.eq(self._accepts & self.request.valid),
        ]
        # Both this look-up and the one before it may need an MSHR.
        one, both = self._missed | taken, self._missed & taken
        room = Mux(both, misses.room[2], Mux(one, misses.room[1], misses.room[0]))
        with m.If(self._moves):
            m.d.sync += [
                entering.result.eq(open_ & result.valid),
                entering.again.eq(open_ & ~result.valid & misses.again),
                self._accepts.eq(open_ & ~result.valid & ~misses.again & room),
                entering.slot.eq(misses.slot),
                entering.lookup.eq(misses.lookup),
                [entering.end[name].eq(result.p[name]) for name in entering.end.shape().members],
            ]

    # -- invalidations -----------------------------------------------------------------------------

    def _invalidate(self, m: Module) -> None:
        """Compares an invalidation in its cycle; entries and results that it covers are invalid
        from the next cycle on."""
        event, entering, held, moves = self.invalidate, self._entering, self._holding, self._moves
        for n, (tag, entry) in enumerate(zip(self._tags, self._pages, strict=True)):
            m.d.sync += self._gone[n].eq(covers(event, tag.asid, tag.vpn, entry.size))
        enters, holds = _result_covered(event, entering), _result_covered(event, held)
        # The invalidation of the cycle in which a result was accepted is compared a cycle later.
        stale = entering.stale | Cat(_result_covered(self._before, entering), enters)
        with m.If(moves):
            m.d.sync += [entering.stale.eq(0), held.stale.eq(stale)]
        with m.Else():
            m.d.sync += entering.stale.eq(stale)
        m.d.sync += [
            self._before.eq(event),
            self._outdated.eq(held.came & holds),
            self._withdrawn.eq(~moves & (self._withdrawn | (held.refused & holds))),
        ]

    # -- first step --------------------------------------------------------------------------------

    def _compare(self, m: Module) -> None:
        """Compares with all entries. A result also matches entries inside its larger page.

        `entering` has comparators of its own: a multiplexer before them would be too slow.
        """
        first, entering, misses = self._first, self._entering, self._misses
        new = self._matches(self.request.p, PageSize.SMALL)
        size = Mux(entering.result, entering.end.page.size, PageSize.SMALL)
        other = self._matches(entering.lookup, size)
        m.d.comb += [
            first.eq(Mux(self._accepts, self.request.payload, entering.lookup)),
            misses.first.eq(first),
        ]
        with m.If(self._moves):
            m.d.sync += self._holding.matches.eq(Mux(self._accepts, new, other) & ~self._gone)

    def _matches(self, look: data.View, size: Any) -> Value:
        """Entries that overlap a page of this size."""
        vpn = look.va[PAGE_BITS:]
        return Cat(
            tag.valid
            & (tag.asid == look.asid)
            & overlap(tag.vpn, entry.size, vpn, size)
            & ~look.physical
            for tag, entry in zip(self._tags, self._pages, strict=True)
        )

    # -- second step -------------------------------------------------------------------------------

    def _hold(self, m: Module) -> None:
        """Moves the first step into the second."""
        entering, held = self._entering, self._holding
        outcome = entering.end.outcome
        page_comes = entering.result & (outcome == Outcome.PAGE)
        answers = held.new | held.again | held.refused
        m.d.comb += [
            # An entry that was outdated when written is removed before the next comparison.
            self._moves.eq(~self._outdated & (self.answer.ready | self._unanswered | ~answers)),
            # The page is in the TLB by the time the look-up is compared; if not, it misses again.
            self._misses.wake.eq(Mux(self._moves & page_comes, entering.slot, 0)),
        ]
        m.d.sync += self._unanswered.eq(~self._moves & ~self.answer.valid)
        with m.If(self._moves):
            m.d.sync += [
                held.new.eq(self._accepts & self.request.valid),
                held.again.eq(entering.again),
                held.came.eq(page_comes),
                held.refused.eq(
                    entering.result & ((outcome == Outcome.FAULT) | (outcome == Outcome.SPARSE))
                ),
                held.retry.eq(entering.result & (outcome == Outcome.RETRY)),
                held.lookup.eq(self._first),
                held.slot.eq(entering.slot),
                held.end.eq(entering.end),
            ]

    def _answer(self, m: Module) -> None:
        """Answers from the matching entry, or from a result without a page."""
        held, misses, moves = self._holding, self._misses, self._moves
        looks = held.new | held.again
        hit = Signal()
        refused = Signal()
        usable = ~held.stale.any()
        m.d.comb += [
            hit.eq(held.lookup.physical | (~self._unanswered & (held.matches & ~self._gone).any())),
            refused.eq(held.refused & usable & ~self._withdrawn),
            self.answer.valid.eq(refused | (looks & hit)),
            self._missed.eq(held.new & ~hit),
            misses.moves.eq(moves),
            misses.second.eq(held.lookup),
            misses.new.eq(held.new),
            misses.held.eq(held.slot),
            misses.missed.eq(moves & looks & ~hit),
            misses.answered.eq(moves & held.again & hit),
            misses.came.eq(held.came),
            misses.refused.eq(moves & refused),
            misses.retry.eq(held.retry | (moves & held.refused & ~refused)),
            self.hit.valid.eq(moves & held.new & hit & ~held.lookup.physical),
            self.hit.asid.eq(held.lookup.asid),
            self.missed.valid.eq(moves & self._missed),
            self.missed.asid.eq(held.lookup.asid),
        ]

    def _translate(self, m: Module) -> None:
        """Forms the physical address and checks permissions."""
        held, request, out = self._holding, self._holding.lookup, self.answer.p
        found = Signal(page(self._config))
        at, inside = request.va, found.ppn
        # Bits of the address that pass untranslated, by page size.
        large = request.physical | (found.size != PageSize.SMALL)
        huge = request.physical | (found.size == PageSize.HUGE)
        ppn = Cat(
            Mux(large, at[12:16], inside[0:4]),
            Mux(huge, at[16:21], inside[4:9]),
            Mux(request.physical, at[21 : self._config.address_width], inside[9:]),
        )
        writes = request.access != Access.READ
        denied = [
            (found.privileged & ~request.privileged, FaultType.PRIV),
            (found.read_only & writes, FaultType.RO),
            (found.no_atomics & (request.access == Access.ATOMIC), FaultType.ATOMIC),
        ]
        m.d.comb += [
            found.eq(select(held.matches, (entry.as_value() for entry in self._pages))),
            out.tag.eq(request.tag),
            out.pa.eq(Cat(at[:PAGE_BITS], ppn)),
        ]
        with m.If(held.refused):
            m.d.comb += [out.outcome.eq(held.end.outcome), out.fault.eq(held.end.fault)]
        with m.Elif(request.physical):
            outside = at >= self._config.memory_bytes
            m.d.comb += out.outcome.eq(Mux(outside, Outcome.FAULT, Outcome.PAGE))
            m.d.comb += out.fault.eq(FaultType.REGION)
        for condition, fault in denied:
            with m.Elif(condition):
                m.d.comb += [out.outcome.eq(Outcome.FAULT), out.fault.eq(fault)]
        with m.Else():
            m.d.comb += out.outcome.eq(Outcome.PAGE)

    def _fill(self, m: Module) -> None:
        """Writes a page that has arrived over all entries that it overlaps, or into a victim."""
        held, use = self._holding, self._recency.use
        spare, choice, free = (Signal(self._entries, name=n) for n in ("spare", "choice", "free"))
        full = Signal()
        came = Signal()
        fits = Signal()
        unused = Mux(full, self._recency.oldest, spare)
        looks = held.new | held.again
        m.d.comb += [
            came.eq(held.came & ~held.stale.any()),
            fits.eq(~held.matches.any()),
            free.eq(~Cat(tag.valid for tag in self._tags) | self._gone),
            choice.eq(lowest(held.matches) | Mux(fits, unused, 0)),
        ]
        m.d.sync += [
            spare.eq(lowest(free)),
            full.eq(~free.any()),
            # Updated one cycle after the entry, early enough for the next result.
            use.eq(Mux(came, choice, Mux(looks, held.matches, 0))),
        ]
        for n, (tag, entry) in enumerate(zip(self._tags, self._pages, strict=True)):
            # All overlapped entries are written, but only one of them becomes valid.
            with m.If(came & (held.matches[n] | (fits & unused[n]))):
                m.d.sync += [
                    tag.valid.eq(choice[n]),
                    tag.asid.eq(held.lookup.asid),
                    tag.vpn.eq(held.lookup.va[PAGE_BITS:]),
                    entry.eq(held.end.page),
                    # This cycle's invalidation was compared with the old contents.
                    self._gone[n].eq(0),
                ]
            with m.Elif(self._gone[n] | (self._outdated & use[n])):
                m.d.sync += tag.valid.eq(0)


def _result_covered(event: data.View, one: data.View) -> Value:
    """Whether an invalidation covers the page of a result; without a page, one of any size."""
    return covers(event, one.lookup.asid, one.lookup.va[PAGE_BITS:], largest(one.end))
