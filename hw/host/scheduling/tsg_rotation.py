"""Turns of the time-slice groups of the active runlist (HOST-7, spec 2.3, 2.6, 3.4). Slices of
single channels are in `scheduler.py`."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.host.scheduling.runlist_loader import runlist_contents
from signalbox.hw.records.runlist import group_word

__all__ = ["TsgRotation", "channel_work", "next_turn"]

_UNITS = 8 + 15
"""Width of the longest time slice, in units of 1,024 ns."""


def channel_work(config: Config) -> data.StructLayout:
    """Work of the channels, per channel. `ready`: its head can proceed; `working`: it has something
    to do, or waits; `yielding`: an acquire with ACQUIRE_SWITCH_TSG has failed, and it has executed
    no method since; `served`: one-hot."""
    names = ("ready", "working", "yielding", "served")
    return data.StructLayout(dict.fromkeys(names, config.channels))


def next_turn(config: Config) -> data.StructLayout:
    """The TSG that has the next turn, if `valid`: its place in the list, the contents of its word,
    and its slice in units."""
    word = group_word(config)
    return data.StructLayout({
        "valid": 1,
        "place": config.runlist_bits,
        "channels": config.channels,
        "tsgid": word["tsgid"].width,
        "units": _UNITS,
    })


class TsgRotation(wiring.Component):
    """Goes round the active list: the channels of one TSG at a time may be served.

    The TSG gives up its turn when its slice is over, or when none of its channels can proceed, is
    served, or keeps the turn by waiting; in both cases only to another TSG with a channel that can
    proceed. A waiting channel keeps the turn to the end of the slice, unless it yields
    (`FailedAcquires`). The next TSG is known before the turn ends. So its channels may be served in
    the cycle after the decision, which is made from the state of the previous cycle.

    Members
    -------
    enable : in, 0: all channels may be served.
    unit : in, 16 bits: cycles per unit of the slices; 0 counts as 1.
    list : in, stream: a new list, in the other half of the words. It is accepted when the round is
        over, that is, when the TSG may give up its turn and no later TSG of the list can proceed;
        at once if runlists are not used.
    at : out, `runlist_bits` + 1 bits: number of the word to be read, its highest bit the half.
    word : in, a `group_word`, one cycle later: the word at `at`.
    half : out, the half of the active list.
    work : in, a `channel_work`: work of the channels.
    expire : in, strobe: the served channel gives up the slice of its TSG (YIELD).
    eligible : out, registered, per channel: may be served. A channel that is being served and is
        not eligible must let go.
    running : out, registered: a TSG has the turn.
    tsgid : out, 12 bits, registered: number of that TSG.
    groups : out, 0 … `runlist_entries`, registered: number of TSGs in the active list.
    listed : out, registered, per channel: in the active list.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        word = group_word(config)
        super().__init__({
            "enable": In(1),
            "unit": In(16),
            "list": In(stream.Signature(runlist_contents(config))),
            "at": Out(config.runlist_bits + 1),
            "word": In(word),
            "half": Out(1),
            "work": In(channel_work(config)),
            "expire": In(1),
            "eligible": Out(config.channels, init=-1),
            "running": Out(1),
            "tsgid": Out(word["tsgid"].width),
            "groups": Out(range(config.runlist_entries + 1)),
            "listed": Out(config.channels),
        })
        self._place = Signal(config.runlist_bits, name="place")
        """Word of the TSG that has the turn."""
        self._next = Signal(next_turn(config), name="next")
        self._over = Signal(name="over")
        """The slice is over."""
        self._vain = Signal(name="vain")
        """A pass over the list has found no other TSG that can proceed."""
        self._change, self._activate = Signal(name="change"), Signal(name="activate")

    def elaborate(self, platform: object) -> Module:
        m = Module()
        work = Signal.like(self.work)
        m.d.sync += work.eq(self.work)
        able = Signal()
        held = Signal()
        m.d.comb += [
            able.eq(self._next.valid & (self._next.channels & work.ready).any()),
            held.eq(
                (self.eligible & (work.ready | work.served | (work.working & ~work.yielding))).any()
            ),
        ]
        ends = ~self.running | self._over | ~held
        # The next TSG that can proceed belongs to the next round.
        wraps = self.running & (self._next.place <= self._place)
        round_over = Mux(able, wraps, self._vain | (self.groups == 0))
        m.d.comb += [
            self._activate.eq(self.list.valid & (~self.enable | (ends & round_over))),
            self._change.eq(self.enable & ends & able & ~self._activate),
            self.list.ready.eq(self._activate),
        ]
        self._scan(m, work.ready)
        self._turn(m)
        self._slice(m)
        return m

    def _scan(self, m: Module, ready: Value) -> None:
        """Continuously searches for the next TSG, one word per cycle: from the place after the
        present one to the first TSG that can proceed."""
        scan = Signal(self._config.runlist_bits)
        seen = Signal.like(scan)
        origin = Signal.like(scan)
        fresh = Signal()
        word, found = self.word, self._next
        hit = Signal()
        m.d.comb += [
            self.at.eq(Cat(scan, self.half)),
            hit.eq(fresh & (word.channels & ready).any() & ~(self.running & (seen == self._place))),
        ]
        m.d.sync += [
            seen.eq(scan),
            fresh.eq((self.groups != 0) & ~hit),
            scan.eq(Mux(hit, origin, self._following(scan))),
        ]
        with m.If(fresh & (self._following(seen) == origin)):
            m.d.sync += self._vain.eq(1)
        with m.If(hit):
            m.d.sync += [
                self._vain.eq(0),
                found.valid.eq(1),
                found.place.eq(seen),
                found.channels.eq(word.channels),
                found.tsgid.eq(word.tsgid),
                found.units.eq((word.timeout | (word.timeout == 0)) << word.scale),
            ]
        begin = Signal.like(scan)
        m.d.comb += begin.eq(Mux(self._activate, self.list.p.start, self._following(found.place)))
        with m.If(self._activate | self._change):
            m.d.sync += [
                [flag.eq(0) for flag in (found.valid, fresh, self._vain)],
                [place.eq(begin) for place in (scan, origin)],
            ]

    def _following(self, place: Value) -> Value:
        """Place after this one."""
        return Mux(place + 1 >= self.groups, 0, place + 1)

    def _turn(self, m: Module) -> None:
        """The TSG that has the turn, and the list."""
        with m.If(self._change):
            m.d.sync += [
                self.running.eq(1),
                self.eligible.eq(self._next.channels),
                self._place.eq(self._next.place),
                self.tsgid.eq(self._next.tsgid),
            ]
        with m.Elif(self._activate):
            m.d.sync += [
                self.running.eq(0),
                self.eligible.eq(0),
                self.half.eq(~self.half),
                self.groups.eq(self.list.p.groups),
                self.listed.eq(self.list.p.channels),
            ]
        with m.Elif(~self.running):
            m.d.sync += self.eligible.eq(0)
        with m.If(~self.enable):
            m.d.sync += [self.running.eq(0), self.eligible.eq(-1)]

    def _slice(self, m: Module) -> None:
        """Counts the rest of the slice. The count stands still while a channel of another TSG must
        still let go."""
        left = Signal(_UNITS)
        cycles = Signal(16)
        period = Signal(16)
        runs = Signal()
        m.d.comb += [
            period.eq(Mux(self.unit == 0, 0, self.unit - 1)),
            runs.eq(self.running & ~(self.work.served & ~self.eligible).any()),
        ]
        with m.If(runs):
            m.d.sync += cycles.eq(Mux(cycles == 0, period, cycles - 1))
            with m.If(cycles == 0):
                m.d.sync += left.eq(left - 1)
                with m.If(left == 1):
                    m.d.sync += self._over.eq(1)
        with m.If(self.expire & (self.work.served & self.eligible).any()):
            m.d.sync += self._over.eq(1)
        with m.If(self._change):
            m.d.sync += [left.eq(self._next.units), cycles.eq(period), self._over.eq(0)]
