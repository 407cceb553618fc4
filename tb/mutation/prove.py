"""One proof of a design with the mutant that is alive: python -m signalbox.tb.mutation.prove NAME.

Exit status 1 unless it passes, as with `make prove`: also when induction fails without a
counterexample.
"""

import sys

from signalbox.tb.mutation import plugin  # before anything of hw
from signalbox.tb.proofs.run import check, proofs

__all__ = ["main"]


def main(name: str) -> int:
    assert plugin
    return int(not check(proofs()[name]).passed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
