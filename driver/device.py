"""A Signalbox as a CUDA-like device: streams with priorities, copies, kernel launches, events.

    device = await Device.open(machine, PriorityPolicy(levels=2))
    stream = await device.stream(priority=-1)
    await stream.memcpy_async(dst, src, size)
    await stream.synchronize()

A stream runs in one address space: the device's own (`Device.space`), or one of `create_space`. The
driver reads all build parameters from the machine's registers and assumes none.
"""

import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Unpack

import numpy as np

from signalbox.driver.channel.channel import Channel
from signalbox.driver.channel.priority_policy import Policy
from signalbox.driver.channel.runlist import Runlist
from signalbox.driver.channel.settings import ChannelOptions, ChannelSettings
from signalbox.driver.client.shared_machine import SharedMachine
from signalbox.driver.client.socket_link import SocketLink, connect
from signalbox.driver.client.start import start_and_connect
from signalbox.driver.client.waiting import beside
from signalbox.driver.compute.contexts import Context
from signalbox.driver.compute.engine import ComputeSettings
from signalbox.driver.compute.launcher import Launcher
from signalbox.driver.compute.tasks import CANCEL_CYCLES, Task
from signalbox.driver.faults.fault_log import FaultLog
from signalbox.driver.memory.address_space import AddressSpace, SpaceError
from signalbox.driver.memory.physical import Buffer
from signalbox.driver.platform.control_port import ControlPort
from signalbox.driver.platform.info import DeviceError, DeviceInfo
from signalbox.driver.platform.machine import Machine
from signalbox.driver.platform.whole import whole
from signalbox.driver.runtime.cancellation import cancel, check_all
from signalbox.driver.runtime.event import Event
from signalbox.driver.runtime.limits import Limit
from signalbox.driver.runtime.own_machine import OwnMachine, Scheduling
from signalbox.driver.runtime.owner import Owner
from signalbox.driver.runtime.services import released
from signalbox.driver.runtime.stream import Stream, StreamError
from signalbox.hw.config import SLOT_BYTES

__all__ = ["Device", "DeviceError", "DeviceInfo"]


class Device:
    """One open machine. Created by `Device.open`. Calls raise `TypeError` for numbers that are not
    whole.

    Members
    -------
    info : build parameters.
    memory : allocator of physical memory.
    policy : chooses the channels of streams and the commands around copies.
    spaces : address spaces and their ASIDs.
    space : default address space of streams and buffers.
    fences : fence pools of the address spaces.
    compute : compute engine, or None; `engine` raises instead.
    channels : open channels by number; `channel()` opens one.
    completion : waiting for fences.
    clock : converts PTIMER values to cycles.
    """

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self._services = services = owner.services
        self.machine, self.info, self.policy = services.machine, services.info, services.policy
        self.memory, self.spaces, self.space = services.memory, services.spaces, owner.space
        self.fences, self.compute = services.fences, services.compute
        self.channels, self.completion = services.channels, services.completion
        self.clock = services.clock
        self._streams: list[Stream] = []
        self._opening = 0
        """Number of streams that are being opened."""

    @classmethod
    async def open(
        cls,
        machine: Machine | str | Path,
        policy: Policy | None = None,
        settings: ChannelSettings | None = None,
        compute: ComputeSettings | None = None,
        scheduling: Scheduling = "flat",
    ) -> "Device":
        """Open a machine: clear the state of an earlier owner (active channels, errors,
        interrupts), read the build parameters, bind the policy and enable interrupts.

        Parameters
        ----------
        machine : a machine, or the path of a server's socket (`connect`).
        policy : defaults to a `PriorityPolicy` of up to six levels.
        settings : default settings of channels.
        compute : settings of the compute engine.
        scheduling : "flat": each channel has its own time slice. "runlist": address spaces take
            turns (`runlist`).

        Raises `DeviceError` for an unsupported machine, one with too few counting semaphores, or,
        for "runlist", one without runlists; `PolicyError` if the policy does not fit the channels;
        `PlacementError` for an unknown placement, also in the environment variable;
        `PreemptionError` for settings of preemption that the machine does not support;
        `OutOfMemory`; `ChannelActive`, `TaskListError`, `FaultBufferError` or `RunlistRefused` if a
        channel, a task, a fault record or the reading of a runlist of an earlier owner does not
        end; `ValueError` for other bad settings, and for settings together with a path. With a
        path, otherwise raises as `connect`.
        """
        if isinstance(machine, str | Path):
            if policy or settings or compute or scheduling != "flat":
                raise ValueError("policy, settings, compute and scheduling are those of the server")
            return await cls.connect(machine)
        return cls(await OwnMachine.open(machine, policy, settings, compute, scheduling))

    @classmethod
    async def connect(
        cls,
        path: str | Path,
        name: str = "",
        memory: int = 0,
        start: Sequence[str] | None = None,
    ) -> "Device":
        """Become a client of the server at `path`, a local socket (SHARE-1).

        Streams, events, memory, launches and errors are as on an unshared machine. Registers,
        hardware channels and contexts belong to the server: their use raises `DeviceError`.

        Parameters
        ----------
        name : name of the application, for messages and the server's status; default: that of the
            program.
        memory : bytes of memory; 0: the server's default.
        start : options of `signalbox serve`. If no server listens at `path`, one is started with
            them, which ends with its last application (`driver.client.start`). None: no server is
            started.

        Raises `ServerError` without a server, `DeviceError` if it takes no more clients,
        `ValueError` for more memory than it gives to an application, `OutOfMemory`.
        """
        name = name or Path(sys.argv[0]).name or "python"
        who = Path(path), name[:64], memory
        if start is None:
            found = await beside(connect, *who)
        else:
            found = await beside(start_and_connect, *who, start)
        socket, welcome, shared = found
        return cls(SharedMachine(SocketLink(socket).connection, welcome, shared))

    async def close(self, *, drain: bool = False) -> None:
        """Kill all tasks, close all channels and address spaces, disable and clear interrupts, and
        free the driver's own memory. Buffers are not freed. The device cannot be used afterwards. A
        further call does nothing; a concurrent call waits for the first.

        `drain` : execute the submitted work first; raises as `Channel.drain`.

        A client leaves its server and returns all of its memory; this can raise `ServerError`.

        Raises `ChannelActive` if a channel does not stop; the other channels are closed, but
        nothing else is. Raises `FaultBufferError` if a fault record does not end; the driver's own
        memory is not freed then. Raises `RunlistRefused` if a runlist is still being read. A call
        that has failed, or was interrupted, can be repeated.
        """
        await self._owner.close(drain=drain)
        for stream in self._streams:
            stream.closed = True

    @property
    def control(self) -> ControlPort:
        """Control port. Raises `DeviceError` if the registers belong to another process."""
        return self._owner.control

    @property
    def faults(self) -> FaultLog:
        """Log of translation faults. Raises as `control`."""
        return self._owner.faults

    # Memory and address spaces

    async def allocate(
        self,
        size: int,
        *,
        space: AddressSpace | None = None,
        read_only: bool = False,
        name: str = "",
    ) -> Buffer:
        """Allocate a buffer of whole pages, mapped in `space` (default: the device's).

        `AddressSpace.map` maps it in further spaces. Raises as `AddressSpace.allocate`.
        """
        chosen, size = space or self.space, whole(size, "size")
        return await chosen.allocate(size, read_only=read_only, name=name)

    async def upload(
        self,
        array: np.ndarray,
        *,
        space: AddressSpace | None = None,
        read_only: bool = False,
        name: str = "",
    ) -> Buffer:
        """Allocate a buffer and fill it with `array`; otherwise as `allocate`."""
        buffer = await self.allocate(array.nbytes, space=space, read_only=read_only, name=name)
        buffer.write(array)
        return buffer

    async def free(self, buffer: Buffer) -> None:
        """Unmap a buffer from all spaces and free it. Raises `MemoryUseError` if already freed."""
        for space in self.spaces:
            await space.unmap_all(buffer)
        buffer.free()

    def create_space(self, name: str = "", *, context: Context | None = None) -> AddressSpace:
        """Create an address space. Its tasks run in `context`; by default `Contexts` chooses one.
        Raises `OutOfMemory`; with `context`, also `DeviceError`, and as `Contexts.check`."""
        if context is None:
            return self.spaces.create(name)
        contexts = self.engine.contexts
        contexts.check(context)
        space = self.spaces.create(name)
        contexts.choose(space, context)
        return space

    async def kill(self, context: Context, *, patience: int = CANCEL_CYCLES) -> None:
        """Kill all tasks of a context's address spaces, including tasks launched during the call.
        Other commands are executed. Returns once the tasks launched before the call have ended;
        their `Task.synchronize` raises a `TaskError`.

        `patience` : as in `Stream.cancel`. Raises as `Stream.cancel` and `Contexts.check`.
        """
        contexts = self.engine.contexts
        contexts.check(context)
        spaces = contexts.spaces(context)
        channels = [one for one in self.channels.values() if one.space in spaces]
        tasks = [task for one in channels for task in one.tasks]

        async def kill(_: Task) -> None:
            await self.engine.kill_context(context)

        for channel in channels:
            channel.kills += 1
        try:
            await self.engine.kill_context(context)
            await check_all(channels)
            await cancel(tasks, channels, kill, patience)
        finally:
            for channel in channels:
                channel.kills -= 1

    async def close_space(self, space: AddressSpace) -> None:
        """Close an address space with its streams and channels, after the end of the streams' work.
        Buffers are not freed. Events recorded in its streams keep their time. If streams of other
        spaces have waited for these events (`Event.wait`), the events' memory is freed once those
        spaces are closed, too.

        Raises as `Stream.close`; `SpaceError` for the device's own space, or a closed one;
        `ContextError`.
        """
        if space is self.space:
            raise SpaceError(f"{space} is the device's own: it is closed with the device")
        for stream in [each for each in self._streams if each.space is space]:
            await stream.close()
        for channel in [each for each in self.channels.values() if each.space is space]:
            await self.channels.end(channel)
        await self.spaces.close(space)
        if self.compute is not None:
            self.compute.forget(space)
        self.fences.forget_closed()
        if self._services.runlist is not None:
            self._services.runlist.forget(space)

    def semaphore_address(self, slot: int) -> int:
        """Virtual address of an on-chip semaphore. Raises `DeviceError` if there is none."""
        slot = whole(slot, "semaphore")
        if not 0 <= slot < self.info.semaphores:
            raise DeviceError(f"semaphore {slot} is outside 0 … {self.info.semaphores - 1}")
        return self.info.window + slot * SLOT_BYTES

    @property
    def engine(self) -> Launcher:
        """The compute engine. Raises `DeviceError` if there is none."""
        return self._services.engine

    @property
    def runlist(self) -> Runlist:
        """Time-slice groups of the channels. Raises `DeviceError` if scheduling is flat."""
        if self._services.runlist is None:
            raise DeviceError('scheduling is flat: the device was not opened with "runlist"')
        return self._services.runlist

    # Time

    async def time_ns(self) -> int:
        """Current PTIMER value, in ns."""
        return await self.clock.time_ns()

    def cycle_of(self, time_ns: int) -> int:
        """Machine cycle (as `Machine.now`) at a PTIMER value in ns, such as that of an event."""
        return self.clock.cycle_of(time_ns)

    # Streams

    def stream_priority_range(self) -> tuple[int, int]:
        """(least, greatest) stream priority: 0 and a number at or below 0, as in CUDA. Clients of a
        server have priorities of launches only, not of copies."""
        return self.channels.priority_range

    def set_limit(self, limit: Limit | str, value: int) -> None:
        """Set a limit; see `Limit`.

        The nesting depth determines the device priorities of streams created, or given a priority,
        from then on (NEST-1). It also bounds the depth of nested kernels, in contexts that start to
        run from then on (NEST-11), so set it before the first launch. It cannot become less than
        the depth of a context in use, whose kernels may already nest that deep: close the context's
        streams first. The limit of pending launches applies to the whole machine, from the next
        launch on.

        On a server's machine both limits are the server's, for all applications. A launch raises
        `DeviceError` unless the depth is the server's or 1, which allows no children, and the limit
        of pending launches is the maximum.

        Raises `ValueError` for an unknown limit, or a value out of range; `DeviceError` for too
        small a nesting depth."""
        limits, before = self._services.limits, self.limit(limit)
        limits[limit] = value
        deepest = 1 if self.compute is None else self.compute.depth
        if Limit(limit) is Limit.NESTING_DEPTH and value < deepest:
            limits[limit] = before
            raise DeviceError(
                f"nesting-depth {value}: kernels of a context in use may nest {deepest} deep; set "
                "it before the first launch, or close the streams before"
            )

    def limit(self, limit: Limit | str) -> int:
        """Value of a limit. Raises `ValueError` for an unknown one."""
        return self._services.limits[limit]

    async def stream(
        self, priority: int = 0, *, space: AddressSpace | None = None, name: str = ""
    ) -> Stream:
        """Create a stream in `space` (default: the device's). A lower `priority` is more urgent; it
        is clamped to `stream_priority_range`, and determines the device priority of launches.

        Raises `SpaceError` for a closed space, or one of another device; `DeviceError` if other
        spaces hold all channels of that priority, or the server allows no more streams;
        `ChannelActive` if earlier work of the channel does not end; `OutOfAsids`, `OutOfAddresses`,
        `OutOfMemory`; `RunlistRefused`.
        """
        space, name = space or self.space, name or f"stream {len(self._streams)}"
        self.spaces.check(space)
        fences = self.fences.of(space)
        with self._place():
            stream = Stream(self._services, name, space, await fences.take(), self._closed)
            try:
                await stream.set_priority(priority)
            except BaseException:  # cancelled, perhaps
                fences.give(stream.fence)
                raise
            self._streams.append(stream)
        return stream

    @contextmanager
    def _place(self) -> Generator[None]:
        """Reserve a place for a stream while it is opened. Raises `DeviceError` if there is
        none."""
        most = self._services.streams
        if most and len(self._streams) + self._opening >= most:
            raise DeviceError(f"streams are limited by the server: {most} at most")
        self._opening += 1
        try:
            yield
        finally:
            self._opening -= 1

    async def _closed(self, stream: Stream) -> None:
        """Remove a closed stream, which no longer uses its channel."""
        self._streams.remove(stream)
        self.fences.of(stream.space).give(stream.fence)
        await self.channels.release(stream.channel)

    def event(self, *, interrupt: bool = True) -> Event:
        """Create an event. Without `interrupt`, its record raises no interrupt, and
        `Event.synchronize` cannot wait for it."""
        return Event(self._services, interrupt=interrupt)

    async def channel(
        self, index: int, space: AddressSpace | None = None, **options: Unpack[ChannelOptions]
    ) -> Channel:
        """A hardware channel in `space` (default: the device's), opened if necessary. `options` :
        fields of `ChannelSettings` that replace the device's. Raises as `ChannelPool.open` and
        `control`."""
        return await self._owner.channel(index, space or self.space, **options)

    async def synchronize(self) -> None:
        """Wait until everything submitted to all streams has ended. Raises as
        `Completion.wait_fence`."""
        ends: list[Callable[[], bool]] = []
        for stream in [*self._streams]:
            with suppress(StreamError):  # closed meanwhile, so its work has ended
                fence, value = await stream.record_fence()
                ends.append(partial(released, fence, value, stream.channels))
        for ended in ends:
            await self.completion.wait_for(ended, tuple(self.channels.values()))
