"""One proof of a design with the mutant that is alive: python -m tb.mutation.prove NAME.

Exit status 1 when it is refuted; a proof that comes to no end, or cannot be made, refutes nothing.
"""

import sys

from tb.mutation import plugin  # before anything of hw
from tb.proofs.run import check, proofs

__all__ = ["main"]


def main(name: str) -> int:
    assert plugin
    return int(check(proofs()[name]).refuted)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
