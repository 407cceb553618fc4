"""Fault buffer of the machine: a ring of fault records in memory (HOST-11, spec page 60, 6.4)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from signalbox.driver.memory.physical import Buffer
from signalbox.driver.memory.translation_fault import FaultOwner, TranslationFault, decode
from signalbox.hw.page_tables import FAULT_RECORD_BYTES

__all__ = ["FaultBuffer", "FaultBufferError", "FaultBufferOverflow", "FaultPointers"]

_VALID_BYTE, _VALID_BIT = FAULT_RECORD_BYTES - 1, 1 << 7
"""Position of VALID in a record: its last bit."""


class FaultPointers(Protocol):
    """Registers of the ring. Pointers are record numbers; the ring is empty while GET equals PUT.
    The machine advances PUT, the driver GET."""

    async def get(self) -> int:
        """GET: next record to read."""
        ...

    async def put(self) -> int:
        """PUT: next record that the machine will write."""
        ...

    async def set_get(self, index: int) -> None:
        """Return the records before `index` to the machine."""
        ...

    async def overflowed(self) -> bool:
        """Whether the machine has dropped records, because the ring was full or was disabled during
        a write. Sticky."""
        ...

    async def clear_overflow(self) -> None:
        """Clear the overflow flag. The machine writes records again."""
        ...


class FaultBufferError(Exception):
    """The fault buffer is in an invalid state, or does not respond; the message says how."""


@dataclass
class FaultBufferOverflow(Exception):
    """The machine has dropped fault records. `faults` : the faults it kept. `records` : number of
    records that the buffer can hold. A channel halted by a dropped fault still reports its error
    (`Channel.check`), without the fault."""

    faults: list[TranslationFault]
    records: int

    def __str__(self) -> str:
        return (
            f"the fault buffer of {self.records} records was full, and faults were dropped; "
            f"{len(self.faults)} were kept"
        )


class FaultBuffer:
    """Reads fault records and returns them to the machine.

    Parameters
    ----------
    buffer : memory of the ring, at least 2 records of 32 bytes.
    pointers : registers of the ring.
    owner : maps an ASID and a page directory base (byte address) to an address space, if known.

    Raises `ValueError` if the buffer is too small or not a whole number of records.
    """

    def __init__(
        self,
        buffer: Buffer,
        pointers: FaultPointers,
        owner: Callable[[int, int], FaultOwner | None],
    ) -> None:
        self._buffer, self._pointers, self._owner = buffer, pointers, owner
        self.records, rest = divmod(buffer.size, FAULT_RECORD_BYTES)
        if self.records < 2 or rest:
            raise ValueError(
                f"{buffer} does not hold 2 or more whole records of {FAULT_RECORD_BYTES} bytes"
            )
        # State of an interrupted call: the record to go on with, faults, whether others were lost.
        self._next: int | None = None
        self._faults: list[TranslationFault] = []
        self._dropped = False

    async def read(self) -> list[TranslationFault]:
        """All faults since the last call, oldest first. After an interruption, the next call
        returns what was read.

        Raises `FaultBufferOverflow`, with the faults read, if others were dropped;
        `FaultBufferError` if a pointer is outside the ring or the next record is not valid. After a
        `FaultBufferError`, no record has been returned to the machine.
        """
        put = self._checked("PUT", await self._pointers.put())
        first = self._checked("GET", await self._pointers.get())
        get = first if self._next is None else self._next
        while get != put and (fault := self._take(get)) is not None:
            self._faults.append(fault)
            get = self._next = (get + 1) % self.records
        if get != first:
            await self._pointers.set_get(get)
        elif get != put:
            raise FaultBufferError(f"record {get} of the fault buffer is not valid, PUT is {put}")
        self._next = None
        # Clear it only after making room: the machine drops records while the ring is full.
        if await self._pointers.overflowed():
            self._dropped = True
            await self._pointers.clear_overflow()
        faults, self._faults = self._faults, []
        dropped, self._dropped = self._dropped, False
        if dropped:
            raise FaultBufferOverflow(faults, self.records)
        return faults

    def _checked(self, name: str, index: int) -> int:
        if not 0 <= index < self.records:
            raise FaultBufferError(
                f"{name} of the fault buffer is {index}, it has {self.records} records"
            )
        return index

    def _take(self, index: int) -> TranslationFault | None:
        """Decode a record and clear its VALID bit; None if it is not valid."""
        at = index * FAULT_RECORD_BYTES
        record = self._buffer.read(shape=FAULT_RECORD_BYTES, offset=at).tobytes()
        fault = decode(record, self._owner)
        self._buffer.write(bytes([record[_VALID_BYTE] & ~_VALID_BIT]), at + _VALID_BYTE)
        return fault
