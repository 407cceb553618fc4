"""Look-ups of one first-level TLB that wait for a page (ASID-4)."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.config import Config
from hw.lib.arbiter import SteadyRoundRobin
from hw.lib.onehot import encode
from hw.mmu.lookups import PAGE_BITS, VPN_BITS, Outcome, PageSize, lookup, overlap, page

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


class _State(enum.Enum, shape=3):
    """FREE; ASK: to be asked for; SENT: asked for; FOLLOW: another one asks for the same smallest
    page; AGAIN: its page has come, it is to be looked up again; LOOKED: it is being looked up."""

    FREE = 0
    ASK = 1
    SENT = 2
    FOLLOW = 3
    AGAIN = 4
    LOOKED = 5


class Misses(wiring.Component):
    """Up to `misses` look-ups; those of one smallest page ask once.

    Who follows is looked up again when the page comes. A fault is only for the one that asked:
    others may have come after the page was mapped, and ask themselves.

    Members
    -------
    add : `lookup` has missed; one must be free. With `missed`, `lookup` alone counts.
    few : no more than one is free; none : not even that.
    ask : pages that are wanted.
    again : a look-up whose page has come; its number is `again_miss`.
    missed : look-up `miss` has missed again. done : it was answered.
    ended : what came for `miss`, in the cycle in which it takes effect.
    peek, peeked : look-up number `peek`.
    """

    def __init__(self, config: Config, tag: data.Layout, misses: int) -> None:
        if not 2 <= misses <= 64:
            raise ValueError(f"misses = {misses!r} is outside its limits 2 … 64")
        self._misses = misses
        self._lookup = lookup(config, tag)
        number = miss_bits(misses)
        super().__init__({
            "add": In(data.StructLayout({"valid": 1, "lookup": self._lookup})),
            "few": Out(1),
            "none": Out(1),
            "ask": Out(stream.Signature(miss_request(config, misses))),
            "again": Out(stream.Signature(self._lookup)),
            "again_miss": Out(number),
            "missed": In(data.StructLayout({"valid": 1, "miss": number})),
            "done": In(data.StructLayout({"valid": 1, "miss": number})),
            "ended": In(
                data.StructLayout({
                    "valid": 1,
                    "miss": number,
                    "outcome": Outcome,
                    "page": page(config),
                })
            ),
            "peek": In(number),
            "peeked": Out(self._lookup),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        numbers = range(self._misses)
        self._lookups = lookups = Signal(data.ArrayLayout(self._lookup, self._misses))
        self._states = states = Signal(data.ArrayLayout(_State, self._misses))
        free, first = Signal(self._misses), Signal(self._misses)
        m.d.comb += [
            free.eq(self._in(_State.FREE)),
            first.eq(free & -free),
            self.none.eq(~free.any()),
            self.few.eq((free & ~first) == 0),
            self.peeked.eq(lookups[self.peek]),
        ]
        asks = self._turns(m, "ask", _State.ASK, self.ask.valid, self.ask.ready)
        again = self._turns(m, "again", _State.AGAIN, self.again.valid, self.again.ready)
        number = Signal.like(self.again_miss)
        chosen = Signal(self._lookup)
        m.d.comb += [
            number.eq(encode(asks)),
            chosen.eq(lookups[number]),
            self.ask.p.miss.eq(number),
            self.ask.p.asid.eq(chosen.asid),
            self.ask.p.vpn.eq(chosen.va[PAGE_BITS:]),
            self.again_miss.eq(encode(again)),
            self.again.payload.eq(lookups[self.again_miss]),
        ]
        follows = self._asked(m)
        for n in numbers:
            state = states[n]
            with m.If(self.add.valid & first[n]):
                m.d.sync += lookups[n].eq(self.add.lookup)
                m.d.sync += state.eq(Mux(follows, _State.FOLLOW, _State.ASK))
            with m.If(asks[n] & self.ask.ready):
                m.d.sync += state.eq(_State.SENT)
            with m.If(again[n] & self.again.ready):
                m.d.sync += state.eq(_State.LOOKED)
            with m.If(self.missed.valid & (self.missed.miss == n)):
                m.d.sync += state.eq(Mux(follows, _State.FOLLOW, _State.ASK))
            with m.If(self.done.valid & (self.done.miss == n)):
                m.d.sync += state.eq(_State.FREE)
        self._end(m)
        return m

    def _in(self, *states: _State) -> Value:
        """Per look-up, whether it is in one of these states."""
        return Cat(
            Cat(self._states[n] == state for state in states).any() for n in range(self._misses)
        )

    def _turns(self, m: Module, name: str, state: _State, valid: Value, ready: Value) -> Value:
        """Offer the look-ups in `state` in turn; one-hot, the one that is offered."""
        m.submodules[f"{name}_turns"] = turns = SteadyRoundRobin(self._misses)
        m.d.comb += [
            turns.requests.eq(self._in(state)),
            valid.eq(turns.grant.any()),
            turns.advance.eq(ready),
        ]
        return turns.grant

    def _asked(self, m: Module) -> Signal:
        """Whether the page of the look-up that misses has been asked for."""
        asked, new = Signal(), self.add.lookup
        same = [
            (one.asid == new.asid) & (one.va[PAGE_BITS:] == new.va[PAGE_BITS:])
            for one in self._lookups
        ]
        m.d.comb += asked.eq((Cat(same) & self._in(_State.ASK, _State.SENT)).any())
        return asked

    def _end(self, m: Module) -> None:
        """What has come for one look-up, and for those that follow it."""
        ended, numbers = self.ended, range(self._misses)
        asker = Signal(self._lookup)
        follow, same, inside, heirs = (Signal(self._misses) for _ in range(4))
        came = ended.outcome == Outcome.PAGE
        refused = (ended.outcome == Outcome.FAULT) | (ended.outcome == Outcome.SPARSE)
        vpn = asker.va[PAGE_BITS:]
        m.d.comb += [asker.eq(self._lookups[ended.miss]), follow.eq(self._in(_State.FOLLOW))]
        for n in numbers:
            mine = self._lookups[n]
            one, space = mine.va[PAGE_BITS:], mine.asid == asker.asid
            m.d.comb += [
                same[n].eq(space & (one == vpn)),
                inside[n].eq(space & overlap(one, PageSize.SMALL, vpn, ended.page.size)),
            ]
        # One of those that follow asks next.
        m.d.comb += heirs.eq(follow & same)
        first = heirs & -heirs
        for n in numbers:
            state = self._states[n]
            with m.If(ended.valid & (ended.miss == n)):
                m.d.sync += state.eq(Mux(came, _State.AGAIN, Mux(refused, _State.FREE, _State.ASK)))
            with m.Elif(ended.valid & follow[n] & came & inside[n]):
                m.d.sync += state.eq(_State.AGAIN)
            with m.Elif(ended.valid & refused & first[n]):
                m.d.sync += state.eq(_State.ASK)
