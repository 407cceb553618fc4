"""The semaphore unit against its model: every operation, racing clients, slow and failing memory.

Sources: spec page 60, 2.1 and 2.2 (HOST-4); COPY-3, COPY-9, COPY-10, COPY-12; page 70 (rates).
"""

from itertools import product

import cocotb

from signalbox.hw.config import WINDOW_BASE
from signalbox.hw.methods import Reduction, SemOp
from signalbox.tb.models.semaphores import ACQUIRES
from signalbox.tb.testbench.sample import some
from signalbox.tb.units.semaphore.testbench import Operation, SemaphoreTestbench, slot

CORNERS = (0, 1, 2, 0x7FFF_FFFF, 0x8000_0000, 0xFFFF_FFFF)
WIDE_CORNERS = (0, 1, 1 << 32, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)
MEMORY = 0x1234_5640


def release(va: int, payload: int, **fields) -> Operation:
    return Operation(va, SemOp.RELEASE, payload, **fields)


def reduction(va: int, kind: int, payload: int, **fields) -> Operation:
    return Operation(va, SemOp.REDUCTION, payload, kind, **fields)


def kinds() -> list[dict]:
    """Every combination of operation, reduction, sign and width, legal or not."""
    reductions = [
        {"operation": SemOp.REDUCTION, "reduction": number, "unsigned": sign}
        for number, sign in product((*Reduction, 8, 15), (False, True))
    ]
    others = [{"operation": number} for number in (*ACQUIRES, SemOp.RELEASE, 7)]
    return [{**kind, "wide": wide} for kind, wide in product(others + reductions, (False, True))]


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def every_operation(dut):
    """HOST-4: every on-chip operation is correct, with wrapping values, by all clients in turn
    (samples; the proof `semaphore.alu` covers all values)."""
    tb = await SemaphoreTestbench(dut).start()
    turn = 0
    for kind in kinds():
        corners = WIDE_CORNERS if kind["wide"] else CORNERS
        for value, payload in tb.random.sample(list(product(corners, corners)), 10):
            client = tb.clients[turn % len(tb.clients)]
            index = turn % len(tb.clients)
            # The high half must not affect 32-bit operations, and must not change.
            high = 0 if kind["wide"] else tb.random.getrandbits(32) << 32
            client.put(release(slot(index), value | high, wide=True))
            high = 0 if kind["wide"] else tb.random.getrandbits(32) << 32
            client.put(Operation(slot(index), payload=payload | high, **kind))
            turn += 1
    await tb.finish()


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def every_operation_in_memory(dut):
    """HOST-4: every operation in memory is correct, at every position within a beat."""
    tb = await SemaphoreTestbench(dut).start()
    for turn, kind in enumerate(kinds()):
        corners = WIDE_CORNERS if kind["wide"] else CORNERS
        size = 8 if kind["wide"] else 4
        for _ in range(3):
            value, payload = tb.random.choice(corners), tb.random.choice(corners)
            va = MEMORY + size * tb.random.randrange(64 // size)
            client = tb.clients[turn % len(tb.clients)]
            client.put(release(va, value, wide=kind["wide"]))
            client.put(Operation(va, payload=payload, **kind))
    await tb.finish()
    tb.compare_memory()


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def timestamps(dut):
    """2.2: bytes 8-15 are the time; a write of 32 bits clears bytes 4-7."""
    tb = await SemaphoreTestbench(dut).start()
    ones = (1 << 64) - 1
    for va in (slot(1), MEMORY + 16):
        for wide in (False, True):
            await tb.do(release(va, ones, wide=True))
            await tb.do(release(va, 5 << 32 | 6, wide=wide, timestamp=True))
            assert tb.model.read(va, 64) == (5 << 32 | 6 if wide else 6)
            await tb.do(release(va, ones, wide=True))
            await tb.do(reduction(va, Reduction.IADD, 3, wide=wide, timestamp=True))
            assert tb.model.read(va, 64) == 2
    # Regardless of how the result is computed.
    for va in (slot(1), MEMORY + 16):
        for kind in kinds():
            if kind["operation"] == SemOp.REDUCTION:
                for low in (0, 1, 5, 0xFFFF_FFFF):
                    await tb.do(release(va, 0xABCD << 32 | low, wide=True))
                    await tb.do(Operation(va, payload=2, timestamp=True, **kind))
                    await tb.access(5)
    for word in range(4):
        await tb.access(4 + word)
    assert tb.model.stamps[1] != 0
    await tb.do(Operation(slot(1) + 0, SemOp.ACQUIRE, timestamp=True))
    tb.compare_memory()


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def refusals(dut):
    """HOST-4, COPY-12: illegal operations are refused with the right error and change nothing."""
    tb = await SemaphoreTestbench(dut).start()
    top = WINDOW_BASE + 0xFFF0
    unbuilt = top if tb.config.semaphores < 4096 else None
    add = {"operation": SemOp.REDUCTION, "reduction": Reduction.IADD, "payload": 1}
    cases = [
        (Operation(slot(0) + 4, **add), "UNKNOWN"),
        (Operation(slot(0) + 1, **add), "UNKNOWN"),
        (Operation(slot(tb.config.semaphores), **add), "UNKNOWN"),
        (Operation(unbuilt, **add), "UNKNOWN"),
        (Operation(WINDOW_BASE - 2, **add), "ALIGNMENT"),
        (Operation(MEMORY + 1, **add), "ALIGNMENT"),
        (Operation(MEMORY + 2, SemOp.ACQUIRE), "ALIGNMENT"),
        (Operation(MEMORY + 4, wide=True, **add), "ALIGNMENT"),
        (Operation(MEMORY + 4, SemOp.ACQUIRE, wide=True), "ALIGNMENT"),
        (Operation(MEMORY + 8, timestamp=True, **add), "ALIGNMENT"),
        (release(MEMORY + 4, 1, timestamp=True), "ALIGNMENT"),
        (Operation(MEMORY + 8, SemOp.ACQUIRE, wide=True, timestamp=True), "NONE"),
        (Operation(WINDOW_BASE + 0x10000, **add), "NONE"),
        (Operation(WINDOW_BASE | 1 << 48, **add), "NONE"),
        (Operation(MEMORY, 7), "UNSUPPORTED"),
        (Operation(slot(0), 7), "UNSUPPORTED"),
        (Operation(slot(0) + 4, 7), "UNSUPPORTED"),
        (reduction(slot(0), 8, 1), "UNSUPPORTED"),
        (reduction(slot(0), Reduction.IADD, 1, wide=True, unsigned=False), "UNSUPPORTED"),
        (reduction(slot(0), Reduction.INC, 1, wide=True), "UNSUPPORTED"),
        (reduction(MEMORY, Reduction.DEC, 1, unsigned=False), "UNSUPPORTED"),
    ]
    for number, (operation, error) in enumerate(cases):
        updates = tb.outputs.updates
        _, got = await tb.do(operation, number % len(tb.clients))
        assert got == error, (operation, got)
        assert tb.outputs.updates == updates


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def counting_semaphores(dut):
    """COPY-12: a counting semaphore neither falls below 0 nor exceeds its width; other semaphores
    wrap."""
    tb = await SemaphoreTestbench(dut).start()
    last = tb.config.counters - 1
    full = (1 << 32) - 1
    for counting in {0, 1, tb.config.counters}:
        tb.count(counting)
        for index in {0, last, min(last + 1, tb.config.semaphores - 1)}:
            counted = index < counting
            below, above = ("UNDERFLOW", "OVERFLOW") if counted else ("NONE", "NONE")
            for value, kind, payload, wide, error in (
                (0, Reduction.DEC, full, False, below),
                (0, Reduction.DEC, 0, False, below),
                (5, Reduction.DEC, 3, False, "NONE"),
                (full, Reduction.INC, full, False, above),
                (3, Reduction.INC, 3, False, above),
                (3, Reduction.INC, 4, False, "NONE"),
                (0, Reduction.IADD, full, False, below),
                (1, Reduction.IADD, full, False, "NONE"),
                (full, Reduction.IADD, 1, False, above),
                (full, Reduction.IADD, 0, False, "NONE"),
                (full, Reduction.IADD, 1, True, "NONE"),
                ((1 << 64) - 1, Reduction.IADD, 1, True, above),
                (1, Reduction.IADD, (1 << 64) - 2, True, below),
                (2, Reduction.IADD, (1 << 64) - 2, True, "NONE"),
                (0, Reduction.IMIN, full, False, "NONE"),
            ):
                await tb.do(release(slot(index), value, wide=True))
                _, got = await tb.do(reduction(slot(index), kind, payload, wide=wide))
                assert got == error, (index, counting, value, kind, payload, wide, got)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def control_port(dut):
    """Every word of every slot is accessible through the window (samples on Icarus); samples of
    unbuilt slots read as 0, and writes to them change nothing."""
    tb = await SemaphoreTestbench(dut).start()
    slots = tb.config.semaphores
    chosen = sorted({0, slots - 1, *some(range(slots), 8), *range(slots, 1024, 61), 1023})
    words = [4 * index + word for index in chosen for word in range(4)]
    contents = [tb.random.getrandbits(32) | 1 for _ in words]
    for word, content in zip(words, contents, strict=True):
        tb.put_access(word, content)
    for word in words:
        tb.put_access(word)
    await tb.until(lambda: len(tb.window_results) == 2 * len(words), "all answers", 200_000)
    pairs = zip(words, contents, strict=True)
    wanted = [content if word < 4 * slots else 0 for word, content in pairs]
    assert tb.window_results[len(words) :] == wanted
    assert (await tb.do(Operation(slot(1), SemOp.ACQUIRE, tb.model.values[1])))[0]


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def rate_and_visibility(dut):
    """Page 70: one operation per cycle is accepted if offered, and visible after 2 cycles, checked
    in every cycle; for the same semaphore, one every second cycle."""
    tb = await SemaphoreTestbench(dut).start()
    count = 100
    offers = len(tb.clients) + 1
    for same in (False, True):
        accepted, offered = len(tb.accepted), len(tb.offered)
        for number, client in enumerate(tb.clients):
            va = slot(0 if same else number)
            client.put(*(reduction(va, Reduction.INC, 0xFFFF_FFFF) for _ in range(count)))
        for _ in range(count):
            tb.put_access(0 if same else 4 * len(tb.clients))
        await tb.steps(count)
        busy = tb.accepted[accepted:]
        if not same:
            assert busy == tb.offered[offered:]
        await tb.finish()
        latency = max(latency for client in tb.clients for latency in client.latencies)
        cocotb.log.info(
            "%d clients and the control port, on %s: %d operations accepted in %d cycles; "
            "response %d cycles after acceptance",
            *(offers - 1, "one semaphore" if same else "their own", len(busy), count, latency),
        )
        assert latency == (4 if same else 3)
        for client in tb.clients:
            assert max(client.waits) <= (2 * offers if same else offers - 1), "not in turn"
    assert tb.model.values[0] == count * offers


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def zero_flags_after_two_cycles(dut):
    """Page 70: zero flags of counting semaphores change within 2 cycles."""
    tb = await SemaphoreTestbench(dut, counting=1).start()
    full = (1 << 32) - 1
    tb.put_access(0, 0)
    tb.put_access(1, 5)
    await tb.finish()
    steps = [
        (release(slot(0), 7), 0),
        (release(slot(0), 0), 1),
        (reduction(slot(0), Reduction.DEC, full), 1),
        (reduction(slot(0), Reduction.IADD, full), 1),
        (reduction(slot(0), Reduction.INC, full), 0),
        (reduction(slot(0), Reduction.DEC, full), 1),
        (reduction(slot(0), Reduction.IADD, 1), 0),
        (reduction(slot(0), Reduction.INC, full), 0),
        (reduction(slot(0), Reduction.IADD, full), 0),
        (reduction(slot(0), Reduction.IADD, full), 1),
    ]
    for operation, zero in steps:
        tb.clients[-1].put(operation)
        before = len(tb.accepted)
        await tb.until(lambda before=before: len(tb.accepted) > before, "acceptance")
        await tb.steps(2)
        assert tb.get("zero") & 1 == zero, operation
        await tb.finish()


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def slow_memory_blocks_nobody(dut):
    """COPY-3: while memory is slow for one client, the on-chip operations of others continue."""
    tb = await SemaphoreTestbench(dut).start()
    tb.memory.latency = 0
    tb.memory.busy = 1.0  # accepts nothing
    tb.clients[-1].put(reduction(MEMORY, Reduction.IADD, 1))
    for client in tb.clients[:-1]:
        client.put(*(reduction(slot(1), Reduction.IADD, 1) for _ in range(50)))
    await tb.steps(100 * len(tb.clients) + 100)
    assert all(client.idle for client in tb.clients[:-1])
    assert tb.clients[-1].waiting is not None
    tb.memory.busy = 0.0
    await tb.finish()
    assert tb.model.read(MEMORY, 32) == 1


def random_operation(
    tb: SemaphoreTestbench, slots: list[int], words: list[int], on_chip: float
) -> Operation:
    random = tb.random
    wide = random.random() < 0.4
    if random.random() < on_chip:
        va = slot(random.choice(slots))
    else:
        va = random.choice(words)
    if random.random() < 0.03:
        va += random.choice([1, 2, 4, 8])
    payload = random.choice([
        random.randrange(4),
        (1 << 64) - random.randrange(1, 4),
        (1 << 32) - random.randrange(1, 4),
        random.getrandbits(64),
    ])
    return Operation(
        va,
        random.choice([SemOp.REDUCTION] * 4 + [SemOp.RELEASE] * 2 + list(ACQUIRES) + [7]),
        payload,
        random.choice([*Reduction, Reduction.IADD, Reduction.IADD, random.randrange(16)]),
        random.random() < 0.8,
        wide,
        random.random() < 0.2,
        random.randrange(tb.config.asids),
    )


async def race(tb: SemaphoreTestbench, count: int, on_chip: float) -> None:
    """All clients and the control port access a few semaphores; then everything is compared."""
    random = tb.random
    slots = [0, 1, tb.config.semaphores - 1]
    words = [MEMORY, MEMORY + 16, MEMORY + 48]
    for client in tb.clients:
        client.eager = random.random() < 0.7
        client.put(*(random_operation(tb, slots, words, on_chip) for _ in range(count)))
    tb.window_eager = random.random() < 0.5
    for _ in range(count // 2):
        address = 4 * random.choice(slots) + random.randrange(4)
        tb.put_access(address, random.choice([None, random.getrandbits(32), 0]))
    await tb.finish()
    for index in slots:
        for word in range(4):
            await tb.access(4 * index + word)
    tb.compare_memory()


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def racing_on_chip(dut):
    """COPY-9: racing operations are atomic; some semaphores are counting ones."""
    tb = await SemaphoreTestbench(dut).start()
    for _ in range(3):
        tb.count(tb.random.randrange(tb.config.counters + 1))
        await race(tb, 100, 1.0)


@cocotb.test(timeout_time=4, timeout_unit="ms")
async def racing_in_memory(dut):
    """COPY-9: racing operations in memory are atomic, with random latency, back-pressure, bus
    errors and faults."""
    tb = await SemaphoreTestbench(dut).start()
    for latency, busy, failing in ((0, 0.0, 0.0), (3, 0.3, 0.0), (20, 0.7, 0.1), (5, 0.2, 0.4)):
        tb.memory.latency, tb.memory.busy = latency, busy
        tb.memory.failing = failing
        await race(tb, 40, 0.4)
