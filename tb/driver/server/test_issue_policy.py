"""Order of service of the applications' queues (SHARE-5, SHARE-6)."""

import random
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise

import pytest

from signalbox.driver.server.issue_policy import Policy, policy
from signalbox.tb.simulation.runner import choose_seed


@dataclass
class Queue:
    """An application with `left` pointers."""

    number: int
    weight: int = 1
    priority: int = 0
    left: int = 0


def turns(name: str, queues: list[Queue], count: int) -> list[list[int]]:
    """Numbers of the queues served in each of `count` turns."""
    order, found = policy(name), []
    for _ in range(count):
        served = []
        for queue in order.turn([one for one in queues if one.left]):
            assert isinstance(queue, Queue)
            if queue.left:
                queue.left -= 1
                served.append(queue.number)
        found.append(served)
    return found


def test_one_pointer_of_each():
    queues = [Queue(number, left=3) for number in (2, 5, 7)]
    assert turns("round-robin", queues, 4) == [[2, 5, 7], [5, 7, 2], [7, 2, 5], []]


def test_empty_queues_are_passed_over():
    queues = [Queue(0, left=1), Queue(1), Queue(2, left=3)]
    assert turns("round-robin", queues, 3) == [[0, 2], [2], [2]]


@pytest.mark.parametrize("number", range(20))
def test_random_queues_are_fair(number: int):
    """Whatever arrives: each turn serves every non-empty queue once, and nothing is lost."""

    rng = random.Random((seed := choose_seed()) + number)
    print(f"SIGNALBOX_SEED={seed}")
    order, served = policy(Policy.ROUND_ROBIN), Counter()
    queues = [Queue(index) for index in range(rng.randint(1, 48))]
    pushed: Counter[int] = Counter()
    for _ in range(200):
        for queue in rng.sample(queues, rng.randint(0, len(queues))):
            queue.left += (more := rng.randint(0, 3))
            pushed[queue.number] += more
        waiting = [queue for queue in queues if queue.left]
        this = [one.number for one in order.turn(waiting)]
        assert sorted(this) == [queue.number for queue in waiting]
        for queue in waiting:
            queue.left -= 1
        served.update(this)
    for queue in queues:
        assert served[queue.number] + queue.left == pushed[queue.number]


def test_first_of_a_turn_changes():
    """With all queues full, each is first in turn."""
    queues = [Queue(number, left=100) for number in range(5)]
    firsts = [turn[0] for turn in turns("round-robin", queues, 10)]
    assert all((after - before) % 5 == 1 for before, after in pairwise(firsts))


def test_weights():
    queues = [Queue(0, weight=3, left=9), Queue(1, left=9), Queue(2, weight=2, left=9)]
    assert turns("weighted", queues, 2) == [[0, 0, 0, 1, 2, 2], [1, 2, 2, 0, 0, 0]]


def test_priorities():
    """Queues of lower priority wait until the others are empty."""
    queues = [Queue(0, left=2), Queue(1, priority=2, left=2), Queue(2, priority=2, left=1)]
    assert turns("priority", queues, 4) == [[1, 2], [1], [0], [0]]


def test_unknown_policy():
    with pytest.raises(ValueError, match="'first'"):
        policy("first")
