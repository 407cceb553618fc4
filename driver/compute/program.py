"""A kernel loaded into an address space."""

from dataclasses import dataclass

from signalbox.driver.kernels.library import Kernel
from signalbox.driver.memory.address_space import AddressSpace
from signalbox.driver.memory.physical import Buffer

__all__ = ["Program"]


@dataclass(eq=False)
class Program:
    """`kernel`, with its instructions in `buffer`, mapped in `space`. Created by
    `Launcher.load`."""

    kernel: Kernel
    space: AddressSpace
    buffer: Buffer

    @property
    def va(self) -> int:
        """Virtual address of the first instruction."""
        return self.space.at(self.buffer)

    def holds(self, at: int) -> bool:
        """Whether a virtual address is that of an instruction of the program, or directly after
        the last one."""
        return self.va <= at <= self.va + len(self.kernel.program)

    def line(self, at: int) -> str:
        """Source line of the instruction at a virtual address, as text."""
        return self.kernel.line(at - self.va)
