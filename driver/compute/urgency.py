"""Urgency of contexts: what happens to blocks of lower priority while a task lacks room
(PREEMPT-5)."""

import enum

__all__ = ["NAMES", "Urgency", "UrgencyError", "urgency"]


class Urgency(enum.Enum):
    """What happens to blocks of lower priority while a task of the context lacks room."""

    DRAIN = 0
    """They end."""
    SAVE = 1
    """They are stopped, their state is saved, and they continue later."""


NAMES = {one.name.lower(): one for one in Urgency}
"""Urgencies by name."""


class UrgencyError(ValueError):
    """Unknown name, or a machine that cannot stop blocks."""


def urgency(wanted: Urgency | str) -> Urgency:
    """Look up an urgency by name; an `Urgency` is returned as is. Raises `UrgencyError`."""
    if isinstance(wanted, Urgency):
        return wanted
    found = NAMES.get(wanted.strip().lower())
    if found is None:
        raise UrgencyError(f"{wanted!r} is not an urgency: choose from {', '.join(NAMES)}")
    return found
