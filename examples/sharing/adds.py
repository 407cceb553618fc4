"""Adds vectors on a shared machine: `python adds.py SOCKET ROUNDS`."""

import sys

import numpy as np

from signalbox.driver import blocking
from signalbox.driver.kernels.library import VECTOR_ADD

COUNT = 256


def main(socket: str, rounds: int) -> None:
    """Add random vectors and check each sum."""
    numbers = np.random.default_rng(1)
    with blocking.connect(socket, name="adds") as device:
        stream = device.stream()
        sums = device.allocate(4 * COUNT)
        for _ in range(rounds):
            a, b = numbers.integers(0, 1 << 32, (2, COUNT), np.uint32)
            left, right = device.upload(a), device.upload(b)
            arguments = {"A": left, "B": right, "C": sums, "N": COUNT}
            stream.launch(VECTOR_ADD, COUNT // 32, 32, arguments)
            stream.synchronize()
            assert np.array_equal(sums.read(np.uint32), a + b)
            device.free(left)
            device.free(right)
    print(f"adds: {rounds} sums of {COUNT} numbers are right")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
