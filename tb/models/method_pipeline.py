"""Method pipeline, from the contract of `MethodPipeline` and of its ports (HOST-2, COPY-1).

The model is cycle-accurate: `look` returns the method executed in a cycle, `cycle` returns the
outputs of that cycle and advances to the next one. The model does not decode: each dword comes with
the method that it completes. The progress of a channel is one `Flow`; the hardware distributes it
over several units.
"""

from collections import Counter, deque
from collections.abc import Collection
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import NamedTuple

from signalbox.hw.errors import Cause
from signalbox.hw.host.records import ObjectKind
from signalbox.hw.methods import CeMethod
from signalbox.hw.registers import Wait
from signalbox.tb.models.methods import Kind, Method, Settings, kind, operation

__all__ = [
    "HEADERS",
    "SITUATIONS",
    "TOGETHER",
    "Answer",
    "Beat",
    "Dword",
    "Edit",
    "Entry",
    "Flow",
    "Inputs",
    "Outcome",
    "Outputs",
    "Phase",
    "PipelineModel",
    "acquires",
]


class Phase(Enum):
    """Phase of a service."""

    SELECT = auto()
    LOAD = auto()
    RUN = auto()


class Outcome(Enum):
    """Outcome of a method in one cycle. `NONE`: undecided, because the channel is about to be let
    go."""

    NONE = auto()
    DONE = auto()
    PARK = auto()
    BUSY = auto()
    REFUSE = auto()


class Answer(NamedTuple):
    """Outcome of the executed method. `wait`: wait of a parked channel. `keep`: the channel keeps
    its reserved engine. `yields`: the method is a YIELD with an effect."""

    outcome: Outcome
    wait: Wait = Wait.NONE
    keep: bool = False
    yields: bool = False


HEADERS = (Cause.HEADER_OBSOLETE, Cause.HEADER_RESERVED, Cause.HEADER_RANGE)
"""Causes of illegal headers. A method with such a cause has the address, subchannel and data of the
header."""

NO_ANSWER = Answer(Outcome.NONE)


class Dword(NamedTuple):
    """A dword, and the method that it completes, if any. `refusal`: refusal of the dword as a
    header; None if the dword is no header: then any refusal may be shown."""

    value: int
    method: Method | None = None
    refusal: int | None = None


@dataclass(frozen=True)
class Beat:
    """A fetched beat, with dwords from place `low` on. It has none if it is `empty` or has a
    `cause`. `first`, `end` : first, last beat of a ring entry. `get` : GP_GET of that entry."""

    dwords: tuple[Dword, ...] = ()
    low: int = 0
    empty: bool = False
    first: bool = False
    end: bool = False
    get: int = 0
    cause: Cause = Cause.NONE

    @property
    def methods(self) -> tuple[Method | None, ...]:
        """Methods completed by the dwords, one after another."""
        if self.cause != Cause.NONE:
            return (Method(0, cause=self.cause),)
        return (None,) if self.empty else tuple(one.method for one in self.dwords)


class Edit(NamedTuple):
    """A change to a channel's context. `reset`: its state and methods are cleared. `replace`: its
    held method is replaced by `method`, or removed if `method` is None."""

    channel: int
    reset: bool = False
    replace: bool = False
    method: Method | None = None


class Entry(NamedTuple):
    """Start or end of a ring entry."""

    channel: int
    get: int


class Look(NamedTuple):
    """A method in execution. `fresh`: this is the first cycle of RUN in this service."""

    channel: int
    method: Method
    kind: Kind
    fresh: bool


@dataclass
class Flow:
    """Progress of a channel.

    Members
    -------
    beats : fetched beats with dwords that are not taken, oldest first.
    taken : number of dwords taken from the first of these beats.
    held, queued : decoded methods, oldest first.
    finish : GP_GET of a ring entry from its last dword to the report of its end; else None.
    """

    beats: deque[Beat] = field(default_factory=deque)
    taken: int = 0
    held: Method | None = None
    queued: Method | None = None
    finish: int | None = None

    @property
    def decoded(self) -> bool:
        """Whether a taken method, or the end of an entry, is not complete."""
        return bool(self.held or self.queued) or self.finish is not None


@dataclass(frozen=True)
class Inputs:
    """Inputs of one cycle.

    Members
    -------
    alive : channels that are alive.
    head : the oldest beat of the served channel is offered.
    objects : objects bound in the served channel.
    target : channel to serve next, or None.
    edit : change to the context of a channel, or None. It is taken before a target.
    leave, stay : of the scheduler: the served channel must be let go; it may stay nevertheless.
    answer : outcome of the executed method, if there is one.
    asked : the served channel has requested an operation of the semaphore unit.
    """

    alive: Collection[int] = ()
    head: bool = False
    objects: tuple[ObjectKind, ...] = (ObjectKind.NONE,) * 5
    target: int | None = None
    edit: Edit | None = None
    leave: bool = False
    stay: bool = False
    answer: Answer = NO_ANSWER
    asked: bool = False


@dataclass
class Outputs:
    """Outputs of one cycle. A strobe with a channel is the number of the channel, or None.

    Members
    -------
    active, select : of `Served`; None: no channel.
    edited : an edit is taken.
    take, taken : of `ChoicePort`.
    unpark : channel of which the wait ends.
    park : wait with which the served channel is let go, and `lasts`. (None, ...): any wait is
        accepted.
    ahead, reset, replace, again, early : of `Service`. `again` is None if the replaced method has
        no address. `early` is compared only while the channel's state is loaded.
    leave, quit : of `Service`; None: no channel is served.
    run : method to execute, and its kind.
    pops : the oldest beat is taken.
    started, finished : of `EntryEvents`.
    executed, cleared, released : of `MethodEvents`.
    """

    active: int | None = None
    select: int | None = None
    edited: bool = False
    take: bool = False
    taken: bool = False
    unpark: int | None = None
    park: tuple[Wait | None, bool] | None = None
    ahead: bool = False
    reset: bool = False
    replace: bool = False
    again: bool | None = False
    early: bool = False
    leave: bool | None = None
    quit: bool | None = None
    run: tuple[Method, Kind] | None = None
    pops: bool = False
    started: Entry | None = None
    finished: Entry | None = None
    executed: tuple[int, Method] | None = None
    cleared: int | None = None
    released: int | None = None


SITUATIONS = (
    "two settings in successive cycles",
    "its own successor",
    "edited right after its service",
    "edited, loaded",
    "reset",
    "reset with a decoded method",
    "reset within a beat",
    "continues",
    "replaced by the same",
    "replaced by another",
    "replaced by none",
    "replaced before another method",
    "edit of the served channel",
    "parked",
    "parked with its engine",
    "refused",
    "refused header",
    "let go before another method",
    "let go with a method",
    "let go with two methods",
    "let go with an ended entry",
    "let go with nothing",
    "let go as it takes a dword",
    "let go within a beat",
    "acquire let go",
    "acquire let go although it stays",
    "stays",
    "busy as it must let go",
    "yields",
    "dry",
    "dead",
    "dead as it is loaded",
    "executes although dead",
    "takes a dword although dead",
    "asked although dead",
    "waits for room",
    "waits for a dword",
    "entry ends at once",
    "entry ends later",
    "started",
    "method without a dword",
    "takes a dword without a method",
    "copy setting",
    "copy method without a copy object",
)
"""Situations that the random test must meet."""

TOGETHER = ("another channel", "another channel, loaded", "edit precedes a target")
"""Further situations that it must meet with several channels."""


def acquires(method: Method) -> bool:
    """Whether a semaphore method is an acquire."""
    return operation(method, Settings()).acquires


class PipelineModel:
    """Serves channels.

    Members
    -------
    phase : phase of the next cycle.
    served : channel served in LOAD and RUN; in SELECT, the last one.
    flows : progress of each channel.
    met : number of times each situation was met.
    """

    def __init__(self, channels: int) -> None:
        self.phase = Phase.SELECT
        self.served = 0
        self.flows = [Flow() for _ in range(channels)]
        self.met: Counter[str] = Counter()
        self._edit: Edit | None = None
        # In the previous cycle, the served channel: was alive; had a method refused; executed a
        # setting; was let go.
        self._was_alive = self._refused = self._setting = self._left = False
        self._fresh = False

    @property
    def flow(self) -> Flow:
        """Progress of the served channel."""
        return self.flows[self.served]

    def look(self, objects: tuple[ObjectKind, ...], *, asked: bool) -> Look | None:
        """Method executed in the next cycle, or None."""
        held = self.flow.held
        if self.phase is not Phase.RUN or held is None or self._refused:
            return None
        # A channel that has died may execute one more method.
        if not (self._was_alive or asked):
            return None
        return Look(self.served, held, kind(held, list(objects)), self._fresh)

    def cycle(self, now: Inputs) -> Outputs:
        """Outputs of the cycle; advances to the next one."""
        step = {Phase.SELECT: self._select, Phase.LOAD: self._load, Phase.RUN: self._run}
        return step[self.phase](now)

    # -- SELECT ------------------------------------------------------------------------------------

    def _select(self, now: Inputs) -> Outputs:
        """Choose the next channel: the channel of an edit, else the scheduler's target."""
        out = Outputs(ahead=True)
        chosen = now.target if now.edit is None else now.edit.channel
        again, self._left = self._left and chosen == self.served, False
        if chosen is None:
            return out
        out.select, out.edited, out.take = chosen, now.edit is not None, now.edit is None
        met = self.met
        met["edit precedes a target"] += now.edit is not None and now.target is not None
        if now.edit is None:
            met["its own successor"] += again
            met["another channel"] += chosen != self.served
        else:
            met["edited right after its service"] += again
            met["edited, loaded"] += not again
        self.served, self._edit, self.phase = chosen, now.edit, Phase.LOAD
        if again:
            # The context is still present, so its methods advance in this cycle. After a load they
            # advance in RUN.
            self._advance(None, None, done=False)
        return out

    # -- LOAD --------------------------------------------------------------------------------------

    def _load(self, now: Inputs) -> Outputs:
        edit, flow, alive = self._edit, self.flow, self.served in now.alive
        out = self._serve(now)
        out.leave = out.quit = None
        out.unpark, out.taken = self.served, edit is None
        out.park = Wait.NONE, False
        out.early = edit is None and alive
        self._was_alive, self._refused, self._fresh, self._setting = alive, False, True, False
        if edit is None:
            self.met["dead as it is loaded"] += not alive
            self.met["another channel, loaded"] += flow.taken > 0
            self.phase = Phase.RUN
            return out
        self.phase, self._left = Phase.SELECT, True
        if edit.reset:
            out.reset, out.cleared = True, self.served
            self.met["reset"] += 1
            self.met["reset with a decoded method"] += flow.decoded
            self.met["reset within a beat"] += flow.taken > 0
            flow.held = flow.queued = flow.finish = None
            flow.taken = 0
            return out
        # `lasts`: the channel still waits for an operation begun by its held method.
        out.park = Wait.TURN, True
        if edit.replace:
            self._replace(edit, flow, out)
        else:
            self.met["continues"] += 1
        return out

    def _replace(self, edit: Edit, flow: Flow, out: Outputs) -> None:
        old, new, met = flow.held, edit.method, self.met
        assert old is not None, "only a refused method is replaced"
        out.replace = True
        out.again = new is not None and (new.place, new.subchannel) == (old.place, old.subchannel)
        if old.cause not in (Cause.NONE, *HEADERS):
            out.again = None
        met["replaced by none"] += new is None
        met["replaced by the same"] += out.again is True
        met["replaced by another"] += new is not None and out.again is False
        met["replaced before another method"] += flow.queued is not None
        flow.held = new

    # -- RUN ---------------------------------------------------------------------------------------

    def _serve(self, now: Inputs) -> Outputs:
        """Outputs while a channel is served."""
        edits = now.edit is not None
        return Outputs(
            active=self.served,
            select=self.served,
            leave=now.leave or edits,
            quit=(now.leave and not now.stay) or edits,
        )

    def _run(self, now: Inputs) -> Outputs:
        flow, channel, out = self.flow, self.served, self._serve(now)
        look = self.look(now.objects, asked=now.asked)
        answer = now.answer if look else NO_ANSWER
        done, busy, parks = (
            answer.outcome is one for one in (Outcome.DONE, Outcome.BUSY, Outcome.PARK)
        )
        held, queued, finish = flow.held, flow.queued, flow.finish
        occupied = bool(flow.beats)
        if look:
            out.run = look.method, look.kind
            out.executed = (channel, look.method) if done else None
        if finish is not None and held is None and queued is None:
            out.finished = Entry(channel, finish)
            flow.finish = None
        room = self._was_alive and queued is None and finish is None
        takes = room and now.head
        method = self._take(out) if takes else None
        dead = self._refused or channel not in now.alive
        dry = held is None and queued is None and finish is None and not occupied
        acquire = held is not None and kind(held, list(now.objects)) is Kind.SEMAPHORE
        acquire = acquire and held is not None and acquires(held)
        wanted = bool(out.quit) or (now.leave and acquire) or answer.yields
        gone = parks or ((dead or dry or wanted) and not busy)
        self._meet(now, look, answer, takes=takes, room=room, method=method)
        self._advance(look, method, done=done)
        left = flow.decoded
        if parks:
            out.park = answer.wait, False
            out.released = None if answer.keep else channel
        elif wanted and not busy:
            # A dword taken in this cycle is decoded too late to decide between these waits.
            out.park = (Wait.TURN if left else None if takes else Wait.NONE), False
        else:
            out.park = Wait.NONE, False
        if gone:
            stays = now.stay and now.edit is None
            self._meet_end(answer, stays=stays, dead=dead, dry=dry, takes=takes, acquire=acquire)
            assert parks or dead or wanted or not left, "lost"
            self.phase, self._left = Phase.SELECT, True
        self._fresh = False
        self._was_alive = channel in now.alive
        self._refused = answer.outcome is Outcome.REFUSE
        return out

    def _take(self, out: Outputs) -> Method | None:
        """Take the next dword of the served channel. Returns its method."""
        flow, channel = self.flow, self.served
        beat = flow.beats[0]
        if beat.first and not flow.taken:
            out.started = Entry(channel, beat.get)
            self.met["started"] += 1
        method = beat.methods[flow.taken]
        flow.taken += 1
        self.met["method without a dword"] += beat.cause != Cause.NONE
        self.met["takes a dword without a method"] += method is None
        if flow.taken == len(beat.methods):
            out.pops, flow.taken = True, 0
            flow.beats.popleft()
            if beat.end:
                flow.finish = beat.get
        return method

    def _advance(self, look: Look | None, method: Method | None, *, done: bool) -> None:
        """Advance the decoded methods. A state method that is done makes room in this cycle, any
        other in the next."""
        flow = self.flow
        free = flow.held is None or (done and look is not None and look.kind is Kind.STATE)
        if done:
            flow.held = None
        following = method if flow.queued is None else flow.queued
        if free:
            flow.held, flow.queued = following, None
        else:
            flow.queued = following
        self._setting = done and look is not None and look.kind is Kind.STATE

    # -- coverage ----------------------------------------------------------------------------------

    def _meet(
        self,
        now: Inputs,
        look: Look | None,
        answer: Answer,
        *,
        takes: bool,
        room: bool,
        method: Method | None,
    ) -> None:
        met, flow, alive = self.met, self.flow, self.served in now.alive
        outcome, must = answer.outcome, now.leave or now.edit is not None
        refused = outcome is Outcome.REFUSE
        sets = look is not None and look.kind is Kind.STATE and outcome is Outcome.DONE
        met["two settings in successive cycles"] += self._setting and sets
        met["edit of the served channel"] += (
            now.edit is not None and now.edit.channel == self.served
        )
        met["parked"] += outcome is Outcome.PARK
        met["parked with its engine"] += outcome is Outcome.PARK and answer.keep
        met["refused"] += refused
        met["refused header"] += refused and look is not None and look.method.cause != Cause.NONE
        met["busy as it must let go"] += outcome is Outcome.BUSY and must
        met["yields"] += answer.yields
        met["executes although dead"] += not alive and outcome is Outcome.DONE
        met["takes a dword although dead"] += not alive and takes
        met["asked although dead"] += not self._was_alive and look is not None
        met["waits for room"] += now.head and not room
        met["waits for a dword"] += room and not now.head and bool(flow.beats)
        met["stays"] += now.leave and now.stay and outcome is Outcome.DONE
        ends = flow.finish is not None and takes
        met["entry ends at once"] += ends and flow.held is None and method is None
        met["entry ends later"] += ends and flow.held is not None
        if look is not None and look.method.place in {*CeMethod}:
            met["copy setting"] += sets
            met["copy method without a copy object"] += look.kind is Kind.CONTROL

    def _meet_end(
        self, answer: Answer, *, stays: bool, dead: bool, dry: bool, takes: bool, acquire: bool
    ) -> None:
        met, flow = self.met, self.flow
        methods = sum(one is not None for one in (flow.held, flow.queued))
        wanted = not (dead or dry or answer.outcome is Outcome.PARK)
        met["dead"] += dead
        met["dry"] += dry
        met["let go before another method"] += wanted and flow.queued is not None
        met["let go with a method"] += wanted and methods == 1
        met["let go with two methods"] += wanted and methods == 2
        met["let go with an ended entry"] += wanted and not methods and flow.finish is not None
        met["let go with nothing"] += wanted and not flow.decoded
        met["let go as it takes a dword"] += wanted and takes
        met["let go within a beat"] += wanted and flow.taken > 0
        undecided = wanted and acquire and answer.outcome is Outcome.NONE
        met["acquire let go"] += undecided
        met["acquire let go although it stays"] += undecided and stays
