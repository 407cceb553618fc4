"""cocotbext-axi on the AXI ports of an exported design: bus objects, random pauses."""

import warnings
from collections.abc import Iterator
from random import Random
from typing import Any

from cocotbext.axi import AxiBus, AxiLiteBus

__all__ = ["axi4", "axi4lite", "pause"]

# cocotbext-axi 0.1 uses names that cocotb 2 deprecates; each run would show a dozen warnings.
# Deprecation warnings of other packages remain visible.
warnings.filterwarnings("ignore", category=DeprecationWarning, module=r"cocotbext\.axi\.")

_NAMES = {"bus_separator": "__", "case_insensitive": False}


def axi4(dut: Any, port: str = "axi") -> AxiBus:
    """Bus of the AXI4 port `port`, for `AxiRam`, `AxiSlave` or `AxiMaster`."""
    return AxiBus.from_prefix(dut, port, **_NAMES)


def axi4lite(dut: Any, port: str) -> AxiLiteBus:
    """Bus of the AXI4-Lite port `port`, for `AxiLiteMaster` and similar classes."""
    return AxiLiteBus.from_prefix(dut, port, **_NAMES)


def pause(end: Any, density: float, numbers: Random) -> None:
    """Pause every channel of a manager or subordinate, such as `AxiLiteMaster` or `AxiSlave`, in a
    random fraction `density` of all cycles."""
    write, read = end.write_if, end.read_if
    for channel in (
        write.aw_channel,
        write.w_channel,
        write.b_channel,
        read.ar_channel,
        read.r_channel,
    ):
        channel.set_pause_generator(_pauses(density, numbers))


def _pauses(density: float, numbers: Random) -> Iterator[bool]:
    while True:
        yield numbers.random() < density
