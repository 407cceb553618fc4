"""Hardware warps of an SM (PLACE-21)."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.lib.onehot import encode, lowest

__all__ = ["WarpSlots", "warp_user"]


def warp_user(config: Config) -> data.StructLayout:
    """Strobe with the block slot and register units of a hardware warp."""
    return data.StructLayout({
        "valid": 1,
        "slot": config.block_bits,
        "registers": range(config.register_units + 1),
    })


class WarpSlots(wiring.Component):
    """Tracks free hardware warps, and the block served by each of the others.

    A free warp is selected in advance. One start and one end per cycle; an ended warp can be
    selected two cycles later.

    Members
    -------
    found : out, registered: a hardware warp is free.
    warp : out, `warp_bits` bits, registered: its number.
    start : in, strobe: `warp` now serves this block; only with `found`.
    end : in, strobe: hardware warp `warp` has ended.
    ended : out, one cycle after `end`: a `warp_user`, the block served.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        super().__init__({
            "found": Out(1, init=1),
            "warp": Out(config.warp_bits),
            "start": In(warp_user(config)),
            "end": In(data.StructLayout({"valid": 1, "warp": config.warp_bits})),
            "ended": Out(warp_user(config)),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        self._pick(m)
        self._serve(m)
        return m

    def _pick(self, m: Module) -> None:
        """Select a free warp in advance: `pick`, one-hot, 0 without one. `free` includes it."""
        warps = self._config.sm_warps
        free, pick = Signal(warps, name="free", init=-1), Signal(warps, name="pick", init=1)
        others = Signal(warps)
        m.d.comb += [others.eq(free & ~pick), self.warp.eq(encode(pick))]
        with m.If(self.start.valid | ~self.found):
            m.d.sync += [pick.eq(lowest(others)), self.found.eq(others.any())]
        for number in range(warps):
            with m.If(self.start.valid & pick[number]):
                m.d.sync += free[number].eq(0)
            with m.If(self.end.valid & (self.end.warp == number)):
                m.d.sync += free[number].eq(1)

    def _serve(self, m: Module) -> None:
        config = self._config
        user = data.StructLayout({
            name: shape for name, shape in warp_user(config).members.items() if name != "valid"
        })
        m.submodules.users = users = Memory(shape=user, depth=1 << config.warp_bits, init=[])
        write, read = users.write_port(), users.read_port()
        valid = Signal()
        m.d.sync += valid.eq(self.end.valid)
        m.d.comb += [
            write.en.eq(self.start.valid),
            write.addr.eq(self.warp),
            read.addr.eq(self.end.warp),
            self.ended.valid.eq(valid),
        ]
        for name in user.members:
            m.d.comb += [
                write.data[name].eq(self.start[name]),
                self.ended[name].eq(Mux(valid, read.data[name], 0)),
            ]
