"""State of every channel, derived from several units."""

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.host.channel_settings import ChannelControl
from signalbox.hw.host.fetch.fetch_unit import OutstandingReads
from signalbox.hw.host.fetch.prefetch_buffer import FetchedBeats
from signalbox.hw.host.ports import ChannelState, Served, Turns
from signalbox.hw.host.scheduling.parking import Parked
from signalbox.hw.registers import Wait

__all__ = ["ChannelStates"]


class ChannelStates(wiring.Component):
    """Derives the `ChannelState` of all channels from several units. Combinational.

    Members
    -------
    control : in, enabled and halted channels.
    reads : in, remaining fetch work.
    fetched : in, channels that have fetched beats.
    served : in, the served channel.
    parked : in, the channels' waits and acquire groups.
    turns : in, channels that have a turn.
    state : out, the result.
    """

    def __init__(self, config: Config) -> None:
        self._channels = config.channels
        super().__init__({
            "control": In(ChannelControl(config)),
            "reads": In(OutstandingReads(config)),
            "fetched": In(FetchedBeats(config)),
            "served": In(Served(config)),
            "parked": In(Parked(config)),
            "turns": In(Turns(config)),
            "state": Out(ChannelState(config)),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        state, busy = self.state, self.reads.busy
        m.d.comb += [
            state.alive.eq(self.control.enabled & ~self.control.halted),
            state.occupied.eq(self.fetched.occupied),
            state.busy.eq(busy | ~state.drained),
            state.working.eq(state.alive & ~state.empty),
            # A channel with dwords still to be fetched is not `empty`: the rest of its acquire
            # group may be in flight. A reservation ends with the channel's turn (HOST-7).
            state.reserving.eq(
                state.alive & ~state.empty & self.parked.holding & self.turns.eligible
            ),
        ]
        for number in range(self._channels):
            served = self.served.active & (self.served.channel == number)
            waits = self.parked.waits[number] != Wait.NONE
            idle = ~state.occupied[number] & ~waits & ~served
            m.d.comb += [
                state.drained[number].eq(idle & state.alive[number]),
                state.empty[number].eq(idle & ~busy[number]),
            ]
        return m
