"""Elements of a remapped copy (HOST-16), used to repeat a failed copy in software."""

from dataclasses import dataclass

from signalbox.hw.methods import RemapComponents, RemapSource, unpack

__all__ = ["ElementMap"]


@dataclass(frozen=True)
class ElementMap:
    """Contents of each destination element.

    Members
    -------
    word : data of SET_REMAP_COMPONENTS.
    const_a, const_b : data of SET_REMAP_CONST_A, SET_REMAP_CONST_B.
    """

    word: int
    const_a: int
    const_b: int

    @property
    def size(self) -> int:
        """Bytes per component."""
        return unpack(RemapComponents, self.word)["component_size"] + 1

    @property
    def targets(self) -> list[int]:
        """Contents of each destination component."""
        found = unpack(RemapComponents, self.word)
        names = ("dst_x", "dst_y", "dst_z", "dst_w")
        return [found[name] for name in names[: found["num_dst"] + 1]]

    @property
    def target_bytes(self) -> int:
        """Bytes of an element at the destination."""
        return self.size * len(self.targets)

    @property
    def source_bytes(self) -> int:
        """Bytes of an element at the source; 0 if no component comes from there."""
        if min(self.targets) > RemapSource.SRC_W:
            return 0
        return self.size * (unpack(RemapComponents, self.word)["num_src"] + 1)

    def applied(self, source: bytes, old: bytes) -> bytes:
        """New bytes of all destination elements, from the bytes of all source elements and the
        `old` bytes of the destination."""
        new, step = bytearray(old), self.target_bytes
        for number, target in enumerate(self.targets):
            for place in range(self.size):
                here = slice(number * self.size + place, None, step)
                if target <= RemapSource.SRC_W:
                    new[here] = source[target * self.size + place :: self.source_bytes]
                elif target != RemapSource.NO_WRITE:
                    constant = self.const_a if target == RemapSource.CONST_A else self.const_b
                    byte = constant >> 8 * place & 0xFF
                    new[here] = bytes([byte]) * (len(old) // step)
        return bytes(new)
