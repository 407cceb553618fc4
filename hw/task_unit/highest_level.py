"""Highest non-empty list of the running context (ASID-23)."""

from amaranth.hdl import Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import PRIORITIES, Config
from signalbox.hw.lib.onehot import lowest_number

__all__ = ["HighestLevel", "highest_level"]

highest_level = data.StructLayout({"valid": 1, "level": 6})
"""The highest non-empty list, if any."""


class HighestLevel(wiring.Component):
    """Selects the highest non-empty list of the running context; latency two cycles.

    Members
    -------
    waiting : in, per level of each context: its list is not empty; see `TaskLists`.
    context : in, the running context.
    highest : out, its highest non-empty list.
    """

    def __init__(self, config: Config) -> None:
        super().__init__({
            "waiting": In(config.contexts * PRIORITIES),
            "context": In(config.context_bits),
            "highest": Out(highest_level),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        levels = Signal(PRIORITIES)
        downward = Signal(PRIORITIES)
        m.d.comb += [
            levels.eq(self.waiting.word_select(self.context, PRIORITIES)),
            downward.eq(levels[::-1]),
        ]
        valid, number = lowest_number(m, downward)
        m.d.sync += [self.highest.valid.eq(valid), self.highest.level.eq(~number)]
        return m
