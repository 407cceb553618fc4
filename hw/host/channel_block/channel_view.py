"""State of the access's channel, as its registers show it."""

from functools import reduce
from operator import or_

from amaranth.hdl import Module, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.host.copy_launcher import OutstandingCopies
from signalbox.hw.host.ports import Activity, ChannelState, Served
from signalbox.hw.host.records import INDEX_BITS
from signalbox.hw.host.scheduling.parking import Parked
from signalbox.hw.host.scheduling.scheduler import Floor
from signalbox.hw.host.waits.compute_waits import OutstandingTasks
from signalbox.hw.lib.delayed import delayed
from signalbox.hw.records.channel import channel_event
from signalbox.hw.registers import CHANNEL

__all__ = ["ChannelView", "StatusPort"]

_WORDS = data.StructLayout({
    "CONTROL": 1,
    "STATUS": 32,
    "GP_PUT": INDEX_BITS,
    "GP_GET": INDEX_BITS,
})


class StatusPort(wiring.Signature):
    """State of the channels in other units, for the channel registers.

    Members
    -------
    activity : out, channels that have outstanding operations (`active`).
    state : out, channels that have entries not executed yet (`busy`).
    served : out, the served channel.
    floor : out, the channel that has the floor.
    parked : out, the channels' `waits`.
    copies : out, number of outstanding copies per channel.
    tasks : out, number of outstanding tasks per channel.
    """

    def __init__(self, config: Config) -> None:
        super().__init__({
            "activity": Out(Activity(config)),
            "state": Out(ChannelState(config)),
            "served": Out(Served(config)),
            "floor": Out(Floor(config)),
            "parked": Out(Parked(config)),
            "copies": Out(OutstandingCopies(config)),
            "tasks": Out(OutstandingTasks(config)),
        })


class ChannelView(wiring.Component):
    """Selects the state of one channel. Owns the result of each channel's last acquire
    (STATUS.ACQUIRE_FAIL).

    Members
    -------
    channel : in, `channel_bits` bits: channel of the access.
    enabled, halted : in, per channel, see `ChannelControl`.
    recorded : in, per channel, its error record is complete.
    acquire : in, strobe: an acquire of `channel` was decided; `passed`: it held.
    started : in, strobe: `channel` starts.
    status : in, state of the channels.
    peek_put, peek_get : in, `INDEX_BITS` bits, one cycle after `channel`: its GP_PUT and GP_GET.
    is_enabled, is_halted, is_idle : out, two cycles after `channel`: its state.
    words : out, its registers, by name; two cycles after `channel`.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        channels = config.channels
        super().__init__({
            "channel": In(config.channel_bits),
            "enabled": In(channels),
            "halted": In(channels),
            "recorded": In(channels),
            "acquire": In(channel_event(config, passed=1)),
            "started": In(1),
            "status": In(StatusPort(config)),
            "peek_put": In(INDEX_BITS),
            "peek_get": In(INDEX_BITS),
            "is_enabled": Out(1),
            "is_halted": Out(1),
            "is_idle": Out(1),
            "words": Out(_WORDS),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        for name, bits, seen in (
            ("enabled", self.enabled, self.is_enabled),
            ("halted", self.halted & self.recorded, self.is_halted),
            ("idle", ~self.status.activity.active, self.is_idle),
        ):
            chosen = Signal(name=f"{name}_chosen")
            m.d.sync += [chosen.eq(bits.bit_select(self.channel, 1)), seen.eq(chosen)]
        put = Signal(INDEX_BITS)
        get = Signal(INDEX_BITS)
        m.d.sync += [put.eq(self.peek_put), get.eq(self.peek_get)]
        m.d.comb += [
            self.words["CONTROL"].eq(self.is_enabled),
            self.words["STATUS"].eq(self._status(m)),
            self.words["GP_PUT"].eq(put),
            self.words["GP_GET"].eq(get),
        ]
        return m

    def _status(self, m: Module) -> Value:
        channel, status, register = self.channel, self.status, CHANNEL["STATUS"]
        bits = {
            "FLOOR": status.floor.valid & (status.floor.channel == channel),
            "SERVED": status.served.active & (status.served.channel == channel),
            "PENDING": status.state.busy.bit_select(channel, 1),
            "ACTIVE": status.activity.active.bit_select(channel, 1),
            "WAIT": status.parked.waits[channel].as_value(),
            "ACQUIRE_FAIL": self._acquire_failed(m).bit_select(channel, 1),
            "COPIES": status.copies.counts[channel],
            "TASKS": status.tasks.counts[channel],
        }
        found: dict[str, Value] = {"ENABLED": self.is_enabled, "HALTED": self.is_halted}
        for name, value in bits.items():
            found[name] = Signal(len(value), name=f"status_{name.lower()}")
            m.d.sync += found[name].eq(value)
        return reduce(or_, (value << register.field(name).lo for name, value in found.items()))

    def _acquire_failed(self, m: Module) -> Signal:
        """Per channel: the last acquire has failed."""
        failed = Signal(self._config.channels)
        decided = delayed(m, self.acquire, "decided")
        with m.If(decided.valid):
            m.d.sync += failed.bit_select(decided.channel, 1).eq(~decided.passed)
        with m.If(self.started):
            m.d.sync += failed.bit_select(self.channel, 1).eq(0)
        return failed
