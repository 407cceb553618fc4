"""Preemption settings of contexts: their urgency and their level (PREEMPT-1, PREEMPT-5)."""

import enum

from signalbox.driver.compute.names import by_name
from signalbox.hw.registers import PreemptionLevel

__all__ = ["LEVELS", "URGENCIES", "PreemptionError", "Urgency", "level", "urgency"]


class Urgency(enum.Enum):
    """What happens to blocks of lower priority while a task of the context lacks room."""

    DRAIN = 0
    """They end."""
    SAVE = 1
    """They are stopped, their state is saved, and they continue later."""


URGENCIES = {one.name.lower(): one for one in Urgency}
"""Urgencies by name."""

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
