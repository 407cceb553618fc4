"""PTIMER, and its conversion to machine cycles."""

from collections.abc import Awaitable, Callable

__all__ = ["Clock"]


class Clock:
    """Reads PTIMER and converts its values to machine cycles.

    Parameters
    ----------
    time_ns : reads PTIMER, in ns.
    cycle_ns : ns per clock cycle.
    epoch : machine cycle at which PTIMER was 0.
    """

    def __init__(
        self, time_ns: Callable[[], Awaitable[int]], cycle_ns: int, epoch: int = 0
    ) -> None:
        self.time_ns, self.cycle_ns, self.epoch = time_ns, cycle_ns, epoch

    async def calibrate(self, now: Callable[[], int]) -> None:
        """Find the epoch to within one register access; `now` gives the machine cycle."""
        before = now()
        time = await self.time_ns()
        middle = (before + now()) // 2
        self.epoch = middle - time // self.cycle_ns

    def cycle_of(self, time_ns: int) -> int:
        """Machine cycle (as `Machine.now`) at a PTIMER value in ns, such as that of an event."""
        return time_ns // self.cycle_ns + self.epoch
