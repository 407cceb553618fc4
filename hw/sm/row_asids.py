"""Local copy of the address space of each kernel row (ASID-27)."""

from amaranth.hdl import Module
from amaranth.lib import data
from amaranth.lib.memory import Memory

from signalbox.hw.config import Config
from signalbox.hw.records.placement import KernelWord, space_word

__all__ = ["keep_asids"]


def keep_asids(m: Module, config: Config, kernel: data.View) -> Memory:
    """A memory of the ASIDs of all rows, indexed by row and written from the words of `kernel`."""
    m.submodules.asids = asids = Memory(shape=config.asid_bits, depth=1 << config.row_bits, init=[])
    write = asids.write_port()
    m.d.comb += [
        write.en.eq(kernel.valid & (kernel.word == KernelWord.SPACE)),
        write.addr.eq(kernel.row),
        write.data.eq(data.View(space_word, kernel.data[: space_word.size]).asid),
    ]
    return asids
