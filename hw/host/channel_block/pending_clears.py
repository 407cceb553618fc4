"""Pending CLEAR_FAULTED methods."""

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.lib.arbiter import RoundRobin
from signalbox.hw.lib.onehot import encode
from signalbox.hw.records.channel import channel_event

__all__ = ["PendingClears"]


class PendingClears(wiring.Component):
    """Owns, per channel, whether a CLEAR_FAULTED for it is pending. Channels take turns.

    Members
    -------
    resume : in, strobe: CLEAR_FAULTED for channel `target`; ignored for one that is not built.
    due : out, registered: a CLEAR_FAULTED is pending. 1 two cycles after `resume` at the earliest;
        0 in the cycle after `taken`.
    target : out, `channel_bits` bits, registered, with `due`: its channel.
    taken : in, strobe, only with `due`: the CLEAR_FAULTED for `target` is executed.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        super().__init__({
            "resume": In(channel_event(config, target=12)),
            "due": Out(1),
            "target": Out(config.channel_bits),
            "taken": In(1),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        channels = self._config.channels
        pending = Signal(channels)
        m.submodules.turns = turns = RoundRobin(channels)
        m.d.comb += [turns.requests.eq(pending), turns.advance.eq(~self.due)]
        with m.If(~self.due):
            m.d.sync += [self.due.eq(pending.any()), self.target.eq(encode(turns.grant))]
        with m.If(self.taken):
            m.d.sync += [self.due.eq(0), pending.bit_select(self.target, 1).eq(0)]
        with m.If(self.resume.valid & (self.resume.target < channels)):
            m.d.sync += pending.bit_select(self.resume.target, 1).eq(1)
        return m
