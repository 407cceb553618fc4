"""Issue policies: the application whose pointer to work is issued next (SHARE-5, SHARE-6)."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

__all__ = [
    "IssuePolicy",
    "Pointer",
    "Policy",
    "PriorityOrder",
    "Queued",
    "RoundRobin",
    "Weighted",
    "policy",
]


@dataclass(frozen=True)
class Pointer:
    """A pointer to commands of an application.

    Members
    -------
    channel : channel that executes them.
    pa : physical address.
    dwords : number of dwords.
    sync : as in `CommandChannel.enqueue`.
    """

    channel: int
    pa: int
    dwords: int
    sync: bool = False


class Queued(Protocol):
    """The part of an application that issue policies use.

    Members
    -------
    weight : pointers per turn.
    priority : applications with a higher number are served first.
    """

    number: int
    weight: int
    priority: int


class IssuePolicy(Protocol):
    """Order in which the queues are served (SHARE-5, SHARE-6)."""

    def turn(self, waiting: Sequence[Queued]) -> Iterable[Queued]:
        """The next turn over the applications with non-empty queues. `waiting` has these
        applications in order of their numbers. An application may issue one pointer each time it
        is yielded."""
        ...


class RoundRobin:
    """One pointer per non-empty queue and turn; each turn starts after the queue that was served
    first in the turn before."""

    def __init__(self) -> None:
        self._last = -1

    def turn(self, waiting: Sequence[Queued]) -> Iterator[Queued]:
        """See `IssuePolicy.turn`."""
        later = [one for one in waiting if one.number > self._last]
        earlier = [one for one in waiting if one.number <= self._last]
        order = [*later, *earlier]
        if order:
            self._last = order[0].number
        yield from order


class Weighted(RoundRobin):
    """Round robin with `weight` pointers per queue and turn."""

    def turn(self, waiting: Sequence[Queued]) -> Iterator[Queued]:
        """See `IssuePolicy.turn`."""
        for one in super().turn(waiting):
            yield from [one] * one.weight


class PriorityOrder(RoundRobin):
    """Round robin among those applications with work that have the highest priority."""

    def turn(self, waiting: Sequence[Queued]) -> Iterator[Queued]:
        """See `IssuePolicy.turn`."""
        highest = max((one.priority for one in waiting), default=0)
        yield from super().turn([one for one in waiting if one.priority == highest])


class Policy(StrEnum):
    """Names of the policies."""

    ROUND_ROBIN = "round-robin"
    WEIGHTED = "weighted"
    PRIORITY = "priority"


_POLICIES: dict[Policy, type[RoundRobin]] = {
    Policy.ROUND_ROBIN: RoundRobin,
    Policy.WEIGHTED: Weighted,
    Policy.PRIORITY: PriorityOrder,
}


def policy(name: Policy | str) -> IssuePolicy:
    """A policy by name. Raises `ValueError` for an unknown one."""
    return _POLICIES[Policy(name)]()
