"""Waits for compute methods and outstanding tasks, from the contract of `ComputeWaits`.

The model is cycle-accurate: `show` returns the outputs of a cycle, `step` advances to the next. A
turn is an object that refers to its wait. If the channel drops that wait and begins another, the
turn remains that of the first.
"""

from collections import Counter
from dataclasses import dataclass
from typing import NamedTuple

from signalbox.hw.errors import Cause, Refusal

__all__ = [
    "AGAIN",
    "FAIR_TURN",
    "MOST_TASKS",
    "OFFERED",
    "Answer",
    "Ended",
    "Failure",
    "Inputs",
    "Method",
    "Offer",
    "Outputs",
    "Result",
    "Task",
    "WaitsModel",
]

MOST_TASKS = 4032
"""Number of outstanding tasks at which a channel's next method waits."""

OFFERED = 7
"""Cycles from `ask` to the offer of its method, if no other method comes first."""

FAIR_TURN = 16
"""Every 16th turn goes to the oldest method, whatever the priorities."""

AGAIN = 2
"""Minimum cycles from a `drop` to the channel's next `ask`, unless the wait was complete."""

_WAITS = 2
"""Cycles from `ask` until the channel can be chosen."""

_COUNTED = 2
"""Cycles from the launch or end of a task to its effect on the counts, and from an answer or an end
to its interrupt."""


_STAMPS = 1 << 12
"""Number of different stamps, which wrap."""


class Method(NamedTuple):
    """A compute method, with the ASID and context of its channel."""

    asid: int
    context: int
    address: int
    data: int


class Offer(NamedTuple):
    """A method offered to the engine."""

    channel: int
    epoch: int
    method: Method


class Result(NamedTuple):
    """Result of a method; cause NONE if it is complete. `open`, `room`: of the inline transfer, as
    in `tb.models.methods.Inline`."""

    cause: Cause
    check: int
    va: int
    open: int
    room: int


class Answer(NamedTuple):
    """Answer of the engine. `trap` : raise an interrupt. `unlaunched` : the task counted by `began`
    does not exist."""

    result: Result
    trap: bool
    unlaunched: bool


class Task(NamedTuple):
    """Channel and epoch of a launched task."""

    channel: int
    epoch: int


class Ended(NamedTuple):
    """The completion of a task."""

    task: Task
    page: int
    refusal: Refusal
    check: int
    trap: bool


class Failure(NamedTuple):
    """The record of a failed task."""

    channel: int
    cause: Cause
    check: int
    page: int


@dataclass(frozen=True)
class Inputs:
    """Inputs of one cycle; channels by number.

    Members
    -------
    stamps : arrival stamp of each channel's head command.
    setting : channel and its new priority.
    ask : channel that begins to wait, and its method.
    drop : channel of which the wait ends, complete or not.
    select : channel for which the next cycle's `why` is shown.
    taken : the engine takes the offered method, if there is one.
    answer : the engine's answer to the method in execution.
    began : task that begins.
    ended : task whose completion is taken.
    failed_taken : the record of the failed task is taken.
    begins : an epoch begins.
    on : bit per channel, 1 if it is enabled.
    """

    stamps: tuple[int, ...] = ()
    setting: tuple[int, int] | None = None
    ask: tuple[int, Method] | None = None
    drop: int | None = None
    select: int = 0
    taken: bool = False
    answer: Answer | None = None
    began: Task | None = None
    ended: Ended | None = None
    failed_taken: bool = False
    begins: bool = False
    on: int = 0


@dataclass(frozen=True)
class Outputs:
    """Outputs of one cycle; sets of channels where the hardware has one bit per channel.

    Members
    -------
    over, refused : channels with a complete wait; those of them with a refused method.
    why : result of the channel selected in the previous cycle; None unless its wait is over.
    busy : channels with a method that waits or is being executed.
    counts, tasks : outstanding tasks of each channel; channels with any.
    hears : a completion of a task can be taken.
    ended : channel of the task that has ended, and whether it has failed.
    notify : channels with an interrupt of a method or task.
    before : a task or method of the previous epoch is outstanding.
    """

    over: frozenset[int]
    refused: frozenset[int]
    why: Result | None
    busy: frozenset[int]
    offer: Offer | None
    counts: tuple[int, ...]
    tasks: frozenset[int]
    hears: bool
    ended: tuple[int, bool] | None
    failed: Failure | None
    notify: frozenset[int]
    before: bool


@dataclass(eq=False)
class _Wait:
    """Wait of a channel, from cycle `asked` to cycle `dropped`. `has_turn` : it has, or has had,
    the turn."""

    channel: int
    method: Method
    asked: int
    dropped: int | None = None
    has_turn: bool = False
    over: bool = False
    refused: bool = False


@dataclass(eq=False)
class _Turn:
    """A turn, from the cycle `chosen` to the cycle after its answer."""

    wait: _Wait
    chosen: int
    epoch: int = 0
    taken: bool = False
    answer: Answer | None = None


class WaitsModel:
    """Waits and tasks of all channels. `steps` : cycles that the choice of a channel takes.

    Members
    -------
    now : number of cycles so far.
    waits : waits of channels, complete or not, that have not been dropped.
    turn : turn in progress.
    results : result of the last answer to each channel.
    selected : channel selected in the previous cycle.
    met : number of times each situation was met.
    """

    def __init__(self, channels: int, steps: int) -> None:
        self.now = 0
        self.waits: dict[int, _Wait] = {}
        self.turn: _Turn | None = None
        self.results: dict[int, Result] = {}
        self.met: Counter[str] = Counter()
        self._channels = channels
        self._steps = steps
        # From the choice of a channel to the offer of its method.
        self._offers = OFFERED - _WAITS - steps
        self._turns = 0
        self._priorities = [0] * channels
        # Stamps and priorities of the last `steps` cycles, oldest first.
        self._orders = [((0,) * channels, (0,) * channels)] * steps
        self._dropped: list[_Wait] = []
        self._asked: int | None = None
        self._held: set[int] = set()
        self.selected = 0
        self._heard: Ended | None = None
        self._fails = False
        self._failed: Failure | None = None
        self._epoch = 0
        # Outstanding tasks per epoch, per channel, and per channel in earlier cycles; changes that
        # are not visible yet.
        self._epochs, self._counts = [0, 0], [0] * channels
        self._past = [(0,) * channels] * (steps + 1)
        self._changes: list[tuple[int, Task, int]] = []
        self._notices: list[tuple[int, int]] = []

    # -- outputs -----------------------------------------------------------------------------------

    @property
    def offer(self) -> Offer | None:
        """The method offered in this cycle."""
        turn = self.turn
        if turn is None or turn.taken or self.now < turn.chosen + self._offers:
            return None
        return Offer(turn.wait.channel, turn.epoch, turn.wait.method)

    @property
    def executes(self) -> bool:
        """Whether the engine has taken a method and not answered."""
        return self.turn is not None and self.turn.taken and self.turn.answer is None

    def show(self, *, answered: bool) -> Outputs:
        """Outputs of the cycle. `answered` : whether the engine answers in this cycle."""
        self._apply()
        waits = self.waits.values()
        refused = frozenset(wait.channel for wait in waits if wait.refused)
        heard, selected = self._heard, self.selected
        over = frozenset(wait.channel for wait in waits if wait.over)
        return Outputs(
            over=over,
            refused=refused,
            why=self.results[selected] if selected in over else None,
            busy=self._busy(),
            offer=self.offer,
            counts=tuple(self._counts),
            tasks=frozenset(one for one, count in enumerate(self._counts) if count),
            hears=not (heard or self._failed or answered),
            ended=heard and (heard.task.channel, self._fails),
            failed=self._failed,
            notify=frozenset(channel for cycle, channel in self._notices if cycle == self.now),
            before=self._epochs[1 - self._epoch] != 0 or self._pending == 1 - self._epoch,
        )

    @property
    def _pending(self) -> int | None:
        """Epoch of the method that is offered or being executed."""
        turn = self.turn
        if turn is None or self.now < turn.chosen + self._offers:
            return None
        return turn.epoch

    def _apply(self) -> None:
        """Apply the changes of counts that become visible in this cycle."""
        for cycle, task, change in self._changes:
            if cycle == self.now:
                self._counts[task.channel] += change
                self._epochs[task.epoch] += change
        self._changes = [one for one in self._changes if one[0] > self.now]

    def _busy(self) -> frozenset[int]:
        busy = {wait.channel for wait in self.waits.values() if not wait.over}
        if self.turn is not None:
            busy.add(self.turn.wait.channel)
        if self._asked is not None:
            busy.add(self._asked)
        return frozenset(busy)

    # -- next cycle --------------------------------------------------------------------------------

    def step(self, now: Inputs) -> None:
        """Advance to the next cycle; after `show`."""
        self._meet(now)
        turn = self.turn
        if turn is None:
            self._choose()
        self._client(now)
        if turn is not None:
            self._advance(turn, now)
        self._count(now)
        self._hear(now)
        self._epoch ^= now.begins
        self.selected = now.select
        self._past = [*self._past[1:], tuple(self._counts)]
        self._orders = [*self._orders[1:], (now.stamps, tuple(self._priorities))]
        if now.setting is not None:
            channel, priority = now.setting
            self._priorities[channel] = priority
        self._notices = [one for one in self._notices if one[0] > self.now]
        self.now += 1

    def _choose(self) -> None:
        """Give the turn to the first channel in order, among those that waited `steps` cycles ago.
        If that channel has dropped its wait before the previous cycle, no channel gets the turn."""
        seen = self.now - self._steps
        eager = {
            wait.channel: wait
            for wait in (*self.waits.values(), *self._dropped)
            if wait.asked <= seen - _WAITS and not wait.has_turn
            if wait.dropped is None or wait.dropped >= seen
        }
        free = [one for one in sorted(eager) if self._past[0][one] < MOST_TASKS]
        held = {*eager} - {*free}
        self.met["held"] += len(held - self._held)
        self.met["held no longer"] += len(self._held & {*free})
        self._held = held
        if not free:
            return
        wait = eager[self._first(free)]
        if wait.dropped is not None and wait.dropped < self.now - 1:
            self.met["dropped while it is chosen"] += 1
            return
        wait.has_turn, self.turn = True, _Turn(wait, self.now)
        self._turns += 1
        self.met["chosen after a drop"] += wait.dropped is not None
        self.met["chosen before others"] += len(free) > 1

    def _first(self, free: list[int]) -> int:
        """The next channel: highest priority first (ignored in every 16th turn), then oldest stamp,
        then lowest number."""
        stamps, priorities = self._orders[0]
        middle = stamps[free[0]] + _STAMPS // 2

        def arrival(channel: int) -> int:
            return (stamps[channel] - middle) % _STAMPS

        oldest = min(free, key=arrival)
        highest = max(priorities[one] for one in free)
        urgent = min((one for one in free if priorities[one] == highest), key=arrival)
        self.met["chosen before an older one"] += oldest != urgent
        fair = self._turns % FAIR_TURN == FAIR_TURN - 1
        self.met["chosen before a higher one"] += fair and oldest != urgent
        return oldest if fair else urgent

    def _client(self, now: Inputs) -> None:
        if now.drop is not None and now.drop in self.waits:
            wait = self.waits.pop(now.drop)
            wait.dropped = self.now
            self._dropped.append(wait)
        recent = self.now + 1 - self._steps
        self._dropped = [one for one in self._dropped if (one.dropped or 0) >= recent]
        self._asked = None
        if now.ask is not None:
            channel, method = now.ask
            self._asked = channel
            self.waits.setdefault(channel, _Wait(channel, method, self.now))

    def _advance(self, turn: _Turn, now: Inputs) -> None:
        wait = turn.wait
        if turn.answer is not None:
            self.turn = None
            if wait.dropped is None:
                wait.over, wait.refused = True, turn.answer.result.cause is not Cause.NONE
        if self.now == turn.chosen + self._offers - 1:
            turn.epoch = self._epoch
        if self.offer is not None and now.taken:
            turn.taken = True
        if now.answer is not None:
            turn.answer = now.answer
            self.results[wait.channel] = now.answer.result
            if now.answer.trap:
                self._notices.append((self.now + _COUNTED, wait.channel))
            if now.answer.unlaunched:
                self._change(Task(wait.channel, turn.epoch), -1)

    def _count(self, now: Inputs) -> None:
        if now.began is not None:
            self._change(now.began, 1)
        if now.ended is not None:
            self._change(now.ended.task, -1)

    def _change(self, task: Task, change: int) -> None:
        self._changes.append((self.now + _COUNTED, task, change))

    def _hear(self, now: Inputs) -> None:
        ended, self._heard = now.ended, now.ended
        if now.failed_taken:
            self._failed = None
        if ended is None:
            return
        channel = ended.task.channel
        if ended.trap:
            self._notices.append((self.now + _COUNTED, channel))
        killed = ended.refusal is Refusal.KILLED and not now.on >> channel & 1
        self._fails = ended.refusal is not Refusal.NONE and not killed
        self.met["killed with its channel"] += killed
        if self._fails:
            cause = Cause[f"TASK_{ended.refusal.name}"]
            self._failed = Failure(channel, cause, ended.check, ended.page)

    # -- coverage ----------------------------------------------------------------------------------

    def _meet(self, now: Inputs) -> None:
        met, turn, wait = self.met, self.turn, self.waits.get(-1 if now.drop is None else now.drop)
        if wait is not None:
            met[f"dropped {self._phase(wait)}"] += 1
            met["dropped as it asks"] += (
                wait.over and now.ask is not None and now.ask[0] == now.drop
            )
        if now.ask is not None:
            channel = now.ask[0]
            mine = turn is not None and turn.wait.channel == channel
            met["asks behind its dropped method"] += mine and channel not in self.waits
            met["asks again"] += channel in self.waits
        if now.answer is not None and turn is not None:
            refused = now.answer.result.cause is not Cause.NONE
            met["refused" if refused else "complete"] += 1
            met["unlaunched"] += now.answer.unlaunched
            met["answer with a trap"] += now.answer.trap
            met["refused while selected"] += refused and self.selected == turn.wait.channel
        if now.ended is not None:
            met["task with a trap"] += now.ended.trap
            met["task fails"] += now.ended.refusal is not Refusal.NONE
            met["task ends as another begins"] += now.began is not None
        met["failure waits"] += self._failed is not None and not now.failed_taken
        met["epoch with tasks before it"] += now.begins and self._epochs[self._epoch] != 0
        met["epoch with a method before it"] += now.begins and self._pending == self._epoch

    def _phase(self, wait: _Wait) -> str:
        """Phase of a wait that is dropped in this cycle."""
        turn = self.turn
        if wait.over:
            return "complete"
        if turn is None or turn.wait is not wait:
            return "before its turn"
        if turn.answer is not None:
            return "as it ends"
        if turn.taken:
            return "in execution"
        return "while offered" if self.offer else "before its offer"
