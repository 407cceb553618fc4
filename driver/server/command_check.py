"""Checks of an application's commands, before the machine executes them (SHARE-9)."""

from collections.abc import Sequence

from signalbox.driver.commands.disassembler import Ignored, Malformed, Method, decode
from signalbox.hw.methods import ComputeMethod

__all__ = ["CommandError", "checked_launches"]

_SHARED: dict[int, str] = {
    ComputeMethod.SET_CWD_SLOT_COUNT: "it limits the slots of all applications"
}
"""Methods with effects on other applications, and these effects."""

_LAUNCHES = {ComputeMethod.SEND_SIGNALING_PCAS_B, ComputeMethod.SEND_SIGNALING_PCAS2_B}


class CommandError(Exception):
    """Commands that an application may not give; the message says which and why."""


def checked_launches(dwords: Sequence[int]) -> int:
    """Check a segment; returns the maximum number of tasks that it launches.

    Methods are checked whatever class is bound, as that depends on earlier segments. Raises
    `CommandError` for a method that affects other applications, an invalid header, or a segment
    that ends within a method group: the machine would decode the following dwords differently.
    """
    found = 0
    for part in decode(dwords):
        method = part.method if isinstance(part, Ignored) else part
        if isinstance(method, Malformed):
            raise CommandError(f"dword {method.position}: {method.text}")
        if not isinstance(method, Method):
            continue
        if why := _SHARED.get(method.address):
            name = ComputeMethod(method.address).name
            raise CommandError(f"dword {method.position}: {name}: {why}")
        found += method.address in _LAUNCHES
    return found
