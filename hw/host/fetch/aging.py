"""Aging of arrival stamps: bounds their age, so that circular comparisons stay correct.

The upper bits of a stamp are its era. Stamps of the third era before the present one are moved to
the beginning of the second era before it. So ages stay below half of the range, and stamps younger
than two eras are never changed. Every stamp must be checked once per era.
"""

from amaranth.hdl import C, Cat, Module, Signal, Value

from signalbox.hw.host.oldest_first import STAMP_BITS

__all__ = ["ERA", "Aging"]

_ERA_BITS = 3

ERA = 1 << (STAMP_BITS - _ERA_BITS)
"""Doorbells per era."""


class Aging:
    """Detects stale stamps and gives their replacement.

    now : count of doorbells; increments by at most one per cycle.
    """

    def __init__(self, m: Module, now: Value) -> None:
        self._stale = Signal(_ERA_BITS, name="stale_era", init=(1 << _ERA_BITS) - 3)
        self.floor = Signal(STAMP_BITS, name="floor", init=(1 << STAMP_BITS) - 2 * ERA)
        """Oldest stamp kept; replaces stale stamps."""
        era = now[-_ERA_BITS:]
        m.d.sync += [
            self._stale.eq(era - 3),
            self.floor.eq(Cat(C(0, STAMP_BITS - _ERA_BITS), (era - 2)[:_ERA_BITS])),
        ]

    def stale(self, stamp: Value) -> Value:
        """Whether `stamp` is too old to be kept."""
        return stamp[-_ERA_BITS:] == self._stale

    def keep(self, m: Module, stamp: Value) -> None:
        """Replaces the stamp in a register as soon as it is stale. Later assignments to the
        register in the same cycle win."""
        with m.If(self.stale(stamp)):
            m.d.sync += stamp.eq(self.floor)
