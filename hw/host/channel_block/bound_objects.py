"""Objects of each channel, as SET_OBJECT has bound them (HOST-13)."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.host.records import object_bound
from signalbox.hw.methods import ENGINE_SUBCHANNELS, OBJECT_BITS
from signalbox.hw.registers import OBJECTS

__all__ = ["BoundObjects"]

_WORDS = data.StructLayout(dict.fromkeys(OBJECTS, 32))


class BoundObjects(wiring.Component):
    """Owns, per channel and subchannel, the data of the last SET_OBJECT; 0 until the first one
    after a start.

    Members
    -------
    bound : in, strobe: SET_OBJECT with `data` was executed.
    started : in, strobe: `channel` starts.
    channel : in, `channel_bits` bits: channel of the access.
    words : out, its registers, by name; two cycles later.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        super().__init__({
            "bound": In(object_bound(config)),
            "started": In(1),
            "channel": In(config.channel_bits),
            "words": Out(_WORDS),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, bound = self._config, self.bound
        row = data.ArrayLayout(OBJECT_BITS, ENGINE_SUBCHANNELS)
        m.submodules.rows = rows = Memory(shape=row, depth=1 << config.channel_bits, init=[])
        write, read = rows.write_port(granularity=1), rows.read_port()
        blank = Signal(config.channels, init=(1 << config.channels) - 1)
        nothing = Signal()
        # The first SET_OBJECT after a start clears the other subchannels.
        clears = blank.bit_select(bound.channel, 1)
        m.d.comb += [write.addr.eq(bound.channel), read.addr.eq(self.channel)]
        m.d.sync += nothing.eq(blank.bit_select(self.channel, 1))
        for number, name in enumerate(OBJECTS):
            mine = bound.subchannel == number
            m.d.comb += [
                write.data[number].eq(Mux(mine, bound.data, 0)),
                write.en[number].eq(bound.valid & (mine | clears)),
            ]
            m.d.sync += self.words[name].eq(Mux(nothing, 0, read.data[number]))
        with m.If(bound.valid):
            m.d.sync += blank.bit_select(bound.channel, 1).eq(0)
        with m.If(self.started):
            m.d.sync += blank.bit_select(self.channel, 1).eq(1)
        return m
