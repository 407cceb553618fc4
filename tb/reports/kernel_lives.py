"""Activity of kernels, blocks, warps and SMs during a run, derived from its trace and its records.

Cycles count from the start of the run. If trace and records disagree, `Lost` is raised. So a block
that never ran, or ran twice, is detected even if the results are correct.
"""

from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import pairwise, product
from math import prod

from signalbox.driver.workload.records import KernelRecord, Result
from signalbox.hw.config import WARP_THREADS, Config
from signalbox.hw.errors import Refusal
from signalbox.hw.placement.controller import Step
from signalbox.tb.simulation import trace

__all__ = [
    "BlockLife",
    "ChildLaunch",
    "KernelActivity",
    "KernelLife",
    "Lost",
    "SmLife",
    "WarpLife",
    "kernel_activity",
]

STEPS = {Step.WHOLE: "A", Step.WARP: "B", Step.LOWER: "C", Step.MOVED: "M"}
"""Letters for the ways of placing a block, as in PLACE; M: by step C, then moved to another SM."""


class Lost(Exception):
    """Not every block of every kernel ran exactly once."""


@dataclass
class WarpLife:
    """Warp `index` of a block. It ran on hardware warp `warp` from cycle `start` to cycle `end`,
    which is -1 if it has not ended."""

    warp: int
    index: int
    start: int
    end: int = -1


@dataclass
class ChildLaunch:
    """Launch of a kernel by a block, requested in cycle `start` and answered in cycle `end`;
    `child` is None if it was refused."""

    start: int
    end: int
    refusal: Refusal
    child: "KernelLife | None"

    @property
    def name(self) -> str:
        """Title of the child, or the reason for refusing the launch."""
        if self.child is None:
            return f"refused launch: {self.refusal.name}"
        return f"launch of {self.child.title}"


@dataclass
class BlockLife:
    """Time of a block on an SM. A block that is stopped and restored has several.

    Members
    -------
    at : position in the grid.
    sm, step, placed : SM, step and cycle of the placement.
    slot : block slot; known from the start of the first warp on.
    warps : warps that have started.
    saving, saved : for a stopped block, the cycle in which the saving of its warps began, and the
        cycle in which it left the SM; otherwise -1.
    restores : the block was restored here after a stop.
    launches : launches of children, in order.
    """

    kernel: "KernelLife"
    at: tuple[int, int, int]
    sm: int
    step: Step
    placed: int
    restores: bool = False
    slot: int = -1
    saving: int = -1
    saved: int = -1
    warps: list[WarpLife] = field(default_factory=list)
    launches: list[ChildLaunch] = field(default_factory=list)

    @property
    def end(self) -> int:
        """Cycle in which the last warp ended, or in which the block was saved."""
        return max(self.saved, *(warp.end for warp in self.warps))

    @property
    def name(self) -> str:
        """Title of the kernel, and position in the grid."""
        return f"{self.kernel.title} {self.at}{' (restored)' if self.restores else ''}"


@dataclass
class KernelLife:
    """A kernel. Times are cycles.

    Members
    -------
    record : for a child, the record of its root kernel, with the child's own kernel, sizes, task
        record and priority.
    title : name of the kernel, with its index in a series; for a child without a name, title of the
        parent and number of the child.
    parent : kernel that launched this one; None if the driver did.
    launched : begin of the launch by the task unit; for a child, request by the parent.
    opened : cycles in which the kernel got a slot: several if it was evicted.
    over : end of the kernel.
    blocks : blocks in the order of placement; a restored block appears again.
    sms : SMs that may take its blocks; None if unknown.
    """

    record: KernelRecord
    title: str
    parent: "KernelLife | None" = None
    launched: int = -1
    opened: list[int] = field(default_factory=list)
    over: int = -1
    blocks: list[BlockLife] = field(default_factory=list)
    sms: tuple[int, ...] | None = None

    @property
    def depth(self) -> int:
        """Nesting depth: 1 for a kernel launched by the driver, 2 for a child of it, and so on."""
        return 1 if self.parent is None else 1 + self.parent.depth

    @property
    def root(self) -> "KernelLife":
        """The kernel launched by the driver from which this one descends, or this one."""
        return self if self.parent is None else self.parent.root

    @property
    def warps_each(self) -> int:
        """Number of warps per block."""
        return -(-prod(self.record.block) // WARP_THREADS)

    @property
    def first_block(self) -> int:
        """Cycle in which its first block was placed."""
        return min((block.placed for block in self.blocks), default=self.over)

    @property
    def first_warp(self) -> WarpLife:
        """The warp that started first. If the kernel was cancelled before any warp started, a
        placeholder at the end of the kernel."""
        warps = (warp for block in self.blocks for warp in block.warps)
        none = WarpLife(-1, -1, self.over, self.over)
        return min(warps, key=lambda warp: warp.start, default=none)

    @property
    def last_exit(self) -> int:
        """Cycle in which its last warp ended."""
        return max((block.end for block in self.blocks), default=self.over)

    @property
    def placed(self) -> int:
        """Number of its blocks that were placed."""
        return len({block.at for block in self.blocks})

    @property
    def stops(self) -> list[BlockLife]:
        """Its blocks that were stopped and saved, once per stop."""
        return [block for block in self.blocks if block.saved >= 0]

    @property
    def steps(self) -> Counter[str]:
        """Number of its blocks placed by each step."""
        return Counter(STEPS[block.step] for block in self.blocks)

    def on_sms(self, sms: int) -> list[int]:
        """Number of its blocks that ran on each SM."""
        counts = Counter(block.sm for block in self.blocks)
        return [counts[sm] for sm in range(sms)]

    def check(self) -> None:
        """Raise `Lost` unless each of its blocks ran exactly once, with all its warps, on an SM
        that may take it. Blocks of a cancelled kernel ran at most once, maybe with fewer warps."""
        if min(self.launched, self.over) < 0 or not self.opened:
            raise Lost(f"{self.title}: it was not launched and ended")
        for block in self.blocks:
            if self.sms is not None and block.sm not in self.sms:
                raise Lost(f"{self.title}: block {block.at} was on SM {block.sm}")
        whole = [block for block in self.blocks if block.saved < 0]
        ran = Counter(block.at for block in whole)
        wanted = set(product(*map(range, self.record.grid)))
        wrong = set(ran) - wanted if self.record.cancelled else set(ran) ^ wanted
        for at in sorted(wrong):
            raise Lost(f"{self.title}: block {at} {'never ran' if at in wanted else 'is none'}")
        for at in sorted(at for at in ran if ran[at] > 1):
            raise Lost(f"{self.title}: block {at} ran {ran[at]} times")
        for block in [] if self.record.cancelled else whole:
            indices = sorted(warp.index for warp in block.warps if warp.end >= 0)
            if indices != list(range(self.warps_each)):
                raise Lost(f"{self.title}: of block {block.at} warps {indices} ran and ended")


@dataclass
class SmLife:
    """Blocks, warps and look-ups of an SM.

    Members
    -------
    blocks : blocks that were on the SM.
    warps : number of warps that ran.
    busy : cycles with at least one warp.
    resident : sum of the cycles of all warps.
    peak : maximum number of blocks at the same time.
    look_ups, hits : look-ups in the SM's first-level TLB; those that hit.
    """

    blocks: list[BlockLife] = field(default_factory=list)
    warps: int = 0
    busy: int = 0
    resident: int = 0
    peak: int = 0
    look_ups: int = 0
    hits: int = 0

    def resident_warps(self) -> list[tuple[int, int]]:
        """(cycle, number of warps from then on) of each change, beginning with (0, 0)."""
        warps = [warp for block in self.blocks for warp in block.warps]
        return _levels((warp.start, warp.end) for warp in warps)

    def measure(self) -> None:
        """Compute the totals from the blocks."""
        levels = self.resident_warps()
        for (cycle, count), (until, _) in pairwise(levels):
            self.resident += count * (until - cycle)
            self.busy += (until - cycle) * (count > 0)
        self.warps = sum(len(block.warps) for block in self.blocks)
        placed = _levels((block.placed, block.end) for block in self.blocks)
        self.peak = max(count for _, count in placed)


@dataclass
class KernelActivity:
    """Kernels of a run in launch order, children included, and its SMs."""

    kernels: list[KernelLife] = field(default_factory=list)
    sms: list[SmLife] = field(default_factory=list)

    @property
    def roots(self) -> list[KernelLife]:
        """Kernels that the driver launched."""
        return [kernel for kernel in self.kernels if kernel.parent is None]

    @property
    def cycles(self) -> int:
        """Cycles from the start of the first warp to the end of the last."""
        warps = [warp for sm in self.sms for block in sm.blocks for warp in block.warps]
        return max(warp.end for warp in warps) - min(warp.start for warp in warps)


def kernel_activity(
    result: Result, events: Iterable[trace.Event], config: Config
) -> KernelActivity:
    """Derive kernels and SMs from the trace and the records of a run. Raises `Lost` if they
    disagree."""
    reader = _Reader(result, config)
    for event in events:
        reader.take(event)
    return reader.finish()


class _Reader:
    """Processes events in order. The page of its record identifies a task until the task is over; a
    row identifies a task until the row is opened for another. An SM starts the blocks of a kernel
    in the order in which they were placed."""

    def __init__(self, result: Result, config: Config) -> None:
        self._start = result.start
        self._first_client = config.memory_clients - config.sms
        self._done = KernelActivity(sms=[SmLife() for _ in range(config.sms)])
        self._coming: dict[int, deque[KernelLife]] = {}
        sms = {spec.name: spec.sms for spec in result.workload.kernels}
        for record in sorted(result.kernels, key=lambda record: record.submitted):
            life = KernelLife(record, result.title(record), sms=sms.get(record.name))
            self._coming.setdefault(record.channel, deque()).append(life)
        self._children = {(record.asid, record.page): record for record in result.children}
        self._born: Counter[int] = Counter()
        self._asking: dict[tuple[int, int], KernelLife] = {}
        self._channels: dict[tuple[int, int], KernelLife] = {}
        self._spaces: dict[tuple[int, int], KernelLife] = {}
        self._rows: dict[int, KernelLife] = {}
        self._placed: list[deque[BlockLife]] = [deque() for _ in self._done.sms]
        self._slots: dict[tuple[int, int], BlockLife] = {}
        self._warps: dict[tuple[int, int], WarpLife] = {}

    def take(self, event: trace.Event) -> None:
        """Process one event."""
        cycle = event.cycle - self._start
        match event:
            case trace.TaskLaunched(_, channel, asid, page):
                self._launched(cycle, channel, asid, page)
            case trace.TaskOpened(_, row, asid, page):
                self._opened(cycle, row, (asid, page))
            case trace.TaskOver(_, channel, page):
                self._channels[channel, page].over = cycle
            case trace.BlockPlaced(_, row, sm, Step.MOVED, x, y, z):
                self._moved(self._rows[row], (x, y, z), sm)
            case trace.BlockPlaced(_, row, sm, step, x, y, z):
                self._place(cycle, BlockLife(self._rows[row], (x, y, z), sm, step, cycle))
            case trace.BlockStop(_, sm, slot):
                self._slots[sm, slot].saving = cycle
            case trace.BlockStopped(_, sm, row, _, x, y, z):
                self._stopped(cycle, sm, self._rows[row], (x, y, z))
            case trace.Asked(_, sm, slot, row, page):
                self._asked(cycle, (sm, slot), self._rows[row], page)
            case trace.Answered(_, sm, slot, refusal):
                self._answered(cycle, (sm, slot), refusal)
            case trace.WarpStarted():
                self._warp(cycle, event)
            case trace.WarpEnded(_, sm, warp):
                self._warps.pop((sm, warp)).end = cycle
            case trace.Lookup(_, client, _, hit) if client >= self._first_client and cycle >= 0:
                sm = self._done.sms[client - self._first_client]
                sm.look_ups += 1
                sm.hits += hit

    def _launched(self, cycle: int, channel: int, asid: int, page: int) -> None:
        coming = self._coming.get(channel)
        if not coming or (coming[0].record.asid, coming[0].record.page) != (asid, page):
            raise Lost(f"channel {channel} launched a record at {page << 8:#x} that is no kernel's")
        life = coming.popleft()
        life.launched = cycle
        self._channels[channel, page] = self._spaces[asid, page] = life
        self._done.kernels.append(life)

    def _opened(self, cycle: int, row: int, where: tuple[int, int]) -> None:
        life = self._spaces.get(where)
        if life is None:
            raise Lost(f"row {row} got the record at {where[1] << 8:#x}, which was not launched")
        self._rows[row] = life
        life.opened.append(cycle)

    def _asked(self, cycle: int, key: tuple[int, int], parent: KernelLife, page: int) -> None:
        """The block in a slot of an SM launches a child."""
        block = self._slots[key]
        if block.kernel is not parent:
            raise Lost(f"SM {key[0]}: {block.name} launched a child of {parent.title}")
        known = self._children.get((parent.record.asid, page))
        if known is None:
            raise Lost(f"{block.name} launched a record at {page << 8:#x} that is no kernel's")
        self._born[id(parent)] += 1
        record = replace(
            parent.record,
            kernel=known.kernel,
            grid=known.grid,
            block=known.block,
            page=page,
            priority=parent.record.priority + 1,
        )
        title = known.title or f"{parent.title}.{self._born[id(parent)]}"
        life = self._asking[key] = KernelLife(record, title, parent, cycle)
        self._channels[record.channel, page] = self._spaces[record.asid, page] = life

    def _answered(self, cycle: int, key: tuple[int, int], refusal: Refusal) -> None:
        """The launch was accepted or refused."""
        life, accepted = self._asking.pop(key), refusal == Refusal.NONE
        child = life if accepted else None
        self._slots[key].launches.append(ChildLaunch(life.launched, cycle, refusal, child))
        if accepted:
            self._done.kernels.append(life)

    def _place(self, cycle: int, block: BlockLife) -> None:
        block.restores = any(one.at == block.at for one in block.kernel.stops)
        block.kernel.blocks.append(block)
        self._placed[block.sm].append(block)

    def _stopped(self, cycle: int, sm: int, kernel: KernelLife, at: tuple[int, int, int]) -> None:
        """A block has left its SM. A block that had not begun counts as never placed there."""
        for block in self._placed[sm]:
            if block.kernel is kernel and block.at == at:
                self._placed[sm].remove(block)
                kernel.blocks.remove(block)
                return
        for key, block in self._slots.items():
            if key[0] == sm and block.kernel is kernel and block.at == at:
                block.saved = cycle
                del self._slots[key]
                return
        raise Lost(f"{kernel.title} {at}: SM {sm} stopped it, but does not have it")

    def _moved(self, kernel: KernelLife, at: tuple[int, int, int], sm: int) -> None:
        """A block that has not begun goes to another SM."""
        for placed in self._placed:
            for block in [one for one in placed if one.kernel is kernel and one.at == at]:
                placed.remove(block)
                block.sm, block.step = sm, Step.MOVED
                self._placed[sm].append(block)
                return
        raise Lost(f"{kernel.title} {at}: it moved, although no SM had it")

    def _warp(self, cycle: int, event: trace.WarpStarted) -> None:
        """Add a warp; the first warp of a block determines its slot."""
        key = event.sm, event.slot
        if event.index == 0:
            # A more urgent block may start before one that was placed earlier.
            placed, kernel = self._placed[event.sm], self._rows[event.row]
            block = next((one for one in placed if one.kernel is kernel), None)
            if block is None:
                raise Lost(f"SM {event.sm} started a warp of no block in cycle {event.cycle}")
            placed.remove(block)
            self._slots[key], block.slot = block, event.slot
            self._done.sms[event.sm].blocks.append(block)
        block = self._slots[key]
        if block.kernel is not self._rows[event.row]:
            raise Lost(f"{block.name}: SM {event.sm} started a warp of another kernel instead")
        warp = WarpLife(event.warp, event.index, cycle)
        block.warps.append(warp)
        self._warps[event.sm, event.warp] = warp

    def finish(self) -> KernelActivity:
        """The complete activity, checked."""
        if self._asking:
            raise Lost("a launch by a block was not answered")
        self._done.kernels.sort(key=lambda kernel: kernel.launched)
        for life in (*self._done.kernels, *(one for left in self._coming.values() for one in left)):
            life.check()
            # A cancelled kernel may have dropped blocks.
            life.blocks = [block for block in life.blocks if block.warps]
        for sm in self._done.sms:
            sm.measure()
        return self._done


def _levels(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """(cycle, number of spans from then on) of each change, beginning with (0, 0)."""
    steps: Counter[int] = Counter()
    for start, end in spans:
        steps[start] += 1
        steps[end] -= 1
    levels, count = [(0, 0)], 0
    for cycle in sorted(steps):
        if steps[cycle]:
            count += steps[cycle]
            levels.append((cycle, count))
    return levels
