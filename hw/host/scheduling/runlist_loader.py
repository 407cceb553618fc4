"""Reads and checks a submitted runlist (HOST-7, spec 3.4)."""

from amaranth.hdl import Module, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from signalbox.hw.config import Config
from signalbox.hw.host.scheduling.runlist_entries import RunlistEntries, read_entry
from signalbox.hw.records.memory import MemoryStatus, ReadPort
from signalbox.hw.records.runlist import group_word, runlist_refused, runlist_submit
from signalbox.hw.runlists import (
    MOST_CHANNELS,
    ChannelEntry,
    GroupEntry,
    RunlistError,
)

__all__ = ["RunlistLoader", "runlist_contents", "word_write"]

_BURST = 64
"""Bytes per burst, aligned, so that none crosses a 4 KiB boundary."""


def runlist_contents(config: Config) -> data.StructLayout:
    """A list that was read. `groups`: number of its TSGs, which are in words 0 … `groups` - 1.
    `start`: word of the first turn. `channels`: mask of all channels in the list."""
    return data.StructLayout({
        "groups": range(config.runlist_entries + 1),
        "start": config.runlist_bits,
        "channels": config.channels,
    })


def word_write(config: Config) -> data.StructLayout:
    """Strobe: word `at` of the list that is being read."""
    return data.StructLayout({
        "valid": 1,
        "at": config.runlist_bits,
        "word": group_word(config),
    })


class RunlistLoader(wiring.Component):
    """Reads a list from memory and writes a word per TSG, in the order of the list. Two cycles per
    entry, and a read of memory per four entries. It stops at the first bad entry.

    Members
    -------
    submit : in, strobe: a list is submitted. It is refused while another is being read; if both are
        refused in the same cycle, the other list's error is reported. A list already offered is
        withdrawn, unless it is accepted in this cycle; it stays withdrawn if the new one is bad.
    refused : out, strobe, registered.
    pending : out, from the cycle after `submit` on: a list is being read, or is offered.
    read : out, memory port, physical addresses.
    write : out, strobe, registered.
    list : out, stream, which may withdraw an offer (`submit`); nothing is written during an offer.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        super().__init__({
            "submit": In(runlist_submit),
            "refused": Out(runlist_refused),
            "pending": Out(1),
            "read": Out(ReadPort(config)),
            "write": Out(word_write(config)),
            "list": Out(stream.Signature(runlist_contents(config))),
        })
        self._order = Signal(runlist_submit, name="order")
        self._index = Signal(16, name="index")
        self._left = Signal(range(MOST_CHANNELS + 1), name="left")
        """Channels that the TSG still lacks."""
        self._started = Signal(name="started")
        """A header of a TSG was found at OFFSET."""
        self._entry = Signal(read_entry, name="entry")
        self._error = Signal(RunlistError, name="error")

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.entries = entries = RunlistEntries(self._config)
        connect(m, flipped(self.read.beat), entries.beat)
        request, order, index, entry = self.read.request, self._order, self._index, self._entry
        last_entry = Signal()
        m.d.comb += [
            request.p.va.eq((order.page << 12) + (index[2:] << 6)),
            request.p.beats.eq(_BURST // self._config.beat_bytes - 1),
            request.p.physical.eq(1),
            last_entry.eq(index + 1 == order.length),
        ]
        m.d.sync += [self.refused.valid.eq(0), self.write.valid.eq(0)]
        # Another refusal in the same cycle takes precedence.
        with m.If(self.submit.valid & self.pending & ~self.list.valid):
            self._refuse(m, RunlistError.PENDING, 0)
        with m.FSM() as fsm:
            with m.State("IDLE"):
                self._begin(m)
            with m.State("READ"):
                m.d.comb += request.valid.eq(1)
                with m.If(request.ready):
                    m.next = "TAKE"
            with m.State("TAKE"):
                m.d.comb += entries.entry.ready.eq(1)
                m.d.sync += entry.eq(entries.entry.p)
                with m.If(entries.entry.valid):
                    m.next = "CHECK"
            with m.State("CHECK"):
                error = self._check(m)
                m.d.sync += self._error.eq(error)
                with m.If((error != RunlistError.NONE) | last_entry):
                    m.next = "DRAIN"
                with m.Elif(entry.last):
                    m.next = "READ"
                with m.Else():
                    m.next = "TAKE"
                with m.If(error == RunlistError.NONE):
                    m.d.sync += index.eq(index + 1)
                    self._add(m)
            with m.State("DRAIN"):
                m.d.comb += entries.entry.ready.eq(~entry.last)
                with m.If(entries.entry.valid & ~entry.last):
                    m.d.sync += entry.last.eq(entries.entry.p.last)
                with m.If(entry.last):
                    m.next = "END"
            with m.State("END"):
                m.next = "IDLE"
                with m.If(self._end(m)):
                    m.next = "OFFER"
            with m.State("OFFER"):
                m.d.comb += self.list.valid.eq(1)
                with m.If(self.list.ready):
                    m.next = "IDLE"
                self._begin(m)
        m.d.comb += self.pending.eq(~fsm.ongoing("IDLE"))
        return m

    def _begin(self, m: Module) -> None:
        """Begin with the list that is submitted, if any."""
        empty = self.submit.length == 0
        with m.If(self.submit.valid):
            m.d.sync += [
                self._order.eq(self.submit),
                self._index.eq(0),
                self._left.eq(0),
                self._started.eq(empty & (self.submit.offset == 0)),
                self._error.eq(RunlistError.NONE),
                self.list.p.eq(0),
            ]
            m.next = "READ"
            with m.If(empty):
                m.next = "END"

    def _check(self, m: Module) -> Value:
        """Error of the entry, if any."""
        header = data.View(GroupEntry, self._entry.entry)
        channel = data.View(ChannelEntry, self._entry.entry)
        inside, full = self._left != 0, self.list.p.groups == self._config.runlist_entries
        error = Signal(RunlistError)
        with m.If(self._entry.status != MemoryStatus.OK):
            m.d.comb += error.eq(RunlistError.MEMORY)
        with m.Elif(header.kind):
            reasons = {
                RunlistError.EXPECTED_CHID: inside,
                RunlistError.ZERO_LENGTH: header.length == 0,
                RunlistError.MAX_EXCEEDED: header.length > MOST_CHANNELS,
                RunlistError.ROOM: full,
            }
            self._first(m, error, reasons)
        with m.Else():
            reasons = {
                RunlistError.EXPECTED_TSG: ~inside,
                RunlistError.INVALID_RUNQUEUE: channel.runqueue,
                RunlistError.CHANNEL: channel.chid >= self._config.channels,
            }
            self._first(m, error, reasons)
        return error

    def _first(self, m: Module, error: Signal, reasons: dict[RunlistError, Value]) -> None:
        for reason, applies in reversed(reasons.items()):
            with m.If(applies):
                m.d.comb += error.eq(reason)

    def _add(self, m: Module) -> None:
        """The entry is good: it begins a word, or adds a channel to it."""
        header = data.View(GroupEntry, self._entry.entry)
        channel = data.View(ChannelEntry, self._entry.entry)
        word, contents = self.write.word, self.list.p
        bit = 1 << channel.chid[: self._config.channel_bits]
        with m.If(header.kind):
            m.d.sync += [
                self._left.eq(header.length),
                word.channels.eq(0),
                [word[name].eq(header[name]) for name in ("tsgid", "timeout", "scale")],
            ]
            with m.If(self._index == self._order.offset):
                m.d.sync += [self._started.eq(1), contents.start.eq(contents.groups)]
        with m.Else():
            m.d.sync += [
                self._left.eq(self._left - 1),
                word.channels.eq(word.channels | bit),
                contents.channels.eq(contents.channels | bit),
            ]
            with m.If(self._left == 1):
                m.d.sync += [
                    self.write.valid.eq(1),
                    self.write.at.eq(contents.groups),
                    contents.groups.eq(contents.groups + 1),
                ]

    def _end(self, m: Module) -> Value:
        """Returns whether the list is good, and refuses a bad one."""
        good = Signal()
        with m.If(self._error != RunlistError.NONE):
            self._refuse(m, self._error, self._index)
        with m.Elif(self._left != 0):
            self._refuse(m, RunlistError.OVERFLOW, self._index)
        with m.Elif(~self._started):
            self._refuse(m, RunlistError.EXPECTED_TSG, self._order.offset)
        with m.Else():
            m.d.comb += good.eq(1)
        return good

    def _refuse(self, m: Module, error: Value | RunlistError, entry: Value | int) -> None:
        m.d.sync += [
            self.refused.valid.eq(1),
            self.refused.error.eq(error),
            self.refused.entry.eq(entry),
        ]
