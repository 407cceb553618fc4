"""Prefetch buffer: one FIFO of beats per channel, all in one RAM (HOST-1)."""

from amaranth.hdl import Cat, Module, Mux, Signal, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from hw.config import Config
from hw.host.context import prefetch_beat

__all__ = ["Prefetch", "channel_event"]


def channel_event(config: Config, **fields: int) -> data.StructLayout:
    """A strobe that concerns one channel: `valid`, `channel` and the given fields."""
    return data.StructLayout({"valid": 1, "channel": config.channel_bits, **fields})


class Prefetch(wiring.Component):
    """Beats that were fetched and not yet taken, per channel in order.

    The head of the selected channel is offered two cycles after `select` moved and, from beat to
    beat of one channel, every cycle. Space is the filler's business: `fill` is always accepted.

    Members
    -------
    fill : one beat for `channel`.
    clear : all beats of `channel` are dropped.
    select : channel whose head is wanted.
    head, head_valid : its oldest beat.
    take : the head leaves; only with `head_valid`.
    occupied : per channel, whether it holds beats.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        self._beat = prefetch_beat(config)
        super().__init__({
            "fill": In(channel_event(config, beat=self._beat)),
            "clear": In(channel_event(config)),
            "select": In(config.channel_bits),
            "head": Out(self._beat),
            "head_valid": Out(1),
            "take": In(1),
            "occupied": Out(config.channels),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, depth = self._config, self._config.prefetch_beats
        pointer = unsigned((depth - 1).bit_length())
        counter = unsigned(depth.bit_length())
        row = data.StructLayout({"pointer": pointer, "channel": config.channel_bits})

        m.submodules.ram = ram = Memory(
            shape=self._beat, depth=depth << config.channel_bits, init=[]
        )
        write, read = ram.write_port(), ram.read_port()
        heads = Signal(data.ArrayLayout(pointer, config.channels))
        tails = Signal(data.ArrayLayout(pointer, config.channels))
        counts = Signal(data.ArrayLayout(counter, config.channels))

        m.d.comb += [
            write.en.eq(self.fill.valid),
            write.data.eq(self.fill.beat),
            self.head.eq(read.data),
        ]
        head, count = heads[self.select], counts[self.select]
        after = Signal(pointer)
        m.d.comb += [
            data.View(row, write.addr).pointer.eq(tails[self.fill.channel]),
            data.View(row, write.addr).channel.eq(self.fill.channel),
            # `take` comes late: what follows is ready for both of its values. The increment
            # is without a carry chain, which takes longer in so few bits.
            after.eq(Cat(bit ^ head[:i].all() for i, bit in enumerate(head))),
            data.View(row, read.addr).pointer.eq(Mux(self.take, after, head)),
            data.View(row, read.addr).channel.eq(self.select),
        ]
        m.d.sync += self.head_valid.eq(Mux(self.take, count > 1, count != 0))
        for channel in range(config.channels):
            filled = self.fill.valid & (self.fill.channel == channel)
            taken = self.take & (self.select == channel)
            m.d.comb += self.occupied[channel].eq(counts[channel] != 0)
            with m.If(filled):
                m.d.sync += tails[channel].eq(tails[channel] + 1)
            with m.If(taken):
                m.d.sync += heads[channel].eq(heads[channel] + 1)
            with m.If(filled != taken):
                m.d.sync += counts[channel].eq(counts[channel] + Mux(filled, 1, -1))
            with m.If(self.clear.valid & (self.clear.channel == channel)):
                m.d.sync += [tails[channel].eq(0), heads[channel].eq(0), counts[channel].eq(0)]
        return m
