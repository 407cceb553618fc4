"""Inline-to-memory transfers, from the public fields of the compute class and the contract of
LOAD_INLINE_DATA in `hw/compute/README.md` (HOST-14)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from signalbox.hw.config import VA_BITS

__all__ = ["Transfer", "packed", "refusal"]

_SPACE = 1 << VA_BITS


@dataclass(frozen=True)
class Transfer:
    """Settings of a transfer. `length` : bytes per line. `pitch` : bytes from one line to the
    next."""

    va: int
    length: int
    lines: int = 1
    pitch: int = 0

    @property
    def dwords(self) -> int:
        """Number of LOAD_INLINE_DATA methods. Each line begins with a new dword."""
        return self.lines * -(-self.length // 4)

    def stores(self, dwords: Sequence[int]) -> Iterator[tuple[int, bytes]]:
        """Address and bytes of each line. `dwords` : data of the LOAD_INLINE_DATA methods."""
        words = -(-self.length // 4)
        for line in range(self.lines):
            part = dwords[line * words : (line + 1) * words]
            content = b"".join(dword.to_bytes(4, "little") for dword in part)
            yield (self.va + line * self.pitch) % _SPACE, content[: self.length]


def packed(lines: Sequence[bytes]) -> list[int]:
    """Dwords of `lines`. The last dword of each line is filled up with zeros."""
    return [
        int.from_bytes(line[at : at + 4], "little")
        for line in lines
        for at in range(0, len(line), 4)
    ]


def refusal(launch: int, transfer: Transfer) -> str:
    """Name of the cause for which LAUNCH_DMA with data `launch` is refused, or "NONE"."""
    block_linear = not launch & 1
    reduces = launch >> 1 & 1
    completion, interrupt = launch >> 4 & 3, launch >> 8 & 3
    reserved = launch >> 7 & 1 or launch >> 10 & 3 or launch >> 16
    if block_linear or reduces or completion == 3 or interrupt > 1 or reserved:
        return "COMPUTE_MODE"
    return "INLINE_ZERO" if transfer.length == 0 or transfer.lines == 0 else "NONE"
