"""Testbench of a whole SM; models the global logic controller, which stops blocks and sends them
again (PREEMPT-2, PREEMPT-3, PREEMPT-7)."""

from collections import Counter, deque
from dataclasses import dataclass
from typing import Any

from signalbox.hw.records.placement import KernelWord, space_word
from signalbox.hw.sm.sm import Sm
from signalbox.tb.models.isa import Memory
from signalbox.tb.testbench.clocked import Testbench
from signalbox.tb.testbench.ends import Sink, Source
from signalbox.tb.testbench.record import Record
from signalbox.tb.testbench.strobe import Strobe
from signalbox.tb.units.sm.core_testbench import CONFIG, WIDTH, Task
from signalbox.tb.units.sm.memory_end import SM_PORTS, MemoryEnd

__all__ = ["SmTestbench", "Work"]

_SPACE = Record(space_word)

_AREA = 0x40
"""First page of the save area."""

_PAGES = CONFIG.place_bytes // 4096


@dataclass(eq=False)
class Work:
    """A block. `place` : of its state, if it has one."""

    task: Task
    at: tuple[int, int, int]
    place: int | None = None
    stops: int = 0

    @property
    def needs(self) -> Counter[str]:
        launch, task = self.task.launch, self.task
        registers = launch.warps * task.units
        return Counter(registers=registers, warps=launch.warps, shared=task.shared, block=1)


class SmTestbench(Testbench):
    """Sends blocks while a slot is free, whatever else they need.

    Members
    -------
    port : the memory.
    state : physical memory with the places.
    memories : memory of each row, which is also its ASID.
    waiting : blocks that are to be sent.
    there : blocks sent, by row and position.
    charged : what they need, less what was freed.
    places : free places.
    stopped : number of blocks saved; without a state; stops that found none.
    faults : faults reported.
    killed : rows.
    """

    timeout = 20_000

    def __init__(self, dut: Any) -> None:
        super().__init__(dut, Sm(CONFIG))
        self.port = MemoryEnd(self, WIDTH, SM_PORTS, self._memory)
        self.state = Memory()
        size = CONFIG.place_bytes * CONFIG.save_places
        self.state.map(_AREA * 4096, self.random.randbytes(size))
        self.memories: dict[int, Memory] = {}
        self.waiting: list[Work] = []
        self.there: dict[tuple[int, tuple[int, int, int]], Work] = {}
        self.charged: Counter[str] = Counter()
        self.places = list(range(CONFIG.save_places))
        self.stopped: Counter[str] = Counter()
        self.faults: list[dict[str, Any]] = []
        self.killed: set[int] = set()
        self._stops, self._given = False, None
        """A stop is in progress; the place given with it."""
        self._words: deque[dict[str, int]] = deque()
        self._kernel, self._stop = Strobe(self, "kernel"), Strobe(self, "link__stop")
        self._block = Source(self, "link__block")
        Sink(self, "link__ended", self.port.pace, self._ended)
        Sink(self, "link__stopped", self.port.pace, self._answered)
        Sink(self, "fault", self.port.pace, self.faults.append)

    def launch(self, task: Task, priority: int) -> None:
        self.memories[task.row] = task.launch.memory
        words = task.words()
        words[KernelWord.NEEDS] |= priority
        words[KernelWord.SPACE] |= _SPACE.pack({"asid": task.row})
        words[KernelWord.SAVE_AREA] = _AREA
        for word, value in words.items():
            self._words.append({"row": task.row, "word": word, "data": value})
        self.waiting += [Work(task, at) for at in task.blocks]

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
        self.killed.add(row)
        self.waiting = [work for work in self.waiting if work.task.row != row]
        self.drive(kill=sum(1 << one for one in self.killed))

    async def step(self) -> None:
        if self._words:
            self._kernel.send(**self._words.popleft())
        elif self.waiting and not self._block.pending and len(self.there) < CONFIG.sm_blocks:
            self._send(self.waiting.pop(self.random.randrange(len(self.waiting))))
        await super().step()
        freed = self.get("link__freed")
        self.charged.subtract({name: freed[name] for name in ("registers", "warps", "shared")})
        self.charged.subtract(block=freed["block"])

    def _send(self, work: Work) -> None:
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
        if work.task.row in self.killed:
            self._drop(work)
        else:
            self.waiting.append(work)

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
