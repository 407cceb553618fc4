"""Local copies of channel registers: each unit keeps those that it reads in its own RAMs."""

from amaranth.hdl import Module
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import Out

from signalbox.hw.config import Config
from signalbox.hw.records.channel import channel_event
from signalbox.hw.registers import channel_word

__all__ = ["ChannelControl", "setting_event", "setting_ram"]


def setting_event(config: Config) -> data.StructLayout:
    """Strobe: `value` was written to word `word` of the channel block of `channel`."""
    return channel_event(config, word=6, value=32)


class ChannelControl(wiring.Signature):
    """Control of the channels, seen from the channel registers.

    Members
    -------
    setting : out, strobe: register `word` of `channel` was written with `value`, one cycle after
        the write took effect.
    enabled : out, per channel: CONTROL.ENABLE.
    halted : out, per channel: halted by an error.
    """

    def __init__(self, config: Config) -> None:
        super().__init__({
            "setting": Out(setting_event(config)),
            "enabled": Out(config.channels),
            "halted": Out(config.channels),
        })


def setting_ram(m: Module, config: Config, setting: data.View, *registers: str) -> list:
    """Adds a RAM per named register to `m`, with a word per channel, updated by `setting`, a
    `setting_event`. Returns the read ports: channel number in, 32 bits out one cycle later.
    """
    ports = []
    for name in registers:
        ram = Memory(shape=32, depth=1 << config.channel_bits, init=[])
        m.submodules[f"setting_{name.lower()}"] = ram
        write = ram.write_port()
        m.d.comb += [
            write.addr.eq(setting.channel),
            write.data.eq(setting.value),
            write.en.eq(setting.valid & (setting.word == channel_word(name))),
        ]
        ports.append(ram.read_port())
    return ports
