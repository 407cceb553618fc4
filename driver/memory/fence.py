"""Fences: 16-byte semaphores in memory that the hardware releases with a value and the time."""

from signalbox.driver.memory.address_space import AddressSpace
from signalbox.driver.memory.mapping import Mapping
from signalbox.driver.memory.physical import Buffer
from signalbox.driver.platform.fair_lock import FairLock
from signalbox.driver.platform.machine import Machine

__all__ = ["FENCE_BYTES", "Fence", "FencePool", "FencePools"]

FENCE_BYTES = 16
"""Payload (4), zero (4), PTIMER in ns (8); spec page 60, 2.2."""

_PAGE_BYTES = 4096


class Fence:
    """One fence. Its values rise by 1 with every release that is submitted, modulo 2³².

    It is released in its own address space only, at `address`; others wait for it at
    `address_in`. `following` is taken and `advance` called in one turn of the channel
    (`Channel.turn`): else values could be released in another order, and a waiter would miss its
    own.
    """

    def __init__(self, page: "FencePage", offset: int) -> None:
        self.page, self.offset = page, offset
        self.address = page.home.at(offset, FENCE_BYTES)
        self.submitted = 0
        self.clear()

    def clear(self) -> None:
        """As new: value and time 0."""
        self.submitted = 0
        self.page.buffer.write(bytes(FENCE_BYTES), self.offset)

    @property
    def following(self) -> int:
        """Value for the next release."""
        return (self.submitted + 1) & 0xFFFF_FFFF

    def advance(self) -> None:
        """The release with `following` was submitted."""
        self.submitted = self.following

    @property
    def value(self) -> int:
        """Payload now."""
        return int(self.page.buffer.read("<u4", 1, self.offset)[0])

    @property
    def time_ns(self) -> int:
        """PTIMER of the last release."""
        return int(self.page.buffer.read("<u8", 1, self.offset + 8)[0])

    def reached(self, value: int) -> bool:
        """Whether `value` or a later one was released (circular, as ACQ_CIRC_GEQ)."""
        return (self.value - value) & 0xFFFF_FFFF < 1 << 31

    async def address_in(self, space: AddressSpace) -> int:
        """Its address in a space that waits for it, where its page is read-only."""
        return (await self.page.view(space)).at(self.offset)


class FencePage:
    """A page of fences, in its own address space (`home`) and in those that wait for them."""

    def __init__(self, space: AddressSpace, buffer: Buffer, lock: FairLock) -> None:
        self.buffer, self.home = buffer, space.mapping(buffer)
        self._lock = lock
        self._views = {space: self.home}

    async def view(self, space: AddressSpace) -> Mapping:
        """Its mapping in a space; made when there is none."""
        async with self._lock:
            if space not in self._views:
                self._views[space] = await space.share(self.home, above=space.upper, read_only=True)
        return self._views[space]


class FencePool:
    """Fences of one address space, cut from pages of device memory."""

    def __init__(self, space: AddressSpace, machine: Machine) -> None:
        self._space, self._lock = space, FairLock(machine)
        self._free: list[Fence] = []
        self._pages: list[FencePage] = []

    async def take(self) -> Fence:
        """A fence with value 0."""
        async with self._lock:
            if not self._free:
                self._free = await self._more()
            return self._free.pop()

    async def _more(self) -> list[Fence]:
        """The fences of a fresh page, the first one last."""
        space = self._space
        buffer = await space.allocate(_PAGE_BYTES, above=space.upper, name="fences")
        page = FencePage(space, buffer, self._lock)
        self._pages.append(page)
        return [Fence(page, at) for at in reversed(range(0, _PAGE_BYTES, FENCE_BYTES))]

    def give(self, fence: Fence) -> None:
        """Give a fence back that nothing will release or acquire any more."""
        fence.clear()
        self._free.append(fence)

    def end(self) -> None:
        """Give the pages back, once the space is closed; but for those that other spaces still have
        mapped, to wait for fences: these with the next call."""
        self._free.clear()
        for page in [page for page in self._pages if not page.buffer.mappings]:
            page.buffer.free()
            self._pages.remove(page)


class FencePools:
    """Fence pools of all address spaces of one machine."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._pools: dict[AddressSpace, FencePool] = {}

    def of(self, space: AddressSpace) -> FencePool:
        """Pool of one address space; made when first asked for."""
        if space not in self._pools:
            self._pools[space] = FencePool(space, self._machine)
        return self._pools[space]

    def end(self) -> None:
        """`FencePool.end` of all."""
        for pool in self._pools.values():
            pool.end()
