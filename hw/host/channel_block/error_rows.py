"""Rows of the error records: two per channel."""

from amaranth.hdl import Module, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.host.channel_block.error_intake import SOURCES
from signalbox.hw.host.channel_block.records import error_record, error_row
from signalbox.hw.records.channel import channel_event

__all__ = ["ErrorRows"]


class ErrorRows(wiring.Component):
    """Assigns rows to errors. The first error of a channel is shown until it is cleared. The next
    failed copy or task gets the other row, and is shown after that clear. Further failures have no
    record; they only set `more` of the second one.

    Owns, per channel, which rows are in use, and which one is shown.

    Members
    -------
    taken : in, per source, see `ErrorIntake`.
    rows : out, per source, the row of its error, in the same cycle.
    noted : in, strobe: an error is recorded.
    channel : in, `channel_bits` bits: channel of the access.
    cleared : in, strobe: the error shown of `channel` is cleared; the next one, if any, is shown.
    all : in, with `cleared`: both errors are cleared.
    follows : out, combinational, for `cleared`: another error will be shown.
    shown : out, per channel, a record is shown.
    second : out, one cycle after `channel`: number of the row shown, 0 or 1.
    more : out, one cycle after `channel`: another copy or task has failed since the error shown.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        super().__init__({
            "taken": In(data.ArrayLayout(channel_event(config), SOURCES)),
            "rows": Out(data.ArrayLayout(error_row, SOURCES)),
            "noted": In(error_record(config)),
            "channel": In(config.channel_bits),
            "cleared": In(1),
            "all": In(1),
            "follows": Out(1),
            "shown": Out(config.channels),
            "second": Out(1),
            "more": Out(1),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        more, queued, beyond, second = (
            Signal(self._config.channels, name=f"any_{name}")
            for name in ("more", "queued", "beyond", "second")
        )
        """Per channel. `more`: another copy or task has failed since the error shown. `queued`:
        that failure has a record. `beyond`: more have failed since. `second`: number of the row
        shown."""
        for number in range(SOURCES):
            at, row = self.taken[number].channel, self.rows[number]
            # A method refused after an error is held and executed again, so it needs no row. Only
            # a method may be refused while another error is recorded.
            recording = 0 if number else self.noted.valid & (self.noted.channel == at)
            free = ~(row.pending & row.full) if number else ~row.pending
            m.d.comb += [
                row.valid.eq(self.taken[number].valid & free),
                row.pending.eq(self.shown.bit_select(at, 1) | recording),
                row.full.eq(queued.bit_select(at, 1)),
                row.second.eq(second.bit_select(at, 1) ^ row.pending),
            ]
        at, noted = self.noted.channel, self.noted
        with m.If(noted.valid):
            m.d.sync += self.shown.bit_select(at, 1).eq(1)
            with m.If(noted.row.pending & noted.contents.why.asynchronous):
                m.d.sync += [
                    more.bit_select(at, 1).eq(1),
                    queued.bit_select(at, 1).eq(1),
                    beyond.bit_select(at, 1).eq(noted.row.full),
                ]

        def mine(bits: Signal) -> Value:
            return bits.bit_select(self.channel, 1)

        m.d.comb += self.follows.eq(mine(queued) & ~self.all)
        m.d.sync += [self.more.eq(mine(more)), self.second.eq(mine(second))]
        with m.If(self.cleared):
            m.d.sync += [
                mine(self.shown).eq(self.follows),
                mine(second).eq(self.second ^ self.follows),
                mine(more).eq(mine(beyond) & self.follows),
                mine(queued).eq(0),
                mine(beyond).eq(0),
            ]
        return m
