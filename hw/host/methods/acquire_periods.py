"""Retry period and time-out of every channel's acquires, precomputed (spec 2.4)."""

from amaranth.hdl import Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.host.channel_settings import setting_event
from signalbox.hw.methods import AcquireTimer
from signalbox.hw.registers import channel_word

__all__ = ["AcquirePeriods"]


class AcquirePeriods(wiring.Component):
    """Stores the retry period and the time-out of every channel. The mantissa is shifted when
    ACQUIRE is written, not when an acquire fails.

    Members
    -------
    setting : in, writes of channel registers, see `setting_event`.
    channel : in, `channel_bits` bits: number of a channel; the outputs are those of this channel,
        one cycle later.
    retry : out, 24 bits: cycles between two reads of a semaphore in memory.
    timeout : out, 32 bits: units of 1,024 ns until an acquire times out.
    timeout_enable : out, the channel's acquires time out.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        super().__init__({
            "setting": In(setting_event(config)),
            "channel": In(config.channel_bits),
            "retry": Out(24),
            "timeout": Out(32),
            "timeout_enable": Out(1),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        spans = data.StructLayout({"retry": 24, "timeout": 32, "timeout_enable": 1})
        m.submodules.ram = ram = Memory(shape=spans, depth=1 << self._config.channel_bits, init=[])
        write, read = ram.write_port(), ram.read_port()
        timer = Signal(AcquireTimer)
        m.d.sync += [
            timer.eq(self.setting.value),
            write.addr.eq(self.setting.channel),
            write.en.eq(self.setting.valid & (self.setting.word == channel_word("ACQUIRE"))),
        ]
        m.d.comb += [
            write.data.retry.eq(timer.retry_man << timer.retry_exp),
            write.data.timeout.eq(timer.timeout_man << timer.timeout_exp),
            write.data.timeout_enable.eq(timer.timeout_enable),
            read.addr.eq(self.channel),
            self.retry.eq(read.data.retry),
            self.timeout.eq(read.data.timeout),
            self.timeout_enable.eq(read.data.timeout_enable),
        ]
        return m
