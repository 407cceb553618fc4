"""Access to the simulated memory without a bus: no simulated time passes.

Speed: a handle is made for a beat when it is first touched and kept.
"""

from typing import Any

from cocotb.handle import Immediate

__all__ = ["SETTINGS", "Backdoor", "public"]

SETTINGS = (
    "read_latency",
    "write_latency",
    "stall_ar",
    "stall_r",
    "stall_aw",
    "stall_w",
    "stall_b",
    "random",
    "error_lo",
    "error_hi",
)
"""Variables of module `memory` that a test may write."""


def public() -> list[str]:
    """What a simulation must show cocotb of module `memory` (`simulate(public=...)`)."""
    return [f"memory.{name}" for name in ("mem", *SETTINGS)]


class Backdoor:
    """Bytes of a `memory` instance.

    Parameters
    ----------
    memory : handle of the instance.
    beat_bytes : bytes of one beat (DATA_WIDTH / 8).
    """

    def __init__(self, memory: Any, beat_bytes: int) -> None:
        self._mem = memory.mem
        self._beat_bytes = beat_bytes
        self._handles: dict[int, Any] = {}

    def read(self, address: int, count: int) -> bytes:
        """`count` bytes from `address` as committed writes left them."""
        size = self._beat_bytes
        first = address // size
        last = (address + count - 1) // size
        data = b"".join(self._load(beat) for beat in range(first, last + 1))
        return data[address - first * size :][:count]

    def write(self, address: int, data: bytes) -> None:
        """Put `data` at `address` now; the other bytes of its beats stay."""
        size = self._beat_bytes
        first, before = divmod(address, size)
        last, after = divmod(address + len(data), size)
        if before:
            data = self._load(first)[:before] + data
        if after:
            data += self._load(last)[after:]
        for index in range(len(data) // size):
            self._store(first + index, data[index * size :][:size])

    def _handle(self, beat: int) -> Any:
        if beat not in self._handles:
            self._handles[beat] = self._mem[beat]
        return self._handles[beat]

    def _load(self, beat: int) -> bytes:
        return self._handle(beat).value.to_unsigned().to_bytes(self._beat_bytes, "little")

    def _store(self, beat: int, data: bytes) -> None:
        self._handle(beat).set(Immediate(int.from_bytes(data, "little")))
