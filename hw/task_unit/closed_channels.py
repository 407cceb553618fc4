"""Disabled channels that may have launched open queues (ASID-26)."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.lib.onehot import lowest_number

__all__ = ["ClosedChannels"]


class ClosedChannels(wiring.Component):
    """Records a channel when it is disabled, and when a queue is opened for a disabled channel,
    whose launch was still in flight.

    Members
    -------
    on : in, per channel: it is enabled.
    opened : in, strobe: a queue of `channel` was opened.
    departed : out, one of the recorded channels; two cycles late.
    forget : in, strobe: `channel` has no open queue.
    none : in, no queue is open.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        channel = data.StructLayout({"valid": 1, "channel": config.channel_bits})
        super().__init__({
            "on": In(config.channels),
            "opened": In(channel),
            "departed": Out(channel),
            "forget": In(channel),
            "none": In(1),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        channels, opened, forget = self._config.channels, self.opened, self.forget
        was = Signal(channels)
        noted = Signal(channels)
        late = Signal(channels)
        known = Signal(channels)
        m.d.comb += [
            late.eq(Mux(opened.valid, 1 << opened.channel, 0) & ~self.on),
            known.eq(Mux(forget.valid, 1 << forget.channel, self.none.replicate(channels))),
        ]
        valid, number = lowest_number(m, noted)
        m.d.sync += [
            was.eq(self.on),
            noted.eq((noted & ~known) | (was & ~self.on) | late),
            self.departed.valid.eq(valid),
            self.departed.channel.eq(number),
        ]
        return m
