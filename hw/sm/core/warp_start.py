"""Start of a warp: registers, thread positions, first instruction."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import VA_BITS, WARP_THREADS, Config
from signalbox.hw.records.placement import KernelWord
from signalbox.hw.sm.core.kernel_rows import word_look
from signalbox.hw.sm.core.records import (
    THREAD_BITS,
    context_write,
    place,
    row_count,
    thread,
    thread_look,
)
from signalbox.hw.sm.core.warp_scheduler import warp_event
from signalbox.hw.sm.port import warp_start
from signalbox.hw.sm.warp_fates import warp_fate, warp_number

__all__ = ["WarpStart"]

_WORDS = (
    KernelWord.PROGRAM_LOW,
    KernelWord.PROGRAM_HIGH,
    KernelWord.BLOCK_XY,
    KernelWord.BLOCK_Z,
)


class WarpStart(wiring.Component):
    """Starts a warp: finds the positions of its threads and allocates its registers, one warp at a
    time. That takes 7 cycles and those of a walk through the block's coordinates from the warp's
    first thread on: a row of threads per cycle if the block is at least `lanes` wide, otherwise a
    thread per cycle; the walk ends with the block. The first position continues from the previous
    warp if that was the last one started, otherwise it is computed by division, in 25 more cycles.
    Registers are allocated meanwhile, one unit per cycle.

    Members
    -------
    start : in, stream of `warp_start`; accepted when the warp starts.
    take : out, strobe: allocate the registers of `start`.
    free : in, an allocation may start.
    got : in, the allocation is complete.
    look : out, a kernel word, a `word_look`.
    word : in, 32 bits, 1 cycle later: its value.
    place : out, with `take`: `place` of the warp.
    at : out, block slot and number of the starting warp, a `warp_number`.
    fate : in, fate of the starting warp (`warp_fate`), 1 cycle later.
    over : out, strobe: the warp had ended before its block was saved.
    resume : out, strobe: the warp must be restored.
    write : out, without `over` and `resume`: first context of the warp, which makes it ready; held
        until `free_write`.
    free_write : in, `write` is possible in this cycle.
    forget : in, strobe: a block begins; do not continue from the previous warp.
    threads : in, a `thread_look`: a row of threads.
    thread : out, a `thread` per lane, 1 cycle later: their positions.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        super().__init__({
            "start": In(stream.Signature(warp_start(config))),
            "take": Out(1),
            "free": In(1),
            "got": In(1),
            "look": Out(word_look(config)),
            "word": In(32),
            "place": Out(place(config)),
            "at": Out(warp_number(config)),
            "fate": In(warp_fate),
            "over": Out(warp_event(config)),
            "resume": Out(warp_event(config)),
            "write": Out(context_write(config)),
            "free_write": In(1),
            "forget": In(1),
            "threads": In(thread_look(config)),
            "thread": Out(data.ArrayLayout(thread, config.lanes)),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        self._warp = Signal(warp_start(self._config))
        self._program = Signal(VA_BITS)
        self._size = Signal(data.ArrayLayout(16, 3))
        self._at = Signal(thread)
        self._lane = Signal(5)
        after = data.StructLayout({"valid": 1, "slot": self._config.block_bits, "index": 7})
        self._after = Signal(after)
        """Warp that has its first thread at `_at`, if any."""
        self._mask = Signal(WARP_THREADS)
        self._number = Signal(range(len(_WORDS) + 1))
        start, warp = self.start, self._warp
        follows = (
            self._after.valid & (self._after.slot == warp.slot) & (self._after.index == warp.index)
        )
        m.d.comb += [
            self.take.eq(start.valid & start.ready),
            self.place.row.eq(start.p.row),
            self.place.slot.eq(start.p.slot),
            self.place.index.eq(start.p.index),
            self.look.row.eq(warp.row),
            self.look.word.eq(_WORDS[0]),
        ]
        walks = Signal(name="walks")
        over = self._walk(m, walks)
        with m.FSM():
            with m.State("TAKE"):
                m.d.comb += start.ready.eq(self.free)
                m.d.sync += [warp.eq(start.payload), self._number.eq(0), self._mask.eq(0)]
                with m.If(start.valid & self.free):
                    m.next = "WORDS"
            with m.State("WORDS"):
                self._read_words(m)
                with m.If(self._number == len(_WORDS)):
                    m.next = "WALK"
                    with m.If(warp.index == 0):
                        m.d.sync += self._at.eq(0)
                    with m.Elif(~follows):
                        m.next = "DIVIDE"
            self._divide(m)
            with m.State("WALK"):
                m.d.comb += walks.eq(1)
                with m.If(over):
                    m.next = "RUN"
            with m.State("RUN"):
                goes, fate = self.got & ~self.fate.waits, self.fate
                m.d.comb += [
                    self.over.valid.eq(goes & fate.over),
                    self.resume.valid.eq(goes & ~fate.over & fate.saved),
                    self.write.valid.eq(goes & ~(fate.over | fate.saved)),
                ]
                writes = self.write.valid & self.free_write
                with m.If(self.over.valid | self.resume.valid | writes):
                    m.next = "TAKE"
        with m.If(self.forget):
            m.d.sync += self._after.valid.eq(0)
        return m

    def _read_words(self, m: Module) -> None:
        """One word per cycle, each available in the next."""
        for n, word in enumerate(_WORDS):
            with m.If(self._number == n):
                m.d.comb += self.look.word.eq(word)
        size, word = self._size, self.word
        with m.Switch(self._number):
            with m.Case(1):
                m.d.sync += self._program.eq(word)
            with m.Case(2):
                m.d.sync += self._program[32:].eq(word)
            with m.Case(3):
                m.d.sync += [size[0].eq(word[:16]), size[1].eq(word[16:])]
            with m.Case(4):
                m.d.sync += size[2].eq(word[:16])
        m.d.sync += self._number.eq(self._number + 1)

    def _divide(self, m: Module) -> None:
        """Two divisions, one bit per cycle: the first thread by the width, the lines by the
        height."""
        rest = Signal(THREAD_BITS + 1)
        quotient = Signal(THREAD_BITS)
        step = Signal(range(THREAD_BITS + 1))
        second = Signal()
        divisor = Mux(second, self._size[1], self._size[0])
        more = Cat(quotient[-1], rest)
        fits = more >= divisor
        with m.State("DIVIDE"):
            m.d.sync += [
                quotient.eq(self._warp.index << 5),
                rest.eq(0),
                step.eq(0),
                second.eq(0),
            ]
            m.next = "STEP"
        with m.State("STEP"):
            m.d.sync += [
                quotient.eq(Cat(fits, quotient)),
                rest.eq(Mux(fits, more - divisor, more)),
                step.eq(step + 1),
            ]
            with m.If(step == THREAD_BITS - 1):
                m.next = "DIVIDED"
        with m.State("DIVIDED"):
            m.d.sync += [rest.eq(0), step.eq(0), second.eq(1)]
            m.next = "STEP"
            with m.If(second):
                m.d.sync += [self._at.y.eq(rest), self._at.z.eq(quotient)]
                m.next = "WALK"
            with m.Else():
                m.d.sync += self._at.x.eq(rest)

    def _walk(self, m: Module, walks: Value) -> Signal:
        """A row of threads per cycle if each is in the line of the first thread or in the next one,
        otherwise a thread per cycle. Returns whether there are no more in the block."""
        config, warp, mask = self._config, self._warp, self._mask
        lanes, lane = config.lanes, self._lane
        m.submodules.places = places = memory.Memory(
            shape=data.ArrayLayout(thread, lanes),
            depth=config.sm_warps * row_count(config),
            init=[],
        )
        write, read = places.write_port(granularity=1), places.read_port()
        column, line = lane[: lanes.bit_length() - 1], lane[lanes.bit_length() - 1 :]
        *threads, following = self._positions(m)
        rows, over = Signal(name="rows"), Signal(name="walk_is_over")
        inside = Cat(one.z < self._size[2] for one in threads)
        places_read = (row_count(config) - 1).bit_length()
        m.d.comb += [
            rows.eq(self._size[0] >= lanes),
            over.eq(
                (lane + Mux(rows, lanes, 1) == WARP_THREADS) | ~Mux(rows, inside[-1], inside[0])
            ),
            write.addr.eq(Cat(line, warp.warp)),
            write.en.eq(Mux(walks, Mux(rows, ~0, (1 << column)[:lanes]), 0)),
            *(write.data[n].eq(Mux(rows, one, threads[0])) for n, one in enumerate(threads)),
            read.addr.eq(Cat(self.threads.line[:places_read], self.threads.warp)),
            self.thread.eq(read.data),
            self.at.slot.eq(warp.slot),
            self.at.index.eq(warp.index),
            *(event.warp.eq(warp.warp) for event in (self.over, self.resume, self.write)),
            self.write.context.pc.eq(self._program),
            self.write.context.mask.eq(mask),
            self.write.context.depth.eq(0),
        ]
        with m.If(walks):
            m.d.sync += [
                lane.eq(lane + Mux(rows, lanes, 1)),
                self._at.eq(Mux(rows, following, threads[1] if lanes > 1 else following)),
                self._after.valid.eq(1),
                self._after.slot.eq(warp.slot),
                self._after.index.eq(warp.index + 1),
            ]
            with m.If(rows):
                m.d.sync += mask.word_select(line, lanes).eq(inside)
            with m.Else():
                m.d.sync += mask.bit_select(lane, 1).eq(inside[0])
        with m.Else():
            m.d.sync += lane.eq(0)
        return over

    def _positions(self, m: Module) -> list[data.View]:
        """Positions of the next `lanes` + 1 threads. Valid for those that are in the line of the
        first one or in the next line."""
        at, (width, height, _) = self._at, self._size
        below, ends = Signal(thread, name="next_line"), at.y + 1 == height
        m.d.comb += [below.y.eq(Mux(ends, 0, at.y + 1)), below.z.eq(at.z + ends)]
        positions = []
        for count in range(self._config.lanes + 1):
            one, beyond = Signal(thread, name=f"thread_{count}"), at.x + count - width
            with m.If(beyond < 0):
                m.d.comb += [one.eq(at), one.x.eq(at.x + count)]
            with m.Else():
                m.d.comb += [one.eq(below), one.x.eq(beyond)]
            positions.append(one)
        return positions
