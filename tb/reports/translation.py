"""Translation during a run, derived from its trace: look-ups, page walks, invalidations, faults.

Cycles count from the start of the run.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from statistics import fmean

from signalbox.driver.workload.records import SpaceRecord
from signalbox.tb.simulation import trace

__all__ = ["SpaceActivity", "Translation", "translation"]


@dataclass
class SpaceActivity:
    """Translation activity of one address space.

    Members
    -------
    title : name and ASID of the space.
    hits : number of look-ups that hit in the first-level TLB of their client.
    misses : cycles of the look-ups that missed.
    begun, ended : cycles of the starts and of the ends of page walks. The trace does not tell which
        end belongs to which start.
    faults : faulting accesses.
    """

    title: str
    hits: int = 0
    misses: list[int] = field(default_factory=list)
    begun: list[int] = field(default_factory=list)
    ended: list[int] = field(default_factory=list)
    faults: list[trace.Fault] = field(default_factory=list)

    @property
    def lookups(self) -> int:
        """Number of look-ups in first-level TLBs."""
        return self.hits + len(self.misses)

    @property
    def walk_cycles(self) -> float:
        """Mean duration of a page walk in cycles; 0 if there was none."""
        lasted = [end - begin for begin, end in zip(self.begun, self.ended, strict=False)]
        return fmean(lasted) if lasted else 0.0

    def walks_under_way(self) -> Iterator[tuple[int, int]]:
        """(cycle, number of page walks from then on) of each change, beginning with (0, 0)."""
        steps = [(max(0, cycle), 1) for cycle in self.begun]
        steps += [(cycle, -1) for cycle in self.ended]
        count = 0
        yield 0, 0
        for cycle, step in sorted(steps):
            count += step
            yield cycle, count


@dataclass
class Translation:
    """Translation activity of a run. `spaces` : by ASID, in order of appearance."""

    spaces: dict[int, SpaceActivity]
    invalidations: list[trace.Invalidation] = field(default_factory=list)

    def title(self, asid: int) -> str:
        """Name of an ASID."""
        return self.spaces[asid].title if asid in self.spaces else f"ASID {asid}"


def translation(
    spaces: Iterable[SpaceRecord], events: Iterable[trace.Event], start: int
) -> Translation:
    """Derive the translation activity from the trace of a run that began in cycle `start`."""
    titles = {space.asid: f"{space.name} (ASID {space.asid})" for space in spaces}
    found = Translation({asid: SpaceActivity(title) for asid, title in titles.items()})
    for event in events:
        _take(found, event, start)
    for space in found.spaces.values():
        before = sum(cycle < 0 for cycle in space.ended)
        del space.begun[:before], space.ended[:before]
    return found


def _take(found: Translation, event: trace.Event, start: int) -> None:
    """Process one event. Before the start of the run, all but page walks are ignored."""
    cycle = event.cycle - start
    if not isinstance(event, trace.Walk | trace.Walked) and cycle < 0:
        return
    if isinstance(event, trace.Invalidation):
        found.invalidations.append(replace(event, cycle=cycle))
    elif isinstance(event, trace.Lookup | trace.Walk | trace.Walked | trace.Fault):
        space = found.spaces.setdefault(event.asid, SpaceActivity(f"ASID {event.asid}"))
        match event:
            case trace.Lookup(hit=True):
                space.hits += 1
            case trace.Lookup():
                space.misses.append(cycle)
            case trace.Walk():
                space.begun.append(cycle)
            case trace.Walked():
                space.ended.append(cycle)
            case trace.Fault():
                space.faults.append(replace(event, cycle=cycle))
