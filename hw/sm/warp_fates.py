"""Warps of each block that have ended or are saved (PREEMPT-2, PREEMPT-7)."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config

__all__ = ["WarpFates", "block_fates", "warp_fate", "warp_number"]


def block_fates(config: Config) -> data.StructLayout:
    """Two bits per warp of a block. `over`: the warp has ended. `saved`: its state is in memory."""
    return data.StructLayout({"over": config.sm_warps, "saved": config.sm_warps})


def warp_number(config: Config) -> data.StructLayout:
    """A warp of a block: slot of the block, number in it."""
    return data.StructLayout({"slot": config.block_bits, "index": 6})


warp_fate = data.StructLayout({"waits": 1, "over": 1, "saved": 1})
"""Fate of a warp that is about to start. `waits`: the bits of its block have not arrived. `over`:
it had ended. `saved`: it is restored. Otherwise it starts like any other."""


class WarpFates(wiring.Component):
    """Stores, per warp of each block, whether it has ended and whether its state is saved.

    Members
    -------
    fresh : in, strobe per block slot: a block begins; all its bits are 0.
    over : in, strobe, with a `warp_number`: the warp has ended.
    change : in, strobe, with a `warp_number`: the state of the warp is saved now, or no longer; not
        together with `load`.
    load : in, stream of `block_fates` of a block slot.
    look : in, per port, `block_bits` bits: number of a block slot.
    fates : out, per port, 1 cycle later: the `block_fates` of its block; of a block just changed, 2
        cycles later.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        fates, number = block_fates(config), warp_number(config)
        loaded = data.StructLayout({"slot": config.block_bits, "fates": fates})
        super().__init__({
            "fresh": In(config.sm_blocks),
            "over": In(data.StructLayout({"valid": 1, "number": number})),
            "change": In(data.StructLayout({"valid": 1, "number": number, "saved": 1})),
            "load": In(stream.Signature(loaded)),
            "look": In(config.block_bits).array(2),
            "fates": Out(fates).array(2),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        over, change = self.over, self.change
        loads = Signal(name="loads")
        m.d.comb += [
            self.load.ready.eq(~over.valid),
            loads.eq(self.load.valid & self.load.ready),
        ]
        self._marks(m, "over", loads, over, Const(1))
        self._marks(m, "saved", loads, change, change.saved)
        return m

    def _marks(self, m: Module, name: str, loads: Value, event: data.View, bit: Value) -> None:
        """One of the two bits of each warp. The first write for a new block replaces the bits of
        the block before it in the slot."""
        config, load = self._config, self.load.p
        m.submodules[name] = marks = Memory(
            shape=data.ArrayLayout(1, config.sm_warps), depth=config.sm_blocks, init=[]
        )
        write = marks.write_port(granularity=1)
        empty, slot = (
            Signal(config.sm_blocks, name=f"no_{name}"),
            Signal(config.block_bits, name="slot"),
        )
        one, all_ = Signal(config.sm_warps, name=f"{name}_one"), Signal(name=f"{name}_all")
        m.d.comb += [
            slot.eq(Mux(loads, load.slot, event.number.slot)),
            one.eq(1 << event.number.index),
            all_.eq(loads | empty.bit_select(slot, 1)),
            write.addr.eq(slot),
            write.data.eq(Mux(loads, load.fates[name], Mux(bit, one, 0))),
            write.en.eq(Mux(loads | event.valid, Mux(all_, ~0, one), 0)),
        ]
        written = Cat((loads | event.valid) & (slot == n) for n in range(config.sm_blocks))
        m.d.sync += empty.eq(empty & ~written | self.fresh)
        for look, fates in zip(self.look, self.fates, strict=True):
            read, none = marks.read_port(), Signal(name=f"none_{name}")
            m.d.comb += [read.addr.eq(look), fates[name].eq(Mux(none, 0, read.data))]
            m.d.sync += none.eq(empty.bit_select(look, 1))
