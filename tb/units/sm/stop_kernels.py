"""Kernels for tests of an SM that stops blocks: programs of the supplied core, or tasks of the
timing core."""

from copy import deepcopy
from dataclasses import replace
from random import Random

from signalbox.tb.models.isa import Launch, Memory, run_block
from signalbox.tb.models.timing import Timing
from signalbox.tb.units.sm import timing_launches
from signalbox.tb.units.sm.cocotb_control import make
from signalbox.tb.units.sm.core_testbench import CONFIG
from signalbox.tb.units.sm.programs import random_launch

__all__ = ["computed", "endless", "some_kernel", "with_local_memory"]


def some_kernel(numbers: Random, length: int) -> Launch:
    """A random kernel of three blocks, each of which fits into the SM."""
    while True:
        launch = _some_timing(numbers) if CONFIG.timing_core else _some_program(numbers, length)
        if _fits(launch):
            return launch


def _some_program(numbers: Random, length: int) -> Launch:
    threads = numbers.choice(((3, 5, 2), (40, 1, 1), (7, 2, 5), (32, 2, 1)))
    return random_launch(numbers, threads, 3, length)


def _some_timing(numbers: Random) -> Launch:
    return timing_launches.random_launch(numbers, 3, numbers.randint(1, CONFIG.sm_warps))


def _fits(launch: Launch) -> bool:
    units = -(-launch.registers // 4)
    return (
        launch.warps <= CONFIG.sm_warps
        and launch.warps * units <= CONFIG.register_units
        and launch.shared <= CONFIG.sm_shared
    )


def computed(launch: Launch) -> Memory:
    """Memory after all blocks of an undisturbed run."""
    if CONFIG.timing_core:
        return timing_launches.computed(launch)
    model = deepcopy(launch)
    for x in range(launch.grid[0]):
        assert not any(warp.failure for warp in run_block(model, (x, 0, 0)).warps)
    return model.memory


def endless(warps: int, shared: int) -> Launch:
    """A kernel whose warps never end."""
    if CONFIG.timing_core:
        return timing_launches.launch(Timing(cycles=0xFFFF_0000), warps=warps, shared=shared)
    return make("top: bra top", warps=warps, shared=shared)


def with_local_memory(cycles: int) -> Launch:
    """A kernel of one warp that takes about `cycles` cycles and has local memory."""
    if CONFIG.timing_core:
        return replace(timing_launches.launch(Timing(cycles=cycles), warps=1, shared=0), local=32)
    return make(f"wait {cycles}\nexit", warps=1, shared=0, local=32)
