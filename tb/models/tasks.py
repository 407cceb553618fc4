"""Meaning of a task record, and its errors: spec 5.3 and appendix A.

Bit positions are written independently of the design, so that tests compare them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = [
    "FIELDS",
    "FOREIGN",
    "LocalArea",
    "Machine",
    "Task",
    "buffers",
    "judge",
    "record",
    "record_of",
]

FIELDS = {
    "outer_get": (32, 31),
    "inner_get": (64, 31),
    "inner_put": (96, 31),
    "group": (128, 6),
    "is_queue": (136, 1),
    "head": (137, 1),
    "placement": (138, 2),
    "dependence": (142, 16),
    "self_copy": (158, 1),
    "queue_size": (160, 25),
    "resume_x": (192, 32),
    "resume_y": (224, 16),
    "resume_z": (240, 16),
    "sequential": (370, 1),
    "grid_x": (384, 32),
    "grid_y": (416, 16),
    "grid_z": (448, 16),
    "urgency": (464, 2),
    "second_dependent": (517, 1),
    "entries_log": (530, 5),
    "shared": (544, 18),
    "minor": (576, 4),
    "major": (580, 4),
    "block_x": (592, 16),
    "block_y": (608, 16),
    "block_z": (624, 16),
    "buffer": (640, 1),
    "further_buffers": (641, 7),
    "registers": (648, 9),
    "mask_low": (672, 32),
    "mask_high": (704, 32),
    "local_low": (736, 24),
    "barriers": (763, 5),
    "buffer_low": (1024, 32),
    "buffer_high": (1056, 17),
    "buffer_size": (1075, 13),
    "program_low": (1536, 32),
    "program_high": (1568, 17),
    "local_high": (1600, 24),
}
"""First bit and width of each field; for constant buffers, only the fields of buffer 0."""

BUFFER_BITS = 64
"""Distance in bits from the fields of one constant buffer to those of the next."""

FOREIGN = (
    "self_copy",
    "sequential",
    "second_dependent",
)
"""Fields of features that the machine does not have."""


@dataclass(frozen=True)
class Machine:
    """Resources of an SM, and the number of SMs.

    Members
    -------
    warps : warps of an SM.
    registers : 32-bit registers of an SM, counted per thread.
    shared : bytes of shared memory of an SM.
    masks : tasks can disable SMs.
    """

    warps: int
    registers: int
    shared: int
    sms: int = 1
    masks: bool = False


@dataclass(frozen=True)
class LocalArea:
    """Area of a channel's local memory: address, bytes per SM, and number of SMs that have a part
    of it."""

    va: int = 0
    size: int = 0
    sms: int = 0


@dataclass(frozen=True)
class Task:
    """Contents of a legal record; registers in units of 128, shared memory in units of 1024."""

    priority: int
    barrier: bool
    warps: int
    registers: int
    block_registers: int
    shared: int
    grid: tuple[int, int, int]
    first: tuple[int, int, int]
    blocks: int


def record(**fields: int) -> int:
    """A record with the given `FIELDS`, as a number of 2048 bits. Other fields are 0. Raises
    `KeyError` for an unknown field, `AssertionError` for a value that does not fit."""
    word = 0
    for name, value in fields.items():
        low, width = FIELDS[name]
        assert 0 <= value < 1 << width, (name, value)
        word |= value << low
    return word


def record_of(launch: Mapping[str, Any], **fields: int) -> int:
    """The record of a launch as described by `tb.testbench.jobs.Job.launch`; `fields` take
    precedence."""
    x, y, z = launch["grid"]
    width, height, depth = launch["block"]
    program, constants = launch["program"], launch["constants"]
    asked = {
        "major": 3,
        "grid_x": x,
        "grid_y": y,
        "grid_z": z,
        "block_x": width,
        "block_y": height,
        "block_z": depth,
        "registers": launch["registers"],
        "shared": launch["shared"],
        "barriers": int(launch["barrier"]),
        "program_low": program & 0xFFFF_FFFF,
        "program_high": program >> 32,
        "buffer": 1,
        "buffer_low": constants & 0xFFFF_FFFF,
        "buffer_high": constants >> 32,
        "buffer_size": launch["constant_bytes"] // 16,
    }
    return record(**(asked | fields))


def buffers(word: int) -> dict[int, tuple[int, int]]:
    """Address and bytes of each valid constant buffer of a record, by number."""
    found = {}
    for number in range(8):
        here = word >> BUFFER_BITS * number
        low, high, size = (
            here >> first & (1 << width) - 1
            for first, width in (FIELDS[f"buffer_{name}"] for name in ("low", "high", "size"))
        )
        if word >> FIELDS["buffer"][0] + number & 1:
            found[number] = high << 32 | low, 16 * size
    return found


def judge(
    word: int,
    machine: Machine,
    entered: bool = False,
    decrements: bool = False,
    area: LocalArea | None = None,
) -> Task | int | None:
    """Judge a record.

    Parameters
    ----------
    word : the record.
    entered : the task has been accepted before.
    decrements : the dependence counter is about to be decremented.
    area : local memory of the channel; None if it has set none.

    Returns one of:

    - the task. For a queue, `first` and `blocks` are 0: the record does not tell where a queue
      continues.
    - the SKEDCHECK number of the first error.
    - None, for a record that has another version, uses features that are not modelled, has no block
      or at least 2^32 blocks, disables all SMs, or has a mask on a machine without `masks`.
    """
    of = {name: word >> low & (1 << width) - 1 for name, (low, width) in FIELDS.items()}
    grid = of["grid_x"], of["grid_y"], of["grid_z"]
    first = of["resume_x"], of["resume_y"], of["resume_z"]
    sides = of["block_x"], of["block_y"], of["block_z"]
    total = grid[0] * grid[1] * grid[2]
    if (of["major"], of["minor"]) != (3, 0) or any(of[name] for name in FOREIGN):
        return None
    if total == 0 or max(total, grid[0] * grid[1]) >= 1 << 32:
        return None
    mask = of["mask_high"] << 32 | of["mask_low"]
    if _no_sm(mask, machine) if machine.masks else mask:
        return None
    threads = sides[0] * sides[1] * sides[2]
    warps = -(-threads // 32)
    units = -(-of["registers"] // 4)
    faults = {
        2: of["local_low"] % 16,
        3: of["local_high"] % 16,
        4: _local_wrong(of, machine, area or LocalArea()),
        6: not 1 <= of["registers"] <= 255,
        11: threads > 1024,
        13: of["program_low"] % 8,
        14: of["shared"] > machine.shared,
        16: 0 in sides,
        19: warps * units * 128 > machine.registers,
        20: of["is_queue"] and not entered and _pointers_wrong(of),
        21: of["is_queue"] and _size_wrong(of["queue_size"], of["entries_log"]),
        24: any(one >= size for one, size in zip(first, grid, strict=True)),
        34: warps > machine.warps,
        36: not entered and bool(of["dependence"]) != decrements,
    }
    wrong = [number for number, fault in faults.items() if fault]
    if wrong:
        return wrong[0]
    if of["is_queue"]:
        grid, first, total = ((1 << 32) - 1, 1, 1), (0, 0, 0), 0
    before = (first[2] * grid[1] + first[1]) * grid[0] + first[0]
    return Task(
        priority=of["group"],
        barrier=of["barriers"] > 0,
        warps=warps,
        registers=units,
        block_registers=warps * units,
        shared=-(-of["shared"] // 1024),
        grid=grid,
        first=first,
        blocks=total - before,
    )


def _no_sm(mask: int, machine: Machine) -> bool:
    """Whether all SMs are disabled; SMs from number 64 on cannot be disabled."""
    return all(number < 64 and mask >> number & 1 for number in range(machine.sms))


def _local_wrong(of: dict[str, int], machine: Machine, area: LocalArea) -> bool:
    units = of["local_low"] // 16 + of["local_high"] // 16
    threads = 32 << (machine.warps - 1).bit_length()
    fits = units < 1 << 15 and 16 * units * threads <= area.size and area.sms >= machine.sms
    return units > 0 and not (fits and area.va % 4096 == area.size % 4096 == 0)


def _pointers_wrong(of: dict[str, int]) -> bool:
    return bool(of["inner_get"] or of["outer_get"] or of["inner_put"] > of["queue_size"])


def _size_wrong(size: int, entries_log: int) -> bool:
    return size.bit_count() != 1 or size < 1 << entries_log
