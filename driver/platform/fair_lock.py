"""A lock for tasks that share no event loop but the machine's clock."""

from collections import deque

from signalbox.driver.platform.machine import Machine

__all__ = ["FairLock"]

POLL_CYCLES = 16
"""Cycles between looks of a waiting task."""


class FairLock:
    """Asynchronous context manager that one task holds at a time, in order of arrival."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._queue: deque[object] = deque()

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
