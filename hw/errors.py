"""Error codes: public interrupt and cause of a channel halt (COPY-12, HOST-6); cause of a warp
fault; reason for refusing a task."""

from amaranth.lib import enum

__all__ = ["CODE_OF", "Cause", "Code", "CoreCause", "Refusal"]


class Code(enum.IntEnum, shape=6):
    """Bit of INTR_0 (0-31) or, 32 higher, of INTR_1 (spec 2.7)."""

    GPFIFO = 13
    GPPTR = 14
    GPENTRY = 15
    PBPTR = 17
    PBENTRY = 18
    METHOD = 21
    DEVICE = 23
    SEMAPHORE = 25
    ACQUIRE = 26
    HCE_RE_ILLEGAL_OP = 32
    HCE_ILLEGAL_MTHD = 35
    HCE_ILLEGAL_CLASS = 36


class Cause(enum.IntEnum, shape=6):
    """Cause of a halt; each belongs to one `Code` (`CODE_OF`)."""

    NONE = 0
    RING_POINTER = 1
    """GP_PUT at or past the ring's size."""
    ENTRY_OPCODE = 2
    """Control entry with an opcode other than NOP."""
    ENTRY_RANGE = 3
    """Segment extends past the 40-bit space."""
    HEADER_RESERVED = 4
    """Reserved header form, or a reserved bit set."""
    HEADER_OBSOLETE = 5
    """Header form of older devices."""
    HEADER_RANGE = 6
    """Method address exceeds 12 bits."""
    METHOD_UNDEFINED = 7
    METHOD_ILLEGAL = 8
    """Method ILLEGAL."""
    METHOD_PRIVILEGED = 9
    OBJECT_UNBOUND = 10
    """Engine method on a subchannel without an object."""
    OBJECT_SOFTWARE = 11
    """Method of a software object, or engine method or SET_OBJECT on subchannels 5 … 7, to be
    executed by the CPU."""
    OBJECT_CLASS = 12
    """SET_OBJECT with a class that was not built."""
    COPY_METHOD = 13
    """Method that the copy class does not have."""
    COPY_ZERO = 14
    """Copy of zero bytes."""
    COPY_MODE = 15
    """Block-linear, or another mode that is not modelled."""
    USERD_WRITE = 16
    """GP_GET or REF could not be written to USERD: bus error, or not mapped."""
    SEM_UNDERFLOW = 17
    SEM_OVERFLOW = 18
    SEM_UNKNOWN = 19
    SEM_ALIGNMENT = 20
    SEM_UNSUPPORTED = 21
    SEM_BUS = 22
    SEM_FAULT = 23
    ACQUIRE_TIMEOUT = 24
    COPY_READ_BUS = 25
    COPY_READ_FAULT = 26
    COPY_WRITE_BUS = 27
    COPY_WRITE_FAULT = 28
    COPY_SEMAPHORE = 29
    """The copy completed, but its semaphore release was refused."""
    FETCH_BUS = 30
    """Bus error reading USERD, ring or pushbuffer."""
    FETCH_FAULT = 31
    """USERD, ring or pushbuffer not mapped."""
    COMPUTE_MODE = 32
    """Compute method with data that request an unmodelled feature."""
    INLINE_BUS = 33
    INLINE_FAULT = 34
    """An inline task record, or data of an inline transfer, could not be written."""
    TASK_BUS = 35
    TASK_FAULT = 36
    """The task's record could not be read."""
    TASK_MODEL = 37
    """The task's record has another version, uses an unmodelled feature, has an empty grid,
    disables all SMs, or describes blocks that differ from the saved ones of the task."""
    TASK_CHECK = 38
    """The task's record fails a public check, given by `CAUSE.SKEDCHECK`."""
    TASK_FULL = 39
    """The list of the task's priority is full."""
    TASK_LISTS = 40
    """The memory of the task lists could not be accessed."""
    TASK_KERNEL = 41
    """A warp of the task faulted; see `WARP_FAULT`."""
    TASK_RELEASE = 42
    """The task completed, but a release at its end was refused."""
    TASK_QUEUE = 43
    """INCREMENT_PUT of a record that is not an open queue; or launch of a queue that is already
    open, or for which no place is free but those reserved for other contexts."""
    TASK_KILLED = 44
    """A kill request named the task, its address space or its context."""
    COPY_REMAP = 45
    """Remapped copy in which the source of a destination component is past the last source
    component, or the reserved value 7 (in public drivers, LAUNCHERR_REPORT BAD_SRC_PIXEL_COMP_REF
    and INVALID_VALUE)."""
    INLINE_ORDER = 46
    """LOAD_INLINE_DATA without an inline transfer; or another compute method before the transfer's
    last dword, which ends the transfer."""
    INLINE_ZERO = 47
    """Inline transfer of no bytes."""
    TASK_TIMEOUT = 48
    """The task's context had to leave the SMs, and blocks of the task had not ended after
    CONTEXT_TIMEOUT cycles."""


CODE_OF = {
    Cause.RING_POINTER: Code.GPPTR,
    Cause.ENTRY_OPCODE: Code.GPENTRY,
    Cause.ENTRY_RANGE: Code.GPENTRY,
    Cause.HEADER_RESERVED: Code.PBENTRY,
    Cause.HEADER_OBSOLETE: Code.PBENTRY,
    Cause.HEADER_RANGE: Code.PBENTRY,
    Cause.METHOD_UNDEFINED: Code.METHOD,
    Cause.METHOD_ILLEGAL: Code.METHOD,
    Cause.METHOD_PRIVILEGED: Code.METHOD,
    Cause.OBJECT_UNBOUND: Code.DEVICE,
    Cause.OBJECT_SOFTWARE: Code.DEVICE,
    Cause.OBJECT_CLASS: Code.HCE_ILLEGAL_CLASS,
    Cause.COPY_METHOD: Code.HCE_ILLEGAL_MTHD,
    Cause.COPY_ZERO: Code.HCE_RE_ILLEGAL_OP,
    Cause.COPY_MODE: Code.HCE_RE_ILLEGAL_OP,
    Cause.COPY_REMAP: Code.HCE_RE_ILLEGAL_OP,
    Cause.USERD_WRITE: Code.GPFIFO,
    Cause.SEM_UNDERFLOW: Code.SEMAPHORE,
    Cause.SEM_OVERFLOW: Code.SEMAPHORE,
    Cause.SEM_UNKNOWN: Code.SEMAPHORE,
    Cause.SEM_ALIGNMENT: Code.SEMAPHORE,
    Cause.SEM_UNSUPPORTED: Code.SEMAPHORE,
    Cause.SEM_BUS: Code.SEMAPHORE,
    Cause.SEM_FAULT: Code.SEMAPHORE,
    Cause.ACQUIRE_TIMEOUT: Code.ACQUIRE,
    Cause.COPY_READ_BUS: Code.DEVICE,
    Cause.COPY_READ_FAULT: Code.DEVICE,
    Cause.COPY_WRITE_BUS: Code.DEVICE,
    Cause.COPY_WRITE_FAULT: Code.DEVICE,
    Cause.COPY_SEMAPHORE: Code.DEVICE,
    Cause.FETCH_BUS: Code.GPFIFO,
    Cause.FETCH_FAULT: Code.GPFIFO,
    Cause.COMPUTE_MODE: Code.HCE_RE_ILLEGAL_OP,
    Cause.INLINE_BUS: Code.DEVICE,
    Cause.INLINE_FAULT: Code.DEVICE,
    Cause.TASK_BUS: Code.DEVICE,
    Cause.TASK_FAULT: Code.DEVICE,
    Cause.TASK_MODEL: Code.HCE_RE_ILLEGAL_OP,
    Cause.TASK_CHECK: Code.HCE_RE_ILLEGAL_OP,
    Cause.TASK_FULL: Code.DEVICE,
    Cause.TASK_LISTS: Code.DEVICE,
    Cause.TASK_KERNEL: Code.DEVICE,
    Cause.TASK_RELEASE: Code.DEVICE,
    Cause.TASK_QUEUE: Code.DEVICE,
    Cause.TASK_KILLED: Code.DEVICE,
    Cause.INLINE_ORDER: Code.HCE_RE_ILLEGAL_OP,
    Cause.INLINE_ZERO: Code.HCE_RE_ILLEGAL_OP,
    Cause.TASK_TIMEOUT: Code.DEVICE,
}
"""Public interrupt of every cause. `METHOD0` and `DATA0` hold the offending method; the cause and
`ERROR_VA` give the details."""


class CoreCause(enum.Enum, shape=4):
    """Cause of a warp fault."""

    NONE = 0
    INSTRUCTION = 1
    """Invalid instruction, or an operand that the kernel does not have."""
    PROGRAM_BUS = 2
    PROGRAM_FAULT = 3
    """Program or constant buffer could not be read."""
    MEMORY_BUS = 4
    MEMORY_FAULT = 5
    MEMORY_ALIGNMENT = 6
    SHARED_RANGE = 7
    """Past the block's shared memory, or not a multiple of 4."""
    MASK_STACK = 8
    """Overflow or underflow of the lane-mask stack."""
    STATE_BUS = 9
    """The state of a block could not be saved or restored."""
    LOCAL_RANGE = 10
    """Past the thread's local memory, or not a multiple of 4."""


class Refusal(enum.Enum, shape=4):
    """Reason for refusing or failing a task."""

    NONE = 0
    BUS = 1
    FAULT = 2
    """BUS, FAULT: its QMD cannot be accessed."""
    MODEL = 3
    """Wrong QMD version, use of a feature that is not modelled, an empty grid, or no SM."""
    CHECK = 4
    """A public check fails."""
    FULL = 5
    """Its list is full."""
    LISTS = 6
    """The memory of the lists cannot be accessed."""
    KERNEL = 7
    """One of its warps faulted."""
    RELEASE = 8
    """It is complete, but a release at its end was refused."""
    QUEUE = 9
    """It is not an open queue, or no further queue may be opened."""
    KILLED = 10
    """Its channel was disabled, or a kill request named it."""
    TIMEOUT = 11
    """It still had blocks on SMs when the time limit of its leaving context expired."""
    DEPTH = 12
    """Its parent is as deep as the context allows (NEST-11)."""
    ROOM = 13
    """There is no save place for the launching block, or too many kernels are pending (NEST-15)."""
