"""Method numbers, header forms and bit fields of the public command stream (spec page 60).

Their only definition: the hardware decodes them, the driver writes them. Method numbers are byte
offsets. Layouts are Amaranth `data.Struct`s; `.const()` truncates silently, so software uses
`pack()`, which refuses a value that does not fit.

Source: NVIDIA open-gpu-doc class headers clc56f.h, clc7b5.h and clc6c0.h, as restated on spec page
60.
"""

from functools import cache

from amaranth.lib import data, enum

__all__ = [
    "COMPUTE_CLASSES",
    "COPY_CLASSES",
    "ENGINE_SUBCHANNELS",
    "OBJECT_BITS",
    "USERD_BYTES",
    "AcquireTimer",
    "CeMethod",
    "ComputeMethod",
    "CopyLaunch",
    "EntryOpcode",
    "GpEntry",
    "Header",
    "HostMethod",
    "InlineCompletion",
    "InlineLaunch",
    "Interrupt",
    "LaunchSemaphore",
    "LaunchTransfer",
    "LegacySemaphore",
    "MemOp",
    "MemOpA",
    "MemOpC",
    "MemOpD",
    "ObjectClass",
    "PcasAction",
    "Reduction",
    "RemapComponents",
    "RemapSource",
    "ReportOp",
    "ReportSemaphore",
    "SecOp",
    "SemOp",
    "SemaphoreExecute",
    "SignalingPcas",
    "SubDeviceMask",
    "TertOp",
    "Userd",
    "YieldOp",
    "pack",
    "unpack",
]

USERD_BYTES = 512
"""Size and alignment of USERD (spec 3.3)."""


class Userd(enum.IntEnum):
    """Byte offsets in USERD, 512 bytes of memory per channel (spec 3.3). The machine writes REF and
    GP_GET, the driver GP_PUT."""

    REF = 0x48
    GP_GET = 0x88
    GP_PUT = 0x8C


class SecOp(enum.IntEnum, shape=3):
    """Header form, bits 31:29 (spec 1.2)."""

    GRP0_USE_TERT = 0
    INC_METHOD = 1
    GRP2_USE_TERT = 2
    NON_INC_METHOD = 3
    IMMD_DATA_METHOD = 4
    ONE_INC = 5
    RESERVED6 = 6
    END_PB_SEGMENT = 7


class TertOp(enum.IntEnum, shape=2):
    """Third-level operation of GRP0_USE_TERT, bits 17:16 (spec 1.2)."""

    LEGACY_INC = 0
    SET_SUB_DEV_MASK = 1
    STORE_SUB_DEV_MASK = 2
    USE_SUB_DEV_MASK = 3


class SubDeviceMask(data.Struct):
    """Control entry of form GRP0_USE_TERT (spec 1.2). Device 0, the only one, is bit 0 of `mask`;
    USE takes the stored mask instead."""

    reserved0: 4
    mask: 12
    operation: TertOp
    reserved1: 14


class Header(data.Struct):
    """Pushbuffer method header (spec 1.2). `address` is in dwords: byte offset / 4."""

    address: 12
    reserved: 1
    subchannel: 3
    count: 13
    sec_op: SecOp


class EntryOpcode(enum.IntEnum, shape=8):
    """Opcode of a control entry (LENGTH == 0) in a GPFIFO ring (spec 1.1)."""

    NOP = 0
    ILLEGAL = 1
    GP_CRC = 2
    PB_CRC = 3


class GpEntry(data.Struct):
    """GPFIFO ring entry, 8 bytes, of a segment (spec 1.1): `address` and `length` in dwords."""

    fetch_conditional: 1
    reserved: 1
    address: 38
    privileged: 1
    subroutine: 1
    length: 21
    sync_wait: 1


class HostMethod(enum.IntEnum, shape=12):
    """Host methods, byte offsets below 0x100 (spec 2)."""

    SET_OBJECT = 0x00
    ILLEGAL = 0x04
    NOP = 0x08
    SEMAPHOREA = 0x10
    SEMAPHOREB = 0x14
    SEMAPHOREC = 0x18
    SEMAPHORED = 0x1C
    NON_STALL_INTERRUPT = 0x20
    FB_FLUSH = 0x24
    MEM_OP_A = 0x28
    MEM_OP_B = 0x2C
    MEM_OP_C = 0x30
    MEM_OP_D = 0x34
    SET_REFERENCE = 0x50
    SEM_ADDR_LO = 0x5C
    SEM_ADDR_HI = 0x60
    SEM_PAYLOAD_LO = 0x64
    SEM_PAYLOAD_HI = 0x68
    SEM_EXECUTE = 0x6C
    WFI = 0x78
    YIELD = 0x80
    CLEAR_FAULTED = 0x84


ENGINE_SUBCHANNELS = 5
"""Subchannels 0 … 4 can have objects; methods on the others, SET_OBJECT included, are for software
(spec 1.2)."""


OBJECT_BITS = 21
"""SET_OBJECT data: NVCLASS, 16 bits, and ENGINE, 5 bits."""


class ObjectClass(enum.IntEnum, shape=16):
    """Classes that SET_OBJECT may name. COMPUTE and COPY are those that the driver binds; the
    others have the same methods (HOST-13)."""

    COMPUTE = 0xC6C0
    COMPUTE_C7C0 = 0xC7C0
    COMPUTE_C9C0 = 0xC9C0
    COPY = 0xC7B5
    COPY_C6B5 = 0xC6B5


COMPUTE_CLASSES = (ObjectClass.COMPUTE, ObjectClass.COMPUTE_C7C0, ObjectClass.COMPUTE_C9C0)
COPY_CLASSES = (ObjectClass.COPY, ObjectClass.COPY_C6B5)


class SemOp(enum.IntEnum, shape=3):
    """SEM_EXECUTE OPERATION, bits 2:0 (spec 2.1)."""

    ACQUIRE = 0
    RELEASE = 1
    ACQ_STRICT_GEQ = 2
    ACQ_CIRC_GEQ = 3
    ACQ_AND = 4
    ACQ_NOR = 5
    REDUCTION = 6


class Reduction(enum.IntEnum, shape=4):
    """Reduction operation of the host and of the copy engine (2.1, 4)."""

    IMIN = 0
    IMAX = 1
    IXOR = 2
    IAND = 3
    IOR = 4
    IADD = 5
    INC = 6
    DEC = 7


class SemaphoreExecute(data.Struct):
    """SEM_EXECUTE data (spec 2.1). `release_wfi` 1 waits for idle; `wide`: payload of 64 bits."""

    operation: 3
    reserved0: 9
    acquire_switch: 1
    reserved1: 7
    release_wfi: 1
    reserved2: 3
    wide: 1
    release_timestamp: 1
    reserved3: 1
    reduction: 4
    unsigned: 1


class LegacySemaphore(data.Struct):
    """SEMAPHORED data: one-hot operation; `release_no_wfi` 0 waits for idle; `one_word` 0 is 16
    bytes."""

    operation: 5
    reserved0: 7
    acquire_switch: 1
    reserved1: 7
    release_no_wfi: 1
    reserved2: 3
    one_word: 1
    reserved3: 2
    reduction: 4
    unsigned: 1


class MemOp(enum.IntEnum, shape=5):
    """MEM_OP_D OPERATION, bits 31:27 (spec 2.5)."""

    MEMBAR = 0x05
    MMU_TLB_INVALIDATE = 0x09
    MMU_TLB_INVALIDATE_TARGETED = 0x0A
    L2_PEERMEM_INVALIDATE = 0x0D
    L2_SYSMEM_INVALIDATE = 0x0E
    L2_CLEAN_COMPTAGS = 0x0F
    L2_FLUSH_DIRTY = 0x10
    L2_WAIT_FOR_SYS_PENDING_READS = 0x15
    ACCESS_COUNTER_CLR = 0x16


class MemOpA(data.Struct):
    """MEM_OP_A data of an invalidation (spec 2.5): 4 KiB << `invalidation_size` around the address,
    whose bits 63:32 are in MEM_OP_B."""

    invalidation_size: 6
    inval_scope: 2
    reserved: 3
    sysmembar: 1
    target_addr_lo: 20


class MemOpC(data.Struct):
    """MEM_OP_C data of an invalidation (spec 2.5). `pdb_all`: all page directories."""

    pdb_all: 1
    gpc_disable: 1
    replay: 3
    ack_type: 2
    page_table_level: 3
    pdb_aperture: 2
    pdb_addr_lo: 20


class MemOpD(data.Struct):
    """MEM_OP_D data (spec 2.5), with the operation to execute."""

    pdb_addr_hi: 27
    operation: MemOp


class YieldOp(enum.IntEnum, shape=2):
    """YIELD OP, bits 1:0 (spec 2.6)."""

    NOP = 0
    NOP1 = 1
    RUNLIST_TIMESLICE = 2
    TSG = 3


class AcquireTimer(data.Struct):
    """Channel ACQUIRE register (spec 2.4): retry period = man << exp cycles; time-out = man << exp
    units of 1,024 ns."""

    retry_man: 7
    retry_exp: 4
    timeout_exp: 4
    timeout_man: 16
    timeout_enable: 1


class CeMethod(enum.IntEnum, shape=12):
    """Copy class methods, byte offsets (spec 4)."""

    NOP = 0x100
    SET_SEMAPHORE_A = 0x240
    SET_SEMAPHORE_B = 0x244
    SET_SEMAPHORE_PAYLOAD = 0x248
    SET_SEMAPHORE_PAYLOAD_UPPER = 0x24C
    SET_RENDER_ENABLE_A = 0x254
    SET_RENDER_ENABLE_B = 0x258
    SET_RENDER_ENABLE_C = 0x25C
    SET_SRC_PHYS_MODE = 0x260
    SET_DST_PHYS_MODE = 0x264
    LAUNCH_DMA = 0x300
    OFFSET_IN_UPPER = 0x400
    OFFSET_IN_LOWER = 0x404
    OFFSET_OUT_UPPER = 0x408
    OFFSET_OUT_LOWER = 0x40C
    PITCH_IN = 0x410
    PITCH_OUT = 0x414
    LINE_LENGTH_IN = 0x418
    LINE_COUNT = 0x41C
    SET_REMAP_CONST_A = 0x700
    SET_REMAP_CONST_B = 0x704
    SET_REMAP_COMPONENTS = 0x708


class LaunchTransfer(enum.IntEnum, shape=2):
    """LAUNCH_DMA DATA_TRANSFER_TYPE."""

    NONE = 0
    PIPELINED = 1
    NON_PIPELINED = 2


class LaunchSemaphore(enum.IntEnum, shape=2):
    """LAUNCH_DMA SEMAPHORE_TYPE."""

    NONE = 0
    ONE_WORD = 1
    FOUR_WORDS = 2
    CONDITIONAL_INTERRUPT = 3


class Interrupt(enum.IntEnum, shape=2):
    """LAUNCH_DMA INTERRUPT_TYPE."""

    NONE = 0
    BLOCKING = 1
    NON_BLOCKING = 2


class CopyLaunch(data.Struct):
    """LAUNCH_DMA data (spec 4). Layouts: 1 is pitch, 0 block-linear (not modelled)."""

    transfer: 2
    flush: 1
    semaphore: 2
    interrupt: 2
    src_pitch: 1
    dst_pitch: 1
    multi_line: 1
    remap: 1
    force_rmw_disable: 1
    src_physical: 1
    dst_physical: 1
    reduction: 4
    reduction_unsigned: 1
    reduction_enable: 1
    src_bypass_l2: 1
    dst_bypass_l2: 1
    vpr_mode: 2
    start_of_copy: 1
    flush_type: 1
    disable_plc: 1
    wide: 1
    reserved: 4


class RemapSource(enum.IntEnum, shape=3):
    """Contents of a destination component of a remapped copy: a component of the source, a
    constant, or NO_WRITE, which leaves the memory unchanged."""

    SRC_X = 0
    SRC_Y = 1
    SRC_Z = 2
    SRC_W = 3
    CONST_A = 4
    CONST_B = 5
    NO_WRITE = 6


class RemapComponents(data.Struct):
    """SET_REMAP_COMPONENTS data (HOST-16; clc7b5.h). `component_size` is the number of bytes minus
    1; `num_src`, `num_dst` are numbers of components minus 1; all of these numbers are 1 … 4."""

    dst_x: 3
    reserved0: 1
    dst_y: 3
    reserved1: 1
    dst_z: 3
    reserved2: 1
    dst_w: 3
    reserved3: 1
    component_size: 2
    reserved4: 2
    num_src: 2
    reserved5: 2
    num_dst: 2
    reserved6: 6


class ComputeMethod(enum.IntEnum, shape=13):
    """Compute class methods, byte offsets; all others of the class set shader state that this
    machine does not have (spec 5.1)."""

    NOP = 0x100
    WAIT_FOR_IDLE = 0x110
    LINE_LENGTH_IN = 0x180
    LINE_COUNT = 0x184
    OFFSET_OUT_UPPER = 0x188
    OFFSET_OUT = 0x18C
    PITCH_OUT = 0x190
    LAUNCH_DMA = 0x1B0
    LOAD_INLINE_DATA = 0x1B4
    SET_I2M_SEMAPHORE_A = 0x1DC
    SET_I2M_SEMAPHORE_B = 0x1E0
    SET_I2M_SEMAPHORE_C = 0x1E4
    INVALIDATE_SKED_CACHES = 0x298
    SET_CWD_SLOT_COUNT = 0x2B0
    SEND_PCAS_A = 0x2B4
    SEND_PCAS_B = 0x2B8
    SEND_SIGNALING_PCAS_B = 0x2BC
    SEND_SIGNALING_PCAS2_B = 0x2C0
    SET_SHADER_LOCAL_MEMORY_NON_THROTTLED_A = 0x2E4
    """Bits 39:32 of the size of each SM's part of the local memory; B has the lower ones."""
    SET_SHADER_LOCAL_MEMORY_NON_THROTTLED_B = 0x2E8
    SET_SHADER_LOCAL_MEMORY_NON_THROTTLED_C = 0x2EC
    """Number of SMs that have a part."""
    SET_INLINE_QMD_ADDRESS_A = 0x318
    SET_INLINE_QMD_ADDRESS_B = 0x31C
    LOAD_INLINE_QMD_DATA = 0x320
    """The first of 64."""
    SET_SHADER_LOCAL_MEMORY_A = 0x790
    """Bits 48:32 of the virtual address of the local memory; B has the lower ones."""
    SET_SHADER_LOCAL_MEMORY_B = 0x794
    SET_REPORT_SEMAPHORE_A = 0x1B00
    SET_REPORT_SEMAPHORE_B = 0x1B04
    SET_REPORT_SEMAPHORE_C = 0x1B08
    SET_REPORT_SEMAPHORE_D = 0x1B0C


class InlineCompletion(enum.IntEnum, shape=2):
    """LAUNCH_DMA COMPLETION_TYPE of the compute class (HOST-14)."""

    FLUSH_DISABLE = 0
    FLUSH_ONLY = 1
    RELEASE_SEMAPHORE = 2


class InlineLaunch(data.Struct):
    """LAUNCH_DMA data of the compute class (HOST-14). `pitch` 0 is block-linear (not modelled);
    `one_word` and the reduction belong to the semaphore."""

    pitch: 1
    reduction_enable: 1
    reduction_format: 2
    completion: 2
    sysmembar_disable: 1
    reserved0: 1
    interrupt: 2
    reserved1: 2
    one_word: 1
    reduction: 3
    reserved2: 16


class SignalingPcas(data.Struct):
    """SEND_SIGNALING_PCAS_B data."""

    invalidate: 1
    schedule: 1
    reserved: 30


class PcasAction(enum.IntEnum, shape=4):
    """SEND_SIGNALING_PCAS2_B PCAS_ACTION."""

    NOP = 0
    INVALIDATE = 1
    SCHEDULE = 2
    INVALIDATE_COPY_SCHEDULE = 3
    INCREMENT_PUT = 6
    DECREMENT_DEPENDENCE = 7
    PREFETCH = 8
    PREFETCH_SCHEDULE = 9
    INVALIDATE_PREFETCH_COPY_SCHEDULE = 0xA
    INVALIDATE_PREFETCH_COPY_FORCE_REQUIRE_SCHEDULING = 0xB


class ReportOp(enum.IntEnum, shape=2):
    """SET_REPORT_SEMAPHORE_D OPERATION."""

    RELEASE = 0
    TRAP = 3


class ReportSemaphore(data.Struct):
    """SET_REPORT_SEMAPHORE_D data. `reduction` uses the numbers of `hw.qmd.ReleaseOp`."""

    operation: 2
    flush_disable: 1
    reduction_enable: 1
    reserved0: 5
    reduction: 3
    reserved1: 5
    format: 2
    reserved2: 1
    awaken: 1
    reserved3: 7
    one_word: 1
    reserved4: 3


def pack(layout: type[data.Struct], **values: int) -> int:
    """Packs a record into an integer; fields not named are 0.

    Raises `ValueError` naming the field when a value does not fit, `KeyError` for an unknown field.
    """
    word = 0
    view = data.Layout.cast(layout)
    for name, value in values.items():
        field = view[name]
        width = field.width if isinstance(field.width, int) else 0
        if not 0 <= int(value) < 1 << width:
            raise ValueError(f"{layout.__name__}.{name} = {value:#x} does not fit its {width} bits")
        word |= int(value) << field.offset
    return word


def unpack(layout: type[data.Struct] | data.Layout, word: int) -> dict[str, int]:
    """Fields of a record as plain numbers, as enumerations would refuse undefined values."""
    return {name: word >> first & mask for name, first, mask in _fields(layout)}


@cache
def _fields(layout: type[data.Struct] | data.Layout) -> tuple[tuple[str, int, int], ...]:
    """Name, first bit and mask of each field."""
    fields = []
    for name, field in data.Layout.cast(layout):
        width = field.width if isinstance(field.width, int) else 0
        fields.append((str(name), field.offset, (1 << width) - 1))
    return tuple(fields)
