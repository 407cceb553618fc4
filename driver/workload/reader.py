"""Workload files: streams, copies, kernels, times, dependencies in TOML, read and checked.

    [machine]                  # optional; members of hw.config.Config, for who builds the machine
    channels = 8

    [policy]                   # optional
    kind = "priority"          # the published order; "count-first": all levels are counted while
                               # they wait; or "none": the same channels, bare copies
    levels = 2                 # internal priorities; default: as many as streams have
    channels_per_level = [1, 1]
    stream_priorities = 2
    slice = 2000               # cycles of every channel's time slice

    [[space]]                  # optional; an address space
    name = "a"

    [[stream]]
    name = "low"
    priority = 0               # CUDA: lower is more urgent; default 0
    space = "a"                # in which it runs; default: the device's own

    [[copy]]
    name = "frame"             # default "copy 1", …
    stream = "low"
    size = 4096                # bytes; or an image: width (bytes) and height (lines), with
                               # src_pitch and dst_pitch (default width)
    at = 100                   # cycle of the request, from the start of the run; default 0
    after = ["other"]          # copies and kernels that must have ended before this one begins
    source = "other"           # copy what that copy brought, or what that kernel left, after it;
                               # default: fresh data
    count = 4                  # so many copies: frame[0] … frame[3]
    period = 1000              # cycles between their requests
    src_offset = 0             # bytes off the start of a page, below 256
    dst_offset = 0
    data = "random"            # or "picture": a moving test picture, one frame for each of `count`;
                               # or "permutation": of the numbers of its words, in words
    unmapped = "destination"   # or "source": not mapped until the copy has faulted; then the driver
                               # maps it and resumes the channel
    repair_after = 0           # cycles from the fault until it does so, at least

    [[kernel]]                 # needs a machine with SMs
    name = "sums"              # default "kernel 1", …; no copy's name
    stream = "low"
    kernel = "saxpy"           # one of driver/workload/references.py
    grid = 8                   # blocks in x, or [x, y, z]
    block = 64                 # threads of each, likewise
    args = { X = "x", Y = "y", N = 512, ALPHA = 3 }     # numbers; of pointers, the copy or kernel
                               # whose data they lead to. The one for its results may be left out:
                               # then they go to memory of their own. Else that is overwritten, and
                               # has the kernel's name from then on
    priority = 63              # 0 … 63; default: that of the stream, from 0 on
    policy = "wide"            # of its blocks: "deep", "affinity", "auto" (default)
    at = 100                   # as of copies, after, count, period too

A dependency between two series of the same `count` goes from each to its namesake, frame[2] after
other[2]; on a single copy it holds for all of the series. Each copy's memory is mapped in the
address space of its stream, and all spaces hand out the same addresses; with `source`, in two
spaces, that memory is shared. Of machines with `timing_core` SMs only take time: the one kernel
there is "timing" (`driver/kernels/timing.py`). `driver.workload.replay` runs workloads.
"""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path

from signalbox.driver.channel.priority_policy import Policy, PolicyError
from signalbox.driver.workload.entries import LONGEST, Entry, WorkloadError
from signalbox.driver.workload.kernel_reader import check_kernels, read_kernels
from signalbox.driver.workload.specs import (
    DATA,
    POLICIES,
    UNMAPPED,
    CopySpec,
    KernelSpec,
    PolicySpec,
    Spec,
    StreamSpec,
    Workload,
)
from signalbox.hw.config import Config, ConfigError

__all__ = ["load", "parse"]

_BOUNDARY = 256
"""Offsets from the start of a page are below this."""

# Reading


def load(path: Path | str) -> Workload:
    """Read and check a workload file. Raises `WorkloadError`."""
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise WorkloadError(f"{path}: cannot be read: {error}") from error
    return parse(text, str(path), name=path.stem)


def parse(text: str, file: str = "workload", *, name: str = "") -> Workload:
    """Check a workload's text; `file` is what errors call it. Raises `WorkloadError`."""
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise WorkloadError(f"{file}: not TOML: {error}") from error
    top = Entry(file, "the top level", tables)
    top.known({"machine", "policy", "space", "stream", "copy", "kernel"})
    spaces = _spaces(top)
    streams = _streams(top, spaces)
    config = _config(Entry(file, "[machine]", top.table("machine")))
    copies, kernels = _work(top, streams, config)
    workload = Workload(
        name=name or file,
        config=config,
        policy=_policy(Entry(file, "[policy]", top.table("policy")), streams),
        spaces=spaces,
        streams=streams,
        copies=copies,
        kernels=kernels,
    )
    _check_policy(workload, file)
    _check_asids(workload, file)
    _refuse_circles(workload.work, file)
    return workload


def _config(entry: Entry) -> Config:
    entry.known({item.name for item in fields(Config)})
    try:
        return Config(**entry.values)
    except ConfigError as error:
        raise entry.error(str(error)) from error


def _spaces(top: Entry) -> tuple[str, ...]:
    spaces: list[str] = []
    for entry in top.tables("space"):
        entry.known({"name"})
        name = entry.text("name", None)
        if name in spaces:
            raise entry.error(f"name = {name!r} is there twice")
        spaces.append(name)
    return tuple(spaces)


def _streams(top: Entry, spaces: tuple[str, ...]) -> tuple[StreamSpec, ...]:
    streams: list[StreamSpec] = []
    for entry in top.tables("stream"):
        entry.known({"name", "priority", "space"})
        name = entry.text("name", None)
        if any(stream.name == name for stream in streams):
            raise entry.error(f"name = {name!r} is there twice")
        space = entry.text("space", None) if "space" in entry.values else None
        if space is not None and space not in spaces:
            raise entry.error(f"space = {space!r}: there is no such address space")
        streams.append(StreamSpec(name, entry.number("priority", 0, -LONGEST), space))
    if not streams:
        raise top.error("there is no [[stream]]")
    return tuple(streams)


def _policy(entry: Entry, streams: tuple[StreamSpec, ...]) -> PolicySpec:
    entry.known({item.name for item in fields(PolicySpec)})
    counts = entry.values.get("channels_per_level")
    if counts is not None and (
        not isinstance(counts, list) or not all(type(count) is int for count in counts)
    ):
        raise entry.error(f"channels_per_level = {counts!r} is not a list of integers")
    given = entry.values.get("stream_priorities")
    priorities = None if given is None else entry.number("stream_priorities", None, 1)
    used = 1 + max(0, -min(stream.priority for stream in streams))
    return PolicySpec(
        kind=entry.text("kind", "priority", tuple(POLICIES)),
        levels=entry.number("levels", priorities or used, 1, 64),
        channels_per_level=None if counts is None else tuple(counts),
        stream_priorities=priorities or max(used, entry.number("levels", used, 1, 64)),
        slice=entry.number("slice", PolicySpec.slice, 1, 1 << 31),
    )


def _check_policy(workload: Workload, file: str) -> None:
    """Whether the policy can be carried out on the machine."""
    try:
        policy = workload.policy.make()
        if policy.semaphores > workload.config.counters:
            raise PolicyError(
                f"levels = {workload.policy.levels} need {policy.semaphores} counting semaphores, "
                f"the machine has {workload.config.counters} (counters)"
            )
        policy.bind(workload.config.channels, [0] * policy.semaphores)
        _check_channels(workload, policy)
    except PolicyError as error:
        raise WorkloadError(f"{file}: [policy]: {error}") from error


def _check_channels(workload: Workload, policy: Policy) -> None:
    """Whether every stream gets a channel of its address space."""
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
            message = f"stream {stream.name!r}: {error}: other address spaces have them"
            raise PolicyError(message) from error


def _check_asids(workload: Workload, file: str) -> None:
    """Whether all address spaces can be in use at once."""
    used = len({stream.space for stream in workload.streams})
    asids = workload.config.asids
    own = 1 if workload.kernels and asids > 1 else 0
    if used > asids - own:
        note = ", one of them the driver's for the lists of tasks" if own else ""
        raise WorkloadError(
            f"{file}: its streams are in {used} address spaces, the machine has {asids} ASIDs "
            f"(asids){note}"
        )


def _work(
    top: Entry, streams: tuple[StreamSpec, ...], config: Config
) -> tuple[tuple[CopySpec, ...], tuple[KernelSpec, ...]]:
    """Copies and kernels."""
    spaces = {stream.name: stream.space for stream in streams}
    copies = [
        (entry, _copy(entry, f"copy {number}", set(spaces)))
        for number, entry in enumerate(top.tables("copy"), 1)
    ]
    kernels = read_kernels(top, set(spaces), config)
    by_name: dict[str, Spec] = {}
    for entry, spec in (*copies, *kernels):
        if spec.name in by_name:
            raise entry.error(f"name = {spec.name!r} is there twice")
        by_name[spec.name] = spec
    if not by_name:
        raise top.error("there is no [[copy]] and no [[kernel]]")
    for entry, copy in copies:
        _check_dependencies(entry, copy, by_name)
    check_kernels(kernels, copies, spaces)
    return tuple(copy for _, copy in copies), tuple(kernel for _, kernel in kernels)


def _copy(entry: Entry, default_name: str, streams: set[str]) -> CopySpec:
    entry.known({item.name for item in fields(CopySpec)} | {"size"})
    stream = entry.text("stream", None)
    if stream not in streams:
        raise entry.error(f"stream = {stream!r}: there is no such stream")
    image = {"width", "height", "src_pitch", "dst_pitch"} & set(entry.values)
    if "size" in entry.values and image:
        raise entry.error(f"size and {min(image)} exclude each other")
    if image:
        width = entry.number("width", None, 1, (1 << 32) - 1)
        height = entry.number("height", None, 1, (1 << 32) - 1)
    else:
        width, height = entry.number("size", None, 1, (1 << 32) - 1), 1
    data = entry.text("data", "random", DATA)
    if data == "permutation" and (image or width % 4):
        raise entry.error(f"data = {data!r} goes with a size that is a multiple of 4")
    return CopySpec(
        name=entry.text("name", default_name),
        stream=stream,
        width=width,
        height=height,
        src_pitch=entry.number("src_pitch", width, width, (1 << 32) - 1),
        dst_pitch=entry.number("dst_pitch", width, width, (1 << 32) - 1),
        at=entry.number("at", 0),
        after=entry.texts("after"),
        source=entry.text("source", None) if "source" in entry.values else None,
        count=entry.number("count", 1, 1, 1 << 20),
        period=entry.number("period", 0),
        src_offset=entry.number("src_offset", 0, 0, _BOUNDARY - 1),
        dst_offset=entry.number("dst_offset", 0, 0, _BOUNDARY - 1),
        data=data,
        unmapped=_unmapped(entry),
        repair_after=entry.number("repair_after", 0),
    )


def _unmapped(entry: Entry) -> str | None:
    """What of a copy is mapped only once it has faulted."""
    if "unmapped" not in entry.values:
        if "repair_after" in entry.values:
            raise entry.error("repair_after goes with unmapped")
        return None
    unmapped = entry.text("unmapped", None, UNMAPPED)
    if unmapped == "source" and "source" in entry.values:
        raise entry.error("unmapped = 'source' is for fresh data, not for what another copy brings")
    return unmapped


def _check_dependencies(entry: Entry, copy: CopySpec, by_name: Mapping[str, Spec]) -> None:
    for key, names in (("after", copy.after), ("source", (copy.source,) if copy.source else ())):
        for name in names:
            other = by_name.get(name)
            if other is None:
                raise entry.error(f"{key} = {name!r}: there is no such copy or kernel")
            if other.count not in {1, copy.count}:
                raise entry.error(
                    f"{key} = {name!r}: that is a series of {other.count}, this one of {copy.count}"
                )
    if copy.source is None:
        return
    other = by_name[copy.source]
    for key in ("data", "src_pitch", "src_offset"):
        if key in entry.values:
            raise entry.error(f"{key} is settled by source = {copy.source!r}")
    if isinstance(other, KernelSpec):
        _check_result(entry, copy, other)
    elif (other.width, other.height) != (copy.width, copy.height):
        raise entry.error(
            f"source = {copy.source!r}: that copy is {other.width} × {other.height} bytes, "
            f"this one {copy.width} × {copy.height}"
        )


def _check_result(entry: Entry, copy: CopySpec, kernel: KernelSpec) -> None:
    """Whether a copy brings all that a kernel leaves."""
    if not kernel.size:
        raise entry.error(f"source = {kernel.name!r}: {kernel.kernel!r} leaves nothing")
    if copy.height > 1 or copy.width != kernel.size:
        raise entry.error(
            f"source = {kernel.name!r}: that leaves {kernel.size} bytes, this is a copy of "
            f"{copy.width} × {copy.height}"
        )


def _refuse_circles(work: Sequence[Spec], file: str) -> None:
    by_name = {spec.name: spec for spec in work}
    done: set[str] = set()

    def visit(name: str, path: tuple[str, ...]) -> None:
        if name in path:
            circle = " → ".join((*path[path.index(name) :], name))
            raise WorkloadError(f"{file}: copies or kernels wait for each other: {circle}")
        if name not in done:
            for other in by_name[name].before:
                visit(other, (*path, name))
            done.add(name)

    for name in by_name:
        visit(name, ())
