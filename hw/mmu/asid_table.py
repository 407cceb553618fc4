"""ASID table: where each address space has its page tables (ASID-2, ASID-8)."""

from amaranth.hdl import Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.mmu.records import PAGE_BITS, VPN_BITS

__all__ = ["Spaces", "row_event", "space"]


_FEW = 64
"""Rows of which a distributed RAM takes no more space than it is worth."""


def space(config: Config) -> data.StructLayout:
    """An address space, if it is `bound`: page directory base >> 12, which lies in memory, and its
    last page."""
    return data.StructLayout({
        "bound": 1,
        "base": max(1, (config.memory_bytes - 1 >> PAGE_BITS).bit_length()),
        "last": VPN_BITS,
    })


def row_event(config: Config) -> data.StructLayout:
    """The row of `asid` becomes `row`."""
    return data.StructLayout({"valid": 1, "asid": config.asid_bits, "row": space(config)})


class Spaces(wiring.Component):
    """One row per ASID in RAM. One look-up per cycle; its row one cycle later, and held until the
    next one.

    After reset nothing is bound; rows are cleared, one per cycle, and look-ups give an unbound
    space meanwhile.

    Parameters
    ----------
    near : few rows are kept in distributed RAM, so that the row comes out of registers; in a block
        RAM it takes most of its cycle to come.

    Members
    -------
    look, asid, row : look the space of `asid` up; its row from the next cycle on.
    bind : the row of `asid`, below `config.asids`, becomes `row`; looked up so from the next cycle
        on. Not while `busy`.
    busy : rows are being cleared.
    """

    def __init__(self, config: Config, *, near: bool = False) -> None:
        self._config = config
        self._near = near and config.asids <= _FEW
        super().__init__({
            "look": In(1),
            "asid": In(config.asid_bits),
            "row": Out(space(config)),
            "bind": In(row_event(config)),
            "busy": Out(1, init=1),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        style = {"ram_style": "distributed"} if self._near else {}
        rows = Memory(shape=space(config), depth=1 << config.asid_bits, init=[], attrs=style)
        m.submodules.ram = rows
        write, read = rows.write_port(), rows.read_port()
        cleared, clean = Signal(config.asid_bits), Signal()
        m.d.comb += [
            read.addr.eq(self.asid),
            read.en.eq(self.look),
            self.row.eq(read.data),
            write.en.eq(self.busy | self.bind.valid),
            write.addr.eq(self.bind.asid),
            write.data.eq(self.bind.row),
        ]
        with m.If(self.look):
            m.d.sync += clean.eq(~self.busy)
        with m.If(~clean):
            m.d.comb += self.row.bound.eq(0)
        with m.If(self.busy):
            m.d.comb += [write.addr.eq(cleared), write.data.eq(0)]
            m.d.sync += [cleared.eq(cleared + 1), self.busy.eq(~cleared.all())]
        return m
