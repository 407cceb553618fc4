"""Adds the resource needs to blocks arriving at an SM."""

from amaranth.hdl import Module, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.records.placement import (
    SAVE_PAGE_BITS,
    KernelWord,
    block_record,
    kernel_needs,
    kernel_word,
)

__all__ = ["BlockNeeds", "needed_block"]


def needed_block(config: Config) -> data.StructLayout:
    """A block, with its resource needs; with preemption, the first page of its save area, and
    whether it `stays`: it is not stopped, as it has local memory."""
    area = {"area": SAVE_PAGE_BITS, "stays": 1} if config.preemption else {}
    return data.StructLayout({
        **block_record(config).members,
        "needs": kernel_needs,
        **area,
    })


class BlockNeeds(wiring.Component):
    """Keeps the needs of each kernel row, and adds them to arriving blocks.

    A RAM for each word used. Latency one cycle, one block per cycle.

    Members
    -------
    kernel : in, kernel words.
    i : in, stream of `block_record`: blocks; the words of their rows have been written before.
    o : out, stream of `needed_block`: the blocks with their needs.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        super().__init__({
            "kernel": In(kernel_word(config)),
            "i": In(stream.Signature(block_record(config))),
            "o": Out(stream.Signature(needed_block(config))),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        takes = Signal()
        members = dict(kernel_needs.members)
        whole = {"block_registers": members.pop("block_registers")}
        m.d.comb += [
            self.i.ready.eq(~self.o.valid | self.o.ready),
            takes.eq(self.i.valid & self.i.ready),
        ]
        with m.If(self.i.ready):
            m.d.sync += self.o.valid.eq(self.i.valid)
        with m.If(takes):
            m.d.sync += [self.o.p[name].eq(self.i.p[name]) for name in self.i.p.shape().members]
        for name, word, kept in (
            ("needs", KernelWord.NEEDS, data.StructLayout(members)),
            ("space", KernelWord.SPACE, data.StructLayout(whole)),
        ):
            found = self._words(m, name, word, kept, takes)
            m.d.comb += [self.o.p.needs[field].eq(found[field]) for field in kept.members]
        if self._config.preemption:
            kept = data.StructLayout({"area": SAVE_PAGE_BITS})
            found = self._words(m, "areas", KernelWord.SAVE_AREA, kept, takes)
            m.d.comb += self.o.p.area.eq(found.area)
            kept = data.StructLayout({"others": 24, "stays": 1})
            found = self._words(m, "stays", KernelWord.BLOCK_Z, kept, takes)
            m.d.comb += self.o.p.stays.eq(found.stays)
        return m

    def _words(
        self, m: Module, name: str, word: KernelWord, kept: data.Layout, takes: Value
    ) -> data.View:
        """Table with the lowest bits of one word per row. Returns the entry of the block accepted
        last."""
        config, kernel = self._config, self.kernel
        memory = Memory(shape=kept, depth=1 << config.row_bits, init=[])
        m.submodules[name] = memory
        write, read = memory.write_port(), memory.read_port()
        m.d.comb += [
            write.en.eq(kernel.valid & (kernel.word == word)),
            write.addr.eq(kernel.row),
            write.data.eq(kernel.data),
            read.en.eq(takes),
            read.addr.eq(self.i.p.row),
        ]
        return read.data
