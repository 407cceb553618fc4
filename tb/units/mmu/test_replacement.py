"""The model of tree pseudo-LRU, against results worked out by hand (ASID-11)."""

from signalbox.tb.models.replacement import PseudoLru


def test_by_hand() -> None:
    """With four ways, the less recently used place of the less recently used half is replaced."""
    model = PseudoLru(4)
    assert [model.access(key) for key in "ABCDABCD"] == [False] * 4 + [True] * 4
    assert model.access("A")
    # The upper half is older, and C is the older one in it; true LRU would replace B.
    assert not model.access("E")
    assert [model.access(key) for key in "ABDE"] == [True] * 4
    # The lower half is older, and A is the older one in it.
    assert not model.access("C")
    assert [model.access(key) for key in "BDE"] == [True] * 3
    assert not model.access("A")


def test_empty_places_go_first() -> None:
    """An emptied place is used before any other is replaced."""
    model = PseudoLru(4)
    for key in "ABCD":
        model.access(key)
    model.remove("D")
    assert not model.access("E")
    assert [model.access(key) for key in "ABCE"] == [True] * 4


def test_sets_are_apart() -> None:
    """Accesses to a full set replace nothing in another set."""
    model = PseudoLru(2, sets=2)
    model.access("A", 1)
    assert not any(model.access(key, 0) for key in range(8))
    assert model.access("A", 1) and not model.access("A", 0)
