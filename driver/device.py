"""A Signalbox as a CUDA-like device: streams with priorities, copies, launches, events.

    device = await Device.open(machine, PriorityPolicy(levels=2))
    stream = await device.stream(priority=-1)
    await stream.memcpy_async(dst, src, size)
    await stream.synchronize()

Streams run in address spaces: the device's own one (`Device.space`), or others (`create_space`).
Everything that the hardware can be built with is read from its registers, nothing is assumed.
"""

import numpy as np

from signalbox.driver.channel.channel import Channel, ChannelResources, clear_errors, stop
from signalbox.driver.channel.priority_policy import Policy, PriorityPolicy
from signalbox.driver.channel.settings import ChannelSettings
from signalbox.driver.compute.contexts import Context
from signalbox.driver.compute.engine import ComputeEngine, ComputeSettings
from signalbox.driver.faults.channel_error import ChannelActive
from signalbox.driver.faults.fault_buffer import FaultBuffer
from signalbox.driver.faults.fault_log import FaultLog
from signalbox.driver.faults.fault_registers import FaultRegisters
from signalbox.driver.memory.address_space import AddressSpace, SpaceError
from signalbox.driver.memory.asids import AddressSpaces
from signalbox.driver.memory.fence import FencePools
from signalbox.driver.memory.mmu_registers import MmuRegisters
from signalbox.driver.memory.physical import Buffer, Memory
from signalbox.driver.platform.control_port import Control
from signalbox.driver.platform.info import DeviceError, DeviceInfo
from signalbox.driver.platform.machine import Machine
from signalbox.driver.runtime.channel_pool import ChannelPool
from signalbox.driver.runtime.clock import Clock
from signalbox.driver.runtime.completion import Completion
from signalbox.driver.runtime.event import Event
from signalbox.driver.runtime.services import Services
from signalbox.driver.runtime.stream import Stream
from signalbox.hw.config import SLOT_BYTES

__all__ = ["Device", "DeviceError", "DeviceInfo"]

_RESERVED_BYTES = 4096
"""The first page stays unused, so that address 0 is nobody's."""

_FAULT_BYTES = 4096
"""Size of the fault buffer."""

_LEVELS = 6
"""Stream priorities by default, if there are channels enough (section 7)."""


class Device:
    """One opened machine. Made by `open`.

    Members
    -------
    info : sizes of what was built.
    memory : its allocator.
    policy : how streams become channels.
    spaces : all address spaces, and their ASIDs. space : the one in which streams run, and buffers
        are mapped, unless told otherwise.
    faults : accesses that were not translated.
    compute : its compute engine, None without one; `engine` raises then.
    channels : those in use, by number; `channel()` opens one.
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
        self.control = Control(machine)
        self.info = info
        self.policy = policy
        self.memory = Memory(machine, info.memory_bytes, base=_RESERVED_BYTES)
        # One for the lists of tasks, if there is one to spare; the last, for instance blocks have
        # no room for high ones.
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
        self._services = Services(
            policy, self.channels, self.completion, self.fences, self.clock, self.compute
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
        """Enumerate the machine, bind the policy and switch interrupts on. What an earlier owner
        left is switched off and cleared: channels that use memory, errors, interrupts.

        `settings` are those of every channel, `compute` those of the compute engine. Without a
        policy streams have up to six priorities.

        Raises `DeviceError` for a machine that is no known Signalbox, `PolicyError` for a policy
        that needs more than the machine has, `PlacementError` for an environment variable,
        `ChannelActive` for a channel that does not come to rest, `TaskListError` for tasks that do
        not, `FaultBufferError` for an earlier owner's fault record that does not end.
        """
        control = Control(machine)
        info = await DeviceInfo.read(control)
        # Before anything is written to memory, for they may use it.
        for index in range(info.channels):
            await stop(control, index)
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
        """Switch channels and interrupts off, clear these, unbind and end all address spaces and
        give the memory of all that back; buffers stay. No call comes after it.

        Raises `ChannelActive` for a channel that does not come to rest; the others are closed, and
        nothing else. `FaultBufferError` for a fault record that does not end: the memory of the
        fault buffer is not given back.
        """
        await self.completion.disable()
        active = None
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
        """Clear what an earlier owner has left, now that its channels are at rest."""
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
        """Give the policy its counting semaphores: the first ones on chip, all 0."""
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
        """A buffer of device memory, whole pages, mapped in `space`, else the device's.

        `space.map(buffer)` maps it in another one too. Raises `OutOfMemory`, `MapError`.
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
        """A new buffer that holds `array`; otherwise as `allocate`."""
        buffer = await self.allocate(array.nbytes, space=space, read_only=read_only, name=name)
        buffer.write(array)
        return buffer

    async def free(self, buffer: Buffer) -> None:
        """Unmap a buffer wherever it is mapped, and give its memory back."""
        for space in self.spaces:
            await space.unmap_all(buffer)
        buffer.free()

    def create_space(self, name: str = "", *, context: Context | None = None) -> AddressSpace:
        """A new address space, for streams and buffers of their own; its tasks run in `context`,
        else with those of others. Raises `OutOfMemory`, `ContextError`."""
        space = self.spaces.create(name)
        if context is not None:
            self._services.engine.contexts.choose(space, context)
        return space

    async def close_space(self, space: AddressSpace) -> None:
        """Close the streams and channels of a space, unbind it and unmap what is in it.

        Buffers stay. Raises `ChannelError`, `ChannelActive`, `SpaceError`.
        """
        if space is self.space:
            raise SpaceError(f"{space} is the device's own: it ends with the device")
        for stream in [each for each in self._streams if each.space is space]:
            await stream.close()
        for index in [each.index for each in self.channels.values() if each.space is space]:
            await self.channels.close(index)
        await self.spaces.close(space)
        if self.compute is not None:
            self.compute.forget(space)
        self.fences.of(space).end()

    def semaphore_address(self, slot: int) -> int:
        """Virtual address of an on-chip semaphore."""
        if not 0 <= slot < self.info.semaphores:
            raise DeviceError(f"semaphore {slot} is outside 0 … {self.info.semaphores - 1}")
        return self.info.window + slot * SLOT_BYTES

    @property
    def engine(self) -> ComputeEngine:
        """The compute engine. Raises `DeviceError` without one."""
        return self._services.engine

    # Time

    async def time_ns(self) -> int:
        """PTIMER now."""
        return await self.control.time_ns()

    def cycle_of(self, time_ns: int) -> int:
        """The machine's cycle (`Machine.now`) of a PTIMER value, such as an event's."""
        return self.clock.cycle_of(time_ns)

    # Streams

    @property
    def priority_range(self) -> tuple[int, int]:
        """(least, greatest) stream priority: 0 and a number at or below it, as in CUDA."""
        return self.channels.priority_range

    async def stream(
        self, priority: int = 0, *, space: AddressSpace | None = None, name: str = ""
    ) -> Stream:
        """A new stream in `space`, else the device's. A lower `priority` is more urgent; it is
        clamped to `priority_range`.

        Raises `DeviceError` when other spaces have all channels of that priority; `OutOfAsids`.
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
        """A stream has ended: its channel is closed when no other one is in it."""
        self._streams.remove(stream)
        self.fences.of(stream.space).give(stream.fence)
        if all(each.channel is not stream.channel for each in self._streams):
            await self.channels.close(stream.channel.index)

    def event(self, *, interrupt: bool = True) -> Event:
        """A new event. Only one made with `interrupt` can be waited for by the CPU."""
        return Event(self._services, interrupt=interrupt)

    async def channel(self, index: int, space: AddressSpace | None = None) -> Channel:
        """A hardware channel in `space`, else the device's. See `ChannelPool.open`."""
        return await self.channels.open(index, space or self.space)

    async def synchronize(self) -> None:
        """Wait until all streams have ended what was submitted. Raises `ChannelError`."""
        fences = [await stream.record_fence() for stream in self._streams]
        for fence, value in fences:
            await self.completion.wait_fence(fence, value, tuple(self.channels.values()))
