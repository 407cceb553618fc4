"""Queue tasks, dependence counters and limited slots: the task unit with rows in Python."""

from typing import Any

import cocotb
from cocotb.triggers import RisingEdge

from signalbox.hw.qmd import SkedCheck
from signalbox.hw.records.launch import LaunchAction, Refusal
from signalbox.hw.records.memory import MemoryStatus
from signalbox.tb.testbench.goals import Rounds
from signalbox.tb.testbench.memory import Bad
from signalbox.tb.units.task_unit.queue_testbench import CLOSE, Queue, QueueBench, begin
from signalbox.tb.units.task_unit.task_testbench import CONFIG, LOG_SIZE, Task

CHECK = Refusal.CHECK.value
NO_QUEUE = Refusal.QUEUE.value
TOO_MUCH = CHECK | SkedCheck.QUEUE_GET_PUT << 4
ELSEWHERE = CHECK | SkedCheck.SPAN << 4
DECREMENT = LaunchAction.DECREMENT_DEPENDENCE
UNDERFLOW = CHECK | SkedCheck.DEPENDENCE << 4


@cocotb.test()
async def appended_while_it_runs(dut: Any) -> None:
    """Blocks run for entries present at the launch, and for entries appended meanwhile
    (ASID-26)."""
    bench = await begin(dut, place=0.05, end=0.05)
    queue = Queue(1, priority=5, asid=1, size=64, first=3)
    assert await bench.did(bench.ask(queue)) == 0
    for _ in range(4):
        assert queue.row is not None
        assert await bench.append(queue, 4) == 0
    assert queue.taken == 19
    assert await bench.append(queue, CLOSE) == 0
    await bench.finish()
    assert queue.outcome == "ended" and queue.put == 19


@cocotb.test()
async def rests(dut: Any) -> None:
    """A queue without work holds no slot, and continues when entries arrive. Blocks take several
    entries, the last one the remainder (ASID-26)."""
    bench = await begin(dut, place=0.5, end=0.5)
    queue = Queue(1, priority=5, asid=1, size=16, per_block=4)
    assert await bench.did(bench.ask(queue)) == 0
    for count in (3, 6, 2, 7):
        assert await bench.append(queue, count) == 0
        await bench.rest(queue)
        for _ in range(30):
            await bench.step()
        assert int(dut.empty.value) and not int(dut.idle.value), "an open queue is not idle"
        assert bench.freed(queue) == 4 * (queue.put // 4)
    assert queue.taken == 4
    assert await bench.append(queue, CLOSE) == 0
    await bench.finish()
    assert queue.taken == 5 and bench.freed(queue) == 18
    resting = Queue(2, priority=5, asid=2)
    assert await bench.did(bench.ask(resting)) == 0
    assert await bench.append(resting, CLOSE) == 0
    await bench.finish()
    assert not resting.done


@cocotb.test()
async def more_than_its_size(dut: Any) -> None:
    """The total is not limited by the queue's size; appending waits for OUTER_GET (ASID-26)."""
    bench = await begin(dut, place=0.5, end=0.5)
    queue = Queue(1, priority=5, asid=1, size=8, per_block=2)
    assert await bench.did(bench.ask(queue)) == 0
    while queue.put < 100:
        count = bench.rng.randint(1, 8)
        room = bench.freed(queue) + 8 - queue.put
        if await bench.append(queue, count):
            assert bench.asks[-1].verdict == TOO_MUCH and count > room
            await bench.rest(queue)
            for _ in range(20):
                await bench.step()
        else:
            assert queue.put <= bench.freed(queue) + 8
    assert await bench.append(queue, CLOSE) == 0
    await bench.finish()
    assert len(queue.done) == -(-queue.put // 2)


@cocotb.test()
async def refused(dut: Any) -> None:
    """An illegal append is refused with its reason and changes nothing."""
    bench = await begin(dut, place=0.5, end=0.5)
    queue, other = Queue(1, priority=5, asid=1), Queue(2, priority=5, asid=2)
    assert await bench.append(other, 1) == NO_QUEUE
    assert await bench.did(bench.ask(queue)) == 0
    assert await bench.did(bench.ask(queue)) == NO_QUEUE, "it is open"
    assert await bench.append(other, 1) == NO_QUEUE
    assert await bench.append(queue, 9) == TOO_MUCH
    assert await bench.append(queue, 1, start=1) == ELSEWHERE
    assert await bench.append(queue, 1, start=7, behind=True) == 0
    wrong = Queue(3, priority=5, asid=3, size=7)
    assert await bench.did(bench.ask(wrong)) == CHECK | SkedCheck.QUEUE_SIZE << 4
    most = CONFIG.queues - CONFIG.contexts + 1
    full = [Queue(10 + n, priority=5, asid=10 + n) for n in range(most)]
    verdicts = [await bench.did(bench.ask(one)) for one in full]
    assert verdicts == [0] * (most - 1) + [NO_QUEUE]
    for one in (queue, *full[:-1]):
        assert await bench.append(one, CLOSE) == 0
    assert await bench.append(queue, 1) in (TOO_MUCH, NO_QUEUE), "the queue is closed or over"
    await bench.finish()
    assert len(queue.done) == 1
    assert await bench.did(bench.ask(full[-1])) == 0
    assert await bench.append(full[-1], CLOSE) == 0
    await bench.finish()


@cocotb.test()
async def places_of_contexts(dut: Any) -> None:
    """A context can always open one queue, regardless of the queues of others (ASID-26)."""
    bench = await begin(dut, place=0.5, end=0.5)
    most, number = CONFIG.queues - CONFIG.contexts + 1, 0
    opened: list[Queue] = []

    async def opens(context: int) -> bool:
        nonlocal number
        number += 1
        queue = Queue(number, priority=5, asid=number, context=context)
        verdict = await bench.did(bench.ask(queue))
        assert verdict in (0, NO_QUEUE)
        if verdict == 0:
            opened.append(queue)
        return verdict == 0

    assert [await opens(0) for _ in range(most + 1)] == [True] * most + [False]
    for context in range(1, CONFIG.contexts):
        assert await opens(context) and not await opens(context)
    assert len(opened) == CONFIG.queues
    assert await bench.append(opened[0], CLOSE) == 0
    await bench.until(lambda: opened[0].outcome == "ended", "its place is free")
    assert await opens(1), "all other contexts have a queue"
    for queue in opened[1:]:
        assert await bench.append(queue, CLOSE) == 0
    await bench.finish()


@cocotb.test()
async def closed_in_any_place(dut: Any) -> None:
    """Resting queues end when they are closed, individually or all at once, at any place in the
    table, and no others do (ASID-26)."""
    bench = await begin(dut)
    most = CONFIG.queues - CONFIG.contexts + 1
    for number, waits in ((0, True), (100, False)):
        queues = [Queue(number + n, priority=5, channel=0) for n in range(most)]
        for queue in queues:
            assert await bench.did(bench.ask(queue)) == 0
        bench.rng.shuffle(queues)
        for closed, queue in enumerate(queues, 1):
            assert await bench.append(queue, CLOSE) == 0
            if waits:
                await bench.until(lambda one=queue: one.outcome == "ended", "queue over")
                assert sum(one.outcome == "ended" for one in queues) == closed
        await bench.finish()


@cocotb.test()
async def closed_in_absence(dut: Any) -> None:
    """A resting queue ends for its own context, also while another one runs (ASID-26)."""
    bench = await begin(dut, place=0.5, end=0.5)
    queue = Queue(1, priority=5, asid=1)
    assert await bench.did(bench.ask(queue)) == 0
    assert await bench.append(queue, 3) == 0
    await bench.rest(queue)
    await _leave(bench, to=1)
    other = Task(2, priority=5, asid=2, context=1)
    assert await bench.did(bench.ask(other)) == 0
    assert await bench.append(queue, CLOSE) == 0
    await bench.until(lambda: queue.outcome == "ended", "queue over")
    await bench.finish()


@cocotb.test()
async def channel_switched_off(dut: Any) -> None:
    """Queues launched by a channel are closed when it is disabled, whether they rest, run or wait;
    a partial block's entries are dropped. Those of other channels remain (ASID-26)."""
    bench = await begin(dut, place=0.01, end=0.3)
    queues = [
        Queue(n, priority=5, asid=n, channel=5, size=64, per_block=per_block, first=count)
        for n, (per_block, count) in enumerate([(4, 0), (2, 3), (8, 9), (1, 10), (16, 40)], 1)
    ]
    queues += [
        Queue(20 + n, priority=4, asid=20 + n, channel=5, size=64, per_block=per_block, first=7)
        for n, per_block in enumerate((8, 2, 4))
    ]
    other = Queue(50, priority=5, asid=50, channel=6, size=64, per_block=4, first=5)
    urgent = [Task(60 + n, priority=9, asid=51 + n, blocks=4) for n in range(CONFIG.slots - 4)]
    for one in (*queues, other, *urgent):
        assert await bench.did(bench.ask(one)) == 0
    bench.switch_off(5)
    late = Queue(8, priority=5, asid=8, channel=5, size=64, per_block=4, first=6)
    assert await bench.did(bench.ask(late)) == 0, "the launch was already in flight"
    bench.switch_off(5)
    bench.rows.place = 0.3
    for queue in (*queues, late):
        await bench.until(
            lambda one=queue: one.outcome == "ended" and one.row is None, f"{queue.number} over"
        )
    assert other.outcome != "ended"
    assert [len(queue.done) for queue in queues] == [0, 1, 1, 10, 2, 0, 3, 1]
    dut.on.value = (1 << CONFIG.channels) - 1
    again = Queue(9, priority=5, asid=9, channel=5)
    assert await bench.did(bench.ask(again)) == 0
    for _ in range(100):
        await bench.step()
    for queue in (other, again):
        assert queue.outcome != "ended"
        assert await bench.append(queue, CLOSE) == 0
    await bench.finish()


@cocotb.test()
async def evicted(dut: Any) -> None:
    """A queue that loses its slot continues where it stopped, with the new entries (ASID-25)."""
    bench = await begin(dut, place=0.05, end=0.05)
    queue = Queue(1, priority=1, asid=1, size=256, first=40)
    assert await bench.did(bench.ask(queue)) == 0
    for turn in range(3):
        await bench.until(lambda: queue.row is not None, "it runs", 20_000)
        asks = [
            bench.ask(Task(100 * turn + n, priority=9, asid=20 + n, blocks=3))
            for n in range(2 * CONFIG.slots)
        ]
        for ask in asks:
            assert await bench.did(ask) == 0
        assert await bench.append(queue, 20) == 0
        for ask in asks:
            await bench.until(lambda task=ask.task: task.outcome == "ended", "urgent ones", 20_000)
            ask.task.asid = 1000
    assert queue.stops
    assert await bench.append(queue, CLOSE) == 0
    await bench.finish()
    assert queue.done == list(range(100))


@cocotb.test()
async def no_room_in_its_list(dut: Any) -> None:
    """If a queue cannot go to its list, the append is refused and can be retried."""
    bench = await begin(dut, place=0.0, end=0.5)
    queue = Queue(1, priority=4, asid=1)
    assert await bench.did(bench.ask(queue)) == 0
    room = (1 << LOG_SIZE) - CONFIG.rows
    for number in range(CONFIG.slots + room):
        ask = bench.ask(Task(100 + number, priority=4, asid=2, blocks=1))
        assert await bench.did(ask) == 0
    assert await bench.append(queue, 2) == Refusal.FULL.value
    assert await bench.append(queue, CLOSE) == 0, "closing needs no room"
    await bench.until(lambda: queue.outcome == "ended", "queue over")
    assert not queue.done


@cocotb.test()
async def faulty(dut: Any) -> None:
    """A queue with a failed warp ends, and no other does."""
    bench = await begin(dut, place=0.1, end=0.1)
    queue, other = (Queue(n, priority=5, asid=n, size=64, first=20) for n in (1, 2))
    for one in (queue, other):
        assert await bench.did(bench.ask(one)) == 0
    await bench.until(lambda: queue.row is not None, "it runs")
    queue.faulty = True
    assert queue.row is not None
    dut.fault.value = 1 << queue.row
    await bench.step()
    dut.fault.value = 0
    await bench.until(lambda: queue.outcome == "failed", "it failed")
    assert await bench.append(queue, 1) == NO_QUEUE
    assert await bench.append(other, 5) == 0
    assert await bench.append(other, CLOSE) == 0
    await bench.finish()
    assert other.done == list(range(25)) and len(queue.done) < 20


def _counter(bench: QueueBench, task: Task) -> int:
    word = bench.contents.read((task.asid, 0), (task.page << 8) + 16, 8)
    return int.from_bytes(word, "little") >> 14 & 0xFFFF


@cocotb.test()
async def dependence(dut: Any) -> None:
    """A task is launched when its counter reaches 0; below that is an error (HOST-10)."""
    bench = await begin(dut, place=0.5, end=0.5)
    task = Task(1, priority=5, asid=1, blocks=7, fields={"dependence": 3, "placement": 2})
    assert await bench.did(bench.ask(task)) == UNDERFLOW, "it must be 0 to be scheduled"
    before = task.word
    for left in (2, 1, 0):
        assert await bench.did(bench.ask(task, DECREMENT)) == 0
        assert _counter(bench, task) == left
        assert (task in bench.accepted) == (left == 0), "launched too early, or not at all"
    after = bench.contents.read((1, 0), task.page << 8, 256)
    assert int.from_bytes(after, "little") == before ^ 3 << 142, "other bits of the record changed"
    await bench.finish()
    assert await bench.did(bench.ask(task, DECREMENT)) == UNDERFLOW


@cocotb.test()
async def dependence_of_the_next_launch(dut: Any) -> None:
    """After a task has been accepted, its counter may be set for the next launch (HOST-10)."""
    bench = await begin(dut, place=0.0, end=0.5)
    tasks = [Task(n, priority=5, asid=1 + n, blocks=2) for n in range(CONFIG.slots + 2)]
    for task in tasks:
        assert await bench.did(bench.ask(task)) == 0
    for task in tasks:
        task.fields["dependence"] = 3
        bench.know(task)
    bench.rows.place = 0.5
    await bench.finish()
    assert all(task.outcome == "ended" for task in tasks)


@cocotb.test()
async def dependence_refused(dut: Any) -> None:
    """A task that cannot be launched keeps its counter, so that it can be retried."""
    bench = await begin(dut, place=0.0, end=0.5)
    room = (1 << LOG_SIZE) - CONFIG.rows
    for number in range(CONFIG.slots + room):
        ask = bench.ask(Task(100 + number, priority=4, asid=2, blocks=1))
        assert await bench.did(ask) == 0
    task = Task(1, priority=4, asid=1, blocks=7, fields={"dependence": 1})
    bench.know(task)
    assert await bench.did(bench.ask(task, DECREMENT)) == Refusal.FULL.value
    assert _counter(bench, task) == 1
    bench.rows.place = 0.5
    await bench.until(lambda: bench.accepted[4].outcome == "ended", "room")
    assert await bench.did(bench.ask(task, DECREMENT)) == 0
    assert _counter(bench, task) == 0
    await bench.until(lambda: task.outcome == "ended", "it ends", 20_000)


def _unwritable(bench: QueueBench, task: Task, status: MemoryStatus) -> None:
    """Make a task's record unwritable."""
    low = task.page << 8
    bench.write.bad = [Bad((task.asid, 0), status.value, range(low, low + 256), True)]


@cocotb.test()
@cocotb.parametrize(status=[MemoryStatus.BUS, MemoryStatus.FAULT])
async def counter_cannot_be_written(dut: Any, status: MemoryStatus) -> None:
    """If a dependence counter cannot be decremented, this is reported and nothing is launched
    (HOST-10)."""
    bench = await begin(dut, place=0.5, end=0.5)
    task = Task(1, priority=5, asid=1, blocks=7, fields={"dependence": 1})
    bench.know(task)
    _unwritable(bench, task, status)
    assert await bench.did(bench.ask(task, DECREMENT)) == Refusal[status.name].value
    await bench.finish()
    assert task not in bench.accepted and _counter(bench, task) == 1
    bench.write.bad = []
    assert await bench.did(bench.ask(task, DECREMENT)) == 0
    await bench.finish()
    assert task.outcome == "ended"


@cocotb.test()
@cocotb.parametrize(status=[MemoryStatus.BUS, MemoryStatus.FAULT])
async def counter_cannot_be_put_back(dut: Any, status: MemoryStatus) -> None:
    """The refusal has the original reason, not that of the failed write."""
    bench = await begin(dut, place=0.0, end=0.5)
    for number in range(CONFIG.slots + (1 << LOG_SIZE) - CONFIG.rows):
        ask = bench.ask(Task(100 + number, priority=4, asid=2, blocks=1))
        assert await bench.did(ask) == 0
    task = Task(1, priority=4, asid=1, blocks=7, fields={"dependence": 1})
    bench.know(task)
    ask = bench.ask(task, DECREMENT)
    await bench.until(lambda: _counter(bench, task) == 0, "counted down")
    _unwritable(bench, task, status)
    assert await bench.did(ask) == Refusal.FULL.value
    assert _counter(bench, task) == 0
    bench.rows.place = 0.5
    await bench.finish()


@cocotb.test()
@cocotb.parametrize(status=[MemoryStatus.BUS, MemoryStatus.FAULT])
async def place_cannot_be_written(dut: Any, status: MemoryStatus) -> None:
    """A task that loses its slot and whose position cannot be written fails, and no other does
    (ASID-25)."""
    bench = await begin(dut, place=0.0, end=0.5)
    low = [Task(n, priority=2 + (n > 0), asid=1 + n, blocks=9) for n in range(CONFIG.slots)]
    for task in low:
        assert await bench.did(bench.ask(task)) == 0
    _unwritable(bench, low[0], status)
    urgent = Task(90, priority=9, asid=50, blocks=3)
    assert await bench.did(bench.ask(urgent)) == 0
    await bench.until(lambda: low[0].outcome == "failed", "it failed")
    assert bench.verdicts[0] == Refusal[status.name].value and low[0].stops == 1
    bench.rows.place = 0.5
    await bench.finish()
    assert all(task.outcome == "ended" for task in (urgent, *low[1:]))
    assert not low[0].done


@cocotb.test()
@cocotb.parametrize(status=[MemoryStatus.BUS, MemoryStatus.FAULT])
async def progress_cannot_be_written(dut: Any, status: MemoryStatus) -> None:
    """A queue whose OUTER_GET cannot be written fails, and is no longer open (ASID-26)."""
    bench = await begin(dut, place=0.5, end=0.5)
    queue, other = (Queue(n, priority=5, asid=n) for n in (1, 2))
    for one in (queue, other):
        assert await bench.did(bench.ask(one)) == 0
    _unwritable(bench, queue, status)
    assert await bench.append(queue, 3) == 0
    await bench.until(lambda: queue.outcome == "failed", "it failed")
    assert bench.verdicts[1] == Refusal[status.name].value
    await bench.until(lambda: queue.row is None, "its row is free")
    assert await bench.append(queue, 1) == NO_QUEUE
    assert await bench.append(other, 5) == 0
    assert await bench.append(other, CLOSE) == 0
    await bench.finish()
    assert other.outcome == "ended" and len(other.done) == 5


@cocotb.test()
async def limited_slots(dut: Any) -> None:
    """A context's tasks hold no more slots than its limit; 0 means all (HOST-9)."""
    bench = await begin(dut, place=0.0)

    async def limit(count: int) -> None:
        dut.limit.value = 1 | 0 << 1 | count << 1 + CONFIG.context_bits
        await RisingEdge(dut.clk)
        dut.limit.value = 0
        for _ in range(5):
            await bench.step()

    bench.most = 2
    await limit(2)
    for number in range(CONFIG.slots):
        await bench.did(bench.ask(Task(number, priority=3, asid=1 + number, blocks=4)))
    for _ in range(100):
        await bench.step()
    assert len(bench.held) == 2
    await bench.did(bench.ask(Task(99, priority=4, asid=60, blocks=1)))
    await bench.until(lambda: any(t.number == 99 for t in bench.held.values()), "it evicts one")
    bench.most = CONFIG.slots
    await limit(0)
    await bench.until(lambda: len(bench.held) >= CONFIG.slots, "all slots")
    bench.rows.place = 0.5
    await bench.finish()


@cocotb.test()
async def random_queues(dut: Any) -> None:
    """Queues and other tasks are correct, with entries at any time and contexts that leave and
    return."""
    bench = await begin(dut, place=0.3, end=0.3)
    rng = bench.rng
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
        assert await bench.did(bench.ask(queue)) == 0
    total, stops, rounds = 0, 0, Rounds(150)
    while rounds.more(total > 100 and stops > 0, (total, stops)):
        number = rounds.number
        if rng.random() < 0.1:
            task = Task(50 + number, priority=rng.choice((1, 5, 9)), asid=8 + number % 50)
            if not any(one.asid == task.asid for one in bench.tasks.values()):
                bench.ask(task)
        queue = rng.choice(queues)
        verdict = await bench.append(queue, rng.randint(1, queue.size))
        assert verdict in (0, TOO_MUCH)
        if rng.random() < 0.05:
            await _leave(bench)
        for _ in range(rng.choice((0, 5, 60))):
            await bench.step()
        total = sum(len(queue.done) for queue in queues)
        stops = sum(queue.stops for queue in queues)
    for queue in queues:
        assert await bench.append(queue, CLOSE) == 0
    await bench.finish()
    print(f"{total} blocks of queues, {sum(queue.stops for queue in queues)} evictions")


async def _leave(bench: QueueBench, to: int = 0) -> None:
    """Make the context leave, then return, or another one enter."""
    bench.dut.leave.value = 1
    await bench.step()
    await bench.until(lambda: int(bench.dut.empty.value), "context has left", 20_000)
    bench.dut.active.value = 0
    bench.dut.context.value = to
    await bench.step()
    bench.dut.leave.value = 0
    bench.dut.active.value = 1
