"""Waits for all copies and semaphore operations under way at a moment (WFI of scope ALL)."""

from amaranth.hdl import Module, Mux, Signal, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.host.copy_launcher import MOST_COPIES
from signalbox.hw.host.tickets import Tickets
from signalbox.hw.records.channel import channel_event

__all__ = ["Barrier"]


class Barrier(wiring.Component):
    """Epochs: one begins when channels wait and none runs; it ends when everything that was under
    way at its beginning has ended. Who asks during an epoch waits for the next one. So a wait
    covers all that was under way when it was asked for, and lasts two epochs at most, whatever is
    begun meanwhile (HOST-3). Two cycles pass from `ask` to the epoch, two from the last end to
    `over`.

    All copies that are under way in an engine end in their order, so what counts is how many.

    Members
    -------
    ask : the channel waits; nothing new for one that does already, or whose wait is over.
    drop : it waits no longer, and its wait is not over.
    started, finished : per engine, a copy begins, or ends.
    changing : per channel, an operation of it that changes a semaphore in memory is under way; 0
        between two of them.
    begins : strobe, an epoch begins. tasks : tasks are left that were launched before it did.
    over : per channel, its wait is over, until `drop`.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        super().__init__({
            "ask": In(channel_event(config)),
            "drop": In(channel_event(config)),
            "started": In(config.copy_engines),
            "finished": In(config.copy_engines),
            "changing": In(config.channels),
            "begins": Out(1),
            "tasks": In(1),
            "over": Out(config.channels),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.tickets = tickets = Tickets(self._config)
        waits, runs = Signal(), Signal()
        begins, ends = self.begins, Signal()
        m.d.sync += [
            # A cycle late: at worst an epoch begins that nobody waits for.
            waits.eq(tickets.waiting.any()),
            runs.eq(Mux(runs, ~ends, begins)),
        ]
        m.d.comb += [
            begins.eq(waits & ~runs),
            ends.eq(runs & ~self._left(m, begins) & ~self.tasks),
            tickets.ask.eq(self.ask),
            tickets.drop.eq(self.drop),
            tickets.whose.eq(~0),
            tickets.begins.eq(begins),
            tickets.ends.eq(ends),
            self.over.eq(tickets.over),
        ]
        return m

    def _left(self, m: Module, begins: Signal) -> Signal:
        """Whether anything is left of what was under way at the beginning of the epoch."""
        engines = range(self._config.copy_engines)
        counters = data.ArrayLayout(unsigned(MOST_COPIES.bit_length()), len(engines))
        under_way, left = Signal(counters), Signal(counters)
        changing, some = Signal.like(self.changing), Signal()
        m.d.sync += changing.eq(self.changing & (begins.replicate(len(changing)) | changing))
        m.d.comb += some.eq(left.as_value().any() | changing.any())
        for engine in engines:
            ended = self.finished[engine]
            m.d.sync += under_way[engine].eq(under_way[engine] + self.started[engine] - ended)
            with m.If(begins):
                m.d.sync += left[engine].eq(under_way[engine] - ended)
            with m.Elif(left[engine] != 0):
                m.d.sync += left[engine].eq(left[engine] - ended)
        return some
