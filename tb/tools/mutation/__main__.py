"""Try mutants and report: see the package."""

import argparse
import os
import sys
from collections.abc import Sequence

from signalbox.hw.options import program
from signalbox.tb.simulation.runner import choose_seed
from signalbox.tb.tools.mutation.fates import LEFT
from signalbox.tb.tools.mutation.run import FOLDER, find, report, run, sample, share


def _share(text: str) -> tuple[int, int]:
    """Number of a share, from 1, and number of shares, from "K/N"."""
    number, _, count = text.partition("/")
    if not (number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count)):
        raise argparse.ArgumentTypeError(f"{text!r} is not a share K/N with 1 <= K <= N")
    return int(number), int(count)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command. Returns 0 if every mutant was killed or is explained."""
    parser = argparse.ArgumentParser(
        prog=program("signalbox.tb.tools.mutation"), description=__doc__
    )
    parser.add_argument("paths", nargs="+", metavar="PATH[:LINE]")
    parser.add_argument("--sample", type=int, default=0, metavar="N", help="so many of them only")
    parser.add_argument(
        "--share", type=_share, default=(1, 1), metavar="K/N", help="the K-th of N shares of these"
    )
    parser.add_argument("--seed", type=int, help="of the sample and of the tests")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, metavar="N")
    parser.add_argument("--proofs", action="store_true", help="survivors meet the proofs")
    parser.add_argument("--list", action="store_true", help="print the mutants, run nothing")
    options = parser.parse_args(arguments)
    seed = choose_seed(options.seed)
    try:
        found = find(options.paths)
    except ValueError as error:
        parser.error(str(error))
    chosen = sample(found, options.sample, seed) if options.sample else found
    chosen = share(chosen, *options.share)
    if options.list:
        print(*chosen, sep="\n")
        return 0
    print(f"{len(chosen)} of {len(found)} mutants, seed {seed}")
    if not chosen:
        return 0
    results = run(chosen, seed=seed, jobs=options.jobs, proofs=options.proofs)
    text = report(results, seed)
    (FOLDER / "report.txt").write_text(text + "\n")
    print(text)
    return int(any(one.fate in LEFT for one in results))


if __name__ == "__main__":
    sys.exit(main())
