"""Combinational dependences of outputs on inputs (`hw.lib.comb_paths`)."""

from collections.abc import Callable

import pytest
from amaranth.hdl import Cat, ClockSignal, Fragment, Instance, Module, Mux, ResetSignal, Signal
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.lib.amaranth_private import Netlist, convert
from signalbox.hw.lib.comb_paths import follows
from signalbox.hw.lib.flat_ports import ports

Write = Callable[[Module, wiring.Component], object]


class Any(wiring.Component):
    """Inputs `a`, `b`, `c` and outputs `y`, `z` of 4 bits, with the logic added by `write`."""

    a: In(4)
    b: In(4)
    c: In(4)
    y: Out(4)
    z: Out(4)

    def __init__(self, write: Write) -> None:
        self._write = write
        super().__init__()

    def elaborate(self, platform: object) -> Module:
        m = Module()
        self._write(m, self)
        return m


def bits(m: Module, d: Any) -> None:
    m.d.comb += [d.y.eq(Cat(d.a[:2], d.b[2:])), d.z.eq(d.y[:2])]


def choice(m: Module, d: Any) -> None:
    m.d.comb += d.y.eq(Mux(d.a[0], d.b, 5))
    with m.If(d.a == 3):
        m.d.comb += d.z[0].eq(d.c[0])


def register(m: Module, d: Any) -> None:
    m.d.sync += d.y.eq(d.a + d.b)
    m.d.comb += d.z.eq(d.y ^ d.c)


def memories(m: Module, d: Any) -> None:
    m.submodules.words = words = memory.Memory(shape=4, depth=16, init=[])
    write, now, next_ = words.write_port(), words.read_port(domain="comb"), words.read_port()
    m.d.comb += [
        write.data.eq(d.c),
        write.en.eq(1),
        now.addr.eq(d.a),
        next_.addr.eq(d.b),
        d.y.eq(now.data),
        d.z.eq(next_.data),
    ]


def parts(m: Module, d: Any) -> None:
    m.submodules.inner = inner = Any(bits)
    m.d.comb += [inner.a.eq(d.c), inner.b.eq(d.a), d.y.eq(inner.y), d.z.eq(inner.z)]


def instance(m: Module, d: Any) -> None:
    clock = ("i", "clk", ClockSignal()), ("i", "rst", ResetSignal())
    m.submodules.other = Instance(
        "other", *clock, ("i", "a", d.a), ("i", "b", d.b), ("o", "y", d.y)
    )


def own_paths(m: Module, d: Any) -> None:
    """Output `y` of the instance feeds its input `b`, without a loop, as `y` follows `a` alone."""
    z = Signal(4)
    m.submodules.known = Instance(
        "known", ("i", "a", d.a), ("i", "b", d.y), ("o", "y", d.y), ("o", "z", z)
    )
    m.d.comb += d.z.eq(z & d.c)


def long_way(m: Module, d: Any) -> None:
    """A path longer than Python's stack allows for recursion."""
    value = d.a
    for _ in range(3000):
        before, value = value, Signal(4)
        m.d.comb += value.eq(before ^ d.b)
    m.d.comb += d.y.eq(value)


def nothing(m: Module, d: Any) -> None:
    m.d.comb += d.y.eq(3)


KNOWN = {"known": {"y": ["a"], "z": ["b"]}}
"""Paths of the instance of `own_paths`."""


def netlist(write: Write) -> Netlist:
    design = Any(write)
    whole = Fragment.get(design, None).prepare(ports(design))
    return convert(whole, "any")[1]


@pytest.mark.parametrize(
    ("write", "y", "z"),
    [
        (bits, "ab", "a"),
        (choice, "ab", "ac"),
        (register, "", "c"),
        (memories, "a", ""),
        (parts, "ac", "c"),
        (instance, "ab", ""),
        (own_paths, "a", "ac"),
        (long_way, "ab", ""),
        (nothing, "", ""),
    ],
)
def test_follows(write: Write, y: str, z: str) -> None:
    """Dependences are found per bit, through submodules, asynchronous reads and the paths of known
    modules, and not through state."""
    assert follows(netlist(write), KNOWN) == {"y": [*y], "z": [*z]}


def test_loop() -> None:
    """A loop through an instance ends the search with an error."""
    with pytest.raises(ValueError, match="combinational loop through an instance"):
        follows(netlist(own_paths), {})
