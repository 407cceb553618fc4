"""Expected contents of memory after a workload's copies and kernels, and their verification."""

from dataclasses import dataclass

import numpy as np

from signalbox.driver.memory.address_space import AddressSpace
from signalbox.driver.memory.physical import Buffer

__all__ = ["GUARD", "ExpectedData", "VerifyError", "lines"]

GUARD = 32
"""Guard bytes after every destination, which must not change."""


class VerifyError(AssertionError):
    """A copy or kernel left wrong bytes in memory, or could not launch its children."""


@dataclass(eq=False)
class ExpectedData:
    """Data expected in a buffer.

    Members
    -------
    offset : first byte of the data in the buffer.
    pitch : bytes from line to line.
    image : expected data, an array of bytes with shape (lines, bytes per line).
    canvas : initial contents of the whole buffer.
    """

    buffer: Buffer
    offset: int
    pitch: int
    image: np.ndarray
    canvas: np.ndarray

    @property
    def words(self) -> np.ndarray:
        """The expected data as a new array of 32-bit words."""
        return self.image.reshape(-1).view(np.uint32).copy()

    def overwritten(self, words: np.ndarray) -> "ExpectedData":
        """The same place in the buffer, with `words` (32 bits each) as expected data."""
        image = words.view(np.uint8).reshape(self.image.shape)
        return ExpectedData(self.buffer, self.offset, self.pitch, image, self.canvas)

    async def address_in(self, space: AddressSpace) -> int:
        """Virtual address in a space. If the buffer is not mapped there, it is mapped read-only.
        Raises as `AddressSpace.map`."""
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
    """View of an image at `offset` in an array; `shape` is (lines, bytes per line)."""
    height, width = shape
    area = array[offset : offset + pitch * height]
    return area.reshape(height, pitch)[:, :width]
