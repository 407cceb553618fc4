"""Pending fetch work of every channel, and outstanding reads (HOST-1)."""

from functools import reduce
from operator import or_

from amaranth.hdl import Cat, Module, Signal, Value, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.host.fetch.aging import Aging
from signalbox.hw.host.oldest_first import STAMP_BITS
from signalbox.hw.records.channel import channel_event

__all__ = ["ENTRIES_AHEAD", "OUTSTANDING", "Backlog"]

ENTRIES_AHEAD = 4
"""Ring entries per channel read ahead of the segment being fetched."""

OUTSTANDING = 16
"""Limit of reads in flight, of all channels together."""

_VISIT = ("seen", "over", "again")
_STEPS = ("report", "accept", "ask", "open", "claim", "reserve")
_LOOKS = ("report", "accept", "ask", "open", "claim", "room", "sync", "drop", "rest")


def _at(event: data.View, channel: int) -> Value:
    return event.valid & (event.channel == channel)


class Backlog(wiring.Component):
    """Flags and counters of the fetch work of every channel. A channel requests a visit of the
    fetch unit when its state changes.

    Members
    -------
    enabled : in, per channel: CONTROL.ENABLE. Doorbells of a disabled channel are dropped, and it
        takes no steps.
    clear : in, strobe: `channel` starts; it is not being visited.
    doorbell : in, stream of rung channels; always ready.
    now : out, `STAMP_BITS` bits: count of doorbells.
    put : in, strobe: GP_PUT has arrived.
    entry : in, strobe: a ring entry has arrived.
    answered : in, strobe: the last beat of any read has arrived.
    popped : in, strobe: a beat has left the prefetch buffer.
    drained : in, per channel, everything fetched was executed.
    dropping : in, per channel, the rest of a bad segment is being dropped.
    unwritten : in, strobe: a write to USERD has failed.
    visited : in, per channel, one-hot: the channel of `can`, `stamp` and `step`.
    can : out, combinational, conditions of the visited channel, up to date two cycles after a step.
        `report`: a failed write is to be reported. `accept`: a GP_PUT has arrived. `ask`: a
        doorbell has announced a GP_PUT; not in the visit after `accept`, so that a channel rung in
        every visit still fetches. `open`: an entry has arrived. `claim`: there is space for
        another entry. `room`: there is space for a burst. `sync`: everything fetched was executed.
        `drop`, `rest`: the channel is `dropping`, or `resting`.
    stamp : out, `STAMP_BITS` bits, combinational: stamp of the doorbell that announced the GP_PUT
        last asked for.
    step : in, strobes. `seen`: the visit samples `can`. `over`: it ends. `again`: it requests
        another visit. `report`, `accept`, `ask`, `open`, `claim`: it takes the step of this name in
        `can`. `reserve`: it takes space for `beats` beats in the prefetch buffer.
    wanting : out, per channel, requests a visit.
    resting : out, per channel, no outstanding reads; up to date two cycles after a step.
    busy : out, per channel, fetch work is pending, in flight or waiting in the prefetch buffer; 1
        without gaps until all of it is done.
    """

    def __init__(self, config: Config, burst: int) -> None:
        self._config = config
        self._most = config.prefetch_beats - burst
        event, channels = channel_event(config), config.channels
        channel = data.StructLayout({"channel": config.channel_bits})
        super().__init__({
            "enabled": In(channels),
            "clear": In(event),
            "doorbell": In(stream.Signature(channel)),
            "now": Out(STAMP_BITS),
            "put": In(event),
            "entry": In(event),
            "answered": In(event),
            "popped": In(event),
            "drained": In(channels),
            "dropping": In(channels),
            "unwritten": In(event),
            "visited": In(channels),
            "can": Out(data.StructLayout(dict.fromkeys(_LOOKS, 1))),
            "stamp": Out(STAMP_BITS),
            "step": In(data.StructLayout({**dict.fromkeys((*_VISIT, *_STEPS), 1), "beats": 4})),
            "wanting": Out(channels),
            "resting": Out(channels),
            "busy": Out(channels),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        self._aging = Aging(m, self.now)
        # Strobes of the previous cycle, one-hot, as they come late in their cycle.
        mask = range(self._config.channels)
        self._popped = Signal(len(mask))
        self._answered = Signal(len(mask))
        self._reserved = Signal(len(mask))
        self._asked = Signal(len(mask))
        self._beats = Signal(4)
        self._over = Signal()
        step = self.step
        m.d.sync += [
            self._popped.eq(Cat(_at(self.popped, channel) for channel in mask)),
            self._answered.eq(Cat(_at(self.answered, channel) for channel in mask)),
            self._reserved.eq(self.visited & step.reserve.replicate(len(mask))),
            self._asked.eq(
                self.visited & (step.ask | step.claim | step.reserve).replicate(len(mask))
            ),
            self._beats.eq(step.beats),
            self._over.eq(step.over),
        ]
        m.d.comb += self.doorbell.ready.eq(1)
        with m.If(self.doorbell.valid):
            m.d.sync += self.now.eq(self.now + 1)
        channels = self._config.channels
        names = ("work", "looked", "rung", "asking", "fresh", "heard", "failed", "room", "quiet")
        self._flags = {name: Signal(channels, name=name) for name in names}
        counter = unsigned(self._config.prefetch_beats.bit_length())
        self._credits = Signal(data.ArrayLayout(counter, channels))
        self._claimed = Signal(data.ArrayLayout(range(ENTRIES_AHEAD + 1), channels))
        self._arrived = Signal(data.ArrayLayout(range(ENTRIES_AHEAD + 1), channels))
        self._flying = Signal(data.ArrayLayout(range(OUTSTANDING + 1), channels))
        self._rung_stamps = Signal(data.ArrayLayout(STAMP_BITS, channels))
        self._asked_stamps = Signal(data.ArrayLayout(STAMP_BITS, channels))
        for channel in range(channels):
            self._rings(m, channel)
            self._counts(m, channel)
            self._news(m, channel)
        self._look(m)
        return m

    def _taken(self, step: str, channel: int) -> Value:
        return self.step[step] & self.visited[channel]

    def _rings(self, m: Module, channel: int) -> None:
        """Doorbells, and the GP_PUT that they announce."""
        flags, stamp = self._flags, self._rung_stamps[channel]
        asks = self._taken("ask", channel)
        self._aging.keep(m, stamp)
        self._aging.keep(m, self._asked_stamps[channel])
        with m.If(asks):
            m.d.sync += [
                flags["asking"][channel].eq(1),
                flags["rung"][channel].eq(0),
                self._asked_stamps[channel].eq(stamp),
            ]
        with m.If(self._rang(channel)):
            m.d.sync += flags["rung"][channel].eq(1)
            with m.If(~flags["rung"][channel] | asks):
                m.d.sync += stamp.eq(self.now)
        with m.If(_at(self.put, channel)):
            m.d.sync += flags["fresh"][channel].eq(1)
        with m.If(self._taken("seen", channel)):
            m.d.sync += flags["heard"][channel].eq(0)
        with m.If(self._taken("accept", channel)):
            m.d.sync += [flags["fresh"][channel].eq(0), flags["asking"][channel].eq(0)]
            m.d.sync += flags["heard"][channel].eq(1)
        with m.If(self._taken("report", channel)):
            m.d.sync += flags["failed"][channel].eq(0)
        with m.If(_at(self.unwritten, channel)):
            m.d.sync += flags["failed"][channel].eq(1)
        with m.If(_at(self.clear, channel)):
            names = ("asking", "rung", "fresh", "heard", "failed")
            m.d.sync += [flags[name][channel].eq(0) for name in names]

    def _rang(self, channel: int) -> Value:
        doorbell = self.doorbell
        return doorbell.valid & (doorbell.payload.channel == channel) & self.enabled[channel]

    def _counts(self, m: Module, channel: int) -> None:
        """Space taken in the prefetch buffer and for entries, and outstanding reads."""
        credits, claimed = self._credits[channel], self._claimed[channel]
        arrived, flying = self._arrived[channel], self._flying[channel]
        opens, claims = self._taken("open", channel), self._taken("claim", channel)
        m.d.sync += [
            credits.eq(
                credits
                + (self._beats & self._reserved[channel].replicate(4))
                - self._popped[channel]
            ),
            claimed.eq(claimed + claims - opens),
            arrived.eq(arrived + _at(self.entry, channel) - opens),
            flying.eq(flying + self._asked[channel] - self._answered[channel]),
        ]
        with m.If(_at(self.clear, channel)):
            m.d.sync += [credits.eq(0), claimed.eq(0), arrived.eq(0)]

    def _news(self, m: Module, channel: int) -> None:
        """Requests of visits. An event after a visit has sampled `can` requests another one."""
        flags, credits = self._flags, self._credits[channel]
        work, looked = flags["work"][channel], flags["looked"][channel]
        room, quiet = flags["room"][channel], flags["quiet"][channel]
        was_room, was_quiet = (
            Signal(name=f"was_room_{channel}"),
            Signal(name=f"was_quiet_{channel}"),
        )
        drained, was_enabled = Signal(name=f"drained_{channel}"), Signal(name=f"was_on_{channel}")
        m.d.comb += [room.eq(credits <= self._most), quiet.eq(drained & (credits == 0))]
        m.d.sync += [
            drained.eq(self.drained[channel]),
            was_enabled.eq(self.enabled[channel]),
            was_room.eq(room),
            was_quiet.eq(quiet),
        ]
        # One cycle late, which is harmless: nothing waits for these.
        rare = Signal(name=f"rare_{channel}")
        m.d.sync += rare.eq(
            self._rang(channel)
            | _at(self.unwritten, channel)
            # Once no read is outstanding, the bad segment can be closed.
            | (self._answered[channel] & self.dropping[channel])
            | (self.enabled[channel] & ~was_enabled)
            | (quiet & ~was_quiet)
        )
        grown = room & ~was_room
        news = rare | grown | _at(self.put, channel) | _at(self.entry, channel)
        with m.If(self._taken("seen", channel)):
            # A doorbell that this visit passes over gets the next one.
            m.d.sync += [work.eq(flags["heard"][channel] & flags["rung"][channel]), looked.eq(1)]
        with m.If(self._over):
            m.d.sync += looked.eq(0)
        with m.If(news | self._taken("again", channel)):
            m.d.sync += work.eq(1)
        with m.If(_at(self.clear, channel)):
            m.d.sync += work.eq(0)
        m.d.comb += [
            self.resting[channel].eq(self._flying[channel] == 0),
            self.busy[channel].eq(
                work
                | looked
                | flags["rung"][channel]
                | flags["asking"][channel]
                | flags["failed"][channel]
                | (credits != 0)
                | (self._claimed[channel] != 0)
            ),
        ]

    def _look(self, m: Module) -> None:
        """Conditions of the visited channel, and its stamp."""
        flags, channels = self._flags, range(self._config.channels)
        # A disabled channel takes no steps; it must be started first.
        visited = Signal(len(channels))
        looks = {
            "report": flags["failed"],
            "accept": flags["fresh"],
            "ask": flags["rung"] & ~flags["asking"] & ~flags["heard"],
            "open": Cat(self._arrived[channel] != 0 for channel in channels),
            "claim": Cat(self._claimed[channel] != ENTRIES_AHEAD for channel in channels),
            "room": flags["room"],
            "sync": flags["quiet"],
            "drop": self.dropping,
            "rest": self.resting,
        }
        stamps = [
            self._asked_stamps[channel] & self.visited[channel].replicate(STAMP_BITS)
            for channel in channels
        ]
        m.d.comb += [
            self.wanting.eq(flags["work"]),
            visited.eq(self.visited & self.enabled),
            self.stamp.eq(reduce(or_, stamps)),
            *(self.can[name].eq((mask & visited).any()) for name, mask in looks.items()),
        ]
