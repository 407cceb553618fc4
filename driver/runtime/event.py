"""Events as in CUDA: points in a stream, recorded with a timestamp."""

from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol

from signalbox.driver.channel.command_channel import CommandChannel
from signalbox.driver.commands.pushbuffer import Pushbuffer
from signalbox.driver.memory.address_space import AddressSpace
from signalbox.driver.memory.fence import Fence
from signalbox.driver.runtime.services import Services
from signalbox.hw.methods import SemOp

__all__ = ["Event", "EventError"]


class Recorder(Protocol):
    """The part of a stream (`driver.runtime.stream.Stream`) that events use."""

    space: AddressSpace

    @property
    def channel(self) -> CommandChannel: ...

    @property
    def channels(self) -> tuple[CommandChannel, ...]: ...

    def submission(self) -> AbstractAsyncContextManager[None]: ...

    async def enqueue(self, commands: Pushbuffer) -> None: ...

    async def submit(self, commands: Pushbuffer) -> None: ...


class EventError(Exception):
    """An event is in the wrong state for the call."""


class Event:
    """A point in a stream, recorded with a timestamp. Created by `Device.event`.

    An event can be recorded again; waits refer to the record submitted last. An event has a
    separate fence for each channel: two channels could release a common one in any order.
    """

    def __init__(self, services: Services, *, interrupt: bool) -> None:
        self.interrupt = interrupt
        self._services = services
        self._fences: dict[CommandChannel, Fence] = {}
        self._fence: Fence | None = None
        self._channels: tuple[CommandChannel, ...] = ()

    @property
    def recorded(self) -> bool:
        """Whether the event was ever recorded."""
        return bool(self._channels)

    def query(self) -> bool:
        """Whether the last record has been executed; True if there is none."""
        return self._fence is None or self._fence.reached(self._fence.submitted)

    async def record(self, stream: Recorder) -> None:
        """Record the event after everything submitted to `stream` so far. Raises `StreamError` for
        a closed stream; `EventError` for a stream of another device; `ChannelError`; `OutOfMemory`,
        `OutOfAddresses`."""
        async with stream.submission():
            async with self.recording(stream.channel, stream.channels) as fence:
                commands = Pushbuffer().release(fence.address, fence.following, timestamp=True)
                if self.interrupt:
                    commands.non_stall_interrupt(stream.channel.index)
                await stream.enqueue(commands)

    async def wait(self, stream: Recorder) -> None:
        """Make later work of `stream` wait for the last record; do nothing if there is none, as in
        CUDA. The streams may be in different address spaces.

        If both use the same channel, nothing is submitted: the channel executes in order. Raises
        `EventError` if the address space of the record was closed before the record was executed;
        `StreamError` for a closed stream; `ChannelError`; `OutOfMemory`, `OutOfAddresses`.
        """
        fence = self._fence
        if fence is not None and self._channels != stream.channels and not self._over(fence):
            value, address = fence.submitted, await fence.address_in(stream.space)
            await stream.submit(Pushbuffer().acquire(address, value, SemOp.ACQ_CIRC_GEQ))

    async def synchronize(self) -> None:
        """Wait until the last record has been executed. Raises `EventError` if the record has not
        been executed and the event was made with interrupt=False, or its address space was closed;
        otherwise as `Completion.wait_fence`."""
        fence = self._fence
        if fence is None or self._over(fence):
            return
        if not self.interrupt and not self.query():
            raise EventError("the event was made with interrupt=False: synchronize its stream")
        await self._services.completion.wait_fence(fence, fence.submitted, self._channels)

    def _over(self, fence: Fence) -> bool:
        """Whether nothing is left to wait for, as the space of the last record was closed after the
        record was executed. Raises `EventError` if it was closed before."""
        if fence.closed and not self.query():
            raise EventError("the event's address space was closed before its record was executed")
        return fence.closed

    @property
    def time_ns(self) -> int:
        """PTIMER of the last record, in ns. Raises `EventError` until it has been executed."""
        if self._fence is None:
            raise EventError("the event was never recorded")
        if not self.query():
            raise EventError("the event's record has not been executed yet")
        return self._fence.time_ns

    @property
    def cycle(self) -> int:
        """Machine cycle of the last record. Raises as `time_ns`."""
        return self._services.clock.cycle_of(self.time_ns)

    def elapsed_ns(self, start: "Event") -> int:
        """Nanoseconds from `start` to this event. Raises as `time_ns`."""
        return self.time_ns - start.time_ns

    def elapsed_cycles(self, start: "Event") -> int:
        """Clock cycles from `start` to this event. Raises as `time_ns`."""
        return self.elapsed_ns(start) // self._services.clock.cycle_ns

    def close(self) -> None:
        """Return the event's memory. The event then counts as never recorded, and can be recorded
        again. Work that already waits for its last record continues to wait for it."""
        self._fence, self._channels = None, ()
        self._retire()

    @asynccontextmanager
    async def recording(
        self, channel: CommandChannel, channels: tuple[CommandChannel, ...]
    ) -> AsyncGenerator[Fence, None]:
        """Fence for a record that the `with` block submits to `channel`, within the channel's turn.
        The record's execution depends on `channels`. A block that fails must have submitted
        nothing. Raises `EventError` for a channel of another device."""
        if channel.machine is not self._services.machine:
            raise EventError("the event belongs to another device than the stream")
        # Removed, so that no other record returns the fence meanwhile.
        fence = self._fences.pop(channel, None)
        fence = fence or await self._services.fences.of(channel.space).take()
        try:
            yield fence
            fence.advance()
            self._fence, self._channels = fence, channels
            self._retire()
        finally:
            self._fences[channel] = fence

    def _retire(self) -> None:
        """Return all fences but those of records in progress."""
        for channel, fence in self._fences.items():
            self._services.fences.retire(fence, channel.space)
        self._fences.clear()
