"""Legal and illegal task records, compared with the model."""

import os
from random import Random
from typing import Any

import cocotb
from cocotb.triggers import RisingEdge

from signalbox.hw.records.launch import Refusal
from signalbox.hw.records.memory import MemoryStatus
from signalbox.hw.task_unit.qmd_fetch import qmd_address
from signalbox.tb.models.tasks import FIELDS, Machine, Task, judge, record
from signalbox.tb.testbench.configs import METADATA
from signalbox.tb.testbench.goals import Rounds
from signalbox.tb.testbench.memory import Bad, Memory, ReadMemory
from signalbox.tb.testbench.reset import reset
from signalbox.tb.testbench.streams import Source

CONFIG = METADATA[os.environ["WORK_CONFIG"]]
MACHINE = Machine(CONFIG.sm_warps, CONFIG.sm_registers, CONFIG.sm_shared)
LEGAL = {
    "major": 3,
    "grid_x": 3,
    "grid_y": 2,
    "grid_z": 1,
    "block_x": 32,
    "block_y": 1,
    "block_z": 1,
    "registers": 8,
}
ASID = CONFIG.asids - 1
PAGE = 0xFEDC_BA98
TIMEOUT = 500


class Bench:
    """Testbench with the unit, its memory and its requester."""

    def __init__(self, dut: Any, latency: int = 5) -> None:
        self.dut = dut
        dut.resumed.value = 1
        dut.entered.value = dut.decrements.value = 0
        self.contents, self.cycle = Memory(), 0
        self.ask = Source(dut, "request", qmd_address(CONFIG), lambda: True)
        beats = 256 // CONFIG.beat_bytes
        self.memory = ReadMemory(
            dut, CONFIG, self.contents, lambda: True, lambda: latency, limit=beats
        )

    async def step(self) -> bool:
        """One cycle. Returns whether the request was taken."""
        await RisingEdge(self.dut.clk)
        self.cycle += 1
        self.memory.step(self.cycle)
        return self.ask.step(self.cycle)

    async def read(self, word: int, page: int = PAGE) -> None:
        """Let the unit read a record, and wait until it is done."""
        self.contents.write((ASID, 0), page << 8, word.to_bytes(256, "little"))
        self.ask.put(0, lambda: {"asid": ASID, "page": page})
        for _ in range(TIMEOUT):
            if await self.step():
                break
        for _ in range(TIMEOUT):
            await self.step()
            if int(self.dut.done.value):
                return
        raise AssertionError("no verdict")

    def verdict(self) -> Task | int | None:
        """The result, in the model's form."""
        refusal, check = int(self.dut.verdict.value) & 15, int(self.dut.verdict.value) >> 4
        if refusal == Refusal.CHECK.value:
            return check
        assert check == 0
        if refusal == Refusal.MODEL.value:
            return None
        assert refusal == Refusal.NONE.value, refusal
        needs = int(self.dut.needs.value)
        queue = int(self.dut.record.value) >> FIELDS["is_queue"][0] & 1
        return Task(
            priority=needs & 63,
            barrier=bool(needs >> 6 & 1),
            warps=needs >> 7 & 127,
            registers=needs >> 14 & 127,
            shared=needs >> 21 & 255,
            block_registers=needs >> 29,
            grid=_coordinates(int(self.dut.grid.value)),
            first=(0, 0, 0) if queue else _coordinates(int(self.dut.first.value)),
            blocks=0 if queue else int(self.dut.blocks.value),
        )


def _coordinates(word: int) -> tuple[int, int, int]:
    return word & 0xFFFF_FFFF, word >> 32 & 0xFFFF, word >> 48


async def _compare(bench: Bench, **fields: int) -> Task | int | None:
    word = record(**LEGAL | fields)
    await bench.read(word)
    entered, decrements = int(bench.dut.entered.value), int(bench.dut.decrements.value)
    expected = judge(word, MACHINE, bool(entered), bool(decrements))
    got = bench.verdict()
    assert got == expected, (fields, expected, got)
    assert int(bench.dut.record.value) == word
    return expected


@cocotb.test()
async def every_check(dut: Any) -> None:
    """Each check of a record works on both sides of its limit (PLACE-27)."""
    bench = Bench(dut)
    await reset(dut)
    assert isinstance(await _compare(bench), Task)
    registers = CONFIG.sm_registers // 128
    wrong = {
        2: [{"local_low": 1}, {"local_high": 1 << 23}],
        6: [{"registers": 0}, {"registers": 256}, {"registers": 511}],
        11: [{"block_x": 1025}, {"block_x": 65535, "block_y": 65535, "block_z": 65535}],
        13: [{"program_low": 4}, {"program_low": 1}],
        14: [{"shared": CONFIG.sm_shared + 1}, {"shared": (1 << 18) - 1}],
        16: [{name: 0} for name in ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z")],
        36: [{"dependence": 1}, {"dependence": 1 << 15}],
        24: [{"resume_x": 3}, {"resume_y": 2}, {"resume_z": 1}],
        None: [
            *({name: 1} for name in ("self_copy", "sequential", "second_dependent")),
            {"mask_high": 1},
            *({"major": 2}, {"minor": 1}, {"mask_low": 1 << 31}, {"second_buffer": 1}),
            *({"grid_x": 1 << 31, one: 2} for one in ("grid_y", "grid_z")),
        ],
    }
    if CONFIG.sm_warps < 32:
        wrong[34] = [{"block_x": 32 * CONFIG.sm_warps + 1, "registers": 1}]
    if registers < 64:
        wrong[19] = [{"registers": 4 * registers + 1}]
    for number, cases in wrong.items():
        for fields in cases:
            assert await _compare(bench, **fields) == number, (number, fields)
    most = min(32, CONFIG.sm_warps, registers)
    right = [
        {"block_x": 32 * most, "registers": 4},
        {"block_x": 4, "block_y": 8 * most, "registers": 4},
        {"registers": min(4 * registers, 255), "block_x": 1},
        {"shared": CONFIG.sm_shared},
        {"shared": 1},
        {"program_low": 8, "program_high": (1 << 17) - 1},
        {"resume_x": 2, "resume_y": 1},
        {"grid_x": (1 << 32) - 1, "grid_y": 1, "barriers": 1, "group": 63, "head": 1},
        {"grid_x": 1, "grid_y": 65535, "grid_z": 65535, "resume_y": 65534, "resume_z": 65534},
    ]
    for fields in right:
        assert isinstance(await _compare(bench, **fields), Task), fields
    dut.resumed.value = 0  # a previous resume position does not matter for a new launch
    await bench.read(record(**LEGAL | {"resume_x": 7, "resume_y": 1}))
    task = bench.verdict()
    assert isinstance(task, Task) and task.first == (0, 0, 0) and task.blocks == 6


QUEUE = {"is_queue": 1, "queue_size": 64, "entries_log": 2}


@cocotb.test()
async def queues(dut: Any) -> None:
    """Size and pointers of a queue's record are checked (ASID-26); for an open queue, the machine's
    pointers apply."""
    bench = Bench(dut)
    await reset(dut)
    for fields in ({}, {"inner_put": 64}, {"entries_log": 6}, {"queue_size": 1 << 24}):
        assert isinstance(await _compare(bench, **QUEUE | fields), Task), fields
    pointers = [{"inner_put": 65}, {"inner_get": 1}, {"outer_get": 1 << 30}]
    for fields in pointers:
        assert await _compare(bench, **QUEUE | fields) == 20
        assert isinstance(await _compare(bench, **fields), Task), "no queue"
    for fields in ({"queue_size": 0}, {"queue_size": 65}, {"entries_log": 7}):
        assert await _compare(bench, **QUEUE | fields) == 21
    dut.entered.value = 1
    for fields in pointers:
        assert isinstance(await _compare(bench, **QUEUE | fields), Task), fields


@cocotb.test()
async def dependence(dut: Any) -> None:
    """A counter to be decremented must not be 0; any other must be 0 (HOST-10)."""
    bench = Bench(dut)
    await reset(dut)
    dut.decrements.value = 1
    for count in (1, 2, 65535):
        assert isinstance(await _compare(bench, dependence=count), Task)
    assert await _compare(bench) == 36
    dut.decrements.value, dut.entered.value = 0, 1  # possibly the counter of the next launch
    for count in (0, 1):
        assert isinstance(await _compare(bench, dependence=count), Task)


@cocotb.test()
async def cannot_be_read(dut: Any) -> None:
    """A record that is unmapped or unreadable is refused; the next one is not affected."""
    bench = Bench(dut)
    await reset(dut)
    low = PAGE << 8
    for status, refusal in ((MemoryStatus.FAULT, Refusal.FAULT), (MemoryStatus.BUS, Refusal.BUS)):
        bench.memory.bad = [Bad((ASID, 0), status.value, range(low + 8, low + 9), False)]
        await bench.read(record(**LEGAL))
        assert int(dut.verdict.value) == refusal.value
        bench.memory.bad = []
        assert isinstance(await _compare(bench), Task)


@cocotb.test()
async def latency(dut: Any) -> None:
    """The result is known 3 cycles after the last beat, or 13 after the beat with dword 23."""
    bench = Bench(dut, latency=20)
    await reset(dut)
    await bench.step()
    asked = bench.cycle
    await bench.read(record(**LEGAL))
    beats = 64 // CONFIG.beat_dwords
    needed = max(beats, -(-24 // CONFIG.beat_dwords) + 10)
    took = bench.cycle - asked
    print(f"{beats} beats, latency 20: done after {took} cycles")
    assert took == 20 + 6 + needed, (took, needed)


@cocotb.test()
async def random_records(dut: Any) -> None:
    """Random mixtures of legal and illegal values give the model's result."""
    bench = Bench(dut, latency=1)
    await reset(dut)
    rng = Random(cocotb.RANDOM_SEED)
    kinds = set()
    rounds = Rounds(150)
    while rounds.more("task" in kinds and len(kinds) > 3, kinds):
        fields = {name: rng.randint(1, 40) for name in ("grid_x", "grid_y", "grid_z")}
        fields |= {name: rng.choice((1, 1, 2, 3, 8)) for name in ("block_y", "block_z")}
        fields |= {"block_x": rng.randint(1, 40), "registers": rng.randint(1, 40)}
        fields |= {f"resume_{one}": rng.randrange(fields[f"grid_{one}"]) for one in "xyz"}
        fields |= {"group": rng.randrange(64), "shared": rng.choice((0, 1, 1024, 1025, 2048))}
        for name in rng.sample(sorted(FIELDS), rng.choice((0, 0, 0, 1, 2))):
            fields[name] = rng.getrandbits(rng.randint(1, FIELDS[name][1]))
        expected = await _compare(bench, **fields)
        kinds.add(expected if expected is None or isinstance(expected, int) else "task")
    print(f"verdicts: {sorted(map(str, kinds))}")
