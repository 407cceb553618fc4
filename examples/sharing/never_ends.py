"""Launches a kernel that never ends, and waits for it: `python never_ends.py SOCKET`."""

import sys

from signalbox.driver import blocking
from signalbox.driver.kernels.library import ENDLESS


def main(socket: str) -> None:
    """Launch, say so, wait."""
    with blocking.connect(socket, name="never ends") as device:
        task = device.stream().launch(ENDLESS, 4, 32, {})
        print("never ends: launched", flush=True)
        task.synchronize()


if __name__ == "__main__":
    main(sys.argv[1])
