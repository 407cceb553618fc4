"""Timers of parked channels, from the contract of `RetryTimers`.

The hardware may notice an expiry late. For each channel the model therefore tells whether the timer
has expired, has not expired, or may have expired.
"""

from dataclasses import dataclass

__all__ = ["CYCLE_BITS", "UNIT_BITS", "Arm", "Timer", "TimersModel"]

CYCLE_BITS, UNIT_BITS = 24, 32
"""Number of bits in which times in cycles, and times in timeout units, are compared. `due` lies
less than half of the range ahead."""


@dataclass(frozen=True)
class Arm:
    """The channel's timer expires at `due`. `units` : `due` is in timeout units, otherwise in
    cycles."""

    channel: int
    units: bool
    due: int


@dataclass
class Timer:
    """A running timer.

    Members
    -------
    since : cycle in which the timer was armed.
    passed : first cycle at or after the `due` time; None before it.
    """

    arm: Arm
    since: int
    passed: int | None = None


class TimersModel:
    """All timers.

    Members
    -------
    now : number of cycles so far.
    timers : running or expired, by channel.
    """

    def __init__(self, channels: int) -> None:
        self.now = 0
        self.timers: dict[int, Timer] = {}
        self._late = channels + 3
        self._channels = channels
        self._expired: set[int] = set()

    def show(self, cycles: int, units: int) -> tuple[bool | None, ...]:
        """Whether each channel's timer has expired; None if it may have. `cycles`, `units` :
        present time."""
        for timer in self.timers.values():
            if timer.passed is None and _passed(timer.arm, cycles, units):
                timer.passed = self.now
        return tuple(map(self._state, range(self._channels)))

    def step(self, shown: frozenset[int], arm: Arm | None, disarm: int | None) -> None:
        """Advance to the next cycle. `shown` : channels with a timer that the hardware shows as
        expired. `disarm` : channel with a timer that is stopped."""
        self._expired |= shown
        if disarm is not None:
            self._stop(disarm)
        if arm is not None:
            self._stop(arm.channel)
            self.timers[arm.channel] = Timer(arm, self.now)
        self.now += 1

    def _stop(self, channel: int) -> None:
        self.timers.pop(channel, None)
        self._expired.discard(channel)

    def _state(self, channel: int) -> bool | None:
        timer = self.timers.get(channel)
        if timer is None or timer.passed is None:
            return False
        # An expiry is seen up to `_late` cycles late, counted from `_late` after `arm` at the
        # earliest.
        latest = max(timer.passed, timer.since + self._late) + self._late
        return True if channel in self._expired or self.now >= latest else None


def _passed(arm: Arm, cycles: int, units: int) -> bool:
    """Whether the `due` time of `arm` has come. Times wrap."""
    time, bits = (units, UNIT_BITS) if arm.units else (cycles, CYCLE_BITS)
    return (time - arm.due) % (1 << bits) < 1 << bits - 1
