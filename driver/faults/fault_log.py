"""Log of translation faults; matches them with the channel errors that they caused."""

from collections import deque
from collections.abc import Callable

from signalbox.driver.faults.channel_error import ChannelError
from signalbox.driver.faults.fault_buffer import FaultBuffer, FaultBufferError, FaultBufferOverflow
from signalbox.driver.faults.fault_registers import FaultRegisters
from signalbox.driver.memory.translation_fault import (
    FIRST_ENGINE,
    HOST,
    SEMAPHORES,
    TranslationFault,
)
from signalbox.driver.platform.fair_lock import FairLock
from signalbox.driver.platform.machine import Machine
from signalbox.hw.errors import Cause
from signalbox.hw.page_tables import AccessType

__all__ = ["FaultLog"]

_KEPT = 64
"""Maximum number of faults kept without a matching channel error; the oldest are dropped."""

_PAGE = 4096

_READS = {Cause.FETCH_FAULT, Cause.COPY_READ_FAULT, Cause.TASK_FAULT}
_REQUESTERS = {
    Cause.FETCH_FAULT: range(HOST, HOST + 1),
    Cause.USERD_WRITE: range(HOST, HOST + 1),
    Cause.SEM_FAULT: range(SEMAPHORES, SEMAPHORES + 1),
    Cause.COPY_SEMAPHORE: range(SEMAPHORES, SEMAPHORES + 1),
    Cause.COPY_READ_FAULT: range(FIRST_ENGINE, 128),
    Cause.COPY_WRITE_FAULT: range(FIRST_ENGINE, 128),
    Cause.INLINE_FAULT: range(HOST, 128),
    Cause.TASK_FAULT: range(FIRST_ENGINE, 128),
    Cause.TASK_LISTS: range(FIRST_ENGINE, 128),
    Cause.TASK_KERNEL: range(128),
    Cause.TASK_RELEASE: range(SEMAPHORES, SEMAPHORES + 1),
}
"""Numbers of the HUB clients that may have made the faulting access, by cause of the channel error.
Causes that are never due to a fault are left out."""

_WITHOUT_ADDRESS = {Cause.FETCH_FAULT, Cause.USERD_WRITE, Cause.TASK_LISTS, Cause.TASK_RELEASE}
"""Causes of channel errors without the faulting address."""

_BOTH_WAYS = {Cause.TASK_LISTS, Cause.TASK_KERNEL}
"""Causes that may be a read or a write."""


class FaultLog:
    """Reads the fault buffer and finds the translation fault behind a channel error."""

    def __init__(self, machine: Machine, buffer: FaultBuffer, registers: FaultRegisters) -> None:
        self._buffer, self._registers = buffer, registers
        self._lock = FairLock(machine)
        self._faults: deque[TranslationFault] = deque(maxlen=_KEPT)
        self._lost: FaultBufferOverflow | FaultBufferError | None = None

    @property
    def unclaimed(self) -> tuple[TranslationFault, ...]:
        """Faults not matched with a channel error so far, oldest first."""
        return tuple(self._faults)

    async def read(self) -> None:
        """Read new records and clear the interrupt. Losses are kept for `tell`."""
        async with self._lock:
            if await self._registers.acknowledge():
                self._lost = FaultBufferError("the machine could not write a fault record")
            try:
                self._faults += await self._buffer.read()
            except FaultBufferOverflow as overflow:
                self._faults += overflow.faults
                self._lost = overflow
            except FaultBufferError as error:
                self._lost = error

    async def read_for(self, error: ChannelError) -> None:
        """Read new records if the error may be due to a fault."""
        if error.cause in _REQUESTERS:
            await self.read()

    async def forget(self, asid: int) -> None:
        """Drop the faults of an ASID so far: they do not belong to its next holder."""
        await self.read()
        for fault in tuple(self._faults):
            if fault.asid == asid:
                self._faults.remove(fault)

    def tell(self) -> None:
        """Raise `FaultBufferOverflow` or `FaultBufferError`, once, if faults were lost."""
        lost, self._lost = self._lost, None
        if lost is not None:
            raise lost

    def take(
        self,
        asid: int,
        error: ChannelError,
        touches: Callable[[int], bool] | None = None,
        va: int | None = None,
    ) -> TranslationFault | None:
        """Find and remove the fault behind an error among those read; None if there is none, or if
        its record was lost.

        Every burst of a copy or task may fault, so further faults of the same failure are removed
        too: those at addresses that the failed copy `touches`, and those of a task on the same
        page.

        Parameters
        ----------
        asid : ASID of the channel's address space.
        touches : whether the failed copy accesses a virtual address; None for other errors.
        va : faulting virtual address, where `error.va` is another one. Only a fault on its page is
            then taken.
        """
        if error.cause not in _REQUESTERS:
            return None
        found = [fault for fault in self._faults if _fits(fault, asid, error.cause)]
        if error.cause not in _WITHOUT_ADDRESS:
            page = (error.va if va is None else va) // _PAGE * _PAGE
            near = [fault for fault in found if fault.va == page]
            found = near if va is not None else near or found
        if not found:
            return None
        claimed = found[0]
        for fault in tuple(self._faults):
            same = (fault.asid, fault.client) == (asid, claimed.client)
            again = same and touches is not None and touches(fault.va)
            shared = error.of_task and (fault.asid, fault.va) == (asid, claimed.va)
            if fault is claimed or again or shared:
                self._faults.remove(fault)
        return claimed


def _fits(fault: TranslationFault, asid: int, cause: Cause) -> bool:
    """Whether a fault can have caused an error."""
    if not fault.hub:  # of an SM, which has client numbers of its own
        return fault.asid == asid and cause is Cause.TASK_KERNEL
    if fault.asid != asid or fault.client not in _REQUESTERS[cause]:
        return False
    if fault.client == SEMAPHORES or cause in _BOTH_WAYS:
        return True
    return (fault.access in {AccessType.READ, AccessType.PREFETCH}) == (cause in _READS)
