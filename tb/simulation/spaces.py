"""Address spaces for testbenches of raw channels: tables in memory, bound by registers."""

from signalbox.driver.memory.mmu_registers import MmuRegisters
from signalbox.driver.memory.page_tables import PageTables
from signalbox.driver.memory.physical import Memory
from signalbox.driver.platform.control_port import ControlPort
from signalbox.hw.config import VA_BITS
from signalbox.hw.page_tables import PAGE_SIZES
from signalbox.tb.simulation.machine import SimMachine

__all__ = ["LAST", "TABLES_AT", "RawSpaces"]

TABLES_AT = 0x60_0000
"""Physical address of the 2 MiB of memory for page tables."""

LAST = (1 << VA_BITS) - 1
"""The last virtual address."""


class RawSpaces:
    """Creates and binds address spaces.

    Members
    -------
    mmu : registers for binds and invalidations.
    memory : allocator for page tables.
    size : bytes of physical memory.
    """

    def __init__(self, machine: SimMachine, size: int) -> None:
        self.size = size
        self.mmu = MmuRegisters(ControlPort(machine))
        self.memory = Memory(machine, size, base=TABLES_AT)

    @classmethod
    async def same_addresses(cls, machine: SimMachine, *, whole: bool = False) -> "RawSpaces":
        """Bind ASID 0 of a machine after its reset. Each virtual address is the same physical
        address: by the space `identity`, or, with `whole`, by a single page of 512 MiB."""
        spaces = cls(machine, await ControlPort(machine).read64("MEMORY_BYTES"))
        tables = spaces.tables() if whole else spaces.identity()
        if whole:
            tables.map(0, 0, PAGE_SIZES[-1], page_size=PAGE_SIZES[-1])
        await spaces.bind(0, tables)
        return spaces

    def tables(self) -> PageTables:
        """An address space without mappings, not bound."""
        return PageTables(self.memory)

    def identity(self) -> PageTables:
        """An address space, not bound, that maps each virtual address in memory to the same
        physical address, in the largest pages that fit. The memory of page tables is not mapped."""
        tables = self.tables()
        for first, end in ((0, TABLES_AT), (TABLES_AT + PAGE_SIZES[2], self.size)):
            for page_size in reversed(PAGE_SIZES):
                whole = end - end % page_size
                if whole > first:
                    tables.map(first, first, whole - first, page_size=page_size)
                    first = whole
        return tables

    async def bind(self, asid: int, tables: PageTables, limit: int = LAST) -> None:
        """Bind page tables to an ASID. `limit` : last virtual address that may be accessed."""
        await self.mmu.bind(asid, tables.root, limit)
