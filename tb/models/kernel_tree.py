"""Kernels that launch kernels, as objects: what is complete after each event (NEST-12)."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

__all__ = ["Block", "Joined", "Kernel", "Over"]


@dataclass(eq=False)
class Block:
    """A block. `children` : children that are not complete. `failed` : a complete child has
    failed."""

    kernel: "Kernel"
    children: set["Kernel"] = field(default_factory=set)
    parent: bool = False
    left: bool = False
    failed: bool = False

    def launch(self) -> "Kernel":
        """A new child."""
        child = Kernel(self)
        self.children.add(child)
        self.parent = True
        self.kernel.families.add(self)
        return child

    def leave(self) -> Iterator["Over | Joined"]:
        """The block is over. Yields what follows."""
        self.left = True
        yield from self._close()

    def _close(self) -> Iterator["Over | Joined"]:
        if self.left and not self.children:
            self.kernel.families.remove(self)
            self.kernel.failed |= self.failed
            yield from self.kernel.complete()

    def complete(self, child: "Kernel") -> Iterator["Over | Joined"]:
        """A child is done."""
        self.children.remove(child)
        self.failed |= child.failed
        if not self.children and not self.left:
            yield Joined(self, self.failed)
        yield from self._close()


@dataclass(eq=False)
class Kernel:
    """A kernel. `families` : blocks that have launched children, until block and children are
    over."""

    parent: Block | None = None
    families: set[Block] = field(default_factory=set)
    ended: bool = False
    failed: bool = False

    def end(self, *, failed: bool) -> Iterator["Over | Joined"]:
        """All its blocks are over. Yields what follows."""
        self.ended = True
        self.failed |= failed
        yield from self.complete()

    def complete(self) -> Iterator["Over | Joined"]:
        """Yields what follows if its blocks are over and all its descendants are done."""
        if self.ended and not self.families:
            yield Over(self, self.failed)

    def done(self, *, failed: bool = False) -> Iterator["Over | Joined"]:
        """The kernel is complete, and has made its releases. Yields what follows."""
        self.failed |= failed
        if self.parent is not None:
            yield from self.parent.complete(self)


class Over(NamedTuple):
    """A kernel is complete."""

    kernel: Kernel
    failed: bool


class Joined(NamedTuple):
    """All children of a block are complete."""

    block: Block
    failed: bool
