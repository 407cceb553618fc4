"""A Signalbox as a CUDA-like device: streams with priorities, asynchronous copies, events.

    device = await Device.open(machine, PriorityPolicy(levels=2))
    stream = await device.stream(priority=-1)
    await stream.memcpy_async(dst, src, size)
    await stream.synchronize()

Streams run in address spaces: the device's own one (`Device.space`), or others (`create_space`).
Everything that the hardware can be built with is read from its registers, nothing is assumed.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from driver.addressspace import AddressSpace, SpaceError
from driver.channel import Channel, ChannelSettings, Resources, clear_errors, stop
from driver.control import Control
from driver.fault import ChannelActive, ChannelError
from driver.faultbuffer import FaultBuffer
from driver.faultlog import FaultLog
from driver.faultregisters import FaultRegisters
from driver.fence import Fence, FencePool
from driver.machine import Machine
from driver.memory import Buffer, Memory
from driver.mmuregisters import MmuRegisters
from driver.policy import Policy, PolicyError, PriorityPolicy
from driver.pushbuffer import Pushbuffer
from driver.spaces import AddressSpaces
from driver.stream import Event, Stream
from hw.config import SLOT_BYTES
from hw.registers import GLOBAL, ID, VERSION

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


class DeviceError(Exception):
    """The machine is not one that this driver knows, or is used in a way that it cannot be."""


@dataclass(frozen=True)
class DeviceInfo:
    """Sizes of what was built, as its registers say; see `hw.config.Config`."""

    version: tuple[int, int]
    channels: int
    copy_engines: int
    semaphores: int
    counters: int
    data_width: int
    address_width: int
    memory_bytes: int
    asids: int
    cycle_ns: int
    window: int
    prefetch_beats: int
    l1_entries: int
    l2_entries: int
    l2_ways: int
    walks: int

    @classmethod
    async def read(cls, control: Control) -> "DeviceInfo":
        """Read identity, version and sizes; `DeviceError` when they are not a Signalbox's."""
        found = await control.read("ID")
        if found != ID:
            raise DeviceError(f"no Signalbox here: ID is {found:#010x}, not {ID:#010x}")
        word = await control.read("VERSION")
        version = word >> 16, word & 0xFFFF
        if version[0] != VERSION[0]:
            raise DeviceError(
                f"the machine has version {version[0]}.{version[1]} of the register map, "
                f"this driver knows {VERSION[0]}"
            )
        return cls(
            version=version,
            channels=await control.read("CHANNELS"),
            copy_engines=await control.read("COPY_ENGINES"),
            semaphores=await control.read("SEMAPHORES"),
            counters=await control.read("COUNTERS"),
            data_width=await control.read("DATA_WIDTH"),
            address_width=await control.read("ADDRESS_WIDTH"),
            memory_bytes=await control.read64("MEMORY_BYTES"),
            asids=await control.read("ASIDS"),
            cycle_ns=await control.read("CYCLE_NS"),
            window=await control.read64("SEM_WINDOW"),
            prefetch_beats=await control.read("PREFETCH_BEATS"),
            l1_entries=await control.read("L1_ENTRIES"),
            l2_entries=await control.read("L2_ENTRIES"),
            l2_ways=await control.read("L2_WAYS"),
            walks=await control.read("WALKS"),
        )


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
    channels : those in use, by number; `channel()` opens one.
    """

    def __init__(
        self, machine: Machine, info: DeviceInfo, policy: Policy, settings: ChannelSettings
    ) -> None:
        self.machine = machine
        self.control = Control(machine)
        self.info = info
        self.policy = policy
        self.settings = settings
        self.memory = Memory(machine, info.memory_bytes, base=_RESERVED_BYTES)
        self.spaces = AddressSpaces(MmuRegisters(self.control), self.memory, info.asids)
        self.space = self.spaces.create("device")
        self._fault_buffer = self.memory.allocate_pages(_FAULT_BYTES, name="fault buffer")
        self._fault_registers = FaultRegisters(self.control)
        reader = FaultBuffer(self._fault_buffer, self._fault_registers, self.spaces.owner)
        self.faults = FaultLog(machine, reader, self._fault_registers)
        self.channels: dict[int, Channel] = {}
        self._fences: dict[AddressSpace, FencePool] = {}
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
    ) -> "Device":
        """Enumerate the machine, bind the policy and switch interrupts on. What an earlier owner
        left is switched off and cleared: channels that use memory, errors, interrupts.

        `settings` are those of every channel. Without a policy streams have up to six priorities.

        Raises `DeviceError` for a machine that is no known Signalbox, `PolicyError` for a policy
        that needs more than the machine has, `ChannelActive` for one that does not come to rest,
        `FaultBufferError` for an earlier owner's fault record that does not end.
        """
        control = Control(machine)
        info = await DeviceInfo.read(control)
        # Before anything is written to memory, for they may use it.
        for index in range(info.channels):
            await stop(control, index)
        if policy is None:
            policy = PriorityPolicy(min(_LEVELS, info.channels, info.counters + 1))
        device = cls(machine, info, policy, settings or ChannelSettings())
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
        for space in self.spaces:
            await self.spaces.close(space)
        for fences in self._fences.values():
            fences.end()
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

    def create_space(self, name: str = "") -> AddressSpace:
        """A new address space, for streams and buffers of their own. Raises `OutOfMemory`."""
        return self.spaces.create(name)

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
        """A hardware channel in `space`, else the device's; switched on and with the copy class
        bound when first asked for.

        Raises `DeviceError` for a channel that another space has; otherwise as `Channel.open`.
        """
        space = space or self.space
        if index not in self.channels:
            if not 0 <= index < self.info.channels:
                raise DeviceError(f"channel {index} is outside 0 … {self.info.channels - 1}")
            resources = Resources(self.control, self.memory, self.spaces, self.faults)
            channel = Channel(resources, space, index, self.settings)
            self.channels[index] = channel
            try:
                await channel.open(Pushbuffer().set_object())
            except Exception:
                del self.channels[index]
                raise
        channel = self.channels[index]
        if channel.space is not space:
            raise DeviceError(f"channel {index} is that of {channel.space}, not of {space}")
        return channel

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
        (`FaultBufferOverflow`, `FaultBufferError`) is raised once, to whoever waits then.
        """
        patience, seen = _HALTED_PATIENCE, []
        while not done():
            for channel in channels:
                if channel.failure is not None:
                    raise channel.failure
            self.faults.tell()
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
        self.faults.tell()

    def first_failure(self) -> ChannelError | None:
        """An error that halts one of the channels, as far as known."""
        failures = (channel.failure for channel in self.channels.values())
        return next((failure for failure in failures if failure is not None), None)

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
            for index, channel in list(self.channels.items()):
                if halted >> index & 1 and channel.failure is None:
                    await channel.check()
        finally:
            self._serving = False

    async def _clear_events(self) -> None:
        for name in ("INTR_NOTIFY", "INTR_COPY"):
            await self.control.write64(name, (1 << 64) - 1)

    async def _enable(self, errors: bool) -> None:
        """Switch interrupts on, those of errors only if wanted: while a channel stays halted its
        error would keep the line at 1."""
        self._errors_enabled = errors
        await self.control.write("INTR_ENABLE", ERROR=int(errors), NOTIFY=1, COPY=1, FAULT=1)

    async def _mask(self, name: str) -> int:
        """A mask of channels, without the half that no channel has."""
        if self.info.channels > 32:
            return await self.control.read64(name)
        return await self.control.read(f"{name}_LO")
