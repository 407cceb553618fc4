"""One proof with the active mutant: python -m signalbox.tb.tools.mutation.prove NAME.

The exit status is 1 unless the proof passes, as with `make prove`; also if induction fails without
a counterexample.
"""

import sys

from signalbox.tb.proofs.run import check, proofs
from signalbox.tb.tools.mutation import plugin  # before anything of hw

__all__ = ["main"]


def main(name: str) -> int:
    assert plugin
    return int(not check(proofs()[name]).passed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
