"""Ready channels, and waits of the others (COPY-5, COPY-7, COPY-10, COPY-13)."""

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.host.copy_launcher import EngineStatus
from signalbox.hw.host.ports import ChannelStart, ChannelState
from signalbox.hw.host.waits.compute_waits import OutstandingTasks
from signalbox.hw.lib.delayed import delayed
from signalbox.hw.records.channel import channel_event
from signalbox.hw.records.semaphore import OnChipStatus
from signalbox.hw.registers import Wait

__all__ = ["AcquirePort", "MethodWaits", "ParkPort", "Parked", "Parking"]


class AcquirePort(wiring.Signature):
    """Acquires of the served channel, seen from the execution of methods.

    Members
    -------
    watch : out, strobe: an acquire of on-chip semaphore `index` was requested for the channel.
    guard : out, strobe: counting semaphore `counter` joins the channel's acquire group (COPY-13).
    unguard : out, strobe: `counter` leaves the group, one cycle later; with `all`, the whole group
        ends.
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


class ParkPort(wiring.Signature):
    """Parking of the served channel, seen from the method pipeline.

    Members
    -------
    park : out, during a service: the served `channel` continues (`Wait.NONE`), or is let go with
        `wait`. With `lasts`, a channel that waits already keeps its wait.
    unpark : out, strobe, in the first cycle of a service; `channel` is always the served one.
    """

    def __init__(self, config: Config) -> None:
        super().__init__({
            "park": Out(channel_event(config, wait=Wait, lasts=1)),
            "unpark": Out(channel_event(config)),
        })


class MethodWaits(wiring.Signature):
    """Waits that methods have begun in other units, per channel; seen from the execution of
    methods.

    Members
    -------
    retry : out, its timer has expired.
    fenced : out, its semaphore operation in memory has ended.
    over : out, its wait in `Barrier`, `MemOps` or `ComputeWaits` is over.
    referring : out, its REF is not in memory yet.
    """

    def __init__(self, config: Config) -> None:
        names = ("retry", "fenced", "over", "referring")
        super().__init__({name: Out(config.channels) for name in names})


class Parked(wiring.Signature):
    """Parked and other channels, seen from `Parking`.

    Members
    -------
    ready : out, per channel, its head can proceed, by the acquire groups of the previous cycle.
    wanting : out, per channel, alive and waiting for nothing but an engine, whether or not one is
        available: `Wait.ENGINE_ONLY`, `Wait.ENGINE_TIMED`, or `Wait.ENGINE` with a group that held
        in the previous cycle and was not joined in it.
    holding : out, per channel, all semaphores of its group were 0 in the previous cycle.
    waits : out, per channel, its `Wait`.
    """

    def __init__(self, config: Config) -> None:
        channels = config.channels
        super().__init__({
            "ready": Out(channels),
            "wanting": Out(channels),
            "holding": Out(channels),
            "waits": Out(data.ArrayLayout(Wait, channels)),
        })


class Parking(wiring.Component):
    """One wait per channel, compared with its condition in every cycle.

    No wake-up is lost. A wait for a state (copies, engines, zero flags) compares the state itself.
    An acquire of any other on-chip semaphore announces its index by `watch`, at the latest in the
    cycle after the semaphore unit has accepted it. Every update of that index from two cycles after
    `watch` on makes the channel ready; updates by operations accepted after the acquire come then
    or later.

    Members
    -------
    state : in, channels that are `alive`, and those that have fetched beats (`occupied`).
    pipeline : in, the method pipeline.
    acquires : in, acquires of the served channel.
    on_chip : in, `zero` flags and updates of on-chip semaphores.
    start : in, starts of channels. The channel's group ends.
    engines : in, copy engines, as each channel finds them.
    tasks : in, channels that have outstanding tasks.
    methods : in, waits that methods have begun.
    parked : out, the channels.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        super().__init__({
            "state": In(ChannelState(config)),
            "pipeline": In(ParkPort(config)),
            "acquires": In(AcquirePort(config)),
            "on_chip": In(OnChipStatus(config)),
            "start": In(ChannelStart(config)),
            "engines": In(EngineStatus(config)),
            "tasks": In(OutstandingTasks(config)),
            "methods": In(MethodWaits(config)),
            "parked": Out(Parked(config)),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        # `watch` comes late in its cycle; the first update that counts comes two cycles after it.
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
        watch, update = self._watching, self.on_chip.update
        index = Signal(self._config.semaphore_bits, name=f"index_{channel}")
        maybe = Signal(name=f"maybe_{channel}")
        hit = Signal(name=f"hit_{channel}")
        m.d.comb += hit.eq(update.valid & (update.index == index))
        with m.If(watch.valid & (watch.channel == channel)):
            m.d.sync += [index.eq(watch.index), maybe.eq(0)]
        with m.Elif(hit):
            m.d.sync += maybe.eq(1)
        return maybe | hit

    def _groups(self, m: Module) -> list[Signal]:
        """Counting semaphores in each channel's group. Drives `held` from a copy of the served
        channel's group, for timing."""
        counters, clear, unpark = self._config.counters, self.start.cleared, self.pipeline.unpark
        joining = Signal(counters)
        leaving = Signal(counters)
        # `unguard` comes late in its cycle; the channel checks its group two cycles later at the
        # earliest.
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
            events = (self.acquires.guard, unguard, clear)
            m.d.sync += group.eq(
                after(group, *(event.valid & (event.channel == channel) for event in events))
            )
            groups.append(group)
        cleared = clear.valid & (clear.channel == unpark.channel)
        m.d.sync += served.eq(after(served, self.acquires.guard.valid, unguard.valid, cleared))
        with m.If(unpark.valid):
            with m.Switch(unpark.channel):
                for channel, group in enumerate(groups):
                    with m.Case(channel):
                        m.d.sync += served.eq(Mux(cleared, 0, group))
        m.d.comb += self.acquires.held.eq((served & ~self.on_chip.zero) == 0)
        return groups

    def _held(self, m: Module, channel: int, group: Signal) -> tuple[Value, Value]:
        """Whether all of the channel's group were 0 in the previous cycle, and whether some were
        not; both 0 in the cycle after a semaphore joined."""
        held, joined = self.parked.holding[channel], Signal(name=f"joined_{channel}")
        m.d.sync += [
            held.eq((group & ~self.on_chip.zero) == 0),
            joined.eq(self.acquires.guard.valid & (self.acquires.guard.channel == channel)),
        ]
        return held & ~joined, ~held & ~joined

    def _wait(self, m: Module, channel: int, maybe: Value, groups: tuple[Value, Value]) -> None:
        holds, fails = groups
        wait, park = self.parked.waits[channel], self.pipeline.park
        alive, over = self.state.alive[channel], Signal(name=f"over_{channel}")
        engines, methods, retry = self.engines, self.methods, self.methods.retry[channel]
        lacks = (wait == Wait.ENGINE_ONLY) | (wait == Wait.ENGINE_TIMED)
        m.d.comb += self.parked.wanting[channel].eq(
            alive & (lacks | ((wait == Wait.ENGINE) & holds))
        )
        goes_on = park.lasts & (wait != Wait.NONE)
        with m.If(park.valid & (park.channel == channel) & ~goes_on):
            m.d.sync += wait.eq(park.wait)
        with m.Switch(wait):
            with m.Case(Wait.NONE):
                m.d.comb += over.eq(self.state.occupied[channel])
            with m.Case(Wait.COPIES):
                m.d.comb += over.eq(~engines.copying[channel])
            with m.Case(Wait.TASKS):
                m.d.comb += over.eq(~self.tasks.some[channel])
            with m.Case(Wait.ENGINE):
                m.d.comb += over.eq((engines.able[channel] & holds) | retry)
            with m.Case(Wait.ONCHIP):
                m.d.comb += over.eq(maybe | retry)
            with m.Case(Wait.RETRY):
                m.d.comb += over.eq(retry)
            with m.Case(Wait.FENCE):
                m.d.comb += over.eq(methods.fenced[channel])
            with m.Case(Wait.ENGINE_ONLY):
                m.d.comb += over.eq(engines.able[channel] | retry)
            with m.Case(Wait.ENGINE_TIMED):
                m.d.comb += over.eq(engines.able[channel] | fails)
            with m.Case(Wait.QUEUE):
                m.d.comb += over.eq(engines.queue[channel] | ~engines.copying[channel])
            with m.Case(Wait.ALL_IDLE, Wait.TRANSLATION, Wait.COMPUTE):
                m.d.comb += over.eq(methods.over[channel])
            with m.Case(Wait.WRITEBACK):
                m.d.comb += over.eq(~methods.referring[channel])
            with m.Case(Wait.TURN):
                m.d.comb += over.eq(1)
        m.d.comb += self.parked.ready[channel].eq(over & alive)
