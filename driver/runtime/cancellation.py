"""Cancelling tasks: they are killed, and their channels continue behind them (PREEMPT-7)."""

from collections.abc import Awaitable, Callable, Sequence

from signalbox.driver.channel.channel import POLL_CYCLES, Channel
from signalbox.driver.compute.tasks import Task
from signalbox.driver.faults.channel_error import ChannelTimeout

__all__ = ["cancel"]

_PATIENCE_CYCLES = 100_000
"""Cycles without an executed method after which a launch is considered out of reach."""


async def cancel(
    tasks: Sequence[Task],
    channels: Sequence[Channel],
    kill: Callable[[Sequence[Task]], Awaitable[None]],
) -> None:
    """Kill tasks until all are over. A task whose launch is still in its channel is killed once it
    is launched, so it may run for some cycles before, and a short one may complete. One that has
    completed is killed, too, as long as its record is its own: it may have launched itself again.

    Parameters
    ----------
    channels : channels of the tasks.
    kill : kills those of the given tasks that are in progress.

    Raises `ChannelError` if one of `channels` halts for another reason, `ChannelTimeout` if one
    does not come to the launch of a task, for example because it waits for a semaphore.
    """
    for task in tasks:
        task.cancelled = True
    waited, seen = 0, [-1]
    left = [task for task in tasks if not task.ended]
    while left:
        await kill(left)
        for channel in channels:
            failure = await channel.check()
            if failure is not None:
                raise failure
        left = [task for task in tasks if not task.over]
        if not left:
            return
        executed = [await channel.executed() for channel in channels]
        waited = 0 if executed != seen else waited + POLL_CYCLES
        seen = executed
        if waited >= _PATIENCE_CYCLES:
            await _give_up(channels, left, waited)
        await channels[0].machine.wait_cycles(POLL_CYCLES)


async def _give_up(channels: Sequence[Channel], left: Sequence[Task], waited: int) -> None:
    """Raise `ChannelTimeout` for the first channel with a task left."""
    channel = next(one for one in channels if any(task in left for task in one.tasks))
    status = await channel.control.read_channel_fields(channel.index, "STATUS")
    raise ChannelTimeout(channel.index, waited, status["WAIT"])
