"""Whole numbers: fractions given by users are refused, also 2.0, rather than rounded."""

from dataclasses import fields
from operator import index
from typing import Any, SupportsIndex

__all__ = ["check_whole", "whole"]


def whole(value: SupportsIndex, what: str) -> int:
    """`value` as an int. Raises `TypeError`, which begins with `what`, unless it is a whole
    number."""
    try:
        return index(value)
    except TypeError:
        raise TypeError(f"{what} = {value!r} is not a whole number") from None


def check_whole(settings: Any) -> None:
    """Raise `TypeError` unless the fields of type int of a dataclass are whole numbers."""
    for field in fields(settings):
        if field.type is int:
            whole(getattr(settings, field.name), field.name)
