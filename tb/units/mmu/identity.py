"""The fabric with a translation that needs no page tables, for tests and proofs of the fabric."""

from amaranth.hdl import Module, Mux
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from signalbox.hw.config import Config
from signalbox.hw.mmu.memory_client import CLIENT_TAG
from signalbox.hw.mmu.memory_fabric import MemoryFabric
from signalbox.hw.mmu.records import Outcome, answer, lookup
from signalbox.hw.page_tables import FaultType

__all__ = ["Identity", "IdentityFabric"]


class Identity(wiring.Component):
    """Translates each virtual address to the same physical address; addresses beyond
    `config.memory_bytes` fault.

    Each client has one look-up per cycle, answered in the next. Since memory consists of whole
    pages and a burst stays within one, the first byte decides for the burst.

    Parameters
    ----------
    clients : number of clients, at least 1.
    tag : layout of a look-up's tag.

    Members
    -------
    request, answer : streams per client.
    """

    def __init__(self, config: Config, clients: int, tag: data.Layout) -> None:
        self._config = config
        super().__init__({
            "request": In(stream.Signature(lookup(config, tag))).array(clients),
            "answer": Out(stream.Signature(answer(config, tag))).array(clients),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        for request, given in zip(self.request, self.answer, strict=True):
            outside = request.p.va >= self._config.memory_bytes
            m.d.comb += request.ready.eq(~given.valid | given.ready)
            with m.If(request.ready):
                m.d.sync += [
                    given.valid.eq(request.valid),
                    given.p.tag.eq(request.p.tag),
                    given.p.pa.eq(request.p.va),
                    given.p.outcome.eq(Mux(outside, Outcome.FAULT, Outcome.PAGE)),
                    given.p.fault.eq(FaultType.REGION),
                ]
        return m


class IdentityFabric(wiring.Component):
    """A `MemoryFabric` with that translation, and the same arguments and members."""

    def __init__(self, config: Config, readers: int, writers: int, **options: int) -> None:
        self._fabric = fabric = MemoryFabric(config, readers, writers, **options)
        self._identity = Identity(config, len(fabric.lookup), CLIENT_TAG)
        names = ("read", "write", "fault", "axi")
        super().__init__({name: fabric.signature.members[name] for name in names})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.fabric, m.submodules.identity = fabric, identity = (
            self._fabric,
            self._identity,
        )
        connect(m, fabric.axi, flipped(self.axi))
        connect(m, fabric.fault, flipped(self.fault))
        for ports, inner in ((self.read, fabric.read), (self.write, fabric.write)):
            for port, one in zip(ports, inner, strict=True):
                connect(m, flipped(port), one)
        for number in range(len(fabric.lookup)):
            connect(m, fabric.lookup[number], identity.request[number])
            connect(m, identity.answer[number], fabric.answer[number])
        return m
