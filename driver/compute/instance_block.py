"""Instance blocks: the address spaces of a context, as stored in memory (ASID-21, ASID-22)."""

from signalbox.driver.memory.physical import Buffer
from signalbox.hw.config import VA_BITS
from signalbox.hw.instance_block import (
    SC_BASES,
    SC_LIMIT_BYTES,
    SC_LIMITED,
    SC_LIMITS,
    SC_STEP,
    SC_VALID,
    SUBCONTEXTS,
    PageDirectoryBase,
)
from signalbox.hw.methods import pack

__all__ = ["INSTANCE_BYTES", "InstanceBlock"]

INSTANCE_BYTES = 4096


class InstanceBlock:
    """Instance block at byte `offset` of a buffer, initially without address spaces.

    The machine may read it at any time, so it is always consistent: a page directory base and its
    address limit are written before their valid bit is set.
    """

    def __init__(self, buffer: Buffer, offset: int) -> None:
        self._buffer, self._offset = buffer, offset
        self._valid = self._limited = 0
        buffer.write(bytes(INSTANCE_BYTES), offset)

    @property
    def address(self) -> int:
        """Physical byte address."""
        return self._buffer.at(self._offset)

    def add(self, asid: int, base: int, limit: int) -> None:
        """Add `asid` with page directory base `base`, a physical byte address, and the last virtual
        address `limit`. Raises `ValueError`."""
        if not 0 <= asid < SUBCONTEXTS:
            raise ValueError(f"ASID {asid} is outside 0 … {SUBCONTEXTS - 1}")
        word = pack(PageDirectoryBase, version2=1, big_page_64k=1, base=base >> 12)
        self._store(SC_BASES + asid * SC_STEP, word)
        self._limit(asid, limit)
        self._mark(self._valid | 1 << asid)

    def remove(self, asid: int) -> None:
        """Remove `asid`."""
        self._mark(self._valid & ~(1 << asid))

    def _limit(self, asid: int, limit: int) -> None:
        """Store an address limit. Only a real limit is marked, as each marked one costs the machine
        a read at every start of the context."""
        self._limited &= ~(1 << asid)
        if limit < (1 << VA_BITS) - 1:
            self._limited |= 1 << asid
            self._store(SC_LIMITS + asid * SC_LIMIT_BYTES, limit)
        self._store(SC_LIMITED, self._limited)

    def _mark(self, valid: int) -> None:
        self._valid = valid
        self._store(SC_VALID, valid)

    def _store(self, at: int, word: int) -> None:
        self._buffer.write(word.to_bytes(8, "little"), self._offset + at)
