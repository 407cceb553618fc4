"""Kernels that launch kernels, as a tree of objects (NEST-12).

After each event the methods yield its consequences, in order: `Over` and `Joined`.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

__all__ = ["Block", "Joined", "Kernel", "Over"]


@dataclass(eq=False)
class Block:
    """A block of a kernel. `children` : children that are not complete. `parent` : it has launched
    a child. `left` : it is over. `failed` : a complete child has failed."""

    kernel: "Kernel"
    children: set["Kernel"] = field(default_factory=set)
    parent: bool = False
    left: bool = False
    failed: bool = False

    def launch(self) -> "Kernel":
        """Launch a child, and return it."""
        child = Kernel(self)
        self.children.add(child)
        self.parent = True
        self.kernel.families.add(self)
        return child

    def leave(self) -> Iterator["Over | Joined"]:
        """Event: the block is over."""
        self.left = True
        yield from self._close()

    def _close(self) -> Iterator["Over | Joined"]:
        if self.left and not self.children:
            self.kernel.families.remove(self)
            self.kernel.failed |= self.failed
            yield from self.kernel.complete()

    def complete(self, child: "Kernel") -> Iterator["Over | Joined"]:
        """Event: a child is done."""
        self.children.remove(child)
        self.failed |= child.failed
        if not self.children and not self.left:
            yield Joined(self, self.failed)
        yield from self._close()


@dataclass(eq=False)
class Kernel:
    """A kernel. `families` : its blocks with children, each until the block and all its children
    are over. `ended` : all its blocks are over."""

    parent: Block | None = None
    families: set[Block] = field(default_factory=set)
    ended: bool = False
    failed: bool = False

    def end(self, *, failed: bool) -> Iterator["Over | Joined"]:
        """Event: all blocks of the kernel are over. `failed` : the kernel itself has failed."""
        self.ended = True
        self.failed |= failed
        yield from self.complete()

    def complete(self) -> Iterator["Over | Joined"]:
        """Yield `Over` if the kernel's blocks are over and all its descendants are done."""
        if self.ended and not self.families:
            yield Over(self, self.failed)

    def done(self, *, failed: bool = False) -> Iterator["Over | Joined"]:
        """Event: the kernel is complete, and its releases have been made. `failed` : it was
        killed or refused, or a release has failed."""
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
