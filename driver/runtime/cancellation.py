"""Cancelling tasks: they are killed, and their channels continue after them (PREEMPT-7)."""

from collections.abc import Awaitable, Callable, Sequence

from signalbox.driver.channel.channel import POLL_CYCLES
from signalbox.driver.channel.command_channel import CommandChannel
from signalbox.driver.compute.tasks import Task
from signalbox.driver.faults.channel_error import ChannelTimeout

__all__ = ["cancel", "check_all"]


async def cancel(
    tasks: Sequence[Task],
    channels: Sequence[CommandChannel],
    kill: Callable[[Task], Awaitable[None]],
    patience: int,
) -> None:
    """Kill tasks, and return once all are over. A task whose launch is still in its channel is
    killed once it is launched: it may run for some cycles, and a short task may complete. A
    completed task is killed, too, until its record is freed, because it may have launched itself
    again.

    Parameters
    ----------
    channels : channels of the tasks.
    kill : kills a task that is in progress; does nothing for others.
    patience : cycles without an executed method, plus the longest turn of a channel, after which a
        launch is considered out of reach.

    Raises `ChannelError` if one of `channels` halts for another reason; `ChannelTimeout` after
    `patience`, for example because a launch waits for a semaphore. The remaining tasks are then not
    cancelled.
    """
    left = [task for task in tasks if not task.ended]
    for task in left:
        task.keep()
        task.cancelled = True
    try:
        await _kill_all(left, channels, kill, patience)
    finally:
        for task in left:
            task.give()
            task.cancelled = task.over or task.kept  # by another call


async def _kill_all(
    left: Sequence[Task],
    channels: Sequence[CommandChannel],
    kill: Callable[[Task], Awaitable[None]],
    patience: int,
) -> None:
    executed, since = [-1], 0
    while left:
        for task in left:
            await kill(task)
            # After every kill, as a channel records only two errors.
            await check_all(channels)
        left = [task for task in left if not task.over]
        for task in left:
            await task.fence_behind()
        before, executed = executed, [await channel.executed() for channel in channels]
        now = channels[0].machine.now()
        since = now if executed != before else since
        turn = max(channel.turn_cycles for channel in channels)
        if left and now - since >= patience + turn:
            await _give_up(channels, left, now - since)
        if left:
            await channels[0].machine.wait_cycles(POLL_CYCLES)


async def check_all(channels: Sequence[CommandChannel]) -> None:
    """Raise the `ChannelError` that halts one of the channels, if any."""
    for channel in channels:
        failure = await channel.check()
        if failure is not None:
            raise failure


async def _give_up(channels: Sequence[CommandChannel], left: Sequence[Task], waited: int) -> None:
    """Raise `ChannelTimeout` for the first channel with a task left."""
    channel = next(one for one in channels if any(task in left for task in one.tasks))
    raise ChannelTimeout(channel.index, waited, await channel.waits_for())
