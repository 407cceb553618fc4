"""Carries out the requests of a workload in the order of their times. Some wait for other work to
end."""

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

__all__ = ["Action", "Agenda", "End"]

_LOOK_CYCLES = 20
"""Cycles between two polls of work that an action waits for."""


class End(Protocol):
    """The end of work; `driver.runtime.event.Event` is one."""

    @property
    def recorded(self) -> bool:
        """Whether the work was submitted."""
        ...

    @property
    def cycle(self) -> int:
        """Machine cycle in which it ended."""
        ...

    def query(self) -> bool:
        """Whether it has ended."""
        ...


@dataclass(kw_only=True)
class Action:
    """Something to do in a given machine cycle, or later.

    Members
    -------
    at : earliest cycle.
    act : carries the action out; returns False if it must be tried again later.
    stream : name of the stream to which it submits work; "" if to none.
    delay : minimum number of cycles from the end of all earlier work of the stream to the action;
        None: it does not wait for that end.
    done : end of the work that the action submits; None if it submits none.
    needs : ends of the work that must be submitted before the action.
    """

    at: int
    act: Callable[[], Awaitable[bool | None]]
    stream: str = ""
    delay: int | None = None
    done: End | None = None
    needs: Sequence[End] = ()


class Agenda:
    """Carries out actions in the order of their times. Actions of a stream keep the order of `at`,
    so one that must wait also delays the later ones.

    Parameters
    ----------
    wait_until : waits until a machine cycle.
    now : the current cycle.
    """

    def __init__(
        self,
        actions: Sequence[Action],
        wait_until: Callable[[int], Awaitable[None]],
        now: Callable[[], int],
    ) -> None:
        self._streams: dict[object, deque[tuple[int, Action]]] = {}
        self._last: dict[str, End] = {}
        self._wait_until, self._now = wait_until, now
        for number, action in enumerate(sorted(actions, key=lambda one: one.at)):
            # Without a stream, actions do not wait for one another.
            self._streams.setdefault(action.stream or number, deque()).append((number, action))

    async def run(self) -> None:
        """Carry out all actions. Raises as they and `wait_until` do."""
        while self._streams:
            at, _, key = self._next()
            await self._wait_until(at)
            _, action = self._streams[key][0]
            due = self._due(action)
            if due is None or due > at:
                continue
            if await action.act() is False:
                action.at = self._now() + _LOOK_CYCLES
                continue
            self._streams[key].popleft()
            if not self._streams[key]:
                del self._streams[key]
            if action.done is not None:
                self._last[action.stream] = action.done

    def _next(self) -> tuple[int, int, object]:
        """Cycle in which to look at the next action, number of the action, and key of its queue."""
        later, found = self._now() + _LOOK_CYCLES, []
        for key, actions in self._streams.items():
            number, action = actions[0]
            due = self._due(action)
            found.append((max(action.at, later) if due is None else due, number, key))
        return min(found, key=lambda one: one[:2])

    def _due(self, action: Action) -> int | None:
        """Cycle in which an action is due; None if it is not known yet."""
        if not all(end.recorded for end in action.needs):
            return None
        last = self._last.get(action.stream)
        if action.delay is None or last is None:
            return action.at
        return max(action.at, last.cycle + action.delay) if last.query() else None
