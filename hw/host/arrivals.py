"""Order in which commands were received: a stamp per channel (COPY-5)."""

from amaranth.hdl import Module, Mux, Signal, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from hw.config import Config
from hw.host.context import INDEX_BITS
from hw.host.oldest import STAMP_BITS
from hw.host.prefetch import channel_event

__all__ = ["RECORDS", "Arrivals"]

RECORDS = 4
"""Doorbells per channel that are told apart; later ones join the last."""

OLDEST = 15 << (STAMP_BITS - 5)
"""Doorbells after which a command gets no older."""


class Arrivals(wiring.Component):
    """Keeps, per channel, which doorbell announced which ring entries.

    A record says: entries up to `put` were received at `stamp`. The oldest record's stamp is the
    channel's; the record goes when its last entry is finished, one cycle later the next one counts.
    When a channel's last record goes its stamp stays, which is that of its last command.

    A stamp older than half the range is moved up to half the range by a scrubber that visits one
    channel per cycle, so that circular comparison never goes wrong.

    Members
    -------
    now : count of doorbells, the stamp that a doorbell gets.
    clear : the channel's records are dropped.
    announce : entries up to `put` were received at `stamp`.
    finish : the entry after which GP_GET is `get` was executed. Not in two successive cycles for
        one channel.
    stamps : per channel, arrival of its head command.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        super().__init__({
            "now": In(STAMP_BITS),
            "clear": In(channel_event(config)),
            "announce": In(channel_event(config, put=INDEX_BITS, stamp=STAMP_BITS)),
            "finish": In(channel_event(config, get=INDEX_BITS)),
            "stamps": Out(data.ArrayLayout(STAMP_BITS, config.channels)),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        record = data.StructLayout({"put": INDEX_BITS, "stamp": STAMP_BITS})
        row = data.StructLayout({"slot": range(RECORDS), "channel": config.channel_bits})
        m.submodules.records = ram = Memory(
            shape=record, depth=RECORDS << config.channel_bits, init=[]
        )
        write, read = ram.write_port(), ram.read_port(domain="comb")

        counts = Signal(data.ArrayLayout(unsigned(3), config.channels))
        # Slot of the record behind the head's.
        seconds = Signal(data.ArrayLayout(range(RECORDS), config.channels))
        puts = Signal(data.ArrayLayout(INDEX_BITS, config.channels))
        scrubbed = Signal(range(config.channels))

        # A fifth doorbell widens the fourth record: same slot, later put, the earlier stamp.
        arriving = self.announce.channel
        count, full = Signal(3), Signal()
        last_stamp = Signal(data.ArrayLayout(STAMP_BITS, config.channels))
        m.d.comb += [
            count.eq(counts[arriving]),
            full.eq(count == RECORDS),
            data.View(row, write.addr).channel.eq(arriving),
            data.View(row, write.addr).slot.eq(
                seconds[arriving] + Mux(full, RECORDS - 2, count + (RECORDS - 1))
            ),
            write.en.eq(self.announce.valid),
            write.data.put.eq(self.announce.put),
            write.data.stamp.eq(self.announce.stamp),
        ]
        with m.If(full):
            m.d.comb += write.data.stamp.eq(last_stamp[arriving])
        with m.If(self.announce.valid):
            m.d.sync += last_stamp[arriving].eq(write.data.stamp)

        m.d.comb += [
            data.View(row, read.addr).channel.eq(self.finish.channel),
            data.View(row, read.addr).slot.eq(seconds[self.finish.channel]),
        ]
        m.d.sync += scrubbed.eq(scrubbed + 1)
        with m.If(scrubbed == config.channels - 1):
            m.d.sync += scrubbed.eq(0)
        age, old = Signal(STAMP_BITS), Signal()
        m.d.comb += [
            age.eq(self.now - self.stamps[scrubbed]),
            # By less than half of the range: more doorbells may come before its next turn.
            old.eq(age[-1] | age[-5:-1].all()),
        ]

        for channel in range(config.channels):
            announced = Signal(name=f"announced_{channel}")
            popped = Signal(name=f"popped_{channel}")
            m.d.comb += [
                announced.eq(self.announce.valid & (arriving == channel)),
                popped.eq(
                    self.finish.valid
                    & (self.finish.channel == channel)
                    & (puts[channel] == self.finish.get)
                    & (counts[channel] != 0)
                ),
            ]
            with m.If(old & (scrubbed == channel)):
                m.d.sync += self.stamps[channel].eq(self.now - (OLDEST - 1))
            # The head record's put and stamp are registers; the RAM holds what follows.
            becomes_head = announced & ((counts[channel] == 0) | ((counts[channel] == 1) & popped))
            with m.If(becomes_head):
                m.d.sync += [
                    puts[channel].eq(self.announce.put),
                    self.stamps[channel].eq(self.announce.stamp),
                ]
            with m.Elif(popped & (counts[channel] > 1)):
                m.d.sync += [
                    puts[channel].eq(read.data.put),
                    self.stamps[channel].eq(read.data.stamp),
                ]
            m.d.sync += [
                seconds[channel].eq(seconds[channel] + popped),
                counts[channel].eq(counts[channel] + (announced & ~full) - popped),
            ]
            with m.If(self.clear.valid & (self.clear.channel == channel)):
                m.d.sync += [counts[channel].eq(0), seconds[channel].eq(0)]
        return m
