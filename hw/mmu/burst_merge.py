"""From translated bursts of many clients to one after the other."""

from collections.abc import Sequence

from amaranth import Module
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.lib.arbiter import RoundRobin
from signalbox.hw.lib.onehot import select
from signalbox.hw.mmu.bursts import translated
from signalbox.hw.mmu.response_order import BurstOrder

__all__ = ["BurstFront", "chosen_burst"]


def chosen_burst(config: Config, clients: int) -> data.StructLayout:
    """A translated burst, and whose it is, one bit per client."""
    return data.StructLayout({
        "whose": clients,
        **translated(config).members,
    })


class BurstFront(wiring.Component):
    """Takes bursts in turn and remembers what is owed to whom; one per cycle.

    Combinational: the burst that is offered may change until it is taken. Fairness as
    `RoundRobin`. Clients offer only what there is room for.

    Parameters
    ----------
    outstanding : bursts that each client may have on their way.
    urgent : so many of the clients, the first, go before all others.

    Members
    -------
    bursts : one stream per client. room : what each may offer in the next cycle is admitted.
    o : bursts.

    Attributes
    ----------
    orders : per client its `BurstOrder`; admission is done here, the rest is left to the user.
    """

    def __init__(self, config: Config, outstanding: Sequence[int], *, urgent: int) -> None:
        self.clients, self.urgent = len(outstanding), urgent
        self.orders = [BurstOrder(most) for most in outstanding]
        super().__init__({
            "bursts": In(stream.Signature(translated(config))).array(self.clients),
            "room": Out(self.clients),
            "o": Out(stream.Signature(chosen_burst(config, self.clients))),
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
