"""A lock for coroutines that share only the machine's clock, not an event loop."""

from collections import deque

from signalbox.driver.platform.machine import Machine

__all__ = ["FairLock"]

POLL_CYCLES = 16
"""Clock cycles between two polls of a waiting coroutine."""


class FairLock:
    """Asynchronous context manager held by one coroutine at a time, in order of arrival."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._queue: deque[object] = deque()

    @property
    def held(self) -> bool:
        """Whether a coroutine holds it."""
        return bool(self._queue)

    async def __aenter__(self) -> None:
        ticket = object()
        self._queue.append(ticket)
        try:
            while self._queue[0] is not ticket:
                await self._machine.wait_cycles(POLL_CYCLES)
        except BaseException:
            self._queue.remove(ticket)
            raise

    async def __aexit__(self, *_: object) -> None:
        self._queue.popleft()
