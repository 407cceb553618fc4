"""The timing core's copy of the kernel words and task record of each row."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, enum, memory, stream, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.errors import CoreCause
from signalbox.hw.records.memory import MemoryStatus, read_beat
from signalbox.hw.records.placement import (
    USES_LOCAL,
    KernelWord,
    buffer_word,
    kernel_word,
)
from signalbox.hw.sm.port import core_request
from signalbox.hw.sm.timing.layouts import RECORD_BYTES, RECORD_WORDS, timing_record

__all__ = ["KernelRows", "Place"]

_UNITS = RECORD_BYTES // 16
"""Size of the record in units of constant buffer sizes."""


class Place(enum.Enum, shape=4):
    """Words of a row. Those of the record replace kernel words that the core does not use, which
    arrive before the record is read."""

    ACCESSES = 0
    STRIDE = 1
    BASE_LOW = 2
    BASE_HIGH = 3
    CONSTANTS_LOW = KernelWord.CONSTANTS_LOW.value
    CONSTANTS_HIGH = KernelWord.CONSTANTS_HIGH.value
    GRID_WIDTH = KernelWord.GRID_WIDTH.value
    GRID_REST = KernelWord.GRID_REST.value
    CYCLES = 12
    SPREAD = 13
    BLOCK_BYTES = 14
    WARP_BYTES = 15


class KernelRows(wiring.Component):
    """Keeps the task record of each row, in one memory of 16 words per row. A row's record is read
    when first needed; new kernel words of the row invalidate it, including an outstanding read.

    Members
    -------
    kernel : in, kernel words.
    row : in, `row_bits` bits: number of a row; stable with `want` until `known`.
    want : in, the record of the row is needed.
    known : out, the record of the previous cycle's `row` has been read, or has failed.
    cause : out, a `CoreCause`: failure of that read, if any.
    look : in, a `Place`: a word of `row`.
    word : out, 32 bits: its value, 2 cycles later, while `known`.
    request : out, stream of `core_request`: read of a record.
    beat : in, stream of `read_beat`: beats of that read, each accepted after one cycle per word of
        the record; kernel words arriving meanwhile delay it.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        super().__init__({
            "kernel": In(kernel_word(config)),
            "row": In(config.row_bits),
            "want": In(1),
            "known": Out(1),
            "cause": Out(CoreCause),
            "look": In(Place),
            "word": Out(32),
            "request": Out(stream.Signature(core_request(config))),
            "beat": In(stream.Signature(read_beat(config))),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        self._place = Signal(Place)
        self._count = Signal(range(RECORD_WORDS))
        self._low = Signal(32)
        self._cause = Signal(CoreCause)
        self._ends = Signal()
        self._fills = Signal()
        """The next word of the beat is written."""
        self._may_launch = Signal()
        if self._config.nested:
            self._nest(m)
        self._words(m)
        self._know(m)
        self._fetch(m)
        return m

    def _words(self, m: Module) -> None:
        """Kernel words have priority over those of the record."""
        kernel, depth = self.kernel, self._config.rows << 4
        m.submodules.words = words = memory.Memory(shape=32, depth=depth, init=[])
        write, read = words.write_port(), words.read_port()
        half, number = self._count[2], kernel.word
        place = Cat(self._count[:2], half, half)
        m.d.comb += [
            # The words of further constant buffers, from 16 on, are not used.
            write.en.eq(Mux(kernel.valid, ~number[4], self._fills)),
            write.addr.eq(Mux(kernel.valid, Cat(number[:4], kernel.row), Cat(place, self.row))),
            write.data.eq(Mux(kernel.valid, kernel.data, self._lane())),
            read.addr.eq(Cat(self._place, self.row)),
        ]
        m.d.sync += self.word.eq(read.data)

    def _lane(self) -> Value:
        """The next word of the beat."""
        lane = self._count
        if self._config.beat_bytes > RECORD_BYTES:
            lane = Cat(lane, self._low[5])
        return self.beat.p.data.word_select(lane[: self._lane_bits], 32)

    @property
    def _lane_bits(self) -> int:
        return self._config.offset_bits - 2

    def _know(self, m: Module) -> None:
        """State of each row's record. Kernel words invalidate it, including the first ones of a
        row, so no state needs to be cleared at reset."""
        kernel = self.kernel
        shape = data.StructLayout({"known": 1, "cause": CoreCause})
        m.submodules.states = states = memory.Memory(shape=shape, depth=self._config.rows, init=[])
        write, read = states.write_port(), states.read_port()
        self._dropped = Signal()
        """The record was invalidated since the fetch began."""
        m.d.comb += [
            read.addr.eq(self.row),
            self.known.eq(read.data.known),
            self.cause.eq(read.data.cause),
            write.en.eq(kernel.valid | (self._ends & ~self._dropped)),
            write.addr.eq(Mux(kernel.valid, kernel.row, self.row)),
            write.data.known.eq(~kernel.valid),
            write.data.cause.eq(self._cause),
        ]

    def _fetch(self, m: Module) -> None:
        config, kernel, request, beat = self._config, self.kernel, self.request, self.beat
        beats = max(1, RECORD_BYTES // config.beat_bytes)
        m.d.comb += [
            request.p.row.eq(self.row),
            request.p.va.eq(Cat(self._low, data.View(buffer_word, self.word).address)),
            request.p.beats.eq(beats - 1),
            self._place.eq(self.look),
        ]
        with m.If(kernel.valid & (kernel.row == self.row)):
            m.d.sync += self._dropped.eq(1)
        with m.FSM():
            with m.State("IDLE"):
                with m.If(self.want & ~self.known):
                    m.d.comb += self._place.eq(Place.CONSTANTS_HIGH)
                    m.next = "READ"
                m.d.sync += [self._dropped.eq(0), self._count.eq(0)]
            with m.State("READ"):
                m.d.comb += self._place.eq(Place.CONSTANTS_LOW)
                m.next = "UNITS"
            with m.State("UNITS"):
                m.d.comb += self._place.eq(Place.CONSTANTS_HIGH)
                short = data.View(buffer_word, self.word).units < _UNITS
                m.d.sync += self._cause.eq(Mux(short, CoreCause.INSTRUCTION, CoreCause.NONE))
                m.next = "LOW"
            with m.State("LOW"):
                m.d.comb += self._place.eq(Place.CONSTANTS_HIGH)
                m.d.sync += self._low.eq(self.word)
                odd = self.word[: RECORD_BYTES.bit_length() - 1].any()
                with m.If(odd):
                    m.d.sync += self._cause.eq(CoreCause.MEMORY_ALIGNMENT)
                m.next = "ASK"
                with m.If(odd | (self._cause != CoreCause.NONE)):
                    m.next = "END"
            with m.State("ASK"):
                m.d.comb += [self._place.eq(Place.CONSTANTS_HIGH), request.valid.eq(1)]
                with m.If(request.ready):
                    m.next = "FILL"
            with m.State("FILL"):
                self._fill(m)
                with m.If(beat.valid & beat.ready & beat.p.last):
                    m.next = "END"
            with m.State("END"):
                m.d.comb += self._ends.eq(~kernel.valid)
                with m.If(self._ends):
                    m.next = "LEAVE"
            with m.State("LEAVE"):
                m.next = "IDLE"

    def _fill(self, m: Module) -> None:
        """One word of the beat per cycle; none of a failed beat."""
        beat, failed = self.beat, Signal()
        fault = beat.p.status == MemoryStatus.FAULT
        m.d.comb += [
            failed.eq(beat.p.status != MemoryStatus.OK),
            self._fills.eq(beat.valid & ~failed & ~self.kernel.valid),
            beat.ready.eq(failed | (self._fills & self._count[: self._lane_bits].all())),
        ]
        with m.If(self._fills):
            m.d.sync += self._count.eq(self._count + 1)
        with m.If(beat.valid & failed & (self._cause == CoreCause.NONE)):
            m.d.sync += self._cause.eq(Mux(fault, CoreCause.PROGRAM_FAULT, CoreCause.PROGRAM_BUS))
        launches = self._lane()[timing_record["launch"].offset]
        first = self._fills & (self._count == 0) & (self._cause == CoreCause.NONE)
        with m.If(first & launches & ~self._may_launch):
            m.d.sync += self._cause.eq(CoreCause.INSTRUCTION)

    def _nest(self, m: Module) -> None:
        """Kernels with local memory must not launch others: their blocks are not stopped while they
        wait."""
        kernel, local = self.kernel, Signal(self._config.rows, name="local")
        with m.If(kernel.valid & (kernel.word == KernelWord.BLOCK_Z)):
            m.d.sync += local.bit_select(kernel.row, 1).eq(kernel.data[USES_LOCAL])
        m.d.comb += self._may_launch.eq(~local.bit_select(self.row, 1))
