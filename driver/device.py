"""A Signalbox as a CUDA-like device: streams with priorities, copies, kernel launches, events.

    device = await Device.open(machine, PriorityPolicy(levels=2))
    stream = await device.stream(priority=-1)
    await stream.memcpy_async(dst, src, size)
    await stream.synchronize()

Streams run in address spaces: the device's own (`Device.space`), or others (`create_space`). All
build parameters are read from the hardware's registers; nothing is assumed.
"""

import numpy as np

from signalbox.driver.channel.channel import (
    Channel,
    ChannelResources,
    clear_errors,
    disable,
    stop,
)
from signalbox.driver.channel.priority_policy import Policy, PriorityPolicy
from signalbox.driver.channel.settings import ChannelSettings
from signalbox.driver.compute.contexts import Context
from signalbox.driver.compute.engine import ComputeEngine, ComputeSettings
from signalbox.driver.compute.tasks import Task
from signalbox.driver.faults.channel_error import ChannelActive
from signalbox.driver.faults.fault_buffer import FaultBuffer
from signalbox.driver.faults.fault_log import FaultLog
from signalbox.driver.faults.fault_registers import FaultRegisters
from signalbox.driver.memory.address_space import AddressSpace, SpaceError
from signalbox.driver.memory.asids import AddressSpaces
from signalbox.driver.memory.fence import FencePools
from signalbox.driver.memory.mmu_registers import MmuRegisters
from signalbox.driver.memory.physical import Buffer, Memory
from signalbox.driver.platform.control_port import ControlPort
from signalbox.driver.platform.info import DeviceError, DeviceInfo
from signalbox.driver.platform.machine import Machine
from signalbox.driver.runtime.cancellation import cancel, check_all
from signalbox.driver.runtime.channel_pool import ChannelPool
from signalbox.driver.runtime.clock import Clock
from signalbox.driver.runtime.completion import Completion
from signalbox.driver.runtime.event import Event
from signalbox.driver.runtime.limits import Limit, Limits
from signalbox.driver.runtime.services import Services
from signalbox.driver.runtime.stream import Stream
from signalbox.hw.config import SLOT_BYTES
from signalbox.hw.registers import KillScope

__all__ = ["Device", "DeviceError", "DeviceInfo"]

_RESERVED_BYTES = 4096
"""The first page of physical memory stays unused, so that no buffer has address 0."""

_FAULT_BYTES = 4096
"""Size of the fault buffer, in bytes."""

_LEVELS = 6
"""Default number of stream priorities, given enough channels and counters (section 7)."""


class Device:
    """One open machine. Created by `Device.open`.

    Members
    -------
    control : control port.
    info : build parameters.
    memory : allocator of physical memory.
    policy : maps streams to channels.
    spaces : address spaces and their ASIDs.
    space : default address space of streams and buffers.
    faults : log of translation faults.
    fences : fence pools of the address spaces.
    compute : compute engine, or None; `engine` raises instead.
    channels : open channels by number; `channel()` opens one.
    completion : interrupts, and waiting for fences.
    clock : converts PTIMER values to cycles.
    """

    def __init__(
        self,
        machine: Machine,
        info: DeviceInfo,
        policy: Policy,
        settings: ChannelSettings,
        compute: ComputeSettings,
    ) -> None:
        self.machine = machine
        self.control = ControlPort(machine)
        self.info = info
        self.policy = policy
        self.memory = Memory(machine, info.memory_bytes, base=_RESERVED_BYTES)
        # Reserve an ASID for the task lists if there is more than one: the last, as instance blocks
        # only have room for low ASIDs.
        own = [info.asids - 1] if info.compute and info.asids > 1 else []
        mmu = MmuRegisters(self.control)
        self.spaces = AddressSpaces(mmu, self.memory, info.asids, reserved=own)
        self.space = self.spaces.create("device")
        self._fault_buffer = self.memory.allocate_pages(_FAULT_BYTES, name="fault buffer")
        self._fault_registers = FaultRegisters(self.control)
        reader = FaultBuffer(self._fault_buffer, self._fault_registers, self.spaces.owner)
        self.faults = FaultLog(machine, reader, self._fault_registers)
        self.fences = FencePools(machine)
        self.compute: ComputeEngine | None = None
        if info.compute:
            self.compute = ComputeEngine(
                self.control, self.memory, self.spaces, info, compute, self.fences.of
            )
        resources = ChannelResources(
            self.control, self.memory, self.spaces, self.faults, self.compute
        )
        self.channels = ChannelPool(resources, info, policy, settings)
        self.completion = Completion(self.control, info, self.channels, self.faults, self.compute)
        self.clock = Clock(self.control, info)
        self._limits = Limits(policy.stream_priorities, compute.sharing)
        self._services = Services(
            policy,
            self.channels,
            self.completion,
            self.fences,
            self.clock,
            self._limits,
            self.compute,
        )
        self._streams: list[Stream] = []

    @classmethod
    async def open(
        cls,
        machine: Machine,
        policy: Policy | None = None,
        settings: ChannelSettings | None = None,
        compute: ComputeSettings | None = None,
    ) -> "Device":
        """Enumerate the machine, bind the policy and enable interrupts. State of an earlier owner
        is cleared first: active channels, errors, interrupts.

        Parameters
        ----------
        policy : defaults to a `PriorityPolicy` of up to six levels.
        settings : default settings of channels.
        compute : settings of the compute engine.

        Raises `DeviceError` for an unsupported machine, or one with too few counting semaphores;
        `PolicyError` if the policy does not fit the channels; `PlacementError` for a bad
        environment variable; `ChannelActive`, `TaskListError` or `FaultBufferError` if a channel, a
        task or a fault record of an earlier owner does not end.
        """
        control = ControlPort(machine)
        info = await DeviceInfo.read(control)
        # Stop all channels before the first write to memory, which they may be using.
        await stop(control, range(info.channels))
        if policy is None:
            policy = PriorityPolicy(min(_LEVELS, info.channels, info.counters + 1))
        settings, compute = settings or ChannelSettings(), compute or ComputeSettings()
        device = cls(machine, info, policy, settings, compute)
        await device._take_over()
        await device._bind_policy()
        await device.clock.calibrate()
        await device.completion.enable()
        return device

    async def close(self) -> None:
        """Kill all tasks, close all channels and address spaces, disable and clear interrupts, and
        free the driver's own memory. Buffers are not freed. The device cannot be used afterwards.

        Raises `ChannelActive` if a channel does not stop; the other channels are closed, but
        nothing else is. Raises `FaultBufferError` if a fault record does not end; the fault buffer
        is not freed then.
        """
        await self.completion.disable()
        active = None
        await disable(self.control, self.channels)
        for index in list(self.channels):
            try:
                await self.channels.close(index)
            except ChannelActive as error:
                active = error
        await self.completion.clear()
        if active:
            raise active
        if self.compute is not None:
            self.compute.release()
        for space in self.spaces:
            await self.spaces.close(space)
        self.fences.end()
        if self.compute is not None:
            self.compute.free()
        await self._fault_registers.disable()
        self._fault_buffer.free()

    async def _take_over(self) -> None:
        """Clear the state of an earlier owner, whose channels have stopped, and set up faults and
        compute engine."""
        halted = await self.completion.halted()
        for index in range(self.info.channels):
            if halted >> index & 1:
                await clear_errors(self.control, index)
        await self.completion.clear()
        await self.spaces.take_over()
        self._fault_buffer.fill()
        await self._fault_registers.enable(self._fault_buffer)
        if self.compute is not None:
            await self.compute.open()

    async def _bind_policy(self) -> None:
        """Bind the policy to the machine, with the first on-chip semaphores as its counting
        semaphores, all 0. Raises `DeviceError`, `PolicyError`."""
        wanted = self.policy.semaphores
        if wanted > self.info.counters:
            raise DeviceError(
                f"the policy needs {wanted} counting semaphores, the machine has "
                f"{self.info.counters}"
            )
        await self.control.write("SEM_COUNTING", COUNT=wanted)
        for slot in range(wanted):
            await self.control.write_semaphore(slot, 0)
        addresses = [self.semaphore_address(slot) for slot in range(wanted)]
        self.policy.bind(self.info.channels, addresses)

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
        return await (space or self.space).allocate(size, read_only=read_only, name=name)

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

    async def kill(self, context: Context) -> None:
        """Kill all tasks of a context's address spaces, and those that they launch meanwhile, so
        `Task.synchronize` raises a `TaskError` for them; other commands are executed. Returns once
        the tasks launched before the call have ended.

        Raises as `Stream.cancel` and `Contexts.check`.
        """
        contexts = self.engine.contexts
        contexts.check(context)
        spaces = contexts.spaces(context)
        channels = [one for one in self.channels.values() if one.space in spaces]
        tasks = [task for one in channels for task in one.tasks]

        async def kill(_: Task) -> None:
            await self.engine.kill(KillScope.CONTEXT, context=context.number)

        for channel in channels:
            channel.killing = True
        try:
            await self.engine.kill(KillScope.CONTEXT, context=context.number)
            await check_all(channels)
            await cancel(tasks, channels, kill)
        finally:
            for channel in channels:
                channel.killing = False

    async def close_space(self, space: AddressSpace) -> None:
        """Close an address space with its streams and channels. Buffers are not freed.

        Raises `ChannelError`, `ChannelActive`, `SpaceError`.
        """
        if space is self.space:
            raise SpaceError(f"{space} is the device's own: it is closed with the device")
        for stream in [each for each in self._streams if each.space is space]:
            await stream.close()
        for index in [each.index for each in self.channels.values() if each.space is space]:
            await self.channels.close(index)
        await self.spaces.close(space)
        if self.compute is not None:
            self.compute.forget(space)
        self.fences.of(space).end()

    def semaphore_address(self, slot: int) -> int:
        """Virtual address of an on-chip semaphore. Raises `DeviceError` if there is none."""
        if not 0 <= slot < self.info.semaphores:
            raise DeviceError(f"semaphore {slot} is outside 0 … {self.info.semaphores - 1}")
        return self.info.window + slot * SLOT_BYTES

    @property
    def engine(self) -> ComputeEngine:
        """The compute engine. Raises `DeviceError` if there is none."""
        return self._services.engine

    # Time

    async def time_ns(self) -> int:
        """Current PTIMER value, in ns."""
        return await self.control.time_ns()

    def cycle_of(self, time_ns: int) -> int:
        """Machine cycle (as `Machine.now`) at a PTIMER value in ns, such as that of an event."""
        return self.clock.cycle_of(time_ns)

    # Streams

    def stream_priority_range(self) -> tuple[int, int]:
        """(least, greatest) stream priority: 0 and a number at or below 0, as in CUDA."""
        return self.channels.priority_range

    def set_limit(self, limit: Limit | str, value: int) -> None:
        """Set a limit. The nesting depth determines the device priorities of streams created, or
        given a priority, from then on (NEST-1). It is also that of kernels that launch others, in
        contexts that start to run from then on (NEST-11): set it before the first launch. The limit
        of pending launches is that of the whole machine, from the next launch on. Raises
        `ValueError` for an unknown limit, or a value out of range."""
        self._limits[limit] = value

    def limit(self, limit: Limit | str) -> int:
        """Value of a limit. Raises `ValueError` for an unknown one."""
        return self._limits[limit]

    async def stream(
        self, priority: int = 0, *, space: AddressSpace | None = None, name: str = ""
    ) -> Stream:
        """Create a stream in `space` (default: the device's). A lower `priority` is more urgent; it
        is clamped to `stream_priority_range`, and determines the device priority of its launches.

        Raises as `ChannelPool.for_priority`: `DeviceError` if other spaces hold all channels of
        that priority, `OutOfAsids`, `OutOfMemory`, …
        """
        space, name = space or self.space, name or f"stream {len(self._streams)}"
        fences = self.fences.of(space)
        stream = Stream(self._services, name, space, await fences.take(), self._closed)
        try:
            await stream.set_priority(priority)
        except Exception:
            fences.give(stream.fence)
            raise
        self._streams.append(stream)
        return stream

    async def _closed(self, stream: Stream) -> None:
        """Remove a closed stream, and close its channel if no other stream uses it."""
        self._streams.remove(stream)
        self.fences.of(stream.space).give(stream.fence)
        if all(each.channel is not stream.channel for each in self._streams):
            await self.channels.close(stream.channel.index)

    def event(self, *, interrupt: bool = True) -> Event:
        """Create an event. The CPU can wait only for events created with `interrupt`."""
        return Event(self._services, interrupt=interrupt)

    async def channel(self, index: int, space: AddressSpace | None = None) -> Channel:
        """A hardware channel in `space` (default: the device's), opened if necessary. See
        `ChannelPool.open`."""
        return await self.channels.open(index, space or self.space)

    async def synchronize(self) -> None:
        """Wait until everything submitted to all streams has ended. Raises as
        `Completion.wait_fence`."""
        fences = [await stream.record_fence() for stream in self._streams]
        for fence, value in fences:
            await self.completion.wait_fence(fence, value, tuple(self.channels.values()))
