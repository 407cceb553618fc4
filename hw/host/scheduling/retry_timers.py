"""Retry and time-out timers of parked channels (HOST-5, spec 2.4)."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.lib.delayed import delayed
from signalbox.hw.records.channel import channel_event, present_time

__all__ = ["RetryTimers", "TimerPort"]


class TimerPort(wiring.Signature):
    """Timer of the served channel, seen from the execution of methods.

    Members
    -------
    arm : out, strobe: `channel`'s timer expires at `due`, in cycles (`units` 0, compared in 24
        bits) or in units of 1,024 ns (`units` 1), both circular.
    disarm : out, strobe: `channel`'s timer is stopped.
    expired : in, per channel: its timer has expired; until armed or disarmed.
    """

    def __init__(self, config: Config) -> None:
        super().__init__({
            "arm": Out(channel_event(config, units=1, due=32)),
            "disarm": Out(channel_event(config)),
            "expired": In(config.channels),
        })


class RetryTimers(wiring.Component):
    """One timer per channel. There is one comparison per cycle, round robin, so a timer expires at
    most `channels` + 3 cycles late, provided that it was armed that long before.

    Members
    -------
    client : in, the execution of methods.
    time : in, `present_time`.
    resting : in, per channel: its timer must not expire yet.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        super().__init__({
            "client": In(TimerPort(config)),
            "time": In(present_time),
            "resting": In(config.channels),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        timer = data.StructLayout({"units": 1, "due": 32})
        # Combinational read (distributed RAM), so that a timer is checked and armed atomically.
        m.submodules.ram = ram = Memory(shape=timer, depth=1 << config.channel_bits, init=[])
        write, read = ram.write_port(), ram.read_port(domain="comb")
        turn = Signal(range(config.channels))
        # Both come late in their cycle, and take effect in the next one.
        arm, disarm = (
            delayed(m, self.client.arm, "armed_before"),
            delayed(m, self.client.disarm, "disarmed_before"),
        )
        # Pipeline registers: the timer read (`found`); its lateness.
        found = Signal(timer)
        late = Signal(32)
        in_units = Signal()
        # One-hot: channel of `found` (`looked`) and of `late` (`timed`), unless armed or disarmed
        # since.
        looked = Signal(config.channels)
        timed = Signal(config.channels)
        armed = Signal(config.channels)
        ran_out = Signal(config.channels)
        passed = Signal()
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
            late.eq(Mux(found.units, self.time.units, self.time.cycles) - found.due),
            in_units.eq(found.units),
        ]
        for channel in range(config.channels):
            arms = arm.valid & (arm.channel == channel)
            touched = arms | (disarm.valid & (disarm.channel == channel))
            m.d.comb += self.client.expired[channel].eq(
                ran_out[channel] & ~touched & ~self.resting[channel]
            )
            m.d.sync += [
                looked[channel].eq((turn == channel) & armed[channel] & ~touched),
                timed[channel].eq(looked[channel] & ~touched),
            ]
            with m.If(touched):
                m.d.sync += [armed[channel].eq(arms), ran_out[channel].eq(0)]
            with m.Elif(timed[channel] & passed):
                m.d.sync += ran_out[channel].eq(1)
        return m
