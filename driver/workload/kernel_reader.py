"""Reads and checks [[kernel]] and [[child]] of a workload file (`driver/workload/reader.py`).

Data are named after the copy or kernel that writes them. If a kernel overwrites data in place, no
other copy or kernel may use the old data.
"""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from signalbox.driver.compute.launch import KernelLaunch
from signalbox.driver.compute.occupancy import BlockError, occupancy
from signalbox.driver.compute.placement import NAMES
from signalbox.driver.compute.sm_set import SmSetError, disabled_sms
from signalbox.driver.kernels.timing import TIMING, TimingTask
from signalbox.driver.workload.references import REFERENCES, Reference, Shape
from signalbox.driver.workload.specs import CopySpec, KernelSpec, Spec
from signalbox.driver.workload.toml_table import Table
from signalbox.hw.config import PRIORITIES, Config

__all__ = ["check_kernels", "extent", "read_kernels"]

_MOST = (0x7FFF_FFFF, 0xFFFF, 0xFFFF)
"""Maximum number of blocks of a grid in x, y, z."""

_MOST_BLOCKS = (1 << 32) - 1
"""Maximum number of blocks of a grid."""

_KERNEL_KEYS = {item.name for item in fields(KernelSpec)} - {"shape", "parent"} | {"grid", "block"}
_CHILD_KEYS = {"name", "kernel", "grid", "block", "args", "policy", "sms"}

_WORDS = 1 << 28
"""Maximum number of 32-bit words that a kernel may need at a pointer."""


# Reading


def read_kernels(top: Table, streams: set[str], config: Config) -> list[tuple[Table, KernelSpec]]:
    """Read every [[kernel]] and [[child]], and check it on its own; children have no stream yet.
    Raises `WorkloadError`."""
    tables, children = top.tables("kernel"), top.tables("child")
    if (tables or children) and not config.compute:
        raise [*tables, *children][0].error(
            f"[machine] has sms = {config.sms}: it cannot run kernels"
        )
    found = []
    for number, table in enumerate(tables, 1):
        table.known(_KERNEL_KEYS)
        stream = table.text("stream", None)
        if stream not in streams:
            raise table.error(f"stream = {stream!r}: there is no such stream")
        found.append((table, _kernel(table, f"kernel {number}", stream)))
    for table in children:
        table.known(_CHILD_KEYS)
        found.append((table, _kernel(table, None, "")))
    for table, spec in found:
        _check_machine(table, spec, config)
    return found


def _kernel(table: Table, default_name: str | None, stream: str) -> KernelSpec:
    """Read a kernel. `stream` : name of its stream; "" for a child."""
    reference = REFERENCES[table.text("kernel", None, tuple(REFERENCES))]
    given, cancelled = ("priority" in table.values), ("cancel_at" in table.values)
    spec = KernelSpec(
        name=table.text("name", default_name),
        stream=stream,
        kernel=reference.kernel.name,
        shape=Shape(_extent(table, "grid", reference), _extent(table, "block", reference)),
        args=table.table("args"),
        priority=table.number("priority", None, 0, PRIORITIES - 1) if given else None,
        policy=table.text("policy", "auto", tuple(NAMES)),
        shared=table.number("shared", 0),
        sms=table.numbers("sms") if "sms" in table.values else None,
        at=table.number("at", 0),
        delay=table.number("delay", None) if "delay" in table.values else None,
        starts=_window(table, "starts"),
        cancel_at=table.number("cancel_at", None, 1) if cancelled else None,
        after=table.texts("after"),
        count=table.number("count", 1, 1, 1 << 20),
        period=table.number("period", 0),
    )
    _check_args(table, spec)
    _check_end(table, spec)
    if spec.starts and spec.count > 1:
        raise table.error(f"starts: a series of {spec.count} has several starts")
    return spec


def _check_end(table: Table, spec: KernelSpec) -> None:
    """Check that the kernel ends or is cancelled, and that it is cancelled only if it has neither a
    result nor children. A kernel with children must have one block of one warp."""
    reference, cancel_at = spec.reference, spec.cancel_at
    if not reference.ends and not spec.stream:
        raise table.error(f"kernel = {spec.kernel!r} never ends, so it cannot be a child")
    if reference.children and (spec.shape.blocks > 1 or spec.shape.warps > 1):
        raise table.error(f"{spec.kernel!r} launches kernels, so it has one block of one warp")
    if cancel_at is None:
        if not reference.ends:
            raise table.error(f"kernel = {spec.kernel!r} never ends: give it a cancel_at")
    elif reference.children:
        raise table.error(f"cancel_at = {cancel_at}: {spec.kernel!r} launches kernels")
    elif reference.output:
        raise table.error(
            f"cancel_at = {cancel_at}: {spec.kernel!r} has a result, which it would lack"
        )
    elif cancel_at < spec.at + (spec.count - 1) * spec.period:
        raise table.error(f"cancel_at = {cancel_at}: its last launch is later")


def _window(table: Table, key: str) -> tuple[int, int] | None:
    """First and last cycle; None if they are not given."""
    if key not in table.values:
        return None
    given = table.numbers(key)
    if len(given) != 2 or not 0 <= given[0] <= given[1]:
        raise table.error(f"{key} = {[*given]} is not [first, last] of a range of cycles")
    return given[0], given[1]


def extent(table: Table, key: str) -> tuple[int, int, int]:
    """Extent of a grid or block in x, y, z: one to three integers. Raises `WorkloadError`."""
    given = table.values.get(key)
    if given is None:
        raise table.error(f"{key} is missing")
    sizes = given if isinstance(given, list) else [given]
    if not 1 <= len(sizes) <= 3 or not all(type(size) is int for size in sizes):
        raise table.error(f"{key} = {given!r} is neither an integer nor a list of up to three")
    for size, most in zip(sizes, _MOST, strict=False):
        if not 1 <= size <= most:
            raise table.error(f"{key} = {given!r}: {size} is outside 1 … {most}")
    x, y, z = (*sizes, 1, 1, 1)[:3]
    return x, y, z


def _extent(table: Table, key: str, reference: Reference) -> tuple[int, int, int]:
    """Extent of a grid or block in the dimensions of a kernel."""
    sizes = extent(table, key)
    if any(size > 1 for size in sizes[reference.dimensions :]):
        raise table.error(
            f"{key} = {table.values[key]!r}: {reference.kernel.name!r} extends in "
            f"{('x only', 'x and y only')[reference.dimensions - 1]}"
        )
    return sizes


def _check_args(table: Table, spec: KernelSpec) -> None:
    """Check that every parameter has an argument of the right kind."""
    reference, parameters = spec.reference, spec.reference.kernel.parameters
    for name in spec.args:
        if name not in parameters or name == reference.status:
            known = ", ".join(one for one in parameters if one != reference.status)
            raise table.error(f"args: {spec.kernel!r} has no {name!r}; it takes {known}")
    for name in parameters:
        value = spec.args.get(name)
        if value is None:
            if not _may_lack(spec, name):
                raise table.error(f"args: {name} of {spec.kernel!r} is missing")
        elif name in reference.pointers:
            if not isinstance(value, str):
                raise table.error(
                    f"args: {name} = {value!r} is a pointer: name the copy or kernel whose data "
                    "it points to"
                )
        elif name in reference.children:
            if not isinstance(value, str):
                raise table.error(f"args: {name} = {value!r} is a kernel: name a [[child]]")
        elif type(value) is not int or not 0 <= value < 1 << 32:
            raise table.error(f"args: {name} = {value!r} is not an integer from 0 to 2^32 - 1")
    if reference.kernel is TIMING:
        _check_timing(table, spec)
    if reference.follows and not spec.numbers["STEPS"]:
        raise table.error("args: STEPS = 0: at least 1")
    for name, words in spec.words.items():
        if not 1 <= words <= _WORDS:
            raise table.error(f"args: {name} would have {words} words: 1 … {_WORDS}")


def _check_timing(table: Table, spec: KernelSpec) -> None:
    """Check that the numbers of "timing" fit its record. The first word of the record also has
    flags for stores and launches."""
    given: dict[str, Any] = {name.lower(): value for name, value in spec.numbers.items()}
    try:
        TimingTask(**given).pack()
    except ValueError as error:
        raise table.error(f"args: {error}") from error


def _may_lack(spec: KernelSpec, name: str) -> bool:
    """Whether the argument of a parameter may be missing."""
    reference = spec.reference
    spare = name in reference.spare and not spec.numbers[reference.spare[name]]
    return spare or name in (reference.output, reference.status, *reference.optional)


def _check_machine(table: Table, spec: KernelSpec, config: Config) -> None:
    """Check that the machine's SMs can run the kernel."""
    if config.timing_core != (spec.kernel == "timing"):
        what = "only 'timing'" if config.timing_core else "all but 'timing'"
        raise table.error(
            f"kernel = {spec.kernel!r}: [machine] has timing_core = "
            f"{str(config.timing_core).lower()}, whose SMs run {what}"
        )
    if (spec.reference.children or not spec.stream) and not config.nested:
        raise table.error("[machine] has nested_kernels = 0: its kernels cannot launch others")
    if spec.shape.blocks > _MOST_BLOCKS:
        raise table.error(f"grid = {table.values['grid']!r}: more than {_MOST_BLOCKS} blocks")
    kernel, block = spec.reference.kernel, spec.shape.block
    launch = KernelLaunch(
        kernel=kernel, grid=spec.shape.grid, block=block, args={}, shared=spec.shared
    )
    try:
        occupancy(config, registers=kernel.registers, block=block, shared=launch.shared_bytes)
    except BlockError as error:
        raise table.error(f"block: {error}") from error
    try:
        disabled_sms(config, spec.sms)
    except SmSetError as error:
        raise table.error(f"sms: {error}") from error


# Checks between tables


def check_kernels(
    kernels: list[tuple[Table, KernelSpec]],
    copies: list[tuple[Table, CopySpec]],
    by_name: Mapping[str, Spec],
    spaces: Mapping[str, str | None],
) -> None:
    """Check that pointers lead to suitable data, and that no other kernel overwrites these.

    `by_name` has all work; `spaces` has the address space of each stream, None for the device's
    own. Raises `WorkloadError`.
    """
    for table, spec in kernels:  # first, as a kernel also waits for the data of its children
        for pointer, name in spec.sources.items():
            what = f"args: {pointer} = {name!r}"
            if name not in by_name:
                raise table.error(f"{what}: there is no such copy or kernel")
            if by_name[name].count not in {1, spec.count}:
                raise table.error(
                    f"{what}: that is a series of {by_name[name].count}, this one of {spec.count}"
                )
            _check_data(table, spec, pointer, by_name[name])
    for table, spec in kernels:
        for name in spec.after:
            if name not in by_name:
                raise table.error(f"after = {name!r}: there is no such copy or kernel")
        for name in spec.before:
            if by_name[name].count not in {1, spec.count}:
                raise table.error(
                    f"{name!r} is a series of {by_name[name].count}, this one of {spec.count}"
                )
        if spec.in_place is not None:
            _check_in_place(table, spec, by_name[spec.in_place], spaces)
    _check_owners(kernels, copies)


def _check_data(table: Table, spec: KernelSpec, pointer: str, other: Spec) -> None:
    """Check that the data of a pointer are large enough for the kernel, and contiguous."""
    what = f"args: {pointer} = {other.name!r}"
    needed = 4 * spec.words[pointer]
    if other.size < needed:
        raise table.error(f"{what}: that has {other.size} bytes, {spec.kernel!r} needs {needed}")
    if not isinstance(other, CopySpec):
        if pointer == spec.reference.follows:
            raise table.error(f"{what}: only a copy with data = 'permutation' can be followed")
        return
    apart = other.height > 1 and other.dst_pitch != other.width
    if apart or other.dst_offset % 4 or other.size % 4:
        raise table.error(f"{what}: its data are not contiguous, aligned words")
    if pointer == spec.reference.follows and other.data != "permutation":
        raise table.error(f"{what}: only a copy with data = 'permutation' can be followed")


def _check_in_place(
    table: Table,
    spec: KernelSpec,
    other: Spec,
    spaces: Mapping[str, str | None],
) -> None:
    """Check that a kernel may overwrite the data that its output argument names."""
    what = f"args: {spec.reference.output} = {other.name!r}"
    if spec.reference.apart and [*spec.sources.values()].count(other.name) > 1:
        raise table.error(f"{what}: {spec.kernel!r} would overwrite its own input")
    if spaces[other.stream] != spaces[spec.stream]:
        raise table.error(f"{what}: the kernel would write it, but it is in another address space")
    if other.size != spec.size:
        raise table.error(f"{what}: that has {other.size} bytes, the kernel writes {spec.size}")
    if other.count != spec.count:
        raise table.error(f"{what}: the kernel would write it {spec.count} times")


def _check_owners(
    kernels: list[tuple[Table, KernelSpec]], copies: list[tuple[Table, CopySpec]]
) -> None:
    """Check that data overwritten by a kernel are not used by any other copy or kernel."""
    owners: dict[str | None, str] = {
        spec.in_place: spec.name for _, spec in kernels if spec.in_place is not None
    }
    for table, spec in (*copies, *kernels):
        used = spec.sources.values() if isinstance(spec, KernelSpec) else (spec.source,)
        for name in used:
            if owners.get(name, spec.name) != spec.name:
                raise table.error(
                    f"{name!r} is overwritten by {owners[name]!r}: name that, or copy it first"
                )
