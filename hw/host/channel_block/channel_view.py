"""State of the access's channel, as its registers show it."""

from functools import reduce
from operator import or_

from amaranth.hdl import Module, Signal, Value, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.host.records import INDEX_BITS
from signalbox.hw.host.waits.compute_waits import COUNT_BITS
from signalbox.hw.lib.delayed import delayed
from signalbox.hw.records.channel import channel_event
from signalbox.hw.registers import CHANNEL, Wait

__all__ = ["ChannelView", "StatusPort"]

_WORDS = data.StructLayout({
    "CONTROL": 1,
    "STATUS": 32,
    "GP_PUT": INDEX_BITS,
    "GP_GET": INDEX_BITS,
})


class StatusPort(wiring.Signature):
    """State of the channels outside the channel registers.

    Members
    -------
    active : out, per channel, a copy, task, read, write-back or semaphore operation is outstanding.
    busy : out, per channel, it has entries that are not executed yet.
    serving : out, a channel is being served.
    served : out, its number; valid with `serving`.
    floor_valid : out, a channel is the floor, see `Scheduler`.
    floor : out, its number; valid with `floor_valid`.
    waits : out, per channel, its wait.
    copies : out, per channel, number of outstanding copies.
    tasks : out, per channel, number of outstanding tasks.
    """

    def __init__(self, config: Config) -> None:
        channels = config.channels
        super().__init__({
            "active": Out(channels),
            "busy": Out(channels),
            "serving": Out(1),
            "served": Out(config.channel_bits),
            "floor_valid": Out(1),
            "floor": Out(config.channel_bits),
            "waits": Out(data.ArrayLayout(Wait, channels)),
            "copies": Out(data.ArrayLayout(unsigned(4), channels)),
            "tasks": Out(data.ArrayLayout(unsigned(COUNT_BITS), channels)),
        })


class ChannelView(wiring.Component):
    """Selects the state of one channel. Owns the result of each channel's last acquire
    (STATUS.ACQUIRE_FAIL).

    Members
    -------
    channel : in, channel of the access.
    enabled, halted : in, per channel.
    recorded : in, per channel, its error record is complete.
    acquire : in, strobe: an acquire was decided.
    started : in, strobe: `channel` starts.
    status : in, state of the channels.
    peek_put, peek_get : in, its GP_PUT and GP_GET, one cycle after `channel`.
    is_enabled, is_halted, is_idle : out, of the channel; two cycles after `channel`.
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
            ("idle", ~self.status.active, self.is_idle),
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
            "FLOOR": status.floor_valid & (status.floor == channel),
            "SERVED": status.serving & (status.served == channel),
            "PENDING": status.busy.bit_select(channel, 1),
            "ACTIVE": status.active.bit_select(channel, 1),
            "WAIT": status.waits[channel].as_value(),
            "ACQUIRE_FAIL": self._acquire_failed(m).bit_select(channel, 1),
            "COPIES": status.copies[channel],
            "TASKS": status.tasks[channel],
        }
        found: dict[str, Value] = {"ENABLED": self.is_enabled, "HALTED": self.is_halted}
        for name, value in bits.items():
            found[name] = Signal(len(value), name=f"status_{name.lower()}")
            m.d.sync += found[name].eq(value)
        return reduce(or_, (value << register.field(name).lo for name, value in found.items()))

    def _acquire_failed(self, m: Module) -> Signal:
        """Per channel, its last acquire has failed."""
        failed = Signal(self._config.channels)
        decided = delayed(m, self.acquire, "decided")
        with m.If(decided.valid):
            m.d.sync += failed.bit_select(decided.channel, 1).eq(~decided.passed)
        with m.If(self.started):
            m.d.sync += failed.bit_select(self.channel, 1).eq(0)
        return failed
