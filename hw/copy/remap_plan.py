"""Ways of executing a remapped copy (HOST-16)."""

from amaranth import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, enum, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import VA_BITS, Config
from signalbox.hw.methods import RemapSource
from signalbox.hw.records.copy import remap_components

__all__ = ["RemapPlan", "RemapWay", "run"]

_TARGETS = 4
"""Most destination components."""


class RemapWay(enum.Enum, shape=2):
    """How a remapped copy is executed."""

    COPY = 0
    """The components stay in place: an ordinary copy."""
    FILL = 1
    """No component comes from the source: lines without a source."""
    MAP = 2
    """`ComponentMap` moves bytes inside the beats of the source."""
    RUNS = 3
    """Each run of components of each element is a line; one line with all constants precedes
    them."""


run = data.StructLayout({"source": 4, "target": 4, "extent": 4})
"""Run: destination components that are adjacent in the source, too. `source`, `target`: its first
byte in the source element and in the destination element. `extent`: its bytes, minus 1."""


class RemapPlan(wiring.Component):
    """Chooses the way of a remapped copy, and finds its runs. Latency 1 cycle.

    The way is chosen once for the whole copy, so all of its lines must suit it.

    Members
    -------
    components : in, `remap_components` of the copy.
    src : in, 49 bits: source address.
    pitch : in, 32 bits: source pitch in bytes.
    single : in, the copy has one line.
    way : out, `RemapWay` of the copy.
    constants : out, with RUNS: a component is a constant.
    begins : out, per destination component: a run begins with it.
    runs : out, per destination component: the `run` that begins with it.
    source_bytes : out, 5 bits: bytes of a source element.
    target_bytes : out, 5 bits: bytes of a destination element.
    """

    def __init__(self, config: Config) -> None:
        super().__init__({
            "components": In(remap_components()),
            "src": In(VA_BITS),
            "pitch": In(32),
            "single": In(1),
            "way": Out(RemapWay),
            "constants": Out(1),
            "begins": Out(_TARGETS),
            "runs": Out(data.ArrayLayout(run, _TARGETS)),
            "source_bytes": Out(5),
            "target_bytes": Out(5),
        })
        self.config = config

    def elaborate(self, platform) -> Module:
        m = Module()
        components = self.components
        self.comes = Signal(_TARGETS)
        """Per destination component. `comes`: it comes from the source. `follows`: in the source,
        it directly follows the previous component."""
        self.follows = Signal(_TARGETS)
        fixed = Signal(_TARGETS)
        moves = Signal(_TARGETS)
        for number in range(_TARGETS):
            source, used = components.dst[number], components.targets >= number
            constant = (source == RemapSource.CONST_A) | (source == RemapSource.CONST_B)
            m.d.comb += [
                self.comes[number].eq(used & ~source[2]),
                fixed[number].eq(used & constant),
                moves[number].eq(used & (source != number)),
            ]
            if number:
                follows = source[:2] == components.dst[number - 1][:2] + 1
                m.d.comb += self.follows[number].eq(
                    self.comes[number - 1] & self.comes[number] & follows
                )
        same = Signal()
        m.d.comb += same.eq(components.sources == components.targets)
        m.d.sync += [
            self.constants.eq(fixed.any()),
            self.begins.eq(self.comes & ~self.follows),
            self.source_bytes.eq(self._bytes(components.sources) + components.size + 1),
            self.target_bytes.eq(self._bytes(components.targets) + components.size + 1),
        ]
        fits = self._fits(m)
        with m.If(~self.comes.any()):
            m.d.sync += self.way.eq(RemapWay.FILL)
        with m.Elif(same & ~moves.any()):
            m.d.sync += self.way.eq(RemapWay.COPY)
        with m.Elif(same & fits):
            m.d.sync += self.way.eq(RemapWay.MAP)
        with m.Else():
            m.d.sync += self.way.eq(RemapWay.RUNS)
        self._find_runs(m)
        return m

    def _bytes(self, number: Value) -> Value:
        """Bytes of `number` components."""
        size = self.components.size + Const(1, 3)
        return Mux(number[0], size, 0) + Mux(number[1], size << 1, 0)

    def _fits(self, m: Module) -> Value:
        """Whether the element size is a power of two that divides the beat, and elements are
        aligned to it."""
        components = self.components
        offset = Signal(4)
        m.d.comb += offset.eq(self.src[:4] | Mux(self.single, 0, self.pitch[:4]))
        fits = Signal()
        with m.Switch(Cat(components.size, components.targets)):
            for size in (1, 2, 4):
                for targets in (1, 2, 4):
                    element = size * targets
                    if element <= self.config.beat_bytes:
                        with m.Case((targets - 1) << 2 | (size - 1)):
                            m.d.comb += fits.eq((offset & (element - 1)) == 0)
        return fits

    def _find_runs(self, m: Module) -> None:
        components = self.components
        for number in range(_TARGETS):
            length = Signal(range(_TARGETS), name=f"length_{number}")
            """Components of the run, minus 1."""
            on = [self.follows[number + 1 : last + 1].all() for last in range(number + 1, _TARGETS)]
            m.d.comb += length.eq(sum(on, Const(0, 2)))
            found = self.runs[number]
            m.d.sync += [
                found.source.eq(self._bytes(components.dst[number][:2])),
                found.target.eq(self._bytes(Const(number, 2))),
                found.extent.eq(self._bytes(length) + components.size),
            ]
