"""Fields of task records that are written in memory, and the 8 bytes that hold them."""

from dataclasses import dataclass

from signalbox.hw.qmd import QMD
from signalbox.hw.task_unit.word_access import WORD_BYTES

__all__ = ["DEPENDENCE_COUNTER", "OUTER_GET", "RESUME", "RecordField"]

_BITS = 8 * WORD_BYTES


@dataclass(frozen=True)
class RecordField:
    """Neighbouring fields of the record, from `first` to `last`, in one word of 8 bytes."""

    first: str
    last: str

    @property
    def offset(self) -> int:
        """Byte offset of the word in the record."""
        return QMD[self.first].offset // _BITS * WORD_BYTES

    @property
    def bits(self) -> slice:
        """Its bits in the word."""
        last = QMD[self.last]
        return slice(QMD[self.first].offset % _BITS, (last.offset + last.width - 1) % _BITS + 1)

    @property
    def strobe(self) -> int:
        """Bytes of the word that have bits of it."""
        low, high = self.bits.start // 8, (self.bits.stop - 1) // 8
        return (1 << high + 1) - (1 << low)


RESUME = RecordField("CTA_RASTER_WIDTH_RESUME", "CTA_RASTER_DEPTH_RESUME")
DEPENDENCE_COUNTER = RecordField("DEPENDENCE_COUNTER", "DEPENDENCE_COUNTER")
OUTER_GET = RecordField("OUTER_GET", "OUTER_STICKY_OVERFLOW")
"""With the bit behind it, which stays 0."""
