"""Models the rows behind the task unit, whose blocks are placed and end."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from signalbox.hw.config import Config
from signalbox.hw.records.placement import Policy
from signalbox.tb.testbench.clocked import Participant, Testbench
from signalbox.tb.testbench.ends import Sink, Source
from signalbox.tb.testbench.masks import mask

__all__ = ["ENDLESS", "Opened", "Rows"]

Place = tuple[int, int, int]
ENDLESS = ((1 << 32) - 1, 1, 1)
"""The grid of a queue."""


@dataclass
class Opened:
    """An open row, with `left` blocks to be placed, from number `next` on; `running` blocks have
    not ended; `back` blocks were saved and must be placed again; `saved` blocks were saved in this
    row. `stops` : it may have others stopped. `disabled` : SMs that take none of its blocks, one
    bit each. `kept` : its task keeps saved blocks."""

    row: int
    priority: int
    policy: Policy
    asid: int
    grid: Place
    next: int
    left: int
    stops: bool
    disabled: int = 0
    placed: list[int] = field(default_factory=list)
    running: list[int] = field(default_factory=list)
    ended: list[int] = field(default_factory=list)
    back: list[int] = field(default_factory=list)
    saved: list[int] = field(default_factory=list)
    stopped: bool = False
    dropped: bool = False
    """Its saved blocks were withdrawn, too."""
    kept: bool = False

    @property
    def oldest(self) -> int:
        """Number of the first block that has not ended."""
        return min(self.running, default=self.next)


class Rows(Participant):
    """Model of the kernel status register table.

    In each cycle a block of some row is placed with probability `place`, one ends with
    probability `end`, and one of a row that leaves is saved with probability `save`. Hooks are
    called when a row is opened, gets more blocks, is stopped, or is closed; in one cycle in this
    order.

    Members
    -------
    rows : open rows by number.
    lists : lists of saved blocks kept by tasks, by their first places.
    held : blocks that neither end nor are saved, as (row, block).
    full : no save place can be reserved.
    reservations : number of reserved save places.
    """

    def __init__(self, tb: Testbench, config: Config, place: float, end: float) -> None:
        self.place, self.end, self.save = place, end, 0.3
        self.rows: dict[int, Opened] = {}
        self.lists: dict[int, list[int]] = {}
        self.held: set[tuple[int, int]] = set()
        self.full, self.reservations, self._reserved = False, 0, False
        self.opened: Callable[[Opened], None] = lambda row: None
        self.added: Callable[[Opened, int], None] = lambda row, blocks: None
        self.stopped: Callable[[Opened], None] = lambda row: None
        self.closed: Callable[[Opened], None] = lambda row: None
        self._tb, self._all = tb, (1 << config.rows) - 1
        self._window = config.queue_window
        self._over: deque[tuple[int, int]] = deque()
        pace = tb.share(0.8)
        self._stopped = Source(tb, "port__stopped", pace)
        Sink(tb, "port__open", pace, self._open)
        Sink(tb, "port__add", pace, self._add)
        Sink(tb, "port__stop", pace, self._stop)
        Sink(tb, "port__close", pace, self._close)
        self._config = config
        if config.preemption:
            self._kept = Source(tb, "port__kept", pace)
            Sink(tb, "port__keep", pace, self._keep)
            Sink(tb, "port__discard", pace, lambda place: self.lists.pop(place))
        tb.join(self)

    def drive(self, cycle: int) -> None:
        self._work()
        busy = mask(one.row for one in self.rows.values() if one.left or one.running or one.back)
        tells = mask(row for row, _ in self._over)
        self._tb.drive(port__drained=self._all & ~busy & ~tells, port__ended=self._ended())
        if self._config.nested:
            self._tb.drive(port__reserved=self._reserved)

    def sample(self, cycle: int) -> None:
        if not self._config.nested:
            return
        self._reserved = bool(self._tb.get("port__reserve")) and not self.full
        self.reservations += self._reserved - self._tb.get("port__release")

    def finish(self, row: Opened, block: int | None = None) -> None:
        """A running block of the row ends, a random one unless it is given."""
        block = self._tb.random.choice(row.running) if block is None else block
        row.running.remove(block)
        row.ended.append(block)
        self._over.append((row.row, block))

    @property
    def reported(self) -> bool:
        """Whether all ends of blocks have been reported."""
        return not self._over

    def _ended(self) -> dict[str, int]:
        """The next ended block to be reported, one per cycle."""
        if not self._over:
            return {"valid": 0}
        row, block = self._over.popleft()
        return {"valid": 1, "row": row, "number": block % (2 * self._window)}

    def _open(self, word: dict[str, Any]) -> None:
        number = word["row"]
        assert number not in self.rows, "opened twice"
        saved = word.get("saved", {"some": 0})
        back = self.lists.pop(saved["save_place"]) if saved["some"] else []
        assert word["blocks"] > 0 or back
        grid, first = _place(word["grid"]), _place(word["first"])
        row = Opened(
            row=number,
            priority=word["needs"]["priority"],
            policy=word["policy"],
            asid=word["asid"],
            grid=grid,
            next=(first[2] * grid[1] + first[1]) * grid[0] + first[0],
            left=word["blocks"],
            stops=bool(word["needs"]["saves"]),
            disabled=word.get("disabled", 0),
            back=back,
        )
        if grid != ENDLESS and row.left:
            assert row.next + row.left == grid[0] * grid[1] * grid[2]
        self.rows[number] = row
        self._check(row)
        self.opened(row)

    def _add(self, word: dict[str, int]) -> None:
        row = self.rows[word["row"]]
        assert not row.stopped and word["blocks"] > 0
        row.left += word["blocks"]
        self._check(row)
        self.added(row, word["blocks"])

    def _check(self, row: Opened) -> None:
        """Check that the blocks of a queue are close enough to the oldest one to be followed."""
        if row.grid == ENDLESS:
            assert row.next + row.left - row.oldest <= self._window, "too many blocks"

    def _stop(self, number: int) -> None:
        row = self.rows[number]
        drops = self._config.preemption and self._tb.get("port__drops")
        assert not row.stopped or (drops and not row.dropped), "stopped twice"
        (width, height, _), at = row.grid, row.next
        place = {"x": at % width, "y": at // width % height, "z": at // (width * height)}
        self._stopped.put({"row": number, "blocks": row.left, "next": place})
        if not row.stopped:
            self.stopped(row)
        row.stopped, row.left = True, 0
        if drops:
            row.dropped = True
            row.saved, row.back = [*row.saved, *row.back], []

    def _keep(self, number: int) -> None:
        """The saved blocks of a drained row leave it with its task."""
        row = self.rows[number]
        assert row.stopped and not row.running and not row.back
        place = self._tb.random.randrange(self._config.save_places)
        while place in self.lists:
            place = (place + 1) % self._config.save_places
        if row.saved:
            self.lists[place], row.saved, row.kept = row.saved, [], True
            self._kept.put({"some": 1, "save_place": place})
        else:
            self._kept.put({"some": 0, "save_place": place})

    def _close(self, number: int) -> None:
        row = self.rows.pop(number)
        assert not row.left + len(row.running + row.back), "closed before it was drained"
        assert number not in (row for row, _ in self._over)
        self.closed(row)

    def _work(self) -> None:
        """Place a block, end a block, and save a block of a row that leaves."""
        rows, random = list(self.rows.values()), self._tb.random
        ready = [row for row in rows if row.left or row.back]
        if ready and random.random() < self.place:
            row = random.choice(ready)
            if row.back:
                row.running.append(row.back.pop())
            else:
                row.placed.append(row.next)
                row.running.append(row.next)
                row.next, row.left = row.next + 1, row.left - 1
        busy = [row for row in rows if self._free(row)]
        if busy and random.random() < self.end:
            row = random.choice(busy)
            self.finish(row, random.choice(self._free(row)))
        if self._config.preemption:
            leave = self._tb.get("port__leave")
            busy = [row for row in rows if self._free(row) and leave >> row.row & 1]
            assert all(row.stopped for row in busy), "blocks of a row that runs are to leave"
            if busy and random.random() < self.save:
                row = random.choice(busy)
                block = random.choice(self._free(row))
                row.running.remove(block)
                row.saved.append(block)

    def _free(self, row: Opened) -> list[int]:
        """Running blocks of the row that may end or be saved."""
        return [block for block in row.running if (row.row, block) not in self.held]


def _place(word: dict[str, int]) -> Place:
    return word["x"], word["y"], word["z"]
