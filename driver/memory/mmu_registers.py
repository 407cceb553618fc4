"""Bind and invalidate through registers (ASID-8, ASID-9): the `Mmu` of a machine."""

from signalbox.driver.platform.control_port import ControlPort
from signalbox.driver.platform.fair_lock import FairLock
from signalbox.hw.config import VA_BITS
from signalbox.hw.registers import MmuOperation

__all__ = ["MmuError", "MmuRegisters"]

POLL_CYCLES = 8
"""Cycles between two reads of MMU_STATUS."""

PATIENCE_CYCLES = 200_000
"""Cycles after which a command counts as failed."""

_PAGE_MASK = (1 << VA_BITS) - 1 & ~0xFFF


class MmuError(Exception):
    """The machine refused a bind or an invalidation, or did not acknowledge it."""


class MmuRegisters:
    """Issues one command at a time, in call order. Implements `driver.memory.mmu.Mmu`.

    All methods raise `MmuError`. A command whose coroutine is cancelled still runs to its end; the
    next command waits for it.
    """

    def __init__(self, control: ControlPort) -> None:
        self._control = control
        self._lock = FairLock(control.machine)

    async def bind(self, asid: int, base: int, limit: int) -> None:
        """See `Mmu.bind`."""
        await self._command(MmuOperation.BIND, asid, MMU_PDB=base, MMU_LIMIT=limit & _PAGE_MASK)

    async def unbind(self, asid: int) -> None:
        """See `Mmu.unbind`."""
        await self._command(MmuOperation.UNBIND, asid)

    async def invalidate_all(self) -> None:
        """See `Mmu.invalidate_all`."""
        await self._command(MmuOperation.INVALIDATE_ALL)

    async def invalidate_asid(self, asid: int) -> None:
        """See `Mmu.invalidate_asid`."""
        await self._command(MmuOperation.INVALIDATE_ASID, asid)

    async def invalidate_page(self, asid: int, va: int) -> None:
        """See `Mmu.invalidate_page`."""
        await self._command(MmuOperation.INVALIDATE_PAGE, asid, MMU_VA=va & _PAGE_MASK)

    async def _command(self, operation: MmuOperation, asid: int = 0, **arguments: int) -> None:
        what = f"{operation.name} of ASID {asid}"
        async with self._lock:
            # An earlier owner of the machine, or a cancelled task, may have left a command running.
            await self._idle(f"the command before {what}")
            for name, value in arguments.items():
                await self._control.write(f"{name}_LO", value & 0xFFFF_FFFF)
                await self._control.write(f"{name}_HI", value >> 32)
            await self._control.write("MMU_COMMAND", OPERATION=operation.value, ASID=asid)
            if (await self._idle(what))["REFUSED"]:
                raise MmuError(f"the machine refused {what}")

    async def _idle(self, what: str) -> dict[str, int]:
        """Wait until MMU_STATUS is not busy; return its fields."""
        waited = 0
        while (status := await self._control.read_fields("MMU_STATUS"))["BUSY"]:
            if waited >= PATIENCE_CYCLES:
                raise MmuError(f"the machine has not acknowledged {what} for {waited} cycles")
            await self._control.machine.wait_cycles(POLL_CYCLES)
            waited += POLL_CYCLES
        return status
