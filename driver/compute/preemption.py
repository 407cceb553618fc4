"""Preemption settings: urgency of contexts and launches, level of contexts (PREEMPT-1,
PREEMPT-5)."""

from signalbox.driver.compute.names import by_name
from signalbox.hw.qmd import Urgency
from signalbox.hw.registers import PreemptionLevel

__all__ = ["LEVELS", "URGENCIES", "PreemptionError", "Urgency", "level", "urgency"]

URGENCIES = {one.name.lower(): one for one in Urgency}
"""Urgencies by name; `context`, for a launch only: that of its context."""

LEVELS = {one.name.lower(): one for one in PreemptionLevel}
"""Levels by name."""


class PreemptionError(ValueError):
    """Unknown name, or a machine that cannot stop blocks."""


def urgency(wanted: Urgency | str) -> Urgency:
    """Look up an urgency by name, as `by_name` does. Raises `PreemptionError`."""
    return by_name(wanted, URGENCIES, "an urgency", PreemptionError)


def level(wanted: PreemptionLevel | str) -> PreemptionLevel:
    """Look up a preemption level by name, as `by_name` does. Raises `PreemptionError`."""
    return by_name(wanted, LEVELS, "a preemption level", PreemptionError)
