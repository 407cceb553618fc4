"""Round-robin arbiters."""

from itertools import combinations

from amaranth import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["FEW", "RoundRobin", "SteadyRoundRobin"]

FEW = 8
"""Up to this number of requesters, the order of turns is stored as one bit per pair."""


class RoundRobin(wiring.Component):
    """Round-robin arbiter, optionally with two priority classes.

    `grant` is combinational from `requests`. The order of turns changes only with `advance`; until
    then a grant may move to another requester.

    Fairness: a persistent request waits for at most one turn of each other requester of its class,
    and for any number of turns of the class with priority.

    Cost, up to `FEW` requesters: a flip-flop per pair, which holds the order of the two; the depth
    is one two-input gate per requester. More requesters: two subtractors of `count` bits in
    parallel (carry chains), a multiplexer and `count` flip-flops. `x ^ (x - 1)` masks the lowest
    request and all bits below it, which gives both the grant and the mask of the next turn. More
    than `FEW` requesters in two classes: an arbiter per class.

    Parameters
    ----------
    count : number of requesters.
    first : size of the class with priority, which consists of the first requesters; at most `FEW`.
        0: there is one class.

    Members
    -------
    requests : in, one bit per requester.
    grant : out, one bit per requester, one-hot; 0 without requests.
    advance : in, the grant is used in this cycle; its requester becomes the last in turn.
    """

    def __init__(self, count: int, *, first: int = 0) -> None:
        if count < 1:
            raise ValueError(f"count = {count!r} is not at least 1")
        if first and not 0 < first <= min(count, FEW):
            raise ValueError(f"first = {first!r} of count = {count!r}: needs at most {FEW}")
        super().__init__({
            "requests": In(count),
            "grant": Out(count),
            "advance": In(1),
        })
        self.count = count
        self.classes = (range(first), range(first, count))
        self._later = Signal(count, name="later")
        """Requesters after the last one granted."""
        pairs = combinations(range(count), 2) if count <= FEW else ()
        self._turned = {
            pair: Signal(name=f"turned_{pair[0]}_{pair[1]}")
            for pair in pairs
            if any(set(pair) <= set(one) for one in self.classes)
        }
        """Up to `FEW` requesters, per pair: the second one comes before the first."""

    def elaborate(self, platform) -> Module:
        m = Module()
        if self.count <= FEW:
            self._grant_by_pairs(m)
        elif self.classes[0]:
            self._grant_by_classes(m)
        else:
            self._grant_by_carry(m)
        return m

    def _grant_by_pairs(self, m: Module) -> None:
        for index in range(self.count):
            before = [
                self.requests[other] & self._precedes(other, index)
                for other in range(self.count)
                if other != index
            ]
            m.d.comb += self.grant[index].eq(self.requests[index] & ~Cat(before).any())
        for members in self.classes:
            mine = self.requests[members.start : members.stop]
            urgent = self.requests[: members.start]
            with m.If(self.advance & mine.any() & ~urgent.any()):
                for (one, other), turned in self._turned.items():
                    if one in members:
                        m.d.sync += turned.eq(self.grant[one:other].any())
                for index in members:
                    m.d.sync += self._later[index].eq(self.grant[members.start : index].any())

    def _precedes(self, one: int, other: int) -> Value:
        """Whether `one` comes before `other` in the current order."""
        if (one, other) in self._turned:
            return ~self._turned[one, other]
        return self._turned.get((other, one), Const(int(one < other)))

    def _grant_by_classes(self, m: Module) -> None:
        first, others = (RoundRobin(len(members)) for members in self.classes)
        m.submodules.first, m.submodules.others = first, others
        urgent = Signal()
        m.d.comb += [
            Cat(first.requests, others.requests).eq(self.requests),
            urgent.eq(first.requests.any()),
            first.advance.eq(self.advance),
            others.advance.eq(self.advance & ~urgent),
            self.grant.eq(Cat(first.grant, Mux(urgent, 0, others.grant))),
            self._later.eq(Cat(first._later, others._later)),
        ]

    def _grant_by_carry(self, m: Module) -> None:
        first = Signal(self.count)
        first_upto = Signal(self.count)
        any_upto = Signal(self.count)
        upto = Signal(self.count)
        m.d.comb += [
            first.eq(self.requests & self._later),
            first_upto.eq(first ^ (first - 1)),
            any_upto.eq(self.requests ^ (self.requests - 1)),
            upto.eq(Mux(first.any(), first_upto, any_upto)),
            self.grant.eq(Mux(first.any(), first & first_upto, self.requests & any_upto)),
        ]
        with m.If(self.advance & self.requests.any()):
            m.d.sync += self._later.eq(~upto)


class SteadyRoundRobin(wiring.Component):
    """`RoundRobin` that holds its grant until it is used, as a valid offer on a stream must not
    change. A request has to stay until its grant is used.

    Members
    -------
    requests : in, one bit per requester.
    grant : out, one bit per requester, one-hot; 0 without requests.
    advance : in, the grant is used in this cycle; its requester becomes the last in turn. Counts
        only with a grant.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        super().__init__({"requests": In(count), "grant": Out(count), "advance": In(1)})

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.turns = turns = RoundRobin(self._count)
        held = Signal(self._count)
        m.d.comb += [
            turns.requests.eq(Mux(held.any(), held, self.requests)),
            turns.advance.eq(self.advance),
            self.grant.eq(turns.grant),
        ]
        m.d.sync += held.eq(self.grant & (~self.advance).replicate(self._count))
        return m
