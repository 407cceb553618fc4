"""What a workload's copies and kernels leave in memory, and whether it is there."""

from dataclasses import dataclass

import numpy as np

from signalbox.driver.memory.address_space import AddressSpace
from signalbox.driver.memory.physical import Buffer

__all__ = ["GUARD", "Held", "VerifyError", "lines"]

GUARD = 32
"""Bytes behind every destination that must stay as they are."""


class VerifyError(AssertionError):
    """A copy or a kernel left other bytes than it should have."""


@dataclass(eq=False)
class Held:
    """Data in a buffer from byte `offset` on, with `pitch` bytes from line to line.

    `image` are the data, lines of bytes; `canvas` what the whole buffer held before.
    """

    buffer: Buffer
    offset: int
    pitch: int
    image: np.ndarray
    canvas: np.ndarray

    @property
    def words(self) -> np.ndarray:
        """The data as a copy of words."""
        return self.image.reshape(-1).view(np.uint32).copy()

    def overwritten(self, words: np.ndarray) -> "Held":
        """With other data in the same place."""
        image = words.view(np.uint8).reshape(self.image.shape)
        return Held(self.buffer, self.offset, self.pitch, image, self.canvas)

    async def address_in(self, space: AddressSpace) -> int:
        """Where it lies; in a space that has not mapped it, it is mapped, to be read."""
        if not space.has(self.buffer):
            await space.map(self.buffer, read_only=True)
        return space.at(self.buffer, self.offset)

    def verify(self, title: str) -> None:
        """Compare every byte of the buffer. Raises `VerifyError`."""
        expected = self.canvas.copy()
        lines(expected, self.offset, self.pitch, self.image.shape)[:] = self.image
        found = self.buffer.read()
        wrong = np.flatnonzero(found != expected)
        if wrong.size:
            first = int(wrong[0])
            raise VerifyError(
                f"{title}: {wrong.size} of {found.size} bytes are wrong; the first at physical "
                f"{self.buffer.at(first):#x} (byte {first - self.offset} of the destination) is "
                f"{found[first]:#04x}, not {expected[first]:#04x}"
            )


def lines(array: np.ndarray, offset: int, pitch: int, shape: tuple[int, ...]) -> np.ndarray:
    """View of the bytes of an image, so many lines of so many bytes, that begins at `offset`."""
    height, width = shape
    area = array[offset : offset + pitch * height]
    return area.reshape(height, pitch)[:, :width]
