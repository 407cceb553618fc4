"""Component map: contents of the bytes of a remapped line (HOST-16).

Source beats pass the map before realignment. It costs ordinary copies no cycle, and the realigner
needs only a write mask.

```
 settings ─► 1 byte per cycle ─► rows by tag ─► base ─► current ── 1 step per beat
                                      └───────► moves     │
 source beat ─► 8:1 per byte, inside its 16 bytes ─► or constant ─► data, mask
```

Lines without a source. They repeat the bytes of the element, whose size is 1, 2, 3, 4, 6, 8, 9, 12
or 16, with a period of 16, 12 or 9 bytes: one that is a multiple of the size. `current` holds one
period, from the next beat on. Each beat shifts it by the size of a beat modulo the period, so every
beat is full, whatever the size of the element.

Beats from a source. They are mapped only if the elements of both sides have the same size, a power
of two that divides the beat, and lie at multiples of it (`RemapPlan`). Then all groups of 16 bytes
are mapped alike, at any width of the beat. Inside the element, a byte moves by a multiple of the
component size, so its place and the place of its source differ (XOR) by one of 8 bit patterns.

A row holds the expanded settings of a copy. It is made when the copy is accepted, while earlier
copies move their bytes.
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

_MOVES = (0, 1, 2, 3, 4, 6, 8, 12)
"""Moves of a byte: place of its source XOR its own place. They differ in bits 3:2 with 4-byte
components, in 2:1 with 2-byte and in 1:0 with 1-byte components."""

_byte = data.StructLayout({"constant": 1, "source": 1, "value": 8})
"""Contents of a byte. `constant`: it is `value`. `source`: it comes from the source. Neither: it is
not written."""


_row = data.StructLayout({
    "bytes": data.ArrayLayout(_byte, _GROUP),
    "moves": data.ArrayLayout(range(len(_MOVES)), _GROUP),
    "period": range(len(_PERIODS)),
})
"""Expanded settings of a copy. `bytes`: contents of a line's first 16 bytes. `moves`: move of each
byte, as an index in `_MOVES`. `period`: index in `_PERIODS`."""


def stored_settings() -> data.StructLayout:
    """Strobe: settings of copy `tag`."""
    return data.StructLayout({"valid": 1, "tag": TAG_BITS, "value": records.remap_settings()})


class ComponentMap(wiring.Component):
    """Replaces source bytes by those of other components or constants, and masks NO_WRITE (HOST-16;
    clc7b5.h SET_REMAP_COMPONENTS).

    A component takes the low bytes of its constant, little endian.

    Members
    -------
    settings : in, strobe: stores the settings of a copy, see `stored_settings`; not while `busy`.
    busy : out, settings are being expanded, for 17 cycles.
    load : in, level: load the settings of copy `tag`; `loaded` 1 cycle later, or after their
        expansion.
    tag : in, `TAG_BITS` bits: tag of a copy, see `load`.
    loaded : out, the settings of `tag` are loaded; until `restart`.
    restart : in, strobe: the next beat is the first of a line.
    advance : in, strobe: the beat is taken.
    beat : in, as wide as memory: a source beat.
    remap : in, the line is remapped; else `data` is `beat`.
    sourceless : in, the line has no source: components from the source are not written.
    data : out, combinational, as wide as `beat`: the beat's contents.
    mask : out, combinational: write enable per byte of `data`.
    """

    def __init__(self, config: Config) -> None:
        super().__init__({
            "settings": In(stored_settings()),
            "busy": Out(1),
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
        self.made = Signal(_row)
        """The row being made; its bytes are shifted in at the top."""
        self.base = Signal(_row)
        self.current = Signal(data.ArrayLayout(_byte, _GROUP))
        self._load(m, self._make(m))
        self._step(m)
        self._map(m)
        return m

    def _load(self, m: Module, pending: Signal) -> None:
        """Reads a row."""
        m.submodules.rows = rows = Memory(shape=_row, depth=COPIES, init=[])
        write, read = rows.write_port(), rows.read_port(domain="comb")
        ready = Signal()
        m.d.comb += [
            write.en.eq(self.busy),
            write.addr.eq(self.making),
            write.data.eq(self.made),
            read.addr.eq(self.tag),
            ready.eq(self.load & ~(pending & (self.making == self.tag))),
        ]
        m.d.sync += self.loaded.eq(ready & ~self.restart)
        with m.If(ready):
            m.d.sync += self.base.eq(read.data)

    def _make(self, m: Module) -> Signal:
        """Makes a row, one byte per cycle. Returns whether a row is being made."""
        self.making = Signal(TAG_BITS)
        chosen = Signal(records.remap_settings())
        components = chosen.components
        place = Signal(range(_GROUP))
        start = Signal(range(_GROUP))
        component = Signal(2)
        byte = Signal(2)
        """Next byte to enter the row: its `place` in the row, the `start` of its element, its
        `component`, and its number in the component (`byte`)."""
        last = Signal()
        source = Signal(3)
        found = Signal(_byte)
        m.d.comb += [
            source.eq(Value.cast(components.dst).word_select(component, 3)),
            found.source.eq(~source[2]),
            found.constant.eq((source == RemapSource.CONST_A) | (source == RemapSource.CONST_B)),
            found.value.eq(Mux(source[0], chosen.const_b, chosen.const_a).word_select(byte, 8)),
        ]
        move = self._move(m, components.size, source[:2], place, start + byte)
        with m.If(self.settings.valid):
            m.d.sync += [
                self.busy.eq(1),
                self.making.eq(self.settings.tag),
                chosen.eq(self.settings.value),
                Cat(place, start, component, byte, last).eq(0),
            ]
        with m.Elif(last):
            m.d.sync += self.busy.eq(0)
        with m.Elif(self.busy):
            bytes_, moves = (Value.cast(self.made[name]) for name in ("bytes", "moves"))
            m.d.sync += [
                bytes_.eq(Cat(bytes_[len(found.as_value()) :], found)),
                moves.eq(Cat(moves[len(move) :], move)),
                place.eq(place + 1),
                last.eq(place == _GROUP - 1),
                byte.eq(byte + 1),
            ]
            with m.If(byte == components.size):
                m.d.sync += [byte.eq(0), component.eq(component + 1)]
                with m.If(component == components.targets):
                    m.d.sync += [component.eq(0), start.eq(place + 1)]
        threes = (components.size == 2) + (components.targets == 2)
        m.d.sync += self.made.period.eq(threes)
        return self.busy

    def _move(self, m: Module, size: Value, source: Value, place: Value, first: Value) -> Signal:
        """Index in `_MOVES` of a byte's move from component `source`; `first`: place of the
        corresponding byte of the first component."""
        move = Signal(range(len(_MOVES)))
        index = Signal(range(_GROUP))
        moved = Signal(range(_GROUP))
        shifted = Mux(size[1], source << 2, Mux(size[0], source << 1, source))
        m.d.comb += [index.eq(first + shifted), moved.eq(index ^ place)]
        with m.Switch(moved):
            for number, bits in enumerate(_MOVES):
                with m.Case(bits):
                    m.d.comb += move.eq(number)
        return move

    def _step(self, m: Module) -> None:
        """Moves on by one beat."""
        with m.If(self.restart):
            m.d.sync += self.current.eq(self.base.bytes)
        with m.Elif(self.advance):
            for place in range(_GROUP):
                m.d.sync += self.current[place].eq(self._at(place + self.config.beat_bytes))

    def _at(self, offset: int) -> Value:
        """Byte `offset` of the periodic contents."""
        contents = Value.cast(self.current[offset % _PERIODS[0]])
        for number, period in enumerate(_PERIODS[1:], 1):
            other = Value.cast(self.current[offset % period])
            contents = Mux(self.base.period == number, other, contents)
        return contents

    def _map(self, m: Module) -> None:
        beat_bytes = self.config.beat_bytes
        group = min(_GROUP, beat_bytes)
        for place in range(beat_bytes):
            contents = Signal(_byte, name=f"contents_{place}")
            source = Signal(8, name=f"source_{place}")
            with m.Switch(self.base.moves[place % group]):
                for number, bits in enumerate(_MOVES):
                    if bits < group:
                        with m.Case(number):
                            m.d.comb += source.eq(self.beat.word_select(place ^ bits, 8))
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
