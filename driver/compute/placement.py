"""Placement of blocks on SMs: names and environment variable (ASID-32)."""

import os
from collections.abc import Mapping

from signalbox.driver.compute.names import by_name
from signalbox.hw.qmd import Placement

__all__ = ["AUTO", "NAMES", "VARIABLE", "PlacementError", "from_environment", "placement"]

VARIABLE = "SIGNALBOX_PLACEMENT"
"""Environment variable with the default placement of contexts."""

AUTO = Placement.CONTEXT
"""For a context: deep if it has several address spaces, else wide. For a task: as its context."""

NAMES = {
    "auto": AUTO,
    "wide": Placement.WIDE,
    "deep": Placement.DEEP,
    "affinity": Placement.AFFINITY,
}
"""Placements by name."""


class PlacementError(ValueError):
    """Unknown placement name; the message lists the known ones."""


def placement(wanted: Placement | str) -> Placement:
    """Look up a placement by name, as `by_name` does. Raises `PlacementError`."""
    return by_name(wanted, NAMES, "a placement", PlacementError)


def from_environment(environment: Mapping[str, str] | None = None) -> Placement:
    """Placement named by the environment variable, `AUTO` if unset. Raises `PlacementError`."""
    environment = os.environ if environment is None else environment
    try:
        return placement(environment.get(VARIABLE) or "auto")
    except PlacementError as error:
        raise PlacementError(f"environment variable {VARIABLE}: {error}") from None
