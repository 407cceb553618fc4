"""Tables of kernels and SMs: launches, their outcome, and the load of SMs.

`runs` maps names to runs of the same workload, with the baseline last. Tables of two runs fit into
100 columns. Long tables list only the first kernels, in launch order; the timeline has all kernels.
Children have a table of their own.
"""

from collections.abc import Mapping, Sequence
from statistics import fmean

from signalbox.driver.text_table import number, table, times
from signalbox.hw.config import Config
from signalbox.tb.reports.kernel_lives import KernelActivity, KernelLife, SmLife

__all__ = [
    "children_table",
    "gains_table",
    "kernels_table",
    "lives_table",
    "sms_table",
    "stops_table",
]

_FEW_KERNELS = 24
"""Maximum number of kernels that are listed."""

_FEW_SMS = 16
"""Maximum number of SMs that are listed individually."""

_FEW_COUNTS = 4
"""Maximum number of SMs for which blocks are listed individually."""


def kernels_table(done: KernelActivity) -> str:
    """Table of the kernels launched by the driver."""
    rows: list[Sequence[object]] = [
        (
            kernel.title,
            kernel.record.kernel,
            kernel.record.stream,
            kernel.record.asid,
            kernel.record.priority,
            _extent(kernel.record.grid),
            _extent(kernel.record.block),
            number(kernel.placed),
            number(kernel.placed * kernel.warps_each),
        )
        for kernel in done.roots[:_FEW_KERNELS]
    ]
    if (more := len(done.roots) - len(rows)) > 0:
        rows.append((f"and {number(more)} more", *[""] * 8))
    head = ("", "kernel", "stream", "ASID", "priority", "grid", "block", "blocks", "warps")
    return table(rows, head)


def gains_table(runs: Mapping[str, KernelActivity]) -> str:
    """Cycles from the launch of each kernel to its first warp and to its end, in all runs."""
    first, *others = runs.values()
    rows = []
    for kernel in first.roots[:_FEW_KERNELS]:
        same = [kernel, *(_namesake(kernel, other) for other in others)]
        row: list[object] = [kernel.title, kernel.record.priority]
        for one in same:
            row += [number(one.first_warp.start - one.launched), number(one.over - one.launched)]
        if others:
            row.append(times(same[-1].over - same[-1].launched, kernel.over - kernel.launched))
        rows.append(row)
    groups: list[object] = ["", ""]
    for title in runs:
        groups += [title, None]
    gain = ["gain"] if others else []
    head = ["", "priority", *["to first warp", "to end"] * len(runs), *gain]
    return table(rows, [*groups, *([""] if others else [])], head)


def lives_table(done: KernelActivity) -> str:
    """Per kernel, the cycle of its launch, the number of cycles from then to each later event, and
    the SMs of its blocks."""
    rows = []
    for kernel in done.roots[:_FEW_KERNELS]:
        moments = (
            kernel.launched,
            kernel.opened[0],
            kernel.first_block,
            kernel.first_warp.start,
            kernel.last_exit,
            kernel.over,
        )
        counts = kernel.on_sms(len(done.sms))
        shown = " ".join(map(str, counts))
        if len(counts) > _FEW_COUNTS:
            shown = f"{min(counts)} … {max(counts)}"
        steps = " ".join(f"{step}:{count}" for step, count in sorted(kernel.steps.items()))
        rows.append((
            kernel.title,
            number(kernel.launched),
            *(number(moment - kernel.launched) for moment in moments[1:]),
            shown,
            steps,
        ))
    head = ("", "launched", "slot", "first block", "first warp", "last exit", "over")
    return table(rows, (*head, "on each SM", "steps"))


def children_table(done: KernelActivity) -> str:
    """Children, by root kernel and depth, with the cycles from their launch to their first warp and
    to their end; "" if there were none."""
    levels: dict[tuple[str, int], list[KernelLife]] = {}
    for kernel in done.kernels:
        if kernel.parent is not None:
            levels.setdefault((kernel.root.title, kernel.depth), []).append(kernel)
    rows = []
    for (title, depth), kernels in sorted(levels.items()):
        row: list[object] = [title, depth, kernels[0].record.priority, number(len(kernels))]
        for moments in (
            [kernel.first_warp.start - kernel.launched for kernel in kernels],
            [kernel.over - kernel.launched for kernel in kernels],
        ):
            row += [number(min(moments)), number(fmean(moments)), number(max(moments))]
        rows.append(row)
    groups = ["", "", "", "", "to first warp", None, None, "to end", None, None]
    head = ("", "depth", "priority", "kernels", *["least", "mean", "most"] * 2)
    return table(rows, groups, head) if rows else ""


def stops_table(done: KernelActivity) -> str:
    """Blocks that were stopped and saved, by kernel, including all its descendants; "" if there
    were none."""
    groups: dict[str, list[KernelLife]] = {}
    for kernel in done.kernels:
        title = kernel.title if kernel.parent is None else f"{kernel.root.title}: descendants"
        groups.setdefault(title, []).append(kernel)
    rows = []
    for title, kernels in groups.items():
        if stops := [block for kernel in kernels for block in kernel.stops]:
            lasted = [block.saved - block.saving for block in stops]
            back = sum(block.restores for kernel in kernels for block in kernel.blocks)
            times_ = number(fmean(lasted)), number(max(lasted))
            rows.append((title, number(len(stops)), number(back), *times_))
    head = ("", "saved", "restored", "mean cycles to save", "longest")
    return table(rows, head) if rows else ""


def sms_table(done: KernelActivity, config: Config) -> str:
    """One row per SM; for many SMs the minimum, mean and maximum."""
    cycles = done.cycles
    numbers = [_sm(sm, cycles) for sm in done.sms]
    if len(numbers) <= _FEW_SMS:
        named = {f"SM {index}": values for index, values in enumerate(numbers)}
    else:
        columns = list(zip(*numbers, strict=True))
        named = {
            "least": tuple(map(min, columns)),
            "mean": tuple(map(fmean, columns)),
            "most": tuple(map(max, columns)),
        }
    rows = [
        (
            title,
            number(blocks),
            number(warps),
            f"{100 * busy:.0f} %",
            f"{peak:.0f} of {config.sm_blocks}",
            f"{resident:.1f} of {config.sm_warps}",
            number(look_ups),
            f"{100 * hits:.0f} %",
        )
        for title, (blocks, warps, busy, peak, resident, look_ups, hits) in named.items()
    ]
    head = ("", "blocks", "warps", "busy", "most blocks", "mean warps", "look-ups", "L1 hits")
    return table(rows, head)


def _sm(sm: SmLife, cycles: int) -> tuple[float, ...]:
    """Numbers of an SM in a run of `cycles` cycles."""
    hits = sm.hits / max(1, sm.look_ups)
    busy, resident = sm.busy / cycles, sm.resident / cycles
    return len(sm.blocks), sm.warps, busy, sm.peak, resident, sm.look_ups, hits


def _namesake(kernel: KernelLife, other: KernelActivity) -> KernelLife:
    """The same kernel in another run."""
    return next(one for one in other.roots if one.title == kernel.title)


def _extent(sizes: tuple[int, int, int]) -> str:
    """Sizes in x, y, z as text. Trailing sizes of 1 are left out."""
    last = max((place for place in range(3) if sizes[place] > 1), default=0)
    return "x".join(map(str, sizes[: last + 1]))
