"""Fields of registers, as hardware takes them out and puts them together."""

from collections.abc import Mapping
from functools import reduce
from operator import or_

from amaranth.hdl import Cat, Value

from signalbox.hw.registers import GLOBAL, Register

__all__ = ["field_of", "page_of", "placed"]


def field_of(values: Mapping[str, Value], register: Register, name: str) -> Value:
    """A field of a register."""
    field = register.field(name)
    return values[register.name][field.lo : field.hi + 1]


def page_of(values: Mapping[str, Value], name: str) -> Value:
    """An address in two registers, >> 12."""
    low, high = GLOBAL[f"{name}_LO"], GLOBAL[f"{name}_HI"]
    return Cat(field_of(values, low, "ADDRESS"), field_of(values, high, "ADDRESS"))


def placed(register: Register, fields: Mapping[str, Value]) -> Value:
    """A register of these fields, which are as wide as theirs at most."""
    places = ((register.field(name).lo, value) for name, value in fields.items())
    return reduce(or_, (Value.cast(value).as_unsigned() << lo for lo, value in places))
