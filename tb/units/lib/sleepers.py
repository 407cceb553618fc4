"""Components that are often idle. If simulated separately, they may sleep but must wake in time."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import memory, stream, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.lib.shared import Shared

__all__ = ["Alarm", "Sleeper", "Sleepers"]

WIDE = 70
"""Bits of a payload: more than the simulator's word."""


class Alarm(wiring.Component):
    """Runs a counter. `over` is 1 for one cycle, more than `after` cycles after `set`, when `mute`
    is 0."""

    def __init__(self) -> None:
        super().__init__({"set": In(1), "after": In(6), "mute": In(1), "over": Out(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        now, until, armed, due = Signal(7), Signal(7), Signal(), Signal()
        m.d.comb += self.over.eq(due & ~self.mute)
        m.d.sync += now.eq(now + 1)
        with m.If(self.over):
            m.d.sync += due.eq(0)
        with m.If(armed & (now == until)):
            m.d.sync += [armed.eq(0), due.eq(1)]
        with m.If(self.set):
            m.d.sync += [armed.eq(1), until.eq(now + self.after + 2)]
        return m


class Sleeper(wiring.Component):
    """Takes a word, sleeps for some cycles, then outputs the sum of all words of one of sixteen
    places. While nothing is output, the payload is meaningless.

    Members
    -------
    asks : words; bits 5 … 0 are the duration, bits 9 … 6 the place.
    gives : sums; valid only while `open` is 1 in the same cycle.
    mute : prevents waking.
    open : allows an output.
    place : place of the word on `asks`; meaningless without a word.
    level, mixed : `mixed` is `level` of the same cycle, inverted while the component sleeps.
    """

    def __init__(self, alarm: Alarm) -> None:
        self._alarm = alarm
        super().__init__({
            "asks": In(stream.Signature(WIDE)),
            "gives": Out(stream.Signature(WIDE)),
            "mute": In(1),
            "open": In(1),
            "place": Out(4),
            "level": In(9),
            "mixed": Out(9),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.alarm = alarm = Shared(self._alarm, "alarm")
        m.submodules.sums = sums = memory.Memory(shape=WIDE, depth=16, init=[])
        read, write = sums.read_port(domain="comb"), sums.write_port()
        asked, given = self.asks, self.gives
        busy, ready, total = Signal(), Signal(), Signal(WIDE)
        take = asked.valid & asked.ready
        m.d.comb += [
            asked.ready.eq(~busy & ~ready),
            alarm.set.eq(take),
            alarm.after.eq(asked.payload[:6]),
            alarm.mute.eq(self.mute),
            self.place.eq(asked.payload[6:10]),
            read.addr.eq(self.place),
            write.addr.eq(self.place),
            write.data.eq(read.data + asked.payload),
            write.en.eq(take),
            given.valid.eq(ready & self.open),
            given.payload.eq(total),
            self.mixed.eq(Mux(busy, ~self.level, self.level)),
        ]
        with m.If(take):
            m.d.sync += [busy.eq(1), total.eq(write.data)]
        with m.If(alarm.over):
            m.d.sync += [busy.eq(0), ready.eq(1)]
        with m.If(given.valid & given.ready):
            m.d.sync += [ready.eq(0), total.eq(~total)]
        return m


class Sleepers(wiring.Component):
    """Three sleepers in a row; each passes its sums to the next."""

    def __init__(self) -> None:
        sleeper = Sleeper(Alarm())
        self._parts = [Shared(sleeper, "sleeper") for _ in range(3)]
        super().__init__(sleeper.signature)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        before, level = self.asks, self.level
        for number, part in enumerate(self._parts):
            m.submodules[f"part_{number}"] = part
            m.d.comb += [
                part.asks.valid.eq(before.valid),
                part.asks.payload.eq(before.payload),
                before.ready.eq(part.asks.ready),
                part.mute.eq(self.mute),
                part.open.eq(self.open),
                part.level.eq(level),
            ]
            before, level = part.gives, part.mixed
        m.d.comb += [
            self.gives.valid.eq(before.valid),
            self.gives.payload.eq(before.payload),
            self.place.eq(self._parts[0].place),
            before.ready.eq(self.gives.ready),
            self.mixed.eq(level),
        ]
        return m
