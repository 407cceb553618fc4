"""Turns of address spaces by a runlist during a run, derived from its trace and its records.

The turn of an address space begins with a time slice of one of its channels, and lasts until
another space's channel has the time slice. So successive turns of the same space count as one, and
turns without a time slice do not count.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from signalbox.driver.channel.interleave import interleaved
from signalbox.driver.text_table import number, table
from signalbox.driver.workload.records import Result

__all__ = ["OWN", "Turn", "turns", "turns_table"]

OWN = "device"
"""Name of the device's own address space."""


@dataclass(frozen=True)
class Turn:
    """A turn of an address space, from cycle `start` to `end`, the last cycle in which one of its
    channels had the time slice. `space` : name of the space in the workload; None for the device's
    own."""

    start: int
    end: int
    space: str | None

    @property
    def name(self) -> str:
        """Name of the address space, to be shown."""
        return self.space or OWN


def turns(result: Result, floor: Sequence[tuple[int, int, int]]) -> list[Turn]:
    """Turns of a run, in order; none with flat scheduling. `floor` : (start, end, channel) of each
    time slice, in order."""
    if result.workload.policy.scheduling == "flat":
        return []
    spaces = {stream.name: stream.space for stream in result.workload.streams}
    records = (*result.records, *result.kernels)
    of_channel = {record.channel: spaces[record.stream] for record in records}
    found: list[Turn] = []
    for start, end, channel in floor:
        if channel not in of_channel:
            continue
        if found and found[-1].space == of_channel[channel]:
            start = found.pop().start
        found.append(Turn(start, end, of_channel[channel]))
    return found


def turns_table(result: Result, found: dict[str, Sequence[Turn]]) -> str:
    """Table of the groups of the runlist: level, slice, turns in a round, and turns in each run."""
    groups, cycle_ns = result.workload.groups, result.workload.config.cycle_ns
    order = interleaved(groups)
    rows: list[list[object]] = []
    for space, group in groups.items():
        row: list[object] = [space or OWN, group.level.name.lower()]
        row += [number(group.cycles(cycle_ns)), order.count(space)]
        for run in found.values():
            mine = [turn.end - turn.start for turn in run if turn.space == space]
            row += [number(len(mine)), number(sum(mine))]
        rows.append(row)
    head = ["space", "interleave", "slice", "per round", *["turns", "cycles"] * len(found)]
    runs = [part for run in found for part in (run, None)]
    return table(rows, ["", "", "", "", *runs], head)
