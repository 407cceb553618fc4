"""Virtual memory system, used by all units except the control port (ASID-1 … ASID-11)."""

from amaranth.hdl import Cat, Module
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from signalbox.hw.config import Config
from signalbox.hw.mmu.bursts import fault_report
from signalbox.hw.mmu.fault_recorder import FaultRecorder
from signalbox.hw.mmu.maintenance import Maintenance
from signalbox.hw.mmu.memory_client import CLIENT_TAG
from signalbox.hw.mmu.memory_fabric import MemoryFabric
from signalbox.hw.mmu.outstanding_bursts import OutstandingBursts
from signalbox.hw.mmu.translation import Mmu
from signalbox.hw.records.memory import ReadPort, WritePort
from signalbox.hw.records.translation import FaultPort, MmuPort

__all__ = ["FIRST_CLIENT", "MemorySystem", "fault_event", "requesters"]

FIRST_CLIENT = 1
"""Number of the first client on the bus and in fault records; 0 is the translation itself."""


def requesters(config: Config) -> int:
    """Sources of binds and invalidations: registers, methods and, with a compute engine,
    contexts."""
    return 3 if config.compute else 2


def fault_event(config: Config) -> data.StructLayout:
    """Strobe, a fault was reported and recorded; see `fault_report`."""
    report = fault_report(config, config.memory_clients + FIRST_CLIENT)
    return data.StructLayout({"valid": 1, **report.members})


class MemorySystem(wiring.Component):
    """Memory fabric, translation, TLB maintenance and fault recorder.

        clients ─► MemoryFabric ─► AXI                      registers, MEM_OP ─► Maintenance
                     │ ▲  ▲  └─ reports ─► FaultRecorder              │ binds, invalidations
            look-ups ▼ │  └─ walks (client 0) ─ Mmu ◄──────────────────┘

    Client 0 of the fabric is the translation itself, with physical addresses: it reads page tables
    and writes fault records. Invalidations, and `OutstandingBursts`, concern only the bursts of the
    other clients.

    Parameters
    ----------
    requesters : sources of binds and invalidations.

    Members
    -------
    read : in, `config.memory_clients` read ports; the first two are urgent.
    write : in, `config.memory_clients` write ports; the first two are urgent.
    axi : out, AXI4 manager, see `MemoryFabric`; client n has id n + `FIRST_CLIENT`.
    maintain : in, one `MmuPort` per requester.
    faults : in, registers of the fault buffer, see `FaultPort`.
    time : in, 64 bits: PTIMER, in nanoseconds.
    fault : out, strobe: see `fault_event`.

    Attributes
    ----------
    mmu : exposes `hit`, `missed`, `found` and `walks` to observers.
    maintenance : exposes `begins`.
    """

    def __init__(self, config: Config, requesters: int) -> None:
        clients = config.memory_clients
        self._clients = clients
        count = clients + FIRST_CLIENT
        walks = 1 << (config.walks - 1).bit_length()
        options = {"physical": FIRST_CLIENT, "physical_reads": walks, "urgent": 3}
        self._fabric = MemoryFabric(config, count, count, **options)
        self.mmu = Mmu(config, clients, CLIENT_TAG)
        self.maintenance = Maintenance(config, requesters)
        self._recorder = FaultRecorder(config, count)
        super().__init__({
            "read": In(ReadPort(config)).array(clients),
            "write": In(WritePort(config)).array(clients),
            "axi": Out(self._fabric.axi.signature),
            "maintain": In(MmuPort(config)).array(requesters),
            "faults": In(FaultPort(config)),
            "time": In(64),
            "fault": Out(fault_event(config)),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.fabric = fabric = self._fabric
        m.submodules.mmu = mmu = self.mmu
        m.submodules.maintenance = maintenance = self.maintenance
        m.submodules.recorder = recorder = self._recorder
        m.submodules.older = older = OutstandingBursts(2 * self._clients, fabric.most)
        connect(m, fabric.axi, flipped(self.axi))
        connect(m, mmu.read, fabric.read[0])
        connect(m, recorder.write, fabric.write[0])
        connect(m, fabric.fault, recorder.report)
        connect(m, flipped(self.faults), recorder.registers)
        connect(m, maintenance.command, mmu.command)
        for number in range(self._clients):
            connect(m, flipped(self.read[number]), fabric.read[FIRST_CLIENT + number])
            connect(m, flipped(self.write[number]), fabric.write[FIRST_CLIENT + number])
            connect(m, fabric.lookup[number], mmu.request[number])
            connect(m, mmu.answer[number], fabric.answer[number])
        for port, inner in zip(self.maintain, maintenance.port, strict=True):
            connect(m, flipped(port), inner)
        virtual = range(FIRST_CLIENT, FIRST_CLIENT + self._clients)
        m.d.comb += [
            maintenance.done.eq(mmu.done),
            maintenance.older.eq(older.pending),
            recorder.binds.eq(maintenance.binds),
            recorder.time.eq(self.time),
            self.fault.valid.eq(fabric.fault.valid & fabric.fault.ready),
            [self.fault[name].eq(fabric.fault.p[name]) for name in fabric.fault.p.shape().members],
            older.event.eq(mmu.done),
            older.taken.eq(Cat(fabric.taken[number] for number in virtual)),
            older.ended.eq(Cat(fabric.ended[number] for number in virtual)),
        ]
        return m
