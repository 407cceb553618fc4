"""Tree pseudo-LRU replacement (ASID-11)."""

from collections.abc import Callable

from amaranth.hdl import Cat, Const, Module, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

__all__ = ["SetPlru", "TreePlru"]

Node = Callable[[str, Value, Value], Value]
"""Makes the state bit of an inner node; 1: the upper half was used last. Arguments: name, write
enable, data."""


def _oldest(node: Node, use: Value, low: int, high: int) -> Value:
    """One-hot, the victim among ways `low` … `high` - 1."""
    if high - low == 1:
        return Const(1, 1)
    middle = (low + high) // 2
    used_low, used_high = use[low:middle].any(), use[middle:high].any()
    upper = node(f"upper_{low}_{high}", used_low | used_high, used_high)
    first, second = _oldest(node, use, low, middle), _oldest(node, use, middle, high)
    return Cat(first & upper.replicate(len(first)), second & (~upper).replicate(len(second)))


def _check(ways: int) -> None:
    if ways < 2 or ways & (ways - 1):
        raise ValueError(f"ways = {ways!r} is not a power of two of at least 2")


class TreePlru(wiring.Component):
    """Pseudo-LRU for a power of two of ways: each inner node of a binary tree remembers which of
    its halves was used last.

    `oldest` is combinational from the state; one use per cycle.

    Members
    -------
    use : in, per way, one-hot: the way used in this cycle; 0 for none.
    oldest : out, per way, one-hot: the victim.
    """

    def __init__(self, ways: int) -> None:
        _check(ways)
        self._ways = ways
        super().__init__({"use": In(ways), "oldest": Out(ways)})

    def elaborate(self, platform: object) -> Module:
        m = Module()

        def node(name: str, used: Value, high: Value) -> Value:
            upper = Signal(name=name)
            with m.If(used):
                m.d.sync += upper.eq(high)
            return upper

        m.d.comb += self.oldest.eq(_oldest(node, self.use, 0, self._ways))
        return m


class SetPlru(wiring.Component):
    """`TreePlru` for many sets, in RAM. One use and one look-up per cycle.

    Members
    -------
    used : in, 0 … `sets` - 1: number of the set of the use.
    use : in, per way, one-hot: the way used; 0 for none. Takes effect in the next cycle.
    index : in, 0 … `sets` - 1: number of the set of the look-up.
    oldest : out, per way, one-hot: the victim in that set, 1 cycle later.
    """

    def __init__(self, ways: int, sets: int) -> None:
        _check(ways)
        self._ways, self._sets = ways, sets
        bits = max(1, (sets - 1).bit_length())
        super().__init__({
            "used": In(bits),
            "use": In(ways),
            "index": In(bits),
            "oldest": Out(ways),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()

        def node(name: str, used: Value, high: Value) -> Value:
            m.submodules[name] = ram = Memory(shape=1, depth=self._sets, init=[])
            read, write = ram.read_port(), ram.write_port()
            m.d.comb += [
                read.addr.eq(self.index),
                write.en.eq(used),
                write.addr.eq(self.used),
                write.data.eq(high),
            ]
            return read.data

        m.d.comb += self.oldest.eq(_oldest(node, self.use, 0, self._ways))
        return m
