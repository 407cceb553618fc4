"""Direct access to the simulated memory, which takes no simulated time."""

import ctypes
from collections.abc import Callable
from typing import Any

from signalbox.driver.server.shared_memory import SharedMemory
from signalbox.tb.testbench.cocotb_private import reader, writer

__all__ = ["SETTINGS", "Backdoor", "SharedBackdoor", "public"]

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
    """Variables of module `memory` that a simulation must expose (`simulate(public=...)`)."""
    return [f"memory.{name}" for name in ("mem", *SETTINGS)]


class Backdoor:
    """Contents of a `memory` instance, as bytes. For speed, access to each beat is cached.

    Parameters
    ----------
    memory : handle of the instance.
    beat_bytes : bytes per beat (DATA_WIDTH / 8).
    """

    def __init__(self, memory: Any, beat_bytes: int) -> None:
        self._mem = memory.mem
        self._beat_bytes = beat_bytes
        self._beats: dict[int, tuple[Callable[[], str], Callable[[str], None]]] = {}

    def read(self, address: int, count: int) -> bytes:
        """`count` bytes from `address`, with all committed writes."""
        size = self._beat_bytes
        first = address // size
        last = (address + count - 1) // size
        data = b"".join(self._load(beat) for beat in range(first, last + 1))
        return data[address - first * size :][:count]

    def write(self, address: int, data: bytes) -> None:
        """Write `data` at `address` immediately. Other bytes of the same beats do not change."""
        size = self._beat_bytes
        first, before = divmod(address, size)
        last, after = divmod(address + len(data), size)
        if before:
            data = self._load(first)[:before] + data
        if after:
            data += self._load(last)[after:]
        for index in range(len(data) // size):
            self._store(first + index, data[index * size :][:size])

    def _beat(self, beat: int) -> tuple[Callable[[], str], Callable[[str], None]]:
        """Functions that read and write the bits of a beat."""
        if beat not in self._beats:
            handle = self._mem[beat]
            assert len(handle) == 8 * self._beat_bytes, "the memory has beats of another size"
            self._beats[beat] = reader(handle), writer(handle)
        return self._beats[beat]

    def _load(self, beat: int) -> bytes:
        return int(self._beat(beat)[0](), 2).to_bytes(self._beat_bytes, "little")

    def _store(self, beat: int, data: bytes) -> None:
        digits = 8 * self._beat_bytes
        self._beat(beat)[1](f"{int.from_bytes(data, 'little'):0{digits}b}")


class SharedBackdoor:
    """Contents of the `memory` instance in a simulation with `shared_memory`, as bytes: those of
    `memory`, from now on. Access is through the process, not through the simulator.

    Raises `RuntimeError` in a simulation without `shared_memory`.
    """

    def __init__(self, memory: SharedMemory) -> None:
        _hand_over(memory)
        self._view = memory.view[:]

    def read(self, address: int, count: int) -> bytes:
        """`count` bytes from `address`. Raises `IndexError` if they are not in memory."""
        return bytes(self._view[self._range(address, count)])

    def write(self, address: int, data: bytes) -> None:
        """Write `data` at `address` immediately. Raises `IndexError` if it is not in memory."""
        self._view[self._range(address, len(data))] = data

    def _range(self, address: int, count: int) -> slice:
        if not 0 <= address <= len(self._view) - count:
            raise IndexError(
                f"{count} bytes at {address:#x} are not in the {len(self._view):#x} bytes of memory"
            )
        return slice(address, address + count)


_simulated: list[memoryview] = []
"""What the simulation uses. Held here, as it must exist for as long as the simulation."""


def _hand_over(memory: SharedMemory) -> None:
    """Tell the simulation where its memory is (`shared_memory.cpp`)."""
    function = getattr(ctypes.CDLL(None), "signalbox_share_memory", None)
    if function is None:
        raise RuntimeError("the simulation was not built with simulate(shared_memory=True)")
    function.argtypes, function.restype = [ctypes.c_void_p, ctypes.c_uint64], None
    function(memory.address, memory.size)
    _simulated[:] = [memory.view[:]]
