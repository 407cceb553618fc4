"""Adds the position of its block to a warp fault."""

from amaranth.hdl import Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.records.placement import coordinates
from signalbox.hw.sm.port import block_begin, core_fault

__all__ = ["FaultyBlocks", "sm_fault"]


def sm_fault(config: Config) -> data.StructLayout:
    """A fault of a core, and the position of its `block` in the grid."""
    members = dict(core_fault(config).members)
    del members["slot"]
    return data.StructLayout({**members, "block": coordinates})


class FaultyBlocks(wiring.Component):
    """Keeps the position of the block in each slot. A fault is offered 1 cycle after the core
    offers it.

    Members
    -------
    begin : in, strobe, a `block_begin`: a block enters a slot.
    i : in, stream of `core_fault`: faults of the core.
    o : out, stream of `sm_fault`: these faults with the positions of their blocks.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        super().__init__({
            "begin": In(data.StructLayout({"valid": 1, "what": block_begin(config)})),
            "i": In(stream.Signature(core_fault(config))),
            "o": Out(stream.Signature(sm_fault(config))),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        depth = self._config.sm_blocks
        m.submodules.blocks = blocks = Memory(shape=coordinates, depth=depth, init=[])
        write, read, begin, i, o = (
            blocks.write_port(),
            blocks.read_port(),
            self.begin,
            self.i,
            self.o,
        )
        found = Signal()
        """The position of the offered fault's block has been read."""
        m.d.comb += [
            write.en.eq(begin.valid),
            write.addr.eq(begin.what.slot),
            write.data.eq(begin.what.at),
            read.addr.eq(i.p.slot),
            o.valid.eq(i.valid & found),
            i.ready.eq(o.ready & found),
            [o.p[name].eq(i.p[name]) for name in ("row", "index", "cause", "at", "va")],
            o.p.block.eq(read.data),
        ]
        m.d.sync += found.eq(i.valid & ~(found & o.ready))
        return m
