"""Events in CUDA's terms: moments in a stream, recorded with the machine's time."""

from contextlib import AbstractAsyncContextManager
from typing import Protocol

from signalbox.driver.channel.channel import Channel
from signalbox.driver.commands.pushbuffer import Pushbuffer
from signalbox.driver.memory.address_space import AddressSpace
from signalbox.driver.memory.fence import Fence
from signalbox.driver.runtime.services import Services
from signalbox.hw.methods import SemOp

__all__ = ["Event", "EventError"]


class Recorder(Protocol):
    """A stream (`driver.runtime.stream.Stream`), as far as events use it."""

    space: AddressSpace

    @property
    def channel(self) -> Channel: ...

    @property
    def channels(self) -> tuple[Channel, ...]: ...

    def submission(self) -> AbstractAsyncContextManager[None]: ...

    async def enqueue(self, commands: Pushbuffer) -> None: ...

    async def submit(self, commands: Pushbuffer) -> None: ...


class EventError(Exception):
    """An event is not in the state that the call needs."""


class Event:
    """A moment in a stream, recorded with the machine's time. Made by `Device.event`.

    Recording again moves the event; waits refer to the record that was submitted last. There is one
    fence for each channel that the event was recorded in: two channels would release a common one
    in any order.
    """

    def __init__(self, services: Services, *, interrupt: bool) -> None:
        self.interrupt = interrupt
        self._services = services
        self._fences: dict[Channel, Fence] = {}
        self._fence: Fence | None = None
        self._channels: tuple[Channel, ...] = ()

    @property
    def recorded(self) -> bool:
        """Whether a record was ever submitted."""
        return bool(self._channels)

    def query(self) -> bool:
        """Whether the last record has been executed; an event without one counts as executed."""
        return self._fence is None or self._fence.reached(self._fence.submitted)

    async def record(self, stream: Recorder) -> None:
        """Record when everything submitted to `stream` so far has ended."""
        async with stream.submission():
            fence = await self.fence_in(stream.channel)
            commands = Pushbuffer().release(fence.address, fence.following, timestamp=True)
            if self.interrupt:
                commands.non_stall_interrupt(stream.channel.index)
            await stream.enqueue(commands)
            self.recorded_in(stream.channels, fence)

    async def wait(self, stream: Recorder) -> None:
        """Make later work of `stream` wait for the last record; without one, nothing (CUDA).

        Within one channel the order of submission says it already. The streams may be in different
        address spaces.
        """
        fence = self._fence
        if fence is not None and self._channels != stream.channels:
            value, address = fence.submitted, await fence.address_in(stream.space)
            await stream.submit(Pushbuffer().acquire(address, value, SemOp.ACQ_CIRC_GEQ))

    async def synchronize(self) -> None:
        """Wait until the last record has been executed. Raises `ChannelError`, `EventError`."""
        if not self.interrupt and not self.query():
            raise EventError("the event was made with interrupt=False: synchronize its stream")
        fence = self._fence
        if fence is not None:
            await self._services.completion.wait_fence(fence, fence.submitted, self._channels)

    @property
    def time_ns(self) -> int:
        """PTIMER of the last record. Raises `EventError` before it was executed."""
        if self._fence is None:
            raise EventError("the event was never recorded")
        if not self.query():
            raise EventError("the event's record has not been executed yet")
        return self._fence.time_ns

    @property
    def cycle(self) -> int:
        """`time_ns` as a cycle of the machine."""
        return self._services.clock.cycle_of(self.time_ns)

    def elapsed_ns(self, start: "Event") -> int:
        """Nanoseconds from `start` to this event."""
        return self.time_ns - start.time_ns

    def elapsed_cycles(self, start: "Event") -> int:
        """Clock cycles from `start` to this event."""
        return self.elapsed_ns(start) // self._services.clock.cycle_ns

    async def fence_in(self, channel: Channel) -> Fence:
        """Fence for a record in a channel, during one's turn there."""
        if channel not in self._fences:
            self._fences[channel] = await self._services.fences.of(channel.space).take()
        return self._fences[channel]

    def recorded_in(self, channels: tuple[Channel, ...], fence: Fence) -> None:
        """A record by `fence` was submitted; `channels` must go on for it to be executed."""
        self._fence = fence
        fence.advance()
        self._channels = channels
