"""Resource manager for address spaces: assigns ASIDs to them (ASID-2, ASID-8, ASID-22)."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from itertools import chain

from signalbox.driver.memory.address_space import AddressSpace, SpaceError
from signalbox.driver.memory.mmu import Mmu
from signalbox.driver.memory.physical import Memory
from signalbox.driver.memory.spaces import Spaces
from signalbox.driver.memory.table_space import TableSpace
from signalbox.hw.config import VA_BITS
from signalbox.hw.instance_block import SUBCONTEXTS

__all__ = ["AddressSpaces", "OutOfAsids"]

_NAMED = 4
"""Maximum number of ASID holders named in a message."""


class OutOfAsids(Exception):
    """Every ASID belongs to a space in use; the message names some of the spaces."""


class AddressSpaces(Spaces):
    """Address spaces of one machine, and their ASIDs.

    There may be more spaces than ASIDs. A space is bound on its first `acquire` and keeps its ASID
    until another space needs it; the least recently used ASID goes first, never one in use. ASIDs
    that no context can hold (`SUBCONTEXTS` and above) are given out only while all others are in
    use. A bind invalidates the ASID, so a space never sees translations of an earlier holder.

    Parameters
    ----------
    asids : number of ASIDs of the machine, 0 … `asids` - 1.
    reserved : ASIDs that are given only to spaces created with that number, for their lifetime.

    Raises `ValueError` for less than 1 ASID, or a reserved one that the machine does not have.

    Members
    -------
    passes_on : called with an ASID before it passes to another space; None: nothing is called.
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
        super().__init__(memory)
        self._mmu = mmu
        # Reserved ASIDs by space; holders of the others, least recently used first.
        self._own: dict[AddressSpace, int] = {}
        self._holders: dict[int, AddressSpace | None] = {
            asid: None for asid in range(asids) if asid not in self.reserved
        }
        self._users: dict[AddressSpace, int] = {}
        self._held: set[int] = set()
        self.passes_on: Callable[[int], Awaitable[None]] | None = None

    async def take_over(self) -> None:
        """Unbind all ASIDs, which an earlier owner of the machine may have left bound. Call this
        first. Raises as `Mmu.unbind`."""
        for asid in range(self.asids):
            await self._mmu.unbind(asid)

    def create(
        self,
        name: str = "",
        *,
        size: int = 1 << VA_BITS,
        memory: Memory | None = None,
        asid: int | None = None,
    ) -> AddressSpace:
        """See `Spaces.create`. `asid` : a reserved ASID, which belongs to the space for its
        lifetime. Raises `SpaceError` if it is not reserved, or belongs to another space."""
        if asid is not None:
            self._check_reserved(asid)
        space = super().create(name, size=size, memory=memory)
        if asid is not None:
            self._own[space] = asid
        return space

    def _made(self, name: str, size: int, memory: Memory) -> AddressSpace:
        return TableSpace(self._mmu, memory, name, size=size)

    async def _leave(self, space: AddressSpace) -> None:
        """Unbind a space. Raises `SpaceError` if it is in use."""
        if users := self.users(space):
            raise SpaceError(f"{space} is in use by {users}")
        if space.asid is not None:
            await self._mmu.unbind(space.asid)
        if space.asid in self._holders:
            self._holders[space.asid] = None
        space.asid = None
        self._own.pop(space, None)

    def owner(self, asid: int, base: int) -> AddressSpace | None:
        """The space of a fault record with `asid` and page directory base `base` (physical byte
        address); None if the base is unknown, or its space now has another ASID."""
        space = self._spaces.get(base)
        return space if space is not None and space.asid in {asid, None} else None

    # -- use ---------------------------------------------------------------------------------------

    def users(self, space: AddressSpace) -> int:
        """Number of users of a space: calls of `acquire` without a matching `release`."""
        return self._users.get(space, 0)

    async def acquire(self, space: AddressSpace) -> int:
        """Mark a space as in use and return its ASID, which it keeps until the matching `release`.

        Raises `OutOfAsids` if all ASIDs are in use, `SpaceError` if the space is closed; and as
        `Mmu.bind`.
        """
        async with self._lock:
            self.check(space)
            if space.asid is None:
                await self._bind(space)
            self._users[space] = self.users(space) + 1
            assert space.asid is not None, "it was bound"
            return space.asid

    def release(self, space: AddressSpace) -> None:
        """Drop one user of a space; none of its accesses may still be in flight. Raises
        `SpaceError` if the space has no users."""
        if not self.users(space):
            raise SpaceError(f"{space} is released more often than acquired")
        self._users[space] -= 1
        if not self._users[space]:
            del self._users[space]
            if space.asid in self._holders:
                self._holders[space.asid] = self._holders.pop(space.asid)

    @asynccontextmanager
    async def use(self, space: AddressSpace) -> AsyncGenerator[int, None]:
        """Acquire a space for the duration of a `with` block; yields its ASID. Raises as
        `acquire`."""
        asid = await self.acquire(space)
        try:
            yield asid
        finally:
            self.release(space)

    async def invalidate_all(self) -> None:
        """Invalidate the translations of all ASIDs. Needed only after page tables have been written
        by other means than `AddressSpace`, for example by an application."""
        await self._mmu.invalidate_all()

    # -- ASIDs -------------------------------------------------------------------------------------

    async def _bind(self, space: AddressSpace) -> None:
        """Bind a space to an ASID, which is taken from its idle holder if it has one.

        Until the bind is acknowledged both spaces count as bound to the ASID, so changes of either
        are invalidated. A failed bind leaves neither bound and the ASID free; its next bind puts
        the machine into a known state again.
        """
        asid = self._choose(space)
        if asid in self._held and self.passes_on is not None:
            await self.passes_on(asid)
        self._held.add(asid)
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
        """Pick an ASID for a space: its own, a free one, or the ASID of an idle space; first of
        all one that a context can hold."""
        if space in self._own:
            return self._own[space]
        holders = self._holders.items()
        free = (asid for asid, holder in holders if holder is None)
        idle = (asid for asid, holder in holders if holder is not None and not self.users(holder))
        asid = min(chain(free, idle), key=lambda one: one >= SUBCONTEXTS, default=None)
        if asid is None:
            raise OutOfAsids(f"no ASID for {space}: {self._describe_holders()}")
        return asid

    def _describe_holders(self) -> str:
        """Holders of the ASIDs, for messages."""
        holders = [f"{asid} {space.name!r}" for asid, space in self._holders.items() if space]
        more = f" and {len(holders) - _NAMED} more" if len(holders) > _NAMED else ""
        named = ", ".join(holders[:_NAMED]) or "none"
        return (
            f"of {self.asids} ASIDs {len(self.reserved)} are reserved, all others in use: "
            f"{named}{more}"
        )

    # -- checks ------------------------------------------------------------------------------------

    def _check_reserved(self, asid: int) -> None:
        if asid not in self.reserved:
            raise SpaceError(f"ASID {asid} is not one of the reserved: {sorted(self.reserved)}")
        for space, own in self._own.items():
            if own == asid:
                raise SpaceError(f"ASID {asid} belongs to {space}")
