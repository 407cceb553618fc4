"""The core's copy of the kernel words."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import data, memory, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import VA_BITS, Config
from signalbox.hw.records.placement import KernelWord, kernel_word

__all__ = ["KernelRows", "kernel_traits", "word_look"]


def kernel_traits(config: Config) -> data.StructLayout:
    """Properties of a kernel: `registers` per thread, use of barriers, warps per block, address of
    its arguments and their size in units of 16 bytes."""
    return data.StructLayout({
        "registers": 9,
        "barrier": 1,
        "warps": 7,
        "constants": VA_BITS,
        "units": 13,
    })


def word_look(config: Config) -> data.StructLayout:
    """Look-up of one word of a row."""
    return data.StructLayout({"word": KernelWord, "row": config.row_bits})


_TRAITS = (
    KernelWord.NEEDS,
    KernelWord.SPACE,
    KernelWord.CONSTANTS_LOW,
    KernelWord.CONSTANTS_HIGH,
    KernelWord.BLOCK_Z,
)


class KernelRows(wiring.Component):
    """Kernel words by row, with two read ports of each kind; latency 1 cycle.

    Members
    -------
    kernel : in, kernel words.
    row : in, row of each port.
    traits : out, properties of its kernel.
    look : in, a word of each port.
    word : out, its value.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        super().__init__({
            "kernel": In(kernel_word(config)),
            "row": In(config.row_bits).array(2),
            "traits": Out(kernel_traits(config)).array(2),
            "look": In(word_look(config)).array(2),
            "word": Out(32).array(2),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        self._words(m)
        self._traits(m)
        return m

    def _words(self, m: Module) -> None:
        depth = self._config.rows << 4
        m.submodules.words = words = memory.Memory(shape=32, depth=depth, init=[])
        write = words.write_port()
        m.d.comb += [
            write.en.eq(self.kernel.valid),
            write.addr.eq(Cat(self.kernel.word, self.kernel.row)),
            write.data.eq(self.kernel.data),
        ]
        for look, word in zip(self.look, self.word, strict=True):
            port = words.read_port()
            m.d.comb += [port.addr.eq(look), word.eq(port.data)]

    def _traits(self, m: Module) -> None:
        """Words read together, each in its own memory."""
        found: list[dict[KernelWord, Signal]] = [{}, {}]
        for word in _TRAITS:
            store = memory.Memory(shape=32, depth=self._config.rows, init=[])
            m.submodules[word.name.lower()] = store
            write = store.write_port()
            m.d.comb += [
                write.en.eq(self.kernel.valid & (self.kernel.word == word)),
                write.addr.eq(self.kernel.row),
                write.data.eq(self.kernel.data),
            ]
            for row, words in zip(self.row, found, strict=True):
                port = store.read_port()
                m.d.comb += port.addr.eq(row)
                words[word] = port.data
        for traits, words in zip(self.traits, found, strict=True):
            m.d.comb += [
                traits.registers.eq(words[KernelWord.SPACE][10:19]),
                traits.barrier.eq(words[KernelWord.NEEDS][6]),
                traits.warps.eq(words[KernelWord.NEEDS][7:14]),
                traits.constants.eq(
                    Cat(words[KernelWord.CONSTANTS_LOW], words[KernelWord.CONSTANTS_HIGH])
                ),
                traits.units.eq(words[KernelWord.BLOCK_Z][16:29]),
            ]
