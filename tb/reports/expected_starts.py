"""Starts of kernels that a workload file expects (`KernelSpec.starts`)."""

from signalbox.driver.text_table import number
from signalbox.driver.workload.specs import Workload
from signalbox.tb.reports.kernel_lives import KernelActivity

__all__ = ["missed"]


def missed(workload: Workload, done: KernelActivity) -> list[str]:
    """Kernels whose first warp did not start when it should have, each with a description."""
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
