"""Copies data back and forth on a shared machine: `python copies.py SOCKET ROUNDS`."""

import asyncio
import sys

import numpy as np

from signalbox.driver.device import Device

SIZE = 5000


async def main(socket: str, rounds: int) -> None:
    """Copy random bytes there and back, and compare them."""
    numbers = np.random.default_rng(2)
    device = await Device.connect(socket, name="copies")
    stream = await device.stream()
    there, back = await device.allocate(SIZE), await device.allocate(SIZE)
    for _ in range(rounds):
        data = numbers.integers(0, 256, SIZE, np.uint8)
        source = await device.upload(data)
        await stream.memcpy_async(there, source, SIZE)
        await stream.memcpy_async(back, there, SIZE)
        await stream.synchronize()
        assert np.array_equal(back.read(), data)
        await device.free(source)
    await device.close()
    print(f"copies: {2 * rounds} copies of {SIZE} bytes are right")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
