"""Halt of each channel."""

from functools import reduce
from operator import or_

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.records.channel import channel_event

__all__ = ["Halts"]


class Halts(wiring.Component):
    """Owns, per channel, whether an error halts it. A channel halts at once, even while it is being
    resumed.

    Members
    -------
    refused : in, strobe: a method of `channel` was refused; halts it in the same cycle.
    ended : in, strobe: a copy has ended; with `failed`, its channel is halted from the next cycle
        on.
    task_ended : in, likewise for a task.
    failed : in, a copy of `channel` has failed, and is not recorded yet.
    task_failed : in, likewise for a task.
    channel : in, `channel_bits` bits: channel of the access.
    cleared : in, strobe: the error of `channel` is cleared; the channel resumes, unless another
        failure halts it.
    follows : in, with `cleared`: another error is recorded.
    failing : out, combinational: a failure of `channel` is not recorded yet.
    halted : out, per channel, combinational from `refused`: an error halts it.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        event = channel_event(config)
        super().__init__({
            "refused": In(event),
            "ended": In(channel_event(config, failed=1)),
            "task_ended": In(channel_event(config, failed=1)),
            "failed": In(event),
            "task_failed": In(event),
            "channel": In(config.channel_bits),
            "cleared": In(1),
            "follows": In(1),
            "failing": Out(1),
            "halted": Out(config.channels),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        halts = Signal(self._config.channels)
        waiting = [
            one.valid & (one.channel == self.channel) for one in (self.failed, self.task_failed)
        ]
        m.d.comb += self.failing.eq(reduce(or_, waiting))
        with m.If(self.cleared):
            m.d.sync += halts.bit_select(self.channel, 1).eq(self.follows | self.failing)
        for number in range(self._config.channels):
            by_method = self.refused.valid & (self.refused.channel == number)
            by_copy, by_task = (
                one.valid & one.failed & (one.channel == number)
                for one in (self.ended, self.task_ended)
            )
            m.d.comb += self.halted[number].eq(halts[number] | by_method)
            with m.If(by_method | by_copy | by_task):
                m.d.sync += halts[number].eq(1)
        return m
