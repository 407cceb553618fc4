"""Which list of the running context is the highest that holds a task (ASID-23)."""

from amaranth.hdl import Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import PRIORITIES, Config
from signalbox.hw.lib.onehot import lowest_number

__all__ = ["HighestLevel", "highest_level"]

highest_level = data.StructLayout({"valid": 1, "level": 6})
"""The highest list that holds a task, if one does."""


class HighestLevel(wiring.Component):
    """Two cycles later.

    Members
    -------
    waiting : for each level of each context, whether its list holds a task; see `Lists`.
    context : the one that runs.
    highest : of its lists.
    """

    def __init__(self, config: Config) -> None:
        super().__init__({
            "waiting": In(config.contexts * PRIORITIES),
            "context": In(config.context_bits),
            "highest": Out(highest_level),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        levels, downward = Signal(PRIORITIES), Signal(PRIORITIES)
        m.d.comb += [
            levels.eq(self.waiting.word_select(self.context, PRIORITIES)),
            downward.eq(levels[::-1]),
        ]
        valid, number = lowest_number(m, downward)
        m.d.sync += [self.highest.valid.eq(valid), self.highest.level.eq(~number)]
        return m
