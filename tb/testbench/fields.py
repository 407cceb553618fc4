"""Records as bits."""

from typing import Any

__all__ = ["replaced"]


def replaced(layout: Any, bits: int, **fields: int) -> int:
    """`bits` of a record of this layout, with the given fields replaced. Fields that are left may
    hold any bits, as those of an enumeration that none of its members has."""
    for name, value in fields.items():
        field = layout[name]
        bits &= ~(((1 << field.width) - 1) << field.offset)
        bits |= int(value) << field.offset
    return bits
