"""Waits for all outstanding copies, tasks and semaphore changes in memory (WFI of scope ALL)."""

from amaranth.hdl import Module, Mux, Signal, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.host.copy_launcher import MOST_COPIES, CopyEvents
from signalbox.hw.host.tickets import Tickets
from signalbox.hw.host.waits.compute_waits import EpochPort
from signalbox.hw.host.waits.memory_semaphores import OutstandingSemaphores
from signalbox.hw.records.channel import channel_event

__all__ = ["Barrier", "BarrierPort"]


class BarrierPort(wiring.Signature):
    """WFI of scope ALL, seen from the execution of methods.

    Members
    -------
    ask : out, strobe: `channel` waits; ignored while it waits or its wait is complete.
    drop : out, strobe: ends the wait of `channel`, completed or not.
    over : in, per channel, its wait is complete, until `drop`.
    """

    def __init__(self, config: Config) -> None:
        super().__init__({
            "ask": Out(channel_event(config)),
            "drop": Out(channel_event(config)),
            "over": In(config.channels),
        })


class Barrier(wiring.Component):
    """Ends the wait of a channel when all operations outstanding at its `ask` have ended (HOST-3).

    Waits are counted in epochs. An epoch begins when channels wait and no epoch is in progress, and
    ends when all operations outstanding at its beginning have ended. A channel that asks during an
    epoch waits for the next one. So a wait lasts at most two epochs, whatever begins meanwhile.
    Latency: 2 cycles from `ask` to the epoch, 2 from the last end to `over`.

    The copies in an engine end in order, so a count per engine is enough.

    Members
    -------
    client : in, the execution of methods.
    copies : in, copies that start and end.
    semaphores : in, operations in memory, `changing` a semaphore.
    epochs : out, outstanding tasks.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        super().__init__({
            "client": In(BarrierPort(config)),
            "copies": In(CopyEvents(config)),
            "semaphores": In(OutstandingSemaphores(config)),
            "epochs": Out(EpochPort()),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.tickets = tickets = Tickets(self._config)
        waits = Signal()
        runs = Signal()
        begins, ends = self.epochs.begins, Signal()
        m.d.sync += [
            # One cycle late: at worst, an epoch begins without waiting channels.
            waits.eq(tickets.waiting.any()),
            runs.eq(Mux(runs, ~ends, begins)),
        ]
        m.d.comb += [
            begins.eq(waits & ~runs),
            ends.eq(runs & ~self._left(m, begins) & ~self.epochs.before),
            tickets.ask.eq(self.client.ask),
            tickets.drop.eq(self.client.drop),
            tickets.owner.eq(~0),
            tickets.begins.eq(begins),
            tickets.ends.eq(ends),
            self.client.over.eq(tickets.over),
        ]
        return m

    def _left(self, m: Module, begins: Signal) -> Signal:
        """Whether an operation outstanding at the beginning of the epoch still is."""
        engines = range(self._config.copy_engines)
        counters = data.ArrayLayout(unsigned(MOST_COPIES.bit_length()), len(engines))
        under_way = Signal(counters)
        left = Signal(counters)
        changing = Signal.like(self.semaphores.changing)
        some = Signal()
        m.d.sync += changing.eq(
            self.semaphores.changing & (begins.replicate(len(changing)) | changing)
        )
        m.d.comb += some.eq(left.as_value().any() | changing.any())
        for engine in engines:
            ended = self.copies.finished[engine]
            m.d.sync += under_way[engine].eq(
                under_way[engine] + self.copies.started[engine] - ended
            )
            with m.If(begins):
                m.d.sync += left[engine].eq(under_way[engine] - ended)
            with m.Elif(left[engine] != 0):
                m.d.sync += left[engine].eq(left[engine] - ended)
        return some
