"""Semaphore operations of channels on ordinary memory: started here, waited for elsewhere."""

from amaranth.hdl import Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hw.config import Config
from hw.host.prefetch import channel_event
from hw.records import SemaphoreError, SemaphorePort, semaphore_request, semaphore_response

__all__ = ["Fences"]


class Fences(wiring.Component):
    """One operation of one channel at a time is under way; results are kept per channel, so that
    the next channel need not wait until this one is served again (COPY-3).

    Members
    -------
    port : the semaphore unit.
    begin : `request` of `channel`; only while `free`.
    collect : the channel has seen its result.
    clear : the channel starts anew; nothing of it is under way.
    free : nothing is under way. busy : per channel, its operation is.
    ended : per channel, its result is there.
    peek, result : the result of channel `peek`.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        super().__init__({
            "port": Out(SemaphorePort(config)),
            "begin": In(channel_event(config, request=semaphore_request(config))),
            "collect": In(channel_event(config)),
            "clear": In(channel_event(config)),
            "free": Out(1),
            "busy": Out(config.channels),
            "ended": Out(config.channels),
            "peek": In(config.channel_bits),
            "result": Out(semaphore_response()),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        busy, asked = Signal(), Signal()
        channel = Signal(config.channel_bits)
        passed = Signal(config.channels)
        errors = Signal(data.ArrayLayout(SemaphoreError, config.channels))
        answer = self.port.response
        m.d.comb += [
            self.free.eq(~busy),
            self.port.request.valid.eq(busy & ~asked),
            answer.ready.eq(busy),
            self.result.passed.eq(passed.bit_select(self.peek, 1)),
            self.result.error.eq(errors[self.peek]),
        ]
        with m.If(self.begin.valid):
            m.d.sync += [
                busy.eq(1),
                channel.eq(self.begin.channel),
                self.port.request.payload.eq(self.begin.request),
            ]
        with m.If(self.port.request.valid & self.port.request.ready):
            m.d.sync += asked.eq(1)
        with m.If(busy & answer.valid):
            m.d.sync += [busy.eq(0), asked.eq(0)]
        for number in range(config.channels):
            collected = self.collect.valid & (self.collect.channel == number)
            cleared = self.clear.valid & (self.clear.channel == number)
            m.d.comb += self.busy[number].eq(busy & (channel == number))
            with m.If(busy & answer.valid & (channel == number)):
                m.d.sync += [
                    self.ended[number].eq(1),
                    passed[number].eq(answer.payload.passed),
                    errors[number].eq(answer.payload.error),
                ]
            with m.Elif(collected | cleared):
                m.d.sync += self.ended[number].eq(0)
        return m
