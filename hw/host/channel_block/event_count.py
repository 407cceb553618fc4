"""Number of events of each channel since its start."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.host.channel_block.tally import Tally
from signalbox.hw.lib.delayed import delayed
from signalbox.hw.records.channel import channel_event

__all__ = ["EventCount"]


class EventCount(wiring.Component):
    """Counts events, up to one per cycle.

    Owns the events in progress; the counts are those of its `Tally`. First the count is read
    (distributed RAM) or forwarded from the previous event, in the next cycle it is incremented.

    Members
    -------
    event : in, strobe: an event of `channel`.
    started : in, strobe: the count of `channel` is 0 until the next event is counted.
    channel : in, channel of the access.
    value : out, 32 bits, count of `channel`, two cycles later.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        super().__init__({
            "event": In(channel_event(config)),
            "started": In(1),
            "channel": In(config.channel_bits),
            "value": Out(32),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.tally = tally = Tally(self._config)
        event = delayed(m, self.event, "event_before")
        looking, adding = (
            Signal(channel_event(self._config), name=name) for name in ("looking", "adding")
        )
        first = Signal()
        again = Signal()
        count = Signal(32)
        more = Signal(32)
        m.d.comb += [
            more.eq(count + 1),
            tally.select.eq(looking.channel),
            tally.write.valid.eq(adding.valid),
            tally.write.channel.eq(adding.channel),
            tally.write.value.eq(more),
            tally.started.eq(self.started),
            tally.channel.eq(self.channel),
            self.value.eq(tally.value),
        ]
        m.d.sync += [
            looking.eq(event),
            # The event before the previous one may be the first, and is being counted.
            first.eq(
                tally.blank.bit_select(event.channel, 1)
                & ~(adding.valid & (adding.channel == event.channel))
            ),
            again.eq(looking.valid & (looking.channel == event.channel)),
            adding.eq(looking),
            count.eq(Mux(again, more, Mux(first, 0, tally.stored))),
        ]
        return m
