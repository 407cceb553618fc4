"""Testbench of a whole SM; models the global logic controller, which stops blocks and sends them
again (PREEMPT-2, PREEMPT-3, PREEMPT-7)."""

from collections import Counter, deque
from dataclasses import dataclass
from typing import Any

from signalbox.hw.records.placement import KernelWord, kernel_needs, space_word
from signalbox.hw.sm.sm import Sm
from signalbox.tb.models.isa import Memory
from signalbox.tb.testbench.clocked import Testbench, component
from signalbox.tb.testbench.ends import Sink, Source
from signalbox.tb.testbench.record import Record
from signalbox.tb.testbench.strobe import Strobe
from signalbox.tb.units.sm.core_testbench import CONFIG, WIDTH, Task
from signalbox.tb.units.sm.memory_end import SM_PORTS, MemoryEnd
from signalbox.tb.units.sm.preempting_testbench import StateMemory

__all__ = ["AREA", "SmTestbench", "Work"]

_NEEDS, _SPACE = Record(kernel_needs), Record(space_word)

AREA = 0x40
"""First page of the save area."""

_PAGES = CONFIG.place_bytes // 4096


@dataclass(eq=False)
class Work:
    """A block. `place` : place of its state, if it has one. `begun` : it has begun since it was
    sent. `since` : last cycle in which it came or began, its row had to leave or stay, or the
    presence of unreserved places changed."""

    task: Task
    at: tuple[int, int, int]
    priority: int
    begun: bool = False
    since: int = 0
    place: int | None = None
    stops: int = 0

    @property
    def needs(self) -> Counter[str]:
        launch, task = self.task.launch, self.task
        registers = launch.warps * task.units
        return Counter(registers=registers, warps=launch.warps, shared=task.shared, block=1)

    @property
    def state(self) -> int:
        """Size of its state, in units of registers."""
        return self.begun * (self.needs["registers"] + 2 * self.task.shared)


class SmTestbench(Testbench):
    """Sends blocks while a slot is free, whatever their other needs.

    Members
    -------
    port : the memory.
    state : physical memory with the places.
    memories : memory of each row, which is also its ASID.
    waiting : blocks to be sent.
    holds : stopped blocks are not sent again.
    there : blocks sent, by row and position.
    charged : their needs, less the freed resources.
    places : free places.
    stopped : number of blocks saved; without a state; stops that found none.
    answers : block of each stop, None if it found none.
    leave : rows whose blocks must leave.
    lacking : priority of the most urgent block, if it lacks resources and may have others stopped.
    calm : cycles since blocks last came, began, left, or were told to leave.
    faults : faults reported.
    killed : killed rows.
    """

    timeout = 20_000

    def __init__(self, dut: Any) -> None:
        super().__init__(dut, component(Sm, CONFIG))
        self.port = MemoryEnd(self, WIDTH, SM_PORTS, self._memory)
        self.state = StateMemory()
        size = CONFIG.place_bytes * CONFIG.save_places
        self.state.map(AREA * 4096, self.random.randbytes(size))
        self.memories: dict[int, Memory] = {}
        self.waiting: list[Work] = []
        self.holds = False
        self._held: list[Work] = []
        self.there: dict[tuple[int, tuple[int, int, int]], Work] = {}
        self.charged: Counter[str] = Counter()
        self.places = list(range(CONFIG.save_places))
        self.stopped: Counter[str] = Counter()
        self.answers: list[Work | None] = []
        self.leave: set[int] = set()
        self.lacking = -1
        self.calm = 0
        self.faults: list[dict[str, Any]] = []
        self.killed: set[int] = set()
        self._inside = 0
        """Blocks in the SM."""
        self._stops, self._given = False, None
        """A stop is in progress; the place given with it."""
        self._words: deque[dict[str, int]] = deque()
        self.set_spare(True)
        self._kernel, self._stop = Strobe(self, "kernel"), Strobe(self, "link__stop")
        self._block = Source(self, "link__block", then=self._arrived)
        Sink(self, "link__ended", self.port.pace, self._ended)
        Sink(self, "link__stopped", self.port.pace, self._answered)
        Sink(self, "fault", self.port.pace, self.faults.append)

    def launch(self, task: Task, priority: int, *, saves: bool = False) -> None:
        """`saves` : blocks of lower priority may be stopped for those of the task."""
        self.memories[task.row] = task.launch.memory
        words = task.words()
        words[KernelWord.NEEDS] |= _NEEDS.pack({"priority": priority, "saves": saves})
        words[KernelWord.SPACE] |= _SPACE.pack({"asid": task.row})
        words[KernelWord.SAVE_AREA] = AREA
        for word, value in words.items():
            self._words.append({"row": task.row, "word": word, "data": value})
        self.waiting += [Work(task, at, priority) for at in task.blocks]

    @property
    def busy(self) -> bool:
        return bool(self.waiting or self.there or self._words or self._stops)

    def stop(self, level: int = 127) -> None:
        """Stop the victim; no other stop is in progress, and a place is free."""
        given = not self.get("link__victim")["restores"]
        self._stops = True
        self._given = self.places.pop() if given else None
        self._stop.send(level=level, given=given, save_place=self._given or 0)

    @property
    def can_stop(self) -> bool:
        return not self._stops and bool(self.places)

    def kill(self, row: int) -> None:
        """Kill a row; its blocks outside of the SM are gone."""
        self.killed.add(row)
        for several in (self.waiting, self._held):
            for work in [work for work in several if work.task.row == row]:
                several.remove(work)
                self._drop(work)
        self.drive(kill=sum(1 << one for one in self.killed))

    def revive(self) -> None:
        """End all kills."""
        self.killed.clear()
        self.drive(kill=0)

    def leaves(self, rows: set[int]) -> None:
        """Tell the blocks of these rows to leave."""
        self.calm = 0
        for work in self.there.values():
            if work.task.row in rows ^ self.leave:
                work.since = self.cycle
        self.leave = rows
        self.drive(link__leave=sum(1 << row for row in rows))

    def set_spare(self, spare: bool) -> None:
        """Blocks without a save place can be stopped, or not."""
        self.calm, self.spare = 0, spare
        for work in self.there.values():
            work.since = self.cycle
        self.drive(link__spare=spare)

    def set_lacking(self, priority: int) -> None:
        """The most urgent block, of this priority, lacks resources; -1: it does not."""
        self.calm, self.lacking = 0, priority
        for work in self.there.values():
            work.since = self.cycle

    def able(self, work: Work) -> bool:
        """Whether the block can be stopped."""
        return not work.task.launch.local and (self.spare or work.place is not None)

    def rank(self, work: Work) -> tuple[bool, bool, int, int]:
        """Rank of the block; the lowest is stopped first."""
        helps = work.begun and work.priority < self.lacking
        return work.task.row not in self.leave, not helps, work.priority, work.state

    @property
    def victims(self) -> list[Work]:
        """Blocks one of which must be stopped next: never with local memory, and none without a
        save place while no place is spare."""
        able = [work for work in self.there.values() if self.able(work)]
        least = min(map(self.rank, able), default=None)
        return [work for work in able if self.rank(work) == least]

    @property
    def beginning(self) -> bool:
        """Whether some block has not begun, as reported by the core."""
        return not all(work.begun for work in self.there.values())

    @property
    def still(self) -> bool:
        """Whether no block is on its way to or from the SM."""
        return self._inside == len(self.there) and not self._stops

    async def step(self) -> None:
        if self._words:
            self._kernel.send(**self._words.popleft())
        elif self.waiting and not self._block.pending and len(self.there) < CONFIG.sm_blocks:
            self._send(self.waiting.pop(self.random.randrange(len(self.waiting))))
        await super().step()
        freed, begin = self.get("link__freed"), self.get("events")["begin"]
        self.charged.subtract({name: freed[name] for name in ("registers", "warps", "shared")})
        self.charged.subtract(block=freed["block"])
        self._inside -= freed["block"]
        self.calm += 1
        if begin["valid"]:
            work = self.there[begin["row"], tuple(begin["at"][axis] for axis in "xyz")]
            work.begun, work.since = True, self.cycle
        if begin["valid"] or freed["block"] or not self.still:
            self.calm = 0

    def _arrived(self, block: dict[str, Any]) -> None:
        self._inside += 1
        self.calm = 0

    def _send(self, work: Work) -> None:
        work.begun, work.since = False, self.cycle
        self.there[work.task.row, work.at] = work
        self.charged.update(work.needs)
        where = dict(zip("xyz", work.at, strict=True))
        saved = {"restores": work.place is not None, "save_place": work.place or 0}
        self._block.put({"row": work.task.row, "at": where, **saved})

    def _answered(self, answer: dict[str, Any]) -> None:
        assert self._stops, "answers no stop"
        given, self._given, self._stops = self._given, None, False
        assert answer["given"] == (given is not None)
        if not answer["some"]:
            self.stopped["none"] += 1
            if given is not None:
                assert answer["save_place"] == given
                self.places.append(given)
            self.answers.append(None)
            return
        work = self.there.pop((answer["row"], tuple(answer["at"][axis] for axis in "xyz")))
        assert (given is None) == (work.place is not None)
        assert answer["save_place"] == (work.place if given is None else given)
        if given is None:
            assert answer["restores"]
        elif answer["restores"]:
            work.place = given
        else:
            self.places.append(given)
        self.stopped["state" if answer["restores"] else "fresh"] += 1
        work.stops += 1
        self.answers.append(work)
        if work.task.row in self.killed:
            self._drop(work)
        else:
            (self._held if self.holds else self.waiting).append(work)

    def _drop(self, work: Work) -> None:
        if work.place is not None:
            self.places.append(work.place)

    def _ended(self, block: dict[str, int]) -> None:
        same = [
            work
            for (row, at), work in self.there.items()
            if row == block["row"] and at[0] % (1 << CONFIG.number_bits) == block["number"]
        ]
        work = same[0]
        assert len(same) == 1
        assert block["restores"] == (work.place is not None)
        assert not block["restores"] or block["save_place"] == work.place
        del self.there[work.task.row, work.at]
        self._drop(work)

    def _memory(self, request: dict[str, int]) -> Memory:
        return self.state if request["physical"] else self.memories[request["asid"]]
