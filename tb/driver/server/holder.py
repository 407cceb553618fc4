"""Another process, with a portion of a `SharedMemory` mapped.

    with Holder(descriptor, size) as holder:
        holder.write(0, b"bytes")

The process runs this file as a program: it takes one command per line, and answers with one line.
"""

import mmap
import os
import subprocess
import sys
from types import TracebackType

__all__ = ["Holder"]


class Holder:
    """Starts the process, which maps `size` bytes of the file `descriptor`. Ends it at the end of
    `with`."""

    def __init__(self, descriptor: int, size: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__, str(descriptor), str(size)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            pass_fds=[descriptor],
        )

    def __enter__(self) -> "Holder":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.communicate(timeout=10)

    def read(self, offset: int, size: int) -> bytes:
        """Bytes of the portion, as the process sees them."""
        return bytes.fromhex(self._ask("read", offset, size))

    def write(self, offset: int, data: bytes) -> None:
        """The process writes into the portion."""
        assert self._ask("write", offset, data.hex()) == "done"

    def resize(self, size: int) -> str:
        """The process changes the size of its file. Returns "done", or the error's name."""
        return self._ask("resize", size)

    def _ask(self, *words: object) -> str:
        assert self._process.stdin and self._process.stdout
        print(*words, file=self._process.stdin, flush=True)
        return self._process.stdout.readline().strip()


def _answer(memory: mmap.mmap, descriptor: int, command: str, *words: str) -> str:
    if command == "read":
        offset, size = map(int, words)
        return memory[offset : offset + size].hex()
    if command == "write":
        offset, data = int(words[0]), bytes.fromhex(words[1])
        memory[offset : offset + len(data)] = data
        return "done"
    try:
        os.ftruncate(descriptor, int(words[0]))
    except OSError as error:
        return type(error).__name__
    return "done"


def main() -> None:
    """Answer commands until the input ends."""
    descriptor, size = map(int, sys.argv[1:])
    with mmap.mmap(descriptor, size) as memory:
        for line in sys.stdin:
            print(_answer(memory, descriptor, *line.split()), flush=True)


if __name__ == "__main__":
    main()
