"""Calls of applications, checked and carried out."""

from collections.abc import Callable
from collections.abc import Mapping as TableOf

from signalbox.driver.channel.channel import Channel
from signalbox.driver.channel.copy_replay import RepeatError
from signalbox.driver.device import Device
from signalbox.driver.memory.address_space import AddressSpace
from signalbox.driver.memory.mapping import Mapping
from signalbox.driver.memory.physical import MemoryUseError, OutOfMemory
from signalbox.driver.platform.fair_lock import FairLock
from signalbox.driver.platform.info import DeviceError
from signalbox.driver.protocol.errors import report
from signalbox.driver.protocol.messages import (
    CloseChannel,
    CloseSpace,
    Done,
    Kill,
    Look,
    Map,
    Number,
    OpenChannel,
    Opened,
    OpenSpace,
    Protect,
    RaisePriority,
    ReadTime,
    Request,
    Result,
    Resume,
    Seen,
    Settle,
    Submit,
    Unmap,
    Wait,
)
from signalbox.driver.runtime.own_machine import OwnMachine
from signalbox.driver.server.application import Application, ServedChannel
from signalbox.driver.server.issue_policy import Pointer
from signalbox.driver.server.journal import Kind, Note
from signalbox.driver.server.settings import ServerSettings

__all__ = ["Calls"]

_WAIT_CYCLES = 1000
"""Cycles within which a wait notices that its application has left."""

_LARGEST_REPEAT = 1 << 20
"""Maximum size, in bytes, of a copy that is repeated."""

_MOST_LINES = 4096
"""Maximum number of lines of a copy that is repeated."""

_SPACES_EACH = 8


class Calls:
    """Calls of all applications.

    Parameters
    ----------
    applications : present applications, by number.
    owed : number of channels kept for applications without any.
    note : writes to the server's journal.
    """

    def __init__(
        self,
        device: Device,
        owner: OwnMachine,
        settings: ServerSettings,
        applications: TableOf[int, Application],
        owed: Callable[[], int],
        note: Note,
    ) -> None:
        self._device, self._owner, self._settings = device, owner, settings
        self._applications, self._owed, self._note = applications, owed, note
        self._further = FairLock(device.machine)

    async def carry_out(self, application: Application, request: Request) -> Result:
        """Carry out a call. Raises the exception to be sent to the client."""
        match request:
            case Submit():
                self._submit(application, request)
                return Done()
            case ReadTime():
                return Number(await self._device.time_ns())
            case Wait():
                await self._wait(application, request.cycles)
                return Done()
        async with application.changes:
            return await self._change(application, request)

    async def _change(self, application: Application, request: Request) -> Result:
        """Carry out a call that names spaces or channels: one at a time, so that these belong to
        the application throughout."""
        match request:
            case Look():
                return await self._look(application.channel(request.channel))
            case Kill():
                await self._kill(application.space(request.space), request.record)
            case OpenSpace():
                await self._open_space(application, request.space, request.size)
            case Map():
                await self._map(application, request)
            case Unmap():
                space, mapping = self._mapping(application, request.space, request.va)
                await space.unmap(mapping)
            case Protect():
                space, mapping = self._mapping(application, request.space, request.va)
                await space.protect(mapping, read_only=request.read_only)
            case Settle():
                await application.space(request.space).settle()
            case CloseSpace():
                await self._close_space(application, request.space)
            case OpenChannel():
                if not application.channels:  # its first one is kept for it
                    return await self._open(application, request)
                async with self._further:  # each sees the channels that the previous one left
                    return await self._open(application, request)
            case CloseChannel():
                await self.close(application, request.channel)
            case RaisePriority():
                await self._raise(application, request)
            case Resume():
                await self._resume(application.channel(request.channel), skip=request.skip)
            case _:
                raise DeviceError(f"{type(request).__name__} cannot be called now")
        return Done()

    # -- address spaces ----------------------------------------------------------------------------

    async def _open_space(self, application: Application, number: int, size: int) -> None:
        """Create a space, whose tasks run in the application's context, and whose channels have
        its turns."""
        if number in application.spaces:
            raise DeviceError(f"{application} has an address space {number} already")
        if len(application.spaces) >= _SPACES_EACH:
            raise DeviceError(f"{application} has {_SPACES_EACH} address spaces already")
        name, memory = f"space {number} of {application}", application.portion.allocator
        space = self._device.spaces.create(name, size=size, memory=memory)
        application.spaces[number] = space
        if application.context is not None:
            self._device.engine.contexts.choose(space, application.context)
        if self._settings.scheduling == "runlist":
            turns = {"slice_ns": application.group.slice_ns, "level": application.group.level}
            try:
                await self._device.runlist.configure(space, **turns)
            except Exception:
                await self._close_space(application, number)
                raise

    async def _map(self, application: Application, request: Map) -> None:
        if not application.owns(request.pa, request.size):
            raise MemoryUseError(
                f"{request.size} bytes at physical {request.pa:#x} are not memory of {application}"
            )
        space = application.space(request.space)
        await space.map(
            request.pa,
            request.size,
            va=request.va,
            page_size=request.page,
            read_only=request.read_only,
            atomics=request.atomics,
        )

    def _mapping(
        self, application: Application, number: int, va: int
    ) -> tuple[AddressSpace, Mapping]:
        """A mapping of an application, not one of the server's own. Raises `MemoryUseError`."""
        space = application.space(number)
        mapping = space.find(va)
        if mapping is None or mapping.va != va or mapping.buffer is not None:
            raise MemoryUseError(f"{application} has mapped nothing at {va:#x} of {space}")
        return space, mapping

    async def _close_space(self, application: Application, number: int) -> None:
        space = application.space(number)
        for index, served in list(application.channels.items()):
            if served.channel.space is space:
                await self.close(application, index)
        await self._device.close_space(space)
        del application.spaces[number]

    # -- channels ----------------------------------------------------------------------------------

    async def _open(self, application: Application, request: OpenChannel) -> Opened:
        space = application.space(request.space)
        greatest = application.limits.greatest
        if request.priority < greatest:
            raise ValueError(f"priority = {request.priority} is outside {greatest} … 0")
        open_ = [one for one in application.channels.values() if not one.channel.closed]
        own = [one for one in open_ if one.channel.space is space]
        if application.channels and not self._spare(application):
            if not own:
                raise DeviceError(f"{application} can have no channel for another address space")
            return Opened(min(own, key=lambda one: len(one.waiting)).channel.index)
        try:
            channel = await self._owner.channels.for_priority(request.priority, space)
        except OutOfMemory:
            if not own:
                raise
            return Opened(own[0].channel.index)
        if channel.index not in application.channels:
            application.channels[channel.index] = ServedChannel(channel)
            try:
                await self._prepare(application, channel)
            except Exception:
                await self.close(application, channel.index)
                raise
        return Opened(channel.index)

    def _spare(self, application: Application) -> bool:
        """Whether an application that has a channel may open another: every present or future
        application gets one first. Of those without any, what they are opening or closing is the
        one that is kept for them."""
        if len(application.channels) >= self._settings.channels_each:
            return False
        others = [one for one in self._applications.values() if not one.channels]
        kept = {space for one in others for space in one.spaces.values()}
        info, spaces = self._device.info, self._owner.spaces
        used = [one for one in self._owner.channels.values() if one.space not in kept]
        bound = [one for one in spaces if spaces.users(one) and one not in kept]
        return min(info.channels - len(used), info.asids - len(bound)) > self._owed()

    async def _prepare(self, application: Application, channel: Channel) -> None:
        """Run the channel's tasks in the application's context. Killed tasks do not halt the
        channel, but are reported to the client."""
        self._note(Kind.OPENED, application, channel.index)
        channel.kills += 1
        channel.tasks = application.reported(channel.index, self._device.machine.now)
        if application.context is not None:
            contexts = self._device.engine.contexts
            contexts.enter(channel.space)
            if self._device.info.nested_kernels:
                await contexts.nest(channel.space, self._settings.depth)

    async def close(self, application: Application, index: int) -> None:
        """Close a channel. Raises `ChannelActive`, and then keeps the channel."""
        served = application.channel(index)
        self.drop(application, served)
        del application.channels[index]
        try:
            await self._owner.channels.close(index)
        except Exception:
            application.channels[index] = served
            raise
        self._note(Kind.CLOSED, application, index)

    def drop(self, application: Application, served: ServedChannel) -> None:
        """Take the pointers of a channel from the queue."""
        for _ in served.waiting:
            self._note(Kind.DROPPED, application, served.channel.index)
        served.waiting.clear()

    def _submit(self, application: Application, request: Submit) -> None:
        if not application.owns(request.pa, 4 * request.dwords):
            raise MemoryUseError(
                f"{request.dwords} dwords at physical {request.pa:#x} are not memory of "
                f"{application}"
            )
        channel = application.channel(request.channel).channel
        channel.check_open()  # it is closed if a call to close it has failed
        if request.dwords > channel.largest_segment:
            raise ValueError(f"{request.dwords} dwords are more than {channel.largest_segment}")
        if application.queued >= self._settings.queue_each:
            raise DeviceError(f"{application} has {application.queued} pointers on its queue")
        pointer = Pointer(request.channel, request.pa, request.dwords, request.sync)
        application.push(pointer)
        self._note(Kind.PUSHED, application, request.channel)

    async def _look(self, served: ServedChannel) -> Seen:
        channel = served.channel
        failure = await channel.check()
        return Seen(
            resumes=served.resumes,
            executed=await channel.executed(),
            progress=await channel.progress(),
            waits_for=await channel.waits_for(),
            failure=None if failure is None else report(failure),
        )

    async def _resume(self, served: ServedChannel, *, skip: bool) -> None:
        try:
            await self._check_repeat(served.channel, skip=skip)
            await (served.channel.skip() if skip else served.channel.resume())
        finally:
            served.resumes += 1
            served.told, served.running = False, True

    async def _check_repeat(self, channel: Channel, *, skip: bool) -> None:
        """Raise `RepeatError` for a copy that would take long to repeat, as the driver repeats it
        while the server's loop waits."""
        copy = None if skip else await channel.failed_copy()
        if copy is not None and (copy.size > _LARGEST_REPEAT or copy.lines > _MOST_LINES):
            raise RepeatError(
                f"channel {channel.index}: a copy of more than {_LARGEST_REPEAT} bytes or "
                f"{_MOST_LINES} lines is not repeated: Channel.skip() continues after it"
            )

    async def _raise(self, application: Application, request: RaisePriority) -> None:
        """Raise the priority of a channel, up to the highest of the application's launches."""
        channel, most = application.channel(request.channel).channel, application.limits.priority
        if request.priority > most:
            raise DeviceError(
                f"priority = {request.priority} is above {most}, that of {application}"
            )
        await channel.raise_priority(request.priority)

    async def _kill(self, space: AddressSpace, record: int) -> None:
        if self._owner.compute is not None and self._owner.spaces.users(space):
            await self._owner.compute.kill_task(space, record)

    # -- time --------------------------------------------------------------------------------------

    async def _wait(self, application: Application, cycles: int) -> None:
        while cycles > 0 and not application.leaving:
            await self._device.machine.wait_cycles(min(cycles, _WAIT_CYCLES))
            cycles -= _WAIT_CYCLES
