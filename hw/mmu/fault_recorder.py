"""Fault recorder: writes records to the fault buffer in memory and to registers (ASID-5,
HOST-11)."""

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.mmu.asid_table import AsidTable, bind_event
from signalbox.hw.mmu.bursts import fault_report
from signalbox.hw.mmu.records import PAGE_BITS, Access
from signalbox.hw.page_tables import (
    FAULT_RECORD_BYTES,
    GPC_SMS,
    TASK_UNIT,
    AccessType,
    FaultRecord,
    InstanceAperture,
)
from signalbox.hw.records.memory import MemoryStatus, WritePort
from signalbox.hw.records.translation import FaultPort

__all__ = ["FaultRecorder"]

_ACCESSES = {
    Access.READ: AccessType.READ,
    Access.WRITE: AccessType.WRITE,
    Access.ATOMIC: AccessType.ATOMIC_STRONG,
}

_RECORD_BITS = 8 * FAULT_RECORD_BYTES
_PLACE_BITS = (FAULT_RECORD_BYTES - 1).bit_length()
"""Address bits within a record."""


class FaultRecorder(wiring.Component):
    """Records one report at a time. A report is accepted once its record is in memory or was
    dropped, so software that learns of the fault later finds the record.

    A record is offered to memory 4 cycles after its report. No fault is lost silently: a record
    that is not written is counted in `dropped`; overflow and bus errors also show in `status` until
    cleared. If the buffer was disabled while a record was being written, even for one cycle, the
    write completes at its old address, PUT does not advance, and the record counts as dropped;
    `busy` stays high until then. The instance is looked up when the record is composed: a bind that
    waits for the faulting access may already have changed it.

    Parameters
    ----------
    clients : number of clients in reports; with a compute engine the last ones are the task unit
        and the SMs.

    Members
    -------
    report : in, stream of `fault_report`; taken when the record is in memory or was dropped.
    write : out, memory client with physical addresses.
    binds : in, copy of every bind, see `Maintenance`.
    time : in, 64 bits: PTIMER, in nanoseconds.
    registers : in, see `FaultPort`.
    """

    def __init__(self, config: Config, clients: int) -> None:
        self._config, self._clients = config, clients
        super().__init__({
            "report": In(stream.Signature(fault_report(config, clients))),
            "write": Out(WritePort(config)),
            "binds": In(bind_event(config)),
            "time": In(64),
            "registers": In(FaultPort(config)),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        registers, write, report = self.registers, self.write, self.report
        put, status = registers.put, registers.status
        record = Signal(FaultRecord)
        dropped = Signal()
        composing = Signal()
        off = Signal()  # the buffer was disabled at some time since this report came
        following, full = self._room(m)
        self._compose(m, record, composing)
        last = self._beats(m, record)
        for field in status.shape().members:
            with m.If(registers.clear[field]):
                m.d.sync += status[field].eq(0)
        with m.FSM():
            with m.State("IDLE"):
                m.d.sync += off.eq(0)
                with m.If(report.valid):
                    m.next = "LOOK"
            with m.State("LOOK"):
                m.next = "COMPOSE"
            with m.State("COMPOSE"):
                m.d.comb += composing.eq(1)
                m.d.sync += registers.busy.eq(1)
                m.next = "DECIDE"
            with m.State("DECIDE"):
                m.next = "REQUEST"
                with m.If(off):
                    m.d.comb += dropped.eq(1)
                    m.next = "END"
                with m.Elif(status.overflow | full):
                    m.d.comb += dropped.eq(1)
                    m.d.sync += status.overflow.eq(1)
                    m.next = "END"
            with m.State("REQUEST"):
                m.d.comb += write.request.valid.eq(1)
                with m.If(write.request.ready):
                    m.next = "BEATS"
            with m.State("BEATS"):
                m.d.comb += write.beat.valid.eq(1)
                with m.If(write.beat.ready & last):
                    m.next = "WRITTEN"
            with m.State("WRITTEN"):
                m.d.comb += write.done.ready.eq(1)
                with m.If(write.done.valid):
                    m.next = "END"
                    with m.If(write.done.p.status != MemoryStatus.OK):
                        m.d.comb += dropped.eq(1)
                        m.d.sync += status.bus.eq(1)
                    with m.Elif(off | ~registers.enable):
                        m.d.comb += dropped.eq(1)
                        m.d.sync += status.overflow.eq(1)
                    with m.Else():
                        m.d.sync += put.eq(following)
            with m.State("END"):
                m.d.comb += [report.ready.eq(1), registers.fault.eq(1)]
                m.d.sync += [status.fault.eq(1), registers.busy.eq(0)]
                with m.If(~status.fault | registers.clear.fault):
                    m.d.sync += registers.record.eq(record)
                m.next = "IDLE"
        m.d.sync += registers.dropped.eq(registers.dropped + dropped)
        with m.If(~registers.enable):
            m.d.sync += [put.eq(0), off.eq(1)]
        return m

    def _room(self, m: Module) -> tuple[Signal, Signal]:
        """Returns the next value of PUT, frozen while a record is processed, and whether the buffer
        is full. Both lag PUT by up to 3 cycles, which have passed when a report reaches DECIDE."""
        registers = self.registers
        behind = Signal(20)
        following = Signal(20)
        full = Signal()
        m.d.sync += [
            behind.eq(registers.put + 1),
            full.eq(following == registers.get),
        ]
        with m.If(~registers.busy):
            m.d.sync += following.eq(Mux(behind >= registers.records, 0, behind))
        return following, full

    def _compose(self, m: Module, record: Signal, now: Signal) -> None:
        """Composes the record, 2 cycles after its report, once the instance was looked up."""
        m.submodules.instances = instances = AsidTable(self._config, near=True)
        report, row, made = self.report.p, instances.row, Signal(FaultRecord, name="made")
        m.d.sync += instances.asid.eq(report.asid)  # the arbiter's grant comes late
        m.d.comb += [instances.bind.eq(self.binds), instances.look.eq(1)]
        with m.If(now):
            m.d.sync += record.eq(made)
        m.d.comb += [
            made.timestamp.eq(self.time),
            made.instance.eq(Mux(row.bound, row.base, 0)),
            made.instance_aperture.eq(
                Mux(row.bound, InstanceAperture.VIDEO, InstanceAperture.INVALID)
            ),
            made.address.eq(report.va[PAGE_BITS:]),
            made.asid.eq(report.asid),
            made.fault_type.eq(report.fault),
            made.client.eq(report.client),
            made.client_type.eq(1),
            made.valid.eq(1),
        ]
        if self._config.compute:
            self._name_sm(m, made)
        with m.Switch(report.access):
            for access, code in _ACCESSES.items():
                with m.Case(access):
                    m.d.comb += made.access_type.eq(code | report.physical << 3)

    def _name_sm(self, m: Module, made: data.View) -> None:
        """Encodes the client numbers of task unit and SMs."""
        task_unit = self._clients - self._config.sms - 1
        number = Signal(range(self._config.sms))
        m.d.comb += number.eq(self.report.p.client - (task_unit + 1))
        with m.If(self.report.p.client == task_unit):
            m.d.comb += made.client.eq(TASK_UNIT)
        with m.Elif(self.report.p.client > task_unit):
            m.d.comb += [
                made.client_type.eq(0),
                made.client.eq(number % GPC_SMS),
                made.gpc.eq(number // GPC_SMS),
            ]

    def _beats(self, m: Module, record: Signal) -> Value:
        """Writes the record. Returns whether the current beat is the last."""
        config, registers, write = self._config, self.registers, self.write
        width, request, beat = config.data_width, write.request.p, write.beat.p
        count = max(1, _RECORD_BITS // width)
        place = Signal(len(request.va))
        with m.If(~registers.busy):
            m.d.sync += place.eq((registers.base << PAGE_BITS) + (registers.put << _PLACE_BITS))
        m.d.comb += [
            request.va.eq(place),
            request.physical.eq(1),
            request.beats.eq(count - 1),
        ]
        if width > _RECORD_BITS:
            # A record is narrower than a beat.
            half = place[_PLACE_BITS : config.offset_bits]
            m.d.comb += [
                beat.data.eq(record.as_value().replicate(width // _RECORD_BITS)),
                beat.strobe.eq(((1 << FAULT_RECORD_BYTES) - 1) << (half << _PLACE_BITS)),
                beat.last.eq(1),
            ]
            return beat.last
        number = Signal(range(max(2, count)))
        m.d.comb += [
            beat.data.eq(record.as_value().word_select(number, width)),
            beat.strobe.eq(~0),
            beat.last.eq(number == count - 1),
        ]
        with m.If(write.beat.valid & write.beat.ready):
            m.d.sync += number.eq(Mux(beat.last, 0, number + 1))
        return beat.last
