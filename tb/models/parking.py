"""Waits of parked channels and their acquire groups, from the contract of `Parking` and the
scheduling rules of `hw/README.md`.

The model is cycle-accurate: `show` returns the outputs of a cycle, `step` advances to the next. An
update is represented by its cycle, a group by a set.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from signalbox.hw.registers import Wait

__all__ = ["ALL", "ENDS_WITH", "SITUATIONS", "STATES", "Inputs", "Outputs", "ParkingModel"]

STATES = (
    "alive",
    "occupied",
    "copying",
    "tasks",
    "engine",
    "queue",
    "retry",
    "fenced",
    "over",
    "referring",
)
"""States of a channel."""

ALL = -1
"""Value of `Inputs.leaves` for all semaphores of the group."""

_NEVER = -1

ENDS_WITH: dict[Wait, tuple[str, ...]] = {
    Wait.NONE: ("occupied",),
    Wait.COPIES: ("not copying",),
    Wait.ENGINE: ("engine and group", "retry"),
    Wait.ONCHIP: ("update", "retry"),
    Wait.RETRY: ("retry",),
    Wait.FENCE: ("fenced",),
    Wait.ENGINE_ONLY: ("engine", "retry"),
    Wait.QUEUE: ("queue", "not copying"),
    Wait.ALL_IDLE: ("over",),
    Wait.WRITEBACK: ("not referring",),
    Wait.TURN: ("turn",),
    Wait.ENGINE_TIMED: ("engine", "group fails"),
    Wait.TRANSLATION: ("over",),
    Wait.TASKS: ("not tasks",),
    Wait.COMPUTE: ("over",),
}
"""Conditions that end each wait; one is enough. "group": the group held in the previous cycle."""

SITUATIONS = (
    *(f"{wait.name} ends: {reason}" for wait, ends in ENDS_WITH.items() for reason in ends),
    *(f"{wait.name} lasts" for wait in Wait if wait != Wait.TURN),
    "ENGINE just after a semaphore joined",
    "ENGINE_TIMED just after a semaphore joined",
    *(f"update {cycles} after watch" for cycles in range(4)),
    "held",
    "not held",
    "clear",
    "clear when a service begins",
    "clear during a service",
    "joins and leaves",
    "joins, all leave",
    "joins as it leaves",
    "one leaves",
    "all leave",
    "leaves as it is let go",
    "wait goes on",
    "no wait to go on",
)
"""Situations counted by the model."""


@dataclass(frozen=True)
class Inputs:
    """Inputs of one cycle.

    Members
    -------
    states : states that each channel has.
    zero : counting semaphores that are 0.
    served : the channel being served, or None.
    wait : wait with which the served channel is parked; `Wait.NONE` if it continues.
    lasts : the served channel keeps its present wait; `wait` applies only if it has none. Never
        together with `watch`.
    watch : index of the semaphore whose acquire the served channel has requested.
    joins, leaves : counting semaphore that joins or leaves the served channel's group.
    update : index of the semaphore operated on.
    clear : channel that starts, with an empty group.
    """

    states: Sequence[frozenset[str]]
    zero: frozenset[int]
    served: int | None = None
    wait: Wait = Wait.NONE
    lasts: bool = False
    watch: int | None = None
    joins: int | None = None
    leaves: int | None = None
    update: int | None = None
    clear: int | None = None


@dataclass(frozen=True)
class Outputs:
    """Outputs of one cycle; sets of channels where the hardware has one bit per channel.

    Members
    -------
    ready : channels that are alive, with a wait that is over.
    wanting : channels that are alive, and wait only for an engine.
    holding : channels with groups that held in the previous cycle.
    held : whether the served channel's group holds; None, no meaning, if no channel is served or
        the service begins in this cycle.
    waits : wait of each channel.
    """

    ready: frozenset[int]
    wanting: frozenset[int]
    holding: frozenset[int]
    held: bool | None
    waits: tuple[Wait, ...]


class ParkingModel:
    """Waits of all channels.

    Members
    -------
    now : number of cycles so far.
    waits : of every channel.
    groups : acquire group of every channel.
    watching : semaphore watched by each channel, and the cycle of `watch`.
    met : number of cycles with each situation.
    """

    def __init__(self, channels: int) -> None:
        self.now = 0
        self.waits = [Wait.NONE] * channels
        self.groups: list[set[int]] = [set() for _ in range(channels)]
        self.watching: dict[int, tuple[int, int]] = {}
        self.met: Counter[str] = Counter()
        self._served: int | None = None
        # Last update of each semaphore.
        self._updated: dict[int, int] = {}
        # In the previous cycle: channels with groups that held; channel with a group that a
        # semaphore joined. In this cycle: a channel, and the semaphore that leaves its group.
        self._held: frozenset[int] = frozenset()
        self._joined: int | None = None
        self._leaves: tuple[int, int] | None = None

    def show(self, now: Inputs) -> Outputs:
        """Outputs of the cycle."""
        channels = range(len(self.waits))
        alive = {channel for channel in channels if "alive" in now.states[channel]}
        begins = now.served is not None and self._served is None
        return Outputs(
            ready=frozenset(channel for channel in alive if self._ends(now, channel)),
            wanting=frozenset(channel for channel in alive if self._lacks_engine(channel)),
            holding=self._held,
            held=None if now.served is None or begins else self._holds(now, now.served),
            waits=tuple(self.waits),
        )

    def step(self, now: Inputs) -> None:
        """Advance to the next cycle."""
        self._meet(now)
        if now.update is not None:
            self._updated[now.update] = self.now
        self._held = frozenset(c for c in range(len(self.waits)) if self._holds(now, c))
        if self._leaves is not None:
            channel, counter = self._leaves
            self.groups[channel] -= self.groups[channel] if counter == ALL else {counter}
        if now.clear is not None:
            self.groups[now.clear].clear()
        self._joined = self._leaves = None
        if now.served is not None:
            self._serve(now, now.served)
        self._served = now.served
        self.now += 1

    def _serve(self, now: Inputs, served: int) -> None:
        if not now.lasts or self.waits[served] == Wait.NONE:
            self.waits[served] = now.wait
        if now.watch is not None:
            self.watching[served] = now.watch, self.now
        if now.joins is not None:
            self.groups[served].add(now.joins)
            self._joined = served
        if now.leaves is not None:
            self._leaves = served, now.leaves

    def _holds(self, now: Inputs, channel: int) -> bool:
        return self.groups[channel] <= now.zero

    def _ends(self, now: Inputs, channel: int) -> bool:
        """Whether one of the conditions that end the channel's wait is true."""
        return any(self._true(reason, now, channel) for reason in ENDS_WITH[self.waits[channel]])

    def _true(self, reason: str, now: Inputs, channel: int) -> bool:
        states = now.states[channel]
        # In the cycle after a semaphore joined, it is not known whether the group holds.
        known = channel != self._joined
        match reason.split():
            case ["turn"]:
                return True
            case ["not", state]:
                return state not in states
            case ["update"]:
                return self._was_updated(now, channel)
            case ["engine", "and", "group"]:
                return "engine" in states and known and channel in self._held
            case ["group", "fails"]:
                return known and channel not in self._held
        return reason in states

    def _was_updated(self, now: Inputs, channel: int) -> bool:
        """Whether the watched semaphore was updated, two cycles after `watch` or later."""
        if channel not in self.watching:
            return False
        index, since = self.watching[channel]
        latest = self.now if now.update == index else self._updated.get(index, _NEVER)
        return latest >= since + 2

    def _lacks_engine(self, channel: int) -> bool:
        """Whether the channel waits only for an engine; true also if one is available."""
        match self.waits[channel]:
            case Wait.ENGINE:
                return channel in self._held and channel != self._joined
            case Wait.ENGINE_ONLY | Wait.ENGINE_TIMED:
                return True
        return False

    # -- situations met --------------------------------------------------------------------------

    def _meet(self, now: Inputs) -> None:
        for channel, wait in enumerate(self.waits):
            if "alive" not in now.states[channel]:
                continue
            for reason in ENDS_WITH[wait]:
                self.met[f"{wait.name} ends: {reason}"] += self._only(reason, now, channel)
            lasts = wait != Wait.TURN and not self._ends(now, channel)
            self.met[f"{wait.name} lasts"] += lasts
            if channel == self._joined and wait in {Wait.ENGINE, Wait.ENGINE_TIMED}:
                self.met[f"{wait.name} just after a semaphore joined"] += 1
        if now.served is not None and now.lasts:
            none = self.waits[now.served] == Wait.NONE
            self.met["no wait to go on" if none else "wait goes on"] += 1
        self._meet_updates(now)
        self._meet_groups(now)

    def _only(self, reason: str, now: Inputs, channel: int) -> bool:
        """Whether `reason` is the only true condition that ends the channel's wait."""
        reasons = ENDS_WITH[self.waits[channel]]
        return [one for one in reasons if self._true(one, now, channel)] == [reason]

    def _meet_updates(self, now: Inputs) -> None:
        if now.watch is not None and now.update == now.watch:
            self.met["update 0 after watch"] += 1
        for index, since in self.watching.values():
            if now.update == index and self.now - since <= 3:
                self.met[f"update {self.now - since} after watch"] += 1

    def _meet_groups(self, now: Inputs) -> None:
        served, begins = now.served, now.served is not None and self._served is None
        if now.clear is not None and self.groups[now.clear]:
            self.met["clear"] += 1
            self.met["clear when a service begins"] += begins and now.clear == served
            self.met["clear during a service"] += not begins and now.clear == served
        if served is not None and not begins:
            self.met["held" if self._holds(now, served) else "not held"] += 1
            self.met["joins and leaves"] += now.joins is not None and now.joins == now.leaves
            self.met["joins, all leave"] += now.joins is not None and now.leaves == ALL
        if self._leaves is not None:
            channel, counter = self._leaves
            left = self.groups[channel] if counter == ALL else self.groups[channel] & {counter}
            self.met["all leave" if counter == ALL else "one leaves"] += bool(left)
            if now.joins is not None and served == channel and now.joins in left:
                self.met["joins as it leaves"] += 1
            self.met["leaves as it is let go"] += bool(left) and served is None
