"""Kernels that only launch two other kernels, both at once or in turn (NEST-10).

Launch them with a single warp: every warp would launch the children again.
"""

from signalbox.driver.kernels.library import Kernel

__all__ = ["LAUNCH_BOTH", "LAUNCH_IN_TURN"]

_FIRST = """
    ldc    r2, [FIRST]
    ldc    r3, [FIRST + 4]
    launch r4, [r2]
    bany   r4, refused
"""

_SECOND = """
    ldc    r2, [SECOND]
    ldc    r3, [SECOND + 4]
    or     r4, r2, r3
    bnone  r4, wait                 # there is none
    launch r4, [r2]
    bany   r4, refused
wait:
    join   r5
    exit
refused:
    ldc    r2, [STATUS]
    ldc    r3, [STATUS + 4]
    stg    [r2], r4
    join   r5
    exit
"""

_PARAMETERS = {"FIRST": 8, "SECOND": 8, "STATUS": 8}

LAUNCH_BOTH = Kernel("launch both", _FIRST + _SECOND, _PARAMETERS)
"""Launches FIRST and SECOND, then waits for both. SECOND may be 0. If a launch is refused, its
answer is stored at STATUS, and no further kernel is launched."""

LAUNCH_IN_TURN = Kernel("launch in turn", _FIRST + "    join   r5\n" + _SECOND, _PARAMETERS)
"""As `LAUNCH_BOTH`, but launches SECOND when FIRST is complete."""
