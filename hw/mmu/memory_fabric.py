"""All memory clients on one AXI4 port."""

from amaranth import Module
from amaranth.hdl import Cat, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from signalbox.hw.bus.axi4 import Axi4, Burst
from signalbox.hw.config import Config
from signalbox.hw.lib.arbiter import RoundRobin
from signalbox.hw.lib.onehot import select
from signalbox.hw.lib.shared import Shared
from signalbox.hw.mmu.axi_streams import connect_in, connect_out
from signalbox.hw.mmu.bursts import SLOTS, Bursts, fault_report
from signalbox.hw.mmu.memory_client import CLIENT_TAG, Client
from signalbox.hw.mmu.physical_bypass import Physical
from signalbox.hw.mmu.read_path import ReadPath
from signalbox.hw.mmu.records import Access, answer, lookup
from signalbox.hw.mmu.write_path import WritePath
from signalbox.hw.records.memory import ReadPort, WritePort

__all__ = ["MemoryFabric"]

_CACHE = 0b0010
"""Normal memory, not cacheable, not bufferable: a response means that the access has reached its
end, which is what `WritePort.done` promises."""

_PROT = 0b010
"""Unprivileged, non-secure, data."""


class MemoryFabric(wiring.Component):
    """Has the virtual bursts of many clients translated and puts them on one AXI4 port.

    Each client's bursts are translated beside those of the others, and then take turns:

        client ─► Client (Bursts per port) ─► BurstFront ─► AR, AW
                     │  ▲
                     ▼  │  look-ups: the translation

    Reads and writes go side by side, each at one beat per cycle and one request per cycle. Bursts
    of a client are answered in order, those of different clients in any order. When translation
    answers in the next cycle, an unloaded request is on AR or AW 3 cycles after it was offered, the
    first beat on W 4 cycles after; R and B take 1 cycle to the client.

    Fairness: a burst that is translated goes after at most one of each other client of its
    direction and class. Urgent clients go before all others, so they must not ask without end:
    walks and fault records are for bursts of others, which wait for them; the host has few reads at
    a time, and fetches as many as it executes, at most one beat in as many cycles as a beat has
    dwords; the semaphore unit has one access at a time. What a client can do to others: take time
    on the bus, and hold R or B when it does not take its answers. So a client asks only for what it
    can take without waiting for another access.

    A burst that faults never reaches the bus. It is reported, and when the report was taken its
    client gets one beat, or after its write beats were consumed one `done`, with FAULT, in order.
    SLVERR and DECERR give BUS on that beat or `done`.

    Parameters
    ----------
    readers, writers : clients with such a port, at least 1; the first of both are the same.
    physical : so many clients, the first, give physical addresses: nothing of them is translated,
        and what lies past the end of memory faults without a report.
    urgent : so many clients, the first, go before all others.
    outstanding : bursts that each client may have on their way in each direction; a power of two
        from 2 to 64. physical_reads : reads, of a client that is physical.

    Members
    -------
    read, write : the clients.
    lookup, answer : per client that is not physical, to and from its translation.
    fault : reports of all clients, in turn.
    taken, ended : per client, of reads and of writes: a burst was taken, or its client has been
        given all that it is owed. Bursts of a port end in their order, at most `most` are between.
    axi : AXI4 manager; INCR bursts over the full width with the client's number as id; at most
        256 beats, never across 4 KiB since clients do not.
    """

    def __init__(
        self,
        config: Config,
        readers: int,
        writers: int,
        *,
        physical: int = 0,
        urgent: int = 0,
        outstanding: int = 16,
        physical_reads: int = 16,
    ) -> None:
        for name, count in (("readers", readers), ("writers", writers)):
            if count < 1:
                raise ValueError(f"{name} = {count!r} is not at least 1")
        most = {"outstanding": outstanding, "physical_reads": physical_reads}
        for name, count in most.items():
            if count not in {2, 4, 8, 16, 32, 64}:
                raise ValueError(f"{name} = {count!r} is not a power of two from 2 to 64")
        clients = max(readers, writers)
        id_width = max(1, (clients - 1).bit_length())
        look = stream.Signature(lookup(config, CLIENT_TAG))
        given = stream.Signature(answer(config, CLIENT_TAG))
        super().__init__({
            "read": In(ReadPort(config)).array(readers),
            "write": In(WritePort(config)).array(writers),
            "lookup": Out(look).array(clients - physical),
            "answer": In(given).array(clients - physical),
            "fault": Out(stream.Signature(fault_report(config, clients))),
            "taken": Out(2).array(clients),
            "ended": Out(2).array(clients),
            "axi": Out(
                Axi4(
                    addr_width=config.address_width,
                    data_width=config.data_width,
                    id_width=id_width,
                )
            ),
        })
        self.config, self._readers, self._writers = config, readers, writers
        self.most = outstanding + SLOTS
        reads = [physical_reads] * physical + [outstanding] * (readers - physical)
        writes = [outstanding] * writers
        self._reads = ReadPath(config, reads, id_width, urgent=urgent)
        self._writes = WritePath(config, writes, id_width, urgent=urgent)
        self._physical, self._numbers = range(physical), range(physical, clients)
        used = dict.fromkeys(one for number in self._numbers for one in self._accesses(number))
        self._bursts = {access: Bursts(config, access) for access in used}
        self._clients = [Client(config, self._fronts(number)) for number in self._numbers]

    def _accesses(self, client: int) -> list[Access]:
        """What the ports of a client do."""
        reads, writes = client < self._readers, client < self._writers
        return [Access.READ] * reads + [Access.WRITE] * writes

    def _fronts(self, client: int) -> list[Shared]:
        """The ports of a client whose addresses are virtual."""
        accesses = self._accesses(client)
        return [Shared(self._bursts[one], f"bursts_{one.name.lower()}") for one in accesses]

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.reads, m.submodules.writes = self._reads, self._writes
        for number in self._physical:
            fronts = [Physical(self.config) for _ in self._accesses(number)]
            for access, front in zip(self._accesses(number), fronts, strict=True):
                m.submodules[f"physical_{number}_{access.name.lower()}"] = front
            self._ports(m, number, fronts)
        for index, (number, client) in enumerate(zip(self._numbers, self._clients, strict=True)):
            m.submodules[f"client_{number}"] = client
            connect(m, client.lookup, flipped(self.lookup[index]))
            connect(m, flipped(self.answer[index]), client.answer)
            self._ports(m, number, client.ports)
        self._report(m)
        self._bus(m)
        return m

    def _ports(self, m: Module, number: int, fronts: list) -> None:
        """Requests of a client go through what is before the bus, everything else past it."""
        ports = iter(fronts)
        taken, ended = self.taken[number], self.ended[number]
        if number < self._readers:
            port, outer, path = next(ports), self.read[number], self._reads
            connect(m, flipped(outer.request), port.request)
            connect(m, port.o, path.bursts[number])
            m.d.comb += port.room.eq(path.room[number])
            connect(m, path.beats[number], flipped(outer.beat))
            given = outer.beat
            m.d.comb += [
                taken[0].eq(outer.request.valid & outer.request.ready),
                ended[0].eq(given.valid & given.ready & given.p.last),
            ]
        if number < self._writers:
            port, outer, path = next(ports), self.write[number], self._writes
            connect(m, flipped(outer.request), port.request)
            connect(m, port.o, path.bursts[number])
            m.d.comb += port.room.eq(path.room[number])
            connect(m, flipped(outer.beat), path.beats[number])
            connect(m, path.done[number], flipped(outer.done))
            m.d.comb += [
                taken[1].eq(outer.request.valid & outer.request.ready),
                ended[1].eq(outer.done.valid & outer.done.ready),
            ]

    def _report(self, m: Module) -> None:
        """Faults of all ports, in turn; a cycle is lost where the turn has to move. It stays with
        the last one."""
        whose = [
            (number, port.fault)
            for number, client in zip(self._numbers, self._clients, strict=True)
            for port in client.ports
        ]
        faults = [fault for _, fault in whose]
        m.submodules.reports = turns = RoundRobin(len(faults))
        requests, turn = Signal(len(faults)), Signal(len(faults), init=1)
        reports = []
        for number, fault in whose:
            report = Signal(self.fault.p.shape(), name=f"report_{len(reports)}")
            m.d.comb += [
                report.client.eq(number),
                [report[name].eq(fault.p[name]) for name in fault.p.shape().members],
            ]
            reports.append(report.as_value())
        m.d.comb += [
            requests.eq(Cat(fault.valid for fault in faults)),
            turns.requests.eq(requests & ~turn),
            turns.advance.eq(~self.fault.valid | self.fault.ready),
            self.fault.valid.eq((requests & turn).any()),
            self.fault.payload.eq(select(turn, reports)),
            [fault.ready.eq(turn[n] & self.fault.ready) for n, fault in enumerate(faults)],
        ]
        with m.If(turns.advance & turns.grant.any()):
            m.d.sync += turn.eq(turns.grant)

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
