"""An address space in which virtual addresses are physical ones, for benches of raw channels."""

from driver.control import Control
from driver.memory import Memory
from driver.pagetables import PageTables
from hw.config import VA_BITS
from hw.pagetables import PAGE_SIZES
from hw.registers import MmuOperation
from tb.sim.machine import SimMachine

__all__ = ["TABLES_AT", "bind", "identity"]

TABLES_AT = 0x60_0000
"""First byte of the page tables."""


async def identity(machine: SimMachine, *, asid: int = 0) -> None:
    """Map all memory in pages as large as fit, and bind the tables to `asid`."""
    control = Control(machine)
    size = await control.read64("MEMORY_BYTES")
    tables = PageTables(Memory(machine, size, base=TABLES_AT))
    begin = 0
    for page_size in reversed(PAGE_SIZES):
        end = size - size % page_size
        if end > begin:
            tables.map(begin, begin, end - begin, page_size=page_size)
        begin = end
    await bind(control, asid, tables.root)


async def bind(control: Control, asid: int, base: int, limit: int = (1 << VA_BITS) - 1) -> None:
    """Bind `asid` to the tables at `base`."""
    for name, value in (("MMU_PDB", base), ("MMU_LIMIT", limit)):
        await control.write(f"{name}_LO", value & 0xFFFF_F000)
        await control.write(f"{name}_HI", value >> 32)
    await control.write("MMU_COMMAND", OPERATION=MmuOperation.BIND.value, ASID=asid)
    while status := await control.read("MMU_STATUS"):
        assert status == 1, f"bind of ASID {asid} was refused"
