"""Warps that cannot go on: which kernel row it is, and what is kept of the first of each row."""

from amaranth.hdl import Cat, Module
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.config import Config
from hw.lib.arbiter import SteadyRoundRobin
from hw.lib.onehot import encode, select
from hw.sm.port import core_fault

__all__ = ["WarpFaults", "warp_fault"]


def warp_fault(config: Config) -> data.StructLayout:
    """What a warp told when it could not go on, and on which SM."""
    return data.StructLayout({"valid": 1, "sm": config.sm_bits, "what": core_fault(config)})


class WarpFaults(wiring.Component):
    """Takes one per cycle, the SMs in turn.

    Members
    -------
    sm : what warps of each SM tell.
    rows : strobe, per kernel row: a warp of it cannot go on. fault : strobe, the whole of it.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        super().__init__({
            "sm": In(stream.Signature(core_fault(config))).array(config.sms),
            "rows": Out(config.rows),
            "fault": Out(warp_fault(config)),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        fault = self.fault
        m.submodules.turns = turns = SteadyRoundRobin(self._config.sms)
        m.d.comb += [
            turns.requests.eq(Cat(one.valid for one in self.sm)),
            turns.advance.eq(1),
            [one.ready.eq(turns.grant[number]) for number, one in enumerate(self.sm)],
        ]
        chosen = select(turns.grant, (one.p.as_value() for one in self.sm))
        m.d.sync += [
            fault.valid.eq(turns.requests.any()),
            fault.sm.eq(encode(turns.grant)),
            fault.what.eq(data.View(core_fault(self._config), chosen)),
        ]
        for number in range(self._config.rows):
            m.d.comb += self.rows[number].eq(fault.valid & (fault.what.row == number))
        return m
