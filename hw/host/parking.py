"""Which channels can proceed, and what the others wait for (COPY-5, COPY-7, COPY-10, COPY-13)."""

from amaranth.hdl import Module, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hw.config import Config
from hw.host.prefetch import channel_event
from hw.records import semaphore_update
from hw.registers import Wait

__all__ = ["Parking"]


class Parking(wiring.Component):
    """One wait per channel, compared with what it waits for in every cycle.

    No wake-up is lost: waits for states (copies, engines, zero flags) compare the state itself; an
    acquire of another on-chip semaphore announces its index by `watch`, at the latest in the cycle
    after the unit accepted it, and every update of that index from then on makes the channel ready:
    that of an operation accepted behind the acquire comes later still.

    Members
    -------
    alive : per channel, enabled and not halted.
    occupied : per channel, fetched dwords are there.
    park : the served channel has met `wait`.
    unpark : the channel is served again, or starts anew.
    watch : the channel has on-chip semaphore `index` decided.
    update : an on-chip semaphore was written.
    guard : counting semaphore `counter` joins the channel's acquire group (COPY-13).
    unguard : it leaves it; with `all`, the whole group ends.
    clear : the channel starts anew and belongs to no group.
    zero : per counting semaphore, whether it is 0.
    copying, engine, queue, retry, fenced, over : per channel: own copies run; an engine can take
        its copy; its own running copy has room behind it; its timer ran out; its semaphore
        operation in memory has ended; what it waits for in `Barrier` has.
    referring : per channel, its REF is not in memory yet.
    ready : per channel, its head can proceed.
    held : per channel, all semaphores of its group are 0.
    woken : strobe when an update made a channel ready.
    waits : per channel, what it waits for.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        channels = config.channels
        super().__init__({
            "alive": In(channels),
            "occupied": In(channels),
            "park": In(channel_event(config, wait=Wait)),
            "unpark": In(channel_event(config)),
            "watch": In(channel_event(config, index=config.semaphore_bits)),
            "update": In(semaphore_update(config)),
            "guard": In(channel_event(config, counter=config.semaphore_bits)),
            "unguard": In(channel_event(config, counter=config.semaphore_bits, all=1)),
            "clear": In(channel_event(config)),
            "zero": In(config.counters),
            "copying": In(channels),
            "engine": In(channels),
            "queue": In(channels),
            "retry": In(channels),
            "fenced": In(channels),
            "over": In(channels),
            "referring": In(channels),
            "ready": Out(channels),
            "held": Out(channels),
            "woken": Out(1),
            "waits": Out(data.ArrayLayout(Wait, channels)),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        counters = range(self._config.counters)
        woken = Signal(self._config.channels)
        joining, leaving = Signal(len(counters)), Signal(len(counters))
        m.d.comb += self.woken.eq(woken.any())
        for counter in counters:
            m.d.comb += [
                joining[counter].eq(self.guard.counter == counter),
                leaving[counter].eq(self.unguard.all | (self.unguard.counter == counter)),
            ]
        for channel in range(self._config.channels):
            maybe = self._watch(m, channel, woken)
            self._guard(m, channel, joining, leaving)
            self._wait(m, channel, maybe)
        return m

    def _watch(self, m: Module, channel: int, woken: Signal) -> Value:
        """Whether the on-chip semaphore that the channel watches was written since, or is in this
        very cycle."""
        index = Signal(self._config.semaphore_bits, name=f"index_{channel}")
        maybe = Signal(name=f"maybe_{channel}")
        hit = Signal(name=f"hit_{channel}")
        m.d.comb += hit.eq(self.update.valid & (self.update.index == index))
        with m.If(self.watch.valid & (self.watch.channel == channel)):
            m.d.sync += [index.eq(self.watch.index), maybe.eq(0)]
        with m.Elif(hit):
            m.d.sync += maybe.eq(1)
            m.d.comb += woken[channel].eq((self.waits[channel] == Wait.ONCHIP) & ~maybe)
        return maybe | hit

    def _guard(self, m: Module, channel: int, joining: Signal, leaving: Signal) -> None:
        """Which counting semaphores are in the channel's group, and whether all of them are 0."""
        group = Signal(self._config.counters, name=f"group_{channel}")
        m.d.comb += self.held[channel].eq((group & ~self.zero) == 0)
        joins = self.guard.valid & (self.guard.channel == channel)
        leaves = self.unguard.valid & (self.unguard.channel == channel)
        cleared = self.clear.valid & (self.clear.channel == channel)
        m.d.sync += group.eq(
            (joining & joins.replicate(len(group)))
            | (group & ~(leaving & leaves.replicate(len(group))) & ~cleared.replicate(len(group)))
        )

    def _wait(self, m: Module, channel: int, maybe: Value) -> None:
        wait, over = self.waits[channel], Signal(name=f"over_{channel}")
        with m.If(self.park.valid & (self.park.channel == channel)):
            m.d.sync += wait.eq(self.park.wait)
        with m.Elif(self.unpark.valid & (self.unpark.channel == channel)):
            m.d.sync += wait.eq(Wait.NONE)
        with m.Switch(wait):
            with m.Case(Wait.NONE):
                m.d.comb += over.eq(self.occupied[channel])
            with m.Case(Wait.COPIES):
                m.d.comb += over.eq(~self.copying[channel])
            with m.Case(Wait.ENGINE):
                m.d.comb += over.eq(
                    (self.engine[channel] & self.held[channel]) | self.retry[channel]
                )
            with m.Case(Wait.ONCHIP):
                m.d.comb += over.eq(maybe | self.retry[channel])
            with m.Case(Wait.RETRY):
                m.d.comb += over.eq(self.retry[channel])
            with m.Case(Wait.FENCE):
                m.d.comb += over.eq(self.fenced[channel])
            with m.Case(Wait.ENGINE_ONLY):
                m.d.comb += over.eq(self.engine[channel] | self.retry[channel])
            with m.Case(Wait.ENGINE_TIMED):
                m.d.comb += over.eq(self.engine[channel] | ~self.held[channel])
            with m.Case(Wait.QUEUE):
                m.d.comb += over.eq(self.queue[channel] | ~self.copying[channel])
            with m.Case(Wait.ALL_IDLE):
                m.d.comb += over.eq(self.over[channel])
            with m.Case(Wait.WRITEBACK):
                m.d.comb += over.eq(~self.referring[channel])
            with m.Case(Wait.TURN):
                m.d.comb += over.eq(1)
        m.d.comb += self.ready[channel].eq(over & self.alive[channel])
