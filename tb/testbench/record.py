"""Packing and unpacking of records, which are numbers in the simulator."""

from collections.abc import Callable, Mapping, Sequence
from enum import EnumType
from functools import cached_property
from typing import Any

from amaranth.hdl import Shape, ShapeLike
from amaranth.lib import data

__all__ = ["Record"]

_MAPPING = dict, Mapping  # the first is found fast
_FIELDS = *_MAPPING, Sequence


class Record:
    """Converts values of a shape to bits, and bits to values.

    A layout has a dictionary as its value, an array layout a list, an enumeration one of its
    members, and any other shape an integer. A number that is no member of its enumeration remains
    an integer. A field with undefined bits is None.

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
        self._largest = (1 << self.width - plain.signed) - 1
        self._is_list = isinstance(shape, data.ArrayLayout)
        self._members: dict[int, Any] = {}
        if isinstance(shape, EnumType):
            self._members = {int(one.value): one for one in shape}  # type: ignore[attr-defined]
        elif (layout := _layout(shape)) is not None:
            self.fields = {name: (one.offset, Record(one.shape)) for name, one in layout}
            self._largest = (1 << self.width) - 1

    def pack(self, value: Any) -> int:
        """Bits of a value. Fields missing in a dictionary are 0. For any shape, a number is taken
        as the bits themselves.

        Raises `KeyError` for an unknown field, `AssertionError` for a value that does not fit.
        """
        if isinstance(value, int) and 0 <= value <= self._largest:  # most values are
            return int(value)
        if self.fields and isinstance(value, _FIELDS):
            return self._pack_fields(value)
        number = int(getattr(value, "value", value))
        if self._signed and -(1 << self.width - 1) <= number < 0:
            return number + (1 << self.width)
        assert 0 <= number <= self._largest, f"{number:#x} does not fit {self.width} bits"
        return number

    def _pack_fields(self, values: Mapping[Any, Any] | Sequence[Any]) -> int:
        word, fields = 0, self.fields
        for name, one in values.items() if isinstance(values, _MAPPING) else enumerate(values):
            offset, field = fields[name]
            if isinstance(one, int) and 0 <= one <= field._largest:
                word |= one << offset
            else:
                word |= field.pack(one) << offset
        return word

    def replaced(self, word: int, **fields: Any) -> int:
        """`word`, bits of a layout, with the given fields replaced. The other fields may hold any
        bits, also those that are no member of their enumeration. Raises the same errors as
        `pack`."""
        for name, value in fields.items():
            offset, field = self.fields[name]
            word &= ~((1 << field.width) - 1 << offset)
            word |= field.pack(value) << offset
        return word

    def unpack(self, word: int) -> Any:
        """Value that corresponds to the bits `word`."""
        return self._compiled(word)

    @cached_property
    def _compiled(self) -> Callable[[int], Any]:
        """`unpack` as one expression: testbenches unpack records in most cycles."""
        members: list[Callable[[int], Any]] = []
        return eval(f"lambda word: {self._expression(0, members)}", {"members": members})

    def _expression(self, start: int, members: list[Callable[[int], Any]]) -> str:
        """Expression of the value whose bits begin at `start` in `word`. `members` : receives the
        functions that the expression calls to get members of enumerations."""
        if self.fields:
            values = {
                name: field._expression(start + offset, members)
                for name, (offset, field) in self.fields.items()
            }
            if self._is_list:
                return f"[{', '.join(values.values())}]"
            return f"{{{', '.join(f'{name!r}: {value}' for name, value in values.items())}}}"
        number = f"(word >> {start} & {(1 << self.width) - 1:#x})"
        if self._signed:
            sign = 1 << self.width - 1
            number = f"(({number} ^ {sign:#x}) - {sign:#x})"
        if self._members:
            members.append(lambda number: self._members.get(number, number))
            return f"members[{len(members) - 1}]{number}"
        return number

    def unpack_text(self, bits: str) -> Any:
        """Value of binary digits, highest first. Digits other than 0 and 1 are undefined; fields
        that contain them are None."""
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
