"""Occupancy: number of blocks of a kernel that fit an SM at once (PLACE-2, PLACE-27).

occupancy(Config(), registers=8, block=(64, 1, 1), shared=1024)
Occupancy(blocks=8, warps=16, limits=('warps', 'registers', 'block slots'))
"""

from dataclasses import dataclass
from math import prod
from typing import Protocol

from signalbox.hw.config import REGISTER_UNIT, SHARED_UNIT, WARP_THREADS
from signalbox.hw.qmd import MOST_REGISTERS, MOST_THREADS, SkedCheck

__all__ = ["BlockError", "Needs", "Occupancy", "SmSizes", "needs", "occupancy"]


class SmSizes(Protocol):
    """Resources of an SM; `hw.config.Config` and `driver.platform.info.DeviceInfo` have them."""

    @property
    def sm_warps(self) -> int:
        """Hardware warps."""
        ...

    @property
    def sm_blocks(self) -> int:
        """Block slots."""
        ...

    @property
    def sm_registers(self) -> int:
        """32-bit registers."""
        ...

    @property
    def sm_shared(self) -> int:
        """Bytes of shared memory."""
        ...


class BlockError(ValueError):
    """A block does not fit any SM of the machine, or a launch is malformed. The message names the
    resource; `check` is the SKEDCHECK code that the hardware would report, NONE if there is none.
    """

    def __init__(self, check: SkedCheck, message: str) -> None:
        super().__init__(message)
        self.check = check


@dataclass(frozen=True)
class Needs:
    """Resources that a block needs on an SM.

    Members
    -------
    warps : hardware warps.
    registers : 32-bit registers, in whole allocation units.
    shared : bytes of shared memory, in whole allocation units.
    """

    warps: int
    registers: int
    shared: int


@dataclass(frozen=True)
class Occupancy:
    """`blocks` fit an SM at once, with `warps` in total. `limits` names the resources that limit
    their number."""

    blocks: int
    warps: int
    limits: tuple[str, ...]


def needs(registers: int, block: tuple[int, int, int], shared: int) -> Needs:
    """Resources of a block.

    Parameters
    ----------
    registers : registers per thread.
    block : threads in x, y, z.
    shared : bytes of shared memory per block.

    Raises `BlockError` if the block exceeds the limits of every machine.
    """
    if not 1 <= registers <= MOST_REGISTERS:
        raise BlockError(
            SkedCheck.REGISTER_COUNT, f"{registers} registers per thread: 1 … {MOST_REGISTERS}"
        )
    if min(block) < 1:
        raise BlockError(SkedCheck.THREAD_DIMENSION_ZERO, f"a block of {block} threads is empty")
    threads = prod(block)
    if threads > MOST_THREADS:
        raise BlockError(
            SkedCheck.THREADS, f"a block of {block} has {threads} threads: {MOST_THREADS} at most"
        )
    warps = -(-threads // WARP_THREADS)
    per_warp = _whole(registers * WARP_THREADS, REGISTER_UNIT)
    return Needs(warps, warps * per_warp, _whole(shared, SHARED_UNIT))


def occupancy(
    config: SmSizes, *, registers: int, block: tuple[int, int, int], shared: int = 0
) -> Occupancy:
    """Number of such blocks that fit an empty SM, and the resources that limit it.

    Raises `BlockError` if not even one fits.
    """
    need = needs(registers, block, shared)
    room = {
        "warps": (config.sm_warps, need.warps, SkedCheck.WARPS),
        "registers": (config.sm_registers, need.registers, SkedCheck.REGISTERS),
        "shared memory": (config.sm_shared, need.shared, SkedCheck.SHARED_MEMORY),
        "block slots": (config.sm_blocks, 1, SkedCheck.NONE),
    }
    for name, (has, takes, check) in room.items():
        if takes > has:
            raise BlockError(check, f"{name}: a block needs {takes}, an SM has {has}")
    counts = {name: has // takes for name, (has, takes, _) in room.items() if takes}
    blocks = min(counts.values())
    limits = tuple(name for name, count in counts.items() if count == blocks)
    return Occupancy(blocks, blocks * need.warps, limits)


def _whole(amount: int, unit: int) -> int:
    """`amount` rounded up to whole units."""
    return -(-amount // unit) * unit
