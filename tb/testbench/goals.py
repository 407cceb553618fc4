"""Random tests that run until they have covered enough."""

__all__ = ["Rounds"]


class Rounds:
    """Loop control of a random test: a minimum number of rounds, then more until enough is covered.

        rounds = Rounds(150)
        while rounds.more(hits > 200, hits):
            ...

    Attributes
    ----------
    number : number of the current round, from 0.
    """

    def __init__(self, least: int, most: int = 0) -> None:
        """`least` : minimum number of rounds. `most` : number of rounds after which the test fails
        if it has not covered enough; default: forty times `least`."""
        self.number = -1
        self._least, self._most = least, most or 40 * least

    def more(self, enough: bool, met: object) -> bool:
        """Whether to run another round.

        Parameters
        ----------
        enough : whether enough is covered.
        met : what was covered so far, for the error message.

        Raises `AssertionError` with `met` after `most` rounds without enough coverage: then the
        stimulus is wrong, regardless of the seed.
        """
        self.number += 1
        if self.number >= self._least and enough:
            return False
        assert self.number < self._most, f"met too little in {self._most} rounds: {met}"
        return True
