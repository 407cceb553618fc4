"""Kernel words sent to the SMs before the first block of a row."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.lib.onehot import encode, lowest
from signalbox.hw.qmd import CONSTANT_BUFFERS, QMD
from signalbox.hw.records.placement import (
    LOCAL_PAGE,
    SAVE_PAGE_BITS,
    KernelWord,
    constant_words,
    kernel_needs,
    kernel_word,
    local_area,
)
from signalbox.hw.task_unit.qmd_check import local_units

__all__ = ["KernelWords"]


class KernelWords(wiring.Component):
    """Sends the kernel words of a row, one per cycle, starting in the cycle after `start`: first
    the words that every kernel has, then those of its local memory, if it has any, then two for
    each valid constant buffer except number 0.

    Members
    -------
    start : in, strobe; never before `done` of the previous row.
    done : out, strobe in the cycle of the last word.
    row : in, `row_bits` bits: the row; stable until `done`.
    asid : in, `asid_bits` bits: address space of the task; stable until `done`.
    record : in, QMD of the task; stable until `done`.
    needs : in, a `kernel_needs`: needs of its blocks; stable until `done`.
    area : in, 28 bits, with preemption: number of the first 4 KiB page of its save area; stable
        until `done`.
    local : in, a `local_area`: area of its local memory; stable until `done`.
    kernel : out, strobe, a `kernel_word`: the words.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        super().__init__({
            "start": In(1),
            "done": Out(1),
            "row": In(config.row_bits),
            "asid": In(config.asid_bits),
            "record": In(QMD),
            "needs": In(kernel_needs),
            "area": In(SAVE_PAGE_BITS),
            "local": In(local_area),
            "kernel": Out(kernel_word(config)),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        kernel, always, further = self.kernel, self._always(), self._local() | self._further()
        sends = Signal()
        number = Signal(KernelWord)
        left = Signal(CONSTANT_BUFFERS)
        group = Signal(CONSTANT_BUFFERS)
        ends = Signal()
        """`left`: groups of further words left, bit 0 for local memory, others for constant
        buffers. `group`: the first of them. `ends`: the end of a group."""
        m.d.comb += [
            kernel.valid.eq(sends),
            kernel.row.eq(self.row),
            kernel.word.eq(number),
            group.eq(lowest(left)),
            ends.eq(
                (number == max(always)) | (number == KernelWord.LOCAL_STRIDE) | self._second(number)
            ),
            self.done.eq(sends & ends & ~left.any()),
        ]
        with m.If(self.start):
            m.d.sync += [sends.eq(1), left.eq(Cat(self._has_local, self._valid()[1:]))]
        with m.Elif(self.done):
            m.d.sync += [sends.eq(0), number.eq(KernelWord.NEEDS)]
        with m.Elif(sends & ends):
            first = Mux(group[0], KernelWord.LOCAL_LOW, Cat(Const(0, 1), encode(group), 1))
            m.d.sync += [left.eq(left & ~group), number.eq(first)]
        with m.Elif(sends):
            m.d.sync += number.eq(number + 1)
        with m.Switch(number):
            for word, value in (always | further).items():
                with m.Case(word):
                    m.d.comb += kernel.data.eq(value)
        return m

    @staticmethod
    def _second(number: Value) -> Value:
        """Whether this is the second word of a further constant buffer."""
        return number[-1] & number[0]

    def _valid(self) -> Value:
        """A bit per valid constant buffer."""
        names = (f"CONSTANT_BUFFER_{number}_VALID" for number in range(CONSTANT_BUFFERS))
        return Cat(self.record[name] for name in names)

    def _buffer(self, number: int) -> dict[KernelWord, Value]:
        """Words of a constant buffer."""

        def of(name: str) -> Value:
            return self.record[f"CONSTANT_BUFFER_{number}_{name}"]

        units = Mux(of("VALID"), of("SIZE_SHIFTED4"), 0)
        low, high = constant_words(number)
        return {low: of("ADDR_LOWER"), high: Cat(of("ADDR_UPPER"), Const(0, 2), units)}

    @property
    def _has_local(self) -> Value:
        return local_units(self.record) != 0

    def _local(self) -> dict[KernelWord, Value]:
        """Words of the local memory."""
        area = self.local
        return {
            KernelWord.LOCAL_LOW: area.va[:32],
            KernelWord.LOCAL_HIGH: Cat(area.va[32:], local_units(self.record)),
            KernelWord.LOCAL_STRIDE: area.size // LOCAL_PAGE,
        }

    def _further(self) -> dict[KernelWord, Value]:
        """Words of constant buffers 1 … 7."""
        words = {}
        for number in range(1, CONSTANT_BUFFERS):
            words |= self._buffer(number)
        return words

    def _always(self) -> dict[KernelWord, Value]:
        """Words of every kernel."""
        qmd, needs = self.record, self.needs
        space = Cat(needs.block_registers, qmd.REGISTER_COUNT_V, self.asid)
        area = {KernelWord.SAVE_AREA: self.area} if self._config.preemption else {}
        return {
            KernelWord.NEEDS: needs.as_value()[: -len(needs.block_registers)],
            KernelWord.SPACE: space,
            KernelWord.PROGRAM_LOW: qmd.PROGRAM_ADDRESS_LOWER,
            KernelWord.PROGRAM_HIGH: qmd.PROGRAM_ADDRESS_UPPER,
            **self._buffer(0),
            KernelWord.GRID_WIDTH: qmd.CTA_RASTER_WIDTH,
            KernelWord.GRID_REST: Cat(qmd.CTA_RASTER_HEIGHT, qmd.CTA_RASTER_DEPTH),
            KernelWord.BLOCK_XY: Cat(qmd.CTA_THREAD_DIMENSION0, qmd.CTA_THREAD_DIMENSION1),
            KernelWord.BLOCK_Z: Cat(qmd.CTA_THREAD_DIMENSION2, self._valid(), self._has_local),
            **area,
        }
