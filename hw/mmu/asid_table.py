"""ASID table: page directory base of each address space (ASID-2, ASID-8)."""

from amaranth.hdl import Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.mmu.records import PAGE_BITS, VPN_BITS

__all__ = ["AsidTable", "asid_row", "bind_event"]


_FEW = 64
"""Largest number of rows for which distributed RAM is worth its area."""


def asid_row(config: Config) -> data.StructLayout:
    """Row of the ASID table. `bound`: the row is valid. `base`: page directory base >> 12, inside
    memory. `last`: last valid page number."""
    return data.StructLayout({
        "bound": 1,
        "base": max(1, (config.memory_bytes - 1 >> PAGE_BITS).bit_length()),
        "last": VPN_BITS,
    })


def bind_event(config: Config) -> data.StructLayout:
    """Strobe: write `row` to the entry of `asid`."""
    return data.StructLayout({"valid": 1, "asid": config.asid_bits, "row": asid_row(config)})


class AsidTable(wiring.Component):
    """Keeps a row per ASID, in RAM. One look-up per cycle.

    After reset all spaces are unbound: rows are cleared one per cycle, and look-ups return an
    unbound row meanwhile.

    Parameters
    ----------
    near : keep a small table in distributed RAM with an output register; block RAM takes most of a
        cycle to deliver its row.

    Members
    -------
    look : in, strobe: look up `asid`.
    asid : in, `asid_bits` bits: address space of the look-up.
    row : out, its `asid_row`, 1 cycle after `look`; stable until the next look-up.
    bind : in, strobe: writes the row of an ASID below `config.asids`; look-ups see it from the next
        cycle on. Not while `busy`.
    busy : out, rows are being cleared after reset.
    """

    def __init__(self, config: Config, *, near: bool = False) -> None:
        self._config = config
        self._near = near and config.asids <= _FEW
        super().__init__({
            "look": In(1),
            "asid": In(config.asid_bits),
            "row": Out(asid_row(config)),
            "bind": In(bind_event(config)),
            "busy": Out(1, init=1),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        style = {"ram_style": "distributed"} if self._near else {}
        rows = Memory(shape=asid_row(config), depth=1 << config.asid_bits, init=[], attrs=style)
        m.submodules.ram = rows
        write, read = rows.write_port(), rows.read_port()
        cleared = Signal(config.asid_bits)
        clean = Signal()
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
