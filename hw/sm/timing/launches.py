"""Launches of kernels by warps of the timing core (NEST-10)."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from signalbox.hw.config import Config
from signalbox.hw.errors import CoreCause
from signalbox.hw.lib.stream import StreamFIFO
from signalbox.hw.sm.port import block_launch, launch_answer, record_fault, record_page
from signalbox.hw.sm.timing.layouts import warp_launch, warp_wake

__all__ = ["Launches"]


class Launches(wiring.Component):
    """Launches kernels, one at a time, in the order in which the computing times of their warps
    expire. A warp continues after the answer, whatever it is; with a failure, MEMORY_ALIGNMENT or
    MEMORY_FAULT, if its record has a wrong address.

    Members
    -------
    i : in, stream of `warp_launch`; always accepted, as each warp has one at most.
    launch : out, see `SmPort`; 2 cycles after `i`, if no other launch is in progress.
    launched : in, see `SmPort`.
    wake : out, stream of `warp_wake`: warps whose launch has failed, or was answered, 1 cycle
        later.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        super().__init__({
            "i": In(stream.Signature(warp_launch(config))),
            "launch": Out(stream.Signature(block_launch(config))),
            "launched": In(launch_answer(config)),
            "wake": Out(stream.Signature(warp_wake(config))),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, launch, wake = self._config, self.launch, self.wake
        m.submodules.queue = queue = StreamFIFO(warp_launch(config), config.sm_warps + 1)
        connect(m, flipped(self.i), queue.i)
        first = queue.o.p
        cause = Signal(CoreCause)
        m.d.comb += [
            cause.eq(record_fault(first.va)),
            launch.p.slot.eq(first.slot),
            launch.p.row.eq(first.row),
            launch.p.page.eq(record_page(first.va)),
            wake.p.warp.eq(first.warp),
            wake.p.row.eq(first.row),
            wake.p.wait.eq(Mux(cause == CoreCause.NONE, first.wait, 0)),
            wake.p.cause.eq(cause),
            queue.o.ready.eq(wake.valid & wake.ready),
        ]
        with m.FSM():
            with m.State("NEXT"), m.If(queue.o.valid):
                m.next = "LAUNCH"
                with m.If(cause != CoreCause.NONE):
                    m.next = "WAKE"
            with m.State("LAUNCH"):
                m.d.comb += launch.valid.eq(1)
                with m.If(launch.ready):
                    m.next = "ANSWER"
            with m.State("ANSWER"), m.If(self.launched.valid):
                m.next = "WAKE"
            with m.State("WAKE"):
                m.d.comb += wake.valid.eq(1)
                with m.If(wake.ready):
                    m.next = "NEXT"
        return m
