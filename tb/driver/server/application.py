"""An application as a user would write it: `python -m signalbox.tb.driver.server.application SOCKET
SEED ROUNDS`. Connects, waits for the end of its standard input, and then adds vectors on the
server's machine and checks the sums."""

import sys

import numpy as np

from signalbox.driver import blocking
from signalbox.driver.kernels.library import VECTOR_ADD

__all__ = ["add"]

COUNT, BLOCK = 100, 20


def add(path: str, seed: int, rounds: int) -> None:
    """Add `rounds` pairs of vectors; `seed` determines their contents."""
    numbers = np.random.default_rng(seed)
    with blocking.connect(path, name=f"adds {seed}") as device:
        stream = device.stream()
        sys.stdin.read()
        for _ in range(rounds):
            a, b = numbers.integers(0, 1 << 32, (2, COUNT), np.uint32)
            args = {"A": device.upload(a), "B": device.upload(b), "C": device.allocate(4 * COUNT)}
            task = stream.launch(VECTOR_ADD, COUNT // BLOCK, BLOCK, {**args, "N": COUNT})
            task.synchronize()
            assert np.array_equal(args["C"].read(np.uint32), a + b)
            for buffer in args.values():
                device.free(buffer)


if __name__ == "__main__":
    add(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
