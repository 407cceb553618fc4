"""Settings of each channel, stored until an action method uses them (HOST-9, HOST-14)."""

from collections.abc import Mapping

from amaranth.hdl import Module, Mux, Value
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.front_end.host_port import compute_setting
from signalbox.hw.methods import ComputeMethod

__all__ = ["KeptSettings"]


class KeptSettings(wiring.Component):
    """Stores settings of all channels: a RAM per setting, with a word per channel.

    Parameters
    ----------
    widths : methods whose data are stored, and the number of low bits stored of each.

    Members
    -------
    setting : in, strobe: a method that sets state, see `ComputePort`.
    clear : in, strobe: `channel` starts with all settings cleared.
    channel : in, `channel_bits` bits: number of a channel.
    values : out, its settings by name of the method, as wide as in `widths`; one cycle later.
    """

    def __init__(self, config: Config, widths: Mapping[ComputeMethod, int]) -> None:
        self._config, self._widths = config, widths
        channel = {"valid": 1, "channel": config.channel_bits}
        super().__init__({
            "setting": In(compute_setting(config)),
            "clear": In(data.StructLayout(channel)),
            "channel": In(config.channel_bits),
            "values": Out(
                data.StructLayout({method.name: width for method, width in widths.items()})
            ),
        })

    def __getitem__(self, method: ComputeMethod) -> Value:
        """Value of one setting."""
        return self.values[method.name]

    def elaborate(self, platform: object) -> Module:
        m = Module()
        setting, clear = self.setting, self.clear
        for method, width in self._widths.items():
            ram = Memory(shape=width, depth=1 << self._config.channel_bits, init=[])
            m.submodules[method.name.lower()] = ram
            write, read = ram.write_port(), ram.read_port()
            m.d.comb += [
                read.addr.eq(self.channel),
                self.values[method.name].eq(read.data),
                write.addr.eq(Mux(clear.valid, clear.channel, setting.channel)),
                write.data.eq(Mux(clear.valid, 0, setting.data)),
                write.en.eq(clear.valid | (setting.valid & (setting.address == method >> 2))),
            ]
        return m
