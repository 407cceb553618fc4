"""Lists of saved blocks, against a model in which each is a Python list (PREEMPT-3, PREEMPT-4,
PREEMPT-7); places that are reserved for blocks with children (NEST-12)."""

import json
import os
from collections import Counter
from dataclasses import dataclass
from typing import Any

import cocotb

from signalbox.hw.config import Config
from signalbox.hw.placement.saved_blocks import SavedBlocks
from signalbox.tb.testbench.clocked import Testbench, component
from signalbox.tb.testbench.ends import Sink, Source
from signalbox.tb.testbench.strobe import Strobe

CONFIG = Config(**json.loads(os.environ["CONFIG"]))

EARLY = 200
"""First cycles, with many events."""

ROWS = 4
"""Rows in use, so that their lists grow."""


@dataclass(frozen=True)
class Saved:
    """A block in a list. `restores` : its state is at the place. `family` : family of its
    children."""

    at: tuple[int, int, int]
    place: int
    restores: bool
    family: int | None = None


class SavedTestbench(Testbench):
    """Drives the unit at random, as the global controller may; compares it with the model.

    Members
    -------
    free : free places.
    out : places of blocks on SMs.
    given : places given with stops in progress; reserved places only to blocks with children.
    reservations : places reserved for blocks on SMs.
    lists : saved blocks of each row, the next one last.
    kept : lists that their tasks have kept, by their first places.
    lost : families of dropped blocks that the unit has not reported yet.
    open, ceased : open rows, and open rows that drop their blocks.
    met : number of events of each kind.
    ends : no further events begin, except that all free places are taken.
    """

    timeout = 5_000

    def __init__(self, dut: Any) -> None:
        super().__init__(dut, component(SavedBlocks, CONFIG))
        self.free = set(range(CONFIG.save_places))
        self.out: list[int] = []
        self.given: list[tuple[int, bool]] = []
        self.reservations = 0
        self._asked = self._reserves = False
        """Whether a place is being reserved: in the last cycle; in this cycle."""
        self._changed = 0
        """Cycle in which places or reservations changed last."""
        self.lists: dict[int, list[Saved]] = {row: [] for row in range(ROWS)}
        self.kept: dict[int, list[Saved]] = {}
        self.open: set[int] = set()
        self.ceased: set[int] = set()
        self.lost: set[int] = set()
        self._families = set(range(CONFIG.nested_kernels))
        """Free families."""
        self.met: Counter[str] = Counter()
        self.ends = False
        self._blocks: Counter[int] = Counter()
        """Undistributed saved blocks of each row, as reported by the unit."""
        self._ahead = self._last = 0
        self._paused = True
        self._push: tuple[int, Saved] | None = None
        self._keeping: int | None = None
        self._opens, self._closes, self._stop, self._ended = (
            Strobe(self, name) for name in ("open", "close", "stop", "ended")
        )
        self._stopped = Source(self, "stopped")
        self._keep, self._discard = Source(self, "keep"), Source(self, "discard")
        Sink(self, "place", self._wants_place, self._give)
        Sink(self, "add", lambda: self.random.random() < 0.5, self._add)
        Sink(self, "kept", lambda: self.random.random() < 0.5, self._take_list)
        if CONFIG.nested:
            Sink(self, "lost", lambda: self.random.random() < self._pace(0.2), self._lose)

    def _wants_place(self) -> bool:
        """A place is wanted for a block to be stopped: any block if a place is spare, otherwise one
        with children."""
        spare = self.cycle > self._changed + 1 and self.get("spare") and not self._reserves
        able = not CONFIG.nested or self.ends or spare or self.reservations > self._reserved
        return bool(able) and self.random.random() < self._pace(0.3)

    @property
    def _reserved(self) -> int:
        """Number of reserved places given with stops."""
        return sum(reserved for _, reserved in self.given)

    def _give(self, place: int) -> None:
        """Take a place for a block that will be stopped."""
        assert place in self.free, f"place {place} is in use"
        reserved = not self.get("spare") and not self.ends
        assert reserved or self.ends or len(self.free) > self.reservations - self._reserved
        self.free.remove(place)
        self.given.append((place, reserved))
        self._changed = self.cycle
        self.met["reserved given"] += reserved

    def _add(self, blocks: dict[str, int]) -> None:
        assert blocks["row"] not in self.ceased
        self._blocks[blocks["row"]] += blocks["blocks"]

    def _lose(self, family: int) -> None:
        self.lost.remove(family)
        self._families.add(family)
        self.met["lost"] += 1

    def _drop(self, blocks: list[Saved]) -> None:
        """The unit frees the places of a list, and reports the families."""
        self.free.update(block.place for block in blocks)
        self._changed = self.cycle
        self.lost.update(block.family for block in blocks if block.family is not None)

    def _take_list(self, answer: dict[str, int]) -> None:
        row, self._keeping = self._keeping, None
        assert row is not None
        blocks, self.lists[row] = self.lists[row], []
        assert answer["some"] == bool(blocks)
        if blocks:
            assert answer["save_place"] == blocks[-1].place
            self.kept[blocks[-1].place] = blocks
            self.met["kept"] += 1

    async def step(self) -> None:
        busy = self.get("busy") if self.cycle else 1
        if self.random.random() < 0.05:
            self._ahead = self.random.randrange(ROWS)
        self._events(bool(busy))
        takes = self._takes()
        self._reserve()
        self.drive(ahead=self._ahead, take=takes)
        await super().step()
        self._check(takes)
        self._check_reservations()
        self._last, self._paused = self._ahead, bool(self.get("pause"))

    def _reserve(self) -> None:
        """A block launches its first child, or its launch is then refused; or a block with children
        ends."""
        if not CONFIG.nested:
            return
        number, spare = self.random.random(), self.reservations > self._reserved
        self._asked, self._reserves = self._reserves, number < 0.02 and not self.ends
        drops = spare and (self.ends or 0.02 < number < 0.03)
        releases = drops and number < 0.025
        self.drive(reserve=self._reserves, release=releases, unused=drops and not releases)
        if drops:
            self.reservations -= 1
            self._changed = self.cycle

    def _check_reservations(self) -> None:
        """Check that a place is spare if more are free than reserved, and that each reserved place
        is free until it is given."""
        if not CONFIG.nested:
            return
        if self._asked and self.get("reserved"):
            assert len(self.free) > self.reservations - self._reserved
            self.reservations += 1
            self._changed = self.cycle
        elif self._asked:
            self.met["not reserved"] += 1
        else:
            assert not self.get("reserved")
        assert len(self.free) >= self.reservations - self._reserved
        changes = self._reserves or self._push or self.get("busy") or self._discard.pending
        if changes:
            self._changed = self.cycle
        if self.cycle > max(EARLY, self._changed + 10):
            assert self.get("spare") == (len(self.free) > self.reservations)

    def _takes(self) -> bool:
        """Send a block of the selected row, if it has a saved block and may."""
        row = self._last
        often = 0.9 if self._freeing else 0.3
        self._freeing = max(0, self._freeing - 1)
        return not self._paused and self._blocks[row] > 0 and self.random.random() < often

    def _check(self, takes: bool) -> None:
        """Check outputs of the cycle that has ended."""
        row, first = self._last, self.get("first")
        blocks = self.lists[row]
        settled = not (self._paused or self.get("pause") or self._after)
        if settled and self._push is None and self._keeping is None:
            assert first["some"] == bool(blocks), (self.cycle, row, blocks)
            if blocks:
                found = Saved(
                    tuple(first["at"][axis] for axis in "xyz"),
                    first["save_place"],
                    bool(first["restores"]),
                    _family(first),
                )
                assert found == blocks[-1] and first["count"] == len(blocks)
        if takes:
            block = blocks.pop()
            self._blocks[row] -= 1
            self.met["taken"] += 1
            if block.family is not None:
                self._families.add(block.family)
            if block.restores:
                self.out.append(block.place)
            else:
                self.free.add(block.place)
                self._changed = self.cycle
        leaves = self.get("leaves")
        if leaves["valid"]:
            assert self._push is not None and leaves["row"] == self._push[0]
        if self._push is not None and not self._stopped.pending:
            row, block = self._push
            self._push, self._changed = None, self.cycle
            if row >= 0:
                self.lists[row].append(block)

    def _pace(self, share: float) -> float:
        """Share of events: places come and return fast while the unit still lists the places that
        are free after reset."""
        return 1.0 if self.ends or self.cycle < EARLY else share

    def _events(self, busy: bool) -> None:
        """Begin at most one of each kind of event."""
        numbers = self.random
        if self.ends:
            return
        if self.out and numbers.random() < 0.02:
            place = self.out.pop(numbers.randrange(len(self.out)))
            self._ended.send(save_place=place)
            self.free.add(place)
            self._changed = self.cycle
            self.met["ended"] += 1
        if self.given and self._push is None and numbers.random() < self._pace(0.1):
            self._answer(*self.given.pop())
        elif self.out and self._running and self._push is None and numbers.random() < 0.03:
            place = self.out.pop()
            self._save(numbers.choice(self._running), place, given=False, restores=True)
        quiet = self._push is None and self._keeping is None and not self._stopped.pending
        self._after = max(0, self._after - 1)
        if quiet and not (busy or self._after):
            self._rows()

    _freeing = 0
    """Cycles in which a list may be freed, and blocks are sent more often."""

    _after = 0
    """Cycles until the lists reflect the last event of a row."""

    def _answer(self, place: int, reserved: bool) -> None:
        """A stop with this place has stopped a block, or none."""
        if self._running and self.random.random() < 0.8 and (self._families or not reserved):
            row = self.random.choice(self._running)
            restores = reserved or self.random.random() < 0.7
            self._save(row, place, given=True, restores=restores, reserved=reserved)
            return
        self._stopped.put({"some": 0, "given": 1, "save_place": place})
        self._push = (-1, Saved((0, 0, 0), place, False))
        self.free.add(place)
        self._changed = self.cycle
        self.met["none"] += 1

    def _save(
        self, row: int, place: int, *, given: bool, restores: bool, reserved: bool = False
    ) -> None:
        at = (self.random.getrandbits(32), self.random.getrandbits(16), self.random.getrandbits(16))
        where = dict(zip("xyz", at, strict=True))
        answer = {"some": 1, "given": given, "restores": restores, "row": row, "at": where}
        family = None
        able = not given or reserved or self.reservations > self._reserved
        if self._families and able and (reserved or self.random.random() < 0.6):
            self.reservations -= given
            self.met["used"] += given
            family = self.random.choice([*self._families])
            self._families.remove(family)
        if CONFIG.nested:
            answer["family"] = {"related": family is not None, "family": family or 0}
        self._stopped.put({**answer, "save_place": place})
        self._push = (row, Saved(at, place, restores, family))
        self.met["saved"] += 1

    @property
    def _running(self) -> list[int]:
        """Rows with blocks on SMs: not drained ones."""
        return [row for row in self.open if row != self._keeping]

    def _rows(self) -> None:
        """Open, close or stop a row, or take back its blocks; or drop a kept list."""
        numbers, closed = self.random, [row for row in range(ROWS) if row not in self.open]
        chance = numbers.random()
        self._after = 3 if chance < 0.10 else 0
        if closed and chance < 0.05:
            self._open(numbers.choice(closed))
        elif self.open and chance < 0.06:
            row = numbers.choice([*self.open])
            self._stop.send(row=row)
            self.ceased.add(row)
            self._blocks[row] = 0
        elif self.ceased and chance < 0.10:
            row = numbers.choice([*self.ceased])
            if self.lists[row] and numbers.random() < 0.5:
                self._keeping = row
                self._keep.put(row)
            else:
                self._close(row)
        elif self.kept and not self._discard.pending and chance > 0.95:
            blocks = self.kept.pop(numbers.choice([*self.kept]))
            self._discard.put(blocks[-1].place)
            self._freeing = 4
            self._drop(blocks)
            self.met["discarded"] += 1

    def _open(self, row: int) -> None:
        self.open.add(row)
        self.ceased.discard(row)
        list_ = self.random.choice([None, *self.kept])
        self._opens.send(row=row, adopts=list_ is not None, save_place=list_ or 0)
        if list_ is not None:
            self.lists[row] = self.kept.pop(list_)
            self.met["adopted"] += 1

    def _close(self, row: int) -> None:
        self._closes.send(row=row)
        self.open.remove(row)
        self.ceased.remove(row)
        self._drop(self.lists[row])
        self.met["dropped"] += len(self.lists[row])
        self.lists[row] = []

    @property
    def held(self) -> set[int]:
        """Places in use."""
        lists = [*self.lists.values(), *self.kept.values()]
        given = {place for place, _ in self.given}
        return {block.place for blocks in lists for block in blocks} | {*self.out} | given


def _family(block: dict[str, Any]) -> int | None:
    if not CONFIG.nested or not block["family"]["related"]:
        return None
    return block["family"]["family"]


@cocotb.test(timeout_time=10, timeout_unit="ms")
async def random_lists(dut: Any) -> None:
    """Blocks are saved, sent again, kept with their tasks and dropped, in any order: the next block
    of each row is that of the model, no place is lost or used twice, and each family of a dropped
    block is reported once."""
    tb = await SavedTestbench(dut).start()
    wanted = ["saved", "taken", "kept", "adopted", "dropped", "discarded", "ended", "none"]
    if CONFIG.nested:
        wanted += ["lost", "not reserved", "reserved given", "used"]
    for _ in range(60_000):
        await tb.step()
        assert not tb.held & tb.free
        if tb.cycle > 5000 and all(tb.met[kind] >= 10 for kind in wanted):
            break
    assert all(tb.met[kind] >= 10 for kind in wanted), tb.met
    print(tb.met)
    tb.ends = True
    await tb.until(lambda: not (tb.free or tb.lost), "every free place is given")
