"""Local memory of all threads that the machine can run in one address space (HOST-15)."""

from signalbox.driver.memory.address_space import AddressSpace
from signalbox.driver.memory.physical import Buffer
from signalbox.driver.platform.fair_lock import FairLock
from signalbox.driver.platform.info import DeviceInfo
from signalbox.driver.platform.machine import Machine
from signalbox.hw.config import WARP_THREADS

__all__ = ["LocalMemory"]

_PAGE = 4096


class LocalMemory:
    """The area of an address space for local memory. It grows with the needs of kernels. Earlier,
    smaller areas are kept until the space is closed, because tasks may still use them.

    Members
    -------
    sms : number of SMs, each with a part of the area.
    part : bytes of each part.
    """

    def __init__(self, space: AddressSpace, machine: Machine, info: DeviceInfo) -> None:
        self.sms, self.part = info.sms, 0
        self._space, self._lock = space, FairLock(machine)
        self._threads = WARP_THREADS << (info.sm_warps - 1).bit_length()
        self._buffers: list[Buffer] = []

    @property
    def va(self) -> int:
        """Virtual address of the area."""
        return self._space.at(self._buffers[-1])

    async def reserve(self, size: int) -> None:
        """Make room for `size` bytes per thread. Raises as `AddressSpace.allocate`."""
        part = -(-size * self._threads // _PAGE) * _PAGE
        async with self._lock:
            if part > self.part:
                options = {"above": self._space.upper, "name": "local memory"}
                self._buffers.append(await self._space.allocate(part * self.sms, **options))
                self.part = part

    def end(self) -> None:
        """Free the memory, once the space is closed."""
        for buffer in self._buffers:
            buffer.free()
        self._buffers.clear()
