"""cocotbext-axi bus objects for the AXI ports of an exported design."""

import warnings
from typing import Any

from cocotbext.axi import AxiBus, AxiLiteBus

__all__ = ["axi4", "axi4lite"]

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
