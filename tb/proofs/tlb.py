"""Proofs of translation look-aside buffers, for two entries and two misses."""

from typing import Any

from amaranth import Cat, Module, Mux, Signal, Value
from amaranth.lib import data

from hw.config import Config
from hw.mmu.l1 import Kind, L1Tlb
from hw.mmu.lookups import PAGE_BITS, VPN_BITS, Outcome, PageSize, Scope, covers, overlap, page
from tb.proofs.formal import AnyConst, Assert, Assume, Cover, Inside, Proof, Wrap, anything

__all__ = ["PROOFS"]

CONFIG = Config(channels=1, semaphores=8, counters=1, asids=2, address_width=32)
ENTRIES = 2
TAG = data.StructLayout({"number": 1})


class L1Proof(Proof):
    """For any one smallest page of any one address space, chosen by the solver."""

    name = "mmu.l1"
    shows = (
        "an answer is what the last result for that page of that address space said, and no "
        "invalidation for it came since that result; entries never overlap"
    )
    induction = 2
    cover = 12

    def build(self, m: Module, wrap: Wrap) -> None:
        dut = L1Tlb(CONFIG, TAG, entries=ENTRIES, misses=2)
        inside = Inside(dut)
        m.submodules.dut = wrap(dut)
        self._inputs(m, dut)
        self._asid, self._vpn = Signal(CONFIG.asid_bits, name="asid"), Signal(VPN_BITS, name="vpn")
        m.d.comb += [self._asid.eq(AnyConst(CONFIG.asid_bits)), self._vpn.eq(AnyConst(VPN_BITS))]
        known = self._specify(m, dut, inside.submodule("misses").peeked)
        self._entries(m, dut, known)
        self._answers(m, dut, known)

    def _inputs(self, m: Module, dut: L1Tlb) -> None:
        inputs = {
            "request_valid": dut.request.valid,
            "request": dut.request.payload,
            "result_valid": dut.result.valid,
            "result": dut.result.payload,
            "invalidate": dut.invalidate,
            "answer_ready": dut.answer.ready,
            "miss_ready": dut.miss.ready,
        }
        for name, target in inputs.items():
            value = Value.cast(target)
            m.d.comb += value.eq(anything(m, len(value), name))
        m.d.comb += [
            Assume(Value.cast(dut.invalidate.scope) <= Scope.PAGE.value),
            Assume(Value.cast(dut.result.p.page.size) <= PageSize.HUGE.value),
        ]

    def _mine(self, asid: Value, vpn: Value, size: Any) -> Value:
        """Whether this page holds the chosen one."""
        return (asid == self._asid) & overlap(vpn, size, self._vpn, PageSize.SMALL)

    def _specify(self, m: Module, dut: L1Tlb, asker: Any) -> Any:
        """What the last result said of the chosen page, if it may still be used: on its way to the
        entries (`coming`), and there."""
        layout = data.StructLayout({"valid": 1, "page": page(CONFIG)})
        coming, known = Signal(layout, name="coming"), Signal(layout, name="known")
        result, held = dut.result.payload, dut.held
        m.d.comb += Assume(~dut.result.valid | ~asker.physical)
        came = dut.result.valid & dut.result.ready & (result.outcome == Outcome.PAGE)
        comes = came & self._mine(asker.asid, asker.va[PAGE_BITS:], result.page.size)
        with m.If(dut.result.valid & dut.result.ready):
            m.d.sync += [
                coming.valid.eq(comes & ~self._gone(dut, result.page.size)),
                coming.page.eq(result.page),
            ]
        with m.Elif(held.valid & (held.kind == Kind.RESULT)):
            # One cycle in the second step, unless it is an answer.
            m.d.sync += coming.valid.eq(0)
        with m.Elif(self._gone(dut, coming.page.size)):
            m.d.sync += coming.valid.eq(0)
        with m.If(coming.valid & ~self._gone(dut, coming.page.size)):
            m.d.sync += [known.valid.eq(1), known.page.eq(coming.page)]
        with m.Elif(self._gone(dut, known.page.size)):
            m.d.sync += known.valid.eq(0)
        pending = held.valid & (held.kind == Kind.RESULT) & (held.result.outcome == Outcome.PAGE)
        mine = self._mine(held.lookup.asid, held.lookup.va[PAGE_BITS:], held.result.page.size)
        with m.If(coming.valid):
            m.d.comb += Assert(pending & mine & (held.result.page == coming.page))
        with m.Else():
            m.d.comb += Assert(~(pending & mine))
        return known

    def _gone(self, dut: L1Tlb, size: Any) -> Value:
        return covers(dut.invalidate, self._asid, self._vpn, size)

    def _entries(self, m: Module, dut: L1Tlb, known: Any) -> None:
        held = dut.held
        tags = list(zip(dut.tags, dut.pages, strict=True))
        (one, one_page), (other, other_page) = tags
        same = (one.asid == other.asid) & overlap(
            one.vpn, one_page.size, other.vpn, other_page.size
        )
        m.d.comb += Assert(~(one.valid & other.valid & same))
        for n, (tag, entry) in enumerate(tags):
            with m.If(tag.valid & self._mine(tag.asid, tag.vpn, entry.size)):
                m.d.comb += Assert(known.valid & (known.page == entry))
            size = Mux(held.kind == Kind.RESULT, held.result.page.size, PageSize.SMALL)
            vpn = held.lookup.va[PAGE_BITS:]
            matches = (tag.asid == held.lookup.asid) & overlap(tag.vpn, entry.size, vpn, size)
            with m.If(held.valid & tag.valid & ~held.lookup.physical):
                m.d.comb += Assert(held.matches[n] == matches)
            m.d.comb += Assert(Value.cast(entry.size) <= PageSize.HUGE.value)
        m.d.comb += [
            Assert(Value.cast(held.result.page.size) <= PageSize.HUGE.value),
            Assert(~(held.valid & (held.kind == Kind.RESULT) & held.lookup.physical)),
        ]
        with m.If(held.valid & held.lookup.physical):
            m.d.comb += Assert(~held.matches.any())

    def _answers(self, m: Module, dut: L1Tlb, known: Any) -> None:
        answer, held = dut.answer, dut.held
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
        m.d.comb += [
            Assert(answer.p.outcome != Outcome.RETRY),
            Cover(is_page & mine & (known.page.size == PageSize.BIG) & (held.kind == Kind.NEW)),
        ]


PROOFS = [L1Proof()]
