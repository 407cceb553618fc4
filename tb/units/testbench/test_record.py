"""Values and bits of records."""

import pytest
from amaranth.hdl import signed
from amaranth.lib import data
from amaranth.lib.enum import Enum

from signalbox.hw.records.memory import MemoryStatus
from signalbox.tb.testbench.record import Record

INNER = data.StructLayout({"level": 3, "context": 2})
OUTER = data.StructLayout({
    "valid": 1,
    "where": INNER,
    "counts": data.ArrayLayout(4, 3),
    "change": signed(4),
    "status": MemoryStatus,
})
VALUE = {
    "valid": 1,
    "where": {"level": 5, "context": 2},
    "counts": [1, 15, 0],
    "change": -3,
    "status": MemoryStatus.FAULT,
}


def test_as_amaranth() -> None:
    """Bits are the same as in Amaranth, in both directions; fields that are not named are 0."""
    record, bits = Record(OUTER), OUTER.const(VALUE).as_bits()
    assert record.pack(VALUE) == bits and record.unpack(bits) == VALUE
    assert (
        record.pack({"where": 0b10_101, "status": 2})
        == OUTER.const({
            "where": {"level": 5, "context": 2},
            "status": MemoryStatus.FAULT,
        }).as_bits()
    )
    assert record.pack(bits) == bits and record.width == len(OUTER.const(VALUE).as_value())


def test_signed_enumeration() -> None:
    class Turn(Enum, shape=signed(2)):
        LEFT = -1
        NONE = 0
        RIGHT = 1

    record = Record(data.ArrayLayout(Turn, 4))
    assert record.unpack(0b10_01_00_11) == [Turn.LEFT, Turn.NONE, Turn.RIGHT, -2]
    assert record.pack([Turn.LEFT, Turn.NONE, Turn.RIGHT, -2]) == 0b10_01_00_11


def test_replaced() -> None:
    """Only the named fields change, whatever bits the others hold."""
    record = Record(OUTER)
    change = {"where": {"level": 1, "context": 0}, "status": MemoryStatus.OK, "change": 7}
    assert record.replaced(record.pack(VALUE), **change) == record.pack({**VALUE, **change})
    everything = (1 << record.width) - 1
    found = record.unpack(record.replaced(everything, change=0))
    assert found == {**record.unpack(everything), "change": 0}


def test_undefined_bits() -> None:
    """A field with an undefined bit is None; a number that is no member stays a number."""
    record = Record(OUTER)
    digits = f"{record.pack(VALUE):0{record.width}b}"
    found = record.unpack_text("11" + digits[2:-3] + "X" + digits[-2:])
    where = {"level": None, "context": 2}
    assert found == {**VALUE, "where": where, "status": 3}


@pytest.mark.parametrize("value", [{"valid": 2}, {"change": 8}, {"change": -9}, {"counts": [16]}])
def test_too_big(value: dict) -> None:
    """A value that does not fit its field is refused."""
    with pytest.raises(AssertionError, match="does not fit"):
        Record(OUTER).pack(value)


def test_unknown_field() -> None:
    """A field that does not exist is refused."""
    with pytest.raises(KeyError):
        Record(OUTER).pack({"level": 1})
