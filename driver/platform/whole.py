"""Whole numbers. Fractions given by users, even 2.0, are refused instead of rounded."""

from dataclasses import fields
from operator import index
from typing import Any, SupportsIndex

__all__ = ["make_whole", "whole"]


def whole(value: SupportsIndex, what: str) -> int:
    """`value` as an int. Raises `TypeError`, which begins with `what`, unless it is a whole
    number."""
    try:
        return index(value)
    except TypeError:
        raise TypeError(f"{what} = {value!r} is not a whole number") from None


def make_whole(settings: Any) -> None:
    """Convert the int fields of a new dataclass to `int`, and its fields of type int or None unless
    they are None: integers of numpy lack methods, and overflow. Raises `TypeError` for numbers that
    are not whole."""
    for field in fields(settings):
        value = getattr(settings, field.name)
        if field.type is int or (field.type == int | None and value is not None):
            # It may be frozen.
            object.__setattr__(settings, field.name, whole(value, field.name))
