"""Task metadata: the QMD of version 3.0, 256 bytes in memory (HOST-10, spec page 60 appendix A).

The only definition of its fields: the front end reads these records, the driver writes them. Bit n
of the record is bit n % 32 of dword n // 32. Records are aligned to 256 bytes.

Source: NVIDIA open-gpu-doc clc6c0qmd.h (NVC6C0_QMDV03_00_*), as restated on spec page 60.
"""

from amaranth.hdl import unsigned
from amaranth.lib import data, enum

__all__ = [
    "CONSTANT_BUFFERS",
    "MOST_REGISTERS",
    "MOST_THREADS",
    "QMD",
    "QMD_BITS",
    "QMD_BYTES",
    "QMD_VERSION",
    "RELEASES",
    "DependentAction",
    "Placement",
    "ReleaseOp",
    "SkedCheck",
]

QMD_BYTES = 256
"""Size and alignment of a record."""

QMD_BITS = 8 * QMD_BYTES

QMD_VERSION = (3, 0)
"""Supported QMD_MAJOR_VERSION and QMD_VERSION."""

CONSTANT_BUFFERS = 8
"""Constant buffers per record; their number is in the middle of the field names."""

RELEASES = (768, 896, 1664)
"""First bits of the three completion releases, which have the same layout."""

MOST_THREADS = 1024
"""Limit of threads per block."""

MOST_REGISTERS = 255
"""Limit of registers per thread."""

_FIELDS = {
    "OUTER_PUT": (30, 0),
    "OUTER_OVERFLOW": (31, 31),
    "OUTER_GET": (62, 32),
    "OUTER_STICKY_OVERFLOW": (63, 63),
    "INNER_GET": (94, 64),
    "INNER_OVERFLOW": (95, 95),
    "INNER_PUT": (126, 96),
    "INNER_STICKY_OVERFLOW": (127, 127),
    "QMD_GROUP_ID": (133, 128),
    "SM_GLOBAL_CACHING_ENABLE": (134, 134),
    "RUN_CTA_IN_ONE_SM_PARTITION": (135, 135),
    "IS_QUEUE": (136, 136),
    "ADD_TO_HEAD_OF_QMD_GROUP_LINKED_LIST": (137, 137),
    "REQUIRE_SCHEDULING_PCAS": (140, 140),
    "DEPENDENCE_COUNTER": (157, 142),
    "SELF_COPY_ON_COMPLETION": (158, 158),
    "CIRCULAR_QUEUE_SIZE": (184, 160),
    "DEMOTE_L2_EVICT_LAST": (185, 185),
    "INVALIDATE_TEXTURE_HEADER_CACHE": (186, 186),
    "INVALIDATE_TEXTURE_SAMPLER_CACHE": (187, 187),
    "INVALIDATE_TEXTURE_DATA_CACHE": (188, 188),
    "INVALIDATE_SHADER_DATA_CACHE": (189, 189),
    "INVALIDATE_INSTRUCTION_CACHE": (190, 190),
    "INVALIDATE_SHADER_CONSTANT_CACHE": (191, 191),
    "CTA_RASTER_WIDTH_RESUME": (223, 192),
    "CTA_RASTER_HEIGHT_RESUME": (239, 224),
    "CTA_RASTER_DEPTH_RESUME": (255, 240),
    "PROGRAM_PREFETCH_ADDR_LOWER_SHIFTED": (287, 256),
    "CIRCULAR_QUEUE_ADDR_LOWER": (319, 288),
    "CIRCULAR_QUEUE_ADDR_UPPER": (327, 320),
    "CIRCULAR_QUEUE_ENTRY_SIZE": (351, 336),
    "CWD_REFERENCE_COUNT_ID": (357, 352),
    "CWD_REFERENCE_COUNT_DELTA_MINUS_ONE": (365, 358),
    "CWD_REFERENCE_COUNT_INCR_ENABLE": (367, 367),
    "CWD_MEMBAR_TYPE": (369, 368),
    "SEQUENTIALLY_RUN_CTAS": (370, 370),
    "CWD_REFERENCE_COUNT_DECR_ENABLE": (371, 371),
    "API_VISIBLE_CALL_LIMIT": (378, 378),
    "SAMPLER_INDEX": (382, 382),
    "DISABLE_AUTO_INVALIDATE": (383, 383),
    "CTA_RASTER_WIDTH": (415, 384),
    "CTA_RASTER_HEIGHT": (431, 416),
    "CTA_RASTER_DEPTH": (463, 448),
    "DEPENDENT_QMD0_POINTER": (511, 480),
    "DEPENDENT_QMD0_ENABLE": (512, 512),
    "DEPENDENT_QMD0_ACTION": (515, 513),
    "DEPENDENT_QMD0_PREFETCH": (516, 516),
    "DEPENDENT_QMD1_ENABLE": (517, 517),
    "DEPENDENT_QMD1_ACTION": (520, 518),
    "DEPENDENT_QMD1_PREFETCH": (521, 521),
    "COALESCE_WAITING_PERIOD": (529, 522),
    "QUEUE_ENTRIES_PER_CTA_LOG2": (534, 530),
    "SHARED_MEMORY_SIZE": (561, 544),
    "MIN_SM_CONFIG_SHARED_MEM_SIZE": (567, 562),
    "MAX_SM_CONFIG_SHARED_MEM_SIZE": (574, 569),
    "QMD_VERSION": (579, 576),
    "QMD_MAJOR_VERSION": (583, 580),
    "CTA_THREAD_DIMENSION0": (607, 592),
    "CTA_THREAD_DIMENSION1": (623, 608),
    "CTA_THREAD_DIMENSION2": (639, 624),
    "REGISTER_COUNT_V": (656, 648),
    "TARGET_SM_CONFIG_SHARED_MEM_SIZE": (662, 657),
    "SHARED_ALLOCATION_ENABLE": (663, 663),
    "FREE_CTA_SLOTS_EMPTY_SM": (671, 664),
    "SM_DISABLE_MASK_LOWER": (703, 672),
    "SM_DISABLE_MASK_UPPER": (735, 704),
    "SHADER_LOCAL_MEMORY_LOW_SIZE": (759, 736),
    "BARRIER_COUNT": (767, 763),
    "PROGRAM_ADDRESS_LOWER": (1567, 1536),
    "PROGRAM_ADDRESS_UPPER": (1584, 1568),
    "SHADER_LOCAL_MEMORY_HIGH_SIZE": (1623, 1600),
    "PROGRAM_PREFETCH_ADDR_UPPER_SHIFTED": (1640, 1632),
    "PROGRAM_PREFETCH_SIZE": (1649, 1641),
    "PROGRAM_PREFETCH_TYPE": (1651, 1650),
    "SASS_VERSION": (1663, 1656),
    "HW_ONLY_INNER_GET": (1854, 1824),
    "HW_ONLY_REQUIRE_SCHEDULING_PCAS": (1855, 1855),
    "HW_ONLY_INNER_PUT": (1886, 1856),
    "HW_ONLY_SPAN_LIST_HEAD_INDEX": (1917, 1888),
    "HW_ONLY_SPAN_LIST_HEAD_INDEX_VALID": (1919, 1919),
    "HW_ONLY_SKED_NEXT_QMD_POINTER": (1951, 1920),
    "HW_ONLY_DEPENDENCE_COUNTER": (1958, 1952),
    "DEBUG_ID_UPPER": (2015, 1984),
    "DEBUG_ID_LOWER": (2047, 2016),
}
"""Highest and lowest bit of each field."""

_BUFFER = {
    "CONSTANT_BUFFER_{}_VALID": (640, 640, 1),
    "CONSTANT_BUFFER_{}_ADDR_LOWER": (1055, 1024, 64),
    "CONSTANT_BUFFER_{}_ADDR_UPPER": (1072, 1056, 64),
    "CONSTANT_BUFFER_{}_PREFETCH_POST": (1073, 1073, 64),
    "CONSTANT_BUFFER_{}_INVALIDATE": (1074, 1074, 64),
    "CONSTANT_BUFFER_{}_SIZE_SHIFTED4": (1087, 1075, 64),
}
"""Highest and lowest bit of the first constant buffer's fields, and the distance to the next."""

_RELEASE = {
    "ADDRESS_LOWER": (31, 0),
    "ADDRESS_UPPER": (39, 32),
    "MEMBAR_TYPE": (51, 51),
    "REDUCTION_OP": (54, 52),
    "ENABLE": (55, 55),
    "REDUCTION_FORMAT": (57, 56),
    "REDUCTION_ENABLE": (58, 58),
    "NON_BLOCKING_INTR_TYPE": (60, 59),
    "PAYLOAD64B": (61, 61),
    "STRUCTURE_SIZE": (63, 62),
    "PAYLOAD_LOWER": (95, 64),
    "PAYLOAD_UPPER": (127, 96),
}
"""Highest and lowest bit of a release's fields, relative to its first bit."""

_MODEL = {
    "MODEL_PLACEMENT": (139, 138),
    "MODEL_URGENCY": (465, 464),
    "MODEL_PARENT": (1823, 1792),
}
"""Fields of this machine, in bits unused by the public record. MODEL_PARENT: virtual address >> 8
of the record of the kernel that has last launched this record. The machine writes it, and does not
read it."""


class Placement(enum.IntEnum, shape=2):
    """MODEL_PLACEMENT: distribution of blocks over SMs (ASID-32)."""

    CONTEXT = 0
    """As set for the context."""
    WIDE = 1
    DEEP = 2
    AFFINITY = 3


class Urgency(enum.IntEnum, shape=2):
    """MODEL_URGENCY: treatment of blocks of lower priority while the task lacks room
    (PREEMPT-5)."""

    CONTEXT = 0
    """As set for the context; 3 means the same."""
    DRAIN = 1
    """They end."""
    SAVE = 2
    """They are stopped, their state is saved, and they continue later."""


class DependentAction(enum.IntEnum, shape=3):
    """DEPENDENT_QMDn_ACTION: action of a task's end on another task."""

    INCREMENT_PUT = 0
    SCHEDULE = 1
    INVALIDATE_COPY_SCHEDULE = 3
    DECREMENT_DEPENDENCE = 4


class ReleaseOp(enum.IntEnum, shape=3):
    """RELEASEn_REDUCTION_OP: its numbers differ from those of host and copy engine (spec 8)."""

    ADD = 0
    MIN = 1
    MAX = 2
    INC = 3
    DEC = 4
    AND = 5
    OR = 6
    XOR = 7


class SkedCheck(enum.IntEnum, shape=6):
    """Public numbers of the checks of a record (spec 5.3) that this machine performs."""

    NONE = 0
    LOCAL_MEMORY_LOW = 2
    LOCAL_MEMORY_HIGH = 3
    LOCAL_MEMORY = 4
    """Both sizes together do not fit the channel's area."""
    REGISTER_COUNT = 6
    THREADS = 11
    PROGRAM = 13
    SHARED_MEMORY = 14
    THREAD_DIMENSION_ZERO = 16
    REGISTERS = 19
    QUEUE_GET_PUT = 20
    QUEUE_SIZE = 21
    RESUME = 24
    SPAN = 27
    WARPS = 34
    DEPENDENCE = 36


def _field(high: int, low: int) -> data.Field:
    return data.Field(unsigned(high - low + 1), low)


def _fields() -> dict[str, data.Field]:
    fields = {name: _field(*bits) for name, bits in (_FIELDS | _MODEL).items()}
    for number in range(CONSTANT_BUFFERS):
        for name, (high, low, step) in _BUFFER.items():
            fields[name.format(number)] = _field(high + step * number, low + step * number)
    for number, first in enumerate(RELEASES):
        for name, (high, low) in _RELEASE.items():
            fields[f"RELEASE{number}_{name}"] = _field(first + high, first + low)
    return fields


QMD = data.FlexibleLayout(QMD_BITS, _fields())
"""The record, with the public field names."""
