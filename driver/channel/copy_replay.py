"""Repeats a failed copy in software, once the cause of the failure has been repaired.

A copy engine keeps no state of a failed copy, and the channel continues after it when its error is
cleared. Before that, the driver therefore moves the bytes itself, through the mappings of the
channel's address space, and releases the copy's semaphore, as if the copy had succeeded. The copy's
interrupt (INTR_COPY) is not raised.
"""

from signalbox.driver.channel.copy_log import LaunchedCopy
from signalbox.driver.memory.address_space import AddressSpace
from signalbox.driver.memory.physical import Memory
from signalbox.driver.platform.control_port import ControlPort
from signalbox.hw.config import SLOT_BYTES, WINDOW_BASE, WINDOW_BYTES
from signalbox.hw.methods import LaunchSemaphore
from signalbox.hw.page_tables import AccessType

__all__ = ["RepeatError", "check_release", "move", "release"]

_PAGE = 4096


class RepeatError(Exception):
    """A failed copy cannot be repeated; the message says why."""


def move(copy: LaunchedCopy, space: AddressSpace, memory: Memory) -> None:
    """Copy all bytes in software. Raises `TranslationFault` or `RepeatError` before the first byte
    is written."""
    sources = _spans(copy.sources, copy.field("src_physical"), space, AccessType.READ)
    targets = _spans(copy.destinations, copy.field("dst_physical"), space, AccessType.WRITE)
    for address, size in (*sources, *targets):
        if address + size > memory.size:
            raise RepeatError(f"the copy runs past the {memory.size} bytes of physical memory")
    data, at = b"".join(memory.machine.memory_read(*span) for span in sources), 0
    if copy.map is not None:
        old = b"".join(memory.machine.memory_read(*span) for span in targets)
        data = copy.map.applied(data, old)
    for address, size in targets:
        memory.machine.memory_write(address, data[at : at + size])
        at += size


def _spans(
    lines: list[tuple[int, int]], physical: int, space: AddressSpace, access: AccessType
) -> list[tuple[int, int]]:
    """(physical address, bytes) of lines, split at page boundaries. Raises `TranslationFault`."""
    if physical:
        return lines
    found = []
    for address, left in lines:
        while left:
            size = min(left, _PAGE - address % _PAGE)
            found.append((space.translate(address, access), size))
            address, left = address + size, left - size
    return found


def check_release(copy: LaunchedCopy) -> None:
    """Raise `RepeatError` if only the machine can release the copy's semaphore, or if the machine
    would refuse to."""
    kind, va = copy.field("semaphore"), copy.semaphore
    if kind == LaunchSemaphore.NONE:
        return
    if copy.field("reduction_enable"):
        raise RepeatError("the copy ends with a reduction, which only the machine can do")
    if _on_chip(va) and kind == LaunchSemaphore.FOUR_WORDS:
        raise RepeatError(
            "the copy ends with an on-chip timestamp, which only the machine can write"
        )
    unit = SLOT_BYTES if _on_chip(va) else _released_bytes(copy)
    if va % unit:
        raise RepeatError(f"the copy's semaphore at {va:#x} is not at a multiple of {unit} bytes")


def _on_chip(va: int) -> bool:
    return WINDOW_BASE <= va < WINDOW_BASE + WINDOW_BYTES


def _released_bytes(copy: LaunchedCopy) -> int:
    """Number of bytes that the release writes, and alignment of the semaphore."""
    if copy.field("semaphore") == LaunchSemaphore.FOUR_WORDS:
        return 16
    return 8 if copy.field("wide") else 4


async def release(copy: LaunchedCopy, space: AddressSpace, control: ControlPort) -> None:
    """Release the semaphore, if any, of a copy that passes `check_release`. Raises
    `TranslationFault`."""
    kind, va = copy.field("semaphore"), copy.semaphore
    if kind == LaunchSemaphore.NONE:
        return
    stamped, wide = kind == LaunchSemaphore.FOUR_WORDS, bool(copy.field("wide"))
    if _on_chip(va):
        slot = (va - WINDOW_BASE) // SLOT_BYTES
        high = 0 if wide else await control.read_semaphore(slot) >> 32 << 32
        await control.write_semaphore(slot, high | copy.payload)
        return
    word = copy.payload.to_bytes(8 if stamped or wide else 4, "little")
    place = space.translate(va, AccessType.WRITE)
    if stamped:
        time = await control.time_ns()
        control.machine.memory_write(place + 8, time.to_bytes(8, "little"))
    control.machine.memory_write(place, word)
