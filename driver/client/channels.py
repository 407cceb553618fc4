"""Channels of a client: commands are in its memory, pointers to them go to the server's queue."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

from signalbox.driver.channel.command_channel import CommandChannel
from signalbox.driver.channel.segments import Segments
from signalbox.driver.client.connection import Connection
from signalbox.driver.client.spaces import ClientSpace
from signalbox.driver.commands.pushbuffer import Pushbuffer
from signalbox.driver.compute.launcher import Launcher
from signalbox.driver.faults.channel_error import ChannelError
from signalbox.driver.faults.task_error import TaskError
from signalbox.driver.memory.address_space import AddressSpace
from signalbox.driver.memory.fence import Fence
from signalbox.driver.memory.physical import Buffer, Memory
from signalbox.driver.platform.fair_lock import FairLock
from signalbox.driver.platform.machine import Machine
from signalbox.driver.protocol.errors import CommandsRefused, ServerError, error_of
from signalbox.driver.protocol.messages import (
    CloseChannel,
    Done,
    ErrorReport,
    Event,
    Failed,
    Halted,
    Look,
    OpenChannel,
    Opened,
    RaisePriority,
    Refused,
    Result,
    Resume,
    Seen,
    Submit,
    Taken,
    Welcome,
)
from signalbox.driver.runtime.channels import Channels
from signalbox.driver.runtime.services import released

__all__ = ["ClientChannel", "ClientChannels", "ClientWaits"]

_LONGEST = 4
"""Memory of a channel, in submissions of the maximum length."""

_DWORD = 4


class ClientChannel(CommandChannel):
    """A channel of the server's machine. Created by `ClientChannels.for_priority`.

    Parameters
    ----------
    arena : memory for commands.
    welcome : limits of the server.
    launcher : compute engine, or None.
    """

    def __init__(
        self,
        connection: Connection,
        machine: Machine,
        space: AddressSpace,
        index: int,
        arena: Buffer,
        welcome: Welcome,
        launcher: Launcher | None,
    ) -> None:
        super().__init__(machine, space, index)
        self._connection, self._arena, self._welcome = connection, arena, welcome
        self._launcher = launcher
        self._segments = Segments(arena.size)
        self._submitted = self._taken = self._priority = self._resumes = 0
        # Numbers of the submissions that the server may still read.
        self._untaken: deque[int] = deque()

    @property
    def largest_segment(self) -> int:
        """See `CommandChannel.largest_segment`."""
        return self._welcome.dwords

    async def enqueue(self, dwords: Sequence[int], *, sync: bool = False) -> None:
        """See `CommandChannel.enqueue`. Waits while the channel's share of the server's queue, or
        its memory, is full."""
        if len(dwords) > self.largest_segment:
            raise ValueError(
                f"{len(dwords)} dwords are more than the {self.largest_segment} of one submission"
            )
        self.check_open()
        data = Pushbuffer().raw(*dwords).to_bytes()
        while self._full() or (start := self._segments.place(self._submitted, len(data))) is None:
            if self.failure is not None:
                raise self.failure
            await self._connection.news()
            self.check_open()
        number = self._submitted
        self._submitted += 1
        self._untaken.append(number)
        self._arena.write(data, start)
        # Not awaited: a cancelled caller cannot take back a call that is under way.
        request = Submit(self.index, self._arena.at(start), len(dwords), sync)
        self._connection.post(request, lambda answer: self._queued(number, answer))

    def _queued(self, number: int, answer: Result) -> None:
        """A refused submission leaves the queue, and halts the channel, as refused commands do."""
        if not isinstance(answer, Refused):
            return
        self._untaken.remove(number)
        self._free()
        if self.failure is None:
            self.failure = CommandsRefused.of(self.index, answer.message)

    def _full(self) -> bool:
        channels = max(1, self._welcome.channels)
        return len(self._untaken) >= self._welcome.queue // channels

    def _free(self) -> None:
        """Free the memory of submissions that the server no longer reads."""
        self._segments.free(self._untaken[0] if self._untaken else self._submitted)

    async def ring_doorbell(self) -> None:
        """Does nothing: the server rings the doorbell."""

    async def raise_priority(self, priority: int) -> None:
        """See `CommandChannel.raise_priority`."""
        if priority > self._priority:
            await self._connection.call(RaisePriority(self.index, priority), Done)
            self._priority = priority

    async def _look(self) -> Seen:
        return await self._connection.call(Look(self.index), Seen)

    async def progress(self) -> int:
        """See `CommandChannel.progress`."""
        return (await self._look()).progress

    async def executed(self) -> int:
        """See `CommandChannel.executed`."""
        return (await self._look()).executed

    async def waits_for(self) -> int:
        """See `CommandChannel.waits_for`."""
        return (await self._look()).waits_for

    async def check(self) -> ChannelError | None:
        """See `CommandChannel.check`."""
        seen = await self._look()
        if seen.failure is not None:
            self._halted(seen.failure, seen.resumes)
        return self.failure

    async def resume(self) -> None:
        """See `CommandChannel.resume`. Raises `RepeatError` as `Channel.resume`."""
        await self._continue(skip=False)

    async def skip(self) -> None:
        """See `CommandChannel.skip`."""
        await self._continue(skip=True)

    async def _continue(self, *, skip: bool) -> None:
        if isinstance(self.failure, CommandsRefused):  # the server has continued after them
            self.failure = None
            await self.check()
            return
        self.failure = None
        self._resumes += 1
        await self._connection.call(Resume(self.index, skip), Done)

    def end(self) -> None:
        """Free the channel's memory, once the server has closed it and killed its tasks.
        Submissions that wait for room, and later ones, fail."""
        self.closed = True
        self.tasks.end()
        self._arena.free()

    # -- news --------------------------------------------------------------------------------------

    def heard(self, event: Taken | Halted | Failed) -> None:
        """Note news of the channel."""
        match event:
            case Taken(count=count):
                for _ in range(min(count - self._taken, len(self._untaken))):
                    self._untaken.popleft()
                self._taken = count
                self._free()
            case Halted(resumes=resumes, error=report):
                self._halted(report, resumes)
            case Failed(error=report):
                error = self._explained(report)
                assert isinstance(error, TaskError), "tasks alone fail by themselves"
                self.tasks.failed(error)

    def _halted(self, report: ErrorReport, resumes: int) -> None:
        """Note a failure, unless the channel has been resumed after it."""
        if self.failure is None and resumes == self._resumes:
            self.failure = self._explained(report)

    def _explained(self, report: ErrorReport) -> ChannelError:
        """The error, with details of its task and address space that only the client knows."""
        error = error_of(report)
        if (fault := error.fault) is not None and fault.space is not None:
            context = self.space.describe(fault.va)
            error.fault = replace(fault, space=self.space.name, context=context)
        if self._launcher is None or not isinstance(error, TaskError):
            return error
        kernels, task = self._launcher.lineage(self.space, error.record), self.tasks.find(error.va)
        return kernels.complete(error, task.program if task else kernels.programs[0])


class ClientChannels(Channels[ClientChannel]):
    """Channels of a client, by the machine's number."""

    def __init__(
        self,
        connection: Connection,
        machine: Machine,
        memory: Memory,
        welcome: Welcome,
        launcher: Launcher | None,
    ) -> None:
        super().__init__(welcome.levels)
        self._connection, self._machine, self._memory = connection, machine, memory
        self._welcome, self._launcher = welcome, launcher
        self._channels: dict[int, ClientChannel] = {}
        self._closing: set[int] = set()
        self._lock = FairLock(machine)
        connection.listen(self._heard)

    def __getitem__(self, index: int) -> ClientChannel:
        return self._channels[index]

    def __iter__(self) -> Iterator[int]:
        return iter(self._channels)

    def __len__(self) -> int:
        return len(self._channels)

    async def for_priority(self, priority: int, space: AddressSpace) -> ClientChannel:
        """See `Channels.for_priority`."""
        async with self._lock:
            await self._close_unused()
            channel = await self._opened(priority, space)
            self._uses[channel] += 1
            return channel

    async def _opened(self, priority: int, space: AddressSpace) -> ClientChannel:
        assert isinstance(space, ClientSpace), "spaces of a client's device are such"
        await space.open()
        size = _LONGEST * _DWORD * self._welcome.dwords
        arena = self._memory.allocate(size, name="commands")

        def answered(answer: Result) -> None:
            if isinstance(answer, Opened) and answer.channel not in self._channels:
                parts = self._connection, self._machine, space, answer.channel, arena, self._welcome
                made = self._channels[answer.channel] = ClientChannel(*parts, self._launcher)
                self._uses[made] = 0  # unused if this call was interrupted
            else:
                arena.free()

        request = OpenChannel(space.base, priority)
        opened = await self._connection.call(request, Opened, answered)
        return self._channels[opened.channel]

    async def _close_unused(self) -> None:
        """Close the channels that interrupted calls have left open."""
        for channel in [one for one in self._channels.values() if self._unused(one)]:
            with suppress(ServerError):  # it is still active
                await self._remove(channel.index)

    def _changes(self, index: int) -> FairLock:
        """The same lock for all channels, as the server chooses which one is opened."""
        return self._lock

    async def _remove(self, index: int) -> None:
        while index in self._closing:  # for a call that was interrupted
            await self._connection.news()
        if index not in self._channels:
            return

        def answered(answer: Result) -> None:
            self._closing.remove(index)
            if not isinstance(answer, Refused):
                channel = self._channels.pop(index)
                self._uses.pop(channel, None)
                channel.end()

        self._closing.add(index)
        await self._connection.call(CloseChannel(index), Done, answered)

    def _heard(self, event: Event) -> None:
        if isinstance(event, (Taken, Halted, Failed)) and event.channel in self._channels:
            self._channels[event.channel].heard(event)


class ClientWaits:
    """Waiting for the machine, as a client: the `driver.runtime.services.Waits`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def wait_fence(
        self, fence: Fence, value: int, channels: Sequence[CommandChannel]
    ) -> None:
        """See `Waits.wait_fence`."""
        await self.wait_for(lambda: released(fence, value, channels), channels)

    async def wait_for(self, done: Callable[[], bool], channels: Sequence[CommandChannel]) -> None:
        """See `Waits.wait_for`. Raises `ServerError` if the connection has ended."""
        while not done():
            for channel in channels:
                if channel.failure is not None:
                    raise channel.failure
            await self._connection.news()
