"""Stored settings of each channel."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.host.channel_settings import setting_event
from signalbox.hw.registers import CHANNEL, Access, channel_word

__all__ = ["StoredSettings"]

_DISTRIBUTED_ROWS = 128
"""Up to this number of rows (8 channels), settings are in distributed RAM; above, in block RAM."""


class StoredSettings(wiring.Component):
    """Owns the last value written to every setting, for reads, and announces writes.

    Members
    -------
    channel : in, `channel_bits` bits: channel of the access.
    word : in, 6 bits: its register.
    data : in, 32 bits: value to be written.
    store : in, strobe: a setting is written; `channel` and `word` have been stable for a cycle and
        stay so for another.
    setting : out, strobe, one cycle after `store`: the setting is written in this cycle.
    value : out, 32 bits: the stored value, three cycles after `channel` and `word`.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        super().__init__({
            "channel": In(config.channel_bits),
            "word": In(6),
            "data": In(32),
            "store": In(1),
            "setting": Out(setting_event(config)),
            "value": Out(32),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        # A row is read long after it was written, so no logic is needed for simultaneous accesses.
        # Few rows are faster outside block RAM.
        rows = 16 << self._config.channel_bits
        style = "distributed" if rows <= _DISTRIBUTED_ROWS else "block"
        m.submodules.ram = ram = Memory(
            shape=32, depth=rows, init=[], attrs={"no_rw_check": 1, "ram_style": style}
        )
        write, read = ram.write_port(), ram.read_port()
        mask = Signal(32)
        setting = self.setting
        with m.Switch(self.word):
            for register in CHANNEL:
                if register.access is Access.RW:
                    with m.Case(channel_word(register.name)):
                        m.d.comb += mask.eq(register.stored(self._config))
        m.d.comb += [
            write.addr.eq(Cat(self.word[:4], self.channel)),
            write.data.eq(setting.value),
            write.en.eq(setting.valid),
            read.addr.eq(write.addr),
            setting.channel.eq(self.channel),
            setting.word.eq(self.word),
        ]
        # Two registers: the first is placed next to the block RAM, as its output is slow.
        near = Signal(32)
        m.d.sync += [
            setting.valid.eq(self.store),
            setting.value.eq(self.data & mask),
            near.eq(read.data),
            self.value.eq(near),
        ]
        return m
