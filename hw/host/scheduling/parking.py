"""Ready channels, and waits of the others (COPY-5, COPY-7, COPY-10, COPY-13)."""

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.host.copy_launcher import EngineStatus
from signalbox.hw.lib.delayed import delayed
from signalbox.hw.records.channel import channel_event
from signalbox.hw.records.semaphore import semaphore_update
from signalbox.hw.registers import Wait

__all__ = ["AcquirePort", "Parking"]


class AcquirePort(wiring.Signature):
    """Acquires of the served channel, seen from the execution of methods.

    Members
    -------
    watch : out, strobe: an acquire of on-chip semaphore `index` was requested for the channel.
    guard : out, strobe: counting semaphore `counter` joins the channel's acquire group (COPY-13).
    unguard : out, strobe: it leaves the group, one cycle later; with `all`, the whole group ends.
    held : in, combinational: all semaphores of the channel's group are 0.
    """

    def __init__(self, config: Config) -> None:
        counter = config.semaphore_bits
        super().__init__({
            "watch": Out(channel_event(config, index=config.semaphore_bits)),
            "guard": Out(channel_event(config, counter=counter)),
            "unguard": Out(channel_event(config, counter=counter, all=1)),
            "held": In(1),
        })


class Parking(wiring.Component):
    """One wait per channel, compared with its condition in every cycle.

    No wake-up is lost. Waits for states (copies, engines, zero flags) compare the state itself. An
    acquire of any other on-chip semaphore announces its index by `watch`, at the latest in the
    cycle after the unit accepted it; every update of that index from two cycles after `watch` on
    makes the channel ready. The update of an operation accepted behind the acquire comes then or
    later.

    Members
    -------
    alive : in, per channel, enabled and not halted.
    occupied : in, per channel, has fetched dwords.
    park : in, during a service: the served channel continues (`Wait.NONE`), or is let go with
        `wait`. With `lasts`, a channel that waits already keeps its wait.
    unpark : in, strobe, in the first cycle of a service; `channel` is always the served one.
    acquires : in, those of the served channel.
    update : in, strobe: an on-chip semaphore was operated on.
    clear : in, strobe: the channel starts; its group ends.
    zero : in, per counting semaphore, its value is 0.
    engines : in, copy engines.
    tasks : in, per channel, has outstanding tasks.
    retry : in, per channel, its timer has expired.
    fenced : in, per channel, its semaphore operation in memory has ended.
    over : in, per channel, its wait in `Barrier`, `MemOps` or `ComputeWaits` is over.
    referring : in, per channel, its REF is not in memory yet.
    ready : out, per channel, its head can proceed; of groups, as of the previous cycle.
    wanting : out, per channel, alive and waiting for an engine alone: with `Wait.ENGINE_ONLY`,
        `Wait.ENGINE_TIMED`, or `Wait.ENGINE` and a group that held in the previous cycle, when none
        joined it. Also 1 while it can have one.
    holding : out, per channel, all semaphores of its group were 0 in the previous cycle.
    waits : out, per channel, its wait.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        channels = config.channels
        super().__init__({
            "alive": In(channels),
            "occupied": In(channels),
            "park": In(channel_event(config, wait=Wait, lasts=1)),
            "unpark": In(channel_event(config)),
            "acquires": In(AcquirePort(config)),
            "update": In(semaphore_update(config)),
            "clear": In(channel_event(config)),
            "zero": In(config.counters),
            "engines": In(EngineStatus(config)),
            "tasks": In(channels),
            "retry": In(channels),
            "fenced": In(channels),
            "over": In(channels),
            "referring": In(channels),
            "ready": Out(channels),
            "wanting": Out(channels),
            "holding": Out(channels),
            "waits": Out(data.ArrayLayout(Wait, channels)),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        # It is late; the first update that counts comes two cycles after it.
        self._watching = delayed(m, self.acquires.watch, "watching")
        groups = self._groups(m)
        for channel in range(self._config.channels):
            maybe = self._watch(m, channel)
            held = self._held(m, channel, groups[channel])
            self._wait(m, channel, maybe, held)
        return m

    def _watch(self, m: Module, channel: int) -> Value:
        """Whether the on-chip semaphore watched by the channel was updated since, including this
        cycle."""
        watch, index = self._watching, Signal(self._config.semaphore_bits, name=f"index_{channel}")
        maybe = Signal(name=f"maybe_{channel}")
        hit = Signal(name=f"hit_{channel}")
        m.d.comb += hit.eq(self.update.valid & (self.update.index == index))
        with m.If(watch.valid & (watch.channel == channel)):
            m.d.sync += [index.eq(watch.index), maybe.eq(0)]
        with m.Elif(hit):
            m.d.sync += maybe.eq(1)
        return maybe | hit

    def _groups(self, m: Module) -> list[Signal]:
        """Counting semaphores in each channel's group; whether those of the served channel's are 0,
        from a copy of its group, for timing."""
        counters = self._config.counters
        joining = Signal(counters)
        leaving = Signal(counters)
        # `unguard` is late; the channel checks its group two cycles later at the earliest.
        unguard = delayed(m, self.acquires.unguard, "unguarded")
        for counter in range(counters):
            m.d.comb += [
                joining[counter].eq(self.acquires.guard.counter == counter),
                leaving[counter].eq(unguard.all | (unguard.counter == counter)),
            ]

        def after(group: Value, joins: Value, leaves: Value, cleared: Value) -> Value:
            stays = group & ~Mux(leaves, leaving, 0)
            return Mux(joins, joining, 0) | Mux(cleared, 0, stays)

        groups, served = [], Signal(counters)
        for channel in range(self._config.channels):
            group = Signal(counters, name=f"group_{channel}")
            events = (self.acquires.guard, unguard, self.clear)
            m.d.sync += group.eq(
                after(group, *(event.valid & (event.channel == channel) for event in events))
            )
            groups.append(group)
        cleared = self.clear.valid & (self.clear.channel == self.unpark.channel)
        m.d.sync += served.eq(after(served, self.acquires.guard.valid, unguard.valid, cleared))
        with m.If(self.unpark.valid):
            with m.Switch(self.unpark.channel):
                for channel, group in enumerate(groups):
                    with m.Case(channel):
                        m.d.sync += served.eq(Mux(cleared, 0, group))
        m.d.comb += self.acquires.held.eq((served & ~self.zero) == 0)
        return groups

    def _held(self, m: Module, channel: int, group: Signal) -> tuple[Value, Value]:
        """Whether all of the channel's group were 0 in the previous cycle, and whether some were
        not; both 0 in the cycle after a semaphore joined."""
        held, joined = self.holding[channel], Signal(name=f"joined_{channel}")
        m.d.sync += [
            held.eq((group & ~self.zero) == 0),
            joined.eq(self.acquires.guard.valid & (self.acquires.guard.channel == channel)),
        ]
        return held & ~joined, ~held & ~joined

    def _wait(self, m: Module, channel: int, maybe: Value, groups: tuple[Value, Value]) -> None:
        holds, fails = groups
        wait, over = self.waits[channel], Signal(name=f"over_{channel}")
        lacks = (wait == Wait.ENGINE_ONLY) | (wait == Wait.ENGINE_TIMED)
        m.d.comb += self.wanting[channel].eq(
            self.alive[channel] & (lacks | ((wait == Wait.ENGINE) & holds))
        )
        goes_on = self.park.lasts & (wait != Wait.NONE)
        with m.If(self.park.valid & (self.park.channel == channel) & ~goes_on):
            m.d.sync += wait.eq(self.park.wait)
        with m.Switch(wait):
            with m.Case(Wait.NONE):
                m.d.comb += over.eq(self.occupied[channel])
            with m.Case(Wait.COPIES):
                m.d.comb += over.eq(~self.engines.copying[channel])
            with m.Case(Wait.TASKS):
                m.d.comb += over.eq(~self.tasks[channel])
            with m.Case(Wait.ENGINE):
                m.d.comb += over.eq((self.engines.able[channel] & holds) | self.retry[channel])
            with m.Case(Wait.ONCHIP):
                m.d.comb += over.eq(maybe | self.retry[channel])
            with m.Case(Wait.RETRY):
                m.d.comb += over.eq(self.retry[channel])
            with m.Case(Wait.FENCE):
                m.d.comb += over.eq(self.fenced[channel])
            with m.Case(Wait.ENGINE_ONLY):
                m.d.comb += over.eq(self.engines.able[channel] | self.retry[channel])
            with m.Case(Wait.ENGINE_TIMED):
                m.d.comb += over.eq(self.engines.able[channel] | fails)
            with m.Case(Wait.QUEUE):
                m.d.comb += over.eq(self.engines.queue[channel] | ~self.engines.copying[channel])
            with m.Case(Wait.ALL_IDLE, Wait.TRANSLATION, Wait.COMPUTE):
                m.d.comb += over.eq(self.over[channel])
            with m.Case(Wait.WRITEBACK):
                m.d.comb += over.eq(~self.referring[channel])
            with m.Case(Wait.TURN):
                m.d.comb += over.eq(1)
        m.d.comb += self.ready[channel].eq(over & self.alive[channel])
