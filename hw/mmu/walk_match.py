"""Comparators that coalesce page-table reads: which walks read the same entry (ASID-4)."""

from itertools import pairwise

from amaranth.hdl import Cat, Module, Signal, Value
from amaranth.lib import data

from signalbox.hw.mmu.page_table_entry import LEVELS, Depth
from signalbox.hw.mmu.records import PAGE_BITS, VPN_BITS

__all__ = ["WalkMatch"]

_CUTS = sorted({level.shift - PAGE_BITS for level in LEVELS} | {VPN_BITS})
"""Bit positions that divide a page number into the parts translated by each level. An entry is
identified by ASID and the upper parts, one more at each level."""


class WalkMatch:
    """Compares the pages of two walks, level by level.

    Parameters
    ----------
    one : a page, with `asid` and `vpn`.
    other : the other page, with `asid` and `vpn`.
    """

    def __init__(self, m: Module, one: data.View, other: data.View, name: str) -> None:
        self._pieces = Signal(len(_CUTS) - 1, name=name)
        pieces = [one.vpn[low:high] == other.vpn[low:high] for low, high in pairwise(_CUTS)]
        pieces[-1] &= one.asid == other.asid
        m.d.comb += self._pieces.eq(Cat(pieces))

    def at(self, depth: Value | Depth) -> Value:
        """Whether both walks read the same entry at that level."""
        depth, deepest = Value.cast(depth), len(LEVELS) - 1
        below = (depth < deepest - number for number in range(len(self._pieces)))
        return (self._pieces | Cat(below)).all()
