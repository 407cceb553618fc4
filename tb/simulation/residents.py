"""Warps on the SMs, reconstructed from a trace."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from signalbox.tb.simulation.trace import (
    BlockStop,
    BlockStopped,
    Event,
    TaskOpened,
    WarpEnded,
    WarpStarted,
)

__all__ = ["Residence", "Residents", "residences"]


class Residents:
    """Follows the warps on all SMs. Warps of a stopped block count as present until the state of
    the block is saved.

    Members
    -------
    there : warps that are on SMs, by SM and hardware warp.
    """

    def __init__(self) -> None:
        self.there: dict[tuple[int, int], WarpStarted] = {}
        self._stopping: dict[int, int] = {}

    def take(self, event: Event) -> Sequence[WarpStarted]:
        """Process the next event. Returns the warps that leave their SM with it."""
        match event:
            case WarpStarted(_, sm, warp):
                self.there[sm, warp] = event
            case WarpEnded(_, sm, warp) if (sm, warp) in self.there:
                return [self.there.pop((sm, warp))]
            case BlockStop(_, sm, slot):
                self._stopping[sm] = slot
            case BlockStopped(_, sm, _, True):
                left = sm, self._stopping.pop(sm)
                warps = [one for one in self.there.values() if (one.sm, one.slot) == left]
                for one in warps:
                    del self.there[one.sm, one.warp]
                return warps
        return []


@dataclass(frozen=True)
class Residence:
    """Presence of a warp on an SM, from cycle `began` to cycle `ended`. `asid` : ASID of the warp's
    task."""

    asid: int
    sm: int
    began: int
    ended: int


def residences(events: Iterable[Event]) -> Iterator[Residence]:
    """Presence of each warp, in the order of their ends. Raises `AssertionError` if a warp has not
    ended."""
    rows: dict[int, int] = {}
    owners: dict[tuple[int, int], int] = {}
    residents = Residents()
    for event in events:
        match event:
            case TaskOpened(_, row, asid):
                rows[row] = asid
            case WarpStarted(_, sm, warp, row):
                owners[sm, warp] = rows[row]
        for one in residents.take(event):
            yield Residence(owners[one.sm, one.warp], one.sm, one.cycle, event.cycle)
    assert not residents.there, residents.there
