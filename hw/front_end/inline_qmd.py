"""QMDs loaded by methods: LOAD_INLINE_QMD_DATA (HOST-9)."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.front_end.host_port import INLINE_DWORDS, compute_setting
from signalbox.hw.front_end.inline_buffer import qmd_dword

__all__ = ["InlineQmd"]


class InlineQmd(wiring.Component):
    """Stores, per channel, which dwords of an inline QMD are loaded; the dwords themselves are in
    `InlineBuffer`.

    Members
    -------
    setting : in, strobe: a method, one cycle later than in `ComputePort`.
    clear : in, strobe: `channel` starts, or its refused method is not repeated; one cycle later
        than in `ComputePort`, and not together with `setting`.
    channel : in, `channel_bits` bits: number of a channel.
    mask : out, 64 bits, one cycle later: loaded dwords of `channel`.
    forget : in, until `forgotten`: clear the mask of `channel`.
    forgotten : out, combinational: the mask is cleared in this cycle.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        channel = {"valid": 1, "channel": config.channel_bits}
        super().__init__({
            "setting": In(compute_setting(config)),
            "clear": In(data.StructLayout(channel)),
            "channel": In(config.channel_bits),
            "mask": Out(INLINE_DWORDS),
            "forget": In(1),
            "forgotten": Out(1),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        setting, clear = self.setting, self.clear
        loads, number = qmd_dword(setting)
        masks = Memory(shape=INLINE_DWORDS, depth=1 << self._config.channel_bits, init=[])
        m.submodules.masks = masks
        write, old = masks.write_port(), masks.read_port(domain="comb")
        mine = masks.read_port(domain="comb")
        loaded = Signal()
        m.d.comb += [
            loaded.eq(loads),
            self.forgotten.eq(self.forget & ~setting.valid & ~clear.valid),
            old.addr.eq(setting.channel),
            mine.addr.eq(self.channel),
            write.en.eq(Mux(setting.valid, loaded, clear.valid | self.forget)),
            write.addr.eq(
                Mux(
                    setting.valid,
                    setting.channel,
                    Mux(clear.valid, clear.channel, self.channel),
                )
            ),
            write.data.eq(Mux(loaded, old.data | (1 << number), 0)),
        ]
        m.d.sync += self.mask.eq(mine.data)
        return m
