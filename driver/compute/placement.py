"""How blocks are spread over SMs, as users say it (ASID-32): an environment variable, or a name."""

import os
from collections.abc import Mapping

from signalbox.hw.qmd import Placement

__all__ = ["AUTO", "NAMES", "VARIABLE", "PlacementError", "from_environment", "placement"]

VARIABLE = "SIGNALBOX_PLACEMENT"
"""Environment variable that says how contexts place blocks for which nothing else is said."""

AUTO = Placement.CONTEXT
"""Of a context: deep when it has several address spaces, else wide. Of a task: as its context."""

NAMES = {
    "auto": AUTO,
    "wide": Placement.WIDE,
    "deep": Placement.DEEP,
    "affinity": Placement.AFFINITY,
}
"""What placements are called."""


class PlacementError(ValueError):
    """No placement has that name; the message lists those that there are."""


def placement(wanted: Placement | str) -> Placement:
    """A placement by its name, or itself. Raises `PlacementError`."""
    if isinstance(wanted, Placement):
        return wanted
    found = NAMES.get(wanted.strip().lower())
    if found is None:
        raise PlacementError(f"{wanted!r} is no placement: there are {', '.join(NAMES)}")
    return found


def from_environment(environment: Mapping[str, str] | None = None) -> Placement:
    """The placement that the environment asks for, else `AUTO`. Raises `PlacementError`."""
    environment = os.environ if environment is None else environment
    try:
        return placement(environment.get(VARIABLE) or "auto")
    except PlacementError as error:
        raise PlacementError(f"environment variable {VARIABLE}: {error}") from None
