"""Kernels whose blocks are placed."""

from dataclasses import dataclass, field
from typing import Any

from signalbox.hw.records.placement import Policy

__all__ = ["AFFINITY", "DEEP", "FOREVER", "WIDE", "Kernel", "Place"]

WIDE, DEEP, AFFINITY = Policy
FOREVER = 1 << 60
Place = tuple[int, int, int]


@dataclass(eq=False)
class Kernel:
    """A kernel: needs of a block, and range of cycles for which its warps run. `disabled` : SMs
    that take none of its blocks, one bit each. `saves` : it may have blocks stopped."""

    row: int
    priority: int = 0
    blocks: int = 1
    warps: int = 1
    registers: int = 1
    shared: int = 0
    barrier: bool = False
    asid: int = 0
    policy: Policy = WIDE
    grid: Place = (1 << 20, 1, 1)
    first: Place = (0, 0, 0)
    runs: tuple[int, int] = (5, 20)
    disabled: int = 0
    saves: bool = False
    # State of the model: undistributed blocks, position of the next one, blocks on SMs.
    left: int = 0
    at: Place = (0, 0, 0)
    on_sms: int = 0
    opened: int = -1
    filled: int = -1
    placed: list[Place] = field(default_factory=list)

    @property
    def whole(self) -> tuple[int, int, int]:
        return (self.warps * self.registers, self.warps, self.shared)

    @property
    def warp(self) -> tuple[int, int, int]:
        return (self.registers, 1, self.shared)

    def after(self) -> Place:
        """The position after `at`."""
        x, y, z = self.at
        number = (z * self.grid[1] + y) * self.grid[0] + x + 1
        plane, x = divmod(number, self.grid[0])
        return (x, plane % self.grid[1], plane // self.grid[1])

    def allows(self, sm: int) -> bool:
        """Whether an SM takes its blocks."""
        return not self.disabled >> sm & 1

    def request(self) -> dict[str, Any]:
        """The request that opens its row."""
        mask = {"disabled": self.disabled} if self.disabled else {}
        return {
            **mask,
            "row": self.row,
            "needs": {
                "priority": self.priority,
                "barrier": self.barrier,
                "warps": self.warps,
                "registers": self.registers,
                "shared": self.shared,
                "saves": self.saves,
                "block_registers": self.warps * self.registers,
            },
            "asid": self.asid,
            "policy": self.policy,
            "blocks": self.blocks,
            "first": dict(zip("xyz", self.first, strict=True)),
            "grid": dict(zip("xyz", self.grid, strict=True)),
        }
