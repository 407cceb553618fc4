"""Queue tasks, dependence counters and limited slots: the task unit with rows in Python."""

from typing import Any

import cocotb

from signalbox.hw.errors import Refusal
from signalbox.hw.qmd import SkedCheck
from signalbox.hw.records.launch import LaunchAction
from signalbox.hw.records.memory import MemoryStatus
from signalbox.tb.testbench.contents import Failing
from signalbox.tb.testbench.goals import Rounds
from signalbox.tb.units.task_unit.queue_testbench import CLOSE, WINDOW, Queue, QueueTestbench
from signalbox.tb.units.task_unit.rows import Opened
from signalbox.tb.units.task_unit.task_testbench import ACCEPTED, CONFIG, LOG_SIZE, Task

NO_QUEUE = Refusal.QUEUE
TOO_MUCH = SkedCheck.QUEUE_GET_PUT
ELSEWHERE = SkedCheck.SPAN
DECREMENT = LaunchAction.DECREMENT_DEPENDENCE
UNDERFLOW = SkedCheck.DEPENDENCE


@cocotb.test()
async def appended_while_it_runs(dut: Any) -> None:
    """Blocks run for entries present at the launch, and for entries appended meanwhile
    (ASID-26)."""
    tb = await QueueTestbench(dut, place=0.05, end=0.05).start()
    queue = Queue(1, priority=5, asid=1, size=64, first=3)
    assert await tb.did(tb.ask(queue)) is ACCEPTED
    for _ in range(4):
        assert queue.row is not None
        assert await tb.append(queue, 4) is ACCEPTED
    await tb.until(lambda: queue.taken == 19, "blocks for all entries")
    assert await tb.append(queue, CLOSE) is ACCEPTED
    await tb.finish()
    assert queue.outcome == "ended" and queue.put == 19


@cocotb.test()
async def rests(dut: Any) -> None:
    """A queue without work holds no slot, and continues when entries arrive. Blocks take several
    entries, the last block the remainder (ASID-26)."""
    tb = await QueueTestbench(dut, place=0.5, end=0.5).start()
    queue = Queue(1, priority=5, asid=1, size=16, per_block=4)
    assert await tb.did(tb.ask(queue)) is ACCEPTED
    for count in (3, 6, 2, 7):
        assert await tb.append(queue, count) is ACCEPTED
        await tb.rest(queue)
        await tb.steps(30)
        assert tb.get("empty") and not tb.get("idle"), "an open queue is not idle"
        assert tb.freed(queue) == 4 * (queue.put // 4)
    assert queue.taken == 4
    assert await tb.append(queue, CLOSE) is ACCEPTED
    await tb.finish()
    assert queue.taken == 5 and tb.freed(queue) == 18
    resting = Queue(2, priority=5, asid=2)
    assert await tb.did(tb.ask(resting)) is ACCEPTED
    assert await tb.append(resting, CLOSE) is ACCEPTED
    await tb.finish()
    assert not resting.done


@cocotb.test()
async def more_than_its_size(dut: Any) -> None:
    """The total number of entries is not limited by the queue's size; an append beyond OUTER_GET
    plus the size is refused until OUTER_GET has moved (ASID-26)."""
    tb = await QueueTestbench(dut, place=0.5, end=0.5).start()
    queue = Queue(1, priority=5, asid=1, size=8, per_block=2)
    assert await tb.did(tb.ask(queue)) is ACCEPTED
    while queue.put < 100:
        count = tb.random.randint(1, 8)
        room = tb.freed(queue) + 8 - queue.put
        if await tb.append(queue, count) is not ACCEPTED:
            assert tb.asks[-1].verdict is TOO_MUCH and count > room
            await tb.rest(queue)
            await tb.steps(20)
        else:
            assert queue.put <= tb.freed(queue) + 8
    assert await tb.append(queue, CLOSE) is ACCEPTED
    await tb.finish()
    assert len(queue.done) == -(-queue.put // 2)


SOON = 150
"""Maximum cycles until OUTER_GET follows a queue while nothing else happens."""


async def _running(tb: QueueTestbench, queue: Queue, count: int) -> Opened:
    """Step until `count` blocks of the queue run, and check that no more come. Returns its row."""

    def row() -> Opened | None:
        return None if queue.row is None else tb.rows.rows[queue.row]

    await tb.until(lambda: (one := row()) and len(one.running) == count, f"{count} blocks run")
    await tb.steps(SOON)
    found = row()
    assert found and len(found.running) == count and not found.left
    return found


@cocotb.test()
async def oldest_block(dut: Any) -> None:
    """OUTER_GET follows the oldest unfinished block, in whatever order blocks end. At most a window
    of blocks is placed; others follow as the window moves, without the queue leaving its row
    (ASID-26)."""
    tb = await QueueTestbench(dut, place=1.0, end=0.0).start()
    queue = Queue(1, priority=5, asid=1, size=4 * WINDOW, per_block=2, first=4 * WINDOW)
    assert await tb.did(tb.ask(queue)) is ACCEPTED
    row, freed = await _running(tb, queue, WINDOW), 0
    for oldest in (1, 2, 5, WINDOW, WINDOW + 3, 2 * WINDOW - 1):
        blocks = [one for one in row.running if one < oldest]
        tb.random.shuffle(blocks)
        blocks.remove(row.oldest)
        for block in blocks:
            tb.rows.finish(row, block)
            await tb.steps(tb.random.randint(1, 20))
        await tb.steps(SOON)
        assert tb.freed(queue) == freed, "the oldest has not ended"
        tb.rows.finish(row, row.oldest)
        freed = 2 * oldest
        await tb.until(lambda freed=freed: tb.freed(queue) == freed, "it follows", SOON)
        placed = min(oldest + WINDOW, 2 * WINDOW)
        assert await _running(tb, queue, placed - oldest) is row
    assert await tb.append(queue, CLOSE) is ACCEPTED
    tb.rows.end = 1.0
    await tb.finish()


@cocotb.test()
async def oldest_block_of_a_stopped_queue(dut: Any) -> None:
    """OUTER_GET follows while blocks of a queue without a slot still run (ASID-25, ASID-26)."""
    tb = await QueueTestbench(dut, place=1.0, end=0.0).start()
    queue = Queue(1, priority=1, asid=1, size=64, first=3)
    assert await tb.did(tb.ask(queue)) is ACCEPTED
    row = await _running(tb, queue, 3)
    urgent = [Task(10 + n, priority=9, asid=10 + n, blocks=1) for n in range(CONFIG.slots)]
    for task in urgent:
        assert await tb.did(tb.ask(task)) is ACCEPTED
    await tb.until(lambda: row.stopped, "it is stopped")
    assert await tb.append(queue, 9) is ACCEPTED
    for block in (1, 0):
        assert tb.freed(queue) == 0
        tb.rows.finish(row, block)
        await tb.steps(SOON)
    assert tb.freed(queue) == 2
    assert await tb.append(queue, CLOSE) is ACCEPTED
    tb.rows.end = 0.5
    await tb.finish()
    assert queue.done == list(range(12))


@cocotb.test()
async def kept_full(dut: Any) -> None:
    """A queue whose producer appends as soon as OUTER_GET allows never leaves its row (ASID-26)."""
    tb = await QueueTestbench(dut, place=1.0, end=0.0).start()
    queue, period = Queue(1, priority=5, asid=1, size=4, first=4), 60
    assert await tb.did(tb.ask(queue)) is ACCEPTED
    row = await _running(tb, queue, 4)
    begun, next_end = tb.cycle, tb.cycle
    while queue.put < 60:
        if tb.cycle >= next_end:
            tb.rows.finish(row, row.oldest)
            next_end += period
        if room := tb.freed(queue) + queue.size - queue.put:
            assert await tb.append(queue, room) is ACCEPTED
        await tb.step()
        assert row.running, "it rests"
    print(f"60 entries in {tb.cycle - begun} cycles, up to {tb.lag} until OUTER_GET follows")
    assert await tb.append(queue, CLOSE) is ACCEPTED
    tb.rows.end = 0.5
    await tb.finish()


@cocotb.test()
async def others_go_on(dut: Any) -> None:
    """While queues advance continuously, launches are accepted and tasks get slots."""
    tb = await QueueTestbench(dut, place=1.0, end=0.3).start()
    queues = [Queue(n, priority=5, asid=1 + n, size=256, first=256) for n in range(6)]
    for queue in queues:
        assert await tb.did(tb.ask(queue)) is ACCEPTED
    for number in range(20):
        task = Task(100 + number, priority=6, asid=20 + number, blocks=1)
        begun = tb.cycle
        assert await tb.did(tb.ask(task)) is ACCEPTED
        await tb.until(lambda task=task: task.outcome != "new", "it has a slot", 1000)
        assert tb.cycle - begun < 1000
    assert sum(queue.freed for queue in queues) > 100
    for queue in queues:
        assert await tb.append(queue, CLOSE) is ACCEPTED
    await tb.finish()


@cocotb.test()
async def refused(dut: Any) -> None:
    """An illegal append is refused with its reason and changes nothing."""
    tb = await QueueTestbench(dut, place=0.5, end=0.5).start()
    queue, other = Queue(1, priority=5, asid=1), Queue(2, priority=5, asid=2)
    assert await tb.append(other, 1) is NO_QUEUE
    assert await tb.did(tb.ask(queue)) is ACCEPTED
    assert await tb.did(tb.ask(queue)) is NO_QUEUE, "it is open"
    assert await tb.append(other, 1) is NO_QUEUE
    assert await tb.append(queue, 9) is TOO_MUCH
    assert await tb.append(queue, 1, start=1) is ELSEWHERE
    assert await tb.append(queue, 1, start=7, behind=True) is ACCEPTED
    wrong = Queue(3, priority=5, asid=3, size=7)
    assert await tb.did(tb.ask(wrong)) is SkedCheck.QUEUE_SIZE
    most = CONFIG.queues - CONFIG.contexts + 1
    full = [Queue(10 + n, priority=5, asid=10 + n) for n in range(most)]
    verdicts = [await tb.did(tb.ask(one)) for one in full]
    assert verdicts == [ACCEPTED] * (most - 1) + [NO_QUEUE]
    for one in (queue, *full[:-1]):
        assert await tb.append(one, CLOSE) is ACCEPTED
    assert await tb.append(queue, 1) in (TOO_MUCH, NO_QUEUE), "the queue is closed or over"
    await tb.finish()
    assert len(queue.done) == 1
    assert await tb.did(tb.ask(full[-1])) is ACCEPTED
    assert await tb.append(full[-1], CLOSE) is ACCEPTED
    await tb.finish()


@cocotb.test()
async def places_of_contexts(dut: Any) -> None:
    """A context can always open one queue, regardless of the queues of others (ASID-26)."""
    tb = await QueueTestbench(dut, place=0.5, end=0.5).start()
    most, number = CONFIG.queues - CONFIG.contexts + 1, 0
    opened: list[Queue] = []

    async def opens(context: int) -> bool:
        nonlocal number
        number += 1
        queue = Queue(number, priority=5, asid=number, context=context)
        verdict = await tb.did(tb.ask(queue))
        assert verdict in (ACCEPTED, NO_QUEUE)
        if verdict is ACCEPTED:
            opened.append(queue)
        return verdict is ACCEPTED

    assert [await opens(0) for _ in range(most + 1)] == [True] * most + [False]
    for context in range(1, CONFIG.contexts):
        assert await opens(context) and not await opens(context)
    assert len(opened) == CONFIG.queues
    assert await tb.append(opened[0], CLOSE) is ACCEPTED
    await tb.until(lambda: opened[0].outcome == "ended", "its place is free")
    assert await opens(1), "all other contexts have a queue"
    for queue in opened[1:]:
        assert await tb.append(queue, CLOSE) is ACCEPTED
    await tb.finish()


@cocotb.test()
async def closed_in_any_place(dut: Any) -> None:
    """Resting queues end when they are closed, individually or all at once, at any place in the
    table, and no others do (ASID-26)."""
    tb = await QueueTestbench(dut).start()
    most = CONFIG.queues - CONFIG.contexts + 1
    for number, waits in ((0, True), (100, False)):
        queues = [Queue(number + n, priority=5, channel=0) for n in range(most)]
        for queue in queues:
            assert await tb.did(tb.ask(queue)) is ACCEPTED
        tb.random.shuffle(queues)
        for closed, queue in enumerate(queues, 1):
            assert await tb.append(queue, CLOSE) is ACCEPTED
            if waits:
                await tb.until(lambda one=queue: one.outcome == "ended", "queue over")
                assert sum(one.outcome == "ended" for one in queues) == closed
        await tb.finish()


@cocotb.test()
async def closed_in_absence(dut: Any) -> None:
    """A resting queue ends for its own context, even while another context runs (ASID-26)."""
    tb = await QueueTestbench(dut, place=0.5, end=0.5).start()
    queue = Queue(1, priority=5, asid=1)
    assert await tb.did(tb.ask(queue)) is ACCEPTED
    assert await tb.append(queue, 3) is ACCEPTED
    await tb.rest(queue)
    await _leave(tb, to=1)
    other = Task(2, priority=5, asid=2, context=1)
    assert await tb.did(tb.ask(other)) is ACCEPTED
    assert await tb.append(queue, CLOSE) is ACCEPTED
    await tb.until(lambda: queue.outcome == "ended", "queue over")
    await tb.finish()


@cocotb.test()
async def evicted(dut: Any) -> None:
    """A queue that loses its slot continues where it stopped, with the new entries (ASID-25)."""
    tb = await QueueTestbench(dut, place=0.05, end=0.05).start()
    queue = Queue(1, priority=1, asid=1, size=256, first=40)
    assert await tb.did(tb.ask(queue)) is ACCEPTED
    for turn in range(3):
        tb.rows.place = 0.0
        assert await tb.append(queue, 20) is ACCEPTED
        await tb.until(lambda: queue.row is not None, "it has a slot", 20_000)
        before = queue.stops
        asks = [
            tb.ask(Task(100 * turn + n, priority=9, asid=20 + n, blocks=3))
            for n in range(2 * CONFIG.slots)
        ]
        for ask in asks:
            assert await tb.did(ask) is ACCEPTED
        await tb.until(lambda before=before: queue.stops > before, "it has lost it", 20_000)
        tb.rows.place = 0.05
        for ask in asks:
            await tb.until(lambda task=ask.task: task.outcome == "ended", "urgent ones", 20_000)
            ask.task.asid = 1000
    assert queue.stops >= 3
    assert await tb.append(queue, CLOSE) is ACCEPTED
    await tb.finish()
    assert queue.done == list(range(100))


@cocotb.test()
async def no_room_in_its_list(dut: Any) -> None:
    """If a queue cannot go to its list, the append is refused and can be retried."""
    tb = await QueueTestbench(dut, place=0.0, end=0.5).start()
    queue = Queue(1, priority=4, asid=1)
    assert await tb.did(tb.ask(queue)) is ACCEPTED
    room = (1 << LOG_SIZE) - CONFIG.rows
    for number in range(CONFIG.slots + room):
        ask = tb.ask(Task(100 + number, priority=4, asid=2, blocks=1))
        assert await tb.did(ask) is ACCEPTED
    assert await tb.append(queue, 2) is Refusal.FULL
    assert await tb.append(queue, CLOSE) is ACCEPTED, "closing needs no room"
    await tb.until(lambda: queue.outcome == "ended", "queue over")
    assert not queue.done


@cocotb.test()
async def faulty(dut: Any) -> None:
    """A queue with a failed warp fails, and no other does."""
    tb = await QueueTestbench(dut, place=0.1, end=0.1).start()
    queue, other = (Queue(n, priority=5, asid=n, size=64, first=20) for n in (1, 2))
    for one in (queue, other):
        assert await tb.did(tb.ask(one)) is ACCEPTED
    await tb.until(lambda: queue.row is not None, "it runs")
    queue.faulty = True
    assert queue.row is not None
    tb.drive(fault=1 << queue.row)
    await tb.step()
    tb.drive(fault=0)
    await tb.until(lambda: queue.outcome == "failed", "it failed")
    assert await tb.append(queue, 1) is NO_QUEUE
    assert await tb.append(other, 5) is ACCEPTED
    assert await tb.append(other, CLOSE) is ACCEPTED
    await tb.finish()
    assert other.done == list(range(25)) and len(queue.done) < 20


def _counter(tb: QueueTestbench, task: Task) -> int:
    word = tb.contents.read((task.asid, 0), (task.page << 8) + 16, 8)
    return int.from_bytes(word, "little") >> 14 & 0xFFFF


@cocotb.test()
async def dependence(dut: Any) -> None:
    """A task is launched when its counter reaches 0; a further decrement is an error (HOST-10)."""
    tb = await QueueTestbench(dut, place=0.5, end=0.5).start()
    task = Task(1, priority=5, asid=1, blocks=7, fields={"dependence": 3, "placement": 2})
    assert await tb.did(tb.ask(task)) is UNDERFLOW, "it must be 0 to be scheduled"
    before = task.word
    for left in (2, 1, 0):
        assert await tb.did(tb.ask(task, DECREMENT)) is ACCEPTED
        assert _counter(tb, task) == left
        assert (task in tb.accepted) == (left == 0), "launched too early, or not at all"
    after = tb.contents.read((1, 0), task.page << 8, 256)
    assert int.from_bytes(after, "little") == before ^ 3 << 142, "other bits of the record changed"
    await tb.finish()
    assert await tb.did(tb.ask(task, DECREMENT)) is UNDERFLOW


@cocotb.test()
async def dependence_of_the_next_launch(dut: Any) -> None:
    """After a task has been accepted, its counter may be set for the next launch (HOST-10)."""
    tb = await QueueTestbench(dut, place=0.0, end=0.5).start()
    tasks = [Task(n, priority=5, asid=1 + n, blocks=2) for n in range(CONFIG.slots + 2)]
    for task in tasks:
        assert await tb.did(tb.ask(task)) is ACCEPTED
    for task in tasks:
        task.fields["dependence"] = 3
        tb.know(task)
    tb.rows.place = 0.5
    await tb.finish()
    assert all(task.outcome == "ended" for task in tasks)


@cocotb.test()
async def dependence_refused(dut: Any) -> None:
    """A task that cannot be launched keeps its counter, so that it can be retried."""
    tb = await QueueTestbench(dut, place=0.0, end=0.5).start()
    room = (1 << LOG_SIZE) - CONFIG.rows
    for number in range(CONFIG.slots + room):
        ask = tb.ask(Task(100 + number, priority=4, asid=2, blocks=1))
        assert await tb.did(ask) is ACCEPTED
    task = Task(1, priority=4, asid=1, blocks=7, fields={"dependence": 1})
    tb.know(task)
    assert await tb.did(tb.ask(task, DECREMENT)) is Refusal.FULL
    assert _counter(tb, task) == 1
    tb.rows.place = 0.5
    await tb.until(lambda: tb.accepted[4].outcome == "ended", "room")
    assert await tb.did(tb.ask(task, DECREMENT)) is ACCEPTED
    assert _counter(tb, task) == 0
    await tb.until(lambda: task.outcome == "ended", "it ends", 20_000)


def _unwritable(tb: QueueTestbench, task: Task, status: MemoryStatus) -> None:
    """Make a task's record unwritable."""
    low = task.page << 8
    tb.contents.failing = [Failing((task.asid, 0), range(low, low + 256), status, write=True)]


@cocotb.test()
@cocotb.parametrize(status=[MemoryStatus.BUS, MemoryStatus.FAULT])
async def counter_cannot_be_written(dut: Any, status: MemoryStatus) -> None:
    """If a dependence counter cannot be decremented, this is reported and nothing is launched
    (HOST-10)."""
    tb = await QueueTestbench(dut, place=0.5, end=0.5).start()
    task = Task(1, priority=5, asid=1, blocks=7, fields={"dependence": 1})
    tb.know(task)
    _unwritable(tb, task, status)
    assert await tb.did(tb.ask(task, DECREMENT)) is Refusal[status.name]
    await tb.finish()
    assert task not in tb.accepted and _counter(tb, task) == 1
    tb.contents.failing = []
    assert await tb.did(tb.ask(task, DECREMENT)) is ACCEPTED
    await tb.finish()
    assert task.outcome == "ended"


@cocotb.test()
@cocotb.parametrize(status=[MemoryStatus.BUS, MemoryStatus.FAULT])
async def counter_cannot_be_put_back(dut: Any, status: MemoryStatus) -> None:
    """If a counter cannot be restored after a refusal, the refusal has its original reason, not
    that of the failed write."""
    tb = await QueueTestbench(dut, place=0.0, end=0.5).start()
    for number in range(CONFIG.slots + (1 << LOG_SIZE) - CONFIG.rows):
        ask = tb.ask(Task(100 + number, priority=4, asid=2, blocks=1))
        assert await tb.did(ask) is ACCEPTED
    task = Task(1, priority=4, asid=1, blocks=7, fields={"dependence": 1})
    tb.know(task)
    ask = tb.ask(task, DECREMENT)
    await tb.until(lambda: _counter(tb, task) == 0, "counted down")
    _unwritable(tb, task, status)
    assert await tb.did(ask) is Refusal.FULL
    assert _counter(tb, task) == 0
    tb.rows.place = 0.5
    await tb.finish()


@cocotb.test()
@cocotb.parametrize(status=[MemoryStatus.BUS, MemoryStatus.FAULT])
async def place_cannot_be_written(dut: Any, status: MemoryStatus) -> None:
    """A task that loses its slot fails if its position cannot be written, and no other does
    (ASID-25)."""
    tb = await QueueTestbench(dut, place=0.0, end=0.5).start()
    low = [Task(n, priority=2 + (n > 0), asid=1 + n, blocks=9) for n in range(CONFIG.slots)]
    for task in low:
        assert await tb.did(tb.ask(task)) is ACCEPTED
    _unwritable(tb, low[0], status)
    urgent = Task(90, priority=9, asid=50, blocks=3)
    assert await tb.did(tb.ask(urgent)) is ACCEPTED
    await tb.until(lambda: low[0].outcome == "failed", "it failed")
    assert tb.verdicts[0] is Refusal[status.name] and low[0].stops == 1
    tb.rows.place = 0.5
    await tb.finish()
    assert all(task.outcome == "ended" for task in (urgent, *low[1:]))
    assert not low[0].done


@cocotb.test()
@cocotb.parametrize(status=[MemoryStatus.BUS, MemoryStatus.FAULT])
async def progress_cannot_be_written(dut: Any, status: MemoryStatus) -> None:
    """A queue whose OUTER_GET cannot be written fails, and is no longer open (ASID-26)."""
    tb = await QueueTestbench(dut, place=0.5, end=0.5).start()
    queue, other = (Queue(n, priority=5, asid=n) for n in (1, 2))
    for one in (queue, other):
        assert await tb.did(tb.ask(one)) is ACCEPTED
    _unwritable(tb, queue, status)
    assert await tb.append(queue, 3) is ACCEPTED
    await tb.until(lambda: queue.outcome == "failed", "it failed")
    assert tb.verdicts[1] is Refusal[status.name]
    await tb.until(lambda: queue.row is None, "its row is free")
    assert await tb.append(queue, 1) is NO_QUEUE
    assert await tb.append(other, 5) is ACCEPTED
    assert await tb.append(other, CLOSE) is ACCEPTED
    await tb.finish()
    assert other.outcome == "ended" and len(other.done) == 5


@cocotb.test()
@cocotb.parametrize(status=[MemoryStatus.BUS, MemoryStatus.FAULT], failures=[1, WINDOW - 1, WINDOW])
async def progress_can_be_written_later(dut: Any, status: MemoryStatus, failures: int) -> None:
    """Failed writes of OUTER_GET while blocks run are not reported if OUTER_GET is written when a
    later block ends, even the last one; otherwise they are reported when all have ended
    (ASID-26)."""
    tb = await QueueTestbench(dut, place=1.0, end=0.0).start()
    queue = Queue(1, priority=5, asid=1, size=64, first=WINDOW)
    assert await tb.did(tb.ask(queue)) is ACCEPTED
    row = await _running(tb, queue, WINDOW)
    _unwritable(tb, queue, status)
    for block in range(WINDOW):
        if block == failures:
            tb.contents.failing = []
        assert queue.outcome == "runs"
        tb.rows.finish(row, block)
        await tb.steps(SOON)
        assert tb.freed(queue) == (0 if block < failures else block + 1)
    if failures == WINDOW:
        assert queue.outcome == "failed" and tb.verdicts[1] is Refusal[status.name]
        return
    assert await tb.append(queue, CLOSE) is ACCEPTED
    await tb.finish()
    assert queue.outcome == "ended"


@cocotb.test()
async def limited_slots(dut: Any) -> None:
    """A context's tasks hold no more slots than its limit; limit 0 means all slots (HOST-9)."""
    tb = await QueueTestbench(dut, place=0.0).start()

    async def limit(count: int) -> None:
        tb.limit.send(context=0, count=count)
        await tb.steps(6)

    tb.most = 2
    await limit(2)
    for number in range(CONFIG.slots):
        await tb.did(tb.ask(Task(number, priority=3, asid=1 + number, blocks=4)))
    await tb.steps(100)
    assert len(tb.held) == 2
    await tb.did(tb.ask(Task(99, priority=4, asid=60, blocks=1)))
    await tb.until(lambda: any(t.number == 99 for t in tb.held.values()), "it evicts one")
    tb.most = CONFIG.slots
    await limit(0)
    await tb.until(lambda: len(tb.held) >= CONFIG.slots, "all slots")
    tb.rows.place = 0.5
    await tb.finish()


@cocotb.test()
async def random_queues(dut: Any) -> None:
    """Queues and other tasks are correct, with entries at any time and contexts that leave and
    return."""
    tb = await QueueTestbench(dut, place=0.3, end=0.3).start()
    rng = tb.random
    queues = [
        Queue(
            n,
            priority=rng.choice((1, 5, 9)),
            asid=1 + n,
            size=1 << rng.randint(2, 6),
            per_block=rng.choice((1, 2, 4)),
        )
        for n in range(6)
    ]
    for queue in queues:
        assert await tb.did(tb.ask(queue)) is ACCEPTED
    total, stops, rounds = 0, 0, Rounds(150)
    while rounds.more(total > 100 and stops > 0, (total, stops)):
        if rng.random() < 0.1:
            tb.rows.place = rng.choice((0.03, 0.3))
            _ask_for_many(tb)
        queue = rng.choice(queues)
        verdict = await tb.append(queue, rng.randint(1, queue.size))
        assert verdict in (ACCEPTED, TOO_MUCH)
        if rng.random() < 0.05:
            await _leave(tb)
        await tb.steps(rng.choice((0, 5, 60)))
        total = sum(len(queue.done) for queue in queues)
        stops = sum(queue.stops for queue in queues)
    for queue in queues:
        assert await tb.append(queue, CLOSE) is ACCEPTED
    await tb.finish()
    print(f"{total} blocks of queues, {sum(queue.stops for queue in queues)} evictions")


def _ask_for_many(tb: QueueTestbench) -> None:
    """Launch as many tasks as there are slots, in address spaces without a task."""
    rng = tb.random
    used = {task.asid for task in tb.tasks.values() if task.outcome not in ("ended", "failed")}
    free = [asid for asid in range(8, 58) if asid not in used]
    for asid in free[: CONFIG.slots]:
        number, priority = 50 + len(tb.asks), rng.choice((1, 5, 9))
        tb.ask(Task(number, priority=priority, asid=asid, blocks=rng.randint(1, 20)))


async def _leave(tb: QueueTestbench, to: int = 0) -> None:
    """Make the context leave, then return, or another one enter."""
    tb.drive(leave=1)
    await tb.step()
    await tb.until(lambda: tb.get("empty"), "context has left", 20_000)
    tb.drive(active=0, context=to)
    await tb.steps(2)
    tb.drive(leave=0, active=1)
