"""A compute engine in plain Python, for tests of the driver: records, contexts, lists, blocks.

Blocks run one at a time on the interpreter of `tb.models.isa`, each in one step. Bit positions are
repeated here on purpose, as an independent check of those in the driver.
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from signalbox.hw.config import Config
from signalbox.hw.errors import Cause
from signalbox.tb.driver.fakes.faults import READ, WRITE, FakeFaults
from signalbox.tb.driver.fakes.translator import Translator
from signalbox.tb.models import isa
from signalbox.tb.models.tasks import FIELDS, LocalArea, Machine, buffers, judge

__all__ = ["FakeCompute", "FakeTask", "Refused"]

TASK_UNIT, FIRST_SM = 7, 8
"""Clients of the memory system."""

LEVELS, RECORD_BYTES, PAGE = 64, 256, 4096
VALID, BASES, STEP, LIMITED, LIMITS = 664, 672, 16, 1696, 1704
"""Byte offsets in an instance block: valid subcontexts and their page directories; subcontexts with
an address limit, and the limits."""

LAST = (1 << 49) - 1
"""Last virtual address."""

WIDE, DEEP = 1, 2
RELEASES = (768, 896, 1664)
WARP_FAULT, LOST, CHILD = 1, 2, 4
PARENT = 224
"""Byte offset in a record of the parent record's address >> 8."""
DEPTH = 12
REASONS = {Cause.TASK_FAULT: 2, Cause.TASK_MODEL: 3, Cause.TASK_CHECK: 4}
"""Answers to launches by kernels: at the depth limit, and for each cause of a wrong record."""
ONE_TASK, IN_CONTEXT = 0, 2


class Refused(Exception):
    """A launch or a task that the engine refuses: its cause and the number of the failed check."""

    def __init__(self, cause: Cause, check: int = 0) -> None:
        super().__init__(cause, check)
        self.cause, self.check = cause, check


@dataclass(eq=False)
class FakeTask:
    """An accepted task. `placement`, `urgency` and `disabled_sms` are set once it runs. `depth` : 1
    for a task of the host. `children` : launched tasks, in order."""

    channel: int
    context: int
    asid: int
    va: int
    priority: int
    area: LocalArea
    place: int = 0
    """Address of its entry in the list."""
    blocks: list[tuple[int, int, int]] = field(default_factory=list)
    launch: isa.Launch | None = None
    placement: int = 0
    urgency: int = 0
    disabled_sms: int = 0
    failed: bool = False
    depth: int = 1
    children: list["FakeTask"] = field(default_factory=list)


class _Memory(isa.Memory):
    """An address space as an `isa.Memory` for the interpreter."""

    def __init__(self, engine: "FakeCompute", asid: int, client: int) -> None:
        self._engine, self._asid, self._client = engine, asid, client

    def status(self, va: int) -> int:
        return 0 if self._engine.at(self._asid, va, READ, self._client) is not None else 2

    def read(self, va: int, size: int) -> bytes:
        at = self._engine.at(self._asid, va, READ, self._client)
        assert at is not None, "status() must be checked first"
        return bytes(self._engine.memory[at : at + size])

    def write(self, va: int, content: bytes) -> None:
        at = self._engine.at(self._asid, va, WRITE, self._client)
        if at is None:
            raise isa.Failure(isa.MEMORY + 1, va)
        self._engine.memory[at : at + len(content)] = content

    def word(self, va: int) -> int:
        return int.from_bytes(self.read(va, 4), "little")


class FakeCompute:
    """The engine.

    Members
    -------
    words : its global registers.
    contexts : registers of each context.
    running : accepted tasks that are not over.
    over : tasks that are over, in order.
    order : (ASID, block) of every block, in order of execution.
    release : carries out a release and returns whether it was refused; arguments: ASID, bits of the
        record from the release's first bit on.
    ended : called with every task that is over and the cause of its failure, if any.
    hold : True stops all execution.
    broken_lists : True corrupts entries read back from the lists.
    """

    def __init__(
        self,
        config: Config,
        memory: bytearray,
        translator: Translator,
        faults: FakeFaults,
        release: Callable[[int, int], bool],
        ended: Callable[[FakeTask, Cause], None],
    ) -> None:
        self.config, self.memory = config, memory
        self._translator, self._faults = translator, faults
        self._release, self._ended = release, ended
        names = ("LISTS_LO", "LISTS_HI", "LISTS_SIZE", "STATUS", "STATE", "KILL", "KILL_RECORD")
        self.words = {f"TASK_{name}": 0 for name in names}
        self.words |= {
            "CONTEXT_SLICE": 0,
            "CONTEXT_TIMEOUT": 0,
            "CONTEXT_BROKEN": 0,
            "WARP_FAULT": 0,
            "WARP_FAULT_BLOCK_X": 0,
            "WARP_FAULT_BLOCK_YZ": 0,
            "CHILD_LIMIT": 0,
            "CHILD_REFUSED": 0,
            "CHILD_REFUSED_RECORD": 0,
            "CHILD_REFUSED_PARENT": 0,
            "CHILD_REFUSALS": 0,
            "SM_CYCLES": 0,
        }
        self.words |= {f"WARP_FAULT_{n}_{h}": 0 for n in ("AT", "VA") for h in ("LO", "HI")}
        registers = ("INSTANCE_LO", "INSTANCE_HI", "PLACEMENT", "SAVE_AREA")
        self.contexts: list[dict[str, int]] = [
            dict.fromkeys(registers, 0) for _ in range(config.contexts)
        ]
        self.running: list[FakeTask] = []
        self.over: list[FakeTask] = []
        self.order: list[tuple[int, tuple[int, int, int]]] = []
        self.active: int | None = None
        self.hold = self.broken_lists = False
        self._automatic = WIDE
        self._places = itertools.count()

    # Registers

    @property
    def interrupt(self) -> bool:
        """Whether there is an interrupt for a broken context or a lost task."""
        return bool(self.words["CONTEXT_BROKEN"] or self.words["TASK_STATUS"] & LOST)

    def state(self) -> int:
        """Returns the value of TASK_STATE."""
        active = self.active is not None
        return int(not self.running) | active << 1 | (self.active or 0) << 4

    def write(self, name: str, value: int) -> None:
        """Write a global register."""
        if name in {"TASK_STATUS", "CONTEXT_BROKEN"}:
            self.words[name] &= ~value
            if name == "TASK_STATUS" and value & CHILD:
                self.words["CHILD_REFUSALS"] &= ~0xFFFF
            return
        assert not (name.startswith("TASK_LISTS") and self.running), "lists are moved while in use"
        self.words[name] = value
        if name == "TASK_KILL":
            self._kill(value & 3, value >> 4 & 15, value >> 16)

    def _kill(self, scope: int, context: int, asid: int) -> None:
        """End the tasks in `scope` at once."""
        va = self.words["TASK_KILL_RECORD"] << 8
        for task in [*self.running]:
            named = (task.asid == asid, task.context == context)[scope == IN_CONTEXT]
            if named and (scope != ONE_TASK or task.va == va):
                self._end(task, Cause.TASK_KILLED)

    # Launches

    @property
    def busy(self) -> bool:
        """Whether a step would do something."""
        return not self.hold and any(self._able(task) for task in self.running)

    def tasks(self, channel: int) -> int:
        """Returns the number of a channel's tasks that are not over."""
        return sum(task.channel == channel for task in self.running)

    def at(self, asid: int, va: int, access: int, client: int = TASK_UNIT) -> int | None:
        """Returns the physical address, or None after a fault."""
        return self._faults.translate(asid, va, access, client)

    def accept(self, channel: int, context: int, asid: int, va: int, area: LocalArea) -> None:
        """Accept a launch. `area` : local memory of the channel. Raises `Refused`."""
        found = self._judge(asid, va, area)
        task = FakeTask(channel, context, asid, va, found.priority, area)
        self._push(task)
        self.running.append(task)

    def _judge(self, asid: int, va: int, area: LocalArea) -> Any:
        """Check a record and return its request. Raises `Refused`."""
        config = self.config
        machine = Machine(
            config.sm_warps, config.sm_registers, config.sm_shared, config.sms, config.sm_masks
        )
        found = judge(self._record(asid, va), machine, area=area)
        if found is None:
            raise Refused(Cause.TASK_MODEL)
        if isinstance(found, int):
            raise Refused(Cause.TASK_CHECK, found)
        return found

    def _record(self, asid: int, va: int) -> int:
        at = self.at(asid, va, READ)
        if at is None:
            raise Refused(Cause.TASK_FAULT)
        return int.from_bytes(self.memory[at : at + RECORD_BYTES], "little")

    def _entry(self, task: FakeTask) -> tuple[int, int]:
        """Returns the physical address of a task's entry, and the entry's value while the task
        waits."""
        asid = self.words["TASK_LISTS_SIZE"] >> 16
        at = self.at(asid, task.place, WRITE)
        if at is None:
            raise Refused(Cause.TASK_LISTS)
        return at, task.va >> 8 | task.asid << 32 | task.channel << 48

    def _push(self, task: FakeTask) -> None:
        size = 1 << (self.words["TASK_LISTS_SIZE"] & 0x1F)
        level = task.context, task.priority
        waiting = sum((one.context, one.priority) == level for one in self.running)
        if waiting >= size - self.config.slots - self.config.spare_rows:
            raise Refused(Cause.TASK_FULL)
        base = self.words["TASK_LISTS_HI"] << 32 | self.words["TASK_LISTS_LO"]
        number = task.context * LEVELS + task.priority
        task.place = base + 8 * (number * size + next(self._places) % size)
        at, entry = self._entry(task)
        self.memory[at : at + 8] = entry.to_bytes(8, "little")

    def _lost(self, task: FakeTask) -> bool:
        """Whether a task's entry is missing from its list."""
        at, entry = self._entry(task)
        return self.broken_lists or self.memory[at : at + 8] != entry.to_bytes(8, "little")

    # Contexts

    def _able(self, task: FakeTask) -> bool:
        return not self.words["CONTEXT_BROKEN"] >> task.context & 1

    def _select(self) -> None:
        """Select a context with tasks. The current context continues until it has none and another
        has some. A context's registers are read when it starts."""
        able = sorted({task.context for task in self.running if self._able(task)})
        if self.active in able or not able:
            return
        self.active = None
        words = self.contexts[able[0]]
        at = words["INSTANCE_HI"] << 32 | words["INSTANCE_LO"]
        if at + PAGE > len(self.memory) or not self._bind(bytes(self.memory[at : at + PAGE])):
            self.words["CONTEXT_BROKEN"] |= 1 << able[0]
            return
        self.active = able[0]
        self._automatic = words["PLACEMENT"] or self._automatic

    def _bind(self, block: bytes) -> bool:
        """Bind all address spaces of an instance block. Returns whether that was possible."""
        valid = int.from_bytes(block[VALID : VALID + 8], "little")
        asids = [asid for asid in range(64) if valid >> asid & 1]
        self._automatic = DEEP if len(asids) > 1 else WIDE
        for asid in asids:
            at = BASES + asid * STEP
            word = int.from_bytes(block[at : at + 8], "little")
            base = word >> 12 << 12
            if asid >= self.config.asids or word & 3 or not word >> 10 & 1:
                return False
            if base + PAGE > len(self.memory):
                return False
            limit = int.from_bytes(block[LIMITS + 8 * asid :][:8], "little")
            limited = block[LIMITED + asid // 8] >> asid % 8 & 1
            self._translator.bind(asid, base, min(limit | PAGE - 1, LAST) if limited else LAST)
        return True

    # Blocks

    def step(self) -> None:
        """Run one block of the current context's most urgent task, the oldest among equals."""
        if self.hold or not self.running:
            return
        self._select()
        mine = [task for task in self.running if task.context == self.active]
        if not mine:
            return
        task = max(mine, key=lambda one: one.priority)
        try:
            if task.launch is None and not self._begin(task):
                return
            self._run(task)
            if not task.blocks:
                self._complete(task)
        except Refused as refused:
            self._end(task, refused.cause)

    def _begin(self, task: FakeTask) -> bool:
        """Remove a task from its list. Returns whether it was there."""
        if self._lost(task):
            self.words["TASK_STATUS"] |= LOST
            self._end(task, Cause.NONE)
            return False
        self._load(task)
        return True

    def _load(self, task: FakeTask) -> None:
        """Read the task's record and prepare it to run."""
        self._judge(task.asid, task.va, task.area)
        record = self._record(task.asid, task.va)
        of = {name: record >> low & (1 << bits) - 1 for name, (low, bits) in FIELDS.items()}
        grid = of["grid_x"], of["grid_y"], of["grid_z"]
        constants = buffers(record)
        first, size = constants.pop(0, (0, 0))
        task.launch = isa.Launch(
            memory=_Memory(self, task.asid, FIRST_SM),
            program=of["program_high"] << 32 | of["program_low"],
            constants=first,
            constant_bytes=size,
            grid=grid,
            block=(of["block_x"], of["block_y"], of["block_z"]),
            registers=of["registers"],
            shared=of["shared"],
            barrier=of["barriers"] > 0,
            buffers=constants,
            local=of["local_low"] + of["local_high"],
            children=self._children(task),
        )
        task.placement = of["placement"] or self._automatic
        task.urgency = of["urgency"]
        task.disabled_sms = of["mask_high"] << 32 | of["mask_low"]
        task.blocks = [(x, y, z) for z, y, x in itertools.product(*map(range, reversed(grid)))]

    def _children(self, task: FakeTask) -> isa.Children | None:
        """Launches by the blocks of a task; None on a machine without nested launches. Children run
        at once."""
        if not self.config.nested_kernels:
            return None
        failed: dict[int, bool] = {}

        def answer(va: int) -> int:
            child = replace(task, va=va, depth=task.depth + 1, priority=task.priority + 1)
            child.children, child.failed = [], False
            if refusal := self._bear(task, child):
                return refusal
            cause = self._run_all(child)
            failed[va] = cause is not Cause.NONE or any(one.failed for one in child.children)
            child.failed = failed[va]
            self._ended(child, cause)
            return 0

        return isa.Children(answer, lambda va: failed[va])

    def _bear(self, task: FakeTask, child: FakeTask) -> int:
        """Launch a child of a task. Returns the answer."""
        if task.depth >= self.contexts[task.context]["PLACEMENT"] >> 8 & 31:
            return self._refuse(task, child, DEPTH, 0)
        try:
            self._load(child)
        except Refused as refused:
            return self._refuse(task, child, REASONS[refused.cause], refused.check)
        task.children.append(child)
        at = self.at(task.asid, child.va + PARENT, WRITE)
        if at is not None:
            self.memory[at : at + 4] = (task.va >> 8).to_bytes(4, "little")
        return 0

    def _refuse(self, task: FakeTask, child: FakeTask, reason: int, check: int) -> int:
        """Record a refused child, unless one is recorded already. Returns the answer."""
        if not self.words["TASK_STATUS"] & CHILD:
            self.words["TASK_STATUS"] |= CHILD
            where = task.asid << 16 | child.depth << 26
            self.words["CHILD_REFUSED"] = reason | check << 4 | where
            self.words["CHILD_REFUSED_RECORD"] = child.va >> 8
            self.words["CHILD_REFUSED_PARENT"] = task.va >> 8
            self.words["CHILD_REFUSALS"] = task.channel << 16
        self.words["CHILD_REFUSALS"] += 1
        return reason | check << 8

    def _run_all(self, child: FakeTask) -> Cause:
        """Run the blocks of a child until one fails. Returns the cause."""
        try:
            while child.blocks:
                self._run(child)
        except Refused as refused:
            return refused.cause
        return Cause.NONE

    def _run(self, task: FakeTask) -> None:
        assert task.launch is not None
        at = task.blocks.pop(0)
        self.order.append((task.asid, at))
        self.words["SM_CYCLES"] = self.words["SM_CYCLES"] + 1 & 0xFFFF_FFFF
        block = isa.run_block(task.launch, at)
        failed = [n for n, warp in enumerate(block.warps) if warp.failure]
        if failed:
            failure = block.warps[failed[0]].failure
            assert failure is not None
            self._tell(task, at, failed[0], failure)
            raise Refused(Cause.TASK_KERNEL)

    def _tell(
        self,
        task: FakeTask,
        block: tuple[int, int, int],
        index: int,
        failure: tuple[int, int, int | None],
    ) -> None:
        """Record the failure of a warp, unless one is recorded already."""
        if self.words["TASK_STATUS"] & WARP_FAULT:
            return
        cause, at, va = failure
        self.words["TASK_STATUS"] |= WARP_FAULT
        sm = len(self.order) % self.config.sms
        self.words["WARP_FAULT"] = cause | sm << 8 | task.asid << 16 | index << 26
        self.words["WARP_FAULT_BLOCK_X"] = block[0]
        self.words["WARP_FAULT_BLOCK_YZ"] = block[1] | block[2] << 16
        for name, value in (("AT", at), ("VA", va or 0)):
            self.words[f"WARP_FAULT_{name}_LO"] = value & 0xFFFF_FFFF
            self.words[f"WARP_FAULT_{name}_HI"] = value >> 32

    def _complete(self, task: FakeTask) -> None:
        record = self._record(task.asid, task.va)
        for first in RELEASES:
            release = record >> first & (1 << 128) - 1
            if release >> 55 & 1 and self._release(task.asid, release):
                raise Refused(Cause.TASK_RELEASE)
        self._end(task, Cause.NONE)

    def _end(self, task: FakeTask, cause: Cause) -> None:
        self.running.remove(task)
        self.over.append(task)
        task.failed = cause is not Cause.NONE
        self._ended(task, cause)
