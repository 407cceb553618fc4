"""A port of the design under test, with the values of its shape."""

from typing import Any

from amaranth.hdl import ShapeLike

from signalbox.tb.testbench.cocotb_private import driver, reader
from signalbox.tb.testbench.record import Record

__all__ = ["Port"]


class Port:
    """Drives or samples a port. Nothing else may drive the port, as `set` does not repeat an
    unchanged value."""

    def __init__(self, handle: Any, name: str, shape: ShapeLike) -> None:
        """`handle` : the signal in the simulator. `name` : for messages."""
        self.record = Record(shape)
        self._read, self._write = reader(handle), driver(handle, self.record.width)
        self._text, self._bits = "", 0  # of the last read
        self._driven: int | None = None
        self._number: int | None = None  # last value driven, if it was a number
        self._flag: tuple[str, int] | None = None  # bit that must not be undefined: name, place
        if self.record.width == 1:
            self._flag = name, 0
        elif "valid" in self.record.fields:
            self._flag = f"{name}.valid", self.record.fields["valid"][0]

    def set(self, value: Any) -> None:
        """Drive a value, as described by `Record.pack`, from now on."""
        is_number = isinstance(value, int)
        if is_number and value == self._number:  # true in most cycles
            return
        word = self.record.pack(value)
        self._number = value if is_number else None
        if word != self._driven:
            self._driven = word
            self._write(word)

    def get(self) -> Any:
        """The current value, as described by `Record`. Raises the same errors as `bits`."""
        bits = self.bits()
        return self.record.unpack(bits) if isinstance(bits, int) else self.record.unpack_text(bits)

    def bits(self) -> int | str:
        """The current bits as a number; as text, highest first, if some are undefined.

        Raises `AssertionError` if the port has one bit, or a field `valid`, and that bit is
        undefined: a test would take it as 0.
        """
        text = self._read()
        if text == self._text:
            return self._bits
        try:
            self._bits = int(text, 2)
        except ValueError:
            return self._undefined(text)
        self._text = text
        return self._bits

    def _undefined(self, text: str) -> str:
        if self._flag is not None:
            name, place = self._flag
            assert text[-1 - place] in "01", f"{name} is undefined: {text[-1 - place]}"
        return text
