"""Which entry was not used for long: a tree of bits (ASID-11)."""

from amaranth.hdl import Cat, Const, Module, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["TreeRecency"]


class TreeRecency(wiring.Component):
    """Pseudo least recently used among a power of two of ways: every inner node of a binary tree
    remembers which of its halves was used last.

    Combinational from the state to `oldest`; one use per cycle.

    Members
    -------
    use : one-hot, the way that is used; 0 for none.
    oldest : one-hot, the way to replace.
    """

    def __init__(self, ways: int) -> None:
        if ways < 2 or ways & (ways - 1):
            raise ValueError(f"ways = {ways!r} is not a power of two of at least 2")
        self._ways = ways
        super().__init__({"use": In(ways), "oldest": Out(ways)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.d.comb += self.oldest.eq(self._node(m, 0, self._ways))
        return m

    def _node(self, m: Module, low: int, high: int) -> Value:
        """One-hot, the way of `low` … `high` - 1 to replace, of these."""
        if high - low == 1:
            return Const(1, 1)
        middle = (low + high) // 2
        upper = Signal(name=f"upper_{low}_{high}")
        used_low, used_high = self.use[low:middle].any(), self.use[middle:high].any()
        with m.If(used_low | used_high):
            m.d.sync += upper.eq(used_high)
        first, second = self._node(m, low, middle), self._node(m, middle, high)
        return Cat(first & upper.replicate(len(first)), second & (~upper).replicate(len(second)))
