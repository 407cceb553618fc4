"""Tallies of each channel: METHODS, COPIES, TASKS and REFERENCE."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.lib.delayed import delayed
from signalbox.hw.records.channel import channel_event

__all__ = ["Tallies"]

_WORDS = data.StructLayout({"METHODS": 32, "COPIES": 32, "TASKS": 32, "REFERENCE": 32})


class Tally(wiring.Component):
    """Stores a 32-bit value per channel; reads 0 from a start to the next write.

    Members
    -------
    write : in, strobe: the number of `channel` becomes `value`.
    started : in, strobe: the number of `channel` is 0 until the next write.
    select : in, `channel_bits` bits: number of a channel.
    stored : out, 32 bits, combinational: its stored number.
    channel : in, `channel_bits` bits: channel of the access.
    blank : out, per channel, no write since the start.
    value : out, 32 bits: number of `channel`, two cycles later.
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


class EventCount(wiring.Component):
    """Counts events, up to one per cycle.

    Owns the events in progress; the counts are those of its `Tally`. The count is read (distributed
    RAM) or forwarded from the previous event, and incremented in the next cycle.

    Members
    -------
    event : in, strobe: an event of `channel`.
    started : in, strobe: the count of `channel` is 0 until the next event is counted.
    channel : in, `channel_bits` bits: channel of the access.
    value : out, 32 bits: count of `channel`, two cycles later.
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
            # `adding` is written in this cycle; after that, the channel is no longer blank.
            first.eq(
                tally.blank.bit_select(event.channel, 1)
                & ~(adding.valid & (adding.channel == event.channel))
            ),
            again.eq(looking.valid & (looking.channel == event.channel)),
            adding.eq(looking),
            count.eq(Mux(again, more, Mux(first, 0, tally.stored))),
        ]
        return m


class Tallies(wiring.Component):
    """Counts and the last reference of each channel, all cleared by a start. Each has a part of its
    own, which owns it.

    Members
    -------
    executed : in, strobe: a method of `channel` was executed.
    ended : in, strobe: a copy of `channel` has ended.
    task_ended : in, strobe: a task of `channel` has ended.
    referenced : in, strobe: `value` of SET_REFERENCE is in memory.
    started : in, strobe: `channel` starts.
    channel : in, `channel_bits` bits: channel of the access.
    words : out, its registers, by name; two cycles later.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        event = channel_event(config)
        super().__init__({
            "executed": In(event),
            "ended": In(event),
            "task_ended": In(event),
            "referenced": In(channel_event(config, value=32)),
            "started": In(1),
            "channel": In(config.channel_bits),
            "words": Out(_WORDS),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        events = {"METHODS": self.executed, "COPIES": self.ended, "TASKS": self.task_ended}
        for name, event in events.items():
            m.submodules[name.lower()] = count = EventCount(self._config)
            m.d.comb += [count.event.eq(event), self.words[name].eq(count.value)]
            self._connect(m, count)
        m.submodules.reference = reference = Tally(self._config)
        m.d.comb += [
            reference.write.eq(delayed(m, self.referenced, "referenced_before")),
            self.words["REFERENCE"].eq(reference.value),
        ]
        self._connect(m, reference)
        return m

    def _connect(self, m: Module, part: EventCount | Tally) -> None:
        m.d.comb += [part.started.eq(self.started), part.channel.eq(self.channel)]
