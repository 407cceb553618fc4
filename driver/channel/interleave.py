"""Time-slice groups of channels, and their order in a runlist (HOST-7, spec 7)."""

import enum
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from signalbox.driver.platform.whole import make_whole, whole

__all__ = [
    "LONGEST_NS",
    "UNIT_NS",
    "GroupSettings",
    "Interleave",
    "interleaved",
    "timeout_and_scale",
    "unit_cycles",
]

UNIT_NS = 1024
"""Unit of the slices of groups, in ns (spec 3.4)."""

LONGEST_NS = (255 << 15) * UNIT_NS
"""Longest slice, in ns."""

_Group = TypeVar("_Group")


class Interleave(enum.IntEnum):
    """Interleave level: how often a group has a turn.

    Each group of level MEDIUM has a turn before each turn of a LOW group; each group of level HIGH,
    before each turn of a LOW or MEDIUM group. So with l groups of level LOW and m of level MEDIUM,
    a round has one turn for each LOW group, l for each MEDIUM group (1 if l is 0), and l × (m + 1)
    for each HIGH group (m if l is 0, 1 if both are). Source: NVIDIA open-gpu-kernel-modules,
    ctrla06c.h (NVA06C_CTRL_INTERLEAVE_LEVEL_*).
    """

    LOW = 0
    MEDIUM = 1
    HIGH = 2


@dataclass(frozen=True)
class GroupSettings:
    """Settings of a time-slice group. Raises `ValueError` for values out of range, `TypeError` for
    numbers that are not whole.

    Members
    -------
    slice_ns : time slice in ns, from 1 on; rounded up to a slice that an entry can express.
    level : interleave level.
    """

    slice_ns: int = 1024 * UNIT_NS
    level: Interleave = Interleave.LOW

    def __post_init__(self) -> None:
        make_whole(self)
        object.__setattr__(self, "level", Interleave(whole(self.level, "level")))
        if not 1 <= self.slice_ns <= LONGEST_NS:
            raise ValueError(f"slice_ns = {self.slice_ns} is outside 1 … {LONGEST_NS}")

    @property
    def slice_fields(self) -> tuple[int, int]:
        """TIMEOUT and SCALE: the slice is TIMEOUT << SCALE units."""
        return timeout_and_scale(-(-self.slice_ns // UNIT_NS))

    @property
    def units(self) -> int:
        """The slice, in units."""
        timeout, scale = self.slice_fields
        return timeout << scale

    def cycles(self, cycle_ns: int) -> int:
        """The slice in cycles of `cycle_ns` ns, each unit rounded up."""
        return self.units * unit_cycles(cycle_ns)


def timeout_and_scale(span: int) -> tuple[int, int]:
    """TIMEOUT (8 bits) and SCALE of the smallest TIMEOUT << SCALE that is not less than `span`."""
    scale = max(0, span.bit_length() - 8)
    timeout = -(-span >> scale)
    return (timeout, scale) if timeout < 256 else (128, scale + 1)


def unit_cycles(cycle_ns: int) -> int:
    """A unit in cycles of `cycle_ns` ns, rounded up."""
    return -(-UNIT_NS // cycle_ns)


def interleaved(groups: Mapping[_Group, GroupSettings]) -> list[_Group]:
    """Groups in the order of their turns in a round, each as often as its level requires."""
    low, medium, high = (
        [group for group, settings in groups.items() if settings.level == level]
        for level in Interleave
    )

    def with_high(others: Iterable[_Group]) -> Iterator[_Group]:
        for group in others:
            yield from high
            yield group

    if low:
        return [group for one in low for group in with_high([*medium, one])]
    return list(with_high(medium)) if medium else high
