"""Reference model of a copy, byte by byte."""

from dataclasses import dataclass, field
from typing import Any

from signalbox.hw.config import VA_BITS
from signalbox.hw.records.copy import CopyError
from signalbox.tb.models.remap import Remap
from signalbox.tb.testbench.contents import Contents, Space

__all__ = ["Copy"]


@dataclass
class Copy:
    """One command of the host, and the record of its result."""

    asid: int
    src: int = 0
    dst: int = 0
    length: int = 1
    lines: int = 1
    pitch_in: int = 0
    pitch_out: int = 0
    transfer: int = 1
    src_physical: int = 0
    dst_physical: int = 0
    semaphore: dict[str, int] = field(default_factory=dict)
    """The command's semaphore fields."""
    refuse: int = 0
    """Answer of the semaphore unit."""
    remap: Remap | None = None
    """With it, `length` counts elements."""
    channel: int = 0
    subchannel: int = 0
    data: int = 0
    error: CopyError | None = None
    va: int = 0

    def command(self) -> dict[str, Any]:
        remap = self.remap
        return {
            "channel": self.channel,
            "subchannel": self.subchannel,
            "data": self.data,
            "asid": self.asid,
            "transfer": self.transfer,
            "src": self.src,
            "dst": self.dst,
            "src_physical": self.src_physical,
            "dst_physical": self.dst_physical,
            "pitch_in": self.pitch_in,
            "pitch_out": self.pitch_out,
            "line_length": self.length,
            "line_count": self.lines,
            **self.semaphore,
            "remap": remap is not None,
            "components": remap.components() if remap else 0,
            "const_a": remap.const_a if remap else 0,
            "const_b": remap.const_b if remap else 0,
        }

    @property
    def source_space(self) -> Space:
        return self.asid, self.src_physical

    @property
    def target_space(self) -> Space:
        return self.asid, self.dst_physical

    def spans(self) -> list[tuple[int, int]]:
        """Source and destination address of each line."""
        if not self.transfer:
            return []
        top = 1 << VA_BITS
        return [
            ((self.src + index * self.pitch_in) % top, (self.dst + index * self.pitch_out) % top)
            for index in range(self.lines)
        ]

    @property
    def source_bytes(self) -> int:
        """Bytes of a line at the source; 0 if it is not read."""
        return self.length * (self.remap.source_bytes if self.remap else 1)

    @property
    def target_bytes(self) -> int:
        """Bytes of a line at the destination."""
        return self.length * (self.remap.target_bytes if self.remap else 1)

    def line(self, source: bytes, old: bytes) -> bytes:
        """A line of the destination, from the source line and its own contents so far."""
        return self.remap.line(source, old) if self.remap else source

    def apply(self, memory: Contents) -> None:
        """Execute the copy on the reference's memory."""
        for source, target in self.spans():
            content = memory.read(self.source_space, source, self.source_bytes)
            old = memory.read(self.target_space, target, self.target_bytes)
            memory.write(self.target_space, target, self.line(content, old))
