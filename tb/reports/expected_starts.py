"""Comparison of the starts of kernels with those expected by a workload file
(`KernelSpec.starts`)."""

from signalbox.driver.text_table import number
from signalbox.driver.workload.specs import Workload
from signalbox.tb.reports.kernel_lives import KernelActivity

__all__ = ["missed"]


def missed(workload: Workload, done: KernelActivity) -> list[str]:
    """Sentences about the kernels with a first warp that did not start in the expected cycles, one
    for each."""
    expected = {spec.name: spec.starts for spec in workload.kernels}
    found = []
    for life in done.roots:
        starts, start = expected.get(life.record.name), life.first_warp.start
        if starts is not None and not starts[0] <= start <= starts[1]:
            first, last = map(number, starts)
            found.append(
                f"{life.title} started in cycle {number(start)}, expected in {first} … {last}"
            )
    return found
