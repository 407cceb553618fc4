"""What the driver needs of the machine it drives: a control port, an interrupt, a view of memory.

The driver runs unchanged on anything that offers these methods: a simulation (`tb/sim/machine.py`
for cocotb), a plain Python model, a board.
"""

from typing import Protocol, runtime_checkable

__all__ = ["Machine"]


@runtime_checkable
class Machine(Protocol):
    """One Signalbox and its memory, seen from the CPU.

    All methods may be called from several tasks; register accesses take effect in call order.
    """

    async def read32(self, offset: int) -> int:
        """Value of the 32-bit register at byte `offset` of the control port."""
        ...

    async def write32(self, offset: int, value: int) -> None:
        """Write a 32-bit register; returns when the write was answered."""
        ...

    async def interrupt(self) -> None:
        """Wait until the interrupt line is 1; returns at once when it is. Every task that waits
        while the line rises is woken."""
        ...

    async def wait_cycles(self, cycles: int) -> None:
        """Wait for `cycles` (1 or more) clocks of the design."""
        ...

    def memory_read(self, address: int, size: int) -> bytes:
        """Bytes of physical memory, as the CPU sees them now; takes no simulated time."""
        ...

    def memory_write(self, address: int, data: bytes) -> None:
        """Write bytes of physical memory; visible to the design at once."""
        ...

    def now(self) -> int:
        """Clock cycles since some fixed moment."""
        ...
