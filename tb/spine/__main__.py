"""`python -m tb.spine`: two applications' kernels on the RTL, and an urgent one among them."""

import argparse
import sys

from tb.runner import ROOT, SIMULATORS, choose_seed
from tb.sim.sizes import COMPUTE
from tb.sim.trace import WarpEnded, WarpStarted
from tb.spine.report import sm_lives, sms_table, task_lives, tasks_table
from tb.spine.run import simulate


def main() -> int:
    """Run the command; gives its exit status."""
    parser = argparse.ArgumentParser(prog="python -m tb.spine", description=__doc__)
    parser.add_argument("--simulator", choices=SIMULATORS, default=SIMULATORS[0])
    parser.add_argument("--seed", type=int, help="of the data; default: a fresh one")
    parser.add_argument("--waves", action="store_true", help="record a waveform (FST)")
    chosen = parser.parse_args()
    seed = choose_seed(chosen.seed)
    print(
        f"Two applications with an address space each, data of seed {seed}; a third one's urgent "
        f"kernel comes while all {COMPUTE.sms} SMs are busy.\nThe machine is built once: one to "
        "three minutes.",
        flush=True,
    )
    try:
        run = simulate(seed, chosen.simulator, waves=chosen.waves)
    except AssertionError as error:
        print(f"FAILED: {error}", file=sys.stderr)
        return 1
    except RuntimeError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    warps = [one.cycle for one in run.events if isinstance(one, WarpStarted | WarpEnded)]
    print("\nEvery result is what numpy says. Tasks; cycles since the first launch, and from each")
    print("launch on (steps: A room for a block, B for a warp, C none, but lower blocks there):\n")
    print(tasks_table(task_lives(run)))
    print("\nSMs, from the first warp to the end of the last:\n")
    print(sms_table(sm_lives(run.events, COMPUTE), max(warps) - min(warps), COMPUTE))
    print(f"\nTrace and log: {run.folder.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
