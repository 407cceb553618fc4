"""Pause before failed acquires are repeated while no listed channel can proceed.

HOST-5, spec 2.3.
"""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.records.runlist import PRETEST_BITS

__all__ = ["AcquirePretest"]


class AcquirePretest(wiring.Component):
    """Holds back failed acquires for the first `period` cycles in which no listed channel can
    proceed and none is served. So TSGs that only poll are not scheduled again earlier.

    Members
    -------
    enable : in, runlists are used.
    period : in, `PRETEST_BITS` bits: number of cycles.
    busy : in, a listed channel can proceed, or a channel is served.
    polling : in, per channel, waits until it repeats an acquire with ACQUIRE_SWITCH_TSG.
    resting : out, registered, per channel: must not repeat its acquire yet.
    """

    def __init__(self, config: Config) -> None:
        self._channels = config.channels
        super().__init__({
            "enable": In(1),
            "period": In(PRETEST_BITS),
            "busy": In(1),
            "polling": In(config.channels),
            "resting": Out(config.channels),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        left = Signal(PRETEST_BITS)
        rests = Signal()
        m.d.comb += rests.eq(self.enable & ~self.busy & (left != 0))
        m.d.sync += self.resting.eq(Mux(rests, self.polling, 0))
        with m.If(self.busy):
            m.d.sync += left.eq(self.period)
        with m.Elif(left != 0):
            m.d.sync += left.eq(left - 1)
        return m
