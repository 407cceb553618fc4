"""A custom core behind the SM port. It adds two vectors and executes no program.

    Signalbox(Config(sms=1), core=AdderCore)

The arguments are those of the supplied kernel `VECTOR_ADD`: pointers A, B and C, and the length N.
Blocks have a multiple of 32 threads in x. The core runs one warp at a time: it reads the arguments,
128 bytes of A and 128 bytes of B, and writes 128 bytes of C. A warp takes three memory latencies
and about 40 cycles.
"""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import data, memory, wiring

from signalbox.hw.config import Config
from signalbox.hw.errors import CoreCause
from signalbox.hw.records.memory import MemoryStatus
from signalbox.hw.records.placement import KernelWord, coordinates
from signalbox.hw.sm.port import SmPort, warp_start

__all__ = ["AdderCore"]

_WARP_BYTES = 128
"""Bytes of a vector per warp: one word for each of 32 threads."""

_ARGUMENT_BYTES = 32
"""A, B and C of 8 bytes each, N of 4 bytes, and padding."""

_WORDS = (
    *(KernelWord.PROGRAM_LOW, KernelWord.PROGRAM_HIGH),
    *(KernelWord.CONSTANTS_LOW, KernelWord.CONSTANTS_HIGH),
    KernelWord.BLOCK_XY,
)
"""Words of a kernel row that the core stores."""

_CAUSES = {MemoryStatus.BUS: CoreCause.MEMORY_BUS, MemoryStatus.FAULT: CoreCause.MEMORY_FAULT}


class AdderCore(wiring.Component):
    """An adder as a core. Members are those of `SmPort`, seen from the core."""

    def __init__(self, config: Config) -> None:
        self._config = config
        super().__init__(SmPort(config).flip())

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        self._warp = Signal(warp_start(config))
        self._arguments = Signal(8 * _ARGUMENT_BYTES)
        self._first, self._beat = Signal(32), Signal(8)
        self._cause, self._where = Signal(CoreCause), Signal(64)
        self._keep(m)
        self._lines(m)
        a, b, c, _ = self._pointers
        killed = self.kill.bit_select(self._warp.row, 1)
        m.d.comb += [
            self.end.payload.eq(self._warp.warp),
            self.fault.payload.row.eq(self._warp.row),
            self.fault.payload.slot.eq(self._warp.slot),
            self.fault.payload.index.eq(self._warp.index),
            self.fault.payload.cause.eq(self._cause),
            self.fault.payload.at.eq(self._program),
            self.fault.payload.va.eq(self._where),
        ]
        with m.FSM():
            with m.State("IDLE"):
                m.d.comb += self.start.ready.eq(1)
                m.d.sync += [self._warp.eq(self.start.payload), self._cause.eq(CoreCause.NONE)]
                with m.If(self.start.valid):
                    m.next = "LOOK"
            with m.State("LOOK"):  # the tables are read in the next cycle
                m.next = "PLACE"
                with m.If(killed):
                    m.next = "END"
            with m.State("PLACE"):
                m.d.sync += self._first.eq(self._at.x * self._width + (self._warp.index << 5))
                m.next = "ARGUMENTS"
            self._read(m, "ARGUMENTS", self._constants, _ARGUMENT_BYTES, after="A")
            self._read(m, "A", a + (self._first << 2), _WARP_BYTES, after="B")
            self._read(m, "B", b + (self._first << 2), _WARP_BYTES, after="C")
            self._write(m, "C", c + (self._first << 2), after="END")
            with m.State("FAULT"):
                m.d.comb += self.fault.valid.eq(1)
                with m.If(self.fault.ready):
                    m.next = "END"
            with m.State("END"):
                m.d.comb += self.end.valid.eq(1)
                with m.If(self.end.ready):
                    m.next = "IDLE"
        return m

    def _keep(self, m: Module) -> None:
        """Store words of kernel rows by row, and positions of blocks by slot."""
        kept = {}
        for word in _WORDS:
            m.submodules[word.name.lower()] = store = memory.Memory(
                shape=32, depth=self._config.rows, init=[]
            )
            write, read = store.write_port(), store.read_port()
            m.d.comb += [
                write.en.eq(self.kernel.valid & (self.kernel.word == word)),
                write.addr.eq(self.kernel.row),
                write.data.eq(self.kernel.data),
                read.addr.eq(self._warp.row),
            ]
            kept[word] = read.data
        m.submodules.places = places = memory.Memory(
            shape=coordinates, depth=self._config.sm_blocks, init=[]
        )
        write, read = places.write_port(), places.read_port()
        m.d.comb += [
            self.begin.ready.eq(1),
            write.en.eq(self.begin.valid),
            write.addr.eq(self.begin.payload.slot),
            write.data.eq(self.begin.payload.at),
            read.addr.eq(self._warp.slot),
        ]
        self._at = read.data
        self._program = Cat(kept[KernelWord.PROGRAM_LOW], kept[KernelWord.PROGRAM_HIGH])
        self._constants = Cat(kept[KernelWord.CONSTANTS_LOW], kept[KernelWord.CONSTANTS_HIGH])
        self._width = kept[KernelWord.BLOCK_XY][:16]

    def _lines(self, m: Module) -> None:
        """Store beats of A, then the sums. Each incoming beat of B is added to the stored beat of
        A."""
        config = self._config
        m.submodules.lines = lines = memory.Memory(
            shape=config.data_width, depth=_WARP_BYTES // config.beat_bytes, init=[]
        )
        self._line_write, self._line = lines.write_port(), lines.read_port(domain="comb")
        words = data.ArrayLayout(32, config.data_width // 32)
        ours, theirs = data.View(words, self._line.data), data.View(words, self.read_beat.p.data)
        self._sums = Cat((one + other)[:32] for one, other in zip(ours, theirs, strict=True))
        m.d.comb += [self._line.addr.eq(self._beat), self._line_write.addr.eq(self._beat)]
        arguments = data.View(data.ArrayLayout(64, 4), self._arguments)
        self._pointers = tuple(arguments)
        self._n = arguments[3][:32]

    def _read(self, m: Module, name: str, va, size: int, *, after: str) -> None:
        """Two states: request `size` bytes from `va`; receive their beats."""
        beats = max(1, size // self._config.beat_bytes)
        request, beat = self.read_request, self.read_beat
        with m.State(name):
            m.d.comb += [
                request.valid.eq(1),
                request.payload.row.eq(self._warp.row),
                request.payload.va.eq(va),
                request.payload.beats.eq(beats - 1),
            ]
            m.d.sync += [self._beat.eq(0), self._where.eq(va)]
            with m.If(request.ready):
                m.next = f"{name}_BEATS"
        with m.State(f"{name}_BEATS"):
            m.d.comb += beat.ready.eq(1)
            if name == "ARGUMENTS":
                self._take_arguments(m, beats)
            else:
                m.d.comb += [
                    self._line_write.en.eq(beat.valid),
                    self._line_write.data.eq(beat.p.data if name == "A" else self._sums),
                ]
            with m.If(beat.valid):
                m.d.sync += self._beat.eq(self._beat + 1)
                self._judge(m, beat.p.status)
                with m.If(beat.p.last):
                    failed = (beat.p.status != MemoryStatus.OK) | (self._cause != CoreCause.NONE)
                    m.next = after
                    with m.If(failed):
                        m.next = "FAULT"

    def _take_arguments(self, m: Module, beats: int) -> None:
        """Store the arguments. They are aligned to 256 bytes, so a wide beat contains all of
        them."""
        with m.If(self.read_beat.valid):
            size = min(self._config.data_width, 8 * _ARGUMENT_BYTES)
            for number in range(beats):
                with m.If(self._beat == number):
                    part = self._arguments[number * size : (number + 1) * size]
                    m.d.sync += part.eq(self.read_beat.p.data)

    def _write(self, m: Module, name: str, va, *, after: str) -> None:
        """Three states: request the write; send its beats; wait until they are visible."""
        config = self._config
        beats, lanes = _WARP_BYTES // config.beat_bytes, config.data_width // 32
        request, beat, done = self.write_request, self.write_beat, self.write_done
        with m.State(name):
            m.d.comb += [
                request.valid.eq(1),
                request.payload.row.eq(self._warp.row),
                request.payload.va.eq(va),
                request.payload.beats.eq(beats - 1),
            ]
            m.d.sync += [self._beat.eq(0), self._where.eq(va)]
            with m.If(request.ready):
                m.next = f"{name}_BEATS"
        with m.State(f"{name}_BEATS"):
            first = self._first + self._beat * lanes
            inside = Cat((first + lane < self._n).replicate(4) for lane in range(lanes))
            m.d.comb += [
                beat.valid.eq(1),
                beat.p.data.eq(self._line.data),
                beat.p.strobe.eq(inside),
                beat.p.last.eq(self._beat == beats - 1),
            ]
            with m.If(beat.ready):
                m.d.sync += self._beat.eq(self._beat + 1)
                with m.If(beat.p.last):
                    m.next = f"{name}_DONE"
        with m.State(f"{name}_DONE"):
            m.d.comb += done.ready.eq(1)
            with m.If(done.valid):
                self._judge(m, done.p.status)
                m.next = after
                with m.If(done.p.status != MemoryStatus.OK):
                    m.next = "FAULT"

    def _judge(self, m: Module, status) -> None:
        for bad, cause in _CAUSES.items():
            with m.If(status == bad):
                m.d.sync += self._cause.eq(cause)
