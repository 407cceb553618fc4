"""Kernel launches: kernel, grid, block and arguments, before memory is allocated (PLACE-27)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from operator import index
from typing import SupportsIndex

from signalbox.driver.compute.placement import AUTO
from signalbox.driver.kernels.library import Kernel
from signalbox.driver.platform.whole import make_whole
from signalbox.hw.config import SHARED_UNIT
from signalbox.hw.qmd import Placement, Urgency

__all__ = ["Extent", "KernelLaunch", "sizes"]

Extent = SupportsIndex | Sequence[SupportsIndex]
"""Sizes in x, y, z; missing ones are 1."""


def sizes(extent: Extent) -> tuple[int, int, int]:
    """Expand an extent to three sizes. Raises `ValueError`."""
    try:
        given = [index(one) for one in (extent if isinstance(extent, Iterable) else (extent,))]
    except TypeError:
        raise ValueError(f"{extent!r}: sizes are whole numbers") from None
    if not 1 <= len(given) <= 3:
        raise ValueError(f"{extent} has {len(given)} sizes, not 1 … 3")
    x, y, z = (*given, 1, 1, 1)[:3]
    return x, y, z


@dataclass(frozen=True, kw_only=True)
class KernelLaunch:
    """One launch. Members without a description are parameters of `Stream.launch`.

    Members
    -------
    args : arguments as numbers, by name.
    constants : virtual address and size in bytes of constant buffers, by number.
    done : virtual address of the word that becomes 1 when a child is complete; 0: none.
    depth : nesting depth that the limits of the device allow; 1: kernels launch no others.
    pending : maximum number of incomplete children of all kernels; 0: no limit.
    sms : SMs that take its blocks; None: all.

    Raises `ValueError` for a negative `shared`, `TypeError` for numbers that are not whole."""

    kernel: Kernel
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    args: Mapping[str, SupportsIndex]
    priority: int = 0
    placement: Placement = AUTO
    urgency: Urgency = Urgency.CONTEXT
    shared: int = 0
    head: bool = False
    constants: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    done: int = 0
    depth: int = 1
    pending: int = 0
    sms: frozenset[int] | None = None

    def __post_init__(self) -> None:
        make_whole(self)
        if self.shared < 0:
            raise ValueError(f"shared = {self.shared} < 0: it is in addition to the kernel's own")

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a block in bytes: that of the kernel plus `shared`, rounded up to whole
        allocation units."""
        size = prod(self.block) * self.kernel.shared_per_thread + self.shared
        return -(-size // SHARED_UNIT) * SHARED_UNIT
