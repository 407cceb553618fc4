"""A port of the design under test, with the values of its shape."""

from typing import Any

from amaranth.hdl import ShapeLike

from signalbox.tb.testbench.record import Record

__all__ = ["Port"]


class Port:
    """Drives or samples a port. It must be the only one that writes to it, as it does not repeat a
    value."""

    def __init__(self, handle: Any, shape: ShapeLike) -> None:
        self.record = Record(shape)
        self._handle = handle
        self._driven: int | None = None

    def set(self, value: Any) -> None:
        """Drive a value, as described by `Record.pack`, from now on."""
        word = self.record.pack(value)
        if word != self._driven:
            self._driven = self._handle.value = word

    def get(self) -> Any:
        """The current value, as described by `Record`."""
        bits = self.bits()
        return self.record.unpack(bits) if isinstance(bits, int) else self.record.unpack_text(bits)

    def bits(self) -> int | str:
        """The current bits; as text if some are undefined."""
        value = self._handle.value
        try:
            return int(value)
        except ValueError:
            return str(value)
