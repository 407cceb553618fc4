"""Retry time and time-out of the held acquire (spec 2.4)."""

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.host.channel_settings import setting_event
from signalbox.hw.host.methods.acquire_periods import AcquirePeriods
from signalbox.hw.host.records import acquire_state
from signalbox.hw.records.channel import present_time

__all__ = ["AcquireDeadlines"]


class AcquireDeadlines(wiring.Component):
    """Times of the held acquire, in case it fails in this cycle. All are computed from the time of
    the previous cycle. `retry` and `timeout` are valid from the first cycle of a service on, `late`
    from the second.

    Times are compared modulo 2^32 units, so `late` is wrong for a channel that is next served more
    than 2^31 units (36 minutes) after its deadline.

    Members
    -------
    setting : in, writes of channel registers, see `setting_event`.
    select : in, `channel_bits` bits: number of the served channel, or of the one that would be
        served next, see `Service`.
    time : in, `present_time`.
    load : in, strobe: `state` is loaded.
    state : in, `acquire_state` of the served channel.
    retry : out, 32 bits: present time plus the retry period, in cycles.
    timeout : out, 32 bits: present time plus the time-out, in units of 1,024 ns.
    timed : out, the channel's acquires time out.
    late : out, the acquire has failed before and is past its deadline.
    unsettled : out, the acquire has failed before, and `late` is not valid yet.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        super().__init__({
            "setting": In(setting_event(config)),
            "select": In(config.channel_bits),
            "time": In(present_time),
            "load": In(1),
            "state": In(acquire_state),
            "retry": Out(32),
            "timeout": Out(32),
            "timed": Out(1),
            "late": Out(1),
            "unsettled": Out(1),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.periods = periods = AcquirePeriods(self._config)
        fresh = Signal()
        past = Signal()
        m.d.comb += [
            periods.setting.eq(self.setting),
            periods.channel.eq(self.select),
            self.timed.eq(periods.timeout_enable),
            self.late.eq(self.timed & self.state.failed & past),
            self.unsettled.eq(self.state.failed & fresh),
        ]
        m.d.sync += [
            self.retry.eq(self.time.cycles + periods.retry),
            self.timeout.eq(self.time.units + periods.timeout),
            past.eq(~(self.time.units - self.state.deadline)[31]),
            fresh.eq(self.load),
        ]
        return m
