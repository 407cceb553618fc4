"""Ports of a design under test."""

from unittest.mock import MagicMock

import pytest
from amaranth.hdl import ShapeLike, signed
from amaranth.lib import data

from signalbox.tb.testbench import port as port_module
from signalbox.tb.testbench.cocotb_private import driver
from signalbox.tb.testbench.port import Port

EVENT = data.StructLayout({"channel": 3, "valid": 1, "code": 2})


@pytest.fixture(autouse=True)
def handles_of_one_value(monkeypatch: pytest.MonkeyPatch) -> None:
    """A list stands for a signal of the simulator: the bits, then all driven numbers."""
    monkeypatch.setattr(port_module, "reader", lambda handle: lambda: handle[0])
    monkeypatch.setattr(port_module, "driver", lambda handle, width: handle.append)


def port(digits: str, shape: ShapeLike) -> Port:
    return Port([digits], "some__port", shape)


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


def test_changes() -> None:
    """A defined value read earlier does not hide an undefined one, nor the reverse."""
    handle = ["1"]
    flag = Port(handle, "some__port", 1)
    assert flag.get() == 1
    handle[0] = "X"
    with pytest.raises(AssertionError):
        flag.get()
    handle[0] = "1"
    assert flag.get() == 1
    handle[0] = "0"
    assert flag.get() == 0


def test_driven() -> None:
    """A value is driven only when it changes, as a number, in whatever form it was given."""
    handle = ["000000"]
    event = Port(handle, "some__port", EVENT)
    for value in ({}, 0, {"valid": True}, 8, {"valid": 1, "code": 2}, {"code": 2, "valid": 1}, 8):
        event.set(value)
    assert handle[1:] == [0, 8, 40, 8]


def test_driven_with_a_sign() -> None:
    """A number that does not fit is refused even if it has the same bits as the last value."""
    handle = ["0"]
    offset = Port(handle, "some__port", signed(8))
    offset.set(-1)
    with pytest.raises(AssertionError, match="0xff does not fit 8 bits"):
        offset.set(255)
    offset.set(-1)
    assert handle[1:] == [255]


def test_too_narrow() -> None:
    """A signal narrower than the design's port is refused."""
    with pytest.raises(AssertionError, match="narrow has 3 bits, and is driven with 8"):
        driver(MagicMock(_name="narrow", __len__=lambda _: 3), 8)
