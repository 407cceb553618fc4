"""Streams as in CUDA: copies and kernel launches in order, submitted to channels."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from collections.abc import Mapping as Values
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import SupportsIndex

from signalbox.driver.channel.command_channel import CommandChannel
from signalbox.driver.commands.pushbuffer import CopyFence, Pushbuffer
from signalbox.driver.compute.child import Child
from signalbox.driver.compute.launch import Extent, KernelLaunch, sizes
from signalbox.driver.compute.placement import AUTO, placement
from signalbox.driver.compute.preemption import urgency as named_urgency
from signalbox.driver.compute.sm_set import sm_numbers
from signalbox.driver.compute.tasks import CANCEL_CYCLES, Task
from signalbox.driver.kernels.library import Kernel
from signalbox.driver.memory.address_space import AddressSpace
from signalbox.driver.memory.fence import Fence
from signalbox.driver.memory.mapping import Mapping
from signalbox.driver.memory.physical import Buffer, MemoryUseError
from signalbox.driver.platform.fair_lock import FairLock
from signalbox.driver.platform.whole import whole
from signalbox.driver.runtime.cancellation import cancel, check_all
from signalbox.driver.runtime.event import Event
from signalbox.driver.runtime.limits import Limit
from signalbox.driver.runtime.services import Services
from signalbox.hw.config import VA_BITS
from signalbox.hw.methods import SemOp
from signalbox.hw.qmd import Placement, Urgency

__all__ = ["Address", "Argument", "Stream", "StreamError"]

_MOST_BYTES = (1 << 32) - 1
"""Maximum size of a copy in bytes: LINE_LENGTH_IN has 32 bits."""

Address = int | Buffer | Mapping
"""Address of a copy: a virtual address, or the start of a buffer or mapping in the stream's address
space."""

Argument = SupportsIndex | Buffer | Mapping
"""Argument of a kernel: a whole number, or the start of a buffer or mapping in the stream's address
space."""


class StreamError(Exception):
    """A closed stream was used."""


class Stream:
    """Work in order, in one address space. Created by `Device.stream`.

    A stream submits to one channel, chosen by its priority, which it may share with other streams
    (COPY-22). All calls that need the channel raise `StreamError` once the stream is closed, and
    `TypeError` for numbers that are not whole.

    Parameters
    ----------
    fence : the stream's own fence.
    closed : called once the stream has been closed.

    Members
    -------
    priority : 0 (least urgent) or below.
    device_priority : priority of its launches, 0 … 63, fixed when its priority was set (NEST-6).
    closed : whether it was closed, by itself or with its device.
    """

    def __init__(
        self,
        services: Services,
        name: str,
        space: AddressSpace,
        fence: Fence,
        closed: Callable[["Stream"], Awaitable[None]],
    ) -> None:
        self.name = name
        self.space = space
        self.fence = fence
        self.priority = self.device_priority = 0
        self._services = services
        self._closed = closed
        self._channel: CommandChannel | None = None
        # Former channels, each with the value of the fence behind the stream's work there.
        self._left: list[tuple[CommandChannel, int]] = []
        # Value of the fence that later work must wait for, after a change of channels.
        self._behind: int | None = None
        self._unfenced = False
        self._tasks: list[tuple[Task, CommandChannel]] = []
        self.closed = False
        self._changes = FairLock(services.machine)  # for changes of channel, and closing

    def __str__(self) -> str:
        return f"{self.name} (priority {self.priority}, channel {self.channel.index})"

    @property
    def channel(self) -> CommandChannel:
        """Channel of the stream."""
        assert self._channel is not None, "a stream has a channel once its priority is set"
        return self._channel

    @property
    def channels(self) -> tuple[CommandChannel, ...]:
        """Channels on which completion of the stream depends."""
        return (self.channel,)

    async def set_priority(self, priority: int) -> None:
        """Set the priority, clamped to the device's range, and choose a channel for it.

        The stream keeps its order: in a new channel, later work waits for the stream's earlier
        work. Once the earlier work has ended, the next `synchronize` or `set_priority` releases the
        former channel. Raises as `Device.stream`; `ChannelActive` if a former channel does not
        stop.
        """
        pool = self._services.channels
        priority = pool.clamp(priority)
        async with self._changes:
            self._check_open()
            await self._release_left()
            device_priority = self._services.limits.bands.of(-priority)
            chosen = await pool.for_priority(priority, self.space)
            if self._channel is None:
                self._channel = chosen
            else:
                await self._move(chosen)
            self.priority = priority
            self.device_priority = device_priority

    async def _move(self, chosen: CommandChannel) -> None:
        """Continue in channel `chosen`, which `for_priority` has returned; if it is a new channel,
        behind a fence in the present one. Notes the use to release, also after an interruption."""
        left = chosen
        try:
            async with self.turn():
                if chosen is not self.channel:
                    _, value = await self._enqueue_fence()
                    await self._ring_doorbell()
                    left, self._channel, self._behind = self.channel, chosen, value
        finally:
            self._left.append((left, self.fence.submitted))

    async def _release_left(self) -> None:
        """Release former channels in which the stream's work has ended."""
        while ended := [one for one in self._left if self.fence.reached(one[1])]:
            self._left.remove(ended[0])
            channel, _ = ended[0]
            channel.tasks.reap()
            self._tasks = [one for one in self._tasks if one[1] is not channel or not one[0].over]
            await self._services.channels.release(channel)

    @asynccontextmanager
    async def turn(self) -> AsyncGenerator[None, None]:
        """Hold the turn of the stream's channel; meanwhile the stream does not change channels.
        Work in a new channel waits for work in the former one."""
        while True:
            channel = self.channel
            async with channel.turn():
                if channel is self.channel:
                    self._check_open()
                    await self._enqueue_wait()
                    yield
                    return

    async def _enqueue_wait(self) -> None:
        """Put an acquire of the stream's fence on the ring, if later work must wait for a former
        channel."""
        if self._behind is not None:
            commands = Pushbuffer().acquire(self.fence.address, self._behind, SemOp.ACQ_CIRC_GEQ)
            await self.channel.enqueue(commands.dwords)
            self._behind = None

    @asynccontextmanager
    async def submission(self) -> AsyncGenerator[None, None]:
        """Hold a turn, then ring the doorbell."""
        async with self.turn():
            yield
        await self._ring_doorbell()

    async def _ring_doorbell(self) -> None:
        """Ring the channel's doorbell. If that is interrupted, `query` submits another fence."""
        try:
            await self.channel.ring_doorbell()
        except BaseException:  # cancelled, perhaps
            self._unfenced = True
            raise

    async def enqueue(self, commands: Pushbuffer) -> None:
        """Put commands on the ring, within a turn. Raises as `CommandChannel.enqueue`."""
        await self.channel.enqueue(commands.dwords)
        self._unfenced = True

    async def submit(self, commands: Pushbuffer) -> None:
        """Submit commands after the stream's earlier work. Raises as `CommandChannel.enqueue`."""
        if commands.dwords:
            async with self.submission():
                await self.enqueue(commands)

    async def memcpy_async(
        self, dst: Address, src: Address, size: int, *, done: Event | None = None
    ) -> None:
        """Copy `size` bytes, 0 … 2³² - 1; with 0 bytes no copy is submitted, as in CUDA. The copy
        engine records the event `done` when the copy completes.

        Raises `MemoryUseError` for a buffer that is too small or not in the stream's space,
        `ValueError` for a size out of range, `EventError` for an event of another device,
        `ChannelError`.
        """
        size = whole(size, "size")
        if not 0 <= size <= _MOST_BYTES:
            raise ValueError(f"size = {size} is outside 0 … {_MOST_BYTES}")
        if size == 0:
            await self._record_nothing(done)
            return
        target, source = self.address(dst, size), self.address(src, size)
        await self._copy(lambda commands, fence: commands.copy(target, source, size, fence), done)

    async def memcpy_2d_async(
        self,
        dst: Address,
        dst_pitch: int,
        src: Address,
        src_pitch: int,
        width: int,
        height: int,
        *,
        done: Event | None = None,
    ) -> None:
        """Copy `height` lines of `width` bytes. A pitch is the number of bytes from line to line,
        at least `width`. Otherwise as `memcpy_async`.
        """
        dst_pitch, src_pitch = whole(dst_pitch, "dst_pitch"), whole(src_pitch, "src_pitch")
        width, height = whole(width, "width"), whole(height, "height")
        if not 0 <= width <= _MOST_BYTES or not 0 <= height <= _MOST_BYTES:
            raise ValueError(f"width × height = {width} × {height}: each is 0 … {_MOST_BYTES}")
        for name, pitch in (("dst_pitch", dst_pitch), ("src_pitch", src_pitch)):
            if not width <= pitch <= _MOST_BYTES:
                raise ValueError(f"{name} = {pitch} is outside {width} (the width) … {_MOST_BYTES}")
        if width == 0 or height == 0:
            await self._record_nothing(done)
            return
        target = self.address(dst, dst_pitch * (height - 1) + width)
        source = self.address(src, src_pitch * (height - 1) + width)
        await self._copy(
            lambda commands, fence: commands.copy_2d(
                target, dst_pitch, source, src_pitch, width, height, fence
            ),
            done,
        )

    async def fill_async(
        self, dst: Address, pattern: int, size: int, *, unit: int = 1, done: Event | None = None
    ) -> None:
        """Fill `size` bytes with a repeated `pattern` of `unit` (1, 2, 4 or 8) bytes, little
        endian; `size` is a multiple of `unit`. Otherwise as `memcpy_async`."""
        pattern, size, unit = whole(pattern, "pattern"), whole(size, "size"), whole(unit, "unit")
        if unit not in (1, 2, 4, 8):
            raise ValueError(f"unit = {unit}: 1, 2, 4 or 8 bytes")
        if not 0 <= pattern < 1 << 8 * unit:
            raise ValueError(f"pattern = {pattern:#x} does not fit its {unit} bytes")
        if size % unit or not 0 <= size <= _MOST_BYTES * unit:
            raise ValueError(
                f"size = {size} is not a multiple of unit = {unit} in 0 … {_MOST_BYTES * unit}"
            )
        if size == 0:
            await self._record_nothing(done)
            return
        target, count = self.address(dst, size), size // unit
        await self._copy(
            lambda commands, fence: commands.fill(target, pattern, unit, count, fence), done
        )

    async def _record_nothing(self, done: Event | None) -> None:
        if done is not None:
            await done.record(self)

    async def _copy(
        self, add: Callable[[Pushbuffer, CopyFence | None], object], done: Event | None
    ) -> None:
        """Submit the copy that `add` appends, wrapped in the commands of the policy."""
        async with self.submission():
            commands, index = Pushbuffer(), self.channel.index
            policy = self._services.policy
            record = nullcontext() if done is None else done.recording(self.channel, self.channels)
            async with record as fence:
                policy.before_copy(index, commands)
                add(commands, None if fence is None else CopyFence(fence.address, fence.following))
                policy.after_copy(index, commands)
                if done is not None and done.interrupt:
                    commands.non_stall_interrupt(index)
                await self.enqueue(commands)

    async def launch(
        self,
        kernel: Kernel,
        grid: Extent,
        block: Extent,
        args: Values[str, Argument],
        *,
        priority: int | None = None,
        policy: Placement | str = AUTO,
        urgency: Urgency | str = Urgency.CONTEXT,
        sms: Iterable[int] | None = None,
        shared: int = 0,
        head: bool = False,
        overlap: bool = False,
        constants: Values[int, Buffer | Mapping] | None = None,
    ) -> Task:
        """Launch a kernel, in the context of the stream's address space.

        Parameters
        ----------
        grid : blocks in x, y, z.
        block : threads in x, y, z.
        args : values of the kernel's parameters, by name.
        priority : 0 … 63, 63 being the most urgent; defaults to the stream's `device_priority`.
        policy : placement of the blocks on SMs; defaults to that of the context (ASID-32).
        urgency : what happens to blocks of lower priority while the kernel's blocks lack room.
            `"drain"`: they end by themselves. `"save"`: they are stopped, saved, and continue
            later. Defaults to that of the context (PREEMPT-5).
        sms : numbers of the SMs that take its blocks, such as `range(4)`; defaults to all. Needs a
            machine with `Config.sm_masks`. SMs from number 64 on cannot be left out. Children do
            not inherit it: see `child`.
        shared : bytes of shared memory per block in addition to the kernel's own.
        head : queue the task before waiting tasks of its priority.
        constants : constant buffers 1 … 7, by number; the size of each is a multiple of 16 bytes.
            They are not copied, so they must stay mapped until the task has ended.
        overlap : do not wait for the earlier work of the stream. A launch that does wait, and every
            copy, event and fence, waits for all earlier work of the channel, including that of
            other streams.

        Raises `BlockError` for a block that fits no SM, `DeviceError` without a compute engine,
        `PlacementError`, `PreemptionError`, `SmSetError`, `OutOfContexts`, `ValueError` for other
        wrong sizes or arguments, `MemoryUseError` as `memcpy_async`, `OutOfMemory`,
        `OutOfAddresses`, `ChannelError`.
        """
        launch = replace(
            self._described(kernel, grid, block, args, policy, sms, shared, constants),
            priority=self.device_priority if priority is None else priority,
            urgency=named_urgency(urgency),
            head=head,
        )
        self._check_open()
        self._services.limits.check_priority(launch.priority)
        task = await self._services.engine.prepare(launch, self.space)
        try:
            await self._submit_task(task, launch.priority, overlap=overlap)
        except BaseException:  # also a cancelled call
            if not task.launched:
                task.discard()
            raise
        return task

    async def child(
        self,
        kernel: Kernel,
        grid: Extent,
        block: Extent,
        args: Values[str, Argument],
        *,
        policy: Placement | str = AUTO,
        sms: Iterable[int] | None = None,
        shared: int = 0,
        constants: Values[int, Buffer | Mapping] | None = None,
        done: Buffer | Mapping | None = None,
    ) -> Child:
        """Prepare a child: a kernel that kernels of the stream's address space can launch
        (NEST-10). Its priority is its parent's plus 1. The nesting depth must be set first
        (`Device.set_limit`). Parameters are as for `launch`, except these.

        Parameters
        ----------
        sms : defaults to all SMs, whatever the `sms` of its parent.
        done : memory whose first word must be 0 at the launch. It becomes 1 when the child and its
            descendants are complete, unless one of them has failed. So the block that has launched
            the child can wait for it alone (`join d, [a]` of `driver.kernels.assembler`).

        Raises as `launch`, and `NestingError` on a machine without nested launches, or for a kernel
        with local memory.
        """
        launch = replace(
            self._described(kernel, grid, block, args, policy, sms, shared, constants),
            done=0 if done is None else self.address(done, 4),
        )
        (made,) = await self._services.engine.prepare_children([launch], self.space)
        return made

    async def children(
        self,
        kernel: Kernel,
        grid: Extent,
        block: Extent,
        args: Sequence[Values[str, Argument]],
        *,
        policy: Placement | str = AUTO,
        sms: Iterable[int] | None = None,
        shared: int = 0,
        constants: Values[int, Buffer | Mapping] | None = None,
    ) -> list[Child]:
        """Prepare children that differ only in their arguments, one for each of `args`. Their
        records are at equal distances, so that a loop can launch them. Otherwise as `child`."""
        chosen = None if sms is None else sm_numbers(sms)
        launches = [
            self._described(kernel, grid, block, one, policy, chosen, shared, constants)
            for one in args
        ]
        return await self._services.engine.prepare_children(launches, self.space)

    def _described(
        self,
        kernel: Kernel,
        grid: Extent,
        block: Extent,
        args: Values[str, Argument],
        policy: Placement | str,
        sms: Iterable[int] | None,
        shared: int,
        constants: Values[int, Buffer | Mapping] | None,
    ) -> KernelLaunch:
        """Parameters common to launches by the host and by kernels, as numbers."""
        return KernelLaunch(
            kernel=kernel,
            grid=sizes(grid),
            block=sizes(block),
            args={name: self._number(value) for name, value in args.items()},
            placement=placement(policy),
            sms=None if sms is None else sm_numbers(sms),
            shared=shared,
            depth=self._services.limits[Limit.NESTING_DEPTH],
            pending=self._services.limits[Limit.PENDING_LAUNCHES],
            constants={
                number: (self.address(buffer, buffer.size), buffer.size)
                for number, buffer in (constants or {}).items()
            },
        )

    async def _submit_task(self, task: Task, priority: int, *, overlap: bool) -> None:
        """Submit the launch of a task; without `overlap` it waits for the channel's earlier
        work."""
        async with self.submission():
            channel = self.channel
            await channel.raise_priority(priority)
            task.submitted(_TaskWaiter(self, channel))
            commands = Pushbuffer()
            if not overlap and not self.idle:
                commands.wait_own()
            if task.local is not None:  # with its present size: the area never shrinks
                commands.set_local_memory(task.local.va, task.local.part, task.local.sms)
            await self.enqueue(commands.launch_task(task.record))
            channel.tasks.launched(task)
            self._tasks = [one for one in self._tasks if not one[0].over] + [(task, channel)]

    def _number(self, argument: Argument) -> SupportsIndex:
        """A kernel argument as a number, which `Kernel.arguments` checks."""
        if isinstance(argument, (Buffer, Mapping)):
            return self.address(argument, 0)
        return argument

    @property
    def idle(self) -> bool:
        """Whether everything submitted is known to have ended."""
        return not self._unfenced and self.fence.reached(self.fence.submitted)

    async def _enqueue_fence(self) -> tuple[Fence, int]:
        """Put a release of the stream's fence and an interrupt on the ring, within a turn. Returns
        fence and value."""
        fence, value = self.fence, self.fence.following
        commands = Pushbuffer().release(fence.address, value, timestamp=True)
        commands.non_stall_interrupt(self.channel.index)
        await self.channel.enqueue(commands.dwords)
        self.channel.tasks.fenced(fence, value)
        fence.advance()
        self._unfenced = False
        return fence, value

    async def record_fence(self) -> tuple[Fence, int]:
        """Submit a release of the stream's fence and an interrupt. Returns fence and value."""
        async with self.submission():
            return await self._enqueue_fence()

    async def synchronize(self) -> None:
        """Wait until everything submitted so far has ended. Raises as `Completion.wait_fence`;
        `ChannelActive` if a former channel does not stop."""
        await self._services.completion.wait_fence(*await self.record_fence(), self.channels)
        self.channel.tasks.reap()
        await self._release_left()

    async def wait_for(self, done: Callable[[], bool], channel: CommandChannel) -> None:
        """Wait until `done()`, which depends on `channel`. Raises as `Completion.wait_for`."""
        await self._services.completion.wait_for(done, (channel,))

    async def query(self) -> bool:
        """Whether everything submitted so far has ended, without waiting for it. Raises
        `ChannelError` if the channel is halted and its ring is full."""
        self._check_open()
        if self._unfenced:
            await self.record_fence()
        return self.fence.reached(self.fence.submitted)

    async def cancel(self, *, patience: int = CANCEL_CYCLES) -> None:
        """Kill all tasks launched so far that have not ended; copies and other commands are
        executed. Returns once the tasks have ended; their `Task.synchronize` raises a `TaskError`.

        Raises `ChannelError` if the channel halts for another reason; `ChannelTimeout` if it
        executes no method for `patience` cycles plus the time of other groups' turns, for example
        because a launch waits for a semaphore. The remaining tasks are then not cancelled.
        """
        tasks, channels = [task for task, _ in self._tasks], {one for _, one in self._tasks}
        await self._cancel(tasks, [*channels], patience)

    async def _cancel(
        self, tasks: Sequence[Task], channels: Sequence[CommandChannel], patience: int
    ) -> None:
        async def kill(task: Task) -> None:
            engine = self._services.engine
            kills = engine.kill_tree if task.nested else engine.kill_task
            await kills(self.space, task.record)

        await cancel(tasks, channels, kill, patience)

    async def close(self) -> None:
        """Wait until all work has ended, including work that other coroutines submit meanwhile.
        Then release the channel, which is closed if no other stream uses it. Does nothing if the
        stream is closed. Raises as `synchronize`, and then leaves the stream open;
        `ChannelActive`."""
        async with self._changes:
            if self.closed:
                return
            while not self.closed:
                await self.synchronize()
                async with self.turn():  # a submission may have waited for room
                    self.closed = self.idle
            await self._closed(self)

    def _check_open(self) -> None:
        if self.closed:
            raise StreamError(f"{self.name} was closed")

    def address(self, where: Address, size: int) -> int:
        """Virtual address of `size` bytes. Raises `MemoryUseError` if a buffer or mapping is too
        small or not in the stream's space, or if bytes from a given address on extend past the
        last virtual address."""
        if isinstance(where, Buffer):
            return self.space.at(where, 0, size)
        if isinstance(where, Mapping):
            if where.space is not self.space:
                raise MemoryUseError(
                    f"{where} does not belong to {self.space}, in which {self.name} runs"
                )
            return where.at(0, size)
        where = whole(where, "address")
        if where < 0 or max(where, where + size - 1) >= 1 << VA_BITS:
            raise MemoryUseError(
                f"{size} bytes at {where:#x}: addresses of more than {VA_BITS} bits"
            )
        return where


@dataclass(frozen=True)
class _TaskWaiter:
    """The `driver.compute.tasks.Waiter` of a task launched by `stream` in `channel`."""

    stream: Stream
    channel: CommandChannel

    def __str__(self) -> str:
        return str(self.stream)

    async def fence(self) -> None:
        await self.stream.record_fence()

    async def wait_for(self, done: Callable[[], bool]) -> None:
        await self.stream.wait_for(done, self.channel)

    async def check(self) -> None:
        await check_all((self.channel,))

    async def cancel(self, task: Task, patience: int) -> None:
        await self.stream._cancel((task,), (self.channel,), patience)
