"""Reads and checks workload files: streams, copies, kernels, times and dependencies, in TOML.

    [machine]                  # optional; members of hw.config.Config, to build the machine with
    channels = 8

    [policy]                   # optional
    kind = "priority"          # the published order (COPY-20); or "count-first": copies of all
                               # levels are counted while they wait; or "none": the same channels,
                               # bare copies (`driver.channel.priority_policy`)
    levels = 2                 # internal priorities; default: as many as streams have
    channels_per_level = [1, 1]
    stream_priorities = 2
    slice = 2000               # time slice of every channel, in cycles
    scheduling = "flat"        # each channel by its own slice; or "runlist": the channels of one
                               # address space at a time have a turn. The machine then gets as many
                               # runlist_entries as needed, unless [machine] says how many
    turn = 5000                # with "runlist": time slice of every address space, in cycles,
                               # rounded up to units of 1,024 ns; default 1.05 ms

    [limits]                   # optional; for machines with nested_kernels
    nesting_depth = 4          # levels of kernels that launch kernels, 1 … 24; default 1. Also the
                               # distance between stream priorities, in device priorities
    pending_launches = 100     # maximum number of incomplete children, 1 … 2048 (default)

    [[space]]                  # optional; an address space
    name = "a"
    interleave = "high"        # with "runlist": how often it has a turn; or "medium", or "low"
                               # (default), as the device's own space (`driver.channel.interleave`)
    turn = 2000                # its time slice, in place of that in [policy]

    [[stream]]
    name = "low"
    priority = 0               # CUDA: lower is more urgent; default 0
    space = "a"                # address space; default: the device's own
    null = true                # its work waits for all earlier work of its address space, and later
                               # work for its own, as in CUDA's NULL stream; default false

    [[copy]]
    name = "frame"             # default "copy 1", …
    stream = "low"
    size = 4096                # bytes; or an image: width (bytes) and height (lines), with
                               # src_pitch and dst_pitch (default: width)
    at = 100                   # cycle of the request, from the start of the run; default 0
    after = ["other"]          # copies and kernels that must end before this one starts
    source = "other"           # copy the data written by that copy or kernel, after it has ended;
                               # default: fresh data
    count = 4                  # number of copies, frame[0] … frame[3]; default 1
    period = 1000              # cycles between their requests
    src_offset = 0             # bytes from the start of a page, below 256
    dst_offset = 0
    data = "random"            # or "picture": a moving test picture, one frame per copy;
                               # or "permutation": word numbers 0, 1, … in random order
    unmapped = "destination"   # or "source": not mapped until the copy has faulted; the driver then
                               # maps it and resumes the channel
    repair_after = 0           # minimum cycles from the fault to that repair

    [[kernel]]                 # needs a machine with SMs
    name = "sums"              # default "kernel 1", …; must differ from all copies' names
    stream = "low"
    kernel = "saxpy"           # a kernel of driver/workload/references.py
    grid = 8                   # blocks in x, or [x, y, z]
    block = 64                 # threads in x, or [x, y, z]
    args = { X = "x", Y = "y", N = 512, ALPHA = 3 }     # numbers; for pointers, the copy or kernel
                               # that writes the data. Without a pointer for the results, they go to
                               # memory of their own; with one, its data are overwritten, and other
                               # work must name the kernel to use them
    priority = 63              # 0 … 63; default: the negated priority of the stream, times
                               # nesting_depth
    policy = "wide"            # placement of blocks; or "deep", "affinity", "auto" (default)
    shared = 4096              # bytes of shared memory per block beyond the kernel's own; default 0
    sms = [0, 1]               # SMs that take its blocks; default: all. Needs sm_masks
    at = 100                   # at, after, count, period: as for copies
    delay = 50                 # cycles from the end of all earlier work of its stream to its
                               # request, which is not before `at`; later work of the stream follows
    starts = [900, 1200]       # range of cycles in which its first warp must start, from the start
                               # of the run
    cancel_at = 30000          # cycle in which it is cancelled if it has not ended; right after its
                               # launch if that is later. A kernel that may be cancelled has no
                               # result; "endless" never ends by itself

    [[child]]                  # a kernel that one [[kernel]] or [[child]] launches, once: "launch
    name = "half"              # both" or "launch in turn", with args = { FIRST = "half" } and
                               # perhaps SECOND. It needs a name; kernel, grid, block, args, policy,
                               # sms: as for kernels. Other work can use its data as a kernel's

    [[nested]]                 # an algorithm of driver/nested: its kernels launch kernels. Needs a
                               # machine with nested_kernels and save_places
    name = "sort"              # default "nested 1", …
    stream = "low"
    kernel = "merge sort"      # or "refinement", "breadth first"
    n = 200                    # words to sort; words along a side of the square field, a power of
                               # two; vertices of the graph
    levels = 3                 # of a refinement only: depth of its cells
    seed = 7                   # seed of the input, independent of the run's seed; default 0
    flat = true                # the host launches all kernels, each level once it has read the
                               # result of the level before; needs no nested launches; default false
    priority = 5               # priority, at, after, count, period: as for kernels

A dependency between two series of the same `count` is element by element: frame[2] after other[2].
A dependency on a single copy or kernel applies to the whole series.

A copy's memory is mapped in the address space of its stream. All spaces allocate virtual addresses
alike, so the same addresses occur in several of them. If a `source` is in another space, its memory
is mapped in both.

With `timing_core`, SMs only simulate time, and the only kernel is "timing"
(`driver/kernels/timing.py`); without ACCESSES it needs no BASE.

Copies and kernels use the result of a [[nested]] by its name, like that of a kernel: the sorted
words; the level of each word's cell; the distance of each vertex from the vertex with most edges.

`driver.workload.replay` runs workloads. A .json file is a scheduling experiment
(`driver/workload/experiment.py`).
"""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import fields
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

from signalbox.driver.channel.priority_policy import Policy, PolicyError
from signalbox.driver.workload import experiment
from signalbox.driver.workload.child_reader import adopt
from signalbox.driver.workload.kernel_reader import check_kernels, read_kernels
from signalbox.driver.workload.nested_reader import check_nested, read_limits, read_nested
from signalbox.driver.workload.runlist_reader import (
    TurnsSpec,
    read_spaces,
    read_turns,
    with_runlist,
)
from signalbox.driver.workload.specs import (
    DATA,
    POLICIES,
    UNMAPPED,
    CopySpec,
    KernelSpec,
    LimitsSpec,
    NestedSpec,
    PolicySpec,
    SpaceSpec,
    Spec,
    StreamSpec,
    Workload,
)
from signalbox.driver.workload.toml_table import LONGEST, Table, WorkloadError
from signalbox.hw.config import Config, ConfigError

__all__ = ["load", "parse"]

_TABLES = {"machine", "policy", "limits", "space", "stream", "copy", "kernel", "child", "nested"}

_BOUNDARY = 256
"""Exclusive upper bound of offsets from the start of a page, in bytes."""

# Reading


def load(path: Path | str) -> Workload:
    """Read and check a workload file, or an experiment in JSON. Raises `WorkloadError`."""
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise WorkloadError(f"{path}: cannot be read: {error}") from error
    read = experiment.tables if path.suffix == ".json" else _toml
    return _workload(read(text, str(path)), str(path), path.stem)


def parse(text: str, file: str = "workload", *, name: str = "") -> Workload:
    """Parse and check the text of a workload; `file` names it in errors. Raises
    `WorkloadError`."""
    return _workload(_toml(text, file), file, name)


def _toml(text: str, file: str) -> dict[str, Any]:
    try:
        tables = tomllib.loads(text)
        repr(tables)  # fails for numbers too long for a message
        return tables
    except (ValueError, RecursionError) as error:  # also numbers too long, lists too deep
        raise WorkloadError(f"{file}: not TOML: {error}") from error


def _workload(tables: dict[str, Any], file: str, name: str) -> Workload:
    """Check the tables of a workload file."""
    top = Table(file, "the top level", tables)
    top.known(_TABLES)
    config = _config(Table(file, "[machine]", top.table("machine")))
    policy = Table(file, "[policy]", top.table("policy"))
    turns = read_turns(policy, config)
    spaces = read_spaces(top, turns, config)
    streams = _streams(top, spaces)
    limits = read_limits(Table(file, "[limits]", top.table("limits")), config)
    copies, kernels, nested = _work(top, streams, config, limits)
    workload = Workload(
        name=name or file,
        config=config,
        policy=_policy(policy, streams, turns),
        spaces=spaces,
        streams=streams,
        copies=copies,
        kernels=kernels,
        nested=nested,
        limits=limits,
    )
    _check_policy(workload, file)
    _check_asids(workload, file)
    _refuse_cycles(workload.work, file)
    return with_runlist(workload, file, top.table("machine"))


def _config(table: Table) -> Config:
    table.known({item.name for item in fields(Config)})
    try:
        return Config(**table.values)
    except ConfigError as error:
        raise table.error(str(error)) from error


def _streams(top: Table, spaces: tuple[SpaceSpec, ...]) -> tuple[StreamSpec, ...]:
    streams: list[StreamSpec] = []
    names = {space.name for space in spaces}
    for table in top.tables("stream"):
        table.known({"name", "priority", "space", "null"})
        name = table.text("name", None)
        if any(stream.name == name for stream in streams):
            raise table.error(f"name = {name!r} is used twice")
        space = table.text("space", None) if "space" in table.values else None
        if space is not None and space not in names:
            raise table.error(f"space = {space!r}: there is no such address space")
        priority, null = table.number("priority", 0, -LONGEST), table.flag("null")
        streams.append(StreamSpec(name, priority, space, null))
    if not streams:
        raise top.error("there is no [[stream]]")
    return tuple(streams)


def _policy(table: Table, streams: tuple[StreamSpec, ...], turns: TurnsSpec) -> PolicySpec:
    table.known({item.name for item in fields(PolicySpec)})
    counts = table.values.get("channels_per_level")
    if counts is not None and (
        not isinstance(counts, list) or not all(type(count) is int for count in counts)
    ):
        raise table.error(f"channels_per_level = {counts!r} is not a list of integers")
    given = table.values.get("stream_priorities")
    priorities = None if given is None else table.number("stream_priorities", None, 1)
    used = 1 + max(0, -min(stream.priority for stream in streams))
    return PolicySpec(
        kind=table.text("kind", "priority", tuple(POLICIES)),
        levels=table.number("levels", priorities or used, 1, 64),
        channels_per_level=None if counts is None else tuple(counts),
        stream_priorities=priorities or max(used, table.number("levels", used, 1, 64)),
        slice=table.number("slice", PolicySpec.slice, 1, 1 << 31),
        scheduling=turns.scheduling,
        turn=turns.turn,
    )


def _check_policy(workload: Workload, file: str) -> None:
    """Check that the machine supports the policy. Raises `WorkloadError`."""
    try:
        policy = workload.policy.make()
        if policy.semaphores > workload.config.counters:
            raise PolicyError(
                f"levels = {workload.policy.levels} needs {policy.semaphores} counting semaphores, "
                f"the machine has {workload.config.counters} (counters)"
            )
        policy.bind(workload.config.channels, [0] * policy.semaphores)
        _check_channels(workload, policy)
    except PolicyError as error:
        raise WorkloadError(f"{file}: [policy]: {error}") from error


def _check_channels(workload: Workload, policy: Policy) -> None:
    """Check that every stream gets a channel in its address space."""
    owners: dict[int, str | None] = {}
    for stream in workload.streams:
        usable = {
            channel
            for channel in range(workload.config.channels)
            if owners.get(channel, stream.space) == stream.space
        }
        priority = min(0, max(1 - policy.stream_priorities, stream.priority))
        try:
            owners[policy.channel(priority, usable)] = stream.space
        except PolicyError as error:
            message = f"stream {stream.name!r}: {error}: other address spaces use them"
            raise PolicyError(message) from error


def _check_asids(workload: Workload, file: str) -> None:
    """Check that all address spaces can be in use at once."""
    used = len({stream.space for stream in workload.streams})
    asids = workload.config.asids
    own = 1 if workload.launches and asids > 1 else 0
    if used > asids - own:
        note = ", one of them reserved for the driver's task lists" if own else ""
        raise WorkloadError(
            f"{file}: its streams are in {used} address spaces, the machine has {asids} ASIDs "
            f"(asids){note}"
        )


def _work(
    top: Table, streams: tuple[StreamSpec, ...], config: Config, limits: LimitsSpec
) -> tuple[tuple[CopySpec, ...], tuple[KernelSpec, ...], tuple[NestedSpec, ...]]:
    """Read and check copies, kernels and algorithms with nested launches."""
    spaces = {stream.name: stream.space for stream in streams}
    copies = [
        (table, _copy(table, f"copy {number}", set(spaces)))
        for number, table in enumerate(top.tables("copy"), 1)
    ]
    kernels = read_kernels(top, set(spaces), config)
    nested = read_nested(top, set(spaces), config, limits)
    names: set[str] = set()
    for table, spec in (*copies, *kernels, *nested):
        if spec.name in names:
            raise table.error(f"name = {spec.name!r} is used twice")
        names.add(spec.name)
    kernels = adopt(kernels, limits)
    by_name: dict[str, Spec] = {spec.name: spec for _, spec in (*copies, *kernels, *nested)}
    if not by_name:
        raise top.error("there is no [[copy]], no [[kernel]] and no [[nested]]")
    for table, copy in copies:
        _check_dependencies(table, copy, by_name)
    check_kernels(kernels, copies, by_name, spaces)
    check_nested(nested, by_name, streams)
    return (
        tuple(copy for _, copy in copies),
        tuple(kernel for _, kernel in kernels),
        tuple(one for _, one in nested),
    )


def _copy(table: Table, default_name: str, streams: set[str]) -> CopySpec:
    table.known({item.name for item in fields(CopySpec)} | {"size"})
    stream = table.text("stream", None)
    if stream not in streams:
        raise table.error(f"stream = {stream!r}: there is no such stream")
    image = {"width", "height", "src_pitch", "dst_pitch"} & set(table.values)
    if "size" in table.values and image:
        raise table.error(f"size and {min(image)} are mutually exclusive")
    if image:
        width = table.number("width", None, 1, (1 << 32) - 1)
        height = table.number("height", None, 1, (1 << 32) - 1)
    else:
        width, height = table.number("size", None, 1, (1 << 32) - 1), 1
    data = table.text("data", "random", DATA)
    if data == "permutation" and (image or width % 4):
        raise table.error(f"data = {data!r} needs a size that is a multiple of 4")
    return CopySpec(
        name=table.text("name", default_name),
        stream=stream,
        width=width,
        height=height,
        src_pitch=table.number("src_pitch", width, width, (1 << 32) - 1),
        dst_pitch=table.number("dst_pitch", width, width, (1 << 32) - 1),
        at=table.number("at", 0),
        after=table.texts("after"),
        source=table.text("source", None) if "source" in table.values else None,
        count=table.number("count", 1, 1, 1 << 20),
        period=table.number("period", 0),
        src_offset=table.number("src_offset", 0, 0, _BOUNDARY - 1),
        dst_offset=table.number("dst_offset", 0, 0, _BOUNDARY - 1),
        data=data,
        unmapped=_unmapped(table),
        repair_after=table.number("repair_after", 0),
    )


def _unmapped(table: Table) -> str | None:
    """Side of a copy that is mapped only after a fault, or None."""
    if "unmapped" not in table.values:
        if "repair_after" in table.values:
            raise table.error("repair_after needs unmapped")
        return None
    unmapped = table.text("unmapped", None, UNMAPPED)
    if unmapped == "source" and "source" in table.values:
        raise table.error("unmapped = 'source' is for fresh data, not for those of another copy")
    return unmapped


def _check_dependencies(table: Table, copy: CopySpec, by_name: Mapping[str, Spec]) -> None:
    for key, names in (("after", copy.after), ("source", (copy.source,) if copy.source else ())):
        for name in names:
            other = by_name.get(name)
            if other is None:
                raise table.error(f"{key} = {name!r}: there is no such copy or kernel")
            if other.count not in {1, copy.count}:
                raise table.error(
                    f"{key} = {name!r}: that is a series of {other.count}, this one of {copy.count}"
                )
    if copy.source is None:
        return
    other = by_name[copy.source]
    for key in ("data", "src_pitch", "src_offset"):
        if key in table.values:
            raise table.error(f"{key} is determined by source = {copy.source!r}")
    if not isinstance(other, CopySpec):
        _check_result(table, copy, other)
    elif (other.width, other.height) != (copy.width, copy.height):
        raise table.error(
            f"source = {copy.source!r}: that copy is {other.width} × {other.height} bytes, "
            f"this one {copy.width} × {copy.height}"
        )


def _check_result(table: Table, copy: CopySpec, kernel: KernelSpec | NestedSpec) -> None:
    """Check that a copy has exactly the size of a kernel's result."""
    if not kernel.size:
        raise table.error(f"source = {kernel.name!r}: {kernel.kernel!r} has no result")
    if copy.height > 1 or copy.width != kernel.size:
        raise table.error(
            f"source = {kernel.name!r}: its result has {kernel.size} bytes, this is a copy of "
            f"{copy.width} × {copy.height}"
        )


def _refuse_cycles(work: Sequence[Spec], file: str) -> None:
    try:
        TopologicalSorter({spec.name: spec.before for spec in work}).prepare()
    except CycleError as error:
        cycle = " → ".join(reversed(error.args[1]))
        raise WorkloadError(f"{file}: copies or kernels wait for each other: {cycle}") from error
