"""Order of arrival of commands: a stamp per channel (COPY-5)."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.host.fetch.aging import Aging
from signalbox.hw.host.oldest_first import STAMP_BITS
from signalbox.hw.host.ports import ArrivalOrder, ChannelStart, EntryEvents
from signalbox.hw.host.records import INDEX_BITS
from signalbox.hw.records.channel import channel_event

__all__ = ["RECORDS", "Announcements", "Arrivals"]

RECORDS = 4
"""Doorbells told apart per channel; later ones join the last."""


class Announcements(wiring.Signature):
    """Doorbells, seen from the fetch unit.

    Members
    -------
    now : out, `STAMP_BITS` bits: count of doorbells; the stamp given to a doorbell.
    announce : out, strobe: `channel`'s entries up to `put` were received at `stamp`. Not in two
        successive cycles.
    """

    def __init__(self, config: Config) -> None:
        super().__init__({
            "now": Out(STAMP_BITS),
            "announce": Out(channel_event(config, put=INDEX_BITS, stamp=STAMP_BITS)),
        })


class Arrivals(wiring.Component):
    """Tracks, per channel, the doorbells that announced its ring entries.

    A record says that entries up to `put` were received at `stamp`. The stamp of a channel is that
    of its oldest record. A record is removed when its last entry is finished; the stamp of the next
    one counts two cycles later. A channel without records keeps the stamp of its last command.

    Old stamps are moved forward (`hw.host.fetch.aging`): stamps of the channels in every cycle,
    stamps of the records behind them one per cycle.

    Members
    -------
    doorbells : in, announced entries.
    start : in, starts of channels. The channel's records are dropped, including one announced in
        this cycle.
    entries : in, executed entries (`finished`).
    order : out, arrival of each channel's head command.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        super().__init__({
            "doorbells": In(Announcements(config)),
            "start": In(ChannelStart(config)),
            "entries": In(EntryEvents(config)),
            "order": Out(ArrivalOrder(config)),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        channels = self._config.channels
        slot = range(RECORDS)
        self._aging = Aging(m, self.doorbells.now)
        # Number of records per channel, including the head; slot of the record behind the head.
        self._counts = Signal(data.ArrayLayout(range(RECORDS + 1), channels))
        self._seconds = Signal(data.ArrayLayout(slot, channels))
        # `put` of the heads; the RAMs hold the records behind them.
        self._puts = Signal(data.ArrayLayout(INDEX_BITS, channels))
        # `finished` of the previous cycle has ended the head record.
        self._ends = Signal(channels)
        self._storage(m)
        for channel in range(channels):
            self._head(m, channel)
        return m

    def _storage(self, m: Module) -> None:
        """Records behind the heads: `put` and stamp in two RAMs. A fifth doorbell joins the fourth
        record: it replaces `put` and leaves the stamp."""
        bits = self._config.channel_bits
        rows = RECORDS << bits
        m.submodules.puts = puts = Memory(shape=INDEX_BITS, depth=rows, init=[])
        m.submodules.stamps = stamps = Memory(shape=STAMP_BITS, depth=rows, init=[])
        put_write, self._stamp_write = puts.write_port(), stamps.write_port()
        put_read = puts.read_port(transparent_for=[put_write])
        stamp_read = stamps.read_port(transparent_for=[self._stamp_write])
        self._aged = stamps.read_port()
        self._next_put, self._next_stamp = put_read.data, stamp_read.data

        finished, arriving = self.entries.finished.channel, self.doorbells.announce.channel
        count, full = self._counts[arriving], Signal()
        # One cycle later: channel of the announcement, one-hot (`_arrived`); the announcement
        # (`_late`); the slot of its record, which the end of the head record does not change.
        self._arrived = Signal(self._config.channels)
        self._late = Signal.like(self.doorbells.announce)
        self._slot = Signal(range(RECORDS))
        self._joins = Signal()
        m.d.comb += full.eq(count == RECORDS)
        m.d.sync += [
            self._late.eq(self.doorbells.announce),
            self._joins.eq(full),
            self._slot.eq(self._seconds[arriving] + Mux(full, RECORDS - 2, count + (RECORDS - 1))),
        ]
        m.d.comb += [
            put_write.addr.eq(Cat(self._slot, self._late.channel)),
            put_write.data.eq(self._late.put),
            put_write.en.eq(self._late.valid),
            put_read.addr.eq(Cat(self._seconds[finished], finished)),
            stamp_read.addr.eq(put_read.addr),
        ]
        self._age(m, rows, put_write.addr)

    def _age(self, m: Module, rows: int, record: Value) -> None:
        """Checks one row per cycle, and rewrites it in the next cycle if it is stale. If a record
        is written in that cycle, the row is checked again."""
        row = Signal(range(rows))
        looked = Signal(range(rows))
        valid = Signal()
        write, announcing = self._stamp_write, self._late.valid
        m.d.sync += [looked.eq(row), valid.eq(~announcing)]
        m.d.sync += row.eq(Mux(announcing, looked, row + 1))
        m.d.comb += self._aged.addr.eq(row)
        with m.If(announcing):
            m.d.comb += [
                write.addr.eq(record),
                write.data.eq(self._late.stamp),
                write.en.eq(~self._joins),
            ]
        with m.Else():
            m.d.comb += [
                write.addr.eq(looked),
                write.data.eq(self._aging.floor),
                write.en.eq(valid & self._aging.stale(self._aged.data)),
            ]

    def _head(self, m: Module, channel: int) -> None:
        """The channel's head record."""
        put, stamp, count = self._puts[channel], self.order.stamps[channel], self._counts[channel]
        second, ends = self._seconds[channel], self._ends[channel]
        finish, announce = self.entries.finished, self.doorbells.announce
        finished = finish.valid & (finish.channel == channel)
        cleared = self.start.cleared.valid & (self.start.cleared.channel == channel)
        announced = self._arrived[channel]
        m.d.sync += [
            announced.eq(announce.valid & (announce.channel == channel)),
            ends.eq(finished & (put == finish.get) & (count != 0) & ~cleared),
            second.eq(second + ends),
            count.eq(count + (announced & ~self._joins) - ends),
        ]
        self._aging.keep(m, stamp)
        with m.If(announced & ((count == 0) | ((count == 1) & ends))):
            m.d.sync += [put.eq(self._late.put), stamp.eq(self._late.stamp)]
        with m.Elif(ends & (count != 1)):
            m.d.sync += [put.eq(self._next_put), stamp.eq(self._next_stamp)]
        with m.If(cleared):
            m.d.sync += [count.eq(0), announced.eq(0)]
