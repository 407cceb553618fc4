"""Taking turns: one task after another, in the order in which they came."""

from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from driver.platform.machine import Machine

__all__ = ["Turns"]

TURN_CYCLES = 16
"""Cycles between looks of a task whether it is its turn."""


class Turns:
    """Something that one task has to itself at a time. The driver's tasks share no event loop but
    the machine's clock, so waiting is looking."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._queue: deque[object] = deque()

    @asynccontextmanager
    async def take(self) -> AsyncGenerator[None, None]:
        """Have it to oneself; who asked first is first."""
        ticket = object()
        self._queue.append(ticket)
        try:
            while self._queue[0] is not ticket:
                await self._machine.wait_cycles(TURN_CYCLES)
            yield
        finally:
            self._queue.remove(ticket)
