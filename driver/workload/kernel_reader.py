"""[[kernel]] of a workload file (`driver/workload/reader.py`), read and checked.

Data have one name for each state: a copy's name stands for what it brings, a kernel's for what it
leaves. Where a kernel writes in place, what was there before is nobody else's any more.
"""

from collections.abc import Mapping
from dataclasses import fields

from signalbox.driver.compute.launch import KernelLaunch
from signalbox.driver.compute.occupancy import BlockError, occupancy
from signalbox.driver.compute.placement import NAMES
from signalbox.driver.workload.entries import Entry
from signalbox.driver.workload.references import REFERENCES, Reference, Shape
from signalbox.driver.workload.specs import CopySpec, KernelSpec, Spec
from signalbox.hw.config import PRIORITIES, Config

__all__ = ["check_kernels", "read_kernels"]

_MOST = (0x7FFF_FFFF, 0xFFFF, 0xFFFF)
"""Blocks of a grid in x, y, z."""

_WORDS = 1 << 28
"""Bound of the words that an argument stands for."""


# Reading


def read_kernels(top: Entry, streams: set[str], config: Config) -> list[tuple[Entry, KernelSpec]]:
    """All [[kernel]], each on its own. Raises `WorkloadError`."""
    entries = top.tables("kernel")
    if entries and not config.compute:
        raise entries[0].error(f"[machine] has sms = {config.sms}: nothing there runs kernels")
    found = []
    for number, entry in enumerate(entries, 1):
        spec = _kernel(entry, f"kernel {number}", streams)
        _check_machine(entry, spec, config)
        found.append((entry, spec))
    return found


def _kernel(entry: Entry, default_name: str, streams: set[str]) -> KernelSpec:
    names = {item.name for item in fields(KernelSpec)} - {"shape"}
    entry.known(names | {"grid", "block"})
    stream = entry.text("stream", None)
    if stream not in streams:
        raise entry.error(f"stream = {stream!r}: there is no such stream")
    reference = REFERENCES[entry.text("kernel", None, tuple(REFERENCES))]
    given = "priority" in entry.values
    spec = KernelSpec(
        name=entry.text("name", default_name),
        stream=stream,
        kernel=reference.kernel.name,
        shape=Shape(_extent(entry, "grid", reference), _extent(entry, "block", reference)),
        args=entry.table("args"),
        priority=entry.number("priority", None, 0, PRIORITIES - 1) if given else None,
        policy=entry.text("policy", "auto", tuple(NAMES)),
        at=entry.number("at", 0),
        after=entry.texts("after"),
        count=entry.number("count", 1, 1, 1 << 20),
        period=entry.number("period", 0),
    )
    _check_args(entry, spec)
    return spec


def _extent(entry: Entry, key: str, reference: Reference) -> tuple[int, int, int]:
    """A grid or a block: a number, or up to three."""
    given = entry.values.get(key)
    if given is None:
        raise entry.error(f"{key} is missing")
    sizes = given if isinstance(given, list) else [given]
    if not 1 <= len(sizes) <= 3 or not all(type(size) is int for size in sizes):
        raise entry.error(f"{key} = {given!r} is neither an integer nor a list of up to three")
    for size, most in zip(sizes, _MOST, strict=False):
        if not 1 <= size <= most:
            raise entry.error(f"{key} = {given!r}: {size} is outside 1 … {most}")
    if any(size > 1 for size in sizes[reference.dimensions :]):
        raise entry.error(
            f"{key} = {given!r}: {reference.kernel.name!r} extends in "
            f"{('x only', 'x and y only')[reference.dimensions - 1]}"
        )
    x, y, z = (*sizes, 1, 1, 1)[:3]
    return x, y, z


def _check_args(entry: Entry, spec: KernelSpec) -> None:
    """Whether each parameter has an argument of its kind."""
    reference, parameters = spec.reference, spec.reference.kernel.parameters
    for name in spec.args:
        if name not in parameters:
            known = ", ".join(parameters)
            raise entry.error(f"args: {spec.kernel!r} has no {name!r}; it takes {known}")
    for name in parameters:
        value = spec.args.get(name)
        if value is None:
            if name not in (reference.output, *reference.optional):
                raise entry.error(f"args: {name} of {spec.kernel!r} is missing")
        elif name in reference.pointers:
            if not isinstance(value, str):
                raise entry.error(
                    f"args: {name} = {value!r} is a pointer: name the copy or kernel whose data "
                    "it leads to"
                )
        elif type(value) is not int or not 0 <= value < 1 << 32:
            raise entry.error(f"args: {name} = {value!r} is not an integer from 0 to 2^32 - 1")
    if reference.follows and not spec.numbers["STEPS"]:
        raise entry.error("args: STEPS = 0: at least one")
    for name, words in spec.words.items():
        if not 1 <= words <= _WORDS:
            raise entry.error(f"args: {name} would have {words} words: 1 … {_WORDS}")


def _check_machine(entry: Entry, spec: KernelSpec, config: Config) -> None:
    """Whether the machine's SMs can run it."""
    if config.timing_core != (spec.kernel == "timing"):
        what = "only 'timing'" if config.timing_core else "all but 'timing'"
        raise entry.error(
            f"kernel = {spec.kernel!r}: [machine] has timing_core = "
            f"{str(config.timing_core).lower()}, whose SMs run {what}"
        )
    kernel, block = spec.reference.kernel, spec.shape.block
    launch = KernelLaunch(kernel=kernel, grid=spec.shape.grid, block=block, args={})
    try:
        occupancy(config, registers=kernel.registers, block=block, shared=launch.shared_bytes)
    except BlockError as error:
        raise entry.error(f"block: {error}") from error


# What entries have to do with each other


def check_kernels(
    kernels: list[tuple[Entry, KernelSpec]],
    copies: list[tuple[Entry, CopySpec]],
    spaces: Mapping[str, str | None],
) -> None:
    """Whether pointers lead to fitting data that nobody else overwrites; `spaces` by streams.
    Raises `WorkloadError`."""
    by_name = {spec.name: spec for _, spec in (*copies, *kernels)}
    for entry, spec in kernels:
        for name in spec.after:
            if name not in by_name:
                raise entry.error(f"after = {name!r}: there is no such copy or kernel")
        for pointer, name in spec.sources.items():
            if name not in by_name:
                raise entry.error(f"args: {pointer} = {name!r}: there is no such copy or kernel")
            _check_data(entry, spec, pointer, by_name[name])
        for name in spec.before:
            if by_name[name].count not in {1, spec.count}:
                raise entry.error(
                    f"{name!r} is a series of {by_name[name].count}, this one of {spec.count}"
                )
        if spec.in_place is not None:
            _check_in_place(entry, spec, by_name[spec.in_place], spaces)
    _check_owners(kernels, copies)


def _check_data(entry: Entry, spec: KernelSpec, pointer: str, other: Spec) -> None:
    """Whether what a pointer leads to is as large as the kernel needs, and in one piece."""
    what = f"args: {pointer} = {other.name!r}"
    needed = 4 * spec.words[pointer]
    if other.size < needed:
        raise entry.error(f"{what}: that has {other.size} bytes, {spec.kernel!r} needs {needed}")
    if isinstance(other, KernelSpec):
        if pointer == spec.reference.follows:
            raise entry.error(f"{what}: only a copy with data = 'permutation' can be followed")
        return
    apart = other.height > 1 and other.dst_pitch != other.width
    if apart or other.dst_offset % 4 or other.size % 4:
        raise entry.error(f"{what}: that is not in words, one behind the other")
    if pointer == spec.reference.follows and other.data != "permutation":
        raise entry.error(f"{what}: only a copy with data = 'permutation' can be followed")


def _check_in_place(
    entry: Entry,
    spec: KernelSpec,
    other: Spec,
    spaces: Mapping[str, str | None],
) -> None:
    """Whether a kernel may overwrite what its output names."""
    what = f"args: {spec.reference.output} = {other.name!r}"
    if spaces[other.stream] != spaces[spec.stream]:
        raise entry.error(f"{what}: the kernel would write it, and it is in another address space")
    if other.size != spec.size:
        raise entry.error(f"{what}: that has {other.size} bytes, the kernel leaves {spec.size}")
    if other.count != spec.count:
        raise entry.error(f"{what}: the kernel would write it {spec.count} times")


def _check_owners(
    kernels: list[tuple[Entry, KernelSpec]], copies: list[tuple[Entry, CopySpec]]
) -> None:
    """Whether what a kernel overwrites is nobody else's."""
    owners: dict[str | None, str] = {
        spec.in_place: spec.name for _, spec in kernels if spec.in_place is not None
    }
    for entry, spec in (*copies, *kernels):
        used = spec.sources.values() if isinstance(spec, KernelSpec) else (spec.source,)
        for name in used:
            if owners.get(name, spec.name) != spec.name:
                raise entry.error(
                    f"{name!r} is overwritten by {owners[name]!r}: name that one, or copy it first"
                )
