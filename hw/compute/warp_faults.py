"""Collects warp faults and adds the address space of their kernel row."""

from amaranth.hdl import Cat, Module, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.lib.arbiter import SteadyRoundRobin
from signalbox.hw.lib.onehot import encode, select
from signalbox.hw.records.compute_control import warp_fault
from signalbox.hw.records.placement import kernel_word
from signalbox.hw.sm.faulty_blocks import sm_fault
from signalbox.hw.sm.row_asids import keep_asids

__all__ = ["WarpFaults"]

_OF_WARP = "row", "index", "block", "cause", "at", "va"


class WarpFaults(wiring.Component):
    """Collects warp faults and adds the address space of their kernel row. One per cycle, round
    robin among the SMs.

    Members
    -------
    kernel : in, kernel words; SPACE contains the ASID.
    sm : in, per SM: stream of `sm_fault`.
    rows : out, strobe per kernel row, with `fault`: a warp faulted.
    fault : out, strobe, a `warp_fault`, 1 cycle after the fault is taken from its SM.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        super().__init__({
            "kernel": In(kernel_word(config)),
            "sm": In(stream.Signature(sm_fault(config))).array(config.sms),
            "rows": Out(config.rows),
            "fault": Out(warp_fault(config)),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, fault = self._config, self.fault
        m.submodules.turns = turns = SteadyRoundRobin(config.sms)
        m.d.comb += [
            turns.requests.eq(Cat(one.valid for one in self.sm)),
            turns.advance.eq(1),
            [one.ready.eq(turns.grant[number]) for number, one in enumerate(self.sm)],
        ]
        words = (one.p.as_value() for one in self.sm)
        chosen = Signal(sm_fault(config))
        m.d.comb += [chosen.eq(select(turns.grant, words)), fault.asid.eq(self._space(m, chosen))]
        m.d.sync += [
            fault.valid.eq(turns.requests.any()),
            fault.sm.eq(encode(turns.grant)),
            [fault[name].eq(chosen[name]) for name in _OF_WARP],
        ]
        for number in range(config.rows):
            m.d.comb += self.rows[number].eq(fault.valid & (fault.row == number))
        return m

    def _space(self, m: Module, chosen: data.View) -> Value:
        """Address space of the row of the chosen fault, one cycle later."""
        read = keep_asids(m, self._config, self.kernel).read_port()
        m.d.comb += read.addr.eq(chosen.row)
        return read.data
