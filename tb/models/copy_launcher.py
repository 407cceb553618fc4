"""Assignment of copies to engines, reservations and completions, from the contract of
`CopyLauncher` and rule 7 of `hw/README.md`.

The model is cycle-accurate: `show` returns the outputs of a cycle, `step` advances to the next. An
engine is represented by its outstanding copies.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from signalbox.hw.errors import Cause

__all__ = [
    "CAUSES",
    "MOST_COPIES",
    "Done",
    "Ended",
    "Failed",
    "Inputs",
    "Launch",
    "LauncherModel",
    "Outputs",
]

MOST_COPIES = 15
"""Limit of outstanding copies per channel."""

CAUSES = (
    Cause.NONE,
    Cause.COPY_READ_BUS,
    Cause.COPY_READ_FAULT,
    Cause.COPY_WRITE_BUS,
    Cause.COPY_WRITE_FAULT,
    Cause.COPY_SEMAPHORE,
)
"""Cause by number of the error of a copy."""


@dataclass(frozen=True)
class Launch:
    """A launched copy. `behind` : it is queued behind the channel's latest copy. `command` : bits
    of the command to the engine."""

    channel: int
    behind: bool
    interrupt: bool
    command: int


@dataclass(frozen=True)
class Done:
    """Completion by an engine. `error` : number of the error, 0 for none."""

    channel: int
    error: int
    va: int
    data: int
    subchannel: int


@dataclass(frozen=True)
class Ended:
    """A copy has ended."""

    channel: int
    interrupt: bool
    failed: bool


@dataclass(frozen=True)
class Failed:
    """Record of a failed copy."""

    channel: int
    cause: Cause
    va: int
    data: int
    subchannel: int


@dataclass(frozen=True)
class Inputs:
    """Inputs of one cycle; sets of channels or engines where the hardware has one bit for each.

    Members
    -------
    working : channels that keep their reservation.
    ready : engines that accept a command.
    done : completion offered by each engine, or None.
    reserve : channel for which an engine is reserved.
    release : channel of which the reservation ends.
    taken : the record of a failed copy is taken.
    """

    enabled: frozenset[int]
    working: frozenset[int]
    ready: frozenset[int]
    done: Sequence[Done | None]
    launch: Launch | None = None
    reserve: int | None = None
    release: int | None = None
    taken: bool = False


@dataclass(frozen=True)
class Outputs:
    """Outputs of one cycle; sets of channels or engines where the hardware has one bit for each.

    Members
    -------
    able : channels for which an engine is free or reserved.
    keeping : channels with a reservation.
    queue : whether each channel can queue another copy; None, no meaning, without a copy.
    copying, counts : channels with outstanding copies; number of them per channel.
    failed : record of a failed copy that is offered.
    started, finished : engines that get a copy; engines of which a completion is accepted.
    commands : bits of the command offered to each engine, or None.
    stops : whether each engine must stop its copy; None, no meaning, without a copy.
    """

    able: frozenset[int]
    keeping: frozenset[int]
    queue: tuple[bool | None, ...]
    copying: frozenset[int]
    counts: tuple[int, ...]
    all_idle: bool
    ended: Ended | None
    failed: Failed | None
    started: frozenset[int]
    finished: frozenset[int]
    commands: tuple[int | None, ...]
    stops: tuple[bool | None, ...]


class LauncherModel:
    """All copies and reservations.

    Members
    -------
    now : number of cycles so far.
    copies : outstanding copies of every engine, oldest first.
    offered : engines that have not accepted their latest copy yet.
    owners : channel for which each engine is reserved, or None.
    met : number of cycles with each situation.
    """

    def __init__(self, channels: int, engines: int) -> None:
        self.now = 0
        self.copies: list[list[Launch]] = [[] for _ in range(engines)]
        self.offered: set[int] = set()
        self.owners: list[int | None] = [None] * engines
        self.met: Counter[str] = Counter()
        self._channels = channels
        self._failed: Failed | None = None
        self._first = 0
        """Engine whose completion is accepted first, if several complete."""

    def show(self, now: Inputs) -> Outputs:
        """Outputs of the cycle."""
        channels = range(self._channels)
        finishes, gets = self._finishes(now), self._gets(now)
        return Outputs(
            able=frozenset(c for c in channels if self._free() or c in self.owners),
            keeping=frozenset(c for c in channels if c in self.owners),
            queue=tuple(map(self._room, channels)),
            copying=frozenset(c for c in channels if self.home(c) is not None),
            counts=tuple(map(self._count, channels)),
            all_idle=not any(self.copies),
            ended=None if finishes is None else self._ended(now, finishes),
            failed=self._failed,
            started=frozenset() if gets is None else frozenset({gets}),
            finished=frozenset() if finishes is None else frozenset({finishes}),
            commands=tuple(
                copies[-1].command if engine in self.offered else None
                for engine, copies in enumerate(self.copies)
            ),
            stops=tuple(
                copies[0].channel not in now.enabled if copies else None for copies in self.copies
            ),
        )

    def step(self, now: Inputs) -> None:
        """Advance to the next cycle."""
        self._meet(now)
        finishes, gets, chosen = self._finishes(now), self._gets(now), self._chosen(now)
        self.owners = [self._owner(now, owner) for owner in self.owners]
        if chosen is not None:
            self.owners[chosen] = now.reserve
        self.offered -= now.ready
        if gets is not None and now.launch is not None:
            self.owners[gets] = None
            self.offered.add(gets)
            self.copies[gets].append(now.launch)
        if now.taken:
            self._failed = None
        if finishes is not None:
            self._finish(now.done[finishes], finishes)
        self.now += 1

    def _finish(self, done: Done | None, engine: int) -> None:
        del self.copies[engine][0]
        self._first = (engine + 1) % len(self.copies)
        if done is not None and done.error:
            cause = CAUSES[done.error]
            self._failed = Failed(done.channel, cause, done.va, done.data, done.subchannel)

    # -- copies ----------------------------------------------------------------------------------

    def home(self, channel: int) -> int | None:
        """Engine with the channel's outstanding copies, if any."""
        homes = [
            e for e, copies in enumerate(self.copies) if copies and copies[0].channel == channel
        ]
        return homes[0] if homes else None

    def _count(self, channel: int) -> int:
        home = self.home(channel)
        return 0 if home is None else len(self.copies[home])

    def _room(self, channel: int) -> bool | None:
        """Whether another copy can be queued behind the channel's latest one. It cannot if that
        copy has an interrupt. None without an outstanding copy."""
        home = self.home(channel)
        if home is None:
            return None
        full = len(self.copies[home]) == MOST_COPIES
        return home not in self.offered and not self.copies[home][-1].interrupt and not full

    def _finishes(self, now: Inputs) -> int | None:
        """Engine whose completion is accepted. Engines take turns; no completion is accepted while
        the record of a failed copy waits."""
        engines = [(self._first + i) % len(self.copies) for i in range(len(self.copies))]
        offers = [engine for engine in engines if now.done[engine] is not None]
        return offers[0] if offers and self._failed is None else None

    def _ended(self, now: Inputs, engine: int) -> Ended | None:
        done = now.done[engine]
        interrupt = self.copies[engine][0].interrupt
        return done and Ended(done.channel, interrupt, done.error != 0)

    # -- engines ---------------------------------------------------------------------------------

    def _free(self) -> list[int]:
        """Engines that are idle and not reserved."""
        return [
            engine
            for engine, copies in enumerate(self.copies)
            if not copies and self.owners[engine] is None
        ]

    def _gets(self, now: Inputs) -> int | None:
        """Engine that gets the launched copy."""
        if now.launch is None:
            return None
        channel = now.launch.channel
        if now.launch.behind:
            return self.home(channel)
        return self.owners.index(channel) if channel in self.owners else self._free()[0]

    def _chosen(self, now: Inputs) -> int | None:
        """Engine that is reserved in this cycle."""
        free = self._free()
        asks = now.reserve is not None and now.reserve not in self.owners
        return free[0] if asks and free else None

    def _owner(self, now: Inputs, owner: int | None) -> int | None:
        """Owner, in the next cycle, of an engine reserved for `owner` on which no copy starts."""
        lost = owner not in now.working and owner != now.reserve
        return None if lost or owner == now.release else owner

    # -- situations met --------------------------------------------------------------------------

    def _meet(self, now: Inputs) -> None:
        finishes, launch = self._finishes(now), now.launch
        offers = sum(one is not None for one in now.done)
        for channel in self.owners:
            if channel is not None:
                self._meet_reservation(now, channel)
        self.met["reserved"] += self._chosen(now) is not None
        self.met["none to reserve"] += now.reserve is not None and not self._able(now.reserve)
        self.met["completion waits for a record"] += bool(self._failed) and offers > 0
        self.met["several completions"] += offers > 1 and finishes is not None
        self.met["stopped"] += any(c and c[0].channel not in now.enabled for c in self.copies)
        if finishes is not None and (done := now.done[finishes]):
            self.met[f"error {done.error}"] += 1
            self.met["interrupt"] += self.copies[finishes][0].interrupt
            if launch is not None and launch.channel == done.channel:
                self.met["launched as one ends"] += 1
                self.met["launched as the last ends"] += len(self.copies[finishes]) == 1
        if launch is not None:
            self.met["behind"] += launch.behind
            self.met["with another reserved"] += any(
                o not in {None, launch.channel} for o in self.owners
            )
        for channel in range(self._channels):
            self.met["as many as allowed"] += self._count(channel) == MOST_COPIES

    def _able(self, channel: int) -> bool:
        return bool(self._free()) or channel in self.owners

    def _meet_reservation(self, now: Inputs, channel: int) -> None:
        launched = now.launch is not None and now.launch.channel == channel
        works = channel in now.working
        self.met["reserved engine used"] += launched
        self.met["released"] += now.release == channel
        self.met["reserved again"] += now.reserve == channel and works
        self.met["renewed without work"] += now.reserve == channel and not works
        self.met["lost without work"] += now.reserve != channel and not works and not launched
        self.met["launched without work"] += launched and not works
