"""Channel errors: cause of a halt, and how to continue (COPY-12, HOST-6). Errors of tasks have more
details: `driver.faults.task_error`."""

from dataclasses import dataclass

from signalbox.driver.commands.disassembler import method_detail, method_name
from signalbox.driver.commands.pushbuffer import COMPUTE_SUBCHANNEL
from signalbox.driver.memory.translation_fault import TranslationFault
from signalbox.driver.platform.control_port import ControlPort
from signalbox.hw.errors import CODE_OF, Cause
from signalbox.hw.methods import ObjectClass
from signalbox.hw.registers import WAITS

__all__ = ["ChannelActive", "ChannelError", "ChannelTimeout", "read_error"]

_MEANING = {
    Cause.RING_POINTER: "GP_PUT is at or past the ring's size",
    Cause.ENTRY_OPCODE: "a ring entry without a segment has an opcode other than NOP",
    Cause.ENTRY_RANGE: "a pushbuffer segment runs past the 40-bit address space",
    Cause.HEADER_RESERVED: "a pushbuffer header has a reserved form or bit",
    Cause.HEADER_OBSOLETE: "a pushbuffer header has an obsolete form",
    Cause.HEADER_RANGE: "a method group runs past the last method address",
    Cause.METHOD_UNDEFINED: "there is no such host method",
    Cause.METHOD_ILLEGAL: "the method ILLEGAL was executed",
    Cause.METHOD_PRIVILEGED: "the method needs a privileged channel",
    Cause.OBJECT_UNBOUND: "no object is bound to the subchannel: SET_OBJECT comes first",
    Cause.OBJECT_SOFTWARE: "the subchannel is for software (5 … 7), or holds a software object",
    Cause.OBJECT_CLASS: "SET_OBJECT names a class that this machine does not have",
    Cause.COPY_METHOD: "the copy class has no such method",
    Cause.COPY_ZERO: "a copy of no bytes",
    Cause.COPY_MODE: "block-linear or another copy mode that is not modelled",
    Cause.COPY_REMAP: "a destination component names a source component that elements do not have",
    Cause.SEM_UNDERFLOW: "a counting semaphore would fall below 0",
    Cause.SEM_OVERFLOW: "a counting semaphore would pass its width",
    Cause.SEM_UNKNOWN: "there is no on-chip semaphore at this address",
    Cause.SEM_ALIGNMENT: (
        "misaligned semaphore: 32 bits are aligned to 4 bytes, 64 bits to 8, timestamped ones to 16"
    ),
    Cause.SEM_UNSUPPORTED: "unsupported combination of semaphore operation, width and sign",
    Cause.SEM_BUS: "the bus refused an access to the semaphore",
    Cause.SEM_FAULT: "the semaphore's address is not mapped",
    Cause.ACQUIRE_TIMEOUT: "an acquire waited longer than the channel's timeout",
    Cause.COPY_READ_BUS: "the bus refused a read of the copy",
    Cause.COPY_READ_FAULT: "the copy's source is not mapped",
    Cause.COPY_WRITE_BUS: "the bus refused a write of the copy",
    Cause.COPY_WRITE_FAULT: "the copy's destination is not mapped",
    Cause.COPY_SEMAPHORE: "the copy is complete, but its semaphore release was refused",
    Cause.USERD_WRITE: "GP_GET or REF could not be written: bus error, or USERD is not mapped",
    Cause.FETCH_BUS: "the bus refused a read of USERD, ring or pushbuffer",
    Cause.FETCH_FAULT: "USERD, ring or pushbuffer is not mapped",
    Cause.COMPUTE_MODE: "a compute method requests a mode that is not modelled",
    Cause.INLINE_BUS: "the bus refused the write of an inline task record or of inline data",
    Cause.INLINE_FAULT: "the address of an inline task record or of inline data is not mapped",
    Cause.INLINE_ORDER: (
        "data without an inline transfer, or another compute method before the transfer's last data"
    ),
    Cause.INLINE_ZERO: "an inline transfer of no bytes",
    Cause.TASK_BUS: "the bus refused a read of the task's record",
    Cause.TASK_FAULT: "the task's record is not mapped",
    Cause.TASK_MODEL: (
        "the task's record has another version or an empty grid, uses unmodelled features, "
        "disables all SMs, or asks for blocks of another form than those that were saved"
    ),
    Cause.TASK_CHECK: "a check of the task's record failed",
    Cause.TASK_FULL: "the list of waiting tasks of that priority is full",
    Cause.TASK_LISTS: "the memory of the task lists could not be accessed",
    Cause.TASK_KERNEL: "a warp of the task faulted",
    Cause.TASK_RELEASE: "the task is complete, but a release at its end was refused",
    Cause.TASK_KILLED: "a kill request named the task, its address space or its context",
    Cause.TASK_TIMEOUT: "its context had to leave the SMs, and its blocks did not end in time",
    Cause.TASK_QUEUE: "the record is not an open queue, or the context cannot open another one",
}

_WITH_ADDRESS = {
    *(cause for cause in Cause if cause.name.startswith(("SEM_", "COPY_READ", "COPY_WRITE"))),
    *(Cause.INLINE_BUS, Cause.INLINE_FAULT),
    Cause.COPY_SEMAPHORE,
    Cause.ACQUIRE_TIMEOUT,
}

_HEADERS = {Cause.HEADER_RESERVED, Cause.HEADER_OBSOLETE, Cause.HEADER_RANGE}
_NO_METHOD = {
    *(Cause.RING_POINTER, Cause.ENTRY_OPCODE, Cause.ENTRY_RANGE),
    *(Cause.USERD_WRITE, Cause.FETCH_BUS, Cause.FETCH_FAULT),
    *_HEADERS,
}

_COPY_FAULTS = {Cause.COPY_READ_FAULT, Cause.COPY_WRITE_FAULT}
_COPY_ENDS = _COPY_FAULTS | {Cause.COPY_READ_BUS, Cause.COPY_WRITE_BUS, Cause.COPY_SEMAPHORE}
"""Causes of failed copies, as opposed to refused ones."""

_TASKS = {cause for cause in Cause if cause.name.startswith("TASK_")}

_NEXT_HELD = ". Channel.resume() tries it again, Channel.skip() continues after it."
_NEXT_COPY = ". Channel.resume() repeats the copy, Channel.skip() continues after it."
_NEXT = ". Channel.resume() continues after it."


@dataclass
class ChannelError(Exception):
    """A channel has halted. Other channels continue.

    Members
    -------
    channel : channel number.
    cause : exact cause; `hw.errors.CODE_OF` gives the public interrupt. NONE if the machine has
        reported none.
    method : method that caused the error, a byte offset; None if there is none.
    subchannel, data : subchannel and data of the method; `data` is the method header if that is
        invalid.
    held : whether the method is retried on resume; otherwise the channel continues after it.
    va : address of the error, for causes that have one.
    more : whether another copy or task of the channel has failed since; clearing this error
        reveals the next.
    fault : translation fault behind the causes ..._FAULT, USERD_WRITE, COPY_SEMAPHORE and TASK_...;
        None if there was none, or if its record was lost.
    object_class : class bound to the subchannel, 0 for none; None for the class that the driver
        binds.
    """

    channel: int
    cause: Cause
    method: int | None
    subchannel: int
    data: int
    va: int
    held: bool = True
    more: bool = False
    fault: TranslationFault | None = None
    object_class: int | None = None

    @property
    def repeatable(self) -> bool:
        """Whether a copy failed, and can be repeated once its pages are mapped."""
        released = self.cause is Cause.COPY_SEMAPHORE and self.fault is not None
        return self.cause in _COPY_FAULTS or released

    @property
    def of_copy(self) -> bool:
        """Whether a copy failed after its launch."""
        return self.cause in _COPY_ENDS

    @property
    def of_task(self) -> bool:
        """Whether a task was refused or failed; `va` is then the address of its record."""
        return self.cause in _TASKS

    @property
    def details(self) -> list[str]:
        """Further details as text; none here. Subclasses override it."""
        return []

    @property
    def reason(self) -> str:
        """Description of the error, without the advice on how to continue."""
        code = CODE_OF[self.cause].name if self.cause in CODE_OF else "no public code"
        parts = [f"channel {self.channel} halted with {self.cause.name} ({code}): "]
        parts.append(_MEANING.get(self.cause, "unknown cause"))
        if self.method is not None:
            parts.append(f"; at {method_name(self.method, self._class)} = {self.data:#010x}")
            if detail := method_detail(self.method, self.data, self._class):
                parts.append(f" ({detail})")
            parts.append(f" of subchannel {self.subchannel}")
        elif self.cause in _HEADERS:
            parts.append(f"; header {self.data:#010x}")
        if self.cause in _WITH_ADDRESS:
            parts.append(f"; address {self.va:#x}")
        parts += [f"; {detail}" for detail in self.details]
        if self.fault is not None:
            parts.append(f"; {self.fault}")
        if self.more:
            parts.append("; more of its copies or tasks have failed since")
        return "".join(parts)

    @property
    def _class(self) -> int:
        """Class of the method, unless it is a host method."""
        if self.object_class is not None:
            return self.object_class
        compute = self.of_task or self.subchannel == COMPUTE_SUBCHANNEL
        return ObjectClass.COMPUTE if compute else ObjectClass.COPY

    @property
    def at_header(self) -> bool:
        """Whether a method header caused the error; `data` is that header."""
        return self.cause in _HEADERS

    def __str__(self) -> str:
        if self.repeatable:
            return self.reason + _NEXT_COPY
        return self.reason + (_NEXT_HELD if self.held else _NEXT)


@dataclass
class ChannelTimeout(Exception):
    """A channel made no progress for `cycles` cycles. `wait` : reason in its STATUS register, a
    value of `hw.registers.Wait`."""

    channel: int
    cycles: int
    wait: int

    def __str__(self) -> str:
        reason = WAITS.get(self.wait, f"reason {self.wait}")
        return (
            f"channel {self.channel} made no progress for {self.cycles} cycles; it waits for "
            f"{reason}"
        )


@dataclass
class ChannelActive(Exception):
    """A channel still uses its memory `cycles` cycles after it was disabled."""

    channel: int
    cycles: int

    def __str__(self) -> str:
        return (
            f"channel {self.channel} still uses its memory {self.cycles} cycles after it was "
            "switched off: a copy, a read, a write-back or a semaphore operation has not ended"
        )


async def read_error(control: ControlPort, channel: int) -> ChannelError | None:
    """Read the error that halts a channel; None if it is not halted."""
    word = await control.read_channel_fields(channel, "CAUSE")
    cause = Cause(word["CAUSE"])
    if cause is Cause.NONE:
        return None
    held = await control.read_channel_fields(channel, "METHOD0")
    data = await control.read_channel(channel, "DATA0")
    low = await control.read_channel(channel, "ERROR_VA")
    high = (await control.read_channel_fields(channel, "ERROR_VA_HI"))["ADDRESS"]
    return ChannelError(
        channel,
        cause,
        # USERD_WRITE has a method if REF could not be written.
        method=None if cause in _NO_METHOD and not held["VALID"] else held["ADDRESS"] * 4,
        subchannel=held["SUBCHANNEL"],
        data=data,
        va=high << 32 | low,
        held=bool(held["VALID"]),
        more=bool(word["MORE"]),
    )
