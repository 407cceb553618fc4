"""Channels that wait for failed acquires with ACQUIRE_SWITCH_TSG (2.3)."""

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.records.channel import channel_event
from signalbox.hw.records.runlist import runlist_acquire

__all__ = ["FailedAcquires"]


class FailedAcquires(wiring.Component):
    """Tells which channels let others have the turn, and raises RUNLIST_ACQUIRE.

    The state in which it is raised: some listed channel with work waits, and none does anything
    else. An acquire on chip waits until its semaphore was written; one in memory, which polls, has
    failed since a channel last executed a method. A poll under way at that moment counts.

    Members
    -------
    enable : in, runlists are used.
    listed : in, per channel, it is in the active list.
    ready : in, per channel, its head can proceed.
    working : in, per channel, it has something to do, or waits.
    polling : in, per channel, it waits for an acquire in memory.
    executed : in, strobe: a channel has executed a method.
    clear : in, strobe: a channel starts.
    failed : in, strobe: an acquire of a channel has failed; `yields`: with ACQUIRE_SWITCH_TSG.
    all_idle : in, no copy, task or change of memory is outstanding.
    yielding : out, registered, per channel: such an acquire has failed, and it has executed no
        method since.
    acquire : out, strobes, 1 cycle after the state began.
    """

    def __init__(self, config: Config) -> None:
        self._channels = config.channels
        masks = ("listed", "ready", "working", "polling")
        super().__init__({
            "enable": In(1),
            **{name: In(config.channels) for name in masks},
            "executed": In(channel_event(config)),
            "clear": In(channel_event(config)),
            "failed": In(channel_event(config, yields=1)),
            "all_idle": In(1),
            "yielding": Out(config.channels),
            "acquire": Out(runlist_acquire),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        # Acquires that have failed since any channel executed a method.
        lately = Signal(self._channels)
        with m.If(self.executed.valid):
            m.d.sync += [
                lately.eq(0),
                self.yielding.bit_select(self.executed.channel, 1).eq(0),
            ]
        with m.If(self.clear.valid):
            m.d.sync += self.yielding.bit_select(self.clear.channel, 1).eq(0)
        with m.If(self.failed.valid):
            m.d.sync += [
                lately.bit_select(self.failed.channel, 1).eq(1),
                self.yielding.bit_select(self.failed.channel, 1).eq(self.failed.yields),
            ]
        self._raise(m, (self.polling & lately) | (~self.polling & ~self.ready))
        return m

    def _raise(self, m: Module, vain: Signal) -> None:
        """`vain`: of channels with a failed acquire, it would fail again."""
        waits = Signal(self._channels)
        busy = Signal(self._channels)
        now = Signal(runlist_acquire)
        before = Signal(runlist_acquire)
        m.d.comb += [
            waits.eq(self.listed & self.working & self.yielding & vain),
            busy.eq(self.listed & self.working & ~waits),
            now.idle.eq(now.valid & self.all_idle),
            self.acquire.eq(now.as_value() & ~before.as_value()),
        ]
        m.d.sync += [now.valid.eq(self.enable & waits.any() & ~busy.any()), before.eq(now)]
