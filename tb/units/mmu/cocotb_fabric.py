"""Tests of `hw.mmu.memory_fabric.MemoryFabric` with three readers and two writers."""

import logging
import os
from collections import Counter
from typing import Any, Self

import cocotb
from cocotbext.axi import AxiSlave

from signalbox.hw.config import Config
from signalbox.hw.mmu.records import Access
from signalbox.hw.page_tables import FaultType
from signalbox.tb.testbench import bus
from signalbox.tb.testbench.axi_rules import AxiRules
from signalbox.tb.testbench.clocked import Testbench, component
from signalbox.tb.testbench.ends import Sink
from signalbox.tb.units.mmu.clients import BUS, FAULT, OK, Burst, ReadClient, WriteClient
from signalbox.tb.units.mmu.identity import IdentityFabric
from signalbox.tb.units.mmu.memories import ShufflingMemory, Store

WIDTH = int(os.environ["FABRIC_DATA_WIDTH"])
BEAT = WIDTH // 8
MEMORY = 1 << 20
READERS, WRITERS = 3, 2

CONSTANT = range(0, 0x40000)
"""Region that is only read."""

OWN = [range(0x40000 + 0x10000 * index, 0x50000 + 0x10000 * index) for index in range(WRITERS)]
"""Regions written by one writer each."""

BAD = range(MEMORY - 0x10000, MEMORY)
"""Region that is answered with bus errors."""


class FabricTestbench(Testbench):
    """The fabric, a memory and the clients. `share` : fraction of cycles in which streams
    proceed."""

    def __init__(self, dut: Any, *, memory: str, share: float = 1.0, latency: int = 0) -> None:
        config = Config(data_width=WIDTH, memory_bytes=MEMORY)
        super().__init__(dut, component(IdentityFabric, config, READERS, WRITERS))
        self.store = Store(self.random.randbytes(MEMORY), BAD)
        pace = self.share(share)
        self.readers = [ReadClient(self, index, pace) for index in range(READERS)]
        self.writers = [WriteClient(self, index, pace) for index in range(WRITERS)]
        self._faults = Sink(self, "fault", pace)
        self.rules = AxiRules(dut, "axi", limit=MEMORY, ids={"ar": READERS, "aw": WRITERS})
        if memory == "shuffling":
            ShufflingMemory(self, self.store, share=share, latency=latency)
        else:
            self.add_slave(share)

    @property
    def faults(self) -> Counter:
        """Client, virtual address, access and cause of each fault report."""
        names = "client", "va", "access", "fault"
        return Counter(tuple(one[name] for name in names) for _, one in self._faults.taken)

    def add_slave(self, share: float) -> None:
        logging.getLogger("cocotb.dut").setLevel(logging.ERROR)
        slave = AxiSlave(bus.axi4(self.dut), self.dut.clk, self.dut.rst, target=self.store)
        if share < 1:
            bus.pause(slave, 1 - share, self.random)

    async def start(self) -> Self:
        await super().start()
        cocotb.start_soon(self.rules.run())
        self.run()
        return self

    def place(self, region: range, longest: int) -> tuple[int, int]:
        """A random address in `region`, and a number of beats that stays within its page."""
        va = self.random.randrange(region.start, region.stop)
        room = (4096 - va % 4096 // BEAT * BEAT) // BEAT
        return va, self.random.randint(1, min(room, longest, 256))

    def random_read(self) -> Burst:
        region = self.random.choice([CONSTANT, CONSTANT, CONSTANT, BAD, range(MEMORY, 1 << 49)])
        return Burst(*self.place(region, self.random.choice([1, 4, 24])))

    def random_write(self, own: range) -> Burst:
        region = self.random.choice([own, own, own, BAD, range(MEMORY, 1 << 49)])
        return self.write(*self.place(region, self.random.choice([1, 4, 24])))

    def write(self, va: int, count: int, *, full: bool = False) -> Burst:
        beats = []
        for _ in range(count):
            strobe = (1 << BEAT) - 1 if full else self.random.randrange(1, 1 << BEAT)
            beats.append((self.random.getrandbits(WIDTH), strobe))
        return Burst(va, count, beats)


def status(va: int) -> int:
    """Expected status of an access at `va`."""
    return FAULT if va >= MEMORY else BUS if va in BAD else OK


def check_read(burst: Burst, content: bytes) -> None:
    """Check that the answer to a read equals `content`, or is the right error."""
    wanted = status(burst.va)
    assert len(burst.answer) == (1 if wanted == FAULT else burst.count), burst
    start = burst.va // BEAT * BEAT
    for index, (data, got) in enumerate(burst.answer):
        assert got == wanted, burst
        if wanted == OK:
            place = start + index * BEAT
            assert data.to_bytes(BEAT, "little") == content[place : place + BEAT], burst


def apply_write(burst: Burst, content: bytearray) -> None:
    """Apply a write to `content`, and check its outcome."""
    assert [got for _, got in burst.answer] == [status(burst.va)], burst
    place = burst.va // BEAT * BEAT
    for data, strobe in burst.beats if status(burst.va) == OK else ():
        for lane, byte in enumerate(data.to_bytes(BEAT, "little")):
            if strobe >> lane & 1:
                content[place + lane] = byte
        place += BEAT


@cocotb.test(timeout_time=3, timeout_unit="ms")
@cocotb.parametrize(memory=["slave", "shuffling"], share=[0.5, 0.9])
async def random_traffic(dut, memory, share):
    """With all clients, faults, bus errors and stalls, every byte and status is correct, and every
    fault is reported once."""
    tb = await FabricTestbench(dut, memory=memory, share=share).start()
    wanted = bytearray(tb.store.content)
    for reader in tb.readers:
        reader.todo.extend(tb.random_read() for _ in range(30))
    for writer, own in zip(tb.writers, OWN, strict=True):
        writer.todo.extend(tb.random_write(own) for _ in range(30))
    faults: Counter = Counter()
    for client, writer in enumerate(tb.writers):
        for burst in await writer.finish():
            apply_write(burst, wanted)
            if burst.va >= MEMORY:
                faults[client, burst.va, Access.WRITE, FaultType.REGION] += 1
    for client, reader in enumerate(tb.readers):
        for burst in await reader.finish():
            check_read(burst, wanted)
            if burst.va >= MEMORY:
                faults[client, burst.va, Access.READ, FaultType.REGION] += 1
    assert tb.store.content == wanted
    assert tb.rules.bursts["ar"] and tb.rules.bursts["aw"]
    assert tb.faults == faults


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def done_means_visible(dut):
    """A read after another client's `done` returns the written data."""
    tb = await FabricTestbench(dut, memory="slave").start()
    wanted = bytearray(tb.store.content)
    for _ in range(10):
        va, count = tb.place(OWN[0], 8)
        tb.writers[0].todo.append(tb.write(va, count))
        (write,) = await tb.writers[0].finish()
        apply_write(write, wanted)
        tb.readers[2].todo.append(Burst(va, count))
        (read,) = await tb.readers[2].finish()
        check_read(read, wanted)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def faults_keep_the_order(dut):
    """A fault after a slow burst is answered after it, and delays no other client."""
    latency = 100
    tb = await FabricTestbench(dut, memory="shuffling", latency=latency).start()
    slow, other = tb.readers[0], tb.readers[1]
    slow.todo.extend([Burst(0x100, 4), Burst(MEMORY, 9), Burst(0x2000, 1), Burst(1 << 48, 1)])
    await tb.steps(4)
    other.todo.append(Burst(0x300, 1))
    bursts = await slow.finish()
    assert [status(burst.va) for burst in bursts] == [OK, FAULT, OK, FAULT]
    ends = [burst.cycles[-1] for burst in bursts]
    assert ends == sorted(ends)
    for burst in bursts:
        check_read(burst, tb.store.content)
    (burst,) = await other.finish()
    assert burst.cycles[-1] - burst.cycles[0] < latency + 16
    assert tb.rules.bursts["ar"] == 3


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def a_flood_of_faults_leaves_the_bus_to_others(dut):
    """Clients whose bursts all fault hardly slow down another client: less than one cycle each per
    burst of its own."""
    tb = await FabricTestbench(dut, memory="shuffling").start()
    for flood in tb.readers[:2]:
        flood.todo.extend(Burst(MEMORY, 1) for _ in range(200))
    tb.readers[2].todo.extend(Burst(0x1000 * page, 16) for page in range(20))
    bursts = await tb.readers[2].finish()
    assert bursts[-1].cycles[-1] - bursts[0].cycles[0] <= 20 * 16 + 30
    for burst in bursts:
        check_read(burst, tb.store.content)
    for flood in tb.readers[:2]:
        assert all(burst.answer[0][1] == FAULT for burst in await flood.finish())


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def unloaded_latency(dut):
    """Latency from a client's offer is 3 cycles to AR and AW, and 4 to W; from the bus's response
    to the client's, it is one cycle."""
    tb = await FabricTestbench(dut, memory="shuffling").start()
    await tb.steps()
    tb.readers[0].todo.append(Burst(0, 1))
    tb.writers[1].todo.append(tb.write(OWN[1].start, 1))
    seen = {}
    for cycle in range(12):
        await tb.steps()
        for name in (
            "read__0__request__valid",
            "axi__arvalid",
            "axi__awvalid",
            "axi__wvalid",
            "axi__rvalid",
            "read__0__beat__valid",
            "axi__bvalid",
            "write__1__done__valid",
        ):
            if tb.get(name):
                seen.setdefault(name, cycle)
    start = seen["read__0__request__valid"]
    assert seen["axi__arvalid"] - start == 3
    assert seen["axi__awvalid"] - start == 3
    assert seen["axi__wvalid"] - start == 4
    assert seen["read__0__beat__valid"] - seen["axi__rvalid"] == 1
    assert seen["write__1__done__valid"] - seen["axi__bvalid"] == 1


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def full_rate(dut):
    """Concurrent bursts of 16 beats from all clients leave no idle cycle on R or on W."""
    tb = await FabricTestbench(dut, memory="shuffling").start()
    wanted = bytearray(tb.store.content)
    for index, reader in enumerate(tb.readers):
        reader.todo.extend(Burst(0x4000 * index + 16 * BEAT * n, 16) for n in range(10))
    for writer, own in zip(tb.writers, OWN, strict=True):
        starts = range(own.start, own.start + 160 * BEAT, 16 * BEAT)
        writer.todo.extend(tb.write(va, 16, full=True) for va in starts)
    moved = {"r": [], "w": []}
    for cycle in range(560):
        await tb.steps()
        for channel, cycles in moved.items():
            if all(tb.get(f"axi__{channel}{name}") for name in ("valid", "ready")):
                cycles.append(cycle)
    for channel, beats in (("r", 480), ("w", 320)):
        cycles = moved[channel]
        assert len(cycles) == beats
        share = beats / (cycles[-1] - cycles[0] + 1)
        cocotb.log.info(f"{channel}: {beats} beats, {share:.1%} of the cycles")
        assert share >= 0.98
    for reader in tb.readers:
        for burst in await reader.finish():
            check_read(burst, wanted)
    for writer in tb.writers:
        for burst in await writer.finish():
            apply_write(burst, wanted)
    assert tb.store.content == wanted
