"""Words with a bit per number."""

from signalbox.tb.testbench.masks import mask, members


def test_masks() -> None:
    """A word and the set of its bits determine each other."""
    assert mask([3, 0, 3]) == 0b1001
    assert members(0b1001) == {0, 3}
    assert mask([]) == 0 and members(0) == set()
    assert all(mask(members(word)) == word for word in range(256))
