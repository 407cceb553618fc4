"""Memory of records and arguments."""

import asyncio
from itertools import pairwise

from signalbox.driver.compute.task_memory import TaskPool
from signalbox.driver.device import Device
from signalbox.tb.driver.fakes.machine import FakeMachine


def test_pool():
    """Pieces of all sizes are aligned to 256 bytes, do not overlap, have writable 40-bit addresses,
    and are reused after they are freed."""
    machine = FakeMachine()

    async def main():
        device = await Device.open(machine)
        space = device.create_space()
        pool = TaskPool(space, machine)
        sizes = [1, 256, 257, 20_000, 512, 16_000, 300]
        taken = [await pool.take(size) for size in sizes]
        rooms = [-(-size // 256) * 256 for size in sizes]
        ranges = sorted((one.va, one.va + room) for one, room in zip(taken, rooms, strict=True))
        assert all(start % 256 == 0 and end <= 1 << 40 for start, end in ranges)
        assert all(one[1] <= two[0] for one, two in pairwise(ranges))
        assert pool.used == sum(rooms)
        taken[3].write(b"abc")
        mapping = space.find(taken[3].va)
        assert mapping is not None and not mapping.read_only
        assert machine.memory_read(space.translate(taken[3].va), 3) == b"abc"
        free, where = device.memory.free_bytes, {one.va for one in taken}
        for one in taken:
            one.free()
        assert pool.used == 0
        assert {(await pool.take(size)).va for size in sizes} <= where
        assert device.memory.free_bytes == free
        await device.close_space(space)
        pool.end()

    asyncio.run(main())
