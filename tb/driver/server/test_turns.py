"""Every order of service, in every state of a few queues (SHARE-5, SHARE-6)."""

from collections import Counter
from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import dataclass
from itertools import pairwise, product

import pytest

from signalbox.driver.server.issue_policy import IssuePolicy, Policy, policy

QUEUES, ROOM = 3, 4
"""Queues, and most pointers of each: more than a turn takes. A policy does not see their number."""

ARRIVALS = (0, 1, ROOM)
"""Pointers that come to a queue between two turns."""


@dataclass
class Queue:
    """An application's queue."""

    number: int
    weight: int
    priority: int


@dataclass(frozen=True)
class State:
    """State between two turns.

    Members
    -------
    inner : state of the policy.
    left : pointers on each queue.
    passed : turns since each queue was first, or since it was empty.
    """

    inner: tuple[tuple[str, object], ...]
    left: tuple[int, ...]
    passed: tuple[int, ...]


Check = Callable[[list[Queue], list[int]], None]
"""Checks the turn over queues with work: numbers in the order in which they are served."""


def explore(order: IssuePolicy, queues: list[Queue], check: Check) -> int:
    """Visit every state that any arrivals lead to. Returns the most turns that passed without a
    queue with work being the first.

    In each, besides `check`, a turn serves only queues with work, and of the queues that compete
    with it, each is first within as many turns as there are queues, so none can starve.
    """
    none = (0,) * QUEUES
    todo = [State((*vars(order).items(),), none, none)]
    known = {*todo}
    while todo:
        for after in successors(order, todo.pop(), queues, check):
            assert max(after.passed) < QUEUES, after
            if after not in known:
                known.add(after)
                todo.append(after)
    return max(max(state.passed) for state in known)


def successors(
    order: IssuePolicy, state: State, queues: list[Queue], check: Check
) -> Iterator[State]:
    """States after pointers have come to any of the queues, and a turn."""
    for more in product(ARRIVALS, repeat=QUEUES):
        left = [min(ROOM, had + new) for had, new in zip(state.left, more, strict=True)]
        this = copy(order)
        vars(this).update(state.inner)
        waiting = [queue for queue in queues if left[queue.number]]
        served = [one.number for one in this.turn(waiting)]
        check(waiting, served)
        passed = [0] * QUEUES
        for number in {*served} - {*served[:1]}:
            passed[number] = state.passed[number] + 1
        for number in served:
            left[number] = max(0, left[number] - 1)
        for number in range(QUEUES):
            passed[number] *= left[number] > 0
        yield State((*vars(this).items(),), (*left,), (*passed,))


def once_each(waiting: list[Queue], served: list[int]) -> None:
    """Each queue with work is served once."""
    assert sorted(served) == [queue.number for queue in waiting]


def by_weight(waiting: list[Queue], served: list[int]) -> None:
    """Each queue with work is served as often as its weight says, without a break."""
    assert Counter(served) == {queue.number: queue.weight for queue in waiting}
    breaks = sum(one != other for one, other in pairwise(served))
    assert breaks == max(0, len(waiting) - 1)


def by_priority(waiting: list[Queue], served: list[int]) -> None:
    """Each queue of the highest priority with work is served once, and no other."""
    highest = max((queue.priority for queue in waiting), default=0)
    assert sorted(served) == [one.number for one in waiting if one.priority == highest]


SAME = [(1, 1, 1)]
WEIGHTS = [*product((1, 3), repeat=QUEUES)]
PRIORITIES = [*product(range(2), repeat=QUEUES)]


@pytest.mark.parametrize(
    ("name", "check", "weights", "priorities"),
    [
        (Policy.ROUND_ROBIN, once_each, SAME, SAME),
        (Policy.WEIGHTED, by_weight, WEIGHTS, SAME),
        (Policy.PRIORITY, by_priority, SAME, PRIORITIES),
    ],
    ids=[*Policy],
)
def test_every_state(
    name: Policy, check: Check, weights: list[tuple[int, ...]], priorities: list[tuple[int, ...]]
):
    """All states, with small and large weights, and all orders of priorities."""
    for given in product(weights, priorities):
        queues = [Queue(number, *both) for number, both in enumerate(zip(*given, strict=True))]
        most = explore(policy(name), queues, check)
        assert most == max(Counter(given[1]).values()) - 1
