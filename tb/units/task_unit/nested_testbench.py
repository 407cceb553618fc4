"""Testbench of the task unit with kernels that launch kernels."""

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from signalbox.hw.nested.kernel_tree import TreeEvent, TreeOp
from signalbox.hw.records.launch import LaunchAction
from signalbox.tb.testbench.clocked import Participant
from signalbox.tb.testbench.ends import Sink
from signalbox.tb.units.task_unit.task_testbench import CONFIG, Task, TaskTestbench, Verdict

__all__ = ["Kernel", "NestedTestbench"]

PARENT = 224
"""Byte offset in a record: page of the parent's record."""


@dataclass
class Kernel(Task):
    """A task that may launch others. `node` : its number in the tree; `families` : families of its
    blocks; `restored` : blocks that have save places; `parent`, `block` : the block that launched
    it."""

    node: int | None = None
    families: dict[int, int] = field(default_factory=dict)
    restored: set[int] = field(default_factory=set)
    parent: "Kernel | None" = None
    block: int = 0
    epoch: int = 0

    @property
    def pointer(self) -> dict[str, int]:
        return {"page": self.page} if self.parent else {**super().pointer, "epoch": self.epoch}


class Tree(Participant):
    """The kernel tree: gives nodes and families, or none while `full`, and checks the requests.

    Members
    -------
    full : it refuses launches.
    asks : number of launches so far.
    gave : its last answer, if it was LAUNCHED; a test may remove it.
    ends : numbers of children that were disowned.
    """

    def __init__(self, tb: TaskTestbench) -> None:
        self._tb, self.full, self.asks = tb, False, 0
        self.gave: dict[str, Any] | None = None
        self.ends: list[int] = []
        self._free = list(range(CONFIG.nested_kernels))
        tb.random.shuffle(self._free)
        self._answers: deque[dict[str, Any]] = deque()
        Sink(tb, "tree", tb.share(0.6), self._asked)
        Sink(tb, "disowned", tb.share(0.6), self._disowned)
        tb.join(self)

    def _asked(self, word: dict[str, Any]) -> None:
        assert word["op"] is TreeOp.LAUNCH
        child = self._tb.offered[0]
        assert isinstance(child, Kernel) and child.parent is not None
        assert word["known"] == (child.parent.node is not None)
        assert not word["known"] or word["kernel"] == child.parent.node
        self.asks += 1
        if self.full or len(self._free) < 2:
            self._answers.append({"kind": TreeEvent.REFUSED})
            return
        self.gave = {
            "kind": TreeEvent.LAUNCHED,
            "kernel": word["kernel"] if word["known"] else self._free.pop(0),
            "family": word["family"] if word["related"] else self._tb.random.randrange(1 << 5),
            "child": self._free.pop(0),
        }
        self._answers.append(self.gave)

    def _disowned(self, node: int) -> None:
        self.ends.append(node)
        self.release(node)

    def release(self, node: int) -> None:
        """A kernel is complete."""
        self._free.append(node)

    def drive(self, cycle: int) -> None:
        random = self._tb.random
        if self._answers and random.random() < 0.3:
            self._tb.drive(told={"valid": 1, "event": self._answers.popleft()})
        elif random.random() < 0.2:
            event = {"kind": TreeEvent.JOINED, "kernel": 1, "family": random.randrange(1 << 5)}
            self._tb.drive(told={"valid": 1, "event": event})
        else:
            self._tb.drive(told={"valid": 0})


class NestedTestbench(TaskTestbench):
    """Children are launched by blocks that run, which neither end nor are saved before the answer.

    Members
    -------
    tree : the kernel tree.
    """

    def __init__(self, dut: Any, place: float = 0.3, end: float = 0.3, **options: Any) -> None:
        super().__init__(dut, place, end, **options)
        self.tree = Tree(self)
        self._reserved = 0
        """Blocks that have launched kernels and have no save place."""
        self.limit(24)

    def limit(self, depth: int) -> None:
        """Set the depth of the deepest kernels."""
        self.drive(nesting=depth)

    def bear(self, child: Kernel, parent: Kernel, block: int | None = None) -> None:
        """A running block of `parent` launches `child`."""
        assert parent.row is not None
        if block is None:
            block = self.random.choice(self._idle(parent))
            if block not in parent.families and self.random.random() < 0.3:
                parent.restored.add(block)
        self.rows.held.add((parent.row, block))
        child.parent, child.block = parent, block
        child.priority, child.depth = parent.priority + 1, parent.depth + 1
        child.asid, child.channel, child.context = parent.asid, parent.channel, parent.context
        child.epoch = parent.epoch
        child.fields.setdefault("group", self.random.randrange(64))  # has no effect (NEST-10)
        self.know(child)
        self.offered.append(child)
        family = parent.families.get(block)
        self.launch.put({
            "action": LaunchAction.CHILD,
            "task": child.pointer,
            "row": parent.row,
            "block": {"related": family is not None, "family": family or 0},
            "has_place": family is not None or block in parent.restored,
        })

    def runs(self, kernel: Kernel) -> bool:
        """Whether blocks of the kernel are running, and it may launch."""
        if kernel.row is None or kernel.outcome not in ("runs", "leaves", "returns"):
            return False
        return bool(self._idle(kernel))

    def killed(self, kernel: Kernel) -> bool:
        """Whether it has failed, or its row is marked."""
        marked = kernel.row is not None and self.get("kill") >> kernel.row & 1
        return bool(marked) or kernel.outcome == "failed"

    def _idle(self, kernel: Kernel) -> list[int]:
        """Running blocks of a kernel that wait for no answer."""
        assert kernel.row is not None
        running = self.rows.rows[kernel.row].running
        return [block for block in running if (kernel.row, block) not in self.rows.held]

    def _launched(self, verdict: Verdict, nothing: int) -> None:
        child = self.offered[0]
        assert isinstance(child, Kernel)
        if child.parent is not None:
            assert self.get("parent") == child.parent.page
            self._answered(child, child.parent)
        super()._launched(verdict, nothing)

    def _answered(self, child: Kernel, parent: Kernel) -> None:
        """A launch by a block was answered: note its family, and the numbers given by the tree."""
        assert parent.row is not None
        self.rows.held.remove((parent.row, child.block))
        gave, self.tree.gave = self.tree.gave, None
        if gave is not None:
            assert parent.node in (None, gave["kernel"])
            if child.block not in parent.families | dict.fromkeys(parent.restored):
                self._reserved += 1
            assert parent.families.setdefault(child.block, gave["family"]) == gave["family"]
            parent.node, child.node = gave["kernel"], gave["child"]
        assert self.rows.reservations == self._reserved
        got, family = self.get("block"), parent.families.get(child.block)
        assert got["related"] == (family is not None) and got["family"] == (family or 0)

    def _ended(self, got: dict[str, Any]) -> None:
        self._check_kin(got)
        super()._ended(got)

    def _failed(self, got: dict[str, Any]) -> None:
        self._check_kin(got)
        super()._failed(got)

    def _check_kin(self, got: dict[str, Any]) -> None:
        """Check that the end of a kernel names its number in the tree, if it has one."""
        kernel = self._named(got["task"])
        assert isinstance(kernel, Kernel)
        assert got["task"]["epoch"] == kernel.epoch and got["context"] == kernel.context
        assert got["kin"]["known"] == (kernel.node is not None), kernel
        assert self.link(kernel) == (kernel.parent.page if kernel.parent else 0), kernel
        if kernel.node is not None:
            assert got["kin"]["kernel"] == kernel.node
            self.tree.release(kernel.node)

    def link(self, kernel: Kernel) -> int:
        """Page of the parent, in the record."""
        stored = self.contents.read((kernel.asid, 0), (kernel.page << 8) + PARENT, 4)
        return int.from_bytes(stored, "little")

    async def finish(self) -> None:
        """As `TaskTestbench.finish`; also check that the records of refused children are
        unchanged."""
        await super().finish()
        for kernel in self.tasks.values():
            assert isinstance(kernel, Kernel)
            assert kernel.outcome != "refused" or self.link(kernel) == 0, kernel
