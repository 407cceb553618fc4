"""A Signalbox as a CUDA-like device: streams with priorities, copies, launches, events.

    device = await Device.open(machine, PriorityPolicy(levels=2))
    stream = await device.stream(priority=-1)
    await stream.memcpy_async(dst, src, size)
    await stream.synchronize()

Streams run in address spaces: the device's own one (`Device.space`), or others (`create_space`).
Everything that the hardware can be built with is read from its registers, nothing is assumed.
"""

from collections.abc import Callable, Sequence

import numpy as np

from driver.addressspace import AddressSpace, SpaceError
from driver.channel import Channel, ChannelSettings, Resources, clear_errors, stop
from driver.compute import Compute, ComputeSettings
from driver.contexts import Context, ContextBroken
from driver.control import Control
from driver.fault import ChannelActive, ChannelError
from driver.faultbuffer import FaultBuffer
from driver.faultlog import FaultLog
from driver.faultregisters import FaultRegisters
from driver.fence import Fence, FencePool
from driver.info import DeviceError, DeviceInfo
from driver.machine import Machine
from driver.memory import Buffer, Memory
from driver.mmuregisters import MmuRegisters
from driver.policy import Policy, PolicyError, PriorityPolicy
from driver.pushbuffer import COMPUTE_SUBCHANNEL, Pushbuffer
from driver.spaces import AddressSpaces
from driver.stream import Event, Stream
from hw.config import SLOT_BYTES
from hw.methods import ObjectClass
from hw.registers import GLOBAL

__all__ = ["Device", "DeviceError", "DeviceInfo"]

_RESERVED_BYTES = 4096
"""The first page stays unused, so that address 0 is nobody's."""

_HALTED_POLL_CYCLES = 1000
"""Cycles between looks at the interrupt status while a channel stays halted."""

_HALTED_PATIENCE = 100
"""So many looks without progress until a wait is given up that another channel's error may hold
back."""

_SERVED_ELSEWHERE_CYCLES = 4
"""Cycles between looks whether another task has served the interrupt."""

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
        self.settings = settings
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
        self.channels: dict[int, Channel] = {}
        self._fences: dict[AddressSpace, FencePool] = {}
        self.compute: Compute | None = None
        if info.compute:
            parts = self.control, self.memory, self.spaces, info, compute
            self.compute = Compute(*parts, self.fences)
        self._streams: list[Stream] = []
        self._serving = False
        self._errors_enabled = False
        self._epoch_cycles = 0

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
        await device._calibrate()
        await device._enable(errors=True)
        return device

    async def close(self) -> None:
        """Switch channels and interrupts off, clear these, unbind and end all address spaces and
        give the memory of all that back; buffers stay. No call comes after it.

        Raises `ChannelActive` for a channel that does not come to rest; the others are closed, and
        nothing else. `FaultBufferError` for a fault record that does not end: the memory of the
        fault buffer is not given back.
        """
        await self.control.write("INTR_ENABLE", 0)
        active = None
        for index in list(self.channels):
            try:
                await self.close_channel(index)
            except ChannelActive as error:
                active = error
        await self._clear_events()
        if active:
            raise active
        if self.compute is not None:
            self.compute.release()
        for space in self.spaces:
            await self.spaces.close(space)
        for fences in self._fences.values():
            fences.end()
        if self.compute is not None:
            self.compute.free()
        await self._fault_registers.disable()
        self._fault_buffer.free()

    async def _take_over(self) -> None:
        """Clear what an earlier owner has left, now that its channels are at rest."""
        halted = await self._mask("INTR_ERROR")
        for index in range(self.info.channels):
            if halted >> index & 1:
                await clear_errors(self.control, index)
        await self._clear_events()
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

    async def _calibrate(self) -> None:
        """Learn which of the machine's cycles is PTIMER 0, to within one register access."""
        before = self.machine.now()
        time = await self.time_ns()
        middle = (before + self.machine.now()) // 2
        self._epoch_cycles = middle - time // self.info.cycle_ns

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
            self.engine.contexts.choose(space, context)
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
            await self.close_channel(index)
        await self.spaces.close(space)
        if self.compute is not None:
            self.compute.forget(space)
        self.fences(space).end()

    def fences(self, space: AddressSpace) -> FencePool:
        """Fences of an address space."""
        if space not in self._fences:
            self._fences[space] = FencePool(space, self.machine)
        return self._fences[space]

    def semaphore_address(self, slot: int) -> int:
        """Virtual address of an on-chip semaphore."""
        if not 0 <= slot < self.info.semaphores:
            raise DeviceError(f"semaphore {slot} is outside 0 … {self.info.semaphores - 1}")
        return self.info.window + slot * SLOT_BYTES

    @property
    def engine(self) -> Compute:
        """The compute engine. Raises `DeviceError` without one."""
        if self.compute is None:
            raise DeviceError("the machine has no compute engine")
        return self.compute

    # Time

    async def time_ns(self) -> int:
        """PTIMER now."""
        return await self.control.time_ns()

    def cycle_of(self, time_ns: int) -> int:
        """The machine's cycle (`Machine.now`) of a PTIMER value, such as an event's."""
        return time_ns // self.info.cycle_ns + self._epoch_cycles

    # Streams

    @property
    def priority_range(self) -> tuple[int, int]:
        """(least, greatest) stream priority: 0 and a number at or below it, as in CUDA."""
        return 0, 1 - self.policy.stream_priorities

    def clamp_priority(self, priority: int) -> int:
        """The nearest priority inside the range; CUDA clamps silently (section 7)."""
        least, greatest = self.priority_range
        return min(least, max(greatest, priority))

    async def stream(
        self, priority: int = 0, *, space: AddressSpace | None = None, name: str = ""
    ) -> Stream:
        """A new stream in `space`, else the device's. A lower `priority` is more urgent; it is
        clamped to `priority_range`.

        Raises `DeviceError` when other spaces have all channels of that priority; `OutOfAsids`.
        """
        space, name = space or self.space, name or f"stream {len(self._streams)}"
        fences = self.fences(space)
        stream = Stream(self, name, space, await fences.take())
        try:
            await stream.set_priority(priority)
        except Exception:
            fences.give(stream.fence)
            raise
        self._streams.append(stream)
        return stream

    async def forget(self, stream: Stream) -> None:
        """A stream has ended: its channel is closed when no other one is in it."""
        self._streams.remove(stream)
        self.fences(stream.space).give(stream.fence)
        if all(each.channel is not stream.channel for each in self._streams):
            await self.close_channel(stream.channel.index)

    def event(self, *, interrupt: bool = True) -> Event:
        """A new event. Only one made with `interrupt` can be waited for by the CPU."""
        return Event(self, interrupt=interrupt)

    async def channel_for(self, priority: int, space: AddressSpace) -> Channel:
        """The channel of a stream in `space` that has just been given `priority`."""
        channels = self.channels
        usable = {
            index
            for index in range(self.info.channels)
            if index not in channels or channels[index].space is space
        }
        try:
            index = self.policy.channel(priority, usable)
        except PolicyError as error:
            owners = [f"channel {i} {channels[i].space.name!r}" for i in sorted(channels)]
            raise DeviceError(
                f"no channel for a stream of {space}: {error}. Address spaces have: "
                f"{', '.join(owners)}"
            ) from error
        return await self.channel(index, space)

    async def channel(self, index: int, space: AddressSpace | None = None) -> Channel:
        """A hardware channel in `space`, else the device's; switched on, and with the copy class
        and the compute class bound, when first asked for.

        Raises `DeviceError` for a channel that another space has; otherwise as `Channel.open`.
        """
        space = space or self.space
        if index not in self.channels:
            if not 0 <= index < self.info.channels:
                raise DeviceError(f"channel {index} is outside 0 … {self.info.channels - 1}")
            parts = self.control, self.memory, self.spaces, self.faults, self.compute
            resources = Resources(*parts)
            channel = Channel(resources, space, index, self.settings)
            self.channels[index] = channel
            try:
                await channel.open(self._first_commands())
            except Exception:
                del self.channels[index]
                raise
        channel = self.channels[index]
        if channel.space is not space:
            raise DeviceError(f"channel {index} is that of {channel.space}, not of {space}")
        return channel

    def _first_commands(self) -> Pushbuffer:
        """Bind the classes that the machine has."""
        commands = Pushbuffer().set_object()
        if self.compute is not None:
            commands.set_object(COMPUTE_SUBCHANNEL, ObjectClass.COMPUTE)
        return commands

    async def close_channel(self, index: int) -> None:
        """Switch a channel off; any address space can have it then. Nothing may use it any more.
        Raises `ChannelActive`."""
        await self.channels[index].close()
        del self.channels[index]

    async def synchronize(self) -> None:
        """Wait until all streams have ended what was submitted. Raises `ChannelError`."""
        fences = [await stream.record_fence() for stream in self._streams]
        for fence, value in fences:
            await self.wait_fence(fence, value, tuple(self.channels.values()))

    # Interrupts

    async def wait_fence(self, fence: Fence, value: int, channels: Sequence[Channel]) -> None:
        """Wait until `fence` was released with `value` or a later one, by interrupt.

        Raises the `ChannelError` of any of `channels`, which are those that must go on for it.
        """
        await self.wait_for(lambda: fence.reached(value), channels)

    async def wait_for(self, done: Callable[[], bool], channels: Sequence[Channel]) -> None:
        """Wait until `done()`, looked at after every interrupt; errors as `wait_fence`.

        A channel that is halted elsewhere may hold this wait back for ever, by a semaphore say:
        its error is raised when `channels` have done nothing for long. That fault records were lost
        (`FaultBufferOverflow`, `FaultBufferError`), or a task (`TaskListError`), is raised once, to
        whoever waits then. `ContextBroken` is raised as a channel's error is.
        """
        patience, seen = _HALTED_PATIENCE, []
        while not done():
            for channel in channels:
                if channel.failure is not None:
                    raise channel.failure
            self._tell(channels)
            elsewhere = self.first_failure()
            if self._serving:
                await self.machine.wait_cycles(_SERVED_ELSEWHERE_CYCLES)
            elif self._errors_enabled != (elsewhere is None):
                await self._enable(elsewhere is None)
            elif elsewhere is None:
                await self.machine.interrupt()
                await self._serve()
            elif patience:
                before, seen = seen, [await channel.progress() for channel in channels]
                patience = _HALTED_PATIENCE if before != seen else patience - 1
                await self.machine.wait_cycles(_HALTED_POLL_CYCLES)
                await self._serve()
            else:
                raise elsewhere
        self._tell(())

    def _tell(self, channels: Sequence[Channel]) -> None:
        """Raise what was lost, once; and `ContextBroken` while tasks of `channels` cannot run."""
        self.faults.tell()
        if self.compute is None:
            return
        self.compute.tell()
        if broken := self.compute.broken([channel.space for channel in channels]):
            raise broken

    def first_failure(self) -> ChannelError | ContextBroken | None:
        """An error that halts one of the channels, or its tasks, as far as known."""
        failures = (channel.failure for channel in self.channels.values())
        halted = next((failure for failure in failures if failure is not None), None)
        if halted is None and self.compute is not None:
            return self.compute.broken([channel.space for channel in self.channels.values()])
        return halted

    async def _serve(self) -> None:
        """Take note of interrupts and clear them; only one task at a time does it.

        A fence is written before its interrupt is raised, and looked at after it was cleared, so
        none is missed.
        """
        if self._serving:
            return
        self._serving = True
        try:
            pending = GLOBAL["INTR"].unpack(await self.control.read("INTR"))
            if pending["NOTIFY"]:
                await self.control.write64("INTR_NOTIFY", await self._mask("INTR_NOTIFY"))
            if pending["COPY"]:
                await self.control.write64("INTR_COPY", await self._mask("INTR_COPY"))
            halted = await self._mask("INTR_ERROR") if pending["ERROR"] else 0
            if pending["FAULT"]:
                await self.faults.read()
            if pending["TASK"] and self.compute is not None:
                await self.compute.serve()
            for index, channel in list(self.channels.items()):
                if halted >> index & 1 and channel.failure is None:
                    await channel.check()
        finally:
            self._serving = False

    async def _clear_events(self) -> None:
        for name in ("INTR_NOTIFY", "INTR_COPY"):
            await self.control.write64(name, (1 << 64) - 1)

    async def _enable(self, errors: bool) -> None:
        """Switch interrupts on, those of errors only if wanted: while a channel stays halted, or a
        context cannot run, its error would keep the line at 1."""
        self._errors_enabled = errors
        wanted = {"ERROR": int(errors), "TASK": int(errors)}
        await self.control.write("INTR_ENABLE", NOTIFY=1, COPY=1, FAULT=1, **wanted)

    async def _mask(self, name: str) -> int:
        """A mask of channels, without the half that no channel has."""
        if self.info.channels > 32:
            return await self.control.read64(name)
        return await self.control.read(f"{name}_LO")
