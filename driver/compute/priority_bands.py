"""Device priorities of streams: bands, each wide enough for nested kernels (NEST-1 … NEST-5).

A child kernel has its parent's device priority plus 1. So two streams of different priority have
device priorities that differ by at least the nesting depth, and no child of one is as urgent as the
other.
"""

from dataclasses import dataclass
from enum import StrEnum

from signalbox.hw.config import PRIORITIES

__all__ = ["PriorityBands", "Sharing"]


class Sharing(StrEnum):
    """Which streams share a band if there are more stream priorities than bands."""

    MOST_URGENT = "most-urgent"
    """The lowest stream priority has the lowest band, from device priority 0 on; the others follow
    upward, and the most urgent ones share the last band (NEST-3)."""
    LEAST_URGENT = "least-urgent"
    """The highest stream priority has the highest band, which ends at the highest device priority;
    the others follow downward, and the least urgent ones share the last band (NEST-4)."""


@dataclass(frozen=True)
class PriorityBands:
    """Maps ranks of streams, 0 being the least urgent, to device priorities. The rank is the
    negated stream priority.

    Parameters
    ----------
    ranks : number of stream priorities, at least 1.
    depth : nesting depth, the width of a band, 1 … `levels`.
    sharing : which streams share a band.
    levels : number of device priorities, of which the highest number is the most urgent.

    Raises `ValueError` for other numbers.
    """

    ranks: int
    depth: int = 1
    sharing: Sharing = Sharing.MOST_URGENT
    levels: int = PRIORITIES

    def __post_init__(self) -> None:
        if self.ranks < 1:
            raise ValueError(f"{self.ranks} stream priorities: there is at least 1")
        if not 1 <= self.depth <= self.levels:
            raise ValueError(f"nesting depth {self.depth} is outside 1 … {self.levels}")

    @property
    def available(self) -> int:
        """Number of bands (NEST-2)."""
        return self.levels // self.depth

    def of(self, rank: int) -> int:
        """Device priority of the kernels that a stream of this rank, 0 … `ranks` - 1, launches: the
        lowest one of its band."""
        if self.sharing is Sharing.MOST_URGENT:
            return min(rank, self.available - 1) * self.depth
        above = min(self.ranks - 1 - rank, self.available - 1)
        return self.levels - (above + 1) * self.depth

    @property
    def table(self) -> tuple[int, ...]:
        """Device priorities of all ranks, computed in advance: bands are given out in order, the
        last one to all remaining ranks (NEST-5)."""
        upward = self.sharing is Sharing.MOST_URGENT
        bands = range(0, self.available * self.depth, self.depth)
        if not upward:
            bands = range(self.levels - self.depth, -1, -self.depth)
        given = [*bands[: self.ranks], *[bands[-1]] * (self.ranks - len(bands))]
        return tuple(given if upward else given[::-1])
