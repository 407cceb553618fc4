"""Kernel words sent to the SMs before the first block of a row."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.qmd import QMD
from signalbox.hw.records.placement import SAVE_PAGE_BITS, KernelWord, kernel_needs, kernel_word

__all__ = ["KernelWords"]


class KernelWords(wiring.Component):
    """Sends the kernel words of a row, one per cycle, starting in the cycle after `start`.

    Members
    -------
    start : in, strobe; never before `done` of the previous row.
    done : out, strobe in the cycle of the last word.
    row : in, the row; stable until `done`.
    asid : in, address space of the task; stable until `done`.
    record : in, its QMD; stable until `done`.
    needs : in, its resource needs; stable until `done`.
    area : in, with preemption, first page of its save area; stable until `done`.
    kernel : out, the words.
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
            "kernel": Out(kernel_word(config)),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        kernel, words = self.kernel, self._words()
        sends = Signal()
        number = Signal(range(len(words)))
        m.d.comb += [
            kernel.valid.eq(sends),
            kernel.row.eq(self.row),
            kernel.word.eq(number),
            self.done.eq(sends & (number == len(words) - 1)),
        ]
        with m.If(self.start):
            m.d.sync += sends.eq(1)
        with m.Elif(sends):
            m.d.sync += [sends.eq(~self.done), number.eq(Mux(self.done, 0, number + 1))]
        with m.Switch(number):
            for word, value in words.items():
                with m.Case(word):
                    m.d.comb += kernel.data.eq(value)
        return m

    def _words(self) -> dict[KernelWord, Value]:
        qmd, needs = self.record, self.needs
        space = Cat(needs.block_registers, qmd.REGISTER_COUNT_V, self.asid)
        area = {KernelWord.SAVE_AREA: self.area} if self._config.preemption else {}
        return {
            KernelWord.NEEDS: needs.as_value()[: -len(needs.block_registers)],
            KernelWord.SPACE: space,
            KernelWord.PROGRAM_LOW: qmd.PROGRAM_ADDRESS_LOWER,
            KernelWord.PROGRAM_HIGH: qmd.PROGRAM_ADDRESS_UPPER,
            KernelWord.CONSTANTS_LOW: qmd.CONSTANT_BUFFER_0_ADDR_LOWER,
            KernelWord.CONSTANTS_HIGH: qmd.CONSTANT_BUFFER_0_ADDR_UPPER,
            KernelWord.GRID_WIDTH: qmd.CTA_RASTER_WIDTH,
            KernelWord.GRID_REST: Cat(qmd.CTA_RASTER_HEIGHT, qmd.CTA_RASTER_DEPTH),
            KernelWord.BLOCK_XY: Cat(qmd.CTA_THREAD_DIMENSION0, qmd.CTA_THREAD_DIMENSION1),
            KernelWord.BLOCK_Z: Cat(
                qmd.CTA_THREAD_DIMENSION2,
                Mux(qmd.CONSTANT_BUFFER_0_VALID, qmd.CONSTANT_BUFFER_0_SIZE_SHIFTED4, 0),
            ),
            **area,
        }
