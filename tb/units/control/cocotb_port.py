"""The control port against its register description (COPY-12, HOST-1, HOST-6)."""

import itertools
import os
import random

import cocotb
from cocotb.triggers import RisingEdge, gather
from cocotbext.axi import AxiResp

from signalbox.hw.config import CONFIGS
from signalbox.hw.control.performance_counters import max_events
from signalbox.hw.records.compute_control import warp_fault
from signalbox.hw.registers import (
    CHANNEL,
    CONTEXT,
    GLOBAL,
    PERFORMANCE,
    REGISTERS,
    SEMAPHORE,
    Access,
    Block,
    address,
    channel_address,
    semaphore_address,
)
from signalbox.tb.testbench.streams import Fields
from signalbox.tb.units.control.testbench import EVENTS, Bench

CONFIG = CONFIGS[os.environ.get("CONFIG", "default")]
ALL = (1 << CONFIG.channels) - 1
OKAY, SLVERR = AxiResp.OKAY, AxiResp.SLVERR
MOVING = ("TIME_0", "TIME_1")


async def begin(dut, density: float = 0, latency: int = 0) -> Bench:
    bench = await Bench(dut, CONFIG).start()
    bench.stress(density, latency)
    return bench


def everything() -> list[tuple[Block, int, str]]:
    """Block, set and name of every register in the first, a middle and the last set."""
    chosen = []
    for block in REGISTERS:
        built = block.built(CONFIG)
        for index in sorted({0, built // 2, built - 1}):
            chosen += [(block, index, register.name) for register in block]
    return chosen


def owner(bench: Bench, block: Block):
    return {"CHANNEL": bench.channel, "SEMAPHORE": bench.semaphore}[block.name]


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def identity_and_reset(dut):
    """Every global register reads its reset value; the halves of wide ones fit together."""
    bench = await begin(dut)
    for register in GLOBAL:
        if register.name not in MOVING:
            value = await bench.read(address(register.name))
            assert value == register.initial(CONFIG), f"{register.name} = {value:#x}"
    assert (await bench.read(0x000)).to_bytes(4, "big") == b"SIGB"
    memory = await bench.read(0x020) | await bench.read(0x024) << 32
    assert memory == CONFIG.memory_bytes
    assert await bench.read(0x030) | await bench.read(0x034) << 32 == 0xFF_FFFF_0000
    assert not dut.irq.value
    assert int(dut.writeback.value) == 1024 and int(dut.counting.value) == 0


@cocotb.test(timeout_time=4, timeout_unit="ms")
async def access_rules(dut):
    """Every register follows its access rule, and addresses in between give errors."""
    bench = await begin(dut, density=0.2, latency=3)
    mapped = {}
    for block in REGISTERS:
        for index in range(block.built(CONFIG)):
            for register in block:
                mapped[block.address(register.name, index)] = register
    places = {block.address(name, index) for block, index, name in everything()}
    places |= {place & 0xFFFC for place in range(0x000, 0x2C0, 4)}
    places |= {random.randrange(0, 1 << 16, 4) for _ in range(60)}
    places |= {0x0FFC, 0x1000, 0x1080, 0x2000, 0x3FFC, 0x4054, 0x7FFC, 0xBFFC, 0xC000, 0xFFFC}
    places |= {0x4000 + CONFIG.channels * 0x100, 0x8000 + CONFIG.semaphores * 16}
    for place in sorted(places, key=lambda _: random.random()):
        register = mapped.get(place)
        seen = len(bench.channel.requests), len(bench.semaphore.requests)
        before, response = await bench.try_read(place)
        assert response == (OKAY if register else SLVERR), f"read of {place:#06x}: {response.name}"
        if register is None:
            assert before == 0
        response = await bench.try_write(place, before)
        accepted = register is not None and register.access is not Access.RO
        assert response == (OKAY if accepted else SLVERR), f"write of {place:#06x}"
        behind = 0x4000 <= place < 0xC000
        passed = (register is not None) + accepted if behind else 0
        now = len(bench.channel.requests), len(bench.semaphore.requests)
        assert sum(now) - sum(seen) == passed, f"{place:#06x} reached another unit"


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def read_only_stays(dut):
    """A refused write changes nothing."""
    bench = await begin(dut)
    for register in GLOBAL:
        if register.access is Access.RO:
            assert await bench.try_write(address(register.name), 0xFFFF_FFFF) == SLVERR
    for register in GLOBAL:
        if register.name not in MOVING:
            assert await bench.read(address(register.name)) == register.initial(CONFIG)
    assert await bench.try_write(channel_address(0, "GP_PUT"), 1) == SLVERR
    assert not bench.channel.requests


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def settings_and_lanes(dut):
    """rw registers store only their fields and accept single bytes."""
    bench = await begin(dut, density=0.2)
    for register in GLOBAL:
        if register.access is not Access.RW:
            continue
        place, value = address(register.name), register.reset or 0
        for lanes in [15, *range(16), *(random.randrange(16) for _ in range(4))]:
            data = 0xFFFF_FFFF if lanes == 15 else random.getrandbits(32)
            bits = sum(0xFF << 8 * lane for lane in range(4) if lanes >> lane & 1)
            value = (value & ~bits | data & bits) & register.mask
            assert await bench.raw_write(place, data, lanes) == OKAY
            assert await bench.read(place) == value, f"{register.name}, lanes {lanes:04b}"
        for field in register.fields:
            await bench.write(place, register.pack(**{field.name: (1 << field.width) - 1}))
            assert await bench.read(place) == field.mask
    await bench.write(address("WRITEBACK"), 0x1234_5678)
    assert int(dut.writeback.value) == 0x1234_5678
    assert await bench.try_write(address("WRITEBACK") + 1, 0xAB, size=1) == OKAY
    assert int(dut.writeback.value) == 0x1234_AB78
    for count in (CONFIG.counters, 1, 0, 127, CONFIG.counters + 1):
        await bench.write(address("SEM_COUNTING"), count)
        await bench.cycles(1)
        assert int(dut.counting.value) == min(count, CONFIG.counters)
        assert await bench.read(address("SEM_COUNTING")) == count


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def doorbells(dut):
    """Valid handles are output in order, invalid ones are ignored, partial words are refused."""
    bench = await begin(dut, density=0.5)
    expected = []
    for _ in range(40):
        runlist = random.choice((0, 0, 0, 1, 64))
        channel = random.choice((random.randrange(CONFIG.channels), random.getrandbits(12)))
        token = GLOBAL["DOORBELL"].pack(CHID=channel, RUNLIST_ID=runlist)
        token |= random.getrandbits(32) & ~GLOBAL["DOORBELL"].mask
        await bench.write(0x090, token)
        if runlist == 0 and channel < CONFIG.channels:
            expected.append(channel)
        assert bench.rung == expected, "answered before the doorbell was taken, or not at all"
    for lanes in range(15):
        assert await bench.raw_write(0x090, 0, lanes) == SLVERR
    assert await bench.read(0x090) == 0
    assert bench.rung == expected
    assert await bench.read(address("DOORBELLS")) == len(expected)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def doorbell_waits(dut):
    """A doorbell that is not accepted delays its response and is held."""
    bench = await begin(dut)
    bench.doorbell_density = 1.0
    write = cocotb.start_soon(bench.write(0x090, CONFIG.channels - 1))
    await bench.cycles(50)
    assert not write.done() and dut.doorbell__valid.value and not bench.rung
    bench.doorbell_density = 0.0
    await write
    assert bench.rung == [CONFIG.channels - 1]


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def interrupts(dut):
    """Sticky bits, their summary and the line are correct; a clear has taken effect at its
    response."""
    bench = await begin(dut)
    kinds = (("NOTIFY", dut.notify), ("COPY", dut.copied))
    for enable in range(8):
        await bench.write(address("INTR_ENABLE"), enable)
        for kind, strobe in kinds:
            bit = GLOBAL["INTR"].field(kind).mask
            mask = random.getrandbits(CONFIG.channels) | 1 << CONFIG.channels - 1
            strobe.value = mask
            await RisingEdge(dut.clk)
            strobe.value = 0
            await RisingEdge(dut.clk)
            assert not dut.irq.value
            await RisingEdge(dut.clk)
            assert bool(dut.irq.value) == bool(enable & bit)
            assert await bench.read(address("INTR")) == bit
            halves = [address(f"INTR_{kind}_{half}") for half in ("LO", "HI")]
            assert await bench.read(halves[0]) | await bench.read(halves[1]) << 32 == mask
            for half, place in enumerate(halves):
                await bench.write(place, 0)
                assert await bench.read(place) == mask >> 32 * half & 0xFFFF_FFFF
            first = mask & 0xFFFF_FFFF & -mask
            await bench.write(halves[0], first)
            assert await bench.read(halves[0]) == mask & 0xFFFF_FFFF & ~first
            for place in halves:
                await bench.write(place, 0xFFFF_FFFF)
            assert not dut.irq.value, "the line is late"
            assert await bench.read(address("INTR")) == 0
        mask = random.getrandbits(CONFIG.channels) | 1
        dut.error.value = mask
        await bench.cycles(4)
        assert bool(dut.irq.value) == bool(enable & 1)
        assert await bench.read(address("INTR")) == 1
        low, high = address("INTR_ERROR_LO"), address("INTR_ERROR_HI")
        assert await bench.read(low) | await bench.read(high) << 32 == mask
        await bench.write(address("INTR_ENABLE"), 0)
        assert not dut.irq.value, "the line is late"
        dut.error.value = 0


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def clears_bytes(dut):
    """A clear affects only the written bytes."""
    bench = await begin(dut)
    dut.notify.value = ALL
    await RisingEdge(dut.clk)
    dut.notify.value = 0
    left = ALL
    for lane in random.sample(range(4), 4):
        assert await bench.raw_write(address("INTR_NOTIFY_LO"), 0xFFFF_FFFF, 1 << lane) == OKAY
        left &= ~(0xFF << 8 * lane)
        assert await bench.read(address("INTR_NOTIFY_LO")) == left & 0xFFFF_FFFF
        assert await bench.read(address("INTR_NOTIFY_HI")) == left >> 32


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def event_beats_clear(dut):
    """An event in the cycle of its clear or later is kept, an earlier one is cleared."""
    bench = await begin(dut)
    place, bit = address("INTR_NOTIFY_LO"), 1
    outcome = []
    for delay in range(10):
        write = cocotb.start_soon(bench.write(place, bit))
        while not (dut.axi__wvalid.value and dut.axi__wready.value):
            await RisingEdge(dut.clk)
        await bench.cycles(delay)
        dut.notify.value = bit
        await RisingEdge(dut.clk)
        dut.notify.value = 0
        await write
        await bench.cycles(2)
        outcome.append(await bench.read(place) & bit)
        await bench.write(place, bit)
        assert await bench.read(place) == 0
    first = outcome.index(1)
    assert outcome == [0] * first + [1] * (len(outcome) - first), outcome
    assert 0 < first < 9, "the race did not occur"
    await bench.write(address("INTR_ENABLE"), GLOBAL["INTR"].pack(NOTIFY=1))
    dut.notify.value = bit
    await bench.cycles(4)
    write = cocotb.start_soon(bench.write(place, bit))
    while not write.done():
        assert dut.irq.value, "the clear won against an event in its cycle"
        await RisingEdge(dut.clk)
    assert await bench.read(place) == bit
    dut.notify.value = 0


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def counters(dut):
    """Every performance counter counts its own event."""
    bench = await begin(dut)
    counts = dict.fromkeys(EVENTS, 0)
    own = {"DOORBELLS", "FAULTS"}
    assert {*(name.upper() for name in EVENTS), *own} == set(PERFORMANCE)
    dut.faults__fault.value = 1
    await bench.cycles(7)
    dut.faults__fault.value = 0
    for _ in range(200):
        for event in EVENTS:
            count = random.randint(0, max_events(CONFIG, event.upper()))
            counts[event] += count
            dut[f"events__{event}"].value = count
        await RisingEdge(dut.clk)
    for event in EVENTS:
        dut[f"events__{event}"].value = 0
    for event, count in counts.items():
        assert await bench.read(address(event.upper())) == count, event
    assert await bench.read(address("FAULTS")) == 7


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def context_registers(dut):
    """Every context has its own settings, accessed only as whole words."""
    bench = await begin(dut)
    kept = {}
    for _ in range(40):
        index, register = random.randrange(CONFIG.contexts), random.choice(CONTEXT.registers)
        place, value = CONTEXT.address(register.name, index), random.getrandbits(32)
        assert await bench.raw_write(place, value, 0b0111) == SLVERR
        await bench.write(place, value)
        kept[place] = value & register.mask
        assert {at: await bench.read(at) for at in kept} == kept
    for index in range(CONFIG.contexts):
        low, high, policy = (
            kept.get(CONTEXT.address(name, index), 0)
            for name in ("INSTANCE_LO", "INSTANCE_HI", "PLACEMENT")
        )
        instance = (high << 32 | low) >> 12
        assert int(dut[f"contexts__{index}"].value) == instance | policy << 28


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def compute_registers(dut):
    """Task lists and slice are output. The engine's reports are shown: the first fault of a warp,
    and lost tasks and broken contexts until they are cleared."""
    bench = await begin(dut)
    base, size = random.getrandbits(37), random.randrange(21)
    await bench.write(address("TASK_LISTS_LO"), base << 12 & 0xFFFF_FFFF)
    await bench.write(address("TASK_LISTS_HI"), base >> 20)
    await bench.write(address("TASK_LISTS_SIZE"), size | 3 << 16)
    await bench.write(address("CONTEXT_SLICE"), 1234)
    asid_bits = CONFIG.asid_bits
    area = (3 & (1 << asid_bits) - 1) | base << asid_bits | size << asid_bits + 37
    assert int(dut.compute__area.value) == area and int(dut.compute__slice.value) == 1234
    dut.compute__active.value = 1
    await bench.cycles(2)
    assert await bench.read(address("TASK_STATE")) == 3
    dut.compute__idle.value = 0
    await bench.cycles(2)
    assert await bench.read(address("TASK_STATE")) == 2
    told = Fields(warp_fault(CONFIG))
    first = {"valid": 1, "cause": 6, "at": 0x1_2345_6789_ABC8, "va": 0x1_0F0F_0F0F_0F0F}
    first |= {"row": 1, "asid": 1 % CONFIG.asids, "sm": 1 % CONFIG.sms}
    for fault in (first, first | {"cause": 2, "va": 0}):
        dut.compute__fault.value = told.pack(fault)
        await RisingEdge(dut.clk)
    dut.compute__fault.value = 0
    dut.compute__lost.value = 1
    await RisingEdge(dut.clk)
    dut.compute__lost.value = 0
    await bench.cycles(2)
    assert await bench.read(address("TASK_STATUS")) == 3
    assert await bench.read(address("INTR")) == GLOBAL["INTR"].pack(TASK=1)
    fields = GLOBAL["WARP_FAULT"].unpack(await bench.read(address("WARP_FAULT")))
    assert fields == {"CAUSE": 6, "SM": first["sm"], "ASID": first["asid"]}
    for name in ("at", "va"):
        low, high = (address(f"WARP_FAULT_{name.upper()}_{half}") for half in ("LO", "HI"))
        assert await bench.read(low) | await bench.read(high) << 32 == first[name]
    await bench.write(address("TASK_STATUS"), 3)
    await bench.cycles(2)
    assert await bench.read(address("TASK_STATUS")) == await bench.read(address("INTR")) == 0
    dut.compute__broken.value = 1
    await bench.cycles(3)
    assert await bench.read(address("CONTEXT_BROKEN")) == 1
    assert await bench.read(address("INTR")) == GLOBAL["INTR"].pack(TASK=1)
    write = cocotb.start_soon(bench.write(address("CONTEXT_BROKEN"), 1))
    mended = 0
    while not write.done():
        mended += int(dut.compute__mend.value)
        await RisingEdge(dut.clk)
    assert mended == 1


def command(operation: int, asid: int, page: int, base: int, limit: int) -> int:
    """The payload of a command, from registers."""
    return operation | asid << 3 | page << 14 | base << 51 | limit << 79


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def translation_commands(dut):
    """MMU_COMMAND offers a command with its arguments at that time. MMU_STATUS is busy until the
    acknowledgement, and shows refusals: of a command during another, and by the MMU."""
    bench = await begin(dut)
    status, place = address("MMU_STATUS"), address("MMU_COMMAND")
    for _ in range(20):
        page, base, limit = (random.getrandbits(bits) for bits in (37, 28, 37))
        for name, value in (("VA", page << 12), ("PDB", base << 12), ("LIMIT", limit << 12)):
            await bench.write(address(f"MMU_{name}_LO"), value & 0xFFFF_FFFF)
            await bench.write(address(f"MMU_{name}_HI"), value >> 32)
        operation, asid = random.randrange(8), random.getrandbits(10)
        await bench.write(place, GLOBAL["MMU_COMMAND"].pack(OPERATION=operation, ASID=asid))
        offered = int(dut.maintain__command__payload.value)
        assert dut.maintain__command__valid.value
        assert offered == command(operation, asid, page, base, limit)
        amid = random.randrange(2)
        if amid:
            await bench.write(address("MMU_VA_LO"), 0)
            await bench.write(place, 0)
            assert await bench.read(status) == 3
        assert int(dut.maintain__command__payload.value) == offered
        dut.maintain__command__ready.value = 1
        await RisingEdge(dut.clk)
        dut.maintain__command__ready.value = 0
        await bench.cycles(2)
        assert not dut.maintain__command__valid.value
        assert await bench.read(status) == 1 | amid << 1
        refused = random.randrange(2)
        dut.maintain__done.value = 1 | refused << 1
        await RisingEdge(dut.clk)
        dut.maintain__done.value = 0
        assert await bench.read(status) == (amid | refused) << 1
        assert await bench.raw_write(place, 0, 0b0111) == SLVERR


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def fault_registers(dut):
    """The registers of the fault buffer reach it and show its state. Its status raises the
    interrupt line, and writing 1 clears only that bit."""
    bench = await begin(dut)
    at, records, get = random.getrandbits(28), random.getrandbits(20), random.getrandbits(20)
    await bench.write(address("FAULT_BUFFER_LO"), at << 12 & 0xFFFF_FFFF)
    await bench.write(address("FAULT_BUFFER_HI"), at >> 20)
    await bench.write(address("FAULT_SIZE"), GLOBAL["FAULT_SIZE"].pack(RECORDS=records, ENABLE=1))
    await bench.write(address("FAULT_GET"), get)
    await bench.cycles(2)
    shown = [int(dut[f"faults__{name}"].value) for name in ("base", "records", "enable", "get")]
    assert shown == [at, records, 1, get]
    put, dropped, record = (random.getrandbits(bits) for bits in (20, 32, 256))
    dut.faults__put.value, dut.faults__dropped.value = put, dropped
    dut.faults__record.value = record
    await bench.cycles(2)
    assert await bench.read(address("FAULT_PUT")) == put
    assert await bench.read(address("FAULT_DROPPED")) == dropped
    words = [await bench.read(address(f"FAULT_RECORD_{word}")) for word in range(8)]
    assert sum(word << 32 * number for number, word in enumerate(words)) == record
    await bench.write(address("INTR_ENABLE"), GLOBAL["INTR"].pack(FAULT=1))
    for status in range(1, 8):
        dut.faults__status.value = status
        await bench.cycles(4)
        assert dut.irq.value and await bench.read(address("FAULT_STATUS")) == status
        assert await bench.read(address("INTR")) == GLOBAL["INTR"].pack(FAULT=1)
        cleared = random.randrange(8)
        write = cocotb.start_soon(bench.write(address("FAULT_STATUS"), cleared))
        strobes = []
        while not write.done():
            await RisingEdge(dut.clk)
            strobes.append(int(dut.faults__clear.value))
        assert [strobe for strobe in strobes if strobe] == ([cleared] if cleared else [])
    dut.faults__status.value = 0
    await bench.cycles(4)
    assert not dut.irq.value
    size, both = address("FAULT_SIZE"), GLOBAL["FAULT_SIZE"].pack(RECORDS=records, ENABLE=1)
    for enable, busy in itertools.product(range(2), repeat=2):
        dut.faults__busy.value = busy
        await bench.write(size, both if enable else records)
        assert int(dut.faults__enable.value) == enable
        assert await bench.read(size) == (both if enable | busy else records)
        assert await bench.raw_write(size, records, 0b0111) == OKAY
        assert int(dut.faults__enable.value) == enable, "the value shown is not the value stored"


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def timer(dut):
    """PTIMER advances by the length of a cycle and can be read."""
    bench = await begin(dut)
    before = int(dut["time"].value)
    await bench.cycles(100)
    assert int(dut["time"].value) - before == 100 * CONFIG.cycle_ns
    for _ in range(5):
        low, now = await bench.read(0x080), int(dut["time"].value)
        assert now - 20 * CONFIG.cycle_ns < low < now
        assert await bench.read(0x084) == 0


@cocotb.test(timeout_time=4, timeout_unit="ms")
async def forwarding(dut):
    """Accesses of channel and semaphore registers reach their owners, with their data, and
    return."""
    bench = await begin(dut, density=0.3, latency=8)
    for block, index, name in everything():
        if block in (GLOBAL, CONTEXT):
            continue
        unit, place = owner(bench, block), block.address(name, index)
        word = (place & 0x3FFF) // 4
        if block is CHANNEL:
            assert word == index * 64 + CHANNEL[name].offset // 4
        else:
            assert word == index * 4 + SEMAPHORE[name].offset // 4
        unit.values[word] = value = random.getrandbits(32)
        assert await bench.read(place) == value
        assert unit.requests.pop()[:2] == (word, False)
        if block[name].access.writable:
            value = random.getrandbits(32)
            await bench.write(place, value)
            assert unit.requests.pop() == (word, True, value)
            for lanes in random.sample(range(15), 3):
                assert await bench.raw_write(place, value, lanes) == SLVERR
        assert not unit.requests


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def answers_apart(dut):
    """A pending response on R delays no write, and one on B no read."""
    bench = await begin(dut)
    read, write = bench.master.read_if, bench.master.write_if
    read.r_channel.pause = True
    stalled = cocotb.start_soon(bench.read(address("ID")))
    await bench.cycles(10)
    for value in range(5):
        await bench.write(address("WRITEBACK"), value)
    assert not stalled.done() and dut.axi__rvalid.value
    read.r_channel.pause = False
    await stalled
    write.b_channel.pause = True
    stalled = cocotb.start_soon(bench.write(address("WRITEBACK"), 77))
    await bench.cycles(10)
    for _ in range(5):
        assert await bench.read(address("WRITEBACK")) == 77
    assert not stalled.done() and dut.axi__bvalid.value
    write.b_channel.pause = False
    await stalled


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def answers_in_order(dut):
    """Accesses that wait behind a pending response are all answered, each with its own data."""
    bench = await begin(dut)
    read, write = bench.master.read_if, bench.master.write_if
    read.r_channel.pause = write.b_channel.pause = True
    names = ("CHANNELS", "ASIDS", "WRITEBACK", "CHANNELS", "ID")
    reads = [cocotb.start_soon(bench.read(address(name))) for name in names]
    writes = [cocotb.start_soon(bench.try_write(address(name), 1024)) for name in names]
    await bench.cycles(60)
    assert not any(task.done() for task in (*reads, *writes))
    read.r_channel.pause = write.b_channel.pause = False
    assert [await task for task in reads] == [GLOBAL[name].initial(CONFIG) for name in names]
    assert [await task for task in writes] == [SLVERR, SLVERR, OKAY, SLVERR, SLVERR]


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def latency(dut):
    """A global register answers 7 cycles after the handshake."""
    bench = await begin(dut)
    for valid, ready, answer, task in (
        (dut.axi__arvalid, dut.axi__arready, dut.axi__rvalid, bench.read(0)),
        (dut.axi__wvalid, dut.axi__wready, dut.axi__bvalid, bench.write(0x104, 0)),
    ):
        running = cocotb.start_soon(task)
        while not (valid.value and ready.value):
            await RisingEdge(dut.clk)
        await bench.cycles(6)
        assert not answer.value
        await bench.cycles(1)
        assert answer.value
        await running


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def in_turn(dut):
    """Waiting reads and writes alternate: neither starves the other."""
    bench = await begin(dut)
    setting = address("WRITEBACK")
    accesses = [cocotb.start_soon(bench.read(setting)) for _ in range(12)]
    accesses += [cocotb.start_soon(bench.write(setting, number)) for number in range(12)]
    order = []
    while not all(access.done() for access in accesses):
        await RisingEdge(dut.clk)
        for kind in ("b", "r"):
            if dut[f"axi__{kind}valid"].value and dut[f"axi__{kind}ready"].value:
                order.append(kind)
    assert len(order) == 24
    assert all(one != other for one, other in itertools.pairwise(order)), order


@cocotb.test(timeout_time=10, timeout_unit="ms")
async def reads_and_writes_at_once(dut):
    """With two independent streams of accesses and back-pressure everywhere, nothing is lost or
    mixed."""
    bench = await begin(dut, density=random.choice((0.0, 0.3, 0.6)), latency=4)
    written = 2 * [0]

    async def writes() -> None:
        for number in range(60):
            slot = random.randrange(CONFIG.semaphores)
            await bench.write(semaphore_address(slot, "PAYLOAD_LO"), number)
            assert bench.semaphore.values[slot * 4] == number
            await bench.write(channel_address(CONFIG.channels - 1, "DATA0"), number)
            written[0] = number

    async def reads() -> None:
        for _ in range(60):
            low = written[0]
            value = await bench.read(channel_address(CONFIG.channels - 1, "DATA0"))
            assert low <= value <= written[0] + 1
            assert await bench.read(address("CHANNELS")) == CONFIG.channels
            response = (await bench.try_read(random.randrange(0x1000, 0x4000, 4)))[1]
            assert response == SLVERR
            written[1] += 1

    await gather(writes(), reads())
    assert written == [59, 60]
    cocotb.log.info("%d cycles", bench.cycle)
