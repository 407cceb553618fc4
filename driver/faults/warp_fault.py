"""Warp faults, as recorded in the machine's registers."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from signalbox.driver.platform.control_port import ControlPort
from signalbox.driver.platform.fair_lock import FairLock
from signalbox.hw.errors import CoreCause

__all__ = ["WarpFault", "WarpFaults"]

_KEPT = 64
"""Maximum number of faults kept without a matching task error; the oldest are dropped."""

_MEANING = {
    CoreCause.INSTRUCTION: "invalid instruction, or an operand that the kernel does not have",
    CoreCause.PROGRAM_BUS: "the bus refused a read of the program or the arguments",
    CoreCause.PROGRAM_FAULT: "program or arguments are not mapped",
    CoreCause.MEMORY_BUS: "the bus refused the access",
    CoreCause.MEMORY_FAULT: "the address is not mapped for such an access",
    CoreCause.MEMORY_ALIGNMENT: "the address is not a multiple of 4",
    CoreCause.SHARED_RANGE: "past the block's shared memory, or not a multiple of 4",
    CoreCause.MASK_STACK: "overflow or underflow of the lane mask stack",
    CoreCause.LOCAL_RANGE: "past the thread's local memory, or not a multiple of 4",
    CoreCause.STATE_BUS: "the bus refused an access to the save area of a stopped block",
}

_ACCESSES = {
    CoreCause.MEMORY_BUS,
    CoreCause.MEMORY_FAULT,
    CoreCause.MEMORY_ALIGNMENT,
    CoreCause.PROGRAM_BUS,
    CoreCause.PROGRAM_FAULT,
}
"""Causes that have an accessed address."""


@dataclass(frozen=True)
class WarpFault:
    """A warp that has faulted.

    Members
    -------
    cause : cause; a plain number if unknown.
    sm, asid : SM and ASID of the warp.
    at : virtual address of the instruction.
    va : accessed virtual address; None if there was no access.
    index : number of the warp in its block.
    block : position of the block in the grid, in x, y, z.
    """

    cause: CoreCause | int
    sm: int
    asid: int
    at: int
    va: int | None
    index: int = 0
    block: tuple[int, int, int] = (0, 0, 0)

    def text(self, place: str = "") -> str:
        """Description of the fault. `place` : source line of the instruction; empty if unknown."""
        name, why = f"cause {self.cause}", ""
        if isinstance(self.cause, CoreCause):
            name = self.cause.name
            why = f": {_MEANING[self.cause]}" if self.cause in _MEANING else ""
        accessed = "" if self.va is None else f", accessing {self.va:#x}"
        where = f"{self.at:#x} ({place})" if place else f"{self.at:#x}"
        warp = f"warp {self.index} of block {self.block} on SM {self.sm}"
        return f"{warp} had {name} at {where}{accessed}{why}"


class WarpFaults:
    """Collects warp faults. The machine records only the first fault since the last `read`."""

    def __init__(self, control: ControlPort) -> None:
        self._control = control
        self._lock = FairLock(control.machine)
        self._faults: deque[WarpFault] = deque(maxlen=_KEPT)

    @property
    def unclaimed(self) -> tuple[WarpFault, ...]:
        """Faults not matched with a task error so far, oldest first."""
        return tuple(self._faults)

    async def forget(self, asid: int) -> None:
        """Drop the faults of an ASID so far: they do not belong to its next holder."""
        await self.read()
        self.take(asid, lambda at: True)

    async def read(self) -> None:
        """Read the recorded fault, if there is one, and clear it, so that the machine can record
        the next."""
        async with self._lock:
            if not (await self._control.read_fields("TASK_STATUS"))["WARP_FAULT"]:
                return
            word = await self._control.read_fields("WARP_FAULT")
            at = await self._control.read64("WARP_FAULT_AT")
            va = await self._control.read64("WARP_FAULT_VA")
            x = await self._control.read("WARP_FAULT_BLOCK_X")
            yz = await self._control.read_fields("WARP_FAULT_BLOCK_YZ")
            known = word["CAUSE"] in {cause.value for cause in CoreCause}
            cause = CoreCause(word["CAUSE"]) if known else word["CAUSE"]
            accessed = va if cause in _ACCESSES else None
            where = word["SM"], word["ASID"], at, accessed, word["WARP"], (x, yz["Y"], yz["Z"])
            self._faults.append(WarpFault(cause, *where))
            # Last: a call that is interrupted before may read the fault twice, but loses none.
            await self._control.write("TASK_STATUS", WARP_FAULT=1)

    def take(self, asid: int, mine: Callable[[int], bool]) -> WarpFault | None:
        """Find the first fault of a task of `asid` among those read; None if the machine recorded
        none. `mine` tells whether an instruction address belongs to the task.

        All faults of the task are removed: several of its warps may fault.
        """
        found = [fault for fault in self._faults if fault.asid == asid and mine(fault.at)]
        for fault in found:
            self._faults.remove(fault)
        return found[0] if found else None
