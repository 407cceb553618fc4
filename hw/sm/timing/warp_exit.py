"""End of a warp: report its fault, then its end."""

from amaranth.hdl import Const, Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.errors import CoreCause
from signalbox.hw.sm.port import core_fault

__all__ = ["WarpExit", "warp_last"]


def warp_last(config: Config) -> data.StructLayout:
    """A warp that ends, successfully if the cause of its fault is NONE. With preemption, `ends` is
    0 for a fault without the end of a warp."""
    ends = {"ends": 1} if config.preemption else {}
    return data.StructLayout({"warp": config.warp_bits, "fault": core_fault(config), **ends})


class WarpExit(wiring.Component):
    """Reports the fault of a warp, then its end. One warp at a time, registered.

    Members
    -------
    last : in, stream of `warp_last`.
    fault : out, stream of `core_fault`.
    end : out, stream of warp numbers: warps that have ended.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        super().__init__({
            "last": In(stream.Signature(warp_last(config))),
            "fault": Out(stream.Signature(core_fault(config))),
            "end": Out(stream.Signature(config.warp_bits)),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        last, fault, end = self.last, self.fault, self.end
        m.d.comb += last.ready.eq(~fault.valid & (~end.valid | end.ready))
        with m.If(end.ready):
            m.d.sync += end.valid.eq(0)
        ends = Signal(name="ends") if self._config.preemption else Const(1)
        with m.If(fault.valid & fault.ready):
            m.d.sync += [fault.valid.eq(0), end.valid.eq(ends)]
        with m.If(last.valid & last.ready):
            good = last.p.fault.cause == CoreCause.NONE
            m.d.sync += [
                fault.valid.eq(~good),
                end.valid.eq(good),
                fault.payload.eq(last.p.fault),
                end.payload.eq(last.p.warp),
            ]
            if self._config.preemption:
                m.d.sync += ends.eq(last.p.ends)
        return m
