"""Model of an SM logic controller, from the rules alone (PLACE-10, PLACE-20 … 26).

It is untimed and independent of the hardware: a table of blocks, the available resources, and the
next warp to start.
"""

from dataclasses import dataclass, field

__all__ = ["Block", "Kernel", "Sm"]


@dataclass(frozen=True)
class Kernel:
    """Needs of a kernel's blocks: `registers` per warp and `shared` per block, in units."""

    row: int
    priority: int
    warps: int = 1
    registers: int = 1
    shared: int = 0
    barrier: bool = False


@dataclass(eq=False)
class Block:
    """One block. `at` : position in the grid. `slot` : known after its `begin`. `withdrawn` : warps
    that never start, as the row is killed; they count as ended one after the other."""

    kernel: Kernel
    at: tuple[int, int, int]
    started: int = 0
    ended: int = 0
    withdrawn: int = 0
    slot: int | None = None

    @property
    def begun(self) -> bool:
        return self.started > 0

    @property
    def waits(self) -> bool:
        return self.started + self.withdrawn < self.kernel.warps


@dataclass
class Sm:
    """One SM; all amounts are in units.

    Members
    -------
    capacity, left : total and available `registers`, `warps`, `shared` and `slots`.
    blocks : resident blocks, in order of arrival.
    running : block by busy hardware warp.
    turn : whether the last start was of the most urgent block.
    claim : level (priority + 1) and needs of the first warp of a claimed block, or None.
    """

    capacity: dict[str, int]
    left: dict[str, int] = field(init=False)
    blocks: list[Block] = field(default_factory=list)
    running: dict[int, Block] = field(default_factory=dict)
    turn: bool = False
    claim: tuple[int, dict[str, int]] | None = None

    def __post_init__(self) -> None:
        self.left = dict(self.capacity)

    @property
    def highest(self) -> int:
        """The highest priority of all blocks plus one; 0 without blocks."""
        return max((block.kernel.priority + 1 for block in self.blocks), default=0)

    def arrive(self, block: Block) -> None:
        self.blocks.append(block)
        self._take({"slots": 1})

    def next(self) -> tuple[Block, bool] | None:
        """The block of the next warp to start, and whether it starts as the most urgent one; None
        if no warp may start (rules 2 to 4, 7)."""
        waiting = self.waiting()
        going = [block for block in waiting if block.begun]
        whole = [one for one in going if one.kernel.barrier and one is not waiting[0]]
        fits = bool(waiting) and self._fits(self.share(waiting[0]))
        kept = self.outranked()
        spared = kept and self.claim is not None and self.left["shared"] >= self.claim[1]["shared"]
        spared = spared and not (waiting and waiting[0].begun and waiting[0].kernel.barrier)
        held = spared or (kept and waiting and not waiting[0].begun)
        fits = fits and not held
        if whole and (self.turn or not fits):
            return whole[-1], False
        if fits:
            return waiting[0], True
        lacks = waiting and self.share(waiting[0])["shared"] > self.left["shared"]
        if (lacks or held) and not spared and going and self._fits(self.share(going[0])):
            return going[0], False
        return None

    def outranked(self) -> bool:
        """Whether the claimed block is more urgent than all blocks with warps to start."""
        top = max((block.kernel.priority + 1 for block in self.waiting()), default=0)
        return self.claim is not None and top < self.claim[0]

    def room(self) -> bool:
        """Whether the claimed block could begin here (rule 7)."""
        return self.claim is not None and self.outranked() and self._fits(self.claim[1])

    def fits(self, block: Block) -> bool:
        """Whether there is enough for the block's next warp."""
        return self._fits(self.share(block))

    def give_back(self, block: Block) -> None:
        """Remove a block that has not begun."""
        assert not block.begun and not block.withdrawn
        self.blocks.remove(block)
        self._give({"slots": 1})

    def waiting(self) -> list[Block]:
        """Blocks with warps to start, the most urgent one first."""
        order = sorted(self.blocks, key=lambda block: -block.kernel.priority)  # stable: by arrival
        return [block for block in order if block.waits]

    def start(self, block: Block, urgent: bool) -> None:
        self._take(self.share(block))
        block.started += 1
        self.turn = urgent

    def end(self, warp: int) -> dict[str, int]:
        """End a hardware warp. Returns the freed resources."""
        block = self.running.pop(warp)
        block.ended += 1
        freed = {"registers": block.kernel.registers, "warps": 1}
        self._give(freed)
        return freed

    def withdraw(self, block: Block) -> int:
        """Start no further warps of a block. Returns the number of warps that have not started."""
        assert block.waits and not (block.kernel.barrier and block.begun)
        block.withdrawn = block.kernel.warps - block.started
        return block.withdrawn

    def drop(self, block: Block) -> dict[str, int]:
        """End a withdrawn warp. Returns the resources it no longer needs, which it never had."""
        block.ended += 1
        return {"registers": block.kernel.registers, "warps": 1}

    def finish(self, block: Block) -> dict[str, int]:
        """Remove a finished block. Returns the resources it no longer needs; it had none unless it
        has begun."""
        assert block.ended == block.kernel.warps
        self.blocks.remove(block)
        freed = {"shared": block.kernel.shared, "slots": 1}
        self._give(freed if block.begun else {"slots": 1})
        return freed

    @staticmethod
    def share(block: Block) -> dict[str, int]:
        """Resources taken by the start of the block's next warp."""
        kernel = block.kernel
        if not kernel.barrier:
            shared = 0 if block.begun else kernel.shared
            return {"registers": kernel.registers, "warps": 1, "shared": shared}
        if block.begun:
            return {"registers": 0, "warps": 0, "shared": 0}
        registers = kernel.registers * kernel.warps
        return {"registers": registers, "warps": kernel.warps, "shared": kernel.shared}

    def _fits(self, share: dict[str, int]) -> bool:
        return all(self.left[name] >= amount for name, amount in share.items())

    def _take(self, share: dict[str, int]) -> None:
        assert self._fits(share), (share, self.left)
        for name, amount in share.items():
            self.left[name] -= amount

    def _give(self, share: dict[str, int]) -> None:
        for name, amount in share.items():
            self.left[name] += amount
            assert self.left[name] <= self.capacity[name], (name, self.left)
