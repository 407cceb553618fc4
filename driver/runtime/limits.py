"""Limits of a device that its application sets, as with cudaDeviceSetLimit (NEST-1)."""

from enum import StrEnum

from signalbox.driver.compute.priority_bands import PriorityBands, Sharing
from signalbox.driver.platform.whole import whole
from signalbox.hw.config import NESTING, PRIORITIES

__all__ = ["DEFAULTS", "MOST", "Limit", "Limits"]


class Limit(StrEnum):
    """A limit that can be set."""

    NESTING_DEPTH = "nesting-depth"
    """Generations of kernels that launch kernels, 1 … 24. Default: 1, no kernel launches others."""
    PENDING_LAUNCHES = "pending-launches"
    """Maximum number of children that are not complete, 1 … 2048. Default: 2048, as for
    cudaLimitDevRuntimePendingLaunchCount. In any case a machine holds fewer children than
    `Config.nested_kernels`."""


DEFAULTS = {Limit.NESTING_DEPTH: 1, Limit.PENDING_LAUNCHES: 2048}
MOST = {Limit.NESTING_DEPTH: NESTING, Limit.PENDING_LAUNCHES: 2048}


class Limits:
    """Limits of one device, and the device priorities of streams that follow from them.

    Parameters
    ----------
    ranks : number of stream priorities.
    sharing : which streams share a device priority. Raises `ValueError` for an unknown name.
    priorities : number of device priorities; also the largest nesting depth, if less than 24.
    """

    def __init__(self, ranks: int, sharing: Sharing | str, priorities: int = PRIORITIES) -> None:
        self._ranks, self._sharing, self._priorities = ranks, Sharing(sharing), priorities
        self._values = dict(DEFAULTS)
        depth = Limit.NESTING_DEPTH
        self._most = {**MOST, depth: min(MOST[depth], priorities)}

    def __getitem__(self, limit: Limit | str) -> int:
        return self._values[Limit(limit)]

    def __setitem__(self, limit: Limit | str, value: int) -> None:
        name = Limit(limit)
        value = whole(value, name.value)
        if not 1 <= value <= self._most[name]:
            raise ValueError(f"{name.value} {value} is outside 1 … {self._most[name]}")
        self._values[name] = value

    @property
    def bands(self) -> PriorityBands:
        """Device priorities of streams whose priority is set from now on."""
        depth = self[Limit.NESTING_DEPTH]
        return PriorityBands(self._ranks, depth, self._sharing, self._priorities)

    def check_priority(self, priority: int) -> None:
        """Raise `ValueError` if a launch cannot have this device priority."""
        if not 0 <= priority < self._priorities:
            raise ValueError(f"priority = {priority}: 0 … {self._priorities - 1}")
