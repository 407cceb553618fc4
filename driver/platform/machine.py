"""Interface between the driver and a machine: control port, interrupt line, memory.

The driver runs unchanged on any implementation: a simulation (`tb/simulation/machine.py` for
cocotb), a plain Python model, a board.
"""

from typing import Protocol, runtime_checkable

__all__ = ["Machine"]


@runtime_checkable
class Machine(Protocol):
    """One Signalbox and its memory, seen from the CPU.

    Several coroutines may call all methods. Register accesses take effect in call order.
    """

    async def read32(self, offset: int) -> int:
        """Value of the 32-bit register at byte `offset` of the control port."""
        ...

    async def write32(self, offset: int, value: int) -> None:
        """Write a 32-bit register. Returns when the write has been acknowledged."""
        ...

    async def interrupt(self) -> None:
        """Wait until the interrupt line is 1; return at once if it already is. A rising edge wakes
        every waiting coroutine, and so does `wake`."""
        ...

    def wake(self) -> None:
        """Wake every coroutine that waits for an interrupt, which may never come."""
        ...

    async def wait_cycles(self, cycles: int) -> None:
        """Wait for `cycles` (1 or more) clock cycles of the design."""
        ...

    def memory_read(self, address: int, size: int) -> bytes:
        """Current contents of physical memory. Takes no simulated time."""
        ...

    def memory_write(self, address: int, data: bytes) -> None:
        """Write physical memory. The design sees the new bytes at once."""
        ...

    def now(self) -> int:
        """Clock cycles since a fixed point in time."""
        ...
