"""What the timing core keeps of each kernel row: words of the task unit, and the task's record."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.config import Config
from hw.records import MemoryStatus, read_beat
from hw.sm.port import CoreCause, core_request
from hw.sm.timing.layouts import (
    RECORD_BYTES,
    WORD_BITS,
    timing_record,
    timing_step,
    timing_task,
)
from hw.work.records import KernelWord, kernel_word

__all__ = ["Tasks"]

_WORDS = RECORD_BYTES * 8 // WORD_BITS
_UNITS = RECORD_BYTES // 16
"""The record in the units in which the size of a constant buffer is told."""


class Tasks(wiring.Component):
    """Reads a row's record when it is wanted first. New words of the row drop it, even while it is
    on its way.

    Members
    -------
    kernel : words as they are sent.
    row, want : of whom the record is wanted; both stay until it is known.
    known : it is there, or it is known why not. task : of `row`, 1 cycle later; complete in the
        cycle after `known` came.
    step_row, step_en, step : of another row, 1 cycle later, if `step_en`; else it stays.
    request, beat : the read; every beat is taken at once.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        super().__init__({
            "kernel": In(kernel_word(config)),
            "row": In(config.row_bits),
            "want": In(1),
            "known": Out(1),
            "task": Out(timing_task(config)),
            "step_row": In(config.row_bits),
            "step_en": In(1),
            "step": Out(timing_step(config)),
            "request": Out(stream.Signature(core_request(config))),
            "beat": In(data.StructLayout({"valid": 1, "beat": read_beat(config)})),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        self._words(m)
        self._record(m)
        self._fetch(m)
        return m

    def _store(self, m: Module, name: str, width: int) -> tuple[memory.Memory, memory.WritePort]:
        """A word of `width` bits per row."""
        store = memory.Memory(shape=width, depth=self._config.rows, init=[])
        m.submodules[name] = store
        return store, store.write_port()

    def _words(self, m: Module) -> None:
        kernel, found = self.kernel, {}
        addresses = []
        for word in ("CONSTANTS_LOW", "CONSTANTS_HIGH", "GRID_WIDTH", "GRID_REST", "BLOCK_Z"):
            store, write = self._store(m, word.lower(), 32)
            m.d.comb += [
                write.en.eq(kernel.valid & (kernel.word == KernelWord[word])),
                write.addr.eq(kernel.row),
                write.data.eq(kernel.data),
            ]
            port = store.read_port()
            m.d.comb += port.addr.eq(self.row)
            found[word] = port.data
            if word.startswith("CONSTANTS"):
                other = store.read_port()
                m.d.comb += [other.addr.eq(self.step_row), other.en.eq(self.step_en)]
                addresses.append(other.data)
        self._units = found["BLOCK_Z"][16:29]
        m.d.comb += [
            self.task.width.eq(found["GRID_WIDTH"]),
            self.task.height.eq(found["GRID_REST"]),
            self.task.address.eq(Cat(found["CONSTANTS_LOW"], found["CONSTANTS_HIGH"])),
            self.step.address.eq(Cat(*addresses)),
        ]

    def _record(self, m: Module) -> None:
        """The first word is for accesses, the others for starts."""
        words = []
        self._writes = []
        for number in range(_WORDS):
            store, write = self._store(m, f"record_{number}", WORD_BITS)
            self._writes.append(write)
            port = store.read_port()
            m.d.comb += [
                write.addr.eq(self.row),
                port.addr.eq(self.row if number else self.step_row),
                port.en.eq(1 if number else self.step_en),
            ]
            words.append(port.data)
        record = data.View(timing_record, Cat(*words))
        m.d.comb += [
            [self.task[name].eq(record[name]) for name in ("cycles", "spread", "base")],
            [self.task[name].eq(record[name]) for name in ("block_bytes", "warp_bytes")],
            [self.step[name].eq(record[name]) for name in ("accesses", "store", "stride")],
        ]

    def _fetch(self, m: Module) -> None:
        beat, address, config = self.beat.beat, self.task.address, self._config
        beats = max(1, RECORD_BYTES // config.beat_bytes)
        count, stale, cause = Signal(range(max(2, beats))), Signal(), Signal(CoreCause)
        dropped = self.kernel.valid
        mine = dropped & (self.kernel.row == self.row)
        known, ends = Signal(config.rows), Signal()
        causes, write = self._store(m, "causes", CoreCause.as_shape().width)
        port = causes.read_port()
        m.d.comb += [
            self.known.eq(known.bit_select(self.row, 1)),
            port.addr.eq(self.row),
            self.task.cause.eq(port.data),
            write.en.eq(ends),
            write.addr.eq(self.row),
            write.data.eq(cause),
            self.request.p.row.eq(self.row),
            self.request.p.va.eq(address),
            self.request.p.beats.eq(beats - 1),
            *self._write_words(count),
        ]
        m.d.sync += known.eq(
            (known | (Mux(ends & ~stale, Const(1, 1), 0) << self.row))
            & ~(Mux(dropped, Const(1, 1), 0) << self.kernel.row)
        )
        with m.If(mine):
            m.d.sync += stale.eq(1)
        with m.FSM():
            with m.State("IDLE"):
                m.d.sync += [stale.eq(0), count.eq(0), cause.eq(self._refusal())]
                with m.If(self.want & ~self.known & ~mine):
                    m.next = "CHECK"
            with m.State("CHECK"):
                m.next = "ASK"
                with m.If(cause != CoreCause.NONE):
                    m.next = "END"
            with m.State("ASK"):
                m.d.comb += self.request.valid.eq(1)
                with m.If(self.request.ready):
                    m.next = "FILL"
            with m.State("FILL"):
                with m.If(self.beat.valid):
                    m.d.sync += count.eq(count + 1)
                    with m.If(cause == CoreCause.NONE):
                        m.d.sync += cause.eq(self._failure(beat.status))
                    with m.If(beat.last):
                        m.next = "END"
            with m.State("END"):
                m.d.comb += ends.eq(1)
                m.next = "IDLE"

    def _refusal(self) -> Value:
        """Why the record cannot even be asked for."""
        odd = self.task.address[: RECORD_BYTES.bit_length() - 1].any()
        short = Mux(self._units < _UNITS, CoreCause.INSTRUCTION, CoreCause.NONE)
        return Mux(odd, CoreCause.MEMORY_ALIGNMENT, short)

    def _failure(self, status: Value) -> Value:
        bus = Mux(status == MemoryStatus.BUS, CoreCause.PROGRAM_BUS, CoreCause.PROGRAM_FAULT)
        return Mux(status == MemoryStatus.OK, CoreCause.NONE, bus)

    def _write_words(self, count: Value) -> list[Value]:
        """Each of the record's words from its part of its beat."""
        lanes = self._config.data_width // WORD_BITS
        statements = []
        for number, write in enumerate(self._writes):
            word = self.beat.beat.data.word_select(number % lanes, WORD_BITS)
            if lanes > _WORDS:
                half = Cat(Const(number, 2), self.task.address[5])
                word = self.beat.beat.data.word_select(half, WORD_BITS)
            statements += [
                write.en.eq(self.beat.valid & (count == number // lanes)),
                write.data.eq(word),
            ]
        return statements
