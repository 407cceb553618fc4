"""Control port: software's only access to the machine, apart from memory."""

from amaranth.hdl import Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.bus.axi4lite import Axi4Lite
from signalbox.hw.config import Config
from signalbox.hw.control.address_decoder import AddressDecoder, Owner
from signalbox.hw.control.axi_lite_target import AxiLiteTarget
from signalbox.hw.control.context_registers import ContextRegisters
from signalbox.hw.control.global_registers import GlobalRegisters
from signalbox.hw.control.performance_counters import EventPort
from signalbox.hw.front_end.contexts import context_setting
from signalbox.hw.records.compute_control import ComputeControl
from signalbox.hw.records.register import RegisterPort
from signalbox.hw.records.runlist import RunlistControl
from signalbox.hw.records.translation import FaultPort, MmuPort
from signalbox.hw.registers import ADDRESS_BITS

__all__ = ["ControlPort"]


class ControlPort(wiring.Component):
    """AXI4-Lite subordinate with the register map of `hw.registers`.

    One access at a time. A write is answered once it has taken effect: the doorbell was accepted,
    the register's owner has responded, or `irq` reflects a cleared or masked interrupt. Reads have
    no side effects.

    SLVERR, without side effects, answers these accesses: to an address without a register; to a
    channel, semaphore or context that was not built; a write to a read-only register; a partial
    write to a write-only register, a channel, a semaphore or a context.

    Latency: 7 cycles from the last address or data handshake to BVALID or RVALID. Doorbells and
    registers of other units take longer by the cycles for which that unit stalls.

    Members
    -------
    axi : in, AXI4-Lite bus.
    channel : out, port of the channel registers; word address `channel` × 64 + offset / 4.
    semaphore : out, port of the on-chip semaphores; word address `slot` × 4 + word.
    doorbell : out, stream of valid doorbells, with their channel, in order.
    time : out, 64 bits: PTIMER, in nanoseconds.
    counting : out, 0 … `counters`: semaphores below this index are counting semaphores (COPY-12).
    writeback : out, 32 bits: cycles between lazy write-backs of GP_GET.
    error : in, per channel, level: halted by an error.
    notify : in, strobe per channel: NON_STALL_INTERRUPT, or the interrupt of a task or a report.
    copied : in, strobe per channel: a copy with an interrupt is complete.
    events : in, events for the performance counters, see `EventPort`.
    maintain : out, binds and invalidations, see `MmuPort`.
    faults : out, the fault buffer, see `FaultPort`.
    compute : out, the compute engine, see `ComputeControl`.
    runlist : out, the runlist, see `RunlistControl`.
    contexts : out, per context: its `context_setting`.
    irq : out, level, registered: interrupt line; 2 cycles after a strobe that raises it.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        rung = data.StructLayout({"channel": config.channel_bits})
        super().__init__({
            "axi": In(Axi4Lite(ADDRESS_BITS)),
            "channel": Out(RegisterPort(12)),
            "semaphore": Out(RegisterPort(12)),
            "doorbell": Out(stream.Signature(rung)),
            "time": Out(64),
            "counting": Out(range(config.counters + 1)),
            "writeback": Out(32),
            "error": In(config.channels),
            "notify": In(config.channels),
            "copied": In(config.channels),
            "events": In(EventPort(config)),
            "maintain": Out(MmuPort(config)),
            "faults": Out(FaultPort(config)),
            "compute": Out(ComputeControl(config)),
            "runlist": Out(RunlistControl()),
            "contexts": Out(context_setting()).array(config.contexts),
            "irq": Out(1),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.target = target = AxiLiteTarget()
        m.submodules.decode = decode = AddressDecoder(self._config)
        m.submodules.bank = bank = GlobalRegisters(self._config)
        m.submodules.contexts = contexts = ContextRegisters(self._config)
        wiring.connect(m, wiring.flipped(self.axi), target.axi)
        wiring.connect(m, wiring.flipped(self.events), bank.events)
        wiring.connect(m, bank.maintain, wiring.flipped(self.maintain))
        wiring.connect(m, bank.faults, wiring.flipped(self.faults))
        wiring.connect(m, bank.compute, wiring.flipped(self.compute))
        wiring.connect(m, bank.runlist, wiring.flipped(self.runlist))
        access = target.access
        reply = Signal(32)
        done = Signal()
        # Registered, for timing: the access acts in this cycle, and is a write.
        writes = Signal()
        m.d.sync += writes.eq(0)
        m.d.comb += [
            decode.access.eq(access.p),
            bank.access.eq(access.p),
            bank.write.eq(writes & (decode.owner == Owner.GLOBAL)),
            bank.error.eq(self.error),
            bank.notify.eq(self.notify),
            bank.copied.eq(self.copied),
            bank.doorbell.eq(self.doorbell.valid & self.doorbell.ready),
            self.time.eq(bank.time),
            self.counting.eq(bank.counting),
            self.writeback.eq(bank.writeback),
            self.irq.eq(bank.irq),
            [
                outer.eq(inner)
                for outer, inner in zip(self.contexts, contexts.settings, strict=True)
            ],
            access.ready.eq(done),
            target.outcome.valid.eq(done),
            target.outcome.p.refused.eq(decode.owner == Owner.NOBODY),
            target.outcome.p.data.eq(reply),
        ]
        others = {
            Owner.CHANNEL: self.channel,
            Owner.SEMAPHORE: self.semaphore,
            Owner.CONTEXT: contexts.port,
        }
        for port in others.values():
            m.d.sync += [
                port.request.p.address.eq(access.p.word),
                port.request.p.write.eq(access.p.write),
                port.request.p.data.eq(access.p.data),
            ]
        m.d.sync += self.doorbell.p.channel.eq(access.p.data)

        # Loaded in every cycle; in DONE, it holds the response, which came one cycle before.
        with m.Switch(decode.owner):
            for owner, port in others.items():
                with m.Case(owner):
                    m.d.sync += reply.eq(port.response.p.data)
            with m.Case(Owner.NOBODY):
                m.d.sync += reply.eq(0)
            with m.Default():
                m.d.sync += reply.eq(bank.value)

        with m.FSM():
            with m.State("DECODE"):
                with m.If(access.valid):
                    m.next = "CHOOSE"
            with m.State("CHOOSE"):
                m.d.sync += writes.eq(access.p.write)
                m.next = "ACT"
            with m.State("ACT"):
                with m.Switch(decode.owner):
                    with m.Case(Owner.GLOBAL):
                        m.next = "SETTLE"
                    with m.Case(Owner.DOORBELL):
                        with m.If(decode.known):
                            m.d.sync += self.doorbell.valid.eq(1)
                            m.next = "RING"
                        with m.Else():
                            m.next = "SETTLE"
                    for owner, port in others.items():
                        with m.Case(owner):
                            m.d.sync += port.request.valid.eq(1)
                            m.next = owner.name
                    with m.Default():
                        m.next = "DONE"
            with m.State("RING"):
                with m.If(self.doorbell.ready):
                    m.d.sync += self.doorbell.valid.eq(0)
                    m.next = "SETTLE"
            for owner, port in others.items():
                with m.State(owner.name):
                    with m.If(port.request.ready):
                        m.d.sync += port.request.valid.eq(0)
                    m.d.comb += port.response.ready.eq(1)
                    with m.If(port.response.valid):
                        m.next = "DONE"
            with m.State("SETTLE"):
                m.next = "DONE"
            with m.State("DONE"):
                m.d.comb += done.eq(1)
                m.next = "DECODE"
        return m
