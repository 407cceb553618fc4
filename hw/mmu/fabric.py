"""All memory clients on one AXI4 port."""

from collections.abc import Callable

from amaranth import Module
from amaranth.hdl import Cat
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.bus.axi4 import Axi4, Burst
from hw.config import Config
from hw.lib.arbiter import SteadyRoundRobin
from hw.lib.onehot import select
from hw.mmu.bursts import fault_report
from hw.mmu.channels import connect_in, connect_out
from hw.mmu.client import CLIENT_TAG, Client
from hw.mmu.identity import Identity
from hw.mmu.lookups import Access
from hw.mmu.reads import ReadPath
from hw.mmu.writes import WritePath
from hw.records import ReadPort, WritePort

__all__ = ["MemoryFabric", "TranslationFactory"]

_CACHE = 0b0010
"""Normal memory, not cacheable, not bufferable: a response means that the access has reached its
end, which is what `WritePort.done` promises."""

_PROT = 0b010
"""Unprivileged, non-secure, data."""

TranslationFactory = Callable[[Config, int, data.Layout], wiring.Component]
"""Makes a translation for so many clients with that tag: a component with members `request` and
`answer` as of `Identity`."""


class MemoryFabric(wiring.Component):
    """Translates the virtual bursts of many clients and puts them on one AXI4 port.

    Each client's bursts are translated beside those of the others, and then take turns:

        client ─► Client (Bursts per port) ─► BurstFront ─► AR, AW
                     │  ▲
                     ▼  │  look-ups
                  translation

    Reads and writes go side by side, each at one beat per cycle and one request per cycle. Bursts
    of a client are answered in order, those of different clients in any order. When translation
    answers in the next cycle, an unloaded request is on AR or AW 3 cycles after it was offered, the
    first beat on W 4 cycles after; R and B take 1 cycle to the client.

    Fairness: a burst that is translated goes after at most one of each other client of its
    direction and class. Urgent clients go before all others, so they must not ask without end: the
    host has few reads at a time, and fetches as many as it executes, at most one beat in as many
    cycles as a beat has dwords; the semaphore unit has one access at a time. What a client can do
    to others: take time on the bus, and hold R or B when it does not take its answers. So a client
    asks only for what it can take without waiting for another access.

    A burst that faults never reaches the bus. It is reported, and when the report was taken its
    client gets one beat, or after its write beats were consumed one `done`, with FAULT, in order.
    SLVERR and DECERR give BUS on that beat or `done`.

    Parameters
    ----------
    readers, writers : clients with such a port, at least 1; the first of both are the same.
    urgent : so many clients, the first, go before all others.
    outstanding : bursts that each client may have on their way in each direction; a power of two
        from 2 to 32.
    translation : makes it; kept as an attribute.

    Members
    -------
    read, write : the clients.
    fault : reports of all clients, in turn.
    axi : AXI4 manager; INCR bursts over the full width with the client's number as id; at most
        256 beats, never across 4 KiB since clients do not.
    """

    def __init__(
        self,
        config: Config,
        readers: int,
        writers: int,
        *,
        urgent: int = 0,
        outstanding: int = 16,
        translation: TranslationFactory = Identity,
    ) -> None:
        for name, count in (("readers", readers), ("writers", writers)):
            if count < 1:
                raise ValueError(f"{name} = {count!r} is not at least 1")
        if outstanding not in {2, 4, 8, 16, 32}:
            raise ValueError(f"outstanding = {outstanding!r} is not a power of two from 2 to 32")
        clients = max(readers, writers)
        id_width = max(1, (clients - 1).bit_length())
        super().__init__({
            "read": In(ReadPort(config)).array(readers),
            "write": In(WritePort(config)).array(writers),
            "fault": Out(stream.Signature(fault_report(config))),
            "axi": Out(
                Axi4(
                    addr_width=config.address_width,
                    data_width=config.data_width,
                    id_width=id_width,
                )
            ),
        })
        self.config, self._readers, self._writers = config, readers, writers
        self.translation = translation(config, clients, CLIENT_TAG)
        limits = {"outstanding": outstanding, "urgent": urgent}
        self._reads = ReadPath(config, readers, id_width, **limits)
        self._writes = WritePath(config, writers, id_width, **limits)
        self._clients = [Client(config, self._accesses(number)) for number in range(clients)]

    def _accesses(self, client: int) -> list[Access]:
        """What the ports of a client do."""
        reads, writes = client < self._readers, client < self._writers
        return [Access.READ] * reads + [Access.WRITE] * writes

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.translation = self.translation
        m.submodules.reads, m.submodules.writes = self._reads, self._writes
        for number, client in enumerate(self._clients):
            m.submodules[f"client_{number}"] = client
            connect(m, client.lookup, self.translation.request[number])
            connect(m, self.translation.answer[number], client.answer)
            self._ports(m, number, client)
        self._report(m)
        self._bus(m)
        return m

    def _ports(self, m: Module, number: int, client: Client) -> None:
        """Requests of a client go through translation, everything else past it."""
        ports = iter(client.ports)
        if number < self._readers:
            port, outer, path = next(ports), self.read[number], self._reads
            connect(m, flipped(outer.request), port.request)
            connect(m, port.o, path.bursts[number])
            connect(m, path.beats[number], flipped(outer.beat))
        if number < self._writers:
            port, outer, path = next(ports), self.write[number], self._writes
            connect(m, flipped(outer.request), port.request)
            connect(m, port.o, path.bursts[number])
            connect(m, flipped(outer.beat), path.beats[number])
            connect(m, path.done[number], flipped(outer.done))

    def _report(self, m: Module) -> None:
        """Faults of all ports, in turn."""
        faults = [port.fault for client in self._clients for port in client.ports]
        m.submodules.reports = turns = SteadyRoundRobin(len(faults))
        words = (fault.p.as_value() for fault in faults)
        m.d.comb += [
            turns.requests.eq(Cat(fault.valid for fault in faults)),
            turns.advance.eq(self.fault.ready),
            self.fault.valid.eq(turns.requests.any()),
            self.fault.payload.eq(select(turns.grant, words)),
            [fault.ready.eq(turns.grant[n] & self.fault.ready) for n, fault in enumerate(faults)],
        ]

    def _bus(self, m: Module) -> None:
        connect_out(m, self._reads.ar, self.axi, "ar")
        connect_in(m, self.axi, "r", self._reads.r)
        connect_out(m, self._writes.aw, self.axi, "aw")
        connect_out(m, self._writes.w, self.axi, "w")
        connect_in(m, self.axi, "b", self._writes.b)
        for channel in ("ar", "aw"):
            m.d.comb += [
                getattr(self.axi, f"{channel}size").eq(self.config.offset_bits),
                getattr(self.axi, f"{channel}burst").eq(Burst.INCR),
                getattr(self.axi, f"{channel}cache").eq(_CACHE),
                getattr(self.axi, f"{channel}prot").eq(_PROT),
            ]
