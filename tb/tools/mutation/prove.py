"""One proof with the active mutant: python -m signalbox.tb.tools.mutation.prove NAME.

The exit status is 1 unless the proof passes, as with `make prove`; also if induction fails without
a counterexample. It is `fates.NOT_BUILT` if the design could not be built.
"""

import sys
import traceback

from signalbox.tb.proofs.run import check, proofs
from signalbox.tb.tools.mutation import fates, plugin  # before anything of hw

__all__ = ["main"]


def main(name: str) -> int:
    assert plugin
    try:
        return int(not check(proofs()[name]).passed)
    except Exception as error:
        traceback.print_exc()
        frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
        fate = fates.of_frames(frame.f_code for frame in frames)
        return fates.NOT_BUILT if fate == "not built" else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
