"""Component map: contents of the bytes of a remapped line (HOST-16).

Source beats pass it before they are realigned, so the map costs ordinary copies no cycle, and the
realigner needs to know nothing but a write mask.

```
 settings by tag ─► expand to 16 bytes ─► base ─► current ── 1 step per beat
                                            └──────► index     │
 source beat ─► 16:1 per byte, inside its 16 bytes ─► or constant ─► data, mask
```

A line without a source repeats the element's bytes with a period of 16, 12 or 9: the least of these
that is a multiple of the element, whose size is 1, 2, 3, 4, 6, 8, 9, 12 or 16. `current` holds one
period from the next beat on, and a beat shifts it by the beat's size modulo the period, so each
beat is full whatever the element. Beats from a source are mapped only if the elements of both sides
have the same size, a power of two that divides the beat, and lie at multiples of it
(`RemapPlan`): then all groups of 16 bytes are mapped alike, at any width of the beat, with a 16:1
multiplexer per byte.
"""

from amaranth import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.copy import records
from signalbox.hw.copy.records import COPIES, TAG_BITS
from signalbox.hw.methods import RemapSource

__all__ = ["ComponentMap", "stored_settings"]

_GROUP = 16
"""Bytes of the largest element."""

_PERIODS = (16, 12, 9)

_ELEMENTS = {1: 16, 2: 16, 3: 12, 4: 16, 6: 12, 8: 16, 9: 9, 12: 12, 16: 16}
"""Period of each size of an element."""

_byte = data.StructLayout({"constant": 1, "source": 1, "value": 8})
"""Contents of a byte: `value`, a byte of the source, or neither: it is not written."""


def stored_settings() -> data.StructLayout:
    """Strobe: settings of copy `tag`."""
    return data.StructLayout({"valid": 1, "tag": TAG_BITS, "value": records.remap_settings()})


class ComponentMap(wiring.Component):
    """Replaces source bytes by those of other components or constants, and masks NO_WRITE (HOST-16;
    clc7b5.h SET_REMAP_COMPONENTS).

    `data` and `mask` are combinational. Constants of a component are its low bytes, little endian.

    Members
    -------
    settings : stores the settings of a copy.
    load : level, loads those of copy `tag`; `loaded` 3 cycles later.
    tag : see `load`.
    loaded : the settings are those of `tag`; until `restart`.
    restart : strobe, the next beat is the first of a line.
    advance : strobe, the beat is taken.
    beat : a source beat.
    remap : the line is remapped; else `data` is `beat`.
    sourceless : the line has no source: components from the source are not written.
    data : the beat's contents.
    mask : bytes of `data` to be written.
    """

    def __init__(self, config: Config) -> None:
        super().__init__({
            "settings": In(stored_settings()),
            "load": In(1),
            "tag": In(TAG_BITS),
            "loaded": Out(1),
            "restart": In(1),
            "advance": In(1),
            "beat": In(config.data_width),
            "remap": In(1),
            "sourceless": In(1),
            "data": Out(config.data_width),
            "mask": Out(config.beat_bytes),
        })
        self.config = config

    def elaborate(self, platform) -> Module:
        m = Module()
        self.chosen = Signal(records.remap_settings())
        self.element = Signal(data.ArrayLayout(_byte, _GROUP))
        self.within = Signal(data.ArrayLayout(4, _GROUP))
        """Bytes of one element; the place in the source element of those from the source."""
        self.base = Signal(data.ArrayLayout(_byte, _GROUP))
        self.current = Signal(data.ArrayLayout(_byte, _GROUP))
        self.index = Signal(data.ArrayLayout(4, _GROUP))
        """Place of a byte's source among its 16 bytes."""
        self.period = Signal(range(len(_PERIODS)))
        self._load(m)
        self._expand(m)
        self._repeat(m)
        self._step(m)
        self._map(m)
        return m

    def _load(self, m: Module) -> None:
        """Reads the settings, and times the two stages of their expansion."""
        m.submodules.rows = rows = Memory(shape=records.remap_settings(), depth=COPIES, init=[])
        write, read = rows.write_port(), rows.read_port(domain="comb")
        settings = self.settings
        stages = Signal(2)
        m.d.comb += [
            write.en.eq(settings.valid),
            write.addr.eq(settings.tag),
            write.data.eq(settings.value),
            read.addr.eq(self.tag),
        ]
        with m.If(self.load):
            m.d.sync += self.chosen.eq(read.data)
        m.d.sync += [
            stages.eq(Mux(self.load, Cat(self.load, stages), 0)),
            self.loaded.eq(self.load & stages.all()),
        ]
        with m.If(self.restart):
            m.d.sync += self.loaded.eq(0)

    def _expand(self, m: Module) -> None:
        """Bytes of an element with components of each size."""
        components = self.chosen.components
        constants = (self.chosen.const_a, self.chosen.const_b)
        with m.Switch(components.size):
            for size in (1, 2, 3, 4):
                with m.Case(size - 1):
                    for place in range(4 * size):
                        component, byte = divmod(place, size)
                        source = components.dst[component]
                        first, second = (word.word_select(byte, 8) for word in constants)
                        m.d.sync += [
                            self.element[place].source.eq(source <= RemapSource.SRC_W),
                            self.element[place].constant.eq(
                                (source == RemapSource.CONST_A) | (source == RemapSource.CONST_B)
                            ),
                            self.element[place].value.eq(Mux(source[0], second, first)),
                            self.within[place].eq(source[:2] * size + byte),
                        ]

    def _repeat(self, m: Module) -> None:
        """Repeats the element up to the period."""
        components = self.chosen.components
        with m.Switch(Cat(components.size, components.targets)):
            for size in (1, 2, 3, 4):
                for targets in (1, 2, 3, 4):
                    with m.Case((targets - 1) << 2 | (size - 1)):
                        self._repeat_element(m, size * targets)

    def _repeat_element(self, m: Module, size: int) -> None:
        period = _ELEMENTS[size]
        m.d.sync += self.period.eq(_PERIODS.index(period))
        for place in range(period):
            first = place - place % size
            m.d.sync += self.base[place].eq(self.element[place % size])
            if period == _GROUP:
                m.d.sync += self.index[place].eq(self.within[place % size] + first)

    def _step(self, m: Module) -> None:
        """Moves on by one beat."""
        with m.If(self.restart):
            m.d.sync += self.current.eq(self.base)
        with m.Elif(self.advance):
            for place in range(_GROUP):
                m.d.sync += self.current[place].eq(self._at(place + self.config.beat_bytes))

    def _at(self, offset: int) -> Value:
        """Byte `offset` of the periodic contents."""
        contents = Value.cast(self.current[offset % _PERIODS[0]])
        for number, period in enumerate(_PERIODS[1:], 1):
            other = Value.cast(self.current[offset % period])
            contents = Mux(self.period == number, other, contents)
        return contents

    def _map(self, m: Module) -> None:
        beat_bytes = self.config.beat_bytes
        group = min(_GROUP, beat_bytes)
        for place in range(beat_bytes):
            contents = Signal(_byte, name=f"contents_{place}")
            first = place - place % group
            bytes_ = self.beat[8 * first : 8 * (first + group)]
            source = bytes_.word_select(self.index[place % group][: (group - 1).bit_length()], 8)
            replaced = Mux(contents.constant, contents.value, source)
            m.d.comb += [
                contents.eq(self._at(place)),
                self.data.word_select(place, 8).eq(
                    Mux(self.remap, replaced, self.beat.word_select(place, 8))
                ),
                self.mask[place].eq(
                    ~self.remap | contents.constant | (contents.source & ~self.sourceless)
                ),
            ]
