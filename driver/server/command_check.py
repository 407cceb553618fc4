"""Checks of an application's commands, before the machine executes them (SHARE-9)."""

from collections.abc import Sequence

from signalbox.driver.commands.disassembler import Ignored, Malformed, Method, decode
from signalbox.hw.methods import CeMethod, ComputeMethod

__all__ = ["CommandError", "launches"]

_SHARED: dict[int, str] = {
    ComputeMethod.SET_CWD_SLOT_COUNT: "it limits the slots of all applications"
}
"""Methods with effects on other applications, and which."""

_MOST_LINES = 1 << 16
"""Lines of a copy. The driver lists those of a copy that has failed."""

_LAUNCHES = {ComputeMethod.SEND_SIGNALING_PCAS_B, ComputeMethod.SEND_SIGNALING_PCAS2_B}


class CommandError(Exception):
    """Commands that an application may not give; the message says which and why."""


def launches(dwords: Sequence[int]) -> int:
    """Most tasks that a segment launches.

    Methods count whatever class is bound, as that depends on earlier segments. Raises
    `CommandError` for a method that touches other applications, or a segment whose end is missing:
    what follows would be decoded differently by the machine.
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
        if method.address == CeMethod.LINE_COUNT and method.data > _MOST_LINES:
            raise CommandError(
                f"dword {method.position}: LINE_COUNT: a copy of {method.data} lines, more than "
                f"{_MOST_LINES}"
            )
        found += method.address in _LAUNCHES
    return found
