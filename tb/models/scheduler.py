"""Floor, slices and choice of the channel to serve, from the scheduling rules of `hw/README.md`.

Cycle by cycle: `show` says what a cycle shows, `step` goes on to the next. A slice is the last
cycle that belongs to it; nothing is counted down.
"""

import math
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["PATIENCE", "Inputs", "Outputs", "SchedulerModel"]

PATIENCE = 127
"""Cycles that a channel with a reserved engine may stay longer (rule 4)."""

STAMPS = 1 << 12
"""Arrival stamps are compared modulo this."""


@dataclass(frozen=True)
class Inputs:
    """One cycle, as sets of channels where there is a bit per channel.

    served : the channel that is being served, if one is.
    take : the target is going to be served, from the next cycle on.
    slice : of the channel that was taken in the cycle before.
    """

    ready: frozenset[int]
    copying: frozenset[int]
    keeping: frozenset[int]
    wanting: frozenset[int]
    stamps: Sequence[int]
    served: int | None
    take: bool = False
    slice: int | None = None
    give_up: bool = False
    reserves: bool = False
    launches: bool = False


@dataclass(frozen=True)
class Outputs:
    """What one cycle shows; None: no channel. `stay` is None where it means nothing, since nobody
    was served in the cycle before."""

    target: int | None
    candidate: int | None
    leave: bool
    stay: bool | None
    spent: bool
    floor: int | None


class SchedulerModel:
    """One scheduler.

    Members
    -------
    now : cycles so far.
    floor : who has the floor.
    decided : how often each rule decided something, by name.
    """

    def __init__(self, channels: int) -> None:
        self.now = 0
        self.floor: int | None = None
        self.decided: Counter[str] = Counter()
        self._length = 0
        self._last: float = math.inf
        self._renewed_at = -1
        self._guest_last: float = math.inf
        self._preferred = False
        self._leave = False
        self._stay: bool | None = None
        self._waited = 0
        self._rivalled = False
        # Above 16 channels the oldest is known a cycle later.
        self._oldest: deque[int | None] = deque([None] * (1 if channels <= 16 else 2))

    def show(self, now: Inputs) -> Outputs:
        """What the cycle shows. `take` makes no difference."""
        spent = self._holder_served(now) and self._over() and self._copies(now) and self._rivalled
        return Outputs(
            self._target(now), self._oldest[0], self._leave, self._stay, spent, self.floor
        )

    def step(self, now: Inputs) -> None:
        """Go on to the next cycle."""
        rivals, chosen = self._rivals(now), self._chosen(now)
        served, holder_served = now.served, self._holder_served(now)
        leave = served is not None and self._must_leave(now, chosen is not None)
        stay = None if served is None else self._may_stay(now, served)
        preferred = self._goes_on(now) and not holder_served
        candidates = rivals - {served}
        rivalled = bool(rivals | (now.wanting - {self.floor}))
        if served is None:
            self._waited = 0
        elif self._leave and self._stay:
            self._waited += 1
        self._go_on(now, bool(rivals))
        self._leave, self._stay, self._preferred = leave, stay, preferred
        self._rivalled = rivalled
        self._oldest.popleft()
        self._oldest.append(_oldest(candidates, now.stamps))
        self.now += 1

    # -- rules 3 to 5: who is next -----------------------------------------------------------------

    def _rivals(self, now: Inputs) -> frozenset[int]:
        return now.ready - {self.floor}

    def _chosen(self, now: Inputs) -> int | None:
        """Who was the oldest and still wants the pipeline, and has not got the floor nor is served
        meanwhile."""
        oldest = self._oldest[0]
        return oldest if oldest in self._rivals(now) - {now.served} else None

    def _goes_on(self, now: Inputs) -> bool:
        """The holder can proceed, and need not make room for another."""
        return self.floor in now.ready and not (self._over() and self._rivals(now))

    def _target(self, now: Inputs) -> int | None:
        if self._goes_on(now):
            return self.floor if self._preferred else None
        return None if self._preferred else self._chosen(now)

    def _over(self) -> bool:
        """The slice of the floor's holder is over."""
        return self.now > self._last

    def _copies(self, now: Inputs) -> bool:
        """The floor's holder has a copy under way."""
        return self.floor in now.copying

    def _holder_served(self, now: Inputs) -> bool:
        return now.served is not None and now.served == self.floor

    # -- rules 4 and 5: letting go -----------------------------------------------------------------

    def _must_leave(self, now: Inputs, other: bool) -> bool:
        """Whether the served channel has to let go in the next cycle."""
        if self._holder_served(now):
            # It is known in a slice's last cycle, but of a renewed one not in its first.
            ends = self.now >= self._last and self.now != self._renewed_at
            return self._because("holder's slice", ends and other and not self._copies(now))
        back = self._because("holder is back", self.floor in now.ready and not self._over())
        moves = self._because(
            "floor is free", self.floor is not None and self._over() and not self._copies(now)
        )
        ends = self._because("guest's slice", self.now >= self._guest_last and other)
        return back or moves or ends

    def _may_stay(self, now: Inputs, served: int) -> bool:
        reserved = (served in now.keeping and not now.launches) or now.reserves
        patient = self._waited < PATIENCE - 1
        self._because("patience is over", reserved and not patient)
        return reserved and patient

    def _because(self, rule: str, so: bool) -> bool:
        self.decided[rule] += so
        return so

    # -- floor and slices --------------------------------------------------------------------------

    def _go_on(self, now: Inputs, rivalled: bool) -> None:
        """Floor and slices of the next cycle."""
        alone = self._holder_served(now) and not rivalled and not self._copies(now)
        if now.take:
            self._take(now)
        elif now.served is None and not (self.floor in now.ready or self._copies(now)):
            self.floor = None
        if now.slice is not None:
            length = max(1, now.slice)
            self._guest_last = self.now + length
            if math.isinf(self._last):
                self._length, self._last = length, self.now + length
        if now.give_up and self._holder_served(now):
            self._last = min(self._last, self.now)
        elif now.give_up:
            self._guest_last = min(self._guest_last, self.now)
        elif self._because("slice anew", alone and self._over()):
            self._last, self._renewed_at = self.now + self._length, self.now + 1

    def _take(self, now: Inputs) -> None:
        """The target gets the pipeline, and a guest's slice. A fresh slice begins, unless a copy of
        the floor's holder runs or it goes on within its slice; another gets the floor with it."""
        target = self._target(now)
        self._guest_last = math.inf
        if self._copies(now) or (target == self.floor and not self._over()):
            self._because("guest", target != self.floor)
            return
        self._because("holder again", target == self.floor)
        self.floor, self._last = target, math.inf


def _oldest(channels: frozenset[int], stamps: Sequence[int]) -> int | None:
    """Whose stamp is the oldest; of equal ones the lowest channel. They lie within half a turn."""
    if not channels:
        return None
    middle = stamps[min(channels)] + STAMPS // 2
    return min(channels, key=lambda channel: ((stamps[channel] - middle) % STAMPS, channel))
