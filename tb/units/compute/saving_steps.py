"""Steps of tests in which blocks are saved."""

from collections.abc import Sequence
from itertools import pairwise

from signalbox.tb.units.compute.launch import Launch
from signalbox.tb.units.compute.testbench import CONFIG, SAVE_AREA, ComputeTestbench

__all__ = ["FULL", "places_written", "state_writes", "stop_for", "turns"]

FULL = CONFIG.sms * (CONFIG.sm_warps // 3), 1, 1
"""Grid whose blocks, of three warps each, hold all hardware warps."""


async def turns(tb: ComputeTestbench, tasks: Sequence[Launch], most: int) -> list[int]:
    """Step until all tasks are over, before cycle `most`. Returns the cycles from each start of a
    context to the next, at least eight numbers."""
    starts: list[tuple[int, int]] = []
    while any(task.over is None for task in tasks):
        context, active = tb.get("control__context"), tb.get("control__active")
        if active and (not starts or starts[-1][0] != context):
            starts.append((context, tb.cycle))
        await tb.step()
        assert tb.cycle < most, starts
    lengths = [after - before for (_, before), (_, after) in pairwise(starts)]
    assert len(lengths) >= 8
    print(f"turns of {min(lengths)} … {max(lengths)} cycles")
    return lengths


async def stop_for(tb: ComputeTestbench, urgent: Launch, full: Launch) -> None:
    """Launch a long task that holds all hardware warps, then an urgent one, until that is over: it
    has blocks of the first one stopped."""
    tb.launch(full)
    await tb.until(lambda: not tb.waiting, "launch answered")
    await tb.steps(2000)
    tb.launch(urgent)
    await tb.until(lambda: urgent.over is not None, "urgent task over")
    assert state_writes(tb) and full.over is None


def state_writes(tb: ComputeTestbench) -> int:
    """Number of writes of states so far."""
    return sum(burst.space[1] for port in tb.sm_writes for burst in port.bursts)


def places_written(tb: ComputeTestbench, since: int) -> set[int]:
    """Save places whose writes began in cycle `since` or later."""
    return {
        (burst.va - SAVE_AREA) // CONFIG.place_bytes
        for port in tb.sm_writes
        for burst in port.bursts
        if burst.space[1] and burst.cycle >= since
    }
