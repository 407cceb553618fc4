"""Which entry was not used for long: a tree of bits (ASID-11)."""

from collections.abc import Callable

from amaranth.hdl import Cat, Const, Module, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

__all__ = ["SetRecency", "TreeRecency"]

Node = Callable[[str, Value, Value], Value]
"""Makes the bit of one inner node, of that name: which half was used last. Written with the third
argument, whether it was the upper one, when the second is 1."""


def _oldest(node: Node, use: Value, low: int, high: int) -> Value:
    """One-hot, the way of `low` … `high` - 1 to replace, of these."""
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


class SetRecency(wiring.Component):
    """The same for each of many sets, in RAM.

    One use per cycle, which counts from the next cycle on; one look-up per cycle.

    Members
    -------
    used, use : a set, and its way that is used, one-hot; 0 for none.
    index : set to look up. oldest : one-hot, in the next cycle, its way to replace.
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
