"""Translation in plain Python that remembers all that it may, for tests of the driver."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from driver.memory import Buffer, Memory
from hw.config import Config
from tb.driver.fake import SPACE, FakeMachine
from tb.models.pagetables import Fault, Sparse, Translation, walk

__all__ = ["FakeMmu", "WatchedMemory", "machine_with_mmu"]

VA_LIMIT, UNBOUND = 3, 4
REGION_SHIFT = 21


@dataclass(frozen=True)
class Remembered:
    """A page in the TLB."""

    asid: int
    va: int
    page: Translation

    def holds(self, asid: int, va: int) -> bool:
        return asid == self.asid and self.va <= va < self.va + self.page.page_bytes


class FakeMmu:
    """Implements `driver.mmu.Mmu` over tables in a machine's memory.

    It has no limit: every page that was ever translated is remembered until it is invalidated, and
    the oldest that matches is used. So is every entry of tables on the way, for each 2 MiB, as a
    walk in flight would. What is not there is not remembered.

    Members
    -------
    commands : those that were acknowledged or broken off, in order: name, ASID, further arguments.
    latency : how many turns of the event loop come before a command takes effect, and as many
        again before it is acknowledged.
    failing : commands raise, in place of the acknowledgement.
    """

    def __init__(self, machine: FakeMachine, latency: Callable[[], int] = lambda: 0) -> None:
        self._machine = machine
        self.commands: list[tuple] = []
        self.latency = latency
        self.failing = False
        self.bound: dict[int, tuple[int, int]] = {}
        self._pages: list[Remembered] = []
        self._entries: dict[tuple[int, int], dict[int, int]] = {}
        self._order = asyncio.Lock()

    # driver.mmu.Mmu

    async def bind(self, asid: int, base: int, limit: int) -> None:
        assert base % 4096 == 0 and (limit + 1) % 4096 == 0, (base, limit)

        def effect() -> None:
            self.bound[asid] = base, limit
            self._forget(lambda each, _: each == asid)

        await self._command(effect, "bind", asid, base, limit)

    async def unbind(self, asid: int) -> None:
        def effect() -> None:
            self.bound.pop(asid, None)
            self._forget(lambda each, _: each == asid)

        await self._command(effect, "unbind", asid)

    async def invalidate_all(self) -> None:
        await self._command(lambda: self._forget(lambda *_: True), "all")

    async def invalidate_asid(self, asid: int) -> None:
        await self._command(lambda: self._forget(lambda each, _: each == asid), "asid", asid)

    async def invalidate_page(self, asid: int, va: int) -> None:
        def covers(each: int, page: range) -> bool:
            return each == asid and va in page

        await self._command(lambda: self._forget(covers), "page", asid, va)

    async def _command(self, effect: Callable[[], None], *what: str | int) -> None:
        async with self._order:
            self.commands.append(what)
            for _ in range(self.latency()):
                await asyncio.sleep(0)
            if self.failing:
                raise TimeoutError(f"{what} was not acknowledged")
            effect()
            for _ in range(self.latency()):
                await asyncio.sleep(0)

    def _forget(self, covered: Callable[[int, range], bool]) -> None:
        """Pages of which `covered(asid, addresses)`, and what walks there have read."""
        self._pages = [
            each
            for each in self._pages
            if not covered(each.asid, range(each.va, each.va + each.page.page_bytes))
        ]
        for asid, region in list(self._entries):
            if covered(asid, range(region << REGION_SHIFT, region + 1 << REGION_SHIFT)):
                del self._entries[asid, region]

    # What the tests ask

    def taken(self) -> list[tuple]:
        """Commands since the last call."""
        commands, self.commands = self.commands, []
        return commands

    def access(self, asid: int, va: int) -> Translation | Sparse | Fault:
        """What a request is translated to; remembered when it is a page."""
        if asid not in self.bound:
            return Fault(UNBOUND, 0)
        base, limit = self.bound[asid]
        if va > limit:
            return Fault(VA_LIMIT, 0)
        known = next((each for each in self._pages if each.holds(asid, va)), None)
        if known is None:
            found = walk(self._load(asid, va), len(self._machine.memory), base, va)
            if not isinstance(found, Translation):
                return found
            offset = va % found.page_bytes
            first = Translation(
                *(found.pa - offset, found.page_bytes),
                *(found.read_only, found.privileged, found.atomic_disable),
            )
            known = Remembered(asid, va - offset, first)
            self._pages.append(known)
        page = known.page
        return Translation(
            *(page.pa + va - known.va, page.page_bytes),
            *(page.read_only, page.privileged, page.atomic_disable),
        )

    def remembers(self, address: int, size: int) -> bool:
        """Whether an access may still go to a range of physical memory, or a walk read it."""
        end = address + size
        in_page = any(
            each.page.pa < end and address < each.page.pa + each.page.page_bytes
            for each in self._pages
        )
        return in_page or any(
            address <= entry < end for entries in self._entries.values() for entry in entries
        )

    def _load(self, asid: int, va: int) -> Callable[[int], int]:
        """Reads of one walk."""
        known = self._entries.setdefault((asid, va >> REGION_SHIFT), {})

        def load(address: int) -> int:
            if address not in known:
                value = int.from_bytes(self._machine.memory_read(address, 8), "little")
                if not value:
                    return 0
                known[address] = value
            return known[address]

        return load


class WatchedMemory(Memory):
    """Memory that is never given back while the Mmu remembers it."""

    def __init__(self, machine: FakeMachine, mmu: FakeMmu) -> None:
        super().__init__(machine, len(machine.memory), base=4096)
        self._mmu = mmu

    def free(self, buffer: Buffer) -> None:
        super().free(buffer)
        assert not self._mmu.remembers(buffer.address, buffer.size), f"{buffer} can be reached"


def machine_with_mmu(latency: Callable[[], int] = lambda: 0) -> tuple[FakeMmu, WatchedMemory]:
    """A machine of 8 MiB, its Mmu, and its memory without the first page."""
    machine = FakeMachine(Config(memory_bytes=SPACE))
    mmu = FakeMmu(machine, latency)
    return mmu, WatchedMemory(machine, mmu)
