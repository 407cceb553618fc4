"""Legal and illegal task records, compared with the model."""

import os
from dataclasses import asdict, replace
from typing import Any

import cocotb

from signalbox.hw.errors import Refusal
from signalbox.hw.qmd import SkedCheck
from signalbox.hw.records.memory import MemoryStatus
from signalbox.hw.task_unit.qmd_reader import QmdReader
from signalbox.tb.models.tasks import FIELDS, LocalArea, Machine, Task, judge, record
from signalbox.tb.testbench.clocked import Testbench, component
from signalbox.tb.testbench.configs import METADATA
from signalbox.tb.testbench.contents import Contents, Failing
from signalbox.tb.testbench.ends import Source
from signalbox.tb.testbench.goals import Rounds
from signalbox.tb.testbench.servers import ReadServer

CONFIG = METADATA[os.environ["WORK_CONFIG"]]
MACHINE = Machine(
    CONFIG.sm_warps, CONFIG.sm_registers, CONFIG.sm_shared, CONFIG.sms, CONFIG.sm_masks
)
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


class MetadataTestbench(Testbench):
    """The unit and its memory.

    Members
    -------
    request : source of the requests.
    memory : server of the reads.
    area : the channel's local memory.
    """

    timeout = 500

    def __init__(self, dut: Any, latency: int = 5) -> None:
        super().__init__(dut, component(QmdReader, CONFIG))
        self.drive(resumed=1)
        self.area = LocalArea()
        self.request = Source(self, "request")
        beats = 256 // CONFIG.beat_bytes
        self.memory = ReadServer(self, Contents(), latency=lambda: latency, limit=beats)

    async def read(self, word: int) -> None:
        """Let the unit read a record, and wait until it is done."""
        self.drive(local=asdict(self.area))
        self.memory.contents.write((ASID, 0), PAGE << 8, word.to_bytes(256, "little"))
        self.request.put({"asid": ASID, "page": PAGE})
        await self.until(lambda: not self.request.pending, "the request is accepted")
        await self.step()
        await self.until(lambda: self.get("done"), "a verdict")

    @property
    def record(self) -> int:
        """The record, as a number."""
        return int(self.ports["record"].bits())

    def verdict(self) -> Task | int | None:
        """The result, in the model's form."""
        verdict = self.get("verdict")
        if verdict["refusal"] is Refusal.CHECK:
            return verdict["check"]
        assert verdict["check"] is SkedCheck.NONE
        if verdict["refusal"] is Refusal.MODEL:
            return None
        assert verdict["refusal"] is Refusal.NONE, verdict
        queue = self.record >> FIELDS["is_queue"][0] & 1
        needs = self.get("needs")
        assert not needs.pop("saves"), "that is for the context to say"
        return Task(
            **needs,
            grid=_place(self.get("grid")),
            first=(0, 0, 0) if queue else _place(self.get("first")),
            blocks=0 if queue else self.get("blocks"),
        )

    async def compare(self, **fields: int) -> Task | int | None:
        """Read a record with these fields, and compare the result with the model's. Returns it."""
        word = record(**LEGAL | fields)
        await self.read(word)
        entered, decrements = bool(self.get("entered")), bool(self.get("decrements"))
        expected = judge(word, MACHINE, entered, decrements, self.area)
        got = self.verdict()
        assert got == expected, (fields, expected, got)
        assert self.record == word
        return expected


def _place(coordinates: dict[str, int]) -> tuple[int, int, int]:
    return coordinates["x"], coordinates["y"], coordinates["z"]


@cocotb.test()
async def every_check(dut: Any) -> None:
    """Each check of a record works on both sides of its limit (PLACE-27)."""
    tb = await MetadataTestbench(dut).start()
    assert isinstance(await tb.compare(), Task)
    registers = CONFIG.sm_registers // 128
    wrong = {
        2: [{"local_low": 1}, {"local_low": 8, "local_high": 8}],
        3: [{"local_high": 1}, {"local_high": 15, "registers": 0}],
        4: [{"local_low": 16}, {"local_high": 1 << 23}, {"local_high": 16, "registers": 0}],
        6: [{"registers": 0}, {"registers": 256}, {"registers": 511}],
        11: [{"block_x": 1025}, {"block_x": 65535, "block_y": 65535, "block_z": 65535}],
        13: [{"program_low": 4}, {"program_low": 1}],
        14: [{"shared": CONFIG.sm_shared + 1}, {"shared": (1 << 18) - 1}],
        16: [
            *({name: 0} for name in ("block_x", "block_y", "block_z")),
            # A block without threads does not have too many.
            {"block_x": 1025, "block_z": 0},
            {"block_x": 65535, "block_y": 65535, "block_z": 0},
        ],
        36: [{"dependence": 1}, {"dependence": 1 << 15}],
        24: [{"resume_x": 3}, {"resume_y": 2}, {"resume_z": 1}],
        None: [
            *({name: 1} for name in ("self_copy", "sequential", "second_dependent")),
            *({"major": 2}, {"minor": 1}),
            *([] if CONFIG.sm_masks else [{"mask_high": 1}, {"mask_low": 1 << 31}]),
            *({"grid_x": 1 << 31, one: 2} for one in ("grid_y", "grid_z")),
            *({name: 0} for name in ("grid_x", "grid_y", "grid_z")),
            {"grid_x": 0, "block_x": 0},
        ],
    }
    if CONFIG.sm_warps < 32:
        wrong[34] = [{"block_x": 32 * CONFIG.sm_warps + 1, "registers": 1}]
    if registers < 64:
        wrong[19] = [{"registers": 4 * registers + 1}]
    for number, cases in wrong.items():
        for fields in cases:
            assert await tb.compare(**fields) == number, (number, fields)
    most = min(32, CONFIG.sm_warps, registers)
    right = [
        {"block_x": 32 * most, "registers": 4},
        {"block_x": 4, "block_y": 8 * most, "registers": 4},
        {"registers": min(4 * registers, 255), "block_x": 1},
        {"shared": CONFIG.sm_shared},
        {"shared": 1},
        {"further_buffers": 127},
        {"program_low": 8, "program_high": (1 << 17) - 1},
        {"resume_x": 2, "resume_y": 1},
        {"grid_x": (1 << 32) - 1, "grid_y": 1, "barriers": 1, "group": 63, "head": 1},
        {"grid_x": 1, "grid_y": 65535, "grid_z": 65535, "resume_y": 65534, "resume_z": 65534},
    ]
    for fields in right:
        assert isinstance(await tb.compare(**fields), Task), fields
    tb.drive(resumed=0)  # an old resume position does not matter for a new launch
    await tb.read(record(**LEGAL | {"resume_x": 7, "resume_y": 1}))
    task = tb.verdict()
    assert isinstance(task, Task) and task.first == (0, 0, 0) and task.blocks == 6


@cocotb.test()
async def masks(dut: Any) -> None:
    """A machine with masks refuses a mask that disables all its SMs; bits of other SMs have no
    effect. A machine without masks refuses every mask except 0."""
    tb = await MetadataTestbench(dut).start()
    sms, masks = CONFIG.sms, CONFIG.sm_masks
    every, ones = (1 << sms) - 1, (1 << 64) - 1
    alone = [every & ~(1 << one) for one in {0, sms // 2, sms - 1}]
    for mask in (
        0,
        *alone,
        *(~every & ones | one for one in alone),
        every & ones,
        ones,
        1,
        1 << 63,
    ):
        wanted = (masks and (sms > 64 or mask & every != every)) or mask == 0
        mask &= ones
        found = await tb.compare(mask_low=mask & 0xFFFF_FFFF, mask_high=mask >> 32)
        assert isinstance(found, Task) == wanted, (mask, found)


@cocotb.test()
async def local_memory(dut: Any) -> None:
    """Both sizes together must fit into each SM's part of the channel's area (HOST-15)."""
    tb = await MetadataTestbench(dut).start()
    threads = 32 << (CONFIG.sm_warps - 1).bit_length()
    part = -(-128 * threads // 4096) * 4096
    most = part // threads
    fits = LocalArea(5 << 32, part, CONFIG.sms)
    for area, fields, right in (
        (fits, {"local_low": most}, True),
        (fits, {"local_high": most}, True),
        (fits, {"local_low": most - 16, "local_high": 16}, True),
        (fits, {"local_low": most, "local_high": 16}, False),
        (fits, {"local_low": most + 16}, False),
        (replace(fits, sms=511), {"local_low": 16}, True),
        (replace(fits, sms=CONFIG.sms - 1), {"local_low": 16}, False),
        (replace(fits, sms=CONFIG.sms - 1), {}, True),
        (replace(fits, va=2048), {"local_low": 16}, False),
        (replace(fits, size=part + 16), {"local_low": 16}, False),
        (replace(fits, size=1 << 39), {"local_low": (1 << 19) - 16}, True),
        (replace(fits, size=1 << 39), {"local_low": 1 << 19}, False),
        (replace(fits, size=1 << 39), {"local_low": (1 << 24) - 16, "local_high": 16}, False),
    ):
        tb.area = area
        found = await tb.compare(**fields)
        assert isinstance(found, Task) if right else found == 4, (area, fields)


QUEUE = {"is_queue": 1, "queue_size": 64, "entries_log": 2}


@cocotb.test()
async def queues(dut: Any) -> None:
    """Size and pointers of a queue's record are checked (ASID-26); for an open queue, only the size
    is, as the machine's pointers apply."""
    tb = await MetadataTestbench(dut).start()
    for fields in ({}, {"inner_put": 64}, {"entries_log": 6}, {"queue_size": 1 << 24}):
        assert isinstance(await tb.compare(**QUEUE | fields), Task), fields
    pointers = [{"inner_put": 65}, {"inner_get": 1}, {"outer_get": 1 << 30}]
    for fields in pointers:
        assert await tb.compare(**QUEUE | fields) == 20
        assert isinstance(await tb.compare(**fields), Task), "no queue"
    for fields in ({"queue_size": 0}, {"queue_size": 65}, {"entries_log": 7}):
        assert await tb.compare(**QUEUE | fields) == 21
    tb.drive(entered=1)
    for fields in pointers:
        assert isinstance(await tb.compare(**QUEUE | fields), Task), fields


@cocotb.test()
async def dependence(dut: Any) -> None:
    """A counter about to be decremented must not be 0; any other must be 0, except after the task
    was accepted (HOST-10)."""
    tb = await MetadataTestbench(dut).start()
    tb.drive(decrements=1)
    for count in (1, 2, 65535):
        assert isinstance(await tb.compare(dependence=count), Task)
    assert await tb.compare() == 36
    tb.drive(decrements=0, entered=1)  # possibly the counter of the next launch
    for count in (0, 1):
        assert isinstance(await tb.compare(dependence=count), Task)


@cocotb.test()
async def cannot_be_read(dut: Any) -> None:
    """A record that is unmapped or unreadable is refused; the next one is not affected."""
    tb = await MetadataTestbench(dut).start()
    contents, low = tb.memory.contents, PAGE << 8
    for status, refusal in ((MemoryStatus.FAULT, Refusal.FAULT), (MemoryStatus.BUS, Refusal.BUS)):
        contents.failing = [Failing((ASID, 0), range(low + 8, low + 9), status, write=False)]
        await tb.read(record(**LEGAL))
        assert tb.get("verdict") == {"refusal": refusal, "check": SkedCheck.NONE}
        contents.failing = []
        assert isinstance(await tb.compare(), Task)


@cocotb.test()
async def latency(dut: Any) -> None:
    """The result is known 3 cycles after the last beat, or 13 after the beat with dword 23."""
    tb = await MetadataTestbench(dut, latency=20).start()
    await tb.read(record(**LEGAL))
    (asked,), sent = tb.request.sent, tb.memory.beat.sent
    first, beats = asked + 1 + 20, 64 // CONFIG.beat_dwords
    assert sent == [*range(first, first + beats)]
    print(f"{beats} beats, latency 20: done after {tb.cycle - asked} cycles")
    assert tb.cycle - 1 == max(sent[-1] + 3, sent[23 // CONFIG.beat_dwords] + 13)


@cocotb.test()
async def random_records(dut: Any) -> None:
    """Random mixtures of legal and illegal values give the model's result."""
    tb = await MetadataTestbench(dut, latency=1).start()
    rng, kinds = tb.random, set()
    rounds = Rounds(150)
    while rounds.more("task" in kinds and len(kinds) > 3, kinds):
        fields = {name: rng.randint(1, 40) for name in ("grid_x", "grid_y", "grid_z")}
        fields |= {name: rng.choice((1, 1, 2, 3, 8)) for name in ("block_y", "block_z")}
        fields |= {"block_x": rng.randint(1, 40), "registers": rng.randint(1, 40)}
        fields |= {f"resume_{one}": rng.randrange(fields[f"grid_{one}"]) for one in "xyz"}
        fields |= {"group": rng.randrange(64), "shared": rng.choice((0, 1, 1024, 1025, 2048))}
        for name in rng.sample(sorted(FIELDS), rng.choice((0, 0, 0, 1, 2))):
            fields[name] = rng.getrandbits(rng.randint(1, FIELDS[name][1]))
        expected = await tb.compare(**fields)
        kinds.add(expected if expected is None or isinstance(expected, int) else "task")
    print(f"verdicts: {sorted(map(str, kinds))}")
