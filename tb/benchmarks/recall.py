"""An urgent block that finds one SM held by long blocks, and the other one busy with short ones:
measurements, bounds and table."""

from collections.abc import Mapping
from statistics import median

from signalbox.tb.benchmarks.compute_machine import PAIR
from signalbox.tb.benchmarks.grids import Grid
from signalbox.tb.benchmarks.urgency import URGENT, URGENT_WARPS
from signalbox.tb.models.timing import Timing

__all__ = [
    "BOUND",
    "CLAIM",
    "LAST",
    "LONG",
    "LONG_SM",
    "MOVE",
    "SHORT",
    "SHORT_SM",
    "START",
    "STEP",
    "TRIES",
    "URGENT_BLOCK",
    "key",
    "keys",
    "table",
]

TRIES, STEP = 20, 37
"""Number of tries; in each, the urgent kernel arrives this number of cycles later than in the one
before."""

LONG_SM, SHORT_SM = range(PAIR.sms)

LONG = Grid(blocks=2, warps=PAIR.sm_warps // 2, timing=Timing(cycles=40_000))
"""Kernel that takes all hardware warps of an SM, but leaves block slots free."""

SHORT = Grid(blocks=400, warps=2, timing=Timing(cycles=172, spread=255))
"""Kernel that takes all hardware warps and block slots of an SM, again and again."""

URGENT_BLOCK = Grid(blocks=1, warps=URGENT_WARPS, timing=URGENT)

LONGEST = SHORT.timing.cycles + SHORT.timing.spread
"""Maximum cycles of a short warp."""

# Maximum cycles

CLAIM = 10
"""From a block's arrival at an SM until all SMs keep room for it."""

LAST = 50
"""From a block's arrival at an SM until the last lower warp starts: the start of a lower warp may
have been decided before the claim, and then waits until the core has begun its block."""

MOVE = 4 + 22
"""From the end of the first short block after the claim until the urgent block is sent to the SM of
that block. 4: slot and warps are reported as free; 22: the move (`placement.prompt_recall`)."""

START = 150
"""From there until the first warp starts: the core reads the description of the kernel, after a
page walk."""

BOUND = LAST + LONGEST + MOVE + START
"""From the arrival until the first warp starts. After `LAST` cycles no lower warp starts, so
`LONGEST` cycles later all of an SM is free."""

_MEASURES = {
    "first warp": "cycles from its launch to its first warp",
    "lower warps": "lower warps started meanwhile",
}

_SENT = "sent to SM"

_TITLE = f"""\
An urgent kernel of one block of {URGENT_BLOCK.warps} warps on two SMs without a free warp.
SM {LONG_SM} has free block slots, but its {LONG.blocks} blocks of {LONG.warps} warps last
{LONG.timing.cycles} cycles. SM {SHORT_SM} runs blocks of {SHORT.warps} warps, at most {LONGEST}
cycles each; when one ends, another takes its slot. {TRIES} tries, each after a reset, with the
launch {STEP} cycles later than in the one before. Tested for each try: once the block has been sent
to an SM, its first warp starts within {BOUND} cycles, and no lower warp starts after {LAST} of
them; if it moves, it does so at most {MOVE} cycles after a short block has ended."""


def key(what: str, turn: int) -> str:
    """Name of one measurement."""
    return f"urgent block beside long ones, {what}, try {turn}"


def keys() -> list[str]:
    """Names of all measurements."""
    return [key(what, turn) for what in (*_MEASURES, _SENT) for turn in range(TRIES)]


def table(values: Mapping[str, int]) -> str:
    """Table of all measurements in Markdown."""
    lines = [_TITLE, "", "| | least | median | most |", "|---|--:|--:|--:|"]
    for what, title in _MEASURES.items():
        found = [values[key(what, turn)] for turn in range(TRIES)]
        lines.append(f"| {title} | {min(found)} | {median(found):.0f} | {max(found)} |")
    tied = [values[key(_SENT, turn)] for turn in range(TRIES)].count(LONG_SM)
    end = f"In {tied} of the tries the block was sent to SM {LONG_SM} first, and moved."
    return "\n".join([*lines, "", end])
