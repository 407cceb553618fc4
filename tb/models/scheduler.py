"""Floor, slices and choice of the next channel, from the scheduling rules of `hw/README.md`.

The model is cycle-accurate: `show` returns the outputs of a cycle, `step` advances to the next. A
slice is represented by its last cycle, not by a counter.
"""

import math
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["PATIENCE", "Inputs", "Outputs", "SchedulerModel"]

PATIENCE = 127
"""Cycles that a channel with a reserved engine may stay longer (rule 4)."""

STAMPS = 1 << 12
"""Modulus of the comparison of arrival stamps."""


@dataclass(frozen=True)
class Inputs:
    """Inputs of one cycle; sets of channels where the hardware has one bit per channel.

    Members
    -------
    ready : channels that can proceed.
    copying, keeping, wanting : channels with a running copy; with a reservation; that wait only for
        an engine.
    stamps : arrival stamp of each channel.
    served : the channel being served, or None.
    eligible : channels that have a turn; None for all.
    take : the target is served from the next cycle on.
    slice : slice, in cycles, of the channel that was taken in the previous cycle.
    give_up : the served channel gives up the rest of its slice.
    reserves, launches : the served channel gets a reservation; its copy starts.
    """

    ready: frozenset[int]
    copying: frozenset[int]
    keeping: frozenset[int]
    wanting: frozenset[int]
    stamps: Sequence[int]
    served: int | None
    eligible: frozenset[int] | None = None
    take: bool = False
    slice: int | None = None
    give_up: bool = False
    reserves: bool = False
    launches: bool = False

    def may(self, channel: int | None) -> bool:
        """Whether the channel has a turn."""
        return channel is not None and (self.eligible is None or channel in self.eligible)

    @property
    def able(self) -> frozenset[int]:
        """Channels that can proceed, and have a turn."""
        return frozenset(filter(self.may, self.ready))


@dataclass(frozen=True)
class Outputs:
    """Outputs of one cycle; None for no channel. `stay` is None if it has no meaning, because no
    channel was served in the previous cycle."""

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
    now : number of cycles so far.
    floor : channel that holds the floor.
    decided : number of decisions by each rule.
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
        # Above 16 channels, the oldest is known one cycle later.
        self._oldest: deque[int | None] = deque([None] * (1 if channels <= 16 else 2))

    def show(self, now: Inputs) -> Outputs:
        """Outputs of the cycle. They do not depend on `take`."""
        copies = self.floor in now.copying
        spent = self._holder_served(now) and self._over() and copies and self._rivalled
        return Outputs(
            self._target(now), self._oldest[0], self._leave, self._stay, spent, self.floor
        )

    def step(self, now: Inputs) -> None:
        """Advance to the next cycle."""
        rivals, chosen = self._rivals(now), self._chosen(now)
        served, holder_served = now.served, self._holder_served(now)
        leave = served is not None and self._must_leave(now, chosen is not None)
        stay = None if served is None else self._may_stay(now, served)
        preferred = self._goes_on(now) and not holder_served
        candidates = rivals - {served}
        rivalled = bool(rivals) or any(map(now.may, now.wanting - {self.floor}))
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

    # -- rules 3 to 5: the next channel ------------------------------------------------------------

    def _rivals(self, now: Inputs) -> frozenset[int]:
        return now.able - {self.floor}

    def _chosen(self, now: Inputs) -> int | None:
        """The channel that was the oldest when the oldest was determined, a cycle or two ago. None
        if by now it cannot proceed, holds the floor, or is being served."""
        oldest = self._oldest[0]
        return oldest if oldest in self._rivals(now) - {now.served} else None

    def _goes_on(self, now: Inputs) -> bool:
        """Whether the floor's holder can proceed, and need not make room for another channel."""
        return self.floor in now.able and not (self._over() and self._rivals(now))

    def _target(self, now: Inputs) -> int | None:
        if self._goes_on(now):
            return self.floor if self._preferred else None
        return None if self._preferred else self._chosen(now)

    def _over(self) -> bool:
        """Whether the slice of the floor's holder is over."""
        return self.now > self._last

    def _copies(self, now: Inputs) -> bool:
        """Whether the floor's holder has a running copy, and a turn."""
        return self.floor in now.copying and now.may(self.floor)

    def _holder_served(self, now: Inputs) -> bool:
        return now.served is not None and now.served == self.floor

    # -- rules 4 and 5: leaving ------------------------------------------------------------------

    def _must_leave(self, now: Inputs, other: bool) -> bool:
        """Whether the served channel has to leave in the next cycle."""
        if self._because("no turn", not now.may(now.served)):
            return True
        if self._holder_served(now):
            # The end of a slice is known in its last cycle, but not in the first cycle of a renewed
            # slice.
            ends = self.now >= self._last and self.now != self._renewed_at
            return self._because("holder's slice", ends and other and not self._copies(now))
        back = self._because("holder is back", self.floor in now.able and not self._over())
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
        """Update floor and slices for the next cycle."""
        alone = self._holder_served(now) and not rivalled and not self._copies(now)
        if now.take:
            self._take(now)
        elif now.served is None and not (self.floor in now.able or self._copies(now)):
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
        """The target gets the pipeline and a guest's slice. It also gets the floor, with a new
        slice, unless the holder of the floor has a copy running or continues within its slice."""
        target = self._target(now)
        self._guest_last = math.inf
        if self._copies(now) or (target == self.floor and not self._over()):
            self._because("guest", target != self.floor)
            return
        self._because("holder again", target == self.floor)
        self.floor, self._last = target, math.inf


def _oldest(channels: frozenset[int], stamps: Sequence[int]) -> int | None:
    """The channel with the oldest stamp; among equals, the one with the lowest number. The stamps
    span at most half of `STAMPS`."""
    if not channels:
        return None
    middle = stamps[min(channels)] + STAMPS // 2
    return min(channels, key=lambda channel: ((stamps[channel] - middle) % STAMPS, channel))
