"""MSHR file: outstanding misses of one first-level TLB (ASID-4)."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.lib.arbiter import RoundRobin
from signalbox.hw.lib.onehot import encode, lowest, select
from signalbox.hw.mmu.records import PAGE_BITS, VPN_BITS, lookup

__all__ = ["MshrFile", "miss_bits", "miss_request"]


def miss_bits(misses: int) -> int:
    """Width of an MSHR number."""
    return max(1, (misses - 1).bit_length())


def miss_request(config: Config, misses: int) -> data.StructLayout:
    """Request for a translation; `miss` is the MSHR number and returns with the result."""
    return data.StructLayout({
        "miss": miss_bits(misses),
        "asid": config.asid_bits,
        "vpn": VPN_BITS,
    })


class MshrFile(wiring.Component):
    """Holds up to `misses` look-ups and coalesces requests for the same 4 KiB page.

    One bit per slot and state: free; `ask`, waiting for its request to be issued; `offer`, its
    request is being offered; `sent`, its request is outstanding; `follow`, coalesced with another
    slot's request; `again`, its page has arrived and the look-up has to be repeated; none of these,
    the look-up is being repeated.

    A follower is looked up again when the page arrives. A fault applies only to the look-up that
    issued the request: followers may have come after the page was mapped, so one of them issues a
    new request for all.

    Page numbers are compared in the first step of the TLB, the result is used in the second. A miss
    is offered to the next level in the next cycle, unless another is being offered.

    Parameters
    ----------
    misses : 2 … 64.

    Members
    -------
    room : out, 3 bits: at least one, two, three slots are free.
    ask : out, stream of `miss_request`, to the next level.
    wanted : in, strobe: a result for slot `miss` has arrived.
    again : out, a look-up is ready to be repeated; without a result it is the one in `slot` and
        `lookup`.
    slot : out, per slot, one-hot: the slot of the result, else of the look-up to repeat.
    lookup : out, combinational from `wanted`: the `lookup` in `slot`.
    pick : in, strobe: the look-up in `slot` is repeated.
    moves : in, the first step advances to the second; only then does the second step end.
    first : in, look-up in the first step; for a result, the look-up that requested it.
    second : in, look-up in the second step; for a result, the look-up that requested it.
    new : in, the second step has no slot yet; otherwise `held` is its slot.
    held : in, per slot, one-hot: the slot of the second step.
    missed : in, the look-up in the second step misses.
    answered : in, the look-up in the second step, which had a slot, is answered.
    wake : in, per slot, one-hot or 0: its look-up may be repeated, as the page will be in the TLB
        by then.
    came : in, the second step is a result with a page.
    refused : in, the second step is a result without a page, and is answered.
    retry : in, the second step is a result that has to be requested again.
    """

    def __init__(self, config: Config, tag: data.Layout, misses: int) -> None:
        if not 2 <= misses <= 64:
            raise ValueError(f"misses = {misses!r} is outside its limits 2 … 64")
        self._misses = misses
        self._lookup = lookup(config, tag)
        super().__init__({
            "room": Out(3),
            "ask": Out(stream.Signature(miss_request(config, misses))),
            "wanted": In(data.StructLayout({"valid": 1, "miss": miss_bits(misses)})),
            "again": Out(1),
            "slot": Out(misses),
            "lookup": Out(self._lookup),
            "pick": In(1),
            "moves": In(1),
            "first": In(self._lookup),
            "second": In(self._lookup),
            "new": In(1),
            "held": In(misses),
            "missed": In(1),
            "answered": In(1),
            "wake": In(misses),
            "came": In(1),
            "refused": In(1),
            "retry": In(1),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        self._lookups = Signal(data.ArrayLayout(self._lookup, self._misses), name="lookups")
        self._free = Signal(self._misses, init=-1, name="is_free")
        self._ask, self._offer, self._sent, self._follow, self._again = (
            Signal(self._misses, name=f"is_{name}")
            for name in ("ask", "offer", "sent", "follow", "again")
        )
        self._same = Signal(self._misses, name="same_page")
        self._place = Signal(self._misses)
        self._show(m)
        self._compare(m)
        self._change(m)
        return m

    def _show(self, m: Module) -> None:
        """Free slots, the slot for the next miss, and the look-up of a result or to be repeated."""
        free, wanted = self._free, self.wanted
        second = free & ~self._place
        own = Cat(wanted.miss == n for n in range(self._misses))
        m.d.comb += [
            self._place.eq(lowest(free)),
            self.room.eq(Cat(free.any(), second.any(), (second & ~lowest(second)).any())),
            self.again.eq(self._again.any()),
            self.slot.eq(Mux(wanted.valid, own, lowest(self._again))),
            self.lookup.eq(select(self.slot, (one.as_value() for one in self._lookups))),
        ]
        for n in range(self._misses):
            with m.If(self.new & self._place[n]):
                m.d.sync += self._lookups[n].eq(self.second)

    def _compare(self, m: Module) -> None:
        """Slots with the same page as the second step. The look-up that was in the second step when
        this one was in the first may have been written to a slot since."""
        same = Signal(self._misses)
        written = Signal(self._misses)
        repeats = Signal()
        with m.If(self.moves):
            m.d.sync += [
                same.eq(Cat(_same(one, self.first) for one in self._lookups)),
                repeats.eq(_same(self.second, self.first)),
                written.eq(Mux(self.new, self._place, 0)),
            ]
        m.d.comb += self._same.eq(same & ~written | Mux(repeats, written, 0))

    def _change(self, m: Module) -> None:
        """State transitions of all slots."""
        free, ask, offer, sent = self._free, self._ask, self._offer, self._sent
        follow, again, held = self._follow, self._again, self.held
        misses = Signal(self._misses)
        follows = Signal(self._misses)
        mine = follow & self._same
        asked = Signal()
        ended = Signal(self._misses)
        asks = Signal(self._misses)
        m.d.comb += [
            misses.eq(Mux(self.missed, Mux(self.new, self._place, held), 0)),
            asked.eq(((ask | offer | sent) & self._same).any()),
            follows.eq(Mux(asked, misses, 0)),
            ended.eq(Mux(self.refused | self.retry, held, 0)),
            asks.eq(
                misses & ~follows | Mux(self.retry, held, 0) | Mux(self.refused, lowest(mine), 0)
            ),
        ]
        turned = self._offers(m, asks)
        m.d.sync += [
            free.eq(free & ~misses | Mux(self.answered | self.refused, held, 0)),
            ask.eq((ask | asks) & ~turned),
            sent.eq((sent | Mux(self.ask.ready, offer, 0)) & ~self.wake & ~ended),
            follow.eq(
                (follow | follows) & ~Mux(self.came, mine, 0) & ~Mux(self.refused, lowest(mine), 0)
            ),
            again.eq(again & ~Mux(self.pick, self.slot, 0) | self.wake | Mux(self.came, mine, 0)),
        ]

    def _offers(self, m: Module, asks: Value) -> Value:
        """Arbitrates between slots in `ask`; returns those granted now. `asks`: slots that enter
        `ask`."""
        m.submodules.turns = turns = RoundRobin(self._misses)
        offer, ask, nothing = self._offer, self._ask, Signal()
        next_ = Signal(self._misses)
        chosen = data.View(self._lookup, select(offer, (one.as_value() for one in self._lookups)))
        m.d.comb += [
            nothing.eq(~offer.any() | self.ask.ready),
            turns.requests.eq(ask),
            turns.advance.eq(nothing),
            next_.eq(Mux(nothing, Mux(ask.any(), turns.grant, asks), 0)),
            self.ask.valid.eq(offer.any()),
            self.ask.p.miss.eq(encode(offer)),
            self.ask.p.asid.eq(chosen.asid),
            self.ask.p.vpn.eq(chosen.va[PAGE_BITS:]),
        ]
        with m.If(nothing):
            m.d.sync += offer.eq(next_)
        return next_


def _same(one: data.View, other: data.View) -> Value:
    """Whether two look-ups are for the same 4 KiB page."""
    return (one.asid == other.asid) & (one.va[PAGE_BITS:] == other.va[PAGE_BITS:])
