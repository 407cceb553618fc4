"""From the clients' requests to translated bursts."""

from collections.abc import Callable

from amaranth import Module, Mux, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.config import Config
from hw.lib.arbiter import RoundRobin
from hw.lib.stream import StreamRegister
from hw.mmu.order import BurstOrder
from hw.mmu.translator import translate_request, translate_response
from hw.records import memory_request

__all__ = ["RequestFront", "TranslatorFactory", "burst_tag"]

TranslatorFactory = Callable[[Config, data.Layout], wiring.Component]
"""Makes a translator: a component with a member `port`, `In(TranslatePort(config, tag))`."""


def burst_tag(clients: int) -> data.StructLayout:
    """What goes through translation with a burst: who wants it, and its beats less one."""
    return data.StructLayout({"client": max(1, (clients - 1).bit_length()), "beats": 8})


class RequestFront(wiring.Component):
    """Takes requests in turn, translates them and remembers what is owed to whom; one per cycle.

    A request is taken in the cycle in which it is offered when its turn has come, and reaches the
    translator in the next. Fairness as `RoundRobin`, among clients who have room.

    Parameters
    ----------
    outstanding : bursts that a client may have on their way.
    urgent : so many of the clients, the first, go before all others.
    write : whether the requests are writes.

    Members
    -------
    requests : one stream per client.
    o : translated bursts.

    Attributes
    ----------
    orders : per client its `BurstOrder`; admission is done here, the rest is left to the user.
    translator : what was made.
    """

    def __init__(
        self,
        config: Config,
        clients: int,
        *,
        outstanding: int,
        urgent: int,
        write: bool,
        translator: TranslatorFactory,
    ) -> None:
        self.config = config
        self.clients = clients
        self.write = write
        self.urgent = urgent
        self.orders = [BurstOrder(outstanding) for _ in range(clients)]
        self.tag = burst_tag(clients)
        self.translator = translator(config, self.tag)
        super().__init__({
            "requests": In(stream.Signature(memory_request(config))).array(clients),
            "o": Out(stream.Signature(translate_response(config, self.tag))),
        })

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.arbiter = arbiter = RoundRobin(self.clients, first=self.urgent)
        m.submodules.chosen = chosen = StreamRegister(translate_request(self.config, self.tag))
        m.submodules.translator = self.translator
        wiring.connect(m, chosen.o, self.translator.port.request)
        wiring.connect(m, self.translator.port.response, wiring.flipped(self.o))

        turn = chosen.i.ready
        m.d.comb += [
            arbiter.advance.eq(turn),
            # The choice may change while it waits, which a register does not mind.
            chosen.i.valid.eq(arbiter.requests.any()),
        ]
        burst, client = Value.cast(0), Value.cast(0)
        for index, (request, order) in enumerate(zip(self.requests, self.orders, strict=True)):
            m.submodules[f"order_{index}"] = order
            grant = arbiter.grant[index]
            m.d.comb += [
                arbiter.requests[index].eq(request.valid & order.room),
                request.ready.eq(grant & turn),
                order.admit.eq(grant & turn),
            ]
            payload = Value.cast(request.payload)
            burst |= payload & grant.replicate(len(payload))
            client |= Mux(grant, index, 0)
        view = data.View(memory_request(self.config), burst)
        m.d.comb += [
            chosen.i.p.tag.client.eq(client),
            chosen.i.p.tag.beats.eq(view.beats),
            chosen.i.p.asid.eq(view.asid),
            chosen.i.p.va.eq(view.va),
            chosen.i.p.write.eq(self.write),
            chosen.i.p.physical.eq(view.physical),
        ]
        return m
