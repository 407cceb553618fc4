"""Retry and time-out timers of parked channels (HOST-5, spec 2.4)."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from hw.config import Config
from hw.host.prefetch import channel_event

__all__ = ["Timers"]


class Timers(wiring.Component):
    """One timer per channel; one comparison per cycle goes round the channels, so a timer is late
    by at most `channels` cycles.

    Members
    -------
    arm : `due` becomes a moment in cycles (`units` 0, compared in 24 bits) or in units of 1,024 ns
        (`units` 1), both circular.
    disarm : the channel's timer is stopped.
    cycles, units : present moment in both.
    expired : per channel, its timer ran out; until armed or disarmed again.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        super().__init__({
            "arm": In(channel_event(config, units=1, due=32)),
            "disarm": In(channel_event(config)),
            "cycles": In(32),
            "units": In(32),
            "expired": Out(config.channels),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        timer = data.StructLayout({"units": 1, "due": 32})
        # Read combinationally on purpose (distributed RAM): a timer is looked at and armed
        # atomically.
        m.submodules.ram = ram = Memory(shape=timer, depth=1 << config.channel_bits, init=[])
        write, read = ram.write_port(), ram.read_port(domain="comb")
        turn, late, passed = Signal(range(config.channels)), Signal(32), Signal()
        armed = Signal(config.channels)
        m.d.comb += [
            write.addr.eq(self.arm.channel),
            write.data.units.eq(self.arm.units),
            write.data.due.eq(self.arm.due),
            write.en.eq(self.arm.valid),
            read.addr.eq(turn),
            late.eq(Mux(read.data.units, self.units, self.cycles) - read.data.due),
            passed.eq(Mux(read.data.units, ~late[31], ~late[23])),
        ]
        m.d.sync += turn.eq(Mux(turn == config.channels - 1, 0, turn + 1))
        for channel in range(config.channels):
            with m.If(self.arm.valid & (self.arm.channel == channel)):
                m.d.sync += [armed[channel].eq(1), self.expired[channel].eq(0)]
            with m.Elif(self.disarm.valid & (self.disarm.channel == channel)):
                m.d.sync += [armed[channel].eq(0), self.expired[channel].eq(0)]
            with m.Elif((turn == channel) & armed[channel] & passed):
                m.d.sync += self.expired[channel].eq(1)
        return m
