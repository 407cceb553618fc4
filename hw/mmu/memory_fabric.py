"""Memory fabric: all memory clients on one AXI4 port."""

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
from signalbox.hw.mmu.bursts import SLOTS, BurstReorderBuffer, fault_report
from signalbox.hw.mmu.memory_client import CLIENT_TAG, MemoryClient
from signalbox.hw.mmu.physical_bypass import PhysicalBypass
from signalbox.hw.mmu.read_path import ReadPath
from signalbox.hw.mmu.records import Access, answer, lookup
from signalbox.hw.mmu.write_path import WritePath
from signalbox.hw.records.memory import ReadPort, WritePort

__all__ = ["MemoryFabric"]

_CACHE = 0b0010
"""Normal non-cacheable, non-bufferable memory: a response means that the access has reached its
destination, which `WritePort.done` promises."""

_PROT = 0b010
"""Unprivileged, non-secure, data."""


class MemoryFabric(wiring.Component):
    """Translates the bursts of many clients and merges them onto one AXI4 port.

    Clients are translated in parallel and arbitrate afterwards:

        client ─► MemoryClient (reorder buffer per port) ─► BurstMerge ─► AR, AW
                     │  ▲
                     ▼  │  look-ups: the translation

    Reads and writes run in parallel, each at one beat and one request per cycle. Responses are in
    order within a client, in any order between clients. If the translation answers in the next
    cycle, an unloaded request is on AR or AW 3 cycles after it was offered, the first beat on W
    after 4; R and B reach the client after 1 cycle.

    Fairness: a translated burst waits for at most one burst of each other client of its direction
    and class. Urgent clients have priority over all others, so their traffic must be bounded: page
    walks and fault records serve bursts of others that wait for them; the host has few outstanding
    reads and fetches no faster than it executes, at most one beat in as many cycles as a beat has
    dwords; the semaphore unit has one access outstanding. A client can delay others only by its bus
    time, and by blocking R or B when it does not accept its responses. So a client requests only as
    much as it can accept without waiting for another access.

    A burst that faults never reaches the bus. Once its report was accepted, the client gets one
    beat, or one `done` after its write beats were consumed, with status FAULT, in order. SLVERR and
    DECERR give status BUS on that beat or `done`.

    Parameters
    ----------
    readers : clients with a read port, at least 1.
    writers : clients with a write port, at least 1. The first clients have both.
    physical : number of clients, the first ones, with physical addresses: their bursts are not
        translated, and an access past the end of memory faults without a report.
    urgent : number of clients, the first ones, with priority over the others.
    outstanding : limit of outstanding bursts per client and direction; a power of two from 2 to 64.
    physical_reads : the same for reads of physical clients.

    Members
    -------
    read : in, one `ReadPort` per reader.
    write : in, one `WritePort` per writer.
    lookup : out, per client with virtual addresses: stream of `lookup`, to its translation.
    answer : in, per client with virtual addresses: stream of `answer`, from its translation.
    fault : out, stream of `fault_report`, of all clients.
    taken : out, per client, 2 bits, for reads and for writes; strobe: a burst was accepted.
    ended : out, per client, 2 bits, for reads and for writes; strobe: a burst has got its last
        response. Bursts of a port end in order; at most `most` are outstanding.
    axi : out, AXI4 manager. INCR bursts of full-width beats, at most 256; the id is the client
        number. No burst crosses a 4 KiB boundary, as clients never request one that does.
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
        self._bursts = {access: BurstReorderBuffer(config, access) for access in used}
        self._clients = [MemoryClient(config, self._fronts(number)) for number in self._numbers]

    def _accesses(self, client: int) -> list[Access]:
        """Access types of a client's ports."""
        reads, writes = client < self._readers, client < self._writers
        return [Access.READ] * reads + [Access.WRITE] * writes

    def _fronts(self, client: int) -> list[Shared]:
        """Reorder buffers of a client with virtual addresses."""
        accesses = self._accesses(client)
        return [Shared(self._bursts[one], f"bursts_{one.name.lower()}") for one in accesses]

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.reads, m.submodules.writes = self._reads, self._writes
        for number in self._physical:
            fronts = [PhysicalBypass(self.config) for _ in self._accesses(number)]
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
        """Connects the ports of a client: requests go through the reorder buffer, everything else
        bypasses it."""
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
        """Merges the reports of all ports, round robin. Moving the grant costs a cycle; it stays
        parked on the last port."""
        whose = [
            (number, port.fault)
            for number, client in zip(self._numbers, self._clients, strict=True)
            for port in client.ports
        ]
        faults = [fault for _, fault in whose]
        m.submodules.reports = turns = RoundRobin(len(faults))
        requests = Signal(len(faults))
        turn = Signal(len(faults), init=1)
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
