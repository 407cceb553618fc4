"""Private interfaces of cocotb that the testbench uses. Verified with cocotb 2.1."""

from collections.abc import Callable
from functools import partial
from typing import Any

from cocotb.handle import _GPISetAction, _schedule_write

__all__ = ["driver", "reader", "writer"]


def reader(handle: Any) -> Callable[[], str]:
    """Function that returns the present bits of a signal as text, highest first; undefined ones are
    capital letters. `handle.value` wraps them in an object, which takes several times as long."""
    return handle._handle.get_signal_val_binstr


def writer(handle: Any) -> Callable[[str], None]:
    """Function that writes the bits of a signal at once, as `Immediate` does. It does not check its
    argument, a text with one digit per bit of the signal, highest first."""
    return partial(handle._handle.set_signal_val_binstr, _GPISetAction.NO_DELAY.value)


def driver(handle: Any, width: int) -> Callable[[int], None]:
    """Function that drives a signal with a number in the next phase in which signals may be
    written, as `handle.value = number` does. It checks neither the phase nor its argument, an
    unsigned number of `width` bits. Raises `AssertionError` if the signal has fewer bits."""
    digits = len(handle)
    assert width <= digits, f"{handle._name} has {digits} bits, and is driven with {width}"
    deposit = partial(
        _schedule_write, handle, handle._handle.set_signal_val_binstr, _GPISetAction.DEPOSIT
    )
    return lambda number: deposit(f"{number:0{digits}b}")
