"""First-level TLB of one memory client (ASID-3, ASID-10, ASID-11)."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.config import Config
from hw.lib.onehot import select
from hw.mmu.lookups import (
    PAGE_BITS,
    VPN_BITS,
    Access,
    Outcome,
    PageSize,
    answer,
    covers,
    ending,
    invalidation,
    lookup,
    overlap,
    page,
)
from hw.mmu.misses import Misses, miss_bits, miss_request
from hw.mmu.recency import TreeRecency
from hw.pagetables import FaultType

__all__ = ["Kind", "L1Tlb", "miss_result"]


def miss_result(config: Config, misses: int) -> data.StructLayout:
    """What came of a `miss_request`."""
    return data.StructLayout({"miss": miss_bits(misses), **ending(config).members})


class Kind(enum.Enum, shape=2):
    """What goes through the pipeline: a new look-up, one whose page has come, a result."""

    NEW = 0
    AGAIN = 1
    RESULT = 2


class L1Tlb(wiring.Component):
    """Fully associative; all page sizes side by side; hits under misses.

    Two steps, one look-up per cycle: all entries are compared while the request is taken, and the
    answer is there, from the entry that matched, in the next cycle. A look-up that misses waits
    beside (`Misses`); answers of others overtake it. A result takes two cycles of the pipeline.
    New look-ups are taken while it is sure that they can wait: one per cycle while two more may,
    every other cycle while one may. Results and look-ups whose page has come go before them.

    Entries never overlap: a page that comes takes the place of all that it overlaps. An entry that
    is not valid is used before another is evicted; then the least recently used one goes, as a
    tree of bits remembers it.

    An invalidation takes effect in the cycle after it: on entries, on a result that waits here,
    and on look-ups that were compared but not answered.

    Parameters
    ----------
    entries : 2 … 64, a power of two.
    misses : 2 … 64; look-ups that may wait.

    Members
    -------
    request, answer : look-ups and their answers, in any order. An answer that waits to be taken
        may be withdrawn by an invalidation.
    miss, result : pages that are wanted from the next level, and what came of it.
    invalidate : see `invalidation`.
    hit, missed : a look-up of `asid` was answered at once; it has to wait. For counters.

    Attributes
    ----------
    tags, pages, held : the entries, and what is in the second step (state, for proofs).
    """

    def __init__(
        self, config: Config, tag: data.Layout, *, entries: int = 16, misses: int = 4
    ) -> None:
        if not 2 <= entries <= 64 or entries & (entries - 1):
            raise ValueError(f"entries = {entries!r} is not a power of two from 2 to 64")
        self._config, self._entries = config, entries
        self._lookup = lookup(config, tag)
        self._misses = Misses(config, tag, misses)
        self._result = miss_result(config, misses)
        tag_layout = data.StructLayout({"valid": 1, "asid": config.asid_bits, "vpn": VPN_BITS})
        self.tags = Signal(data.ArrayLayout(tag_layout, entries))
        self.pages = Signal(data.ArrayLayout(page(config), entries))
        self.held = Signal(
            data.StructLayout({
                "valid": 1,
                "kind": Kind,
                "lookup": self._lookup,
                "result": self._result,
                "matches": entries,
            })
        )
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
        m.submodules.recency = self._recency = TreeRecency(self._entries)
        connect(m, misses.ask, flipped(self.miss))
        self._taken = Signal.like(self.held)
        self._moves = Signal()
        self._choose(m)
        self._compare(m)
        self._answer(m)
        self._fill(m)
        return m

    # -- first step --------------------------------------------------------------------------------

    def _choose(self, m: Module) -> None:
        """What enters: a result, a look-up whose page has come, or a new one."""
        taken, held, misses = self._taken, self.held, self._misses
        # What a result changes is compared from the next cycle on.
        open_ = self._moves & ~(held.valid & (held.kind == Kind.RESULT))
        sure = ~misses.none & ~(misses.few & held.valid & (held.kind == Kind.NEW))
        results, again = self.result.valid, misses.again.valid
        m.d.comb += [
            self.result.ready.eq(open_),
            misses.again.ready.eq(open_ & ~results),
            self.request.ready.eq(open_ & ~results & ~again & sure),
            misses.peek.eq(self.result.p.miss),
            taken.result.eq(self.result.payload),
            taken.valid.eq(open_ & (results | again | (self.request.valid & sure))),
        ]
        with m.If(results):
            m.d.comb += [taken.kind.eq(Kind.RESULT), taken.lookup.eq(misses.peeked)]
        with m.Elif(again):
            m.d.comb += [taken.kind.eq(Kind.AGAIN), taken.lookup.eq(misses.again.payload)]
            m.d.comb += taken.result.miss.eq(misses.again_miss)
        with m.Else():
            m.d.comb += [taken.kind.eq(Kind.NEW), taken.lookup.eq(self.request.payload)]

    def _compare(self, m: Module) -> None:
        """Compare with all entries; a result overlaps what it is larger than, too."""
        taken, held = self._taken, self.held
        vpn = taken.lookup.va[PAGE_BITS:]
        size = Mux(taken.kind == Kind.RESULT, taken.result.page.size, PageSize.SMALL)
        for n, (tag, entry) in enumerate(zip(self.tags, self.pages, strict=True)):
            same = tag.valid & (tag.asid == taken.lookup.asid)
            m.d.comb += taken.matches[n].eq(
                same & overlap(tag.vpn, entry.size, vpn, size) & ~taken.lookup.physical
            )
        with m.If(self._moves):
            m.d.sync += held.eq(taken)
        next_ = data.View(held.shape(), Mux(self._moves, taken, held))
        vpn = next_.lookup.va[PAGE_BITS:]
        with m.If(covers(self.invalidate, next_.lookup.asid, vpn, next_.result.page.size)):
            m.d.sync += held.result.outcome.eq(Outcome.RETRY)

    # -- second step -------------------------------------------------------------------------------

    def _answer(self, m: Module) -> None:
        """Answer from the entry that matched, or from a result that is no page."""
        held, misses = self.held, self._misses
        valid = Cat(tag.valid for tag in self.tags)
        match = Signal(self._entries)
        hit, looks, refused = Signal(), Signal(), Signal()
        found = Signal(page(self._config))
        m.d.comb += [
            match.eq(held.matches & valid),
            looks.eq(held.valid & (held.kind != Kind.RESULT)),
            hit.eq(looks & (held.lookup.physical | match.any())),
            refused.eq(
                held.valid
                & (held.kind == Kind.RESULT)
                & ((held.result.outcome == Outcome.FAULT) | (held.result.outcome == Outcome.SPARSE))
            ),
            found.eq(select(match, (entry.as_value() for entry in self.pages))),
            self.answer.valid.eq(hit | refused),
            self._moves.eq(~self.answer.valid | self.answer.ready),
            self.answer.p.tag.eq(held.lookup.tag),
        ]
        self._translate(m, found, refused)
        done = self.answer.valid & self.answer.ready
        waits = looks & ~hit
        m.d.comb += [
            misses.add.valid.eq(waits & (held.kind == Kind.NEW)),
            misses.add.lookup.eq(held.lookup),
            misses.missed.valid.eq(waits & (held.kind == Kind.AGAIN)),
            misses.missed.miss.eq(held.result.miss),
            misses.done.valid.eq(done & (held.kind == Kind.AGAIN)),
            misses.done.miss.eq(held.result.miss),
            self._recency.use.eq(match & (done & ~refused).replicate(self._entries)),
            self.hit.valid.eq(done & (held.kind == Kind.NEW) & ~held.lookup.physical),
            self.hit.asid.eq(held.lookup.asid),
            self.missed.valid.eq(misses.add.valid),
            self.missed.asid.eq(held.lookup.asid),
        ]

    def _translate(self, m: Module, found: data.View, refused: Value) -> None:
        """Physical address and permissions."""
        request, out = self.held.lookup, self.answer.p
        at, small = request.va, found.ppn
        ppn = Cat(
            Mux(found.size == PageSize.SMALL, small[0:4], at[12:16]),
            Mux(found.size == PageSize.HUGE, at[16:21], small[4:9]),
            small[9:],
        )
        writes = request.access != Access.READ
        denied = [
            (found.privileged & ~request.privileged, FaultType.PRIV),
            (found.read_only & writes, FaultType.RO),
            (found.no_atomics & (request.access == Access.ATOMIC), FaultType.ATOMIC),
        ]
        m.d.comb += out.pa.eq(Cat(at[:PAGE_BITS], ppn))
        with m.If(refused):
            m.d.comb += [
                out.outcome.eq(self.held.result.outcome),
                out.fault.eq(self.held.result.fault),
            ]
        with m.Elif(request.physical):
            m.d.comb += [out.pa.eq(at), out.fault.eq(FaultType.REGION)]
            m.d.comb += out.outcome.eq(
                Mux(at >= self._config.memory_bytes, Outcome.FAULT, Outcome.PAGE)
            )
        for condition, fault in denied:
            with m.Elif(condition):
                m.d.comb += [out.outcome.eq(Outcome.FAULT), out.fault.eq(fault)]
        with m.Else():
            m.d.comb += out.outcome.eq(Outcome.PAGE)

    def _fill(self, m: Module) -> None:
        """A page that has come takes the place of all that it overlaps."""
        held, misses, event = self.held, self._misses, self.invalidate
        came = Signal()
        here, choice, free = (Signal(self._entries) for _ in range(3))
        ends = held.valid & (held.kind == Kind.RESULT) & self._moves
        vpn = held.lookup.va[PAGE_BITS:]
        stale = covers(event, held.lookup.asid, vpn, held.result.page.size)
        valid = Cat(tag.valid for tag in self.tags)
        m.d.comb += [
            misses.ended.valid.eq(ends),
            misses.ended.miss.eq(held.result.miss),
            misses.ended.page.eq(held.result.page),
            misses.ended.outcome.eq(held.result.outcome),
            came.eq(ends & (held.result.outcome == Outcome.PAGE) & ~stale),
            free.eq(~valid | held.matches),
            here.eq(Mux(free.any(), free, self._recency.oldest)),
            choice.eq(here & -here),
        ]
        with m.If((held.result.outcome == Outcome.PAGE) & stale):
            m.d.comb += misses.ended.outcome.eq(Outcome.RETRY)
        for n, (tag, entry) in enumerate(zip(self.tags, self.pages, strict=True)):
            gone = covers(event, tag.asid, tag.vpn, entry.size) | (came & held.matches[n])
            with m.If(came & choice[n]):
                m.d.sync += [
                    tag.valid.eq(1),
                    tag.asid.eq(held.lookup.asid),
                    tag.vpn.eq(vpn),
                    entry.eq(held.result.page),
                ]
            with m.Elif(gone):
                m.d.sync += tag.valid.eq(0)
        with m.If(came):
            m.d.comb += self._recency.use.eq(choice)
