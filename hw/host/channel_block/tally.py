"""A number per channel that begins at 0 with each start."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.records.channel import channel_event

__all__ = ["Tally"]


class Tally(wiring.Component):
    """Owns a number per channel. It is 0 until the first write after a start.

    Members
    -------
    write : in, strobe: the number of `channel` becomes `value`.
    started : in, strobe: the number of `channel` is 0 until the next write.
    select : in, a channel.
    stored : out, 32 bits, its stored number, combinational.
    channel : in, channel of the access.
    blank : out, per channel, no write since the start.
    value : out, 32 bits, number of `channel`, two cycles later.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        super().__init__({
            "write": In(channel_event(config, value=32)),
            "started": In(1),
            "select": In(config.channel_bits),
            "stored": Out(32),
            "channel": In(config.channel_bits),
            "blank": Out(config.channels, init=(1 << config.channels) - 1),
            "value": Out(32),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.numbers = numbers = Memory(
            shape=32, depth=1 << self._config.channel_bits, init=[]
        )
        write, read = numbers.write_port(), numbers.read_port()
        stored, nothing = numbers.read_port(domain="comb"), Signal()
        m.d.comb += [
            write.addr.eq(self.write.channel),
            write.data.eq(self.write.value),
            write.en.eq(self.write.valid),
            read.addr.eq(self.channel),
            stored.addr.eq(self.select),
            self.stored.eq(stored.data),
        ]
        m.d.sync += [
            nothing.eq(self.blank.bit_select(self.channel, 1)),
            self.value.eq(Mux(nothing, 0, read.data)),
        ]
        with m.If(self.write.valid):
            m.d.sync += self.blank.bit_select(self.write.channel, 1).eq(0)
        with m.If(self.started):
            m.d.sync += self.blank.bit_select(self.channel, 1).eq(1)
        return m
