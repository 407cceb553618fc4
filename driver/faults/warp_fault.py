"""Warps that could not go on, as the machine's registers tell of them."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from signalbox.driver.platform.control_port import Control
from signalbox.driver.platform.fair_lock import FairLock
from signalbox.hw.errors import CoreCause

__all__ = ["WarpFault", "WarpFaults"]

_KEPT = 64
"""So many are kept that belong to no task's error yet; the newest ones."""

_MEANING = {
    CoreCause.INSTRUCTION: "not an instruction, or an operand that the kernel does not have",
    CoreCause.PROGRAM_BUS: "the bus refused a read of the program or the arguments",
    CoreCause.PROGRAM_FAULT: "program or arguments are not mapped",
    CoreCause.MEMORY_BUS: "the bus refused the access",
    CoreCause.MEMORY_FAULT: "the address is not mapped for that",
    CoreCause.MEMORY_ALIGNMENT: "the address is not a multiple of 4",
    CoreCause.SHARED_RANGE: "past the block's shared memory, or not a multiple of 4",
    CoreCause.MASK_STACK: "too many lane masks, or one taken that is not there",
}

_ACCESSES = {
    CoreCause.MEMORY_BUS,
    CoreCause.MEMORY_FAULT,
    CoreCause.MEMORY_ALIGNMENT,
    CoreCause.PROGRAM_BUS,
    CoreCause.PROGRAM_FAULT,
}
"""Causes with an address that was accessed."""


@dataclass(frozen=True)
class WarpFault:
    """A warp could not go on.

    Members
    -------
    cause : why; the bare number where there is no such cause.
    sm, asid : where it ran.
    at : virtual address of its instruction. va : that it accessed, None where it did not.
    """

    cause: CoreCause | int
    sm: int
    asid: int
    at: int
    va: int | None

    def text(self, place: str = "") -> str:
        """In words; `place`: where the instruction comes from."""
        name, why = f"cause {self.cause}", ""
        if isinstance(self.cause, CoreCause):
            name = self.cause.name
            why = f": {_MEANING[self.cause]}" if self.cause in _MEANING else ""
        accessed = "" if self.va is None else f", accessing {self.va:#x}"
        where = f"{self.at:#x} ({place})" if place else f"{self.at:#x}"
        return f"a warp on SM {self.sm} had {name} at {where}{accessed}{why}"


class WarpFaults:
    """Reads what the machine tells of the first warp since it was read last."""

    def __init__(self, control: Control) -> None:
        self._control = control
        self._lock = FairLock(control.machine)
        self._faults: deque[WarpFault] = deque(maxlen=_KEPT)

    @property
    def unclaimed(self) -> tuple[WarpFault, ...]:
        """Those that belong to no task's error, or not yet, oldest first."""
        return tuple(self._faults)

    async def read(self) -> None:
        """Take note of a fault, so that the machine tells of the next one."""
        async with self._lock:
            if not (await self._control.read_fields("TASK_STATUS"))["WARP_FAULT"]:
                return
            word = await self._control.read_fields("WARP_FAULT")
            at = await self._control.read64("WARP_FAULT_AT")
            va = await self._control.read64("WARP_FAULT_VA")
            await self._control.write("TASK_STATUS", WARP_FAULT=1)
            known = word["CAUSE"] in {cause.value for cause in CoreCause}
            cause = CoreCause(word["CAUSE"]) if known else word["CAUSE"]
            accessed = va if cause in _ACCESSES else None
            self._faults.append(WarpFault(cause, word["SM"], word["ASID"], at, accessed))

    async def claim(self, asid: int, mine: Callable[[int], bool]) -> WarpFault | None:
        """The fault of a task of `asid` whose instructions are `mine` by their address, None when
        the machine tells of none. All of that kind are forgotten: a task's warps may have several.
        """
        await self.read()
        found = [fault for fault in self._faults if fault.asid == asid and mine(fault.at)]
        for fault in found:
            self._faults.remove(fault)
        return found[0] if found else None
