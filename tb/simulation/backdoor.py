"""Direct access to the simulated memory, which takes no simulated time."""

import ctypes
from collections.abc import Callable
from typing import Any

from signalbox.driver.server.shared_memory import SharedMemory
from signalbox.tb.testbench.cocotb_private import reader, writer

__all__ = ["SETTINGS", "Backdoor", "ProcessBackdoor", "open_backdoor", "public"]

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
    return [f"memory.{name}" for name in ("BYTES", "mem", *SETTINGS)]


def open_backdoor(memory: Any, shared: SharedMemory | None = None) -> "Backdoor | ProcessBackdoor":
    """Access to the contents of a `memory` instance.

    Parameters
    ----------
    memory : handle of the instance.
    shared : memory that replaces the contents. Other processes can share parts of it. Backdoors
        that were opened before still access the old contents. It may be closed before the
        simulation ends.

    Raises `RuntimeError` if `shared` is given without `simulate(process_memory=True)`,
    `ValueError` if it has another size than the simulated memory.
    """
    program = ctypes.CDLL(None)
    if hasattr(program, "signalbox_memory"):
        size = memory.BYTES.value.to_unsigned()
        if shared is not None and shared.size != size:
            raise ValueError(f"the memory has {size} bytes, the shared one {shared.size}")
        return ProcessBackdoor(program, size, shared)
    if shared is not None:
        raise RuntimeError("the simulation was not built with simulate(process_memory=True)")
    return Backdoor(memory)


class Backdoor:
    """Contents of a `memory` instance, as bytes, in a simulation that keeps them in a Verilog
    array. `memory` : handle of the instance."""

    def __init__(self, memory: Any) -> None:
        self._mem = memory.mem
        self._beat_bytes = len(self._mem[0]) // 8
        self._beats: dict[int, tuple[Callable[[], str], Callable[[str], None]]] = {}

    def read(self, address: int, count: int) -> bytes:
        """`count` bytes from `address`, including the effects of all committed writes."""
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
        """Functions that read and write the bits of a beat; cached for speed."""
        if beat not in self._beats:
            handle = self._mem[beat]
            self._beats[beat] = reader(handle), writer(handle)
        return self._beats[beat]

    def _load(self, beat: int) -> bytes:
        return int(self._beat(beat)[0](), 2).to_bytes(self._beat_bytes, "little")

    def _store(self, beat: int, data: bytes) -> None:
        digits = 8 * self._beat_bytes
        self._beat(beat)[1](f"{int.from_bytes(data, 'little'):0{digits}b}")


class ProcessBackdoor:
    """Contents of the `memory` instance, as bytes, in a simulation with `process_memory`: they are
    memory of this process, and accessed without the simulator.

    Parameters
    ----------
    program : the running simulation, loaded as a library.
    size : bytes of the contents.
    shared : memory that replaces the contents.

    Raises `MemoryError` if `size` bytes cannot be allocated.
    """

    def __init__(self, program: ctypes.CDLL, size: int, shared: SharedMemory | None = None) -> None:
        if shared is None:
            program.signalbox_memory.argtypes = [ctypes.c_uint64]
            program.signalbox_memory.restype = ctypes.c_void_p
            first = program.signalbox_memory(size)
            if not first:
                raise MemoryError(f"no {size} bytes for the simulated memory")
            self._view = memoryview((ctypes.c_ubyte * size).from_address(first)).cast("B")
        else:
            program.signalbox_share_memory.argtypes = [ctypes.c_void_p, ctypes.c_uint64]
            program.signalbox_share_memory(shared.address, shared.size)
            self._view = shared.view[:]
            _simulated.append(self._view)

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
"""All shared memories passed to `open_backdoor`. They are held until the simulation ends, as the
simulation and earlier backdoors point into them."""
