"""QMD fields written by the machine, and the 8-byte words that hold them."""

from dataclasses import dataclass

from signalbox.hw.qmd import QMD
from signalbox.hw.task_unit.word_access import WORD_BYTES

__all__ = ["DEPENDENCE_COUNTER", "OUTER_GET", "PARENT", "RESUME", "QmdField"]

_BITS = 8 * WORD_BYTES


@dataclass(frozen=True)
class QmdField:
    """Adjacent QMD fields, from `first` to `last`, in one 8-byte word."""

    first: str
    last: str

    @property
    def offset(self) -> int:
        """Byte offset of the word in the QMD."""
        return QMD[self.first].offset // _BITS * WORD_BYTES

    @property
    def bits(self) -> slice:
        """Bits of the field in the word."""
        last = QMD[self.last]
        return slice(QMD[self.first].offset % _BITS, (last.offset + last.width - 1) % _BITS + 1)

    @property
    def strobe(self) -> int:
        """Bytes of the word that hold bits of the field."""
        low, high = self.bits.start // 8, (self.bits.stop - 1) // 8
        return (1 << high + 1) - (1 << low)


RESUME = QmdField("CTA_RASTER_WIDTH_RESUME", "CTA_RASTER_DEPTH_RESUME")
PARENT = QmdField("MODEL_PARENT", "MODEL_PARENT")
DEPENDENCE_COUNTER = QmdField("DEPENDENCE_COUNTER", "DEPENDENCE_COUNTER")
OUTER_GET = QmdField("OUTER_GET", "OUTER_STICKY_OVERFLOW")
"""Including the adjacent OUTER_STICKY_OVERFLOW, which stays 0."""
