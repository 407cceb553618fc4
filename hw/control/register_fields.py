"""Extracts and assembles register fields."""

from collections.abc import Mapping
from functools import reduce
from operator import or_

from amaranth.hdl import Cat, Value

from signalbox.hw.registers import GLOBAL, Register

__all__ = ["field_of", "page_of", "register_of"]


def field_of(values: Mapping[str, Value], register: Register, name: str) -> Value:
    """Field `name` of `register`, whose value is in `values`."""
    field = register.field(name)
    return values[register.name][field.lo : field.hi + 1]


def page_of(values: Mapping[str, Value], name: str) -> Value:
    """Address >> 12 in the register pair `name`_LO, `name`_HI."""
    low, high = GLOBAL[f"{name}_LO"], GLOBAL[f"{name}_HI"]
    return Cat(field_of(values, low, "ADDRESS"), field_of(values, high, "ADDRESS"))


def register_of(register: Register, fields: Mapping[str, Value]) -> Value:
    """Register value with these fields, each at most as wide as in the register."""
    places = ((register.field(name).lo, value) for name, value in fields.items())
    return reduce(or_, (Value.cast(value).as_unsigned() << lo for lo, value in places))
