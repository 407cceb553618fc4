"""Measures translation alone, and compares its cycles with the recorded ones, as `test_bench` does.

`make bench` shows the rows with their budgets, and the tables.
"""

import pytest

from signalbox.tb.benchmarks import streams
from signalbox.tb.benchmarks.recorded import compare, document
from signalbox.tb.benchmarks.rows import table
from signalbox.tb.benchmarks.scenes import collect
from signalbox.tb.benchmarks.stage import Sizes, simulate_stage
from signalbox.tb.benchmarks.translation import BURSTS, ROWS, SIZES, burst_table


def measure(sizes: Sizes, module: str, **options: str) -> dict[str, int]:
    """Run a module of measurements on a translation of these sizes."""
    return collect(
        simulate_stage(
            sizes,
            f"signalbox.tb.benchmarks.{module}",
            name="bench-translation",
            seed=0,
            log="bench.log",
            **options,
        )
    )


@pytest.mark.bench
def test_translation():
    """Rows with the budgets of page 70, and bursts of misses, are as recorded."""
    measured = measure(SIZES, "cocotb_translation")
    document("translation", "Translation in cycles", table(ROWS, measured), burst_table(measured))
    compare(measured, [*ROWS, *BURSTS])


@pytest.mark.bench
def test_streams():
    """Hit rates and run times are as recorded: for one stream, by number of spaces and sizes; for
    spaces of several hit classes, alone and together."""
    measured: dict[str, int] = {}
    for sizes in (*streams.SPACES, streams.INTERFERENCE):
        measured |= measure(sizes, "cocotb_streams")
    tables = (streams.space_table(measured), streams.interference_table(measured))
    document("address-spaces", "Several address spaces at once", *tables)
    compare(measured, streams.keys())
