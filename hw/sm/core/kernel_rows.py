"""The core's copy of the kernel words."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, memory, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import VA_BITS, Config
from signalbox.hw.qmd import CONSTANT_BUFFERS
from signalbox.hw.records.placement import (
    LOCAL_PAGE,
    USES_LOCAL,
    KernelWord,
    buffer_word,
    kernel_word,
    local_word,
)

__all__ = [
    "KernelRows",
    "buffer_look",
    "constant_buffer",
    "kernel_traits",
    "local_part",
    "word_look",
]


def kernel_traits(config: Config) -> data.StructLayout:
    """Properties of a kernel: `registers` per thread, use of barriers, warps per block, a bit per
    valid constant buffer, use of local memory."""
    return data.StructLayout({
        "registers": 9,
        "barrier": 1,
        "warps": 7,
        "buffers": CONSTANT_BUFFERS,
        "local": 1,
    })


constant_buffer = data.StructLayout({"va": VA_BITS, "units": 13})
"""Address and size of a constant buffer, in units of 16 bytes; undefined for an invalid one."""


local_part = data.StructLayout({
    "va": VA_BITS,
    "units": local_word["units"].shape,
})
"""This SM's part of a kernel's local memory: address, and size per thread in units of 16 bytes;
undefined for a kernel without local memory."""


def buffer_look(config: Config) -> data.StructLayout:
    """Look-up of one constant buffer of a row."""
    return data.StructLayout({"number": range(CONSTANT_BUFFERS), "row": config.row_bits})


def word_look(config: Config) -> data.StructLayout:
    """Look-up of one word of a row."""
    return data.StructLayout({"word": KernelWord, "row": config.row_bits})


_TRAITS = (
    KernelWord.NEEDS,
    KernelWord.SPACE,
    KernelWord.BLOCK_Z,
)

_PAGE_BITS = (LOCAL_PAGE - 1).bit_length()

_WORDS = 16
"""Words of a row that can be read one by one: all but those of further constant buffers."""


class KernelRows(wiring.Component):
    """Keeps kernel words by row, with two read ports for words and traits; latency 1 cycle.

    Members
    -------
    kernel : in, kernel words.
    row : in, per port, `row_bits` bits: number of a row.
    traits : out, per port, a `kernel_traits`: properties of its kernel.
    look : in, per port, a `word_look`: a word.
    word : out, per port, 32 bits: its value.
    ask : in, a `buffer_look`: a constant buffer.
    buffer : out, a `constant_buffer`: its address and size.
    local_row : in, `row_bits` bits: number of a row.
    local : out, a `local_part`: its local memory on this SM.
    number : in, `sm_bits` bits, see `SmPort`.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        super().__init__({
            "kernel": In(kernel_word(config)),
            "row": In(config.row_bits).array(2),
            "traits": Out(kernel_traits(config)).array(2),
            "look": In(word_look(config)).array(2),
            "word": Out(32).array(2),
            "ask": In(buffer_look(config)),
            "buffer": Out(constant_buffer),
            "local_row": In(config.row_bits),
            "local": Out(local_part),
            "number": In(config.sm_bits),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        self._words(m)
        self._traits(m)
        self._buffers(m)
        self._local(m)
        return m

    def _words(self, m: Module) -> None:
        depth, number = self._config.rows * _WORDS, self.kernel.word
        m.submodules.words = words = memory.Memory(shape=32, depth=depth, init=[])
        write = words.write_port()
        m.d.comb += [
            write.en.eq(self.kernel.valid & (number < _WORDS)),
            write.addr.eq(Cat(number[:4], self.kernel.row)),
            write.data.eq(self.kernel.data),
        ]
        for look, word in zip(self.look, self.word, strict=True):
            port = words.read_port()
            m.d.comb += [
                port.addr.eq(Cat(look.word[:4], look.row)),
                word.eq(port.data),
            ]

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
                traits.barrier.eq(words[KernelWord.NEEDS][7]),
                traits.warps.eq(words[KernelWord.NEEDS][8:15]),
                traits.buffers.eq(words[KernelWord.BLOCK_Z][16:]),
                traits.local.eq(words[KernelWord.BLOCK_Z][USES_LOCAL]),
            ]

    def _buffers(self, m: Module) -> None:
        """A memory for the first words of all constant buffers, and one for the second."""
        kernel, depth = self.kernel, self._config.rows * CONSTANT_BUFFERS
        word = kernel.word
        further = Signal()
        found = []
        m.d.comb += further.eq(word[-1])
        own = (kernel.word == KernelWord.CONSTANTS_LOW) | (kernel.word == KernelWord.CONSTANTS_HIGH)
        for half, name in enumerate(("low", "high")):
            store = memory.Memory(shape=32, depth=depth, init=[])
            m.submodules[f"buffers_{name}"] = store
            write, read = store.write_port(), store.read_port()
            m.d.comb += [
                write.en.eq(kernel.valid & (further | own) & (word[0] == half)),
                write.addr.eq(Cat(Mux(further, word[1:4], 0), kernel.row)),
                write.data.eq(kernel.data),
                read.addr.eq(self.ask),
            ]
            found.append(read.data)
        high = data.View(buffer_word, found[1])
        m.d.comb += [
            self.buffer.va.eq(Cat(found[0], high.address)),
            self.buffer.units.eq(high.units),
        ]

    def _local(self, m: Module) -> None:
        """The address is computed as the words arrive, one after another."""
        kernel = self.kernel
        area = Signal(local_part)
        distance = Signal(VA_BITS)
        """Distance of this SM's part from the first one."""
        arrived = Signal()
        row = Signal(self._config.row_bits)
        m.submodules.local = store = memory.Memory(
            shape=local_part, depth=self._config.rows, init=[]
        )
        write, read = store.write_port(), store.read_port()
        high = data.View(local_word, kernel.data)
        m.d.sync += [
            arrived.eq(kernel.valid & (kernel.word == KernelWord.LOCAL_STRIDE)),
            distance.eq(Cat(Const(0, _PAGE_BITS), kernel.data * self.number)),
            row.eq(kernel.row),
        ]
        with m.If(kernel.valid & (kernel.word == KernelWord.LOCAL_LOW)):
            m.d.sync += area.va[:32].eq(kernel.data)
        with m.If(kernel.valid & (kernel.word == KernelWord.LOCAL_HIGH)):
            m.d.sync += [area.va[32:].eq(high.address), area.units.eq(high.units)]
        m.d.comb += [
            write.en.eq(arrived),
            write.addr.eq(row),
            write.data.va.eq(area.va + distance),
            write.data.units.eq(area.units),
            read.addr.eq(self.local_row),
            self.local.eq(read.data),
        ]
