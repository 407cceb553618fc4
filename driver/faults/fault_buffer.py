"""The machine's fault buffer: a ring of fault records in memory (HOST-11, spec page 60, 6.4)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from signalbox.driver.memory.physical import Buffer
from signalbox.driver.memory.translation_fault import FaultOwner, TranslationFault, decode
from signalbox.hw.page_tables import FAULT_RECORD_BYTES

__all__ = ["FaultBuffer", "FaultBufferError", "FaultBufferOverflow", "FaultPointers"]

_VALID_BYTE, _VALID_BIT = FAULT_RECORD_BYTES - 1, 1 << 7
"""Where VALID is in a record: its last bit."""


class FaultPointers(Protocol):
    """Registers of the ring, in records: empty while GET is PUT, which the machine advances."""

    async def get(self) -> int:
        """GET: the record that is read next."""
        ...

    async def put(self) -> int:
        """PUT: the record that the machine writes next."""
        ...

    async def set_get(self, index: int) -> None:
        """Give the records before `index` back to the machine."""
        ...

    async def overflowed(self) -> bool:
        """Whether the machine has dropped records because the ring was full, or was switched off
        while it wrote one. Stays so."""
        ...

    async def clear_overflow(self) -> None:
        """The machine may write records again."""
        ...


class FaultBufferError(Exception):
    """The ring is not as the machine leaves it; the message says how."""


@dataclass
class FaultBufferOverflow(Exception):
    """The machine has dropped fault records, it does not say which; `faults` are those that it has
    kept. Who was halted by a lost one is found by the state of the channels."""

    faults: list[TranslationFault]
    records: int

    def __str__(self) -> str:
        return (
            f"the fault buffer of {self.records} records was full, and faults were dropped; "
            f"{len(self.faults)} were kept"
        )


class FaultBuffer:
    """Reads the fault records in `buffer` and gives them back to the machine.

    Parameters
    ----------
    buffer : memory of the ring, whole records of 32 bytes, at least 2.
    pointers : its registers.
    owner : the address space of an ASID and a page directory base in bytes, if known.
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

    async def read(self) -> list[TranslationFault]:
        """All faults since the last call, the oldest first.

        Raises `FaultBufferOverflow`, with those faults, when others were dropped;
        `FaultBufferError` for a pointer outside the ring, or a record next in turn that is not
        valid: then nothing is given back.
        """
        put = self._checked("PUT", await self._pointers.put())
        get = first = self._checked("GET", await self._pointers.get())
        faults: list[TranslationFault] = []
        while get != put and (fault := self._take(get)) is not None:
            faults.append(fault)
            get = (get + 1) % self.records
        if get != first:
            await self._pointers.set_get(get)
        elif get != put:
            raise FaultBufferError(f"record {get} of the fault buffer is not valid, PUT is {put}")
        # Only after room was made: dropping goes on while the ring is full.
        if await self._pointers.overflowed():
            await self._pointers.clear_overflow()
            raise FaultBufferOverflow(faults, self.records)
        return faults

    def _checked(self, name: str, index: int) -> int:
        if not 0 <= index < self.records:
            raise FaultBufferError(
                f"{name} of the fault buffer is {index}, it has {self.records} records"
            )
        return index

    def _take(self, index: int) -> TranslationFault | None:
        """The fault of a record, whose VALID is cleared; None when it is not valid."""
        at = index * FAULT_RECORD_BYTES
        record = self._buffer.read(shape=FAULT_RECORD_BYTES, offset=at).tobytes()
        fault = decode(record, self._owner)
        self._buffer.write(bytes([record[_VALID_BYTE] & ~_VALID_BIT]), at + _VALID_BYTE)
        return fault
