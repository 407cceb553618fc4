"""Tests of `hw.mmu.memory_fabric.MemoryFabric` with three readers and two writers."""

import itertools
import logging
import os
import random

import cocotb
from cocotb.triggers import RisingEdge
from cocotbext.axi import AxiSlave

from signalbox.tb.testbench import bus
from signalbox.tb.testbench.axi_rules import AxiRules
from signalbox.tb.testbench.reset import reset
from signalbox.tb.units.mmu.clients import (
    BUS,
    FAULT,
    OK,
    Burst,
    FaultSink,
    ReadClient,
    WriteClient,
    always,
    sometimes,
)
from signalbox.tb.units.mmu.memories import ShufflingMemory, Store

WIDTH = int(os.environ["FABRIC_DATA_WIDTH"])
ASID_BITS = 6
BEAT = WIDTH // 8
MEMORY = 1 << 20
READERS, WRITERS = 3, 2

CONSTANT = range(0, 0x40000)
"""Region that is only read."""

OWN = [range(0x40000 + 0x10000 * index, 0x50000 + 0x10000 * index) for index in range(WRITERS)]
"""Regions written by one writer each."""

REGION = 13
"""FAULT_TYPE of an address beyond the end of memory."""

BAD = range(MEMORY - 0x10000, MEMORY)
"""Region that is answered with bus errors."""


class Bench:
    """Testbench with the fabric, a memory and the clients. `share` : fraction of cycles in which
    streams proceed."""

    def __init__(self, dut, *, memory: str, share: float = 1.0, latency: int = 0) -> None:
        self.dut = dut
        self.rng = rng = random.Random(cocotb.RANDOM_SEED)
        self.store = Store(rng.randbytes(MEMORY), BAD)
        pace = sometimes(rng, share) if share < 1 else always
        arguments = {"asid_bits": ASID_BITS, "width": WIDTH, "pace": pace, "keen": pace}
        self.readers = [ReadClient(dut, index, **arguments) for index in range(READERS)]
        self.writers = [WriteClient(dut, index, **arguments) for index in range(WRITERS)]
        self.faults = FaultSink(dut, client_bits=2, asid_bits=ASID_BITS, keen=pace)
        self.rules = AxiRules(dut, "axi", limit=MEMORY, ids={"ar": READERS, "aw": WRITERS})
        self.shuffling = None
        if memory == "shuffling":
            self.shuffling = ShufflingMemory(dut, self.store, rng, share=share, latency=latency)
        else:
            self.add_slave(share)

    def add_slave(self, share: float) -> None:
        logging.getLogger("cocotb.dut").setLevel(logging.ERROR)
        slave = AxiSlave(bus.axi4(self.dut), self.dut.clk, self.dut.rst, target=self.store)
        if share < 1:
            write, read = slave.write_if, slave.read_if
            for channel in (write.aw_channel, write.w_channel, write.b_channel, read.ar_channel):
                channel.set_pause_generator(self.pauses(share))
            read.r_channel.set_pause_generator(self.pauses(share))

    def pauses(self, share: float):
        return (self.rng.random() >= share for _ in itertools.count())

    async def start(self) -> None:
        await reset(self.dut)
        await RisingEdge(self.dut.clk)
        runners = [self.rules, self.faults, *self.readers, *self.writers]
        for runner in [*runners, self.shuffling] if self.shuffling else runners:
            cocotb.start_soon(runner.run())

    def place(self, region: range, longest: int) -> tuple[int, int]:
        """A random address in `region`, and a number of beats that stays within its page."""
        va = self.rng.randrange(region.start, region.stop)
        room = (4096 - va % 4096 // BEAT * BEAT) // BEAT
        return va, self.rng.randint(1, min(room, longest, 256))

    def random_read(self) -> Burst:
        region = self.rng.choice([CONSTANT, CONSTANT, CONSTANT, BAD, range(MEMORY, 1 << 49)])
        return Burst(*self.place(region, self.rng.choice([1, 4, 24])))

    def random_write(self, own: range) -> Burst:
        region = self.rng.choice([own, own, own, BAD, range(MEMORY, 1 << 49)])
        return self.write(*self.place(region, self.rng.choice([1, 4, 24])))

    def write(self, va: int, count: int, *, full: bool = False) -> Burst:
        beats = []
        for _ in range(count):
            strobe = (1 << BEAT) - 1 if full else self.rng.randrange(1, 1 << BEAT)
            beats.append((self.rng.getrandbits(WIDTH), strobe))
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
    bench = Bench(dut, memory=memory, share=share)
    wanted = bytearray(bench.store.content)
    await bench.start()
    for reader in bench.readers:
        reader.todo.extend(bench.random_read() for _ in range(30))
    for writer, own in zip(bench.writers, OWN, strict=True):
        writer.todo.extend(bench.random_write(own) for _ in range(30))
    faults = []
    for client, writer in enumerate(bench.writers):
        for burst in await writer.finish():
            apply_write(burst, wanted)
            faults += [(client, burst.va, 1, REGION)] if burst.va >= MEMORY else []
    for client, reader in enumerate(bench.readers):
        for burst in await reader.finish():
            check_read(burst, wanted)
            faults += [(client, burst.va, 0, REGION)] if burst.va >= MEMORY else []
    assert bench.store.content == wanted
    assert bench.rules.bursts["ar"] and bench.rules.bursts["aw"]
    assert sorted(bench.faults.taken) == sorted(faults)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def done_means_visible(dut):
    """A read after another client's `done` returns the written data."""
    bench = Bench(dut, memory="slave")
    wanted = bytearray(bench.store.content)
    await bench.start()
    for _ in range(10):
        va, count = bench.place(OWN[0], 8)
        bench.writers[0].todo.append(bench.write(va, count))
        (write,) = await bench.writers[0].finish()
        apply_write(write, wanted)
        bench.readers[2].todo.append(Burst(va, count))
        (read,) = await bench.readers[2].finish()
        check_read(read, wanted)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def faults_keep_the_order(dut):
    """A fault after a slow burst is answered after it, and delays no other client."""
    latency = 100
    bench = Bench(dut, memory="shuffling", latency=latency)
    await bench.start()
    slow, other = bench.readers[0], bench.readers[1]
    slow.todo.extend([Burst(0x100, 4), Burst(MEMORY, 9), Burst(0x2000, 1), Burst(1 << 48, 1)])
    for _ in range(4):
        await RisingEdge(dut.clk)
    other.todo.append(Burst(0x300, 1))
    bursts = await slow.finish()
    assert [status(burst.va) for burst in bursts] == [OK, FAULT, OK, FAULT]
    ends = [burst.cycles[-1] for burst in bursts]
    assert ends == sorted(ends)
    for burst in bursts:
        check_read(burst, bench.store.content)
    (burst,) = await other.finish()
    assert burst.cycles[-1] - burst.cycles[0] < latency + 16
    assert bench.rules.bursts["ar"] == 3


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def a_flood_of_faults_leaves_the_bus_to_others(dut):
    """Clients that only fault cost the others less than a cycle each per burst."""
    bench = Bench(dut, memory="shuffling")
    await bench.start()
    for flood in bench.readers[:2]:
        flood.todo.extend(Burst(MEMORY, 1) for _ in range(200))
    bench.readers[2].todo.extend(Burst(0x1000 * page, 16) for page in range(20))
    bursts = await bench.readers[2].finish()
    assert bursts[-1].cycles[-1] - bursts[0].cycles[0] <= 20 * 16 + 30
    for burst in bursts:
        check_read(burst, bench.store.content)
    for flood in bench.readers[:2]:
        assert all(burst.answer[0][1] == FAULT for burst in await flood.finish())


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def unloaded_latency(dut):
    """AR and AW take 3 cycles from the offer, W takes 4; the answer takes one more cycle."""
    bench = Bench(dut, memory="shuffling")
    await bench.start()
    await RisingEdge(dut.clk)
    bench.readers[0].todo.append(Burst(0, 1))
    bench.writers[1].todo.append(bench.write(OWN[1].start, 1))
    seen = {}
    for cycle in range(12):
        await RisingEdge(dut.clk)
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
            if int(getattr(dut, name).value):
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
    bench = Bench(dut, memory="shuffling")
    await bench.start()
    wanted = bytearray(bench.store.content)
    for index, reader in enumerate(bench.readers):
        reader.todo.extend(Burst(0x4000 * index + 16 * BEAT * n, 16) for n in range(10))
    for writer, own in zip(bench.writers, OWN, strict=True):
        starts = range(own.start, own.start + 160 * BEAT, 16 * BEAT)
        writer.todo.extend(bench.write(va, 16, full=True) for va in starts)
    moved = {"r": [], "w": []}
    for cycle in range(560):
        await RisingEdge(dut.clk)
        for channel, cycles in moved.items():
            handles = (getattr(dut, f"axi__{channel}{name}") for name in ("valid", "ready"))
            if all(int(handle.value) for handle in handles):
                cycles.append(cycle)
    for channel, beats in (("r", 480), ("w", 320)):
        cycles = moved[channel]
        assert len(cycles) == beats
        share = beats / (cycles[-1] - cycles[0] + 1)
        cocotb.log.info(f"{channel}: {beats} beats, {share:.1%} of the cycles")
        assert share >= 0.98
    for reader in bench.readers:
        for burst in await reader.finish():
            check_read(burst, wanted)
    for writer in bench.writers:
        for burst in await writer.finish():
            apply_write(burst, wanted)
    assert bench.store.content == wanted
