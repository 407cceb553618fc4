"""Memory of this process, parts of which other processes can map. Linux only (memfd)."""

import ctypes
import errno
import fcntl
import mmap
import os

__all__ = ["PAGE_BYTES", "SharedMemory"]

PAGE_BYTES = 4096
"""Unit of sizes and offsets."""

# Python's `mmap` does not have all of Linux's flags.
_MAP_FIXED, _MAP_NORESERVE = 0x10, 0x4000
_PRIVATE = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE
_ACCESS = mmap.PROT_READ | mmap.PROT_WRITE
_FAILED = ctypes.c_void_p(-1).value

_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
"""Without these, a client could truncate the file, and the next access past its end would end this
process (SIGBUS)."""

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_long,
]


class SharedMemory:
    """`size` bytes at a fixed address of this process, all zero. Pages are backed when written.

    A portion is a range that `share` makes available to other processes. Its descriptor gives
    access to the portion only.

    Members
    -------
    address : address of the first byte in this process.
    size : a multiple of `PAGE_BYTES`.
    view : all bytes, writable.
    """

    def __init__(self, size: int) -> None:
        """Raises `ValueError` for a bad size, `OSError` if there are not enough addresses."""
        if size <= 0 or size % PAGE_BYTES:
            raise ValueError(f"size = {size} is not a positive multiple of {PAGE_BYTES}")
        self.size = size
        self._memory: mmap.mmap | None = _reserve(size)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        self.view = memoryview(self._memory)

    def share(self, offset: int, size: int) -> int:
        """Replace bytes `offset` … `offset + size - 1` by zeros that other processes can map.
        Returns the descriptor of a file of `size` bytes, which the caller closes.

        The size of the file cannot be changed. Raises `ValueError` for a bad range, or after
        `close`; `OSError` if there is no descriptor or no memory left.
        """
        self._check(offset, size)
        file = _create(size)
        try:
            self._replace(offset, size, mmap.MAP_SHARED, file)
        except OSError:
            os.close(file)
            raise
        return file

    def withdraw(self, offset: int, size: int) -> None:
        """Replace bytes by zeros of this process alone. Processes that have mapped them keep the
        old bytes, and see no later change.

        Raises `ValueError` for a bad range, or after `close`; `OSError`.
        """
        self._check(offset, size)
        self._replace(offset, size, _PRIVATE, -1)

    def close(self) -> None:
        """End the use of `view`. The bytes remain as long as a slice of `view` is held, for example
        by a simulation."""
        self.view.release()
        self._memory = None

    def _check(self, offset: int, size: int) -> None:
        if self._memory is None:
            raise ValueError("the shared memory is closed")
        if offset % PAGE_BYTES or size % PAGE_BYTES:
            raise ValueError(
                f"offset = {offset:#x}, size = {size:#x}: not multiples of {PAGE_BYTES}"
            )
        if size <= 0 or not 0 <= offset <= self.size - size:
            raise ValueError(
                f"offset = {offset:#x}, size = {size:#x}: not inside the {self.size:#x} bytes"
            )

    def _replace(self, offset: int, size: int, kind: int, file: int) -> None:
        """Map other memory at an offset."""
        place = self.address + offset
        if _libc.mmap(place, size, _ACCESS, kind | _MAP_FIXED, file, 0) == _FAILED:
            number = ctypes.get_errno()
            raise _error(number, f"{size} bytes at offset {offset:#x} were not mapped")


def _reserve(size: int) -> mmap.mmap:
    try:
        return mmap.mmap(-1, size, flags=_PRIVATE, prot=_ACCESS)
    except OSError as error:
        raise _error(error.errno, f"no addresses for {size} bytes") from error


def _create(size: int) -> int:
    """Descriptor of a file in memory, of zeros and of a fixed size."""
    try:
        file = os.memfd_create("signalbox", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    except OSError as error:
        raise _error(error.errno, f"no file for {size} shared bytes") from error
    try:
        os.ftruncate(file, size)
        fcntl.fcntl(file, fcntl.F_ADD_SEALS, _SEALS)
    except OSError as error:
        os.close(file)
        raise _error(error.errno, f"no file of {size} shared bytes") from error
    return file


def _error(number: int | None, what: str) -> OSError:
    number = number or errno.EIO
    return OSError(number, f"{what}: {os.strerror(number)}")
