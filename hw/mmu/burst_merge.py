"""Merges the translated bursts of many clients into one stream."""

from collections.abc import Sequence

from amaranth import Module
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.lib.arbiter import RoundRobin
from signalbox.hw.lib.onehot import select
from signalbox.hw.mmu.bursts import translated_burst
from signalbox.hw.mmu.response_order import ResponseOrder

__all__ = ["BurstMerge", "granted_burst"]


def granted_burst(config: Config, clients: int) -> data.StructLayout:
    """Translated burst of the client `whose`, one-hot."""
    return data.StructLayout({
        "whose": clients,
        **translated_burst(config).members,
    })


class BurstMerge(wiring.Component):
    """Arbitrates between clients and keeps the order of each client's responses. One burst per
    cycle.

    Combinational: `o` may change to another burst while it is not taken. Fairness as `RoundRobin`.
    Clients offer bursts only when `room` permits.

    Parameters
    ----------
    outstanding : per client, limit of outstanding bursts.
    urgent : number of clients, the first ones, with priority over the others.

    Members
    -------
    bursts : in, one stream of `translated_burst` per client.
    room : out, per client: a burst may be offered in the next cycle.
    o : out, stream of `granted_burst`.

    Attributes
    ----------
    orders : per client its `ResponseOrder`. This component drives `admit`; the rest is for the
        user.
    """

    def __init__(self, config: Config, outstanding: Sequence[int], *, urgent: int) -> None:
        self.clients, self.urgent = len(outstanding), urgent
        self.orders = [ResponseOrder(most) for most in outstanding]
        super().__init__({
            "bursts": In(stream.Signature(translated_burst(config))).array(self.clients),
            "room": Out(self.clients),
            "o": Out(stream.Signature(granted_burst(config, self.clients))),
        })

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.arbiter = arbiter = RoundRobin(self.clients, first=self.urgent)
        o, words = self.o, (burst.p.as_value() for burst in self.bursts)
        chosen = data.View(self.bursts[0].p.shape(), select(arbiter.grant, words))
        m.d.comb += [
            arbiter.advance.eq(o.ready),
            o.valid.eq(arbiter.requests.any()),
            o.p.whose.eq(arbiter.grant),
            [o.p[name].eq(chosen[name]) for name in chosen.shape().members],
        ]
        for index, (burst, order) in enumerate(zip(self.bursts, self.orders, strict=True)):
            m.submodules[f"order_{index}"] = order
            grant = arbiter.grant[index]
            m.d.comb += [
                arbiter.requests[index].eq(burst.valid),
                self.room[index].eq(order.room),
                burst.ready.eq(grant & o.ready),
                order.admit.eq(grant & o.ready),
            ]
        return m
