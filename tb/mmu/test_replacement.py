"""The model of tree pseudo-LRU, by hand (ASID-11)."""

from signalbox.tb.models.replacement import PseudoLru


def test_by_hand() -> None:
    """Four ways: of the half that was used longer ago, the place that was used longer ago."""
    model = PseudoLru(4)
    assert [model.access(key) for key in "ABCDABCD"] == [False] * 4 + [True] * 4
    assert model.access("A")
    # The upper half is older, and in it C; true LRU would take B.
    assert not model.access("E")
    assert [model.access(key) for key in "ABDE"] == [True] * 4
    # The lower half is older, and in it A.
    assert not model.access("C")
    assert [model.access(key) for key in "BDE"] == [True] * 3
    assert not model.access("A")


def test_empty_places_go_first() -> None:
    """A place that was emptied is taken before any other is replaced."""
    model = PseudoLru(4)
    for key in "ABCD":
        model.access(key)
    model.remove("D")
    assert not model.access("E")
    assert [model.access(key) for key in "ABCE"] == [True] * 4


def test_sets_are_apart() -> None:
    """What one set is full of replaces nothing in another."""
    model = PseudoLru(2, sets=2)
    model.access("A", 1)
    assert not any(model.access(key, 0) for key in range(8))
    assert model.access("A", 1) and not model.access("A", 0)
