"""Launches of kernels by warps of the timing core (NEST-10)."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.errors import CoreCause
from signalbox.hw.sm.port import block_launch, launch_answer, record_fault, record_page
from signalbox.hw.sm.timing.layouts import warp_launch, warp_wake

__all__ = ["LaunchUnit"]


class LaunchUnit(wiring.Component):
    """Launches kernels, one at a time. A warp continues once its launch is answered, whether it was
    accepted or refused. If the record's address is misaligned or out of range, nothing is launched
    and the warp fails, with MEMORY_ALIGNMENT or MEMORY_FAULT.

    Members
    -------
    i : in, stream of `warp_launch`; accepted while no launch is in progress.
    launch : out, see `SmPort`; 1 cycle after `i`.
    launched : in, see `SmPort`.
    wake : out, stream of `warp_wake`: warps that continue; 1 cycle after the answer, or after `i`
        if the address is wrong.
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
        launch, wake = self.launch, self.wake
        now = Signal(warp_launch(self._config))
        cause = Signal(CoreCause)
        m.d.comb += [
            launch.p.slot.eq(now.slot),
            launch.p.row.eq(now.row),
            launch.p.page.eq(record_page(now.va)),
            wake.p.warp.eq(now.warp),
            wake.p.row.eq(now.row),
            wake.p.wait.eq(Mux(cause == CoreCause.NONE, now.wait, 0)),
            wake.p.cause.eq(cause),
        ]
        with m.FSM():
            with m.State("IDLE"):
                m.d.comb += self.i.ready.eq(1)
                m.d.sync += [now.eq(self.i.p), cause.eq(record_fault(self.i.p.va))]
                with m.If(self.i.valid):
                    m.next = "LAUNCH"
                    with m.If(record_fault(self.i.p.va) != CoreCause.NONE):
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
                    m.next = "IDLE"
        return m
