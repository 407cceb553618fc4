"""Refill FIFO of one first-level TLB."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.mmu.l1_tlb import miss_result
from signalbox.hw.mmu.l2_tlb import refill_event
from signalbox.hw.mmu.mshr import miss_bits
from signalbox.hw.mmu.records import Outcome, covers, invalidation, largest

__all__ = ["RefillFifo"]


class RefillFifo(wiring.Component):
    """Queues results for one first-level TLB, with an entry per outstanding miss, so the producer
    never stalls.

    One result in and one out per cycle; latency 1 cycle. An invalidation turns the results that it
    covers into RETRY.

    Members
    -------
    found : in, strobe: a result, see `refill_event`; its tag is the MSHR number.
    o : out, stream of `miss_result`, in order.
    invalidate : in, see `invalidation`.
    """

    def __init__(self, config: Config, misses: int) -> None:
        self._found, self._misses = refill_event(config, miss_bits(misses)), misses
        super().__init__({
            "found": In(self._found),
            "o": Out(stream.Signature(miss_result(config, misses))),
            "invalidate": In(invalidation(config)),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        # Shift register: entry 0 is the head, valid entries are contiguous.
        places = Signal(data.ArrayLayout(self._found, self._misses))
        leaves, first = self.o.valid & self.o.ready, places[0]
        m.d.comb += [
            self.o.valid.eq(first.valid),
            self.o.p.miss.eq(first.tag),
            [self.o.p[name].eq(first.end[name]) for name in first.end.shape().members],
        ]
        nothing = data.View(self._found, Signal(self._found.size, name="nothing"))
        after = [*list(places)[1:], nothing]
        for n, place in enumerate(places):
            before = places[n - 1].valid if n else 1
            free = Mux(leaves, place.valid & ~after[n].valid, before & ~place.valid)
            stays = Mux(leaves, after[n], place)
            next_ = data.View(self._found, Mux(self.found.valid & free, self.found, stays))
            m.d.sync += place.eq(next_)
            with m.If(covers(self.invalidate, next_.asid, next_.vpn, largest(next_.end))):
                m.d.sync += place.end.outcome.eq(Outcome.RETRY)
        return m
