"""Coalescer: merges the lanes of a row that access the same line."""

from collections.abc import Iterable

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import VA_BITS, Config
from signalbox.hw.errors import CoreCause
from signalbox.hw.lib.onehot import lowest, select
from signalbox.hw.sm.core.records import access_row, bits, dest_bits

__all__ = ["Coalescer", "access", "checked_row", "first_failure", "gathered_words", "of_lowest"]


def checked_row(config: Config) -> data.StructLayout:
    """A row of a memory instruction; with a `cause`, no lane is active."""
    return data.StructLayout({
        "row": access_row(config),
        "cause": CoreCause,
        "va": VA_BITS,
    })


def access(config: Config, words: int) -> data.StructLayout:
    """An access to one line of `words` words. `mask`: its lanes, 0 for no access; `places`: word of
    each lane. `data`, `strobe`: words to be stored, and their enables. `last`: last access of its
    instruction. `va`: address of the line or, with a `cause`, of the failure."""
    return data.StructLayout({
        "warp": config.warp_bits,
        "row": config.row_bits,
        "slot": config.block_bits,
        "transfer": 1,
        "store": 1,
        "last": 1,
        "cause": CoreCause,
        "va": VA_BITS,
        "dest": dest_bits(config),
        "mask": config.lanes,
        "places": data.ArrayLayout(bits(words), config.lanes),
        "data": data.ArrayLayout(32, words),
        "strobe": words,
    })


def gathered_words(m: Module, row: data.View, one: data.View, words: Value) -> None:
    """Distribute the `words` of a line that was read to the lanes of a register file row."""
    count = len(words) // 32
    line = Signal(data.ArrayLayout(32, count), name="line")
    m.d.comb += [line.eq(words), row.dest.eq(one.dest), row.mask.eq(one.mask)]
    for lane in range(len(one.mask)):
        place = Signal(count, name=f"place{lane}")
        m.d.comb += [
            place.eq(Cat(one.places[lane] == n for n in range(count))),
            row.words[lane].eq(select(place, list(line))),
        ]


def first_failure(
    m: Module, out: stream.Interface, one: data.View, cause: Value, ends: Value
) -> None:
    """First failure among the accesses of an instruction, which end in order: payload of `out` in
    the cycle in which the last access ends. `one` is the current access, `cause` its result, `ends`
    a strobe at its end."""
    kept = Signal(out.payload.shape())
    earlier = kept.cause != CoreCause.NONE
    m.d.comb += [
        out.p.warp.eq(one.warp),
        out.p.transfer.eq(one.transfer),
        out.p.cause.eq(Mux(earlier, kept.cause, cause)),
        out.p.va.eq(Mux(earlier, kept.va, one.va)),
    ]
    with m.If(ends):
        m.d.sync += kept.eq(out.payload)
        with m.If(one.last):
            m.d.sync += kept.cause.eq(CoreCause.NONE)


def of_lowest(m: Module, bits: Value, words: Iterable[Value], name: str) -> Value:
    """The word of the lowest bit set, 0 if none."""
    first = Signal(len(bits), name=name)
    m.d.comb += first.eq(lowest(bits))
    return select(first, words)


class Coalescer(wiring.Component):
    """Merges the lanes of a row that access the same line. One access per cycle for rows that need
    a single one, otherwise one every other cycle. Among lanes storing to the same word, the highest
    wins. A row without active lanes produces an access only if it is the last of its instruction,
    or failed.

    Parameters
    ----------
    words : 32-bit words of a line, a power of two.

    Members
    -------
    i : in, stream of `checked_row`.
    o : out, stream of `access`, in order.
    taken : out, strobe: the last row of an instruction was accepted.
    """

    def __init__(self, config: Config, words: int) -> None:
        self._config, self._words = config, words
        self._low = 2 + (words - 1).bit_length()
        super().__init__({
            "i": In(stream.Signature(checked_row(config))),
            "o": Out(stream.Signature(access(config, words))),
            "taken": Out(1),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        held = Signal()
        row = Signal(checked_row(config))
        lead = Signal(VA_BITS - self._low)
        pending = Signal(config.lanes)
        known = Signal()
        lines = [lane.va[self._low : VA_BITS] for lane in row.row.lanes]
        match = Signal(config.lanes)
        rest = Signal(config.lanes)
        silent = Signal()
        ends = Signal()
        moves = Signal()
        quiet = ~row.row.last & (row.cause == CoreCause.NONE)
        m.d.comb += [
            *(match[n].eq(pending[n] & (line == lead)) for n, line in enumerate(lines)),
            rest.eq(pending & ~match),
            silent.eq(~pending.any() & quiet),
            self.o.valid.eq(held & known & ~silent),
            moves.eq(held & known & (silent | self.o.ready)),
            ends.eq(moves & ~rest.any()),
            self.i.ready.eq(~held | ends),
            self.taken.eq(self.i.valid & self.i.ready & self.i.p.row.last),
        ]
        active = Signal(config.lanes)
        entering = [lane.va[self._low : VA_BITS] for lane in self.i.p.row.lanes]
        m.d.comb += [active[n].eq(lane.active) for n, lane in enumerate(self.i.p.row.lanes)]
        with m.If(self.i.ready):
            m.d.sync += [
                held.eq(self.i.valid),
                row.eq(self.i.payload),
                pending.eq(active),
                known.eq(1),
                lead.eq(of_lowest(m, active, entering, "first_active")),
            ]
        with m.Elif(moves):
            m.d.sync += [pending.eq(rest), known.eq(0)]
        with m.Elif(held):
            m.d.sync += [known.eq(1), lead.eq(of_lowest(m, pending, lines, "first_pending"))]
        self._offer(m, row, match, lead, rest)
        return m

    def _offer(self, m: Module, row: data.View, match: Value, lead: Value, rest: Value) -> None:
        out, source = self.o.p, row.row
        for name in ("warp", "transfer", "store", "dest"):
            m.d.comb += out[name].eq(source[name])
        m.d.comb += [
            out.row.eq(source.place.row),
            out.slot.eq(source.place.slot),
            out.last.eq(source.last & ~rest.any()),
            out.cause.eq(row.cause),
            out.va.eq(Mux(row.cause == CoreCause.NONE, lead << self._low, row.va)),
            out.mask.eq(match),
        ]
        places = [lane.va[2 : self._low] for lane in source.lanes]
        m.d.comb += [out.places[n].eq(place) for n, place in enumerate(places)]
        for word in range(self._words):
            # Reversed, so that the highest lane wins.
            mine = Signal(len(match), name=f"mine{word}")
            datas = [lane.data for lane in source.lanes][::-1]
            m.d.comb += [
                *(mine[~n].eq(match[n] & (place == word)) for n, place in enumerate(places)),
                out.strobe[word].eq(mine.any()),
                out.data[word].eq(of_lowest(m, mine, datas, f"highest{word}")),
            ]
