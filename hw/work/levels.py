"""Which list of the running context is the highest that holds a task (ASID-23)."""

from amaranth.hdl import Cat, Module, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hw.config import PRIORITIES, Config
from hw.lib.onehot import encode, lowest, select

__all__ = ["HighestLevel", "highest_level"]

highest_level = data.StructLayout({"valid": 1, "level": 6})
"""The highest list that holds a task, if one does."""


_GROUP = 8
"""Levels among which one cycle chooses."""


class HighestLevel(wiring.Component):
    """Two cycles later: the highest of each group of levels, then the highest group.

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
        levels, some = Signal(PRIORITIES), Signal(PRIORITIES // _GROUP)
        m.d.comb += levels.eq(self.waiting.word_select(self.context, PRIORITIES))
        places, which = [], Signal(len(some))
        for group in range(len(some)):
            among, place = Signal(_GROUP), Signal(range(_GROUP), name=f"place_{group}")
            m.d.comb += among.eq(levels.word_select(group, _GROUP))
            m.d.sync += [place.eq(_highest(m, among)), some[group].eq(among.any())]
            places.append(place)
        m.d.comb += which.eq(lowest(some[::-1])[::-1])
        m.d.sync += [
            self.highest.valid.eq(some.any()),
            self.highest.level.eq(Cat(select(which, places), encode(which))),
        ]
        return m


def _highest(m: Module, bits: Value) -> Value:
    """Number of the highest set bit."""
    first = Signal(len(bits), name="first")
    m.d.comb += first.eq(lowest(bits[::-1])[::-1])
    return encode(first)
