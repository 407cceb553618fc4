"""Registers for binds and invalidations."""

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.records.translation import MmuPort, mmu_command
from signalbox.hw.registers import GLOBAL

__all__ = ["TranslationRegisters"]

_COMMAND = GLOBAL["MMU_COMMAND"]


class TranslationRegisters(wiring.Component):
    """Registers MMU_COMMAND and MMU_STATUS, for one command at a time. The command is offered in
    the cycle after its write; `busy` is 1 from then until the command has completed.

    Members
    -------
    write : in, strobe: MMU_COMMAND is written.
    value : in, 32 bits: data of that write.
    page : in, 37 bits: argument MMU_VA >> 12, sampled with `write`.
    base : in, 28 bits: argument MMU_PDB >> 12, sampled with `write`.
    limit : in, 37 bits: argument MMU_LIMIT >> 12, sampled with `write`.
    busy : out, MMU_STATUS.BUSY.
    refused : out, MMU_STATUS.REFUSED.
    port : out, commands to the TLB maintenance.
    """

    def __init__(self, config: Config) -> None:
        command = mmu_command(config)
        super().__init__({
            "write": In(1),
            "value": In(32),
            **{name: In(command[name].shape) for name in ("page", "base", "limit")},
            "busy": Out(1),
            "refused": Out(1),
            "port": Out(MmuPort(config)),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        command, done = self.port.command, self.port.done
        operation, asid = (_COMMAND.field(name) for name in ("OPERATION", "ASID"))
        with m.If(command.ready):
            m.d.sync += command.valid.eq(0)
        with m.If(done.valid):
            m.d.sync += [self.busy.eq(0), self.refused.eq(self.refused | done.refused)]
        with m.If(self.write & self.busy):
            m.d.sync += self.refused.eq(1)
        with m.Elif(self.write):
            m.d.sync += [
                self.busy.eq(1),
                self.refused.eq(0),
                command.valid.eq(1),
                command.p.operation.eq(self.value[operation.lo : operation.hi + 1]),
                command.p.asid.eq(self.value[asid.lo : asid.hi + 1]),
                command.p.page.eq(self.page),
                command.p.base.eq(self.base),
                command.p.limit.eq(self.limit),
            ]
        return m
