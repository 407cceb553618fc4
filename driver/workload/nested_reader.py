"""Reads and checks [limits] and [[nested]] of a workload file (`driver/workload/reader.py`)."""

from collections.abc import Mapping, Sequence
from dataclasses import fields

from signalbox.driver.compute.launch import KernelLaunch
from signalbox.driver.compute.occupancy import BlockError, occupancy
from signalbox.driver.runtime.limits import DEFAULTS, MOST, Limit
from signalbox.driver.workload.nested_jobs import ALGORITHMS
from signalbox.driver.workload.specs import LimitsSpec, NestedSpec, Spec, StreamSpec
from signalbox.driver.workload.toml_table import Table
from signalbox.hw.config import PRIORITIES, WARP_THREADS, Config

__all__ = ["check_nested", "read_limits", "read_nested"]


def read_limits(table: Table, config: Config) -> LimitsSpec:
    """Read [limits]. Raises `WorkloadError`."""
    table.known({item.name for item in fields(LimitsSpec)})
    if table.values and not config.nested:
        raise table.error("[machine] has nested_kernels = 0: its kernels cannot launch others")
    depth, pending = Limit.NESTING_DEPTH, Limit.PENDING_LAUNCHES
    return LimitsSpec(
        nesting_depth=table.number("nesting_depth", DEFAULTS[depth], 1, MOST[depth]),
        pending_launches=table.number("pending_launches", DEFAULTS[pending], 1, MOST[pending]),
    )


def read_nested(
    top: Table, streams: set[str], config: Config, limits: LimitsSpec
) -> list[tuple[Table, NestedSpec]]:
    """Read every [[nested]] and check it on its own. Raises `WorkloadError`."""
    found = []
    for number, table in enumerate(top.tables("nested"), 1):
        spec = _nested(table, f"nested {number}", streams)
        _check_machine(table, spec, config)
        _check_kernels(table, spec, config)
        if spec.depth > limits.nesting_depth:
            raise table.error(
                f"{spec.kernel!r} of this size needs nesting_depth = {spec.depth}; [limits] has "
                f"nesting_depth = {limits.nesting_depth}"
            )
        found.append((table, spec))
    return found


def _check_machine(table: Table, spec: NestedSpec, config: Config) -> None:
    """Check that the machine runs kernels, and that they can launch others unless the algorithm is
    flat."""
    if not config.compute:
        raise table.error(f"[machine] has sms = {config.sms}: it cannot run kernels")
    if config.timing_core:
        raise table.error("[machine] has timing_core = true, whose SMs run only 'timing'")
    if not config.nested and not spec.flat:
        raise table.error(
            "[machine] has nested_kernels = 0: its kernels cannot launch others (flat = true: the "
            "host launches them)"
        )


def _nested(table: Table, default_name: str, streams: set[str]) -> NestedSpec:
    table.known({item.name for item in fields(NestedSpec)})
    stream = table.text("stream", None)
    if stream not in streams:
        raise table.error(f"stream = {stream!r}: there is no such stream")
    kernel = table.text("kernel", None, tuple(ALGORITHMS))
    n = table.number("n", None, ALGORITHMS[kernel].least, ALGORITHMS[kernel].most)
    given = "priority" in table.values
    return NestedSpec(
        name=table.text("name", default_name),
        stream=stream,
        kernel=kernel,
        n=n,
        levels=_levels(table, kernel, n),
        seed=table.number("seed", 0),
        flat=table.flag("flat"),
        priority=table.number("priority", None, 0, PRIORITIES - 1) if given else None,
        at=table.number("at", 0),
        after=table.texts("after"),
        count=table.number("count", 1, 1, 1 << 20),
        period=table.number("period", 0),
    )


def _levels(table: Table, kernel: str, n: int) -> int:
    """Levels of a refinement; 1 for other algorithms."""
    if kernel != "refinement":
        if "levels" in table.values:
            raise table.error(f"levels is for 'refinement', not for {kernel!r}")
        return 1
    if n & n - 1:
        raise table.error(f"n = {n} is not a power of two")
    return table.number("levels", None, 1, n.bit_length())


def _check_kernels(table: Table, spec: NestedSpec, config: Config) -> None:
    """Check that an SM has room for a block of each kernel."""
    block = (WARP_THREADS, 1, 1)
    for kernel in spec.kernels:
        launch = KernelLaunch(kernel=kernel, grid=spec.grid, block=block, args={})
        try:
            occupancy(config, registers=kernel.registers, block=block, shared=launch.shared_bytes)
        except BlockError as error:
            raise table.error(f"{kernel.name!r}: {error}") from error


def check_nested(
    nested: list[tuple[Table, NestedSpec]],
    by_name: Mapping[str, Spec],
    streams: Sequence[StreamSpec],
) -> None:
    """Check the names in `after`, and that no flat algorithm is ordered with a NULL stream. Raises
    `WorkloadError`."""
    places = {stream.name: stream.space for stream in streams}
    ordered = {stream.space for stream in streams if stream.null}
    for table, spec in nested:
        if spec.flat and places[spec.stream] in ordered:
            raise table.error(
                "flat = true: its space has a NULL stream, whose work cannot wait for kernels that "
                "the host has not launched yet"
            )
        for name in spec.after:
            if name not in by_name:
                raise table.error(f"after = {name!r}: there is no such copy or kernel")
            if by_name[name].count not in {1, spec.count}:
                raise table.error(
                    f"{name!r} is a series of {by_name[name].count}, this one of {spec.count}"
                )
