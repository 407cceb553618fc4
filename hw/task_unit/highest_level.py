"""Highest non-empty list of the running context (ASID-23)."""

from amaranth.hdl import Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.lib.onehot import lowest_number

__all__ = ["HighestLevel", "highest_level"]


def highest_level(config: Config) -> data.StructLayout:
    """The highest non-empty list, if any."""
    return data.StructLayout({"valid": 1, "level": config.level_bits})


class HighestLevel(wiring.Component):
    """Selects the highest non-empty list of the running context; latency two cycles.

    Members
    -------
    waiting : in, per level of each context: its list is not empty; see `TaskLists`.
    context : in, `context_bits` bits: the running context.
    highest : out, a `highest_level`: highest non-empty list of that context.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        super().__init__({
            "waiting": In(config.contexts * config.levels),
            "context": In(config.context_bits),
            "highest": Out(highest_level(config)),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        count, bits = self._config.levels, self._config.level_bits
        levels = Signal(count)
        downward = Signal(1 << bits)
        m.d.comb += [
            levels.eq(self.waiting.word_select(self.context, count)),
            downward.eq(levels[::-1] << (1 << bits) - count),
        ]
        valid, number = lowest_number(m, downward)
        m.d.sync += [self.highest.valid.eq(valid), self.highest.level.eq(~number)]
        return m
