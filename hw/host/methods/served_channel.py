"""The served channel's bit of every per-channel state."""

from amaranth.hdl import Module
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.host.copy_launcher import EngineStatus

__all__ = ["ServedChannel", "channel_status"]

channel_status = data.StructLayout({
    "copying": 1,
    "able": 1,
    "queue": 1,
    "tasks": 1,
    "ended": 1,
    "over": 1,
})
"""State of one channel outside the method pipeline. `copying`, `able`, `queue`: see `EngineStatus`.
`tasks`: it has outstanding tasks. `ended`: the result of its semaphore operation in memory is
available. `over`: its wait for an invalidation, a compute method or WFI is over."""


class ServedChannel(wiring.Component):
    """Selects the bits of one channel, and registers them for timing.

    The registered bits are one cycle old, but include the effect of the channel's own strobes. They
    are valid from the first cycle of a service on. Their age does no harm: a condition that lets
    the channel continue ends only by an action of the channel itself.

    Members
    -------
    channel : in, `channel_bits` bits: number of the served channel.
    engines, tasks, ended, over : in, per channel, see `channel_status`.
    launched : in, strobe: the channel starts a copy.
    collected : in, strobe: the channel takes the result of its semaphore operation in memory.
    dropped : in, strobe: the channel's wait ends.
    now : out, `channel_status` in this cycle, combinational.
    known : out, `channel_status` of the previous cycle, registered.
    """

    def __init__(self, config: Config) -> None:
        super().__init__({
            "channel": In(config.channel_bits),
            "engines": In(EngineStatus(config)),
            "tasks": In(config.channels),
            "ended": In(config.channels),
            "over": In(config.channels),
            "launched": In(1),
            "collected": In(1),
            "dropped": In(1),
            "now": Out(channel_status),
            "known": Out(channel_status),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        now, engines = self.now, self.engines
        sources = {
            "copying": engines.copying,
            "able": engines.able,
            "queue": engines.queue,
            "tasks": self.tasks,
            "ended": self.ended,
            "over": self.over,
        }
        for name, bits in sources.items():
            m.d.comb += now[name].eq(bits.bit_select(self.channel, 1))
        m.d.sync += [
            self.known.eq(now),
            self.known.copying.eq(now.copying | self.launched),
            self.known.queue.eq(now.queue & ~self.launched),
            self.known.ended.eq(now.ended & ~self.collected),
            self.known.over.eq(now.over & ~self.dropped),
        ]
        return m
