"""Reference model of the copy class's component remap (HOST-16), element by element."""

from dataclasses import dataclass
from typing import Any

__all__ = ["Remap", "remap_refused"]

_NAMES = ("X", "Y", "Z", "W", "A", "B", "no", "reserved")
"""Sources of a destination component, by code."""

_SOURCES = "XYZW"


@dataclass(frozen=True)
class Remap:
    """Remap of the elements of a copy. A source element has `sources` components, a destination
    element one per name in `targets`; each has `size` bytes.

    Members
    -------
    targets : source of each destination component: `X`, `Y`, `Z`, `W` (components of the source
        element), `A`, `B` (constants), `no` (unchanged).
    unused : the same for the destination components, up to four, that the elements do not have.
    """

    targets: tuple[str, ...]
    size: int = 1
    sources: int = 1
    const_a: int = 0
    const_b: int = 0
    unused: tuple[str, ...] = ()

    @classmethod
    def of(cls, word: int, const_a: int, const_b: int) -> "Remap":
        """The remap of SET_REMAP_COMPONENTS with data `word`."""
        names = tuple(_NAMES[word >> 4 * number & 7] for number in range(4))
        count = (word >> 24 & 3) + 1
        size, sources = (word >> 16 & 3) + 1, (word >> 20 & 3) + 1
        return cls(names[:count], size, sources, const_a, const_b, names[count:])

    @property
    def word(self) -> int:
        """Data of SET_REMAP_COMPONENTS."""
        names = (*self.targets, *self.unused)
        codes = sum(_NAMES.index(name) << 4 * number for number, name in enumerate(names))
        shape = (self.size - 1) << 16 | (self.sources - 1) << 20 | (len(self.targets) - 1) << 24
        return codes | shape

    def components(self) -> dict[str, Any]:
        """The remap as the record `remap_components`."""
        word = self.word
        return {
            "dst": [word >> 4 * number & 7 for number in range(4)],
            "size": word >> 16 & 3,
            "sources": word >> 20 & 3,
            "targets": word >> 24 & 3,
        }

    @property
    def refused(self) -> bool:
        """Whether a destination component selects a source that does not exist."""
        return any(name not in (*_SOURCES[: self.sources], "A", "B", "no") for name in self.targets)

    @property
    def source_bytes(self) -> int:
        """Bytes read per element; 0 if no component of the source is used."""
        return self.size * self.sources if {*self.targets} & {*_SOURCES} else 0

    @property
    def target_bytes(self) -> int:
        """Bytes of an element at the destination."""
        return self.size * len(self.targets)

    def element(self, source: bytes, old: bytes) -> bytes:
        """New contents of a destination element. `old` : its contents so far."""
        size, found = self.size, b""
        constants = {"A": self.const_a, "B": self.const_b}
        for number, name in enumerate(self.targets):
            if name == "no":
                found += old[number * size : (number + 1) * size]
            elif name in constants:
                found += constants[name].to_bytes(4, "little")[:size]
            else:
                first = _SOURCES.index(name) * size
                found += source[first : first + size]
        return found

    def line(self, source: bytes, old: bytes) -> bytes:
        """New contents of a line of destination elements. `old` : its contents so far."""
        reads, writes = self.source_bytes, self.target_bytes
        return b"".join(
            self.element(
                source[number * reads : (number + 1) * reads],
                old[number * writes : (number + 1) * writes],
            )
            for number in range(len(old) // writes)
        )


def remap_refused(word: int) -> bool:
    """Whether a copy is refused after SET_REMAP_COMPONENTS with data `word`."""
    return Remap.of(word, 0, 0).refused
