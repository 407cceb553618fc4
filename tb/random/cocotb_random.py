"""Random programs on the whole machine: final state and every step against independent models.

Environment: SIGNALBOX_ROUNDS, SIGNALBOX_COMMANDS (per round). A round has its own seed, which is
printed; SIGNALBOX_SEED of the run replays all of them.
"""

import os
from pathlib import Path
from random import Random

import cocotb

from hw.config import Config
from hw.methods import AcquireTimer, pack
from hw.registers import address, channel_address
from tb.models.host import HostModel, Ring
from tb.models.rules import Rules
from tb.random.programs import ENTRIES, Program, generate
from tb.sim import trace
from tb.sim.machine import SimMachine
from tb.sim.top import TRACE

CONFIG = Config(**eval(os.environ["SIGNALBOX_CONFIG"]))
PATIENCE = 400
"""Longest wait for the end of a round, in thousands of cycles."""


class Round:
    """One set of programs, from reset to the comparison of everything."""

    def __init__(self, machine: SimMachine, numbers: Random, commands: int) -> None:
        self.machine, self.numbers = machine, numbers
        self.levels = numbers.randint(1, min(CONFIG.counters + 1, CONFIG.channels + 1, 4))
        self.programs = generate(numbers, CONFIG.channels, self.levels, CONFIG.semaphores, commands)
        self.model = HostModel(CONFIG, bytearray(CONFIG.memory_bytes))
        self.model.semaphores.counting = self.levels - 1

    async def run(self) -> None:
        await self._settings()
        puts = [await self._load(program) for program in self.programs]
        await self._submit(puts)
        await self._finish()
        self._compare()

    async def _settings(self) -> None:
        """Memory and scheduler at random (back-pressure, latency, slices, retry)."""
        numbers, memory = self.numbers, self.machine.dut.memory
        stall = numbers.choice((0, 0, 40, 150))
        for name in ("ar", "r", "aw", "w", "b"):
            getattr(memory, f"stall_{name}").value = numbers.randrange(stall + 1)
        memory.random.value = numbers.getrandbits(63) + 1
        memory.read_latency.value = numbers.choice((2, 8, 30, 100))
        memory.write_latency.value = numbers.choice((2, 8, 30, 100))
        await self.machine.write32(address("SEM_COUNTING"), self.levels - 1)

    async def _load(self, program: Program) -> int:
        """Memory and registers of one channel; returns its final GP_PUT."""
        numbers, layout, machine = self.numbers, program.layout, self.machine
        data, entries = program.image(numbers)
        ring = b"".join(entry.to_bytes(8, "little") for entry in entries)
        words = numbers.randbytes(256)
        source = numbers.randbytes(layout.destination - layout.source)
        parts = (
            (layout.base, ring),
            (layout.words, words),
            (layout.source, source),
            (layout.destination, bytes(layout.pushbuffer - layout.destination)),
            (layout.pushbuffer, data),
            (layout.userd, bytes(0x8C) + len(entries).to_bytes(4, "little")),
        )
        for start, content in parts:
            self.model.memory[start : start + len(content)] = content
            if start != layout.userd:
                machine.memory_write(start, content)
        machine.memory_write(layout.userd, bytes(512))
        registers = {
            "GP_BASE": layout.base,
            "GP_BASE_HI": (ENTRIES.bit_length() - 1) << 16,
            "USERD": layout.userd,
            "USERD_HI": 0,
            "CONFIG": 1 << 16,
            "SLICE": numbers.choice((1, 20, 300, 5000, 1 << 31)),
            "ACQUIRE": pack(AcquireTimer, retry_man=numbers.randint(1, 9), retry_exp=2),
            "CONTROL": 1,
        }
        for name, value in registers.items():
            await machine.write32(channel_address(layout.channel, name), value)
        self.model.enable(layout.channel, Ring(layout.base, ENTRIES, layout.userd), privileged=True)
        return len(entries)

    async def _submit(self, puts: list[int]) -> None:
        """Doorbells in random order, each announcing a few entries more."""
        given = [0] * len(puts)
        while left := [i for i, put in enumerate(puts) if given[i] < put]:
            channel = self.numbers.choice(left)
            step = self.numbers.choice((1, 2, 5, 40))
            given[channel] = min(puts[channel], given[channel] + step)
            userd = self.programs[channel].layout.userd
            self.machine.memory_write(userd + 0x8C, given[channel].to_bytes(4, "little"))
            await self.machine.write32(address("DOORBELL"), channel)
            if self.numbers.random() < 0.3:
                await self.machine.wait_cycles(self.numbers.randint(1, 300))

    async def _finish(self) -> None:
        """Wait until every channel has executed everything."""
        for program in self.programs:
            index = program.layout.channel
            for _ in range(PATIENCE):
                status = await self.machine.read32(channel_address(index, "STATUS"))
                assert not status & 2, await self._error(index)
                if not status & 0xFF0010:
                    break
                await self.machine.wait_cycles(1000)
            else:
                raise AssertionError(f"channel {index} still works: STATUS {status:#x}")
        # The last write-backs of GP_GET and REF.
        await self.machine.wait_cycles(1000)

    async def _error(self, index: int) -> str:
        names = ("CAUSE", "METHOD0", "DATA0", "ERROR_VA", "GP_GET")
        found = {
            name: hex(await self.machine.read32(channel_address(index, name))) for name in names
        }
        return f"channel {index} halted: {found}"

    def _compare(self) -> None:
        """Memory and semaphores against the model that has no time."""
        model = self.model
        for program in self.programs:
            model.doorbell(program.layout.channel)
        model.run()
        for program in self.programs:
            layout = program.layout
            assert not model.busy(layout.channel), f"the model is stuck in {layout.channel}"
            for start, end in (
                (layout.words, layout.words + 256),
                (layout.destination, layout.pushbuffer),
            ):
                found = self.machine.memory_read(start, end - start)
                wanted = bytes(model.memory[start:end])
                wrong = [start + i for i in range(end - start) if found[i] != wanted[i]]
                assert not wrong, f"channel {layout.channel}: {len(wrong)} bytes from {wrong[0]:#x}"


@cocotb.test(timeout_time=80, timeout_unit="ms")
async def programs(dut):
    """Rounds of random programs; the trace of each is checked too."""
    seeds = Random(int(os.environ["COCOTB_RANDOM_SEED"]))
    commands = int(os.environ["SIGNALBOX_COMMANDS"])
    total = operations = copies = redecided = 0
    for number in range(int(os.environ["SIGNALBOX_ROUNDS"])):
        seed = seeds.getrandbits(32)
        machine = await SimMachine.start(dut)
        await machine.wait_cycles(2 * CONFIG.semaphores)
        first = machine.now()
        this = Round(machine, Random(seed), commands)
        done = sum(program.commands for program in this.programs)
        await this.run()
        dut.monitor.flush.value = 1
        await machine.wait_cycles(2)
        dut.monitor.flush.value = 0
        own = 2 * len(this.programs)
        rules = Rules(
            CONFIG.semaphores,
            this.levels - 1,
            frozenset(range(this.levels - 1 + own // 2, this.levels - 1 + own)),
        )
        rules.check(event for event in trace.read(Path(TRACE)) if event.cycle >= first)
        total, copies = total + done, copies + rules.copies
        operations += rules.operations
        redecided += rules.redecided
        cocotb.log.info(
            "round %d, seed %d: %d commands, %d priorities, %d cycles",
            number,
            seed,
            done,
            this.levels,
            machine.now() - first,
        )
    cocotb.log.info(
        "%d commands; %d copies (%d decided again at their start) and %d on-chip operations "
        "checked step by step",
        total,
        copies,
        redecided,
        operations,
    )
    assert copies and operations
