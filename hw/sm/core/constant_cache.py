"""Small read-only cache for instructions and kernel arguments (ASID-1)."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import VA_BITS, Config
from signalbox.hw.records.memory import MemoryStatus, read_beat
from signalbox.hw.sm.core.records import bits
from signalbox.hw.sm.port import core_request

__all__ = ["LINE_BYTES", "ReadOnlyCache", "cache_lookup"]

LINE_BYTES = 64


def cache_lookup(config: Config) -> data.StructLayout:
    """Look-up of a word by `warp` of `row`."""
    return data.StructLayout({
        "valid": 1,
        "warp": config.warp_bits,
        "row": config.row_bits,
        "va": VA_BITS,
    })


class ReadOnlyCache(wiring.Component):
    """Caches instructions or kernel arguments. Direct-mapped, with 64-byte lines, tagged by kernel
    row and address; one outstanding fill. The row is part of the index, too, so that kernels of one
    program do not evict each other: in four consecutive rows from a multiple of 4 on, words less
    than a quarter of the cache apart have different lines.

    The answer comes in the cycle after the look-up. A warp that misses repeats its look-up when
    `open`. A filled line is kept until the requesting warp has looked up again and given `release`;
    so every fill makes progress. A failed fill is reported to that warp only.

    Parameters
    ----------
    lines : number of lines, a power of two.
    word : width of a word in bits, 32 or 64.

    Members
    -------
    look : in, a look-up; without `wanted` in the next cycle, it has no effect but `release`.
    hit : out, in the next cycle: the line is valid.
    word : out, `word` bits, in the next cycle: the word.
    failed : out, in the next cycle: status of a failed fill.
    wanted : in, with the answer: the warp wants the word; a miss may start a fill.
    release : in, with the answer: a line that is kept for the warp need not be kept any longer.
    open : out, no fill is outstanding.
    drop : in, invalidate the lines of `row`. No fill of them may be outstanding. Behind the SM port
        there is none: a row's words come after its last warp has ended, and a warp waiting for a
        line, killed or not, ends only after the fill.
    request : out, stream of `core_request`: reads.
    beat : in, strobe, a `read_beat`: beats, all accepted at once.
    """

    def __init__(self, config: Config, lines: int, word: int) -> None:
        self._config, self._lines, self._width = config, lines, word
        self._beats = max(1, LINE_BYTES // config.beat_bytes)
        row = data.StructLayout({"valid": 1, "row": config.row_bits})
        beat = data.StructLayout({"valid": 1, "beat": read_beat(config)})
        super().__init__({
            "look": In(cache_lookup(config)),
            "hit": Out(1),
            "word": Out(word),
            "failed": Out(MemoryStatus),
            "wanted": In(1),
            "release": In(1),
            "open": Out(1),
            "drop": In(row),
            "request": Out(stream.Signature(core_request(config))),
            "beat": In(beat),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        self._low, self._index = bits(LINE_BYTES), bits(self._lines)
        self._valid = Signal(self._lines)
        self._rows = Signal(data.ArrayLayout(self._config.row_bits, self._lines))
        self._asked = Signal(cache_lookup(self._config))
        self._line = Signal(cache_lookup(self._config))
        """The current or last fill and its warp."""
        tag = data.StructLayout({"row": self._config.row_bits, "tag": VA_BITS - self._tag_at})
        m.submodules.tags = self._tags = memory.Memory(shape=tag, depth=self._lines, init=[])
        depth = self._lines * self._beats
        width = self._config.data_width
        m.submodules.data = self._data = memory.Memory(shape=width, depth=depth, init=[])
        self._answer(m)
        self._fill(m)
        return m

    @property
    def _tag_at(self) -> int:
        return bits(LINE_BYTES) + bits(self._lines)

    def _index_of(self, look: data.View) -> Value:
        """Line of a word. Rows with consecutive numbers differ in its upper bits."""
        width = self._tag_at - self._low
        row = look.row[:width][::-1]
        return look.va[self._low : self._tag_at] ^ Cat(Const(0, width - len(row)), row)

    def _answer(self, m: Module) -> None:
        look, asked, config = self.look, self._asked, self._config
        valid = Signal()
        tags, words = self._tags.read_port(), self._data.read_port()
        low = config.offset_bits
        m.d.sync += [
            asked.eq(look),
            # As of the read of the line; a fill completed in this cycle does not count.
            valid.eq(self._valid.bit_select(self._index_of(look), 1)),
        ]
        m.d.comb += [
            tags.addr.eq(self._index_of(look)),
            words.addr.eq(Cat(look.va[low : self._low], self._index_of(look))),
            self.hit.eq(
                valid & (tags.data.row == asked.row) & (tags.data.tag == asked.va[self._tag_at :])
            ),
            self.word.eq(
                words.data.word_select(asked.va[bits(self._width // 8) : low], self._width)
            ),
        ]

    def _fill(self, m: Module) -> None:
        asked, line = self._asked, self._line
        count = Signal(bits(self._beats))
        failed = Signal(MemoryStatus)
        keeper = Signal()
        begins = Signal()
        tags, words = self._tags.write_port(), self._data.write_port()
        index = self._index_of(line)
        beat = self.beat.beat
        m.d.comb += [
            keeper.eq(asked.valid & (asked.warp == line.warp)),
            begins.eq(asked.valid & ~self.hit & self.wanted),
            tags.addr.eq(index),
            tags.data.row.eq(line.row),
            tags.data.tag.eq(line.va[self._tag_at :]),
            words.addr.eq(Cat(count, index) if self._beats > 1 else index),
            words.data.eq(beat.data),
            self.request.p.row.eq(line.row),
            self.request.p.va.eq(Cat(Const(0, self._low), line.va[self._low :])),
            self.request.p.beats.eq(self._beats - 1),
        ]
        with m.FSM():
            with m.State("FREE"):
                m.d.comb += self.open.eq(1)
                with m.If(begins):
                    m.d.sync += [line.eq(asked), failed.eq(MemoryStatus.OK)]
                    m.next = "ASK"
            with m.State("ASK"):
                m.d.comb += [self.request.valid.eq(1), tags.en.eq(1)]
                m.d.sync += [
                    self._valid.bit_select(index, 1).eq(0),
                    self._rows[index].eq(line.row),
                    count.eq(0),
                ]
                with m.If(self.request.ready):
                    m.next = "FILL"
            with m.State("FILL"):
                m.d.comb += words.en.eq(self.beat.valid)
                with m.If(self.beat.valid):
                    m.d.sync += count.eq(count + 1)
                    bad = beat.status != MemoryStatus.OK
                    with m.If(bad & (failed == MemoryStatus.OK)):
                        m.d.sync += failed.eq(beat.status)
                    with m.If(beat.last):
                        good = ~bad & (failed == MemoryStatus.OK)
                        m.d.sync += self._valid.bit_select(index, 1).eq(good)
                        m.next = "KEPT"
            with m.State("KEPT"):
                m.d.comb += self.open.eq(1)
                with m.If(keeper):
                    m.d.comb += self.failed.eq(Mux(self.wanted, failed, MemoryStatus.OK))
                    with m.If(self.release):
                        m.next = "FREE"
        for index in range(self._lines):
            with m.If(self.drop.valid & (self._rows[index] == self.drop.row)):
                m.d.sync += self._valid[index].eq(0)
