"""A small design with the ports of the top level, and with trace events known in advance."""

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.bus.axi4 import Axi4
from signalbox.hw.config import Config
from signalbox.hw.errors import Cause
from signalbox.hw.trace import TracePort

__all__ = ["StandIn"]


class StandIn(wiring.Component):
    """When `control` becomes 1, it writes one beat of ones to 0x40, then raises `irq`.

    Meanwhile it traces one event of each kind of the host (doorbell, method, acquire, semaphore,
    start and end of a copy on engine 1, error), and the levels `served` and `floor`.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        super().__init__({
            "axi": Out(
                Axi4(addr_width=config.address_width, data_width=config.data_width, id_width=4)
            ),
            "control": In(1),
            "irq": Out(1),
            "trace": Out(TracePort(config)),
        })

    def elaborate(self, platform):
        m = Module()
        m.d.comb += [
            self.axi.awaddr.eq(0x40),
            self.axi.awsize.eq(self.config.offset_bits),
            self.axi.awburst.eq(1),
            self.axi.wdata.eq(-1),
            self.axi.wstrb.eq(-1),
            self.axi.wlast.eq(1),
            self.axi.bready.eq(1),
        ]
        trace = self.trace
        begin = Signal()
        with m.If(self.axi.awready):
            m.d.sync += self.axi.awvalid.eq(0)
        with m.If(self.axi.wready):
            m.d.sync += self.axi.wvalid.eq(0)
        with m.If(self.control & ~begin):
            m.d.sync += [begin.eq(1), self.axi.awvalid.eq(1), self.axi.wvalid.eq(1)]
            m.d.comb += [
                trace.doorbell.eq(-1),
                trace.method.eq(-1),
                trace.acquire.eq(-1),
                trace.semaphore.eq(-1),
                trace.start[1].eq(-1),
                trace.error.valid.eq(1),
                trace.error.cause.eq(Cause.FETCH_FAULT),
            ]
        m.d.comb += [
            trace.served.channel.eq(3),
            trace.served.valid.eq(self.axi.awvalid | self.axi.wvalid),
            trace.floor.channel.eq(2),
            trace.floor.valid.eq(begin),
        ]
        with m.If(self.axi.bvalid):
            m.d.sync += self.irq.eq(1)
            m.d.comb += trace.done[1].eq(-1)
        return m
