"""Assignment of ASIDs: assigned, recycled, reserved, refused; and random use of many spaces."""

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from signalbox.driver.memory.address_space import AddressSpace, SpaceError
from signalbox.driver.memory.asids import AddressSpaces, OutOfAsids
from signalbox.driver.memory.mapping import Mapping
from signalbox.driver.memory.physical import Buffer, OutOfMemory
from signalbox.driver.memory.table_space import PAGE_INVALIDATION_LIMIT
from signalbox.hw.page_tables import PAGE_SIZES
from signalbox.tb.driver.fakes.mmu import UNBOUND, FakeMmu, WatchedMemory, machine_with_mmu
from signalbox.tb.driver.hangs import HANGS
from signalbox.tb.models.pagetables import PDE, PTE, Fault, Translation
from signalbox.tb.simulation.runner import choose_seed

SMALL, BIG, HUGE, WHOLE = PAGE_SIZES
LIMIT = (1 << 49) - 1

Body = Callable[[AddressSpaces, FakeMmu, WatchedMemory], Coroutine[Any, Any, None]]


def run(body: Body, asids: int = 3, **options) -> None:
    """Run `body(spaces, mmu, memory)`, then close everything. All memory must be free again."""

    async def main():
        mmu, memory = machine_with_mmu(options.pop("latency", lambda: 0))
        whole = memory.free_bytes
        spaces = AddressSpaces(mmu, memory, asids, **options)
        await asyncio.wait_for(body(spaces, mmu, memory), HANGS)
        for space in spaces:
            while spaces.users(space):
                spaces.release(space)
            await spaces.close(space)
        assert memory.free_bytes == memory.largest_free == whole, "memory leaked"
        assert not mmu.bound

    asyncio.run(main())


def test_assigned_when_acquired():
    """The lowest ASID is assigned first, and bound once with page directory and last address."""

    async def body(spaces, mmu, memory):
        a, b = spaces.create("a"), spaces.create(size=HUGE)
        assert (a.asid, b.asid, b.name) == (None, None, "space 1")
        assert await spaces.acquire(b) == await spaces.acquire(b) == 0
        async with spaces.use(a) as asid:
            assert asid == a.asid == 1 and spaces.users(a) == 1
        assert spaces.users(a) == 0 and a.asid == 1, "it stays bound"
        assert mmu.taken() == [("bind", 0, b.base, HUGE - 1), ("bind", 1, a.base, LIMIT)]
        assert list(spaces) == [a, b]
        assert spaces.owner(1, a.base) is a and spaces.owner(1, a.base + 4096) is not a
        assert spaces.owner(0, a.base) is None, "a is bound to another ASID now"

    run(body)


def test_least_recently_used():
    """The idle space whose last use ended first loses its ASID; spaces in use never do."""

    async def body(spaces, mmu, memory):
        a, b, c, d, e = (spaces.create(name) for name in "abcde")
        for space in (a, b, c):
            await spaces.acquire(space)
        for space in (b, a):
            spaces.release(space)
        assert await spaces.acquire(d) == 1 and b.asid is None
        async with spaces.use(b):
            assert b.asid == 0 and a.asid is None
        async with spaces.use(d):
            pass
        spaces.release(d)
        async with spaces.use(b):
            pass
        assert await spaces.acquire(e) == 1 and d.asid is None and b.asid == 0
        assert c.asid == 2

    run(body)


def test_reuse():
    """Example 4: the second holder of an ASID sees nothing of the first (ASID-8)."""

    async def body(spaces, mmu, memory):
        a, b = spaces.create("a"), spaces.create("b")
        for space, pa in ((a, HUGE), (b, 2 * HUGE), (a, HUGE)):
            if not list(space):
                await space.map(pa, SMALL, va=0)
            async with spaces.use(space) as asid:
                found = mmu.access(asid, 0)
                assert asid == 0 and isinstance(found, Translation) and found.pa == pa

    run(body, asids=1)


def test_changed_while_unbound():
    """Changes of an unbound space are visible once it is bound again."""

    async def body(spaces, mmu, memory):
        a, b = spaces.create("a"), spaces.create("b")
        mapping = await a.map(HUGE, SMALL, va=0)
        for space in (a, b):
            async with spaces.use(space) as asid:
                mmu.access(asid, 0)
        mmu.taken()
        await a.unmap(mapping)
        assert mmu.taken() == []
        async with spaces.use(a) as asid:
            assert isinstance(mmu.access(asid, 0), Fault)

    run(body, asids=1)


def test_all_in_use():
    async def body(spaces, mmu, memory):
        held = [spaces.create(f"task {n}") for n in range(6)]
        for space in held:
            await spaces.acquire(space)
        late = spaces.create("late")
        mmu.taken()
        message = (
            "^no ASID for address space 'late' \\(no ASID\\): of 7 ASIDs 1 are reserved, all "
            "others in use: 0 'task 0', 1 'task 1', 2 'task 2', 3 'task 3' and 2 more$"
        )
        with pytest.raises(OutOfAsids, match=message):
            await spaces.acquire(late)
        assert mmu.taken() == [] and late.asid is None
        spaces.release(held[4])
        assert await spaces.acquire(late) == 4

    run(body, asids=7, reserved=[6])


def test_reserved():
    """A reserved ASID is never taken away or given to another space."""

    async def body(spaces, mmu, memory):
        kernel = spaces.create("kernel", asid=0)
        a, b = spaces.create("a"), spaces.create("b")
        async with spaces.use(kernel) as asid:
            assert asid == 0
        for space in (a, b, a, b):
            async with spaces.use(space) as asid:
                assert asid == 1
        assert kernel.asid == 0
        with pytest.raises(SpaceError, match=r"ASID 0 belongs to address space 'kernel'"):
            spaces.create(asid=0)
        with pytest.raises(SpaceError, match=r"ASID 1 is not one of the reserved: \[0\]"):
            spaces.create(asid=1)
        await spaces.close(kernel)
        again = spaces.create(asid=0)
        assert await spaces.acquire(again) == 0

    run(body, asids=2, reserved=[0])


def test_all_reserved():
    async def body(spaces, mmu, memory):
        with pytest.raises(OutOfAsids, match="1 are reserved, all others in use: none"):
            await spaces.acquire(spaces.create())

    run(body, asids=1, reserved=[0])


def test_close():
    """The machine forgets the space before its tables and buffers are freed."""

    async def body(spaces, mmu, memory):
        a = spaces.create("a")
        buffer = memory.allocate(SMALL, align=SMALL)
        mapping = await a.map(buffer)
        asid = await spaces.acquire(a)
        assert isinstance(mmu.access(asid, mapping.va), Translation)
        with pytest.raises(SpaceError, match=r"'a' \(ASID 0\) is in use by 1"):
            await spaces.close(a)
        spaces.release(a)
        mmu.taken()
        await spaces.close(a)
        assert mmu.taken() == [("unbind", 0)]
        assert mmu.access(asid, mapping.va) == Fault(UNBOUND, 0)
        assert mapping.unmapped and a.closed and spaces.owner(1, a.base) is None
        buffer.free()
        for call in (spaces.close(a), spaces.acquire(a)):
            with pytest.raises(SpaceError, match=r"'a' .* was closed, or belongs to another"):
                await call
        assert await spaces.acquire(spaces.create()) == 0, "its ASID is free"

    run(body, asids=1)


@pytest.mark.parametrize("turns", range(1, 16))
def test_close_broken_off(turns: int):
    """If the closing of a space is cancelled, during its unbind or during a change of its mappings,
    it can be closed again, and nothing of it remains."""

    async def body(spaces, mmu, memory):
        a = spaces.create("a")
        mapping = await a.map(0, SMALL)
        async with spaces.use(a):
            pass
        mmu.latency = lambda: 3
        closing = asyncio.create_task(spaces.close(a))
        await asyncio.sleep(0)
        change = asyncio.create_task(a.unmap(mapping))
        for _ in range(turns):
            await asyncio.sleep(0)
        closing.cancel()
        await asyncio.wait([closing, change])
        if not a.closed:
            await spaces.close(a)
        assert not list(spaces)

    run(body)


def test_misuse():
    async def body(spaces, mmu, memory):
        a = spaces.create("a")
        async with spaces.use(a):
            pass
        with pytest.raises(SpaceError, match=r"'a' .* is released more often than acquired"):
            spaces.release(a)
        for asids, reserved in ((0, []), (2, [2]), (2, [-1])):
            with pytest.raises(
                ValueError, match=r"asids = 0|reserved ASID (2|-1) is outside 0 … 1"
            ):
                AddressSpaces(mmu, memory, asids, reserved=reserved)

    run(body)


def test_out_of_memory():
    """Without memory for a page directory no space is created, and the ASID stays available."""

    async def body(spaces, mmu, memory):
        keep = memory.allocate(memory.largest_free, align=1)
        with pytest.raises(OutOfMemory, match="'kernel PD3'"):
            spaces.create("kernel", asid=0)
        keep.free()
        assert await spaces.acquire(spaces.create("kernel", asid=0)) == 0

    run(body, reserved=[0])


def test_whole_machine():
    """Taking over unbinds everything, and everything can be invalidated."""

    async def body(spaces, mmu, memory):
        mmu.bound[2] = 0, LIMIT
        await spaces.take_over()
        assert mmu.taken() == [("unbind", 0), ("unbind", 1), ("unbind", 2)]
        await spaces.invalidate_all()
        assert mmu.taken() == [("all",)]

    run(body)


@pytest.mark.parametrize("reserved", [[], [0]])
def test_bind_fails(reserved: list[int]):
    """After a bind without acknowledgement no space is bound; the next bind recovers."""

    async def body(spaces, mmu, memory):
        a = spaces.create("a")
        b = spaces.create("b", asid=0 if reserved else None)
        if not reserved:
            async with spaces.use(a):
                pass
        mmu.failing = True
        with pytest.raises(TimeoutError):
            await spaces.acquire(b)
        assert (a.asid, b.asid, spaces.users(b)) == (None, None, 0)
        mmu.failing = False
        assert await spaces.acquire(b) == 0

    run(body, asids=1, reserved=reserved)


def test_changes_while_bound_anew():
    """A space that is losing or getting an ASID is invalidated until the bind is acknowledged."""

    async def body(spaces, mmu, memory):
        a, b = spaces.create("a"), spaces.create("b")
        mapping, other = await a.map(HUGE, SMALL), await b.map(HUGE, SMALL)
        async with spaces.use(a):
            pass
        mmu.taken()
        mmu.latency = lambda: 5
        bind = asyncio.create_task(spaces.acquire(b))
        await asyncio.sleep(0)
        await asyncio.gather(a.unmap(mapping), b.unmap(other))
        assert mmu.taken() == [
            ("bind", 0, b.base, LIMIT),
            ("page", 0, mapping.va),
            ("page", 0, other.va),
        ]
        assert await bind == 0

    run(body, asids=1)


def test_acquired_by_many_at_once():
    """An ASID is returned only after its bind is acknowledged."""

    async def body(spaces, mmu, memory):
        a, b = spaces.create("a"), spaces.create("b")

        async def use(space: AddressSpace) -> None:
            async with spaces.use(space) as asid:
                assert mmu.bound[asid][0] == space.base

        await asyncio.gather(*(use(space) for space in (a, a, b, b, a)))
        assert len(mmu.taken()) == 2

    run(body, asids=2, latency=lambda: 7)


# -- random ----------------------------------------------------------------------------------------


class Chaos:
    """Random changes of many spaces with fewer ASIDs. Each access and each command to the machine
    is compared with its expected value."""

    def __init__(self, spaces: AddressSpaces, mmu: FakeMmu, memory: WatchedMemory, seed: int):
        self.spaces, self.mmu, self.memory = spaces, mmu, memory
        self.numbers = random.Random(seed)
        self.live: dict[AddressSpace, list[Mapping]] = {}
        self.gone: dict[AddressSpace, list[int]] = {}
        self.buffers: list[Buffer] = []
        # 2 MiB regions of each space that once had tables of smaller pages.
        self.tabled: set[tuple[AddressSpace, int]] = set()
        self.done: dict[str, int] = {}

    def __getitem__(self, space: AddressSpace) -> list[Mapping]:
        return self.live[space]

    def pick(self) -> AddressSpace:
        return self.numbers.choice(list(self.live))

    def buffer(self) -> Buffer:
        """Returns a new buffer, or one that is mapped already."""
        if self.buffers and self.numbers.random() < 0.3:
            return self.numbers.choice(self.buffers)
        page = self.numbers.choice((SMALL, BIG, HUGE))
        count = (
            1
            if page == HUGE
            else self.numbers.choice((
                1,
                2,
                3,
                PAGE_INVALIDATION_LIMIT,
                PAGE_INVALIDATION_LIMIT + 1,
            ))
        )
        buffer = self.memory.allocate(page * count, align=page)
        self.buffers.append(buffer)
        return buffer

    def expect(self, space: AddressSpace, asid: int | None, pages: list[int]) -> None:
        """Check the commands for a change of `pages` of a space bound to `asid`."""
        expected: list[tuple] = []
        if asid is not None and len(pages) > PAGE_INVALIDATION_LIMIT:
            expected = [("asid", asid)]
        elif asid is not None:
            expected = [("page", asid, va) for va in pages]
        assert self.mmu.taken() == expected, space

    async def map(self) -> None:
        space = self.pick()
        buffer, base = self.buffer(), self.numbers.choice((0, 1 << 38))
        va = base + self.numbers.randrange(3 * HUGE // SMALL) * SMALL
        va = self.numbers.choice((None, va, va // BIG * BIG, va // HUGE * HUGE))
        taken = [range(each.va, each.end) for each in self[space]]
        if va is not None and any(va < r.stop and r.start < va + buffer.size for r in taken):
            return
        mapping = await space.map(buffer, va=va, read_only=self.numbers.random() < 0.3)
        self.enter(mapping)

    def enter(self, mapping: Mapping) -> None:
        """Record a mapping, and check the invalidation of the tables it replaces."""
        space, pages = mapping.space, range(mapping.va, mapping.end, mapping.page_size)
        assert isinstance(space, AddressSpace)
        assert mapping.va % mapping.page_size == mapping.pa % mapping.page_size == 0
        regions = {(space, va // HUGE) for va in pages}
        if mapping.page_size == HUGE:
            told = sorted(region * HUGE for _, region in regions & self.tabled)
            self.expect(space, space.asid, told)
            self.tabled -= regions
            self.done["replaced"] = self.done.get("replaced", 0) + len(told)
        else:
            self.expect(space, space.asid, [])
            self.tabled |= regions
        self[space].append(mapping)

    async def share(self) -> None:
        source = self.pick()
        if self[source]:
            mapping = self.numbers.choice(self[source])
            self.enter(await self.pick().share(mapping, read_only=self.numbers.random() < 0.3))

    async def unmap(self) -> None:
        space = self.pick()
        if not self[space]:
            return
        mapping = self[space].pop(self.numbers.randrange(len(self[space])))
        asid = space.asid
        await space.unmap(mapping)
        self.expect(space, asid, list(range(mapping.va, mapping.end, mapping.page_size)))
        self.gone[space].append(mapping.va + self.numbers.randrange(mapping.size))

    async def protect(self) -> None:
        space = self.pick()
        if self[space]:
            mapping = self.numbers.choice(self[space])
            before, after = mapping.read_only, self.numbers.random() < 0.5
            await space.protect(mapping, read_only=after)
            pages = range(mapping.va, mapping.end, mapping.page_size)
            self.expect(space, space.asid, list(pages) if before != after else [])

    async def free(self) -> None:
        """Free unmapped buffers. The memory checks that the machine no longer reaches them."""
        for buffer in [buffer for buffer in self.buffers if not buffer.mappings]:
            self.buffers.remove(buffer)
            buffer.free()

    async def create(self) -> None:
        if len(self.live) < 7:
            space = self.spaces.create()
            self.live[space], self.gone[space] = [], []

    async def close(self) -> None:
        space = self.pick()
        if len(self.live) > 4 and not self.spaces.users(space):
            asid = space.asid
            await self.spaces.close(space)
            assert self.mmu.taken() == ([] if asid is None else [("unbind", asid)])
            self.tabled = {each for each in self.tabled if each[0] is not space}
            del self.live[space], self.gone[space]

    async def acquire(self) -> None:
        space = self.pick()
        bound, in_use = space.asid, [each for each in self.live if self.spaces.users(each)]
        if bound is None and len(in_use) == self.spaces.asids:
            with pytest.raises(OutOfAsids):
                await self.spaces.acquire(space)
            assert self.mmu.taken() == []
            return
        held = {each: each.asid for each in in_use}
        asid = await self.spaces.acquire(space)
        expected = [] if bound is not None else [("bind", asid, space.base, LIMIT)]
        assert self.mmu.taken() == expected
        assert all(each.asid == before for each, before in held.items())

    async def release(self) -> None:
        space = self.pick()
        if self.spaces.users(space):
            self.spaces.release(space)

    def access(self) -> None:
        """Access mapped, formerly mapped and never mapped addresses in all spaces in use."""
        for space in self.live:
            if not self.spaces.users(space):
                continue
            vas = [each.va + self.numbers.randrange(each.size) for each in self[space]]
            vas += [*self.gone[space][-20:], self.numbers.randrange(1 << 40)]
            for va in self.numbers.sample(vas, min(10, len(vas))):
                self.check(space, va)

    def check(self, space: AddressSpace, va: int) -> None:
        """Check that one access finds the current mapping."""
        assert space.asid is not None
        found = self.mmu.access(space.asid, va)
        mapping = next((each for each in self[space] if each.va <= va < each.end), None)
        assert space.find(va) is mapping
        if mapping is None:
            assert isinstance(found, Fault) and found.code in {PDE, PTE}, (space, hex(va), found)
            return
        pa = mapping.pa + va - mapping.va
        assert space.translate(va) == pa
        assert found == Translation(pa, mapping.page_size, mapping.read_only, False, False), (
            f"{va:#x} of {mapping}"
        )

    async def step(self) -> None:
        """Do one random call, then accesses."""
        names = "map map map map share share unmap unmap unmap protect protect free create close"
        name = self.numbers.choice([*names.split(), *["acquire", "release"] * 3])
        try:
            await getattr(self, name)()
        except OutOfMemory:
            name = "out of memory"
        self.done[name] = self.done.get(name, 0) + 1
        self.access()


def test_random():
    """No access sees an old mapping, the commands are exactly the required ones, and nothing
    leaks."""
    seed = choose_seed()
    print(f"SIGNALBOX_SEED={seed}")

    async def body(spaces: AddressSpaces, mmu: FakeMmu, memory: WatchedMemory):
        chaos = Chaos(spaces, mmu, memory, seed)
        for _ in range(3):
            await chaos.create()
        for _ in range(1500):
            await chaos.step()
        print(chaos.done)
        for space in list(chaos.live):
            while spaces.users(space):
                spaces.release(space)
            await spaces.close(space)
        await chaos.free()
        assert not chaos.buffers

    run(body, asids=4)


def test_random_at_once():
    """Tasks change, bind and access spaces at the same time, each at its own addresses.

    A task never reaches memory that it has unmapped, whatever the others do and however late the
    machine answers. The memory checks that no task reaches freed memory.
    """
    seed = choose_seed()
    print(f"SIGNALBOX_SEED={seed}")
    numbers = random.Random(seed)

    async def body(spaces: AddressSpaces, mmu: FakeMmu, memory: WatchedMemory):
        shared = [spaces.create(name) for name in "abcde"]

        async def access(space: AddressSpace, va: int, pa: int | None) -> None:
            try:
                async with spaces.use(space) as asid:
                    found = mmu.access(asid, va)
            except OutOfAsids:
                return
            assert (found.pa if isinstance(found, Translation) else None) == pa, hex(va)

        async def task(number: int) -> None:
            for _ in range(40):
                space, size = numbers.choice(shared), numbers.choice((SMALL, 3 * SMALL, BIG))
                va = (number + 1 << 30) + numbers.randrange(8) * BIG
                try:
                    buffer = memory.allocate(size, align=min(size & -size, BIG))
                    mapping = await space.map(buffer, va=va)
                except OutOfMemory:
                    return
                for _ in range(3):
                    await access(space, va + 7, buffer.address + 7)
                await space.protect(mapping, read_only=True)
                await space.unmap(mapping)
                buffer.free()
                await access(space, va, None)

        await asyncio.gather(*(task(number) for number in range(8)))

    run(body, asids=3, latency=lambda: numbers.randrange(4))
