"""Fences: 16-byte semaphores in memory, released by the hardware with a value and a timestamp."""

from signalbox.driver.memory.address_space import AddressSpace
from signalbox.driver.memory.mapping import Mapping
from signalbox.driver.memory.physical import Buffer
from signalbox.driver.platform.fair_lock import FairLock
from signalbox.driver.platform.machine import Machine

__all__ = ["FENCE_BYTES", "Fence", "FencePool", "FencePools"]

FENCE_BYTES = 16
"""Payload (4 bytes), zero (4), PTIMER in ns (8); spec page 60, 2.2."""

_PAGE_BYTES = 4096


class Fence:
    """One fence. Every submitted release raises its value by 1, modulo 2³².

    A fence is released only in its own address space, at `address`; other spaces acquire it at
    `address_in`. Read `following` and call `advance` within one `Channel.turn`: otherwise values
    could be released out of order, and a waiter could miss its value. A fence of a closed space
    keeps its last value and time.
    """

    def __init__(self, page: "FencePage", offset: int) -> None:
        self.page, self.offset = page, offset
        self.address = page.home.at(offset, FENCE_BYTES)
        self.submitted = 0
        page.buffer.write(bytes(FENCE_BYTES), offset)

    @property
    def following(self) -> int:
        """Value of the next release."""
        return (self.submitted + 1) & 0xFFFF_FFFF

    def advance(self) -> None:
        """Note that a release of value `following` was submitted."""
        self.submitted = self.following

    @property
    def value(self) -> int:
        """Current payload."""
        return self.page.number(self.offset, 4)

    @property
    def time_ns(self) -> int:
        """PTIMER of the last release, in ns."""
        return self.page.number(self.offset + 8, 8)

    def reached(self, value: int) -> bool:
        """Whether `value` or a later value was released (circular compare, as ACQ_CIRC_GEQ)."""
        return (self.value - value) & 0xFFFF_FFFF < 1 << 31

    @property
    def closed(self) -> bool:
        """Whether its address space was closed, so that it is never released again."""
        return self.page.home.unmapped

    async def address_in(self, space: AddressSpace) -> int:
        """Virtual address in another space, where the fence's page is mapped read-only. Raises as
        `AddressSpace.share`."""
        return (await self.page.view(space)).at(self.offset)


class FencePage:
    """A page of fences, mapped in its own address space (`home`) and in those that wait on it."""

    def __init__(self, space: AddressSpace, buffer: Buffer, lock: FairLock) -> None:
        self.buffer, self.home = buffer, space.mapping(buffer)
        self._lock = lock
        self._views = {space: self.home}
        self._last: bytes | None = None

    def number(self, offset: int, size: int) -> int:
        """Number of `size` bytes at byte `offset`."""
        if self._last is None:
            return int(self.buffer.read(f"<u{size}", 1, offset)[0])
        return int.from_bytes(self._last[offset : offset + size], "little")

    def end(self) -> None:
        """Free the memory; its last contents are kept."""
        self._last = self.buffer.read().tobytes()
        self.buffer.free()

    async def view(self, space: AddressSpace) -> Mapping:
        """Mapping of the page in a space, created on first use. Raises as `AddressSpace.share`."""
        async with self._lock:
            if space not in self._views:
                self._views[space] = await space.share(self.home, above=space.upper, read_only=True)
        return self._views[space]


class FencePool:
    """Fences of one address space, allocated by the page."""

    def __init__(self, space: AddressSpace, machine: Machine) -> None:
        self._space, self._lock = space, FairLock(machine)
        self._free: list[Fence] = []
        self._retired: list[Fence] = []
        self._pages: list[FencePage] = []

    async def take(self) -> Fence:
        """Allocate a fence. A fence that was given back continues from its value. Raises as
        `AddressSpace.allocate`."""
        async with self._lock:
            if not self._free:
                self._recycle()
            if not self._free:
                self._free = await self._more()
            return self._free.pop()

    async def _more(self) -> list[Fence]:
        """The fences of a new page, highest address first."""
        space = self._space
        buffer = await space.allocate(_PAGE_BYTES, above=space.upper, name="fences")
        page = FencePage(space, buffer, self._lock)
        self._pages.append(page)
        return [Fence(page, at) for at in reversed(range(0, _PAGE_BYTES, FENCE_BYTES))]

    def give(self, fence: Fence) -> None:
        """Return a fence that has no release or acquire outstanding. Its payload is kept, since it
        may still be read. The next user continues from it: values that were submitted but never
        released are used again."""
        fence.submitted = fence.value
        self._free.append(fence)

    def retire(self, fence: Fence) -> None:
        """Return a fence with a release that may be outstanding. The fence is given out again once
        its last release has executed; acquires of earlier values still succeed then, as values only
        rise. If its channel is closed first, the release never executes and the fence is not given
        out again; its 16 bytes are freed with the space.
        """
        self._retired.append(fence)

    def _recycle(self) -> None:
        """Free the retired fences whose last release has been executed."""
        outstanding: list[Fence] = []
        for fence in self._retired:
            (self._free if fence.reached(fence.submitted) else outstanding).append(fence)
        self._retired = outstanding

    @property
    def pages(self) -> int:
        """Number of pages in use."""
        return len(self._pages)

    def end(self) -> None:
        """Free the pages, once the space is closed. A page that is still mapped in other spaces is
        left for a later call, as an acquire of one of its fences may not have executed yet."""
        self._free.clear()
        self._retired.clear()
        for page in [page for page in self._pages if not page.buffer.mappings]:
            page.end()
            self._pages.remove(page)


class FencePools:
    """Fence pools of all address spaces of one machine."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._pools: dict[AddressSpace, FencePool] = {}

    def of(self, space: AddressSpace) -> FencePool:
        """Pool of one address space, created on first use."""
        if space not in self._pools:
            self._pools[space] = FencePool(space, self._machine)
        return self._pools[space]

    def retire(self, fence: Fence, space: AddressSpace) -> None:
        """Call `FencePool.retire` of a space, unless its pages have been freed."""
        if space in self._pools:
            self._pools[space].retire(fence)

    def forget_closed(self) -> None:
        """Call `FencePool.end` for all closed spaces. To be called after each close, as the space
        may have mapped pages of others."""
        for space, pool in [*self._pools.items()]:
            if space.closed:
                pool.end()
                if not pool.pages:
                    del self._pools[space]

    def end(self) -> None:
        """Call `FencePool.end` of all pools."""
        for pool in self._pools.values():
            pool.end()
