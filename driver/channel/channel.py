"""One hardware channel: its ring, its pushbuffer memory, its doorbell and its errors.

Order of a submission (spec page 60, 3.5): write the segment, write the ring entry, write
USERD.GP_PUT, ring the doorbell.
"""

from collections import deque
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace

from signalbox.driver.channel.copy_log import CopyLog, LaunchedCopy
from signalbox.driver.channel.copy_replay import RepeatError, move, release
from signalbox.driver.channel.settings import ChannelSettings
from signalbox.driver.commands.pushbuffer import Pushbuffer
from signalbox.driver.compute.contexts import Context
from signalbox.driver.compute.engine import ComputeEngine
from signalbox.driver.compute.tasks import Tasks
from signalbox.driver.faults.channel_error import (
    ChannelActive,
    ChannelError,
    ChannelTimeout,
    read_error,
)
from signalbox.driver.faults.fault_log import FaultLog
from signalbox.driver.faults.task_error import TaskError
from signalbox.driver.memory.address_space import AddressSpace
from signalbox.driver.memory.asids import AddressSpaces
from signalbox.driver.memory.physical import Buffer, Memory
from signalbox.driver.memory.translation_fault import TranslationFault
from signalbox.driver.platform.control_port import Control
from signalbox.driver.platform.fair_lock import FairLock
from signalbox.hw.errors import Cause
from signalbox.hw.methods import USERD_BYTES, GpEntry, HostMethod, Userd, pack
from signalbox.hw.page_tables import AccessType

__all__ = ["Channel", "ChannelResources", "clear_errors", "stop"]

POLL_CYCLES = 200
"""Cycles between looks at GP_GET while a ring or its pushbuffer memory is full, and at a channel
that was switched off."""

STOP_CYCLES = 100_000
"""Cycles after which a channel that was switched off must be done with its memory."""

_DWORD = 4
_ENTRY_BYTES = 8


async def stop(control: Control, index: int) -> None:
    """Switch a channel off and wait until the hardware is done with its memory, at most
    `STOP_CYCLES`. Raises `ChannelActive`."""
    await control.write_channel(index, "CONTROL", ENABLE=0)
    waited = 0
    while (await control.read_channel_fields(index, "STATUS"))["ACTIVE"]:
        if waited >= STOP_CYCLES:
            raise ChannelActive(index, waited)
        await control.machine.wait_cycles(POLL_CYCLES)
        waited += POLL_CYCLES


async def clear_error(control: Control, index: int) -> None:
    """Clear a channel's error, if it has one; if it is switched on, it goes on."""
    for name in ("INTR_0", "INTR_1"):
        pending = await control.read_channel(index, name)
        if pending:
            await control.write_channel(index, name, pending)


async def clear_errors(control: Control, index: int) -> None:
    """Clear all errors of a channel that is switched off: behind one there may be another."""
    while (await control.read_channel_fields(index, "STATUS"))["HALTED"]:
        await clear_error(control, index)


@dataclass
class _Segment:
    """Pushbuffer bytes of one ring entry; `entry` counts all entries since the start."""

    entry: int
    start: int
    end: int


@dataclass(frozen=True)
class ChannelResources:
    """What the channels of a device have in common; without a compute engine, no `compute`."""

    control: Control
    memory: Memory
    spaces: AddressSpaces
    faults: FaultLog
    compute: ComputeEngine | None = None


class Channel:
    """A channel that is switched on. Made by `Device.channel`. Everything that it does is in the
    address space `space`, whose ASID it keeps from `open` to `close`; so its context. `tasks` are
    those that it launched.

    Several tasks may submit; each submission is one ring entry, so none is torn. They take turns
    in the order in which they came, also while the ring is full.
    """

    def __init__(
        self,
        resources: ChannelResources,
        space: AddressSpace,
        index: int,
        settings: ChannelSettings,
    ) -> None:
        self.control = resources.control
        self.machine = resources.control.machine
        self.space = space
        self.index = index
        self.settings = settings
        self.failure: ChannelError | None = None
        self._resources = resources
        self._asid: int | None = None
        self._buffers: list[Buffer] = []
        self._submitted = 0
        self._started = 0
        self._segments: deque[_Segment] = deque()
        self._copies = CopyLog()
        self.tasks = Tasks()
        self._joined = False
        self._lock = FairLock(self.machine)

    async def open(self, first: Pushbuffer) -> None:
        """Map its memory, write the registers and switch the channel on; it begins with `first`. To
        be called once. What other tasks submit meanwhile waits for its turn: GP_GET is still that
        of the channel's last start.

        Raises `ChannelActive` when what it did before does not end, `OutOfAsids`, `OutOfMemory`;
        then its memory is given back.
        """
        async with self.turn():
            try:
                asid = self._asid = await self._resources.spaces.acquire(self.space)
                context = await self._join(asid)
                await self._allocate()
                await self.enqueue(first.dwords)
                await self._start(asid, context.number if context else 0)
            except Exception:
                await self._free()
                raise
            await self.ring_doorbell()

    async def _join(self, asid: int) -> "Context | None":
        """Have a context for tasks, if there is one."""
        compute = self._resources.compute
        if compute is None:
            return None
        context = await compute.join(self.space, asid)
        self._joined = context is not None
        return context

    async def _allocate(self) -> None:
        """Ring, USERD and memory for pushbuffers; the machine writes only USERD, and so no copy
        can damage the others."""
        settings = self.settings
        self._ring = await self._map(settings.ring_entries * _ENTRY_BYTES, "ring")
        self._userd = await self._map(USERD_BYTES, "USERD", read_only=False)
        self._arena = await self._map(settings.pushbuffer_bytes, "pushbuffers")
        self._userd.fill(0)

    async def _map(self, size: int, what: str, *, read_only: bool = True) -> Buffer:
        name = f"{what} of channel {self.index}"
        space = self.space
        buffer = await space.allocate(size, above=space.upper, read_only=read_only, name=name)
        self._buffers.append(buffer)
        return buffer

    async def _start(self, asid: int, context: int) -> None:
        ring, userd, settings = self.space.at(self._ring), self.space.at(self._userd), self.settings
        limit = settings.ring_entries.bit_length() - 1
        # A start while it is active would hold up the control port, doorbells of all channels too.
        await stop(self.control, self.index)
        await self._write("GP_BASE", ring & 0xFFFF_FFFF)
        await self._write("GP_BASE_HI", OFFSET=ring >> 32, LIMIT2=limit)
        await self._write("USERD", userd & 0xFFFF_FFFF)
        await self._write("USERD_HI", ADDRESS=userd >> 32)
        await self._write(
            "CONFIG",
            ASID=asid,
            CONTEXT=context,
            AUTH_LEVEL=int(settings.privileged),
            EARLY_WAITS=int(settings.early_waits),
        )
        await self._write("SLICE", settings.slice_cycles)
        await self._write("ACQUIRE", settings.acquire)
        await self._write("CONTROL", ENABLE=1)

    async def close(self) -> None:
        """Switch the channel off and give its memory back, once the hardware is done with it. Its
        errors no longer ask for the interrupt. Raises `ChannelActive`."""
        await stop(self.control, self.index)
        await clear_errors(self.control, self.index)
        await self._free()

    async def _free(self) -> None:
        """Unmap and free its memory, and need neither context nor ASID any more."""
        self.tasks.end()
        for buffer in self._buffers:
            await self.space.unmap_all(buffer)
            buffer.free()
        self._buffers.clear()
        if self._joined and self._resources.compute is not None:
            self._joined = False
            await self._resources.compute.leave(self.space)
        if self._asid is not None:
            self._resources.spaces.release(self.space)
            self._asid = None

    async def set_slice(self, cycles: int) -> None:
        """Change the time slice, 1 … 2^31 cycles."""
        if not 1 <= cycles <= 1 << 31:
            raise ValueError(f"cycles = {cycles} is outside 1 … 2^31")
        await self._write("SLICE", cycles)

    # Submission

    @property
    def largest_segment(self) -> int:
        """Most dwords of one submission."""
        return self.settings.pushbuffer_bytes // 4 // _DWORD

    def turn(self) -> AbstractAsyncContextManager[None]:
        """Have the ring to oneself for `enqueue`; who asked first is first."""
        return self._lock

    async def submit(self, commands: Pushbuffer | Sequence[int], *, sync: bool = False) -> None:
        """Put a pushbuffer on the channel, in turn, and ring its doorbell; as `enqueue`. An empty
        one is nothing."""
        dwords = commands.dwords if isinstance(commands, Pushbuffer) else list(commands)
        if not dwords:
            return
        async with self.turn():
            await self.enqueue(dwords, sync=sync)
        await self.ring_doorbell()

    async def enqueue(self, dwords: Sequence[int], *, sync: bool = False) -> None:
        """Put a pushbuffer on the ring, in one's `turn`; it is heard of with the next doorbell.
        Waits while the ring or its memory is full.

        `sync`: it is not fetched before everything earlier was executed (SYNC = WAIT).

        Raises `ChannelError` when the channel is halted and so will never have room,
        `ValueError` for a pushbuffer above `largest_segment`.
        """
        if len(dwords) > self.largest_segment:
            raise ValueError(
                f"{len(dwords)} dwords are more than the {self.largest_segment} of one submission; "
                "split them, or give channels more pushbuffer_bytes"
            )
        data = Pushbuffer().raw(*dwords).to_bytes()
        while (start := self._place(len(data))) is None:
            await self._recycle()
        self._segments.append(_Segment(self._submitted, start, start + len(data)))
        self._arena.write(data, start)
        self._push(self.space.at(self._arena) + start, dwords, sync)

    async def submit_segment(self, va: int, dwords: Sequence[int], *, sync: bool = False) -> None:
        """Put a pushbuffer on the channel that the caller has put at a virtual address of the
        channel's space, where it must stay until it was executed."""
        async with self.turn():
            while self._full():
                await self._recycle()
            self._push(va, dwords, sync)
        await self.ring_doorbell()

    async def ring_doorbell(self) -> None:
        """Tell the hardware that GP_PUT has moved."""
        await self.control.write("DOORBELL", CHID=self.index)

    def _push(self, va: int, dwords: Sequence[int], sync: bool) -> None:
        """Write the entry of the segment at `va`, and GP_PUT."""
        entries = self.settings.ring_entries
        entry = pack(GpEntry, address=va // _DWORD, length=len(dwords), sync_wait=sync)
        self._copies.submitted(self._submitted, dwords)
        position = self._submitted % entries
        self._ring.write(entry.to_bytes(_ENTRY_BYTES, "little"), position * _ENTRY_BYTES)
        self._submitted += 1
        put = self._submitted % entries
        self._userd.write(put.to_bytes(_DWORD, "little"), Userd.GP_PUT)

    def _full(self) -> bool:
        return self._submitted - self._started >= self.settings.ring_entries - 1

    def _place(self, size: int) -> int | None:
        """Offset of free pushbuffer memory, None when there is none or the ring is full."""
        if self._full():
            return None
        if not self._segments:
            return 0
        first, last = self._segments[0].start, self._segments[-1].end
        if first < last:
            if last + size <= self._arena.size:
                return last
            return 0 if size < first else None
        return last if last + size < first else None

    async def _recycle(self) -> None:
        """Learn how far the channel is and forget segments that it has left; wait when none.

        GP_GET passes an entry when its processing starts (1.1), so a segment is left only when
        GP_GET has passed the entry behind it.
        """
        if self.failure is not None:
            raise self.failure
        before = self._started, len(self._segments)
        await self.update()
        while self._segments and self._segments[0].entry + 1 < self._started:
            self._segments.popleft()
        self._copies.left(self._started - 1)
        if (self._started, len(self._segments)) == before and await self.check() is None:
            await self.machine.wait_cycles(POLL_CYCLES)

    async def update(self) -> int:
        """Read GP_GET; number of entries whose processing has started, since the channel began."""
        get = await self.control.read_channel(self.index, "GP_GET")
        self._started += (get - self._started) % self.settings.ring_entries
        return self._started

    async def progress(self) -> int:
        """A number that changes while the channel executes methods, or is the time while its
        copies and tasks run."""
        status = await self.control.read_channel_fields(self.index, "STATUS")
        if status["COPIES"] or status["TASKS"]:
            return self.machine.now()
        return await self.control.read_channel(self.index, "METHODS")

    @property
    def submitted(self) -> int:
        """Number of entries submitted since the channel began."""
        return self._submitted

    async def drain(self, *, poll: int = POLL_CYCLES, patience: int = 100_000) -> None:
        """Wait until everything submitted was executed, whatever it was, by looking at the status
        every `poll` cycles. Streams have better ways; this one needs nothing of the commands.

        Raises `ChannelError` when the channel halts, `ChannelTimeout` when it executes nothing for
        `patience` cycles.
        """
        waited, seen = 0, -1
        while True:
            status = await self.control.read_channel_fields(self.index, "STATUS")
            if status["HALTED"]:
                failure = await self.check()
                assert failure is not None, f"channel {self.index}: halted without a cause"
                raise failure
            running = status["COPIES"] or status["TASKS"]
            idle = not status["PENDING"] and not running
            if await self.update() == self._submitted and idle:
                return
            executed = await self.control.read_channel(self.index, "METHODS")
            waited = 0 if executed != seen or running else waited + poll
            seen = executed
            if waited >= patience:
                raise ChannelTimeout(self.index, waited, status["WAIT"])
            await self.machine.wait_cycles(poll)

    # Errors

    async def check(self) -> ChannelError | None:
        """The error that halts the channel, if any, with the translation fault behind it."""
        if self.failure is None:
            failure = await read_error(self.control, self.index)
            if failure is not None and self._asid is not None:
                failure = await self._explain(failure, self._asid)
            self.failure = failure
        return self.failure

    async def _explain(self, failure: ChannelError, asid: int) -> ChannelError:
        """All that is known of an error; a task that failed takes note."""
        compute, faults = self._resources.compute, self._resources.faults
        if failure.of_task and compute is not None:
            error = await compute.explain(failure, asid, self.tasks, faults)
            if not error.held:
                self.tasks.failed(error)
            return error
        copy = await self._failed(failure)
        failure.fault = await faults.claim(asid, failure, None if copy is None else copy.touches)
        return failure

    async def resume(self) -> None:
        """Retry what failed, and go on. The machine executes a held method again. It keeps nothing
        of a failed copy, so the driver repeats that (`driver.channel.copy_replay`). A failed task
        is over: the channel goes on behind it.

        A copy that still cannot be translated leaves the channel halted, with `failure` saying
        what is missing now. If another copy has failed since (`ChannelError.more`), the channel
        stays halted, now for that one. Raises `RepeatError` for a copy that cannot be repeated;
        `skip` goes on behind it.
        """
        failure = await self.check()
        if failure is not None and failure.repeatable:
            left = await self._repeat(failure)
            if left is not None:
                self.failure = left
                return
        await self._clear()

    async def _repeat(self, failure: ChannelError) -> ChannelError | None:
        """Repeat the copy that failed; the error that is left."""
        copy = await self._failed(failure)
        if copy is None:
            raise RepeatError(f"channel {self.index}: the copy that failed is not known as a whole")
        if failure.cause is not Cause.COPY_SEMAPHORE:
            try:
                move(copy, self.space, self._resources.memory)
            except TranslationFault as fault:
                reads = fault.access is AccessType.READ
                cause = Cause.COPY_READ_FAULT if reads else Cause.COPY_WRITE_FAULT
                return replace(failure, cause=cause, va=fault.va, fault=fault)
        try:
            await release(copy, self.space, self.control)
        except TranslationFault as fault:
            return replace(failure, cause=Cause.COPY_SEMAPHORE, va=fault.va, fault=fault)
        return None

    async def _failed(self, failure: ChannelError) -> LaunchedCopy | None:
        """The copy behind an error, if it is one and known."""
        if not failure.of_copy:
            return None
        executed = await self.control.read_channel(self.index, "METHODS")
        return self._copies.failed(executed, failure.data, failure.va)

    async def skip(self) -> None:
        """Clear the error; the held method becomes a NOP (2.4), the channel goes on behind it."""
        await self.replace(HostMethod.NOP, 0)

    async def replace(self, method: int, data: int, subchannel: int = 0) -> None:
        """Clear the error; `method` (byte offset) is executed in place of the held one."""
        held = await self.control.read_channel_fields(self.index, "METHOD0")
        if held["VALID"]:
            failure = await self.check()
            if isinstance(failure, TaskError):
                self.tasks.failed(failure)
            await self._write("DATA0", data)
            self._copies.replaced(await self.control.read_channel(self.index, "METHODS"))
            await self._write("METHOD0", ADDRESS=method // 4, SUBCHANNEL=subchannel, VALID=1)
        await self._clear()

    async def _clear(self) -> None:
        if self.failure is not None:
            self._copies.over(await self._failed(self.failure))
        self.failure = None
        await clear_error(self.control, self.index)

    async def _write(self, name: str, value: int = 0, **fields: int) -> None:
        await self.control.write_channel(self.index, name, value, **fields)
