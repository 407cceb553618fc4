"""Who goes next: a fair arbiter."""

from amaranth import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["RoundRobin"]


class RoundRobin(wiring.Component):
    """Grants one of several requests, in turn.

    Combinational from `requests` to `grant`; until `advance` the last turn's order holds, so a
    grant may still move to another request that comes up.

    Fairness: a request that stays is granted after at most `count` - 1 turns of others.

    Cost: two subtractions of `count` bits (carry chains, in parallel) and a multiplexer, `count`
    flip-flops; the depth grows with the carry chain only. `x ^ (x - 1)` marks the lowest request
    and everything below it, which gives both the grant and the mask for the next turn.

    Members
    -------
    requests : one bit per requester.
    grant : one-hot, 0 when nothing is requested.
    advance : the grant is used in this cycle; its holder becomes the last in turn.
    """

    def __init__(self, count: int) -> None:
        if count < 1:
            raise ValueError(f"count = {count!r} is not at least 1")
        super().__init__({
            "requests": In(count),
            "grant": Out(count),
            "advance": In(1),
        })
        self.count = count
        self.later = Signal(count)
        """Requesters behind the last one that was granted (state, for proofs)."""

    def elaborate(self, platform) -> Module:
        m = Module()
        first = Signal(self.count)
        first_upto = Signal(self.count)
        any_upto = Signal(self.count)
        upto = Signal(self.count)
        m.d.comb += [
            first.eq(self.requests & self.later),
            first_upto.eq(first ^ (first - 1)),
            any_upto.eq(self.requests ^ (self.requests - 1)),
            upto.eq(Mux(first.any(), first_upto, any_upto)),
            self.grant.eq(Mux(first.any(), first & first_upto, self.requests & any_upto)),
        ]
        with m.If(self.advance):
            m.d.sync += self.later.eq(~upto)
        return m
