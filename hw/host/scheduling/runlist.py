"""The runlist: from a list in memory to the channels that may be served (HOST-7)."""

from functools import reduce
from operator import or_

from amaranth.hdl import Cat, Module, Value
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out, connect, flipped

from signalbox.hw.config import Config
from signalbox.hw.host.ports import (
    Activity,
    ChannelStart,
    ChannelState,
    MethodEvents,
    Served,
    Turns,
)
from signalbox.hw.host.scheduling.acquire_pretest import AcquirePretest
from signalbox.hw.host.scheduling.failed_acquires import FailedAcquires
from signalbox.hw.host.scheduling.parking import Parked
from signalbox.hw.host.scheduling.runlist_loader import RunlistLoader
from signalbox.hw.host.scheduling.tsg_rotation import TsgRotation
from signalbox.hw.records.channel import channel_event
from signalbox.hw.records.memory import ReadPort
from signalbox.hw.records.runlist import RunlistControl, group_word
from signalbox.hw.registers import Wait

__all__ = ["GroupPort", "Runlist"]

_POLLS = (Wait.RETRY, Wait.FENCE)
"""Waits for a semaphore in memory."""

_LACKS = (Wait.ENGINE, Wait.ENGINE_ONLY, Wait.ENGINE_TIMED)
"""Waits for a copy engine."""


class GroupPort(wiring.Signature):
    """Time-slice group of the served channel, seen from the execution of methods.

    Members
    -------
    expire : out, strobe: the served channel gives up the slice of its group (spec 2.6).
    failed : out, strobe: an acquire of `channel` has failed; `yields`: with ACQUIRE_SWITCH_TSG.
    """

    def __init__(self, config: Config) -> None:
        super().__init__({"expire": Out(1), "failed": Out(channel_event(config, yields=1))})


class Runlist(wiring.Component):
    """Loader, words of two lists, and rotation. Design: `README.md` in this folder.

    Members
    -------
    control : in, the registers.
    read : out, memory port of the loader.
    parked : in, channels that are `ready`, their waits and acquire groups.
    state : in, channels that are `working`: they have something to do, or wait.
    served : in, the served channel.
    client : in, the execution of methods.
    methods : in, executed methods.
    start : in, starts of channels.
    activity : in, `all_idle`.
    turns : out, registered, channels that may be served.
    resting : out, registered, per channel: must not repeat its failed acquire yet.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        super().__init__({
            "control": In(RunlistControl()),
            "read": Out(ReadPort(config)),
            "parked": In(Parked(config)),
            "state": In(ChannelState(config)),
            "served": In(Served(config)),
            "client": In(GroupPort(config)),
            "methods": In(MethodEvents(config)),
            "start": In(ChannelStart(config)),
            "activity": In(Activity(config)),
            "turns": Out(Turns(config)),
            "resting": Out(config.channels),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, control = self._config, self.control
        m.submodules.loader = loader = RunlistLoader(config)
        m.submodules.rotation = rotation = TsgRotation(config)
        m.submodules.acquires = acquires = FailedAcquires(config)
        m.submodules.pretest = pretest = AcquirePretest(config)
        m.submodules.words = words = Memory(
            shape=group_word(config), depth=2 << config.runlist_bits, init=[]
        )
        connect(m, flipped(self.read), loader.read)
        connect(m, loader.list, rotation.list)
        write, read = words.write_port(), words.read_port()
        m.d.comb += [
            write.addr.eq(Cat(loader.write.at, ~rotation.half)),
            write.data.eq(loader.write.word),
            write.en.eq(loader.write.valid),
            read.addr.eq(rotation.at),
            rotation.word.eq(read.data),
            loader.submit.eq(control.submit),
            rotation.enable.eq(control.enable),
            rotation.unit.eq(control.unit),
            rotation.expire.eq(self.client.expire),
            self.turns.eligible.eq(rotation.eligible),
            control.refused.eq(loader.refused),
            control.state.reading.eq(loader.pending & ~loader.list.valid),
            control.state.pending.eq(loader.pending),
            [control.state[name].eq(getattr(rotation, name)) for name in ("tsgid", "groups")],
            control.state.running.eq(rotation.running),
        ]
        parked, served, executed = self.parked, self.served, self.methods.executed
        m.d.comb += [
            acquires.ready.eq(parked.ready),
            acquires.working.eq(self.state.working),
            acquires.polling.eq(self._waiting(*_POLLS)),
            acquires.lacking.eq(self._waiting(*_LACKS)),
            acquires.holding.eq(parked.holding),
            acquires.all_idle.eq(self.activity.all_idle),
            acquires.executed.valid.eq(executed.valid),
            acquires.executed.channel.eq(executed.channel),
            acquires.clear.eq(self.start.cleared),
            acquires.failed.eq(self.client.failed),
            acquires.enable.eq(control.enable),
            acquires.listed.eq(rotation.listed),
            acquires.served.eq(rotation.work.served),
            control.acquire.eq(acquires.acquire),
            rotation.work.ready.eq(parked.ready),
            rotation.work.working.eq(self.state.working),
            rotation.work.yielding.eq(acquires.yielding),
            rotation.work.served.eq(
                (1 << served.channel) & served.active.replicate(config.channels)
            ),
            pretest.enable.eq(control.enable),
            pretest.period.eq(control.pretest),
            pretest.busy.eq((parked.ready & rotation.listed).any() | served.active),
            pretest.polling.eq(acquires.yielding & self._waiting(Wait.RETRY)),
            self.resting.eq(pretest.resting),
        ]
        return m

    def _waiting(self, *waits: Wait) -> Value:
        """Per channel: has one of these waits."""
        return Cat(reduce(or_, [wait == one for one in waits]) for wait in self.parked.waits)
