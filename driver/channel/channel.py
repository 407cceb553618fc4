"""A hardware channel: ring, pushbuffer memory, doorbell and errors.

Order of a submission (spec page 60, 3.5): write the segment, write the ring entry, write
USERD.GP_PUT, ring the doorbell.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from signalbox.driver.channel.command_channel import CommandChannel
from signalbox.driver.channel.copy_counts import CopyCounts
from signalbox.driver.channel.copy_log import CopyLog, LaunchedCopy
from signalbox.driver.channel.copy_replay import RepeatError, check_release, move, release
from signalbox.driver.channel.runlist import Runlist
from signalbox.driver.channel.segments import Segments
from signalbox.driver.channel.settings import ChannelSettings
from signalbox.driver.commands.disassembler import MethodReader
from signalbox.driver.commands.pushbuffer import Pushbuffer
from signalbox.driver.compute.contexts import Context
from signalbox.driver.compute.engine import ComputeEngine
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
from signalbox.driver.platform.control_port import ControlPort
from signalbox.driver.platform.fair_lock import FairLock
from signalbox.hw.errors import Cause
from signalbox.hw.methods import USERD_BYTES, GpEntry, HostMethod, Userd, pack
from signalbox.hw.page_tables import AccessType
from signalbox.hw.registers import OBJECTS

__all__ = ["Channel", "ChannelResources", "clear_errors", "disable", "stop"]

POLL_CYCLES = 200
"""Cycles between two polls: of GP_GET while the ring or the pushbuffer memory is full, and of a
channel that is being disabled."""

STOP_CYCLES = 100_000
"""Cycles within which a disabled channel must stop using its memory."""

_DWORD = 4
_ENTRY_BYTES = 8
_HALF = 1 << 31
"""Half the modulus of METHODS."""


async def disable(control: ControlPort, indices: Iterable[int]) -> None:
    """Disable channels. Their tasks are killed, their copies end with a part of their bytes."""
    for index in indices:
        await control.write_channel(index, "CONTROL", ENABLE=0)


async def stop(control: ControlPort, indices: Iterable[int]) -> None:
    """Disable channels and wait until the hardware no longer uses their memory. All are disabled
    first, since tasks of one may wait for resources held by tasks of another. Raises
    `ChannelActive` if one is still active after `STOP_CYCLES`."""
    indices = list(indices)
    await disable(control, indices)
    for index in indices:
        await _inactive(control, index)


async def _inactive(control: ControlPort, index: int) -> None:
    waited = 0
    while (await control.read_channel_fields(index, "STATUS"))["ACTIVE"]:
        if waited >= STOP_CYCLES:
            raise ChannelActive(index, waited)
        await control.machine.wait_cycles(POLL_CYCLES)
        waited += POLL_CYCLES


async def clear_error(
    control: ControlPort, index: int, clearing: Callable[[], None] = lambda: None
) -> None:
    """Clear a channel's error, if there is one. An enabled channel then resumes. `clearing` is
    called just before the first write: if the call is interrupted later, the error may be
    cleared."""
    names = ("INTR_0", "INTR_1")
    # Read both before writing: a write may reveal the next error.
    pending = [await control.read_channel(index, name) for name in names]
    clearing()
    for name, bits in zip(names, pending, strict=True):
        if bits:
            await control.write_channel(index, name, bits)


async def clear_errors(control: ControlPort, index: int) -> None:
    """Clear all errors of a disabled channel; clearing one may reveal the next."""
    while (await control.read_channel_fields(index, "STATUS"))["HALTED"]:
        await clear_error(control, index)


@dataclass(frozen=True)
class ChannelResources:
    """Resources shared by the channels of a device. `compute` is None without a compute engine,
    `runlist` if scheduling is flat. `counting` : addresses of the semaphores that count copies.
    """

    control: ControlPort
    memory: Memory
    spaces: AddressSpaces
    faults: FaultLog
    compute: ComputeEngine | None = None
    runlist: Runlist | None = None
    counting: Collection[int] = ()


class Channel(CommandChannel):
    """An enabled channel of the machine. Created by `ChannelPool.open`.

    It holds the ASID of its space, and its place in a context, from `open` to `close`. Each
    submission is one ring entry.
    """

    def __init__(
        self,
        resources: ChannelResources,
        space: AddressSpace,
        index: int,
        settings: ChannelSettings,
    ) -> None:
        super().__init__(resources.control.machine, space, index)
        self.control = resources.control
        self.settings = settings
        self._resources = resources
        self._asid: int | None = None
        self._context = 0
        self._buffers: list[Buffer] = []
        self._rewind()
        self._copies = CopyLog()
        self._counts = CopyCounts(resources.counting)
        self._exchanged = False
        self._joined = False
        self._unrung = False
        self._checks = FairLock(self.machine)

    def _rewind(self) -> None:
        """Begin with an empty ring."""
        self._submitted = self._started = self._methods = 0
        self._segments = Segments(self.settings.pushbuffer_bytes)
        self._reader = MethodReader()

    async def open(self, first: Pushbuffer) -> None:
        """Map the channel's memory, write its registers and enable it, with `first` as its first
        submission. Call once. Submissions of other callers wait meanwhile, because GP_GET still
        belongs to the channel's previous start.

        Raises `ChannelActive` if earlier work of the channel does not end; and as
        `AddressSpaces.acquire`, `ComputeEngine.join` and `AddressSpace.allocate`. After an error,
        the channel's memory is freed; after an interruption, `close` frees it.
        """
        async with self.turn():
            try:
                asid = self._asid = await self._resources.spaces.acquire(self.space)
                context = await self._join(asid)
                self._context = context.number if context else 0
                await self._allocate()
                await self.enqueue(first.dwords)
                await self._start()
            except Exception:
                await self._free()
                raise
            await self.ring_doorbell()

    async def _join(self, asid: int) -> "Context | None":
        """Join a context for compute tasks; None if there is none."""
        compute = self._resources.compute
        if compute is None:
            return None
        context = await compute.join(self.space, asid, self.index)
        self._joined = context is not None
        return context

    async def _allocate(self) -> None:
        """Allocate ring, USERD and pushbuffer memory. Only USERD is mapped writable, so no copy
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

    async def _start(self) -> None:
        ring, userd, settings = self.space.at(self._ring), self.space.at(self._userd), self.settings
        limit = settings.ring_entries.bit_length() - 1
        # Enabling an active channel would stall the control port, and with it all doorbells.
        await stop(self.control, [self.index])
        await self._write("GP_BASE", ring & 0xFFFF_FFFF)
        await self._write("GP_BASE_HI", OFFSET=ring >> 32, LIMIT2=limit)
        await self._write("USERD", userd & 0xFFFF_FFFF)
        await self._write("USERD_HI", ADDRESS=userd >> 32)
        await self._configure(settings)
        await self._write("SLICE", settings.slice_cycles)
        await self._write("ACQUIRE", settings.acquire)
        await self._write("CONTROL", ENABLE=1)

    async def _configure(self, settings: ChannelSettings) -> None:
        await self._write(
            "CONFIG",
            ASID=self._asid or 0,
            CONTEXT=self._context,
            AUTH_LEVEL=int(settings.privileged),
            EARLY_WAITS=int(settings.early_waits),
            PRIORITY=settings.priority,
        )

    async def raise_priority(self, priority: int) -> None:
        """See `CommandChannel.raise_priority`. Raises `DeviceError` if the channel is closed."""
        self.check_open()
        if priority > self.settings.priority:
            raised = replace(self.settings, priority=priority)
            await self._configure(raised)
            self.settings = raised

    async def close(self) -> None:
        """Disable the channel, clear its errors, and free its memory once the hardware no longer
        uses it.

        Tasks that have not ended are killed. Counts of its copies are taken back from the counting
        semaphores (`CopyCounts`). Submissions that wait for room, later submissions, and waits for
        its work fail. An interrupted call can be repeated. Raises `ChannelActive`.
        """
        self.closed = True
        try:
            async with self.turn(), self._checks:
                await self._stop()
                while counts := self._counts.restarted(await self._executed()):
                    await self._take_back(*next(iter(counts.items())))
                    await self._stop()
                await self._free()
        finally:
            self.machine.wake()

    async def _stop(self) -> None:
        await stop(self.control, [self.index])
        await clear_errors(self.control, self.index)

    async def _take_back(self, address: int, count: int) -> None:
        """Subtract `count` from the semaphore at `address`. Only the machine can do this
        atomically, so the stopped channel is started again. The command is submitted after the
        start: then METHODS shows whether it has executed, even after an interruption. Raises
        `ChannelActive`."""
        self._rewind()
        self._userd.fill(0)
        await self._start()
        self._append(Pushbuffer().add(address, -count).dwords)
        await self.ring_doorbell()
        waited = 0
        while address in self._counts.outstanding(await self._executed()):
            if waited >= STOP_CYCLES + self.turn_cycles:
                raise ChannelActive(self.index, waited)
            if (await self.control.read_channel_fields(self.index, "STATUS"))["HALTED"]:
                self._counts.forget(address)  # something else has written the semaphore
                return
            await self.machine.wait_cycles(POLL_CYCLES)
            waited += POLL_CYCLES

    async def _free(self) -> None:
        """Unmap and free the channel's memory; leave its context and release its ASID."""
        self.tasks.end()
        while self._buffers:
            await self.space.unmap_all(self._buffers[-1])
            self._buffers.pop().free()
        if self._joined and self._resources.compute is not None:
            await self._resources.compute.leave(self.space, self.index)
            self._joined = False
        if self._asid is not None:
            self._resources.spaces.release(self.space)
            self._asid = None

    async def set_slice(self, cycles: int) -> None:
        """Set the time slice, 1 … 2^31 cycles. Raises `ValueError`; `DeviceError` if the channel is
        closed."""
        self.check_open()
        if not 1 <= cycles <= 1 << 31:
            raise ValueError(f"cycles = {cycles} is outside 1 … 2^31")
        await self._write("SLICE", cycles)

    # Submission

    @property
    def largest_segment(self) -> int:
        """See `CommandChannel.largest_segment`."""
        return self.settings.largest_segment

    async def enqueue(self, dwords: Sequence[int], *, sync: bool = False) -> None:
        """See `CommandChannel.enqueue`. Waits while the ring or its pushbuffer memory is full."""
        if len(dwords) > self.largest_segment:
            raise ValueError(
                f"{len(dwords)} dwords are more than the {self.largest_segment} of one submission; "
                "split them, or give channels more pushbuffer_bytes"
            )
        self.check_open()
        while not self._fits(len(dwords)):
            await self._recycle()
        self._append(dwords, sync=sync)

    async def submit_segment(self, va: int, dwords: Sequence[int], *, sync: bool = False) -> None:
        """Submit a segment that the caller has written to virtual address `va` of the channel's
        space. It must stay there until it has been executed. Raises `ChannelError` and
        `DeviceError` as `enqueue`."""
        async with self.turn():
            self.check_open()
            while self._full():
                await self._recycle()
            self._push(va, dwords, sync)
        await self.ring_doorbell()

    async def ring_doorbell(self) -> None:
        """Ring the channel's doorbell, so that the hardware reads GP_PUT. See
        `CommandChannel.ring_doorbell`."""
        try:
            await self.control.write("DOORBELL", CHID=self.index)
        except BaseException:  # cancelled, perhaps
            self._unrung = True
            raise

    async def ring_again(self) -> None:
        """Ring the doorbell if a call of `ring_doorbell` was interrupted."""
        if self._unrung:
            self._unrung = False
            await self.ring_doorbell()

    def _append(self, dwords: Sequence[int], *, sync: bool = False) -> None:
        """Write a segment, its ring entry and GP_PUT. There must be room."""
        data = Pushbuffer().raw(*dwords).to_bytes()
        start = self._segments.place(self._submitted, len(data))
        assert start is not None
        self._arena.write(data, start)
        self._push(self.space.at(self._arena) + start, dwords, sync)

    def _push(self, va: int, dwords: Sequence[int], sync: bool) -> None:
        """Write the ring entry of the segment at `va`, then GP_PUT."""
        entries = self.settings.ring_entries
        entry = pack(GpEntry, address=va // _DWORD, length=len(dwords), sync_wait=sync)
        methods = self._reader.read(dwords)
        self._methods += len(methods)
        self._copies.submitted(self._submitted, methods)
        self._counts.submitted(self._submitted, methods)
        position = self._submitted % entries
        self._ring.write(entry.to_bytes(_ENTRY_BYTES, "little"), position * _ENTRY_BYTES)
        self._submitted += 1
        put = self._submitted % entries
        self._userd.write(put.to_bytes(_DWORD, "little"), Userd.GP_PUT)

    def _full(self) -> bool:
        return self._submitted - self._started >= self.settings.ring_entries - 1

    async def _recycle(self) -> None:
        """Free segments; wait if there is no progress. Raises `ChannelError` if the channel is
        halted, `DeviceError` if it is closed."""
        self.check_open()
        if self.failure is not None:
            raise self.failure
        before = self._started, len(self._segments)
        await self._reclaim()
        if (self._started, len(self._segments)) == before and await self.check() is None:
            await self.machine.wait_cycles(POLL_CYCLES)

    async def has_room(self, dwords: int) -> bool:
        """Whether `enqueue` of `dwords` dwords would not wait."""
        if not self._fits(dwords):
            await self._reclaim()
        return self._fits(dwords)

    def _fits(self, dwords: int) -> bool:
        return not self._full() and self._segments.room(dwords * _DWORD) is not None

    async def _reclaim(self) -> None:
        """Free the segments that the channel has finished.

        GP_GET passes an entry when its processing starts (spec 1.1), so a segment is finished only
        once GP_GET has passed the next entry.
        """
        await self.update()
        self._segments.free(self._started - 1)
        self._copies.left(self._started - 1)
        self._counts.left(self._started - 1)

    async def update(self) -> int:
        """Read GP_GET. Returns the number of entries started since the channel was enabled."""
        get = await self.control.read_channel(self.index, "GP_GET")
        self._started += (get - self._started) % self.settings.ring_entries
        return self._started

    async def progress(self) -> int:
        """See `CommandChannel.progress`."""
        status = await self.control.read_channel_fields(self.index, "STATUS")
        if status["COPIES"] or status["TASKS"]:
            return self.machine.now()
        return await self.executed()

    async def executed(self) -> int:
        """See `CommandChannel.executed`."""
        return await self.control.read_channel(self.index, "METHODS")

    async def _executed(self) -> int:
        """Number of methods executed since the channel's start, not modulo 2^32."""
        ahead = await self.executed() - self._methods
        return self._methods + (ahead + _HALF) % (2 * _HALF) - _HALF

    async def waits_for(self) -> int:
        """See `CommandChannel.waits_for`."""
        return (await self.control.read_channel_fields(self.index, "STATUS"))["WAIT"]

    async def objects(self) -> dict[int, int]:
        """Data of the SET_OBJECT executed for each subchannel, as the hardware shows it, with the
        class in bits 15:0. Subchannels without an object are left out."""
        words = [await self.control.read_channel(self.index, name) for name in OBJECTS]
        return {number: word for number, word in enumerate(words) if word}

    @property
    def turn_cycles(self) -> int:
        """See `CommandChannel.turn_cycles`."""
        runlist = self._resources.runlist
        return 2 * runlist.round_cycles if runlist is not None else 0

    @property
    def submitted(self) -> int:
        """Number of entries submitted since the channel was enabled."""
        return self._submitted

    async def drain(self, *, poll: int = POLL_CYCLES, patience: int = 100_000) -> None:
        """Wait until everything submitted has been executed, by polling the status every `poll`
        cycles. Unlike a fence, this needs no support from the submitted commands.

        Raises `ChannelError` if the channel halts, `ChannelTimeout` if it executes nothing for
        `patience` cycles plus the time of other groups' turns (`turn_cycles`), `DeviceError` if it
        is closed meanwhile.
        """
        waited, seen = 0, -1
        await self.ring_again()
        while True:
            self.check_open()
            status = await self.control.read_channel_fields(self.index, "STATUS")
            if status["HALTED"]:
                failure = await self.check()
                if failure is not None:
                    raise failure
                continue  # a cancelled task was killed
            running = status["COPIES"] or status["TASKS"]
            idle = not status["PENDING"] and not running
            if await self.update() == self._submitted and idle:
                return
            executed = await self.executed()
            waited = 0 if executed != seen or running else waited + poll
            seen = executed
            if waited >= patience + self.turn_cycles:
                raise ChannelTimeout(self.index, waited, status["WAIT"])
            await self.machine.wait_cycles(poll)

    # Errors

    async def check(self) -> ChannelError | None:
        """See `CommandChannel.check`."""
        async with self._checks:
            while self.failure is None and self._asid is not None:
                failure = await read_error(self.control, self.index)
                if failure is not None:
                    failure = await self._explain(failure, self._asid)
                if failure is None or not self._cancelled(failure):
                    self.failure = failure
                    break
                await self._pass(failure)
        return self.failure

    def _cancelled(self, failure: ChannelError) -> bool:
        """Whether a failure is the end of a cancelled task."""
        if failure.cause is not Cause.TASK_KILLED:
            return False
        task = self.tasks.of(failure)
        return self.kills > 0 or (task is not None and task.cancelled)

    async def _pass(self, failure: ChannelError) -> None:
        """Continue after a killed task, or after its launch if that was refused."""
        if failure.held:
            if isinstance(failure, TaskError):
                self.tasks.failed(failure)
            await self._exchange(HostMethod.NOP, 0)
        await self._continue()

    async def _explain(self, failure: ChannelError, asid: int) -> ChannelError:
        """Complete an error with the task or the translation fault that caused it. A task that has
        failed is marked as such."""
        compute, faults = self._resources.compute, self._resources.faults
        if failure.of_task and compute is not None:
            error = await compute.explain(failure, self.space, asid, self.tasks, faults)
            if not error.held:
                self.tasks.failed(error)
            return error
        copy = await self._failed_copy(failure)
        await faults.read_for(failure)
        failure.fault = faults.take(asid, failure, None if copy is None else copy.touches)
        return failure

    async def failed_copy(self) -> LaunchedCopy | None:
        """The copy that halts the channel; None for other errors and unknown copies."""
        return None if self.failure is None else await self._failed_copy(self.failure)

    async def resume(self) -> None:
        """Retry the failed operation and resume the channel.

        The machine executes a held method again. It keeps no state of a failed copy, so the driver
        repeats the copy itself (`driver.channel.copy_replay`). A failed task is not retried; the
        channel continues after it.

        If the copy still faults, the channel stays halted and `failure` describes the new fault. If
        another copy has failed meanwhile (`ChannelError.more`), the channel stays halted for its
        error. Raises `RepeatError` if the copy cannot be repeated; `skip` then continues after it.
        Raises `DeviceError` if the channel is closed.

        An interrupted call can be repeated. If the interruption came just before the error was
        cleared, the repeated call raises `RepeatError`: the copy is no longer known.
        """
        self.check_open()
        failure = await self.check()
        if failure is not None and failure.repeatable:
            left = await self._repeat(failure)
            if left is not None:
                self.failure = left
                return
        await self._clear()

    async def _repeat(self, failure: ChannelError) -> ChannelError | None:
        """Repeat the failed copy. Returns the error that remains, or None."""
        copy = await self._failed_copy(failure)
        if copy is None:
            raise RepeatError(f"channel {self.index}: the failed copy is not fully known")
        check_release(copy)
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

    async def _failed_copy(self, failure: ChannelError) -> LaunchedCopy | None:
        """The copy that caused an error; None for other errors and unknown copies."""
        if not failure.of_copy:
            return None
        executed = await self._executed()
        return self._copies.failed(executed, failure.data, failure.va, failure.cause)

    async def skip(self) -> None:
        """See `CommandChannel.skip`."""
        await self.replace(HostMethod.NOP, 0)

    async def replace(self, method: int, data: int, subchannel: int = 0) -> None:
        """Clear the error and resume. `method` (byte offset) is executed instead of the held one,
        if there is one. An interrupted call leaves the held method as it was, replaced, or replaced
        by a NOP. Raises `DeviceError` if the channel is closed."""
        self.check_open()
        held = await self.control.read_channel_fields(self.index, "METHOD0")
        if held["VALID"]:
            failure = await self.check()
            if isinstance(failure, TaskError):
                self.tasks.failed(failure)
            await self._exchange(method, data, subchannel)
        await self._clear()

    async def _exchange(self, method: int, data: int, subchannel: int = 0) -> None:
        """Replace the held method. It is a NOP until its data is written, so that an interrupted
        call leaves no method with the data of another."""
        self._exchanged = True
        await self._write("METHOD0", ADDRESS=HostMethod.NOP // 4, VALID=1)
        await self._write("DATA0", data)
        if method != HostMethod.NOP:
            await self._write("METHOD0", ADDRESS=method // 4, SUBCHANNEL=subchannel, VALID=1)

    async def _clear(self) -> None:
        copy = await self.failed_copy()
        # No check meanwhile: it would read an error that is half cleared.
        async with self._checks:
            self.failure = None
            await self._continue(copy)

    async def _continue(self, copy: LaunchedCopy | None = None) -> None:
        """Clear the error, after noting the method that replaces the held one, if any. `copy` : the
        failed copy, if the error is that of a known copy."""
        if self._exchanged:
            await self._note_exchange()
        await clear_error(self.control, self.index, lambda: self._copies.over(copy))

    async def _note_exchange(self) -> None:
        """Note the method that the machine holds now. It is read back, as an exchange may have been
        interrupted before or after it took effect."""
        held = await self.control.read_channel_fields(self.index, "METHOD0")
        data = await self.control.read_channel(self.index, "DATA0")
        executed = await self._executed()
        for log in (self._copies, self._counts):
            log.resumed(executed, held["ADDRESS"] * _DWORD, data)
        self._exchanged = False

    async def _write(self, name: str, value: int = 0, **fields: int) -> None:
        await self.control.write_channel(self.index, name, value, **fields)
