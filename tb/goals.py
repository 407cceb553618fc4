"""Random tests that go on until they have met what they are there for."""

__all__ = ["Rounds"]


class Rounds:
    """Rounds of a random test: at least so many, and more until it has met enough.

        rounds = Rounds(150)
        while rounds.more(hits > 200, hits):
            ...

    Attributes
    ----------
    number : of the round under way, from 0.
    """

    def __init__(self, least: int, most: int = 0) -> None:
        """`most` : after so many rounds without enough the test fails; else ten times `least`."""
        self.number = -1
        self._least, self._most = least, most or 10 * least

    def more(self, enough: bool, met: object) -> bool:
        """Whether there is another round. `met` : what `enough` was decided from.

        Raises `AssertionError` with `met` when the most rounds were not enough: the stimulus is
        wrong, whatever the seed.
        """
        self.number += 1
        if self.number >= self._least and enough:
            return False
        assert self.number < self._most, f"met too little in {self._most} rounds: {met}"
        return True
