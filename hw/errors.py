"""Why a channel halts: the public interrupt code, and our finer cause (COPY-12, HOST-6). And why a
warp cannot go on."""

from amaranth.lib import enum

__all__ = ["CODE_OF", "Cause", "Code", "CoreCause"]


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
    """What exactly was wrong; every cause belongs to one `Code` (`CODE_OF`)."""

    NONE = 0
    RING_POINTER = 1
    """GP_PUT at or past the ring's size."""
    ENTRY_OPCODE = 2
    """Control entry with an opcode other than NOP."""
    ENTRY_RANGE = 3
    """Segment runs past the 40-bit space."""
    HEADER_RESERVED = 4
    """Reserved header form, or a reserved bit set."""
    HEADER_OBSOLETE = 5
    """Header form of older parts."""
    HEADER_RANGE = 6
    """Method address runs past its 12 bits."""
    METHOD_UNDEFINED = 7
    METHOD_ILLEGAL = 8
    """The method ILLEGAL."""
    METHOD_PRIVILEGED = 9
    OBJECT_UNBOUND = 10
    """Engine method on a subchannel without an object."""
    OBJECT_SOFTWARE = 11
    """Method for a software object: the CPU's to execute."""
    OBJECT_CLASS = 12
    """SET_OBJECT of a class that was not built."""
    COPY_METHOD = 13
    """Method that the copy class lacks."""
    COPY_ZERO = 14
    """Copy of no bytes."""
    COPY_MODE = 15
    """Block-linear, remap, or another mode that is not modelled."""
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
    """The copy is complete, its semaphore release was refused."""
    FETCH_BUS = 30
    """Bus error reading USERD, ring or pushbuffer."""
    FETCH_FAULT = 31
    """USERD, ring or pushbuffer not mapped."""
    COMPUTE_MODE = 32
    """Data of a compute method that ask for what is not modelled."""
    INLINE_BUS = 33
    INLINE_FAULT = 34
    """An inline task record could not be written."""
    TASK_BUS = 35
    TASK_FAULT = 36
    """A task's record could not be read."""
    TASK_MODEL = 37
    """A task's record is of another version, or uses what is not modelled."""
    TASK_CHECK = 38
    """A public check of the task's record fails; `CAUSE.SKEDCHECK` says which."""
    TASK_FULL = 39
    """The list of the task's priority has no room."""
    TASK_LISTS = 40
    """The memory of the task lists could not be accessed."""
    TASK_KERNEL = 41
    """A warp of the task could not go on; `WARP_FAULT` says why."""
    TASK_RELEASE = 42
    """The task is complete, but a release at its end was refused."""
    TASK_QUEUE = 43
    """INCREMENT_PUT of a record that is no open queue; or a queue was launched that is open, or for
    which its context finds no place: the last ones are kept for others."""


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
}
"""Public interrupt of every cause. `METHOD0`/`DATA0` hold the offending method; the cause and
`ERROR_VA` say the rest."""


class CoreCause(enum.Enum, shape=4):
    """Why a warp cannot go on."""

    NONE = 0
    INSTRUCTION = 1
    """Not an instruction, or one with an operand that the kernel does not have."""
    PROGRAM_BUS = 2
    PROGRAM_FAULT = 3
    """The program's memory could not be read; and so the constant buffer's."""
    MEMORY_BUS = 4
    MEMORY_FAULT = 5
    MEMORY_ALIGNMENT = 6
    SHARED_RANGE = 7
    """Past the block's shared memory, or not a multiple of 4."""
    MASK_STACK = 8
    """Too many lane masks, or one taken that is not there."""
