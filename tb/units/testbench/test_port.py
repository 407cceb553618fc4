"""Ports of a design under test."""

from dataclasses import dataclass

import pytest
from amaranth.hdl import ShapeLike
from amaranth.lib import data
from cocotb.types import Logic, LogicArray

from signalbox.tb.testbench.port import Port

EVENT = data.StructLayout({"channel": 3, "valid": 1, "code": 2})


@dataclass
class Handle:
    """A signal of the simulator."""

    value: object


def port(digits: str, shape: ShapeLike) -> Port:
    value = Logic(digits) if len(digits) == 1 else LogicArray(digits)
    return Port(Handle(value), "some__port", shape)


@pytest.mark.parametrize("level", "XZ")
def test_undefined_flags(level: str) -> None:
    """Neither a port of one bit nor the field `valid` is read while it is undefined."""
    for name, one in (
        ("some__port", port(level, 1)),
        ("some__port.valid", port(f"01{level}101", EVENT)),
    ):
        for read in (one.get, one.bits):
            with pytest.raises(AssertionError, match=rf"{name} is undefined: {level}"):
                read()


def test_undefined_payload() -> None:
    """Other undefined bits do not prevent a read."""
    assert port("0X", 2).get() is None and port("0X", 2).bits() == "0X"
    assert port("0X1101", EVENT).get() == {"channel": 5, "valid": 1, "code": None}


def test_defined() -> None:
    assert [port(digit, 1).get() for digit in "01"] == [0, 1]
    assert port("100101", EVENT).get() == {"channel": 5, "valid": 0, "code": 2}
