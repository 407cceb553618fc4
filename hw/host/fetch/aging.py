"""Age of arrival stamps: none may get so old that a circular comparison takes it for new.

The upper bits of a stamp are its era. The stamps of the third era before the present one are moved
to the beginning of the second before; so ages stay below half of the range, and stamps younger
than two eras are never touched. To be caught, a stamp has to be looked at once in every era.
"""

from amaranth.hdl import C, Cat, Module, Signal, Value

from signalbox.hw.host.oldest_first import STAMP_BITS

__all__ = ["ERA", "Aging"]

_ERA_BITS = 3

ERA = 1 << (STAMP_BITS - _ERA_BITS)
"""Doorbells of an era."""


class Aging:
    """Tells which stamps are stale, and gives the one that takes their place.

    now : count of doorbells; it may grow by one per cycle.
    """

    def __init__(self, m: Module, now: Value) -> None:
        self._stale = Signal(_ERA_BITS, name="stale_era", init=(1 << _ERA_BITS) - 3)
        self.floor = Signal(STAMP_BITS, name="floor", init=(1 << STAMP_BITS) - 2 * ERA)
        """The oldest stamp that is kept: what a stale one becomes."""
        era = now[-_ERA_BITS:]
        m.d.sync += [
            self._stale.eq(era - 3),
            self.floor.eq(Cat(C(0, STAMP_BITS - _ERA_BITS), (era - 2)[:_ERA_BITS])),
        ]

    def stale(self, stamp: Value) -> Value:
        """Whether `stamp` is too old to be kept."""
        return stamp[-_ERA_BITS:] == self._stale

    def keep(self, m: Module, stamp: Value) -> None:
        """Look at a register in every cycle; later assignments of the same cycle win."""
        with m.If(self.stale(stamp)):
            m.d.sync += stamp.eq(self.floor)
