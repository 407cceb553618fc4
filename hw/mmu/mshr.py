"""Look-ups of one first-level TLB that wait for a page (ASID-4)."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.lib.arbiter import RoundRobin
from signalbox.hw.lib.onehot import encode, lowest, select
from signalbox.hw.mmu.records import PAGE_BITS, VPN_BITS, lookup

__all__ = ["Misses", "miss_bits", "miss_request"]


def miss_bits(misses: int) -> int:
    """Bits of the number of a look-up that waits."""
    return max(1, (misses - 1).bit_length())


def miss_request(config: Config, misses: int) -> data.StructLayout:
    """A page that is wanted; `miss` names who waits, and comes back with the result."""
    return data.StructLayout({
        "miss": miss_bits(misses),
        "asid": config.asid_bits,
        "vpn": VPN_BITS,
    })


class Misses(wiring.Component):
    """Up to `misses` look-ups, each in a slot; those of one smallest page ask once.

    A slot is free; or its look-up is to be asked for (`ask`), offered (`offer`), asked for
    (`sent`), or follows another one that asks for the same smallest page (`follow`); or its page
    has come (`again`), and it is looked up again (none of these). One bit per slot and state.

    Who follows is looked up again when the page comes. A fault is only for the one that asked:
    others may have come after the page was mapped, and ask themselves, one for all.

    What asks for the same page is compared while the look-up, or result, is in the first step of
    the TLB; what has become of it is used in the second. A look-up that misses is offered to the
    next level in the next cycle, if no other is.

    Parameters
    ----------
    misses : 2 … 64.

    Members
    -------
    room : at least one, two, three more may wait.
    ask : pages that are wanted.
    wanted : a result has come for this look-up. slot, lookup : that one; else one whose page has
        come, if there is one (`again`). Slots are one-hot.
    pick : that one is looked up again.
    moves : what is in the first step gets into the second; only then what is in the second ends.
    first, second : look-ups in the two steps, of a result who asked for it.
    new : the second is in no slot yet; else `held` is its slot.
    missed, answered : how it ends, if it is a look-up; `answered` only of one that had a slot.
    wake : slot of a look-up that may be looked up again, for its page is as good as there.
    came, refused, retry : how it ends, if it is a result.
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
        self._lookups = Signal(data.ArrayLayout(self._lookup, self._misses))
        self._free = Signal(self._misses, init=-1)
        self._ask, self._offer, self._sent, self._follow, self._again = (
            Signal(self._misses, name=name) for name in ("asks", "offer", "sent", "follow", "again")
        )
        self._same = Signal(self._misses)
        self._place = Signal(self._misses)
        self._show(m)
        self._compare(m)
        self._change(m)
        return m

    def _show(self, m: Module) -> None:
        """Room, a place for the next one, and the look-up of a result or one to look up again."""
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
        """Which look-ups are for the page of what is in the second step; one that was in the second
        step when this one was in the first may have got into a slot since."""
        same, written = Signal(self._misses), Signal(self._misses)
        repeats = Signal()
        with m.If(self.moves):
            m.d.sync += [
                same.eq(Cat(_same(one, self.first) for one in self._lookups)),
                repeats.eq(_same(self.second, self.first)),
                written.eq(Mux(self.new, self._place, 0)),
            ]
        m.d.comb += self._same.eq(same & ~written | Mux(repeats, written, 0))

    def _change(self, m: Module) -> None:
        """One step of every slot."""
        free, ask, offer, sent = self._free, self._ask, self._offer, self._sent
        follow, again, held = self._follow, self._again, self.held
        misses, follows = Signal(self._misses), Signal(self._misses)
        mine, asked, ended = follow & self._same, Signal(), Signal(self._misses)
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
        """Those that ask in turn; those that get their turn now. `asks`: who begins to."""
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
    """Whether two look-ups are for the same smallest page."""
    return (one.asid == other.asid) & (one.va[PAGE_BITS:] == other.va[PAGE_BITS:])
