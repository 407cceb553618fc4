"""What the testbench takes from the inside of cocotb, in one place. Verified with cocotb 2.1."""

from collections.abc import Callable
from typing import Any

__all__ = ["reader"]


def reader(handle: Any) -> Callable[[], str]:
    """Function that returns the present bits of a signal as text, highest first, in capitals if
    undefined. `handle.value` wraps them in an object, which takes several times as long."""
    return handle._handle.get_signal_val_binstr
