"""Resource manager of address spaces: who has which ASID (ASID-2, ASID-8, ASID-22)."""

from collections.abc import AsyncGenerator, Iterable, Iterator
from contextlib import asynccontextmanager
from itertools import chain

from signalbox.driver.memory.address_space import AddressSpace, SpaceError
from signalbox.driver.memory.mmu import Mmu
from signalbox.driver.memory.physical import Memory
from signalbox.driver.platform.fair_lock import FairLock
from signalbox.hw.config import VA_BITS

__all__ = ["AddressSpaces", "OutOfAsids"]

_NAMED = 4
"""So many holders of ASIDs are named in a message."""


class OutOfAsids(Exception):
    """All ASIDs are held by spaces in use; the message names some."""


class AddressSpaces:
    """The address spaces of one machine, and which of them the machine knows.

    There may be more spaces than ASIDs. A space is bound when it is acquired first, and stays so
    until another needs its ASID: the one is taken that was in use last longest ago, never that of
    a space in use. Binding makes the machine forget what it remembers of the ASID, so nobody sees
    what an earlier holder had mapped.

    Parameters
    ----------
    asids : how many the machine has, 0 … `asids` - 1.
    reserved : ASIDs that only a space asking for them by number is given, for as long as it is.
    """

    def __init__(
        self, mmu: Mmu, memory: Memory, asids: int, *, reserved: Iterable[int] = ()
    ) -> None:
        if asids < 1:
            raise ValueError(f"asids = {asids}: a machine has at least 1")
        self.asids, self.reserved = asids, frozenset(reserved)
        for asid in self.reserved:
            if not 0 <= asid < asids:
                raise ValueError(f"reserved ASID {asid} is outside 0 … {asids - 1}")
        self._mmu, self._memory = mmu, memory
        self._lock = FairLock(memory.machine)
        self._count = 0
        # Spaces by their page directory base, which no two have.
        self._spaces: dict[int, AddressSpace] = {}
        # Reserved ASIDs by space; holders of all others, in the order in which their use ended.
        self._own: dict[AddressSpace, int] = {}
        self._holders: dict[int, AddressSpace | None] = {
            asid: None for asid in range(asids) if asid not in self.reserved
        }
        self._users: dict[AddressSpace, int] = {}

    def __iter__(self) -> Iterator[AddressSpace]:
        """All spaces, in the order of their creation."""
        return iter(tuple(self._spaces.values()))

    async def take_over(self) -> None:
        """Unbind everything, whoever had the machine before. Comes before any other call."""
        for asid in range(self.asids):
            await self._mmu.unbind(asid)

    def create(
        self, name: str = "", *, size: int = 1 << VA_BITS, asid: int | None = None
    ) -> AddressSpace:
        """A new space of `size` bytes without mappings; not bound yet.

        With `asid`, a reserved one, it has that for its whole life. Raises `SpaceError` when that
        is not reserved or has a space; `OutOfMemory`.
        """
        if asid is not None:
            self._check_reserved(asid)
        space = AddressSpace(self._mmu, self._memory, name or f"space {self._count}", size=size)
        self._count += 1
        self._spaces[space.base] = space
        if asid is not None:
            self._own[space] = asid
        return space

    async def close(self, space: AddressSpace) -> None:
        """Unbind a space, unmap what is in it and give the memory of its tables back.

        Buffers stay their owners'. Raises `SpaceError` while it is in use, or when it was closed.
        """
        async with self._lock:
            self._check_known(space)
            if users := self.users(space):
                raise SpaceError(f"{space} is in use by {users}")
            if space.asid is not None:
                await self._mmu.unbind(space.asid)
            if space.asid in self._holders:
                self._holders[space.asid] = None
            space.asid = None
            self._own.pop(space, None)
            del self._spaces[space.base]
            await space.end()

    def owner(self, asid: int, base: int) -> AddressSpace | None:
        """The space that had `asid` while its page directory lay at physical address `base`, as
        faults name it; None where that may be another by now."""
        space = self._spaces.get(base)
        return space if space is not None and space.asid in {asid, None} else None

    # -- use ---------------------------------------------------------------------------------------

    def users(self, space: AddressSpace) -> int:
        """By how many a space is in use."""
        return self._users.get(space, 0)

    async def acquire(self, space: AddressSpace) -> int:
        """The ASID of a space, whose it stays until every `acquire` is matched by a `release`.

        Raises `OutOfAsids` when all are in use, `SpaceError` for a space that was closed.
        """
        async with self._lock:
            self._check_known(space)
            if space.asid is None:
                await self._bind(space)
            self._users[space] = self.users(space) + 1
            assert space.asid is not None, "it was bound"
            return space.asid

    def release(self, space: AddressSpace) -> None:
        """One user less, whose accesses have all ended. Raises `SpaceError` when there is none."""
        if not self.users(space):
            raise SpaceError(f"{space} is released more often than acquired")
        self._users[space] -= 1
        if not self._users[space]:
            del self._users[space]
            if space.asid in self._holders:
                self._holders[space.asid] = self._holders.pop(space.asid)

    @asynccontextmanager
    async def use(self, space: AddressSpace) -> AsyncGenerator[int, None]:
        """Have a space, and its ASID, for the length of a block."""
        asid = await self.acquire(space)
        try:
            yield asid
        finally:
            self.release(space)

    async def invalidate_all(self) -> None:
        """Make the machine forget all translations. No change of a space needs it: it is for page
        tables that others have written, such as an application's own."""
        await self._mmu.invalidate_all()

    # -- ASIDs -------------------------------------------------------------------------------------

    async def _bind(self, space: AddressSpace) -> None:
        """Give a space an ASID, and take it from who has it.

        Both count as bound to it meanwhile, so what changes in either is invalidated. A bind that
        fails leaves neither bound, and the ASID free: its next bind makes it good.
        """
        asid = self._choose(space)
        before = self._holders.get(asid)
        space.asid = asid
        try:
            await self._mmu.bind(asid, space.base, space.limit)
        except BaseException:
            space.asid = None
            raise
        finally:
            if before is not None:
                before.asid = None
            if asid in self._holders:
                self._holders[asid] = None if space.asid is None else space

    def _choose(self, space: AddressSpace) -> int:
        """The ASID that a space is to have: its own, a free one, or an idle space's."""
        if space in self._own:
            return self._own[space]
        holders = self._holders.items()
        free = (asid for asid, holder in holders if holder is None)
        idle = (asid for asid, holder in holders if holder is not None and not self.users(holder))
        asid = next(chain(free, idle), None)
        if asid is None:
            raise OutOfAsids(f"no ASID for {space}: {self._held()}")
        return asid

    def _held(self) -> str:
        """Who has the ASIDs, in words."""
        holders = [f"{asid} {space.name!r}" for asid, space in self._holders.items() if space]
        more = f" and {len(holders) - _NAMED} more" if len(holders) > _NAMED else ""
        named = ", ".join(holders[:_NAMED]) or "none"
        return (
            f"of {self.asids} ASIDs {len(self.reserved)} are reserved, all others in use: "
            f"{named}{more}"
        )

    # -- checks ------------------------------------------------------------------------------------

    def _check_known(self, space: AddressSpace) -> None:
        if self._spaces.get(space.base) is not space:
            raise SpaceError(f"{space} was closed, or belongs to another machine")

    def _check_reserved(self, asid: int) -> None:
        if asid not in self.reserved:
            raise SpaceError(f"ASID {asid} is not reserved: {sorted(self.reserved)} are")
        for space, own in self._own.items():
            if own == asid:
                raise SpaceError(f"ASID {asid} is that of {space}")
