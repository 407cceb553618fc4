"""Rounds of random tests."""

import pytest

from signalbox.tb.testbench.goals import Rounds


@pytest.mark.parametrize(("needed", "done"), [(0, 3), (3, 3), (7, 7), (120, 120)])
def test_rounds(needed: int, done: int):
    """There are at least three rounds, as many as needed, and at most 120."""
    met: list[int] = []
    rounds = Rounds(3)
    while rounds.more(len(met) >= needed, met):
        met.append(rounds.number)
    assert met == [*range(done)]


def test_never_enough():
    rounds = Rounds(2, most=4)
    with pytest.raises(AssertionError, match="met too little in 4 rounds: nothing"):
        while rounds.more(False, "nothing"):
            pass
    assert rounds.number == 4
