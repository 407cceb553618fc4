"""Packing and unpacking of records, which are numbers in the simulator."""

from collections.abc import Mapping, Sequence
from enum import EnumType
from typing import Any

from amaranth.hdl import Shape, ShapeLike
from amaranth.lib import data

__all__ = ["Record"]


class Record:
    """Values of a shape, and their bits.

    The value of a layout is a dictionary, that of an array layout a list, that of an enumeration
    its member, and any other value is an integer. A number that is no member of its enumeration
    remains an integer. A field with undefined bits is None.

        record = Record(data.StructLayout({"valid": 1, "channel": 3}))
        record.pack({"valid": 1, "channel": 5})  # 11
        record.unpack(11)  # {"valid": 1, "channel": 5}

    Attributes
    ----------
    width : number of bits.
    fields : first bit and record of each field of a layout; empty for other shapes.
    """

    def __init__(self, shape: ShapeLike) -> None:
        plain = Shape.cast(shape)
        self.width = plain.width
        self.fields: dict[Any, tuple[int, Record]] = {}
        self._signed = plain.signed
        self._is_list = isinstance(shape, data.ArrayLayout)
        self._members: dict[int, Any] = {}
        if isinstance(shape, EnumType):
            self._members = {int(one.value): one for one in shape}  # type: ignore[attr-defined]
        elif (layout := _layout(shape)) is not None:
            self.fields = {name: (one.offset, Record(one.shape)) for name, one in layout}

    def pack(self, value: Any) -> int:
        """Bits of a value. Fields that are not named are 0; a number stands for its bits.

        Raises `KeyError` for an unknown field, `AssertionError` for a value that does not fit.
        """
        if self.fields and isinstance(value, Mapping | Sequence):
            word = 0
            for name, one in value.items() if isinstance(value, Mapping) else enumerate(value):
                offset, field = self.fields[name]
                word |= field.pack(one) << offset
            return word
        number = int(getattr(value, "value", value))
        if self._signed and -(1 << self.width - 1) <= number < 0:
            return number + (1 << self.width)
        limit = self.width - (self._signed and not self.fields)
        assert 0 <= number < 1 << limit, f"{number:#x} does not fit {self.width} bits"
        return number

    def replaced(self, word: int, **fields: Any) -> int:
        """Bits of a layout with the given fields replaced. The others may hold any bits, also those
        that are no member of their enumeration."""
        for name, value in fields.items():
            offset, field = self.fields[name]
            word &= ~((1 << field.width) - 1 << offset)
            word |= field.pack(value) << offset
        return word

    def unpack(self, word: int) -> Any:
        """Value of bits."""
        if self.fields:
            values = {
                name: field.unpack(word >> offset & (1 << field.width) - 1)
                for name, (offset, field) in self.fields.items()
            }
            return [*values.values()] if self._is_list else values
        if self._signed and word >> self.width - 1:
            return word - (1 << self.width)
        return self._members.get(word, word)

    def unpack_text(self, bits: str) -> Any:
        """Value of binary digits, highest first, some of which are undefined ("X")."""
        if self.fields:
            end = len(bits)
            values = {
                name: field.unpack_text(bits[end - offset - field.width : end - offset])
                for name, (offset, field) in self.fields.items()
            }
            return [*values.values()] if self._is_list else values
        return self.unpack(int(bits, 2)) if set(bits) <= {"0", "1"} else None


def _layout(shape: ShapeLike) -> data.Layout | None:
    try:
        return data.Layout.cast(shape)
    except TypeError:
        return None
