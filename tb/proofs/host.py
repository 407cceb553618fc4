"""Configuration and inputs that proofs of the host share."""

from functools import reduce
from operator import or_
from typing import Any

from amaranth import Module, Value

from signalbox.hw.config import Config
from signalbox.tb.proofs.formal import arbitrary

__all__ = ["CONFIG", "any_of", "concerns", "drive"]

CONFIG = Config(
    channels=2,
    copy_engines=2,
    semaphores=8,
    counters=2,
    data_width=64,
    asids=1,
    prefetch_beats=8,
)


def drive(m: Module, record: Any, name: str, *fields: str) -> None:
    """Make the given fields of an input arbitrary, or the whole input if none are given. Other
    fields stay 0."""
    for field in fields:
        arbitrary(m, getattr(record, field), f"{name}_{field}")
    if not fields:
        arbitrary(m, record, name)


def concerns(event: Any, channel: Any) -> Value:
    """Whether the event is for `channel`."""
    return event.valid & (event.channel == channel)


def any_of(bits: Any) -> Value:
    """Whether one of the bits is 1."""
    return reduce(or_, bits)
