"""Turns of the time-slice groups of a runlist, from the rules in `hw/host/scheduling/README.md`.

The model is cycle-accurate: `show` returns the outputs of a cycle, `step` advances to the next. The
model is given the lists directly. It predicts which of their words the hardware requests, and does
not use the returned words.
"""

from collections import Counter
from dataclasses import dataclass, field

__all__ = ["Group", "Inputs", "Outputs", "RotationModel", "Runlist", "Work"]


@dataclass(frozen=True)
class Group:
    """A time-slice group (TSG) at a place of a list."""

    channels: frozenset[int]
    tsgid: int = 0
    timeout: int = 0
    scale: int = 0

    @property
    def units(self) -> int:
        """Length of the group's slice, in units of `Inputs.unit` cycles."""
        return max(1, self.timeout) << self.scale


@dataclass(frozen=True)
class Runlist:
    """A list; its turns begin at place `start`."""

    groups: tuple[Group, ...] = ()
    start: int = 0

    @property
    def channels(self) -> frozenset[int]:
        return frozenset[int]().union(*(group.channels for group in self.groups))


@dataclass(frozen=True)
class Work:
    """Work of the channels.

    Members
    -------
    ready : channels that can proceed.
    working : channels with something to do.
    yielding : channels that wait for a failed acquire of the kind that gives up the TSG's turn.
    served : the served channel, if any.
    """

    ready: frozenset[int] = frozenset()
    working: frozenset[int] = frozenset()
    yielding: frozenset[int] = frozenset()
    served: int | None = None

    def detains(self, channel: int) -> bool:
        """Whether this channel alone makes its TSG keep the turn until the end of the slice."""
        waits = channel in self.working and channel not in self.yielding
        return waits or channel in self.ready or channel == self.served


@dataclass(frozen=True)
class Inputs:
    """Inputs of one cycle.

    Members
    -------
    enable : the runlist is in use; otherwise all channels may be served.
    unit : cycles per unit of a slice.
    offer : a new list, or None.
    expire : the served channel ends the slice of its TSG (YIELD).
    """

    work: Work
    enable: bool = True
    unit: int = 1
    offer: Runlist | None = None
    expire: bool = False


@dataclass(frozen=True)
class Outputs:
    """Outputs of one cycle.

    Members
    -------
    eligible : channels that may be served.
    tsgid : id of the TSG that has the turn, or None.
    groups, listed : number of TSGs of the active list, and its channels.
    half : half of the word memory that has the active list.
    asks : place whose word is requested for the next cycle.
    accepts : the new list is accepted.
    """

    eligible: frozenset[int]
    tsgid: int | None
    groups: int
    listed: frozenset[int]
    half: int
    asks: int
    accepts: bool


@dataclass
class _Turn:
    """The turn of the TSG at `place`. `elapsed` : cycles of its slice of `length`."""

    place: int
    group: Group
    length: int
    elapsed: int = 0
    expired: bool = False

    @property
    def over(self) -> bool:
        return self.expired or self.elapsed >= self.length


@dataclass
class _Search:
    """Repeated search for the next TSG, from place `origin` on.

    Members
    -------
    asks : place to look at next.
    sees : place of the word that arrives in this cycle, or None.
    found : place of the next TSG, or None.
    vain : a pass over all places has found none.
    """

    origin: int = 0
    asks: int = 0
    vain: bool = False
    sees: int | None = None
    found: int | None = None


@dataclass
class RotationModel:
    """Turns of the TSGs of the active runlist.

    Members
    -------
    channels : number of channels.
    runlist : the active list.
    turn : the present turn, if any.
    search : search for the next TSG.
    decided : number of decisions, by reason.
    """

    channels: int
    runlist: Runlist = field(default_factory=Runlist)
    turn: _Turn | None = None
    search: _Search = field(default_factory=_Search)
    decided: Counter[str] = field(default_factory=Counter)
    _half: int = 0
    _all: bool = True
    _work: Work = field(default_factory=Work)
    """`_all`, `_work` : whether all channels may be served, and the work, in the previous cycle."""

    def show(self, now: Inputs) -> Outputs:
        """Outputs of the cycle."""
        return Outputs(
            self._eligible(),
            self.turn and self.turn.group.tsgid,
            len(self.runlist.groups),
            self.runlist.channels,
            self._half,
            self.search.asks,
            self._accepts(now),
        )

    def step(self, now: Inputs) -> None:
        """Advance to the next cycle."""
        accepts, moves = self._accepts(now), self._moves(now)
        following = self.search.found
        self._count(now, accepts=accepts, moves=moves)
        self._seek(moves=moves)
        self._pass_time(now)
        if moves:
            assert following is not None
            group = self.runlist.groups[following]
            self.turn = _Turn(following, group, group.units * max(1, now.unit))
        if accepts:
            assert now.offer is not None
            self.turn, self.runlist, self._half = None, now.offer, 1 - self._half
            self.search = _Search(now.offer.start, now.offer.start)
        if not now.enable:
            self.turn = None
        self._all, self._work = not now.enable, now.work

    def _eligible(self) -> frozenset[int]:
        if self._all:
            return frozenset(range(self.channels))
        return self.turn.group.channels if self.turn else frozenset()

    def _free(self) -> bool:
        """Whether no TSG has to keep the turn."""
        return (
            self.turn is None
            or self.turn.over
            or not any(self._work.detains(channel) for channel in self.turn.group.channels)
        )

    def _able(self, place: int) -> bool:
        """Whether the TSG at `place` can proceed."""
        return bool(self.runlist.groups[place].channels & self._work.ready)

    def _accepts(self, now: Inputs) -> bool:
        """Whether a new list is accepted: at the end of the round, or at once without `enable`."""
        return now.offer is not None and (not now.enable or (self._free() and self._round_over()))

    def _round_over(self) -> bool:
        """Whether no later TSG of the list can have a turn."""
        found = self.search.found
        if found is not None and self._able(found):
            return self.turn is not None and found <= self.turn.place
        return self.search.vain or not self.runlist.groups

    def _moves(self, now: Inputs) -> bool:
        """Whether the turn goes to the next TSG."""
        found = self.search.found
        can = found is not None and self._able(found)
        return can and now.enable and self._free() and not self._accepts(now)

    def _seek(self, *, moves: bool) -> None:
        """Look at one place per cycle, until a TSG other than the one with the turn can proceed.
        Then begin again at `origin`, as TSGs at earlier places may have become able to proceed."""
        search, count = self.search, len(self.runlist.groups)
        if moves:
            assert search.found is not None
            following = (search.found + 1) % count
            self.search = _Search(following, following)
            return
        sees, search.sees = search.sees, None
        here = self.turn and self.turn.place
        if sees is not None and sees != here and self._able(sees):
            search.found, search.asks, search.vain = sees, search.origin, False
        elif count:
            search.vain |= sees is not None and (sees + 1) % count == search.origin
            search.sees, search.asks = search.asks, (search.asks + 1) % count

    def _pass_time(self, now: Inputs) -> None:
        """Advance the slice, except while a channel of another TSG is served. YIELD ends it."""
        served, turn = now.work.served, self.turn
        if turn is None:
            return
        here = served in turn.group.channels
        turn.elapsed += served is None or here
        turn.expired |= now.expire and here

    def _count(self, now: Inputs, *, accepts: bool, moves: bool) -> None:
        turn, found = self.turn, self.search.found
        served, here = now.work.served, self._eligible()
        self.decided.update({
            "no longer able": found is not None and not self._able(found),
            "list at once": accepts and turn is None and now.enable,
            "list at a change": accepts and turn is not None and now.enable,
            "list while disabled": accepts and not now.enable,
            "list waits": now.offer is not None and not accepts,
            "foreign": turn is not None and served is not None and served not in here,
            "expire": now.expire and served in here,
        })
        if turn is not None:
            ready, busy = here & self._work.ready, bool(here & self._work.working)
            self.decided.update({
                "slice": moves and turn.over,
                "idle": moves and not turn.over and not busy,
                "yielding": moves and not turn.over and busy,
                "nobody else": turn.over and found is None,
                "waits": busy and not ready and not self._free(),
                "shared": moves and bool(here & self.runlist.groups[found or 0].channels),
            })
