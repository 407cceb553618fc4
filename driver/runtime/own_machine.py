"""A machine that this process owns, from its registers up."""

from typing import Literal, Self, Unpack

from signalbox.driver.channel.channel import (
    Channel,
    ChannelResources,
    clear_errors,
    disable,
    stop,
)
from signalbox.driver.channel.priority_policy import Policy, PriorityPolicy
from signalbox.driver.channel.runlist import Runlist, switch_off
from signalbox.driver.channel.settings import ChannelOptions, ChannelSettings
from signalbox.driver.compute.engine import ComputeEngine, ComputeSettings
from signalbox.driver.faults.channel_error import ChannelActive
from signalbox.driver.faults.fault_buffer import FaultBuffer
from signalbox.driver.faults.fault_log import FaultLog
from signalbox.driver.faults.fault_registers import FaultRegisters
from signalbox.driver.memory.address_space import AddressSpace
from signalbox.driver.memory.asids import AddressSpaces
from signalbox.driver.memory.fence import FencePools
from signalbox.driver.memory.mmu_registers import MmuRegisters
from signalbox.driver.memory.physical import Memory
from signalbox.driver.platform.control_port import ControlPort
from signalbox.driver.platform.fair_lock import FairLock
from signalbox.driver.platform.info import DeviceError, DeviceInfo
from signalbox.driver.platform.machine import Machine
from signalbox.driver.runtime.channel_pool import ChannelPool
from signalbox.driver.runtime.clock import Clock
from signalbox.driver.runtime.completion import Completion
from signalbox.driver.runtime.limits import Limits
from signalbox.driver.runtime.services import Services
from signalbox.hw.config import SLOT_BYTES

__all__ = ["STREAM_PRIORITIES", "OwnMachine", "Scheduling"]

Scheduling = Literal["flat", "runlist"]
"""Scheduling of channels: each by its own slice, or groups of channels by a runlist (HOST-7)."""

_RESERVED_BYTES = 4096
"""The first page of physical memory stays unused, so that no buffer has address 0."""

_FAULT_BYTES = 4096
"""Size of the fault buffer, in bytes."""

STREAM_PRIORITIES = 6
"""Default number of stream priorities, given enough channels and counters (spec 7)."""


class OwnMachine:
    """The `Owner` of a machine that no other driver uses. Created by `open`.

    Members
    -------
    control : control port.
    faults : log of translation faults.
    services : parts of the device.
    spaces : address spaces and their ASIDs.
    space : default address space.
    channels : open hardware channels by number.
    compute : compute engine, or None.
    completion : interrupts.
    """

    def __init__(
        self,
        machine: Machine,
        info: DeviceInfo,
        policy: Policy,
        settings: ChannelSettings,
        compute: ComputeSettings,
        scheduling: Scheduling = "flat",
    ) -> None:
        self.control = control = ControlPort(machine)
        memory = Memory(machine, info.memory_bytes, base=_RESERVED_BYTES)
        # Reserve an ASID for the task lists if there is more than one: the last, as instance blocks
        # have room only for low ASIDs.
        own = [info.asids - 1] if info.compute and info.asids > 1 else []
        self.spaces = AddressSpaces(MmuRegisters(control), memory, info.asids, reserved=own)
        self.space: AddressSpace = self.spaces.create("device")
        self._fault_buffer = memory.allocate_pages(_FAULT_BYTES, name="fault buffer")
        self._fault_registers = FaultRegisters(control)
        reader = FaultBuffer(self._fault_buffer, self._fault_registers, self.spaces.owner)
        self.faults = FaultLog(machine, reader, self._fault_registers)
        self._fences = FencePools(machine)
        self.compute: ComputeEngine | None = None
        if info.compute:
            parts = control, memory, self.spaces, info, compute, self._fences.of
            self.compute = ComputeEngine(*parts)
        self.spaces.passes_on = self._forget_faults
        runlist = Runlist(control, memory, info) if scheduling == "runlist" else None
        shared = control, memory, self.spaces, self.faults, self.compute
        self._counting = [info.window + slot * SLOT_BYTES for slot in range(policy.semaphores)]
        resources = ChannelResources(*shared, runlist, self._counting)
        self.channels = ChannelPool(resources, info, policy, settings)
        self.completion = Completion(control, info, self.channels, self.faults, self.compute)
        self.services = Services(
            machine=machine,
            info=info,
            policy=policy,
            memory=memory,
            spaces=self.spaces,
            channels=self.channels,
            completion=self.completion,
            fences=self._fences,
            clock=Clock(control.time_ns, info.cycle_ns),
            limits=Limits(policy.stream_priorities, compute.sharing, compute.priorities),
            compute=self.compute,
            runlist=runlist,
        )
        self._closing, self._closed = FairLock(machine), False

    @classmethod
    async def open(
        cls,
        machine: Machine,
        policy: Policy | None = None,
        settings: ChannelSettings | None = None,
        compute: ComputeSettings | None = None,
        scheduling: Scheduling = "flat",
    ) -> Self:
        """Open a machine. Parameters and errors are those of `Device.open`."""
        control = ControlPort(machine)
        info = await DeviceInfo.read(control)
        # Stop all channels before the first write to memory, which they may be using.
        await stop(control, range(info.channels))
        if policy is None:
            policy = PriorityPolicy(min(STREAM_PRIORITIES, info.channels, info.counters + 1))
        settings, compute = settings or ChannelSettings(), compute or ComputeSettings()
        own = cls(machine, info, policy, settings, compute, scheduling)
        await own._take_over()
        await own._bind_policy()
        await own.services.clock.calibrate(machine.now)
        await own.completion.enable()
        return own

    async def channel(
        self, index: int, space: AddressSpace, **options: Unpack[ChannelOptions]
    ) -> Channel:
        """A hardware channel. See `ChannelPool.open`."""
        return await self.channels.open(index, space, **options)

    async def _forget_faults(self, asid: int) -> None:
        """Drop the faults of an ASID before another space gets it."""
        await self.faults.forget(asid)
        if self.compute is not None:
            await self.compute.warp_faults.forget(asid)

    async def close(self, *, drain: bool = False) -> None:
        """See `Device.close`."""
        async with self._closing:
            if not self._closed:  # the machine may have another driver by now
                await self._end(drain)
                self._closed = True

    async def _end(self, drain: bool) -> None:
        """Close the machine, within `_closing`. A call that has failed, or was interrupted, can be
        repeated."""
        if drain:
            for channel in list(self.channels.values()):
                await channel.drain()
        await self.completion.disable()
        active = None
        await disable(self.control, self.channels)
        if self.services.runlist is not None:
            await self.services.runlist.close()
        for channel in list(self.channels.values()):
            try:
                await self.channels.end(channel)
            except ChannelActive as error:
                active = error
        await self.completion.clear()
        if active:
            raise active
        if self.compute is not None:
            self.compute.release()
        for space in self.spaces:
            await self.spaces.close(space)
        await self._fault_registers.disable()
        self._fences.end()
        if self.compute is not None:
            self.compute.free()
        self._fault_buffer.free()

    async def _take_over(self) -> None:
        """Clear the state of an earlier owner, whose channels have stopped, and set up the fault
        buffer and the compute engine."""
        halted = await self.completion.halted()
        for index in range(self.services.info.channels):
            if halted >> index & 1:
                await clear_errors(self.control, index)
        await self.completion.clear()
        if self.services.runlist is not None:
            await self.services.runlist.open()
        elif self.services.info.runlist_entries:
            await switch_off(self.control)
        if self.compute is not None:
            await self.compute.rest()  # tasks use their address spaces until they have ended
        await self.spaces.take_over()
        self._fault_buffer.fill()
        await self._fault_registers.enable(self._fault_buffer)
        if self.compute is not None:
            await self.compute.open()

    async def _bind_policy(self) -> None:
        """Bind the policy to the machine, with the first on-chip semaphores as its counting
        semaphores, all 0. Raises `DeviceError`, `PolicyError`."""
        policy, info = self.services.policy, self.services.info
        wanted = policy.semaphores
        if wanted > info.counters:
            raise DeviceError(
                f"the policy needs {wanted} counting semaphores, the machine has {info.counters}"
            )
        await self.control.write("SEM_COUNTING", COUNT=wanted)
        for slot in range(wanted):
            await self.control.write_semaphore(slot, 0)
        policy.bind(info.channels, self._counting)
