"""Retry and time-out timers of parked channels (HOST-5, spec 2.4)."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.lib.delayed import delayed
from signalbox.hw.records.channel import channel_event

__all__ = ["RetryTimers"]


class RetryTimers(wiring.Component):
    """One timer per channel; one comparison per cycle goes round the channels, so a timer is late
    by at most `channels` + 3 cycles if it was armed that long before.

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
        turn = Signal(range(config.channels))
        # Both come late, and are carried out in the next cycle.
        arm, disarm = (
            delayed(m, self.arm, "armed_before"),
            delayed(m, self.disarm, "disarmed_before"),
        )
        # Registers, one stage after the other: the timer that was looked at, and how late it is.
        found = Signal(timer)
        late, in_units = Signal(32), Signal()
        # One-hot: whose it is, if it was not touched since.
        looked, timed = Signal(config.channels), Signal(config.channels)
        armed, ran_out, passed = Signal(config.channels), Signal(config.channels), Signal()
        m.d.comb += [
            write.addr.eq(arm.channel),
            write.data.units.eq(arm.units),
            write.data.due.eq(arm.due),
            write.en.eq(arm.valid),
            read.addr.eq(turn),
            passed.eq(Mux(in_units, ~late[31], ~late[23])),
        ]
        m.d.sync += [
            turn.eq(Mux(turn == config.channels - 1, 0, turn + 1)),
            found.eq(read.data),
            late.eq(Mux(found.units, self.units, self.cycles) - found.due),
            in_units.eq(found.units),
        ]
        for channel in range(config.channels):
            arms = arm.valid & (arm.channel == channel)
            touched = arms | (disarm.valid & (disarm.channel == channel))
            m.d.comb += self.expired[channel].eq(ran_out[channel] & ~touched)
            m.d.sync += [
                looked[channel].eq((turn == channel) & armed[channel] & ~touched),
                timed[channel].eq(looked[channel] & ~touched),
            ]
            with m.If(touched):
                m.d.sync += [armed[channel].eq(arms), ran_out[channel].eq(0)]
            with m.Elif(timed[channel] & passed):
                m.d.sync += ran_out[channel].eq(1)
        return m
