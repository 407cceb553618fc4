"""The control port against its register description (COPY-12, HOST-1, HOST-6)."""

import itertools
import os

import cocotb
from cocotb.triggers import gather
from cocotbext.axi import AxiResp

from signalbox.hw.config import CONFIGS
from signalbox.hw.control.performance_counters import max_events
from signalbox.hw.errors import Refusal
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
from signalbox.hw.runlists import RunlistError
from signalbox.tb.testbench.clocked import Participant
from signalbox.tb.units.control.testbench import EVENTS, ControlTestbench, Owner

CONFIG = CONFIGS[os.environ.get("CONFIG", "default")]
ALL = (1 << CONFIG.channels) - 1
OKAY, SLVERR = AxiResp.OKAY, AxiResp.SLVERR
MOVING = ("TIME_0", "TIME_1")


async def begin(dut, density: float = 0, latency: int = 0) -> ControlTestbench:
    tb = await ControlTestbench(dut, CONFIG).start()
    tb.stress(density, latency)
    return tb


def everything() -> list[tuple[Block, int, str]]:
    """Block, set and name of every register in the first, a middle and the last set."""
    chosen = []
    for block in REGISTERS:
        built = block.built(CONFIG)
        for index in sorted({0, built // 2, built - 1}):
            chosen += [(block, index, register.name) for register in block]
    return chosen


def owner(tb: ControlTestbench, block: Block) -> Owner:
    return {"CHANNEL": tb.channel, "SEMAPHORE": tb.semaphore}[block.name]


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def identity_and_reset(dut):
    """Every global register with a fixed value reads as reset; the halves of wide registers fit
    together."""
    tb = await begin(dut)
    for register in GLOBAL:
        if register.name not in MOVING:
            value = await tb.read(address(register.name))
            assert value == register.initial(CONFIG), f"{register.name} = {value:#x}"
    assert (await tb.read(0x000)).to_bytes(4, "big") == b"SIGB"
    memory = await tb.read(0x020) | await tb.read(0x024) << 32
    assert memory == CONFIG.memory_bytes
    assert await tb.read(0x030) | await tb.read(0x034) << 32 == 0xFF_FFFF_0000
    assert not tb.get("irq")
    assert tb.get("writeback") == 1024 and tb.get("counting") == 0
    assert tb.get("runlist__unit") == 103 and not tb.get("runlist__enable")


@cocotb.test(timeout_time=4, timeout_unit="ms")
async def access_rules(dut):
    """Every register follows its access rule, and addresses in between give errors."""
    tb = await begin(dut, density=0.2, latency=3)
    mapped = {}
    for block in REGISTERS:
        for index in range(block.built(CONFIG)):
            for register in block:
                mapped[block.address(register.name, index)] = register
    places = {block.address(name, index) for block, index, name in everything()}
    places |= {place & 0xFFFC for place in range(0x000, 0x340, 4)}
    places |= {tb.random.randrange(0, 1 << 16, 4) for _ in range(60)}
    places |= {0x0FFC, 0x1000, 0x1080, 0x2000, 0x3FFC, 0x4054, 0x7FFC, 0xBFFC, 0xC000, 0xFFFC}
    places |= {0x4000 + CONFIG.channels * 0x100, 0x8000 + CONFIG.semaphores * 16}
    for place in sorted(places, key=lambda _: tb.random.random()):
        register = mapped.get(place)
        seen = len(tb.channel.requests), len(tb.semaphore.requests)
        before, response = await tb.try_read(place)
        assert response == (OKAY if register else SLVERR), f"read of {place:#06x}: {response.name}"
        if register is None:
            assert before == 0
        response = await tb.try_write(place, before)
        accepted = register is not None and register.access is not Access.RO
        assert response == (OKAY if accepted else SLVERR), f"write of {place:#06x}"
        behind = 0x4000 <= place < 0xC000
        passed = (register is not None) + accepted if behind else 0
        now = len(tb.channel.requests), len(tb.semaphore.requests)
        assert sum(now) - sum(seen) == passed, f"{place:#06x} reached another unit"


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def read_only_stays(dut):
    """A refused write changes nothing."""
    tb = await begin(dut)
    for register in GLOBAL:
        if register.access is Access.RO:
            assert await tb.try_write(address(register.name), 0xFFFF_FFFF) == SLVERR
    for register in GLOBAL:
        if register.name not in MOVING:
            assert await tb.read(address(register.name)) == register.initial(CONFIG)
    assert await tb.try_write(channel_address(0, "GP_PUT"), 1) == SLVERR
    assert not tb.channel.requests


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def settings_and_lanes(dut):
    """rw registers store only their fields and accept single bytes."""
    tb = await begin(dut, density=0.2)
    for register in GLOBAL:
        if register.access is not Access.RW:
            continue
        place, value = address(register.name), register.reset or 0
        for lanes in [15, *range(16), *(tb.random.randrange(16) for _ in range(4))]:
            data = 0xFFFF_FFFF if lanes == 15 else tb.random.getrandbits(32)
            bits = sum(0xFF << 8 * lane for lane in range(4) if lanes >> lane & 1)
            value = (value & ~bits | data & bits) & register.stored(CONFIG)
            assert await tb.raw_write(place, data, lanes) == OKAY
            assert await tb.read(place) == value, f"{register.name}, lanes {lanes:04b}"
        for field in register.fields:
            await tb.write(place, register.pack(**{field.name: (1 << field.width) - 1}))
            assert await tb.read(place) == field.mask & register.stored(CONFIG)
    await tb.write(address("WRITEBACK"), 0x1234_5678)
    assert tb.get("writeback") == 0x1234_5678
    assert await tb.try_write(address("WRITEBACK") + 1, 0xAB, size=1) == OKAY
    assert tb.get("writeback") == 0x1234_AB78
    for count in (CONFIG.counters, 1, 0, 127, CONFIG.counters + 1):
        await tb.write(address("SEM_COUNTING"), count)
        await tb.steps()
        assert tb.get("counting") == min(count, CONFIG.counters)
        assert await tb.read(address("SEM_COUNTING")) == count


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def doorbells(dut):
    """Valid handles are output in order, invalid ones are ignored, partial words are refused."""
    tb = await begin(dut, density=0.5)
    expected = []
    for _ in range(40):
        runlist = tb.random.choice((0, 0, 0, 1, 64))
        channel = tb.random.choice((
            tb.random.randrange(CONFIG.channels),
            tb.random.getrandbits(12),
        ))
        token = GLOBAL["DOORBELL"].pack(CHID=channel, RUNLIST_ID=runlist)
        token |= tb.random.getrandbits(32) & ~GLOBAL["DOORBELL"].mask
        await tb.write(0x090, token)
        if runlist == 0 and channel < CONFIG.channels:
            expected.append(channel)
        assert tb.rung == expected, "answered before the doorbell was taken, or not at all"
    for lanes in range(15):
        assert await tb.raw_write(0x090, 0, lanes) == SLVERR
    assert await tb.read(0x090) == 0
    assert tb.rung == expected
    assert await tb.read(address("DOORBELLS")) == len(expected)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def doorbell_waits(dut):
    """A doorbell that is not accepted delays its response and is held."""
    tb = await begin(dut)
    tb.doorbell_density = 1.0
    write = cocotb.start_soon(tb.write(0x090, CONFIG.channels - 1))
    await tb.steps(50)
    assert not write.done() and tb.get("doorbell__valid") and not tb.rung
    tb.doorbell_density = 0.0
    await write
    assert tb.rung == [CONFIG.channels - 1]


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def interrupts(dut):
    """Sticky bits, their summary and the line are correct; a clear has taken effect at its
    response."""
    tb = await begin(dut)
    kinds = (("NOTIFY", "notify"), ("COPY", "copied"))
    for enable in range(8):
        await tb.write(address("INTR_ENABLE"), enable)
        for kind, strobe in kinds:
            bit = GLOBAL["INTR"].field(kind).mask
            mask = tb.random.getrandbits(CONFIG.channels) | 1 << CONFIG.channels - 1
            tb.drive(**{strobe: mask})
            await tb.steps()
            tb.drive(**{strobe: 0})
            await tb.steps()
            assert not tb.get("irq")
            await tb.steps()
            assert tb.get("irq") == bool(enable & bit)
            assert await tb.read(address("INTR")) == bit
            halves = [address(f"INTR_{kind}_{half}") for half in ("LO", "HI")]
            assert await tb.read(halves[0]) | await tb.read(halves[1]) << 32 == mask
            for half, place in enumerate(halves):
                await tb.write(place, 0)
                assert await tb.read(place) == mask >> 32 * half & 0xFFFF_FFFF
            first = mask & 0xFFFF_FFFF & -mask
            await tb.write(halves[0], first)
            assert await tb.read(halves[0]) == mask & 0xFFFF_FFFF & ~first
            for place in halves:
                await tb.write(place, 0xFFFF_FFFF)
            assert not tb.get("irq"), "the line is late"
            assert await tb.read(address("INTR")) == 0
        mask = tb.random.getrandbits(CONFIG.channels) | 1
        tb.drive(error=mask)
        await tb.steps(4)
        assert tb.get("irq") == bool(enable & 1)
        assert await tb.read(address("INTR")) == 1
        low, high = address("INTR_ERROR_LO"), address("INTR_ERROR_HI")
        assert await tb.read(low) | await tb.read(high) << 32 == mask
        await tb.write(address("INTR_ENABLE"), 0)
        assert not tb.get("irq"), "the line is late"
        tb.drive(error=0)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def clears_bytes(dut):
    """A clear affects only the written bytes."""
    tb = await begin(dut)
    tb.drive(notify=ALL)
    await tb.steps()
    tb.drive(notify=0)
    left = ALL
    for lane in tb.random.sample(range(4), 4):
        assert await tb.raw_write(address("INTR_NOTIFY_LO"), 0xFFFF_FFFF, 1 << lane) == OKAY
        left &= ~(0xFF << 8 * lane)
        assert await tb.read(address("INTR_NOTIFY_LO")) == left & 0xFFFF_FFFF
        assert await tb.read(address("INTR_NOTIFY_HI")) == left >> 32


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def event_beats_clear(dut):
    """An event in the cycle of its clear or later is kept; an earlier event is cleared."""
    tb = await begin(dut)
    place, bit = address("INTR_NOTIFY_LO"), 1
    outcome = []
    for delay in range(10):
        write = cocotb.start_soon(tb.write(place, bit))
        await tb.until(lambda: tb.get("axi__wvalid") and tb.get("axi__wready"), "write data")
        await tb.steps(delay)
        tb.drive(notify=bit)
        await tb.steps()
        tb.drive(notify=0)
        await write
        await tb.steps(2)
        outcome.append(await tb.read(place) & bit)
        await tb.write(place, bit)
        assert await tb.read(place) == 0
    first = outcome.index(1)
    assert outcome == [0] * first + [1] * (len(outcome) - first), outcome
    assert 0 < first < 9, "the race did not occur"
    await tb.write(address("INTR_ENABLE"), GLOBAL["INTR"].pack(NOTIFY=1))
    tb.drive(notify=bit)
    await tb.steps(4)
    write = cocotb.start_soon(tb.write(place, bit))
    while not write.done():
        assert tb.get("irq"), "the clear won against an event in its cycle"
        await tb.steps()
    assert await tb.read(place) == bit
    tb.drive(notify=0)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def counters(dut):
    """Every performance counter counts its own event."""
    tb = await begin(dut)
    counts = dict.fromkeys(EVENTS, 0)
    own = {"DOORBELLS", "FAULTS"}
    assert {*(name.upper() for name in EVENTS), *own} == set(PERFORMANCE)
    tb.drive(faults__fault=1)
    await tb.steps(7)
    tb.drive(faults__fault=0)
    for _ in range(200):
        for event in EVENTS:
            count = tb.random.randint(0, max_events(CONFIG, event.upper()))
            counts[event] += count
            tb.drive(**{f"events__{event}": count})
        await tb.steps()
    for event in EVENTS:
        tb.drive(**{f"events__{event}": 0})
    for event, count in counts.items():
        assert await tb.read(address(event.upper())) == count, event
    assert await tb.read(address("FAULTS")) == 7


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def context_registers(dut):
    """Every context has its own settings, accessed only as whole words."""
    tb = await begin(dut)
    kept = {}
    for _ in range(40):
        index, register = tb.random.randrange(CONFIG.contexts), tb.random.choice(CONTEXT.registers)
        place, value = CONTEXT.address(register.name, index), tb.random.getrandbits(32)
        assert await tb.raw_write(place, value, 0b0111) == SLVERR
        await tb.write(place, value)
        kept[place] = value & register.mask
        assert {at: await tb.read(at) for at in kept} == kept
    for index in range(CONFIG.contexts):
        low, high, policy, save = (
            kept.get(CONTEXT.address(name, index), 0)
            for name in ("INSTANCE_LO", "INSTANCE_HI", "PLACEMENT", "SAVE_AREA")
        )
        setting = {
            "instance": (high << 32 | low) >> 12,
            "placement": policy & 3,
            "nesting": policy >> 8,
            "save_area": save & (1 << 28) - 1,
            "level": save >> 28 & 3,
            "saves": save >> 31,
        }
        assert tb.get(f"contexts__{index}") == setting


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def compute_registers(dut):
    """Task lists, slice and limits are output. The engine's reports are shown: the first fault of a
    warp, and lost tasks and broken contexts until they are cleared."""
    tb = await begin(dut)
    base, size = tb.random.getrandbits(37), tb.random.randrange(21)
    await tb.write(address("TASK_LISTS_LO"), base << 12 & 0xFFFF_FFFF)
    await tb.write(address("TASK_LISTS_HI"), base >> 20)
    await tb.write(address("TASK_LISTS_SIZE"), size | 3 << 16)
    await tb.write(address("CONTEXT_SLICE"), 1234)
    area = {"asid": 3 & (1 << CONFIG.asid_bits) - 1, "base": base, "log_size": size}
    await tb.write(address("CONTEXT_TIMEOUT"), 5678)
    await tb.write(address("CHILD_LIMIT"), 2048)
    assert tb.get("compute__child_limit") == 2048
    assert tb.get("compute__area") == area and tb.get("compute__slice") == 1234
    assert tb.get("compute__timeout") == 5678
    tb.drive(compute__active=1)
    await tb.steps(2)
    assert await tb.read(address("TASK_STATE")) == 3
    tb.drive(compute__idle=0, compute__starting=1)
    await tb.steps(2)
    assert await tb.read(address("TASK_STATE")) == 2 | 1 << 2
    tb.drive(compute__starting=0)
    first = {"valid": 1, "cause": 6, "at": 0x1_2345_6789_ABC8, "va": 0x1_0F0F_0F0F_0F0F}
    first |= {"row": 1, "asid": 1 % CONFIG.asids, "sm": 1 % CONFIG.sms, "index": 37}
    first |= {"block": {"x": 0x8765_4321, "y": 0x1234, "z": 0xABCD}}
    second = first | {"cause": 2, "va": 0, "index": 1, "block": {"x": 1, "y": 2, "z": 3}}
    for fault in (first, second):
        tb.drive(compute__fault=fault)
        await tb.steps()
    tb.drive(compute__fault=0)
    tb.drive(compute__lost=1)
    await tb.steps()
    tb.drive(compute__lost=0)
    await tb.steps(2)
    assert await tb.read(address("TASK_STATUS")) == 3
    assert await tb.read(address("INTR")) == GLOBAL["INTR"].pack(TASK=1)
    fields = GLOBAL["WARP_FAULT"].unpack(await tb.read(address("WARP_FAULT")))
    assert fields == {"CAUSE": 6, "SM": first["sm"], "ASID": first["asid"], "WARP": 37}
    assert await tb.read(address("WARP_FAULT_BLOCK_X")) == 0x8765_4321
    assert await tb.read(address("WARP_FAULT_BLOCK_YZ")) == 0xABCD_1234
    for name in ("at", "va"):
        low, high = (address(f"WARP_FAULT_{name.upper()}_{half}") for half in ("LO", "HI"))
        assert await tb.read(low) | await tb.read(high) << 32 == first[name]
    await tb.write(address("TASK_STATUS"), 3)
    await tb.steps(2)
    assert await tb.read(address("TASK_STATUS")) == await tb.read(address("INTR")) == 0
    tb.drive(compute__broken=1)
    await tb.steps(3)
    assert await tb.read(address("CONTEXT_BROKEN")) == 1
    assert await tb.read(address("INTR")) == GLOBAL["INTR"].pack(TASK=1)
    write = cocotb.start_soon(tb.write(address("CONTEXT_BROKEN"), 1))
    mended = 0
    while not write.done():
        mended += tb.get("compute__mend")
        await tb.steps()
    assert mended == 1


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def refused_children(dut):
    """The first refused child, and the number of refusals, are shown until the status bit is
    cleared (NEST-11). There is no interrupt: the launching warp knows."""
    tb = await begin(dut)
    names = ["CHILD_REFUSED", "CHILD_REFUSED_RECORD", "CHILD_REFUSALS", "TASK_STATUS", "INTR"]
    names.append("CHILD_REFUSED_PARENT")

    async def registers() -> list[int]:
        await tb.steps(2)
        return [await tb.read(address(name)) for name in names]

    assert await registers() == [0] * 6
    for turn in range(3):
        reasons = [
            (Refusal.DEPTH, 0),
            (Refusal.CHECK, tb.random.randrange(64)),
            (Refusal.ROOM, 0),
        ]
        tb.random.shuffle(reasons)
        shown = {}
        for refusal, check in reasons:
            task = {
                "page": tb.random.getrandbits(32),
                "asid": tb.random.getrandbits(10),
                "channel": tb.random.getrandbits(6),
                "depth": tb.random.getrandbits(5),
            }
            verdict = {"refusal": refusal, "check": check}
            parent = {"parent": tb.random.getrandbits(32)}
            shown = shown or {**task, **verdict, **parent}
            tb.drive(compute__refused={"valid": 1, "task": task, "verdict": verdict, **parent})
            await tb.steps()
        tb.drive(compute__refused=0)
        first = GLOBAL["CHILD_REFUSED"].pack(
            REASON=shown["refusal"].value,
            CHECK=shown["check"],
            ASID=shown["asid"],
            DEPTH=shown["depth"],
        )
        count = GLOBAL["CHILD_REFUSALS"].pack(COUNT=3, CHANNEL=shown["channel"])
        expected = [first, shown["page"], count, 4, 0, shown["parent"]]
        assert await registers() == expected, turn
        await tb.write(address("TASK_STATUS"), 3)
        assert (await registers())[2:4] == [count, 4]
        await tb.write(address("TASK_STATUS"), 4)
        found = await registers()
        assert GLOBAL["CHILD_REFUSALS"].unpack(found[2])["COUNT"] == found[3] == 0


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def translation_commands(dut):
    """MMU_COMMAND offers a command with its arguments at that time. MMU_STATUS is busy until the
    acknowledgement, and shows refusals: of a command during another, and by the MMU."""
    tb = await begin(dut)
    status, place = address("MMU_STATUS"), address("MMU_COMMAND")
    payload = tb.ports["maintain__command__payload"]
    for _ in range(20):
        page, base, limit = (tb.random.getrandbits(bits) for bits in (37, 28, 37))
        for name, value in (("VA", page << 12), ("PDB", base << 12), ("LIMIT", limit << 12)):
            await tb.write(address(f"MMU_{name}_LO"), value & 0xFFFF_FFFF)
            await tb.write(address(f"MMU_{name}_HI"), value >> 32)
        operation, asid = tb.random.randrange(8), tb.random.getrandbits(10)
        await tb.write(place, GLOBAL["MMU_COMMAND"].pack(OPERATION=operation, ASID=asid))
        fields = {"page": page, "base": base, "limit": limit}
        wanted = payload.record.pack({"operation": operation, "asid": asid, **fields})
        assert tb.get("maintain__command__valid")
        assert payload.bits() == wanted
        amid = tb.random.randrange(2)
        if amid:
            await tb.write(address("MMU_VA_LO"), 0)
            await tb.write(place, 0)
            assert await tb.read(status) == 3
        assert payload.bits() == wanted
        tb.drive(maintain__command__ready=1)
        await tb.steps()
        tb.drive(maintain__command__ready=0)
        await tb.steps(2)
        assert not tb.get("maintain__command__valid")
        assert await tb.read(status) == 1 | amid << 1
        refused = tb.random.randrange(2)
        tb.drive(maintain__done={"valid": 1, "refused": refused})
        await tb.steps()
        tb.drive(maintain__done=0)
        assert await tb.read(status) == (amid | refused) << 1
        assert await tb.raw_write(place, 0, 0b0111) == SLVERR


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def fault_registers(dut):
    """Registers of the fault buffer reach it and show its state. Its status raises the interrupt
    line, and writing 1 to a bit clears only this bit."""
    tb = await begin(dut)
    at, records, get = (
        tb.random.getrandbits(28),
        tb.random.getrandbits(20),
        tb.random.getrandbits(20),
    )
    await tb.write(address("FAULT_BUFFER_LO"), at << 12 & 0xFFFF_FFFF)
    await tb.write(address("FAULT_BUFFER_HI"), at >> 20)
    await tb.write(address("FAULT_SIZE"), GLOBAL["FAULT_SIZE"].pack(RECORDS=records, ENABLE=1))
    await tb.write(address("FAULT_GET"), get)
    await tb.steps(2)
    shown = [tb.get(f"faults__{name}") for name in ("base", "records", "enable", "get")]
    assert shown == [at, records, 1, get]
    put, dropped, record = (tb.random.getrandbits(bits) for bits in (20, 32, 256))
    tb.drive(faults__put=put, faults__dropped=dropped, faults__record=record)
    await tb.steps(2)
    assert await tb.read(address("FAULT_PUT")) == put
    assert await tb.read(address("FAULT_DROPPED")) == dropped
    words = [await tb.read(address(f"FAULT_RECORD_{word}")) for word in range(8)]
    assert sum(word << 32 * number for number, word in enumerate(words)) == record
    await tb.write(address("INTR_ENABLE"), GLOBAL["INTR"].pack(FAULT=1))
    for status in range(1, 8):
        tb.drive(faults__status=status)
        await tb.steps(4)
        assert tb.get("irq") and await tb.read(address("FAULT_STATUS")) == status
        assert await tb.read(address("INTR")) == GLOBAL["INTR"].pack(FAULT=1)
        cleared = tb.random.randrange(8)
        write = cocotb.start_soon(tb.write(address("FAULT_STATUS"), cleared))
        strobes = []
        while not write.done():
            await tb.steps()
            strobes.append(tb.ports["faults__clear"].bits())
        assert [strobe for strobe in strobes if strobe] == ([cleared] if cleared else [])
    tb.drive(faults__status=0)
    await tb.steps(4)
    assert not tb.get("irq")
    size, both = address("FAULT_SIZE"), GLOBAL["FAULT_SIZE"].pack(RECORDS=records, ENABLE=1)
    for enable, busy in itertools.product(range(2), repeat=2):
        tb.drive(faults__busy=busy)
        await tb.write(size, both if enable else records)
        assert tb.get("faults__enable") == enable
        assert await tb.read(size) == (both if enable | busy else records)
        assert await tb.raw_write(size, records, 0b0111) == OKAY
        assert tb.get("faults__enable") == enable, "the value shown is not the value stored"


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def runlist_submission(dut):
    """A write to any bytes of RUNLIST_SUBMIT submits a list once, at once; writes to other
    registers of the runlist do not. The settings of the runlist are output."""
    tb = await begin(dut)
    submitted: list[dict[str, int]] = []
    Submissions(tb, submitted)
    place, value = address("RUNLIST_SUBMIT"), 0
    for lanes in [15, *range(16)]:
        page = tb.random.getrandbits(28)
        await tb.write(address("RUNLIST_BASE_LO"), page << 12 & 0xFFFF_FFFF)
        await tb.write(address("RUNLIST_BASE_HI"), page >> 20)
        data = tb.random.getrandbits(32)
        bits = sum(0xFF << 8 * lane for lane in range(4) if lanes >> lane & 1)
        value = value & ~bits | data & bits
        assert submitted == []
        assert await tb.raw_write(place, data, lanes) == OKAY
        await tb.steps(2)
        wanted = {"valid": 1, "page": page, "length": value & 0xFFFF, "offset": value >> 16}
        assert submitted == [wanted], f"lanes {lanes:04b}"
        submitted.clear()
        assert await tb.read(place) == value
    for enable, cycles in ((1, 0xFFFF), (0, 0), (1, tb.random.getrandbits(16))):
        pause, scale = cycles & 0xFF, cycles >> 12
        await tb.write(address("RUNLIST_CONTROL"), enable)
        await tb.write(address("RUNLIST_UNIT"), cycles)
        await tb.write(address("RUNLIST_ACQ_PRETEST"), scale << 12 | pause)
        await tb.steps(2)
        assert tb.get("runlist__pretest") == pause << scale
        assert (tb.get("runlist__enable"), tb.get("runlist__unit")) == (enable, cycles)
    await tb.write(address("RUNLIST_STATUS"), 0xFFFF_FFFF)
    assert await tb.try_write(address("RUNLIST_INFO"), value) == SLVERR
    assert submitted == []


class Submissions(Participant):
    """Appends the submissions of runlists to `seen`."""

    def __init__(self, tb: ControlTestbench, seen: list[dict[str, int]]) -> None:
        self._tb, self._seen = tb, seen
        tb.join(self)

    def sample(self, cycle: int) -> None:
        submit = self._tb.get("runlist__submit")
        if submit["valid"]:
            self._seen.append(submit)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def runlist_state(dut):
    """The state of the runlist is shown unchanged."""
    tb = await begin(dut)
    for _ in range(8):
        bits = {"reading": 1, "pending": 1, "running": 1, "tsgid": 12, "groups": 16}
        state = {name: tb.random.getrandbits(width) for name, width in bits.items()}
        tb.drive(runlist__state=state)
        await tb.steps()
        info = GLOBAL["RUNLIST_INFO"].unpack(await tb.read(address("RUNLIST_INFO")))
        turn = GLOBAL["RUNLIST_STATE"].unpack(await tb.read(address("RUNLIST_STATE")))
        assert info | turn == {name.upper(): value for name, value in state.items()}
    assert await tb.read(address("INTR")) == 0


async def runlist_event(tb: ControlTestbench, name: str, **fields: int) -> None:
    """Show an event at an input of the runlist's registers for one cycle, then 0."""
    tb.drive(**{f"runlist__{name}": fields})
    await tb.steps()
    tb.drive(**{f"runlist__{name}": 0})


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def runlist_errors(dut):
    """The first refusal is shown until RUNLIST_STATUS.ERROR is cleared, and then the first one
    after the clear. Clearing other bits changes nothing."""
    tb = await begin(dut)
    status, shown = address("RUNLIST_STATUS"), address("RUNLIST_ERROR")
    assert await tb.read(shown) == 0
    codes = [code for code in RunlistError if code]
    for number, code in enumerate(codes):
        entry = tb.random.getrandbits(16)
        await runlist_event(tb, "refused", valid=1, error=code, entry=entry)
        await runlist_event(tb, "refused", valid=1, error=codes[number - 1], entry=entry ^ 1)
        await runlist_event(tb, "refused", valid=0, error=codes[number - 2], entry=entry ^ 2)
        first = GLOBAL["RUNLIST_ERROR"].pack(CODE=code, ENTRY=entry)
        assert await tb.read(status) == 1 and await tb.read(shown) == first
        await tb.write(status, 0xFFFF_FFFE)
        await runlist_event(tb, "refused", valid=1, error=codes[number - 1], entry=entry ^ 1)
        assert await tb.read(status) == 1 and await tb.read(shown) == first
        await tb.write(status, 1)
        assert await tb.read(status) == 0 and await tb.read(shown) == first


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def runlist_interrupt(dut):
    """Each event sets its own bit of RUNLIST_STATUS. Each bit raises INTR.RUNLIST, and the line if
    enabled, until it is cleared; a clear affects only the bits of the written bytes."""
    tb = await begin(dut)
    status, enabled = GLOBAL["RUNLIST_STATUS"], GLOBAL["INTR"].pack(RUNLIST=1)
    events = {
        "ERROR": ("refused", {"valid": 1, "error": 3}),
        "ACQUIRE": ("acquire", {"valid": 1}),
        "ACQUIRE_AND_ENG_IDLE": ("acquire", {"idle": 1}),
    }
    for enable in (enabled, 0x3F & ~enabled):
        await tb.write(address("INTR_ENABLE"), enable)
        for name, (port, fields) in events.items():
            bit = status.field(name).mask
            await runlist_event(tb, port, **fields)
            await tb.steps(4)
            assert await tb.read(address("RUNLIST_STATUS")) == bit
            assert await tb.read(address("INTR")) == enabled
            assert tb.get("irq") == (enable == enabled)
            await tb.write(address("RUNLIST_STATUS"), 0xFFFF_FFFF & ~bit)
            assert await tb.raw_write(address("RUNLIST_STATUS"), bit, 0b1110) == OKAY
            assert await tb.read(address("RUNLIST_STATUS")) == bit
            await tb.write(address("RUNLIST_STATUS"), bit)
            assert not tb.get("irq"), "the line is late"
            assert await tb.read(address("RUNLIST_STATUS")) == 0
            assert await tb.read(address("INTR")) == 0
    for port, fields in events.values():
        await runlist_event(tb, port, **fields)
    await tb.steps(4)
    left = status.pack(ERROR=1, ACQUIRE=1, ACQUIRE_AND_ENG_IDLE=1)
    for name in tb.random.sample([*events], 3):
        assert await tb.read(address("RUNLIST_STATUS")) == left
        assert await tb.read(address("INTR")) == enabled
        await tb.write(address("RUNLIST_STATUS"), status.field(name).mask)
        left &= ~status.field(name).mask
    assert await tb.read(address("INTR")) == await tb.read(address("RUNLIST_STATUS")) == 0


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def runlist_event_beats_clear(dut):
    """A runlist event in the cycle of its clear or later is kept; an earlier event is cleared. A
    kept refusal counts as the first one."""
    tb = await begin(dut)
    events = (
        ("refused", {"valid": 1, "error": 4, "entry": 44}, 0),
        ("acquire", {"valid": 1}, 6),
        ("acquire", {"idle": 1}, 7),
    )
    place, shown = address("RUNLIST_STATUS"), GLOBAL["RUNLIST_ERROR"]
    for port, fields, number in events:
        outcome = []
        for delay in range(10):
            await runlist_event(tb, "refused", valid=1, error=2, entry=22)
            write = cocotb.start_soon(tb.write(place, 1 << number | 1))
            await tb.until(lambda: tb.get("axi__wvalid") and tb.get("axi__wready"), "write data")
            await tb.steps(delay)
            await runlist_event(tb, port, **fields)
            await write
            await tb.steps(2)
            kept = await tb.read(place) >> number & 1
            outcome.append(kept)
            if port == "refused":
                first = {"CODE": 4, "ENTRY": 44} if kept else {"CODE": 2, "ENTRY": 22}
                assert shown.unpack(await tb.read(address("RUNLIST_ERROR"))) == first
            await tb.write(place, 0xFF)
            assert await tb.read(place) == 0
        first_kept = outcome.index(1)
        assert outcome == [0] * first_kept + [1] * (len(outcome) - first_kept), outcome
        assert 0 < first_kept < 9, "the race did not occur"


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def timer(dut):
    """PTIMER advances by the length of a cycle and can be read."""
    tb = await begin(dut)
    before = tb.get("time")
    await tb.steps(100)
    assert tb.get("time") - before == 100 * CONFIG.cycle_ns
    for _ in range(5):
        low, now = await tb.read(0x080), tb.get("time")
        assert now - 20 * CONFIG.cycle_ns < low < now
        assert await tb.read(0x084) == 0


@cocotb.test(timeout_time=4, timeout_unit="ms")
async def forwarding(dut):
    """Accesses of channel and semaphore registers reach their owners, with their data, and
    return."""
    tb = await begin(dut, density=0.3, latency=8)
    for block, index, name in everything():
        if block in (GLOBAL, CONTEXT):
            continue
        unit, place = owner(tb, block), block.address(name, index)
        word = (place & 0x3FFF) // 4
        if block is CHANNEL:
            assert word == index * 64 + CHANNEL[name].offset // 4
        else:
            assert word == index * 4 + SEMAPHORE[name].offset // 4
        unit.values[word] = value = tb.random.getrandbits(32)
        assert await tb.read(place) == value
        assert unit.requests.pop()[:2] == (word, False)
        if block[name].access.writable:
            value = tb.random.getrandbits(32)
            await tb.write(place, value)
            assert unit.requests.pop() == (word, True, value)
            for lanes in tb.random.sample(range(15), 3):
                assert await tb.raw_write(place, value, lanes) == SLVERR
        assert not unit.requests


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def answers_apart(dut):
    """A pending response on R delays no write, and a pending response on B no read."""
    tb = await begin(dut)
    read, write = tb.master.read_if, tb.master.write_if
    read.r_channel.pause = True
    stalled = cocotb.start_soon(tb.read(address("ID")))
    await tb.steps(10)
    for value in range(5):
        await tb.write(address("WRITEBACK"), value)
    assert not stalled.done() and tb.get("axi__rvalid")
    read.r_channel.pause = False
    await stalled
    write.b_channel.pause = True
    stalled = cocotb.start_soon(tb.write(address("WRITEBACK"), 77))
    await tb.steps(10)
    for _ in range(5):
        assert await tb.read(address("WRITEBACK")) == 77
    assert not stalled.done() and tb.get("axi__bvalid")
    write.b_channel.pause = False
    await stalled


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def answers_in_order(dut):
    """Accesses that wait behind a pending response are all answered, each with its own data."""
    tb = await begin(dut)
    read, write = tb.master.read_if, tb.master.write_if
    read.r_channel.pause = write.b_channel.pause = True
    names = ("CHANNELS", "ASIDS", "WRITEBACK", "CHANNELS", "ID")
    reads = [cocotb.start_soon(tb.read(address(name))) for name in names]
    writes = [cocotb.start_soon(tb.try_write(address(name), 1024)) for name in names]
    await tb.steps(60)
    assert not any(task.done() for task in (*reads, *writes))
    read.r_channel.pause = write.b_channel.pause = False
    assert [await task for task in reads] == [GLOBAL[name].initial(CONFIG) for name in names]
    assert [await task for task in writes] == [SLVERR, SLVERR, OKAY, SLVERR, SLVERR]


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def latency(dut):
    """A global register answers 7 cycles after the handshake."""
    tb = await begin(dut)
    for valid, ready, answer, task in (
        ("arvalid", "arready", "rvalid", tb.read(0)),
        ("wvalid", "wready", "bvalid", tb.write(0x104, 0)),
    ):
        running = cocotb.start_soon(task)
        while not (tb.get(f"axi__{valid}") and tb.get(f"axi__{ready}")):
            await tb.steps()
        await tb.steps(6)
        assert not tb.get(f"axi__{answer}")
        await tb.steps()
        assert tb.get(f"axi__{answer}")
        await running


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def in_turn(dut):
    """Waiting reads and writes alternate: neither starves the other."""
    tb = await begin(dut)
    setting = address("WRITEBACK")
    accesses = [cocotb.start_soon(tb.read(setting)) for _ in range(12)]
    accesses += [cocotb.start_soon(tb.write(setting, number)) for number in range(12)]
    order = []
    while not all(access.done() for access in accesses):
        await tb.steps()
        for kind in ("b", "r"):
            if tb.get(f"axi__{kind}valid") and tb.get(f"axi__{kind}ready"):
                order.append(kind)
    assert len(order) == 24
    assert all(one != other for one, other in itertools.pairwise(order)), order


@cocotb.test(timeout_time=10, timeout_unit="ms")
async def reads_and_writes_at_once(dut):
    """With two independent streams of accesses and back-pressure everywhere, nothing is lost or
    mixed."""
    tb = await begin(dut)
    tb.stress(tb.random.choice((0.0, 0.3, 0.6)), latency=4)
    written = 2 * [0]

    async def writes() -> None:
        for number in range(60):
            slot = tb.random.randrange(CONFIG.semaphores)
            await tb.write(semaphore_address(slot, "PAYLOAD_LO"), number)
            assert tb.semaphore.values[slot * 4] == number
            await tb.write(channel_address(CONFIG.channels - 1, "DATA0"), number)
            written[0] = number

    async def reads() -> None:
        for _ in range(60):
            low = written[0]
            value = await tb.read(channel_address(CONFIG.channels - 1, "DATA0"))
            assert low <= value <= written[0] + 1
            assert await tb.read(address("CHANNELS")) == CONFIG.channels
            response = (await tb.try_read(tb.random.randrange(0x1000, 0x4000, 4)))[1]
            assert response == SLVERR
            written[1] += 1

    await gather(writes(), reads())
    assert written == [59, 60]
    cocotb.log.info("%d cycles", tb.cycle)
