"""Limits of the slots held by a context's tasks (HOST-9: SET_CWD_SLOT_COUNT)."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.records.launch import slot_limit

__all__ = ["SlotLimits"]


class SlotLimits(wiring.Component):
    """Stores the slot limit of each context, and outputs that of the running context.

    Members
    -------
    limit : in, strobe, a `slot_limit`: new limit of a context.
    context : in, `context_bits` bits: the running context.
    most : out, 0 … `slots`, one cycle later: limit of that context.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        super().__init__({
            "limit": In(slot_limit(config)),
            "context": In(config.context_bits),
            "most": Out(range(config.slots + 1)),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        slots, limit = self._config.slots, self.limit
        limits = Signal(data.ArrayLayout(range(slots + 1), self._config.contexts))
        with m.If(limit.valid):
            all_slots = (limit.count == 0) | (limit.count > slots)
            m.d.sync += limits[limit.context].eq(Mux(all_slots, 0, limit.count))
        chosen = Signal.like(self.most)
        m.d.comb += chosen.eq(limits[self.context])
        m.d.sync += self.most.eq(Mux(chosen == 0, slots, chosen))
        return m
