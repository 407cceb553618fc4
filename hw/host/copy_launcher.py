"""Copies from launch to completion: engines, reservations, outstanding copies (COPY-11, -13)."""

from functools import reduce
from operator import or_

from amaranth.hdl import Cat, Module, Mux, Signal, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import VA_BITS, Config
from signalbox.hw.errors import Cause
from signalbox.hw.host.channel_settings import ChannelControl
from signalbox.hw.host.ports import ChannelState, MethodEvents
from signalbox.hw.lib.arbiter import RoundRobin
from signalbox.hw.lib.onehot import lowest
from signalbox.hw.records.channel import channel_event
from signalbox.hw.records.copy import CopyError, CopyPort, copy_command

__all__ = [
    "MOST_COPIES",
    "CopyEvents",
    "CopyLauncher",
    "CopyReports",
    "CopyRequests",
    "EngineStatus",
    "OutstandingCopies",
    "copy_failed",
    "copy_launch",
]

MOST_COPIES = 15
"""Limit of outstanding copies per channel."""

_CAUSES = {
    CopyError.READ_BUS: Cause.COPY_READ_BUS,
    CopyError.READ_FAULT: Cause.COPY_READ_FAULT,
    CopyError.WRITE_BUS: Cause.COPY_WRITE_BUS,
    CopyError.WRITE_FAULT: Cause.COPY_WRITE_FAULT,
    CopyError.SEMAPHORE: Cause.COPY_SEMAPHORE,
}


class EngineStatus(wiring.Signature):
    """Copy engines as the channels see them.

    Members
    -------
    able : out, per channel: its copy can start at once, in an idle engine that is reserved for it
        or for no channel.
    keeping : out, per channel: an engine is reserved for it.
    queue : out, per channel with outstanding copies: their engine can queue one more. It has
        accepted the latest of them, that copy has no interrupt, and fewer than `MOST_COPIES` are
        outstanding.
    copying : out, per channel: has outstanding copies.
    """

    def __init__(self, config: Config) -> None:
        super().__init__({
            "able": Out(config.channels),
            "keeping": Out(config.channels),
            "queue": Out(config.channels),
            "copying": Out(config.channels),
        })


def copy_launch(config: Config) -> data.StructLayout:
    """Strobe: a copy of `channel` starts with `command`. `behind`: it queues behind the channel's
    running copy, in the same engine. `interrupt`: its completion raises an interrupt."""
    return channel_event(config, behind=1, interrupt=1, command=copy_command(config))


class CopyRequests(wiring.Signature):
    """Requests of the served channel to the copy launcher.

    Members
    -------
    launch : out, strobe: a copy starts. With `behind`, its engine is that of the channel's running
        copy; otherwise the one reserved for the channel, or the lowest idle one that is not
        reserved.
    reserve : out, strobe: reserve an engine for the channel; no effect if it has one.
    """

    def __init__(self, config: Config) -> None:
        super().__init__({
            "launch": Out(copy_launch(config)),
            "reserve": Out(channel_event(config)),
        })


class OutstandingCopies(wiring.Signature):
    """Outstanding copies.

    Members
    -------
    counts : out, per channel, 4 bits: their number.
    all_idle : out, there is none.
    """

    def __init__(self, config: Config) -> None:
        counts = data.ArrayLayout(unsigned(MOST_COPIES.bit_length()), config.channels)
        super().__init__({"counts": Out(counts), "all_idle": Out(1)})


class CopyEvents(wiring.Signature):
    """Starts and ends of copies.

    Members
    -------
    started : out, per engine, strobe: it was given a copy.
    finished : out, per engine, strobe: its copy has ended.
    """

    def __init__(self, config: Config) -> None:
        engines = config.copy_engines
        super().__init__({"started": Out(engines), "finished": Out(engines)})


def copy_failed(config: Config) -> data.StructLayout:
    """A copy of `channel`, launched by `data` on `subchannel`, has failed with `cause` at `va`."""
    return channel_event(config, cause=Cause, va=VA_BITS, data=32, subchannel=3)


class CopyReports(wiring.Signature):
    """Ends of copies, seen from the copy launcher.

    Members
    -------
    ended : out, strobe: a copy of `channel` has ended; `interrupt`: with an interrupt; `failed`: it
        has failed.
    failed : out, a `copy_failed`, from the cycle after `ended` until `taken`.
    taken : in, accepts `failed`.
    """

    def __init__(self, config: Config) -> None:
        super().__init__({
            "ended": Out(channel_event(config, interrupt=1, failed=1)),
            "failed": Out(copy_failed(config)),
            "taken": In(1),
        })


class CopyLauncher(wiring.Component):
    """Assigns copies to engines and receives their completions.

    An idle engine takes a copy if it is not reserved for another channel. A running engine takes
    only pipelined copies of the channel whose copy it runs. So all outstanding copies of a channel
    are in one engine, and end in order.

    Members
    -------
    engine : out, the copy engines, see `CopyPort`.
    requests : in, copies and reservations of the served channel.
    methods : in, `released`: ends the channel's reservation, but not one that begins in the same
        cycle.
    control : in, enabled channels. Copies of disabled channels are stopped.
    state : in, `reserving` channels. The reservation of any other channel ends, except in the cycle
        of its `reserve`.
    status : out, see `EngineStatus`.
    outstanding : out, outstanding copies.
    reports : out, ends of copies.
    copied : out, registered, per channel, strobe: a copy with an interrupt has ended, neither
        failed nor stopped.
    events : out, starts and ends of copies, per engine.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        super().__init__({
            "engine": Out(CopyPort(config)).array(config.copy_engines),
            "requests": In(CopyRequests(config)),
            "methods": In(MethodEvents(config)),
            "control": In(ChannelControl(config)),
            "state": In(ChannelState(config)),
            "status": Out(EngineStatus(config)),
            "outstanding": Out(OutstandingCopies(config)),
            "reports": Out(CopyReports(config)),
            "copied": Out(config.channels),
            "events": Out(CopyEvents(config)),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, engines = self._config, self._config.copy_engines
        status, launch, reserve = self.status, self.requests.launch, self.requests.reserve
        released, counts, ended = self.methods.released, self.outstanding.counts, self.reports.ended
        queued = Signal(engines)
        commands = Signal(data.ArrayLayout(copy_command(config), engines))
        reserved = Signal(engines)
        owner = Signal(data.ArrayLayout(config.channel_bits, engines))
        latest = Signal(data.ArrayLayout(config.channel_bits, engines))
        home = Signal(data.ArrayLayout(config.engine_bits, config.channels))
        free = Signal(engines)
        idle = Signal(engines)

        for number in range(engines):
            port = self.engine[number]
            m.d.comb += [
                idle[number].eq(port.idle & ~queued[number]),
                free[number].eq(idle[number] & ~reserved[number]),
                port.command.valid.eq(queued[number]),
                port.command.payload.eq(commands[number]),
                # All copies in an engine belong to the channel of its latest command.
                port.stop.eq(~self.control.enabled.bit_select(latest[number], 1)),
            ]
            # `launch.valid` comes late in the cycle, so only `queued` depends on it.
            with m.If(~queued[number]):
                m.d.sync += commands[number].eq(launch.command)
            with m.If(port.command.ready & queued[number]):
                m.d.sync += queued[number].eq(0)
            holder_works = self.state.reserving.bit_select(owner[number], 1)
            let_go = released.valid & (released.channel == owner[number])
            renewed = reserve.valid & (reserve.channel == owner[number])
            with m.If(let_go | (~holder_works & ~renewed)):
                m.d.sync += reserved[number].eq(0)
        self._choose(m, free, reserved, owner, home, queued, latest)
        m.d.comb += self.outstanding.all_idle.eq(idle.all() & ~status.copying.any())

        interrupt = Signal(config.channels)
        for channel in range(config.channels):
            m.d.comb += [
                status.keeping[channel].eq(
                    reduce(or_, [reserved[e] & (owner[e] == channel) for e in range(engines)])
                ),
                status.able[channel].eq(free.any() | status.keeping[channel]),
                status.copying[channel].eq(counts[channel] != 0),
                status.queue[channel].eq(
                    ~queued.bit_select(home[channel], 1)
                    & ~interrupt[channel]
                    & (counts[channel] != MOST_COPIES)
                ),
            ]
            launched = launch.valid & (launch.channel == channel)
            ends = ended.valid & (ended.channel == channel)
            m.d.sync += [
                counts[channel].eq(counts[channel] + launched - ends),
                self.copied[channel].eq(
                    (ends & self.control.enabled[channel]) & (ended.interrupt & ~ended.failed)
                ),
            ]
            with m.If(launched):
                m.d.sync += interrupt[channel].eq(launch.interrupt)
        self._end(m, interrupt)
        return m

    def _choose(self, m, free, reserved, owner, home, queued, latest) -> None:
        """Engine of a launch or a reservation."""
        engines, keeping = self._config.copy_engines, self.status.keeping
        launch, reserve = self.requests.launch, self.requests.reserve
        chosen = lowest(free)
        for number in range(engines):
            asks = reserve.valid & ~keeping.bit_select(reserve.channel, 1)
            with m.If(asks & chosen[number]):
                m.d.sync += [reserved[number].eq(1), owner[number].eq(reserve.channel)]
            kept = Signal(name=f"kept_{number}")
            m.d.comb += kept.eq(reserved[number] & (owner[number] == launch.channel))
            gets = Mux(
                launch.behind,
                home[launch.channel] == number,
                Mux(keeping.bit_select(launch.channel, 1), kept, chosen[number]),
            )
            m.d.comb += self.events.started[number].eq(launch.valid & gets)
            with m.If(self.events.started[number]):
                m.d.sync += [
                    queued[number].eq(1),
                    latest[number].eq(launch.channel),
                    home[launch.channel].eq(number),
                    reserved[number].eq(0),
                ]

    def _end(self, m: Module, interrupt: Signal) -> None:
        """Accept the `done` of one engine per cycle."""
        engines, reports, ended = self._config.copy_engines, self.reports, self.reports.ended
        m.submodules.turns = turns = RoundRobin(engines)
        done = Signal.like(self.engine[0].done.payload)
        pending = Signal()
        cause = Signal(Cause)
        m.d.comb += [
            turns.requests.eq(
                Cat(port.done.valid for port in self.engine) & (~pending).replicate(engines)
            ),
            turns.advance.eq(turns.requests.any()),
            ended.valid.eq(turns.requests.any()),
            ended.channel.eq(done.channel),
            ended.interrupt.eq(interrupt.bit_select(done.channel, 1)),
            ended.failed.eq(done.error != CopyError.NONE),
            self.events.finished.eq(turns.grant),
        ]
        for number in range(engines):
            m.d.comb += self.engine[number].done.ready.eq(turns.grant[number])
            with m.If(turns.grant[number]):
                m.d.comb += done.eq(self.engine[number].done.payload)
        with m.Switch(done.error):
            for error, name in _CAUSES.items():
                with m.Case(error):
                    m.d.comb += cause.eq(name)
        with m.If(ended.valid & ended.failed):
            m.d.sync += [
                pending.eq(1),
                reports.failed.channel.eq(done.channel),
                reports.failed.cause.eq(cause),
                reports.failed.va.eq(done.va),
                reports.failed.data.eq(done.data),
                reports.failed.subchannel.eq(done.subchannel),
            ]
        with m.Elif(reports.taken):
            m.d.sync += pending.eq(0)
        m.d.comb += reports.failed.valid.eq(pending)
