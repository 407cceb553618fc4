"""Channels that yield the turn after a failed acquire, and RUNLIST_ACQUIRE (HOST-5, spec 2.3)."""

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.records.channel import channel_event
from signalbox.hw.records.runlist import runlist_acquire

__all__ = ["FailedAcquires"]


class FailedAcquires(wiring.Component):
    """Tells which channels yield the turn, and raises RUNLIST_ACQUIRE.

    A channel yields after a failed acquire with ACQUIRE_SWITCH_TSG, until it executes a method;
    while it waits for an engine, it yields only if its acquire group does not hold. A channel also
    yields if its acquires have passed, but the group has ceased to hold before the copy.

    RUNLIST_ACQUIRE is raised when a state begins in which listed channels have work and all of
    these yield. A channel that polls memory counts once its acquire has failed after the latest
    method of any channel; a read that was under way at that method counts.

    Members
    -------
    enable : in, runlists are used.
    listed : in, per channel, in the active list.
    ready : in, per channel, its head can proceed.
    working : in, per channel, has something to do, or waits.
    served : in, per channel, being served.
    polling : in, per channel, waits for a semaphore in memory.
    lacking : in, per channel, waits for a copy engine.
    holding : in, per channel, its acquire group holds.
    executed : in, strobe: a channel has executed a method.
    clear : in, strobe: a channel starts.
    failed : in, strobe: an acquire of a channel has failed; `yields`: with ACQUIRE_SWITCH_TSG.
    all_idle : in, no copy, task or change of memory is outstanding.
    yielding : out, per channel, combinational: yields the turn.
    acquire : out, a `runlist_acquire`: strobes, 1 cycle after the state began.
    """

    def __init__(self, config: Config) -> None:
        self._channels = config.channels
        masks = ("listed", "ready", "working", "served", "polling", "lacking", "holding")
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
        channels, executed, clear, failed = self._channels, self.executed, self.clear, self.failed
        # Per channel. `waits`: an acquire has failed since its latest method. `lately`: since the
        # latest method of any channel. `yields`: the last failed acquire has ACQUIRE_SWITCH_TSG.
        waits = Signal(channels)
        lately = Signal(channels)
        yields = Signal(channels)
        with m.If(executed.valid):
            m.d.sync += [lately.eq(0), waits.bit_select(executed.channel, 1).eq(0)]
        with m.If(clear.valid):
            m.d.sync += waits.bit_select(clear.channel, 1).eq(0)
        with m.If(failed.valid):
            m.d.sync += [
                waits.bit_select(failed.channel, 1).eq(1),
                lately.bit_select(failed.channel, 1).eq(1),
                yields.bit_select(failed.channel, 1).eq(failed.yields),
            ]
        m.d.comb += self.yielding.eq(
            (self.lacking & ~self.holding & (~waits | yields)) | (~self.lacking & waits & yields)
        )
        # A served channel has no wait; its polling is remembered.
        polls = Signal(channels)
        m.d.sync += polls.eq(self.polling | (self.served & polls))
        self._raise(m, Mux(self.enable, self.yielding, 0), self.polling | polls, lately)
        return m

    def _raise(self, m: Module, yielding: Value, polling: Value, lately: Value) -> None:
        waits = Signal(self._channels)
        busy = Signal(self._channels)
        now = Signal(runlist_acquire)
        before = Signal(runlist_acquire)
        m.d.comb += [
            waits.eq(
                (self.listed & self.working & yielding)
                & ((polling & lately) | (~polling & ~self.ready))
            ),
            busy.eq(self.listed & self.working & ~waits),
            now.idle.eq(now.valid & self.all_idle),
            self.acquire.eq(now.as_value() & ~before.as_value()),
        ]
        m.d.sync += [now.valid.eq(waits.any() & ~busy.any()), before.eq(now)]
