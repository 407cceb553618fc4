"""A kernel in the memory of an address space."""

from dataclasses import dataclass

from signalbox.driver.kernels.library import Kernel
from signalbox.driver.memory.address_space import AddressSpace
from signalbox.driver.memory.physical import Buffer

__all__ = ["Program"]


@dataclass(eq=False)
class Program:
    """`kernel`, whose instructions are in `buffer`, mapped in `space`. Made by `Compute.load`."""

    kernel: Kernel
    space: AddressSpace
    buffer: Buffer

    @property
    def va(self) -> int:
        """Virtual address of the first instruction."""
        return self.space.at(self.buffer)

    def holds(self, at: int) -> bool:
        """Whether an instruction at a virtual address is the program's, or follows its last one."""
        return self.va <= at <= self.va + len(self.kernel.program)

    def line(self, at: int) -> str:
        """Where the instruction at a virtual address comes from, in words."""
        return self.kernel.line(at - self.va)
