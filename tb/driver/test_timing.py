"""The driver's records of tasks for timing cores, compared with the model."""

from random import Random
from typing import Any

import pytest

from signalbox.driver.kernels.timing import TIMING, TimingTask
from signalbox.tb.models.timing import Timing

VALUES = {
    "accesses": 16,
    "store": 1,
    "launch": 1,
    "stride": 32,
    "base": 49,
    "cycles": 31,
    "spread": 31,
    "block_bytes": 32,
    "warp_bytes": 32,
}
"""Fields of the record; width in bits of values that may be combined."""


def test_record_and_rules() -> None:
    numbers = Random(5)
    for _ in range(200):
        values: dict[str, Any] = {name: numbers.getrandbits(bits) for name, bits in VALUES.items()}
        values["launch"] &= ~values["store"]
        task, flags = TimingTask(**values), values.pop("launch") << 1 | values["store"]
        model = Timing(**{**values, "store": flags})
        assert task.pack() == model.record()
        assert TIMING.arguments(**task.arguments()) == task.pack()
        number, warp, access = (numbers.getrandbits(bits) for bits in (32, 6, 16))
        assert task.computes(number, warp) == model.computes(number, warp)
        assert task.address(number, warp, access) == model.at(number, warp, access)
        assert task.duration(number, warp) == (task.accesses + 1) * task.computes(number, warp)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"cycles": 1 << 32}, "cycles = 4294967296: 0 … 4294967295"),
        ({"cycles": -1}, "cycles = -1"),
        ({"cycles": 1, "store": True, "launch": True}, "store and launch"),
        ({"cycles": 1, "accesses": 1 << 16}, "accesses = 65536: 0 … 65535"),
        ({"cycles": 1, "base": 1 << 49}, r"base = 0x2000000000000: 0 … 2\^49 - 1"),
        ({"cycles": 1 << 31, "spread": 1 << 31}, r"cycles \+ spread = 4294967296"),
    ],
)
def test_values_that_do_not_fit(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TimingTask(**values).pack()


@pytest.mark.parametrize("spread", [0xF, 0xFF, 0xFFF])
def test_even_spread(spread: int) -> None:
    """Neighbouring blocks and warps compute for different times, on average for half of the
    spread."""
    task = TimingTask(cycles=0, spread=spread)
    parts = [task.computes(number, warp) for number in range(256) for warp in range(16)]
    assert abs(sum(parts) / len(parts) / spread - 0.5) < 0.05
    assert len(set(parts)) > 0.5 * min(spread, len(parts))
    blocks = [sum(parts[n : n + 16]) for n in range(0, len(parts), 16)]
    assert len(set(blocks)) > 32
