"""Malformed pushbuffers and rings: only their own channel halts, the others finish, nothing hangs.

Channel 0 executes garbage, and truncated and mutated programs. The CPU clears its errors, skipping
the held method or retrying it. All other channels run programs with known results. Then channel 0
is disabled and enabled, and must work.
"""

import os
from random import Random

import cocotb

from signalbox.driver.commands.pushbuffer import Pushbuffer
from signalbox.hw.config import WINDOW_BASE
from signalbox.hw.errors import Cause
from signalbox.hw.methods import COPY_CLASSES
from signalbox.hw.registers import CHANNEL, address, channel_address
from signalbox.tb.machine.random.programs import ENTRIES, Layout, generate
from signalbox.tb.machine.random.rounds import Round
from signalbox.tb.simulation.machine import SimMachine
from signalbox.tb.simulation.sizes import SIZES
from signalbox.tb.simulation.spaces import RawSpaces

CONFIG = SIZES[os.environ["SIGNALBOX_SIZE"]]
FUZZED = 0
FIRST_SLOT = 48
"""First semaphore of the fuzzed program; a single flipped bit does not turn its semaphores into
those of other programs."""

ERRORS = 200
"""Maximum number of errors cleared in one round."""

NOP = 0x08 | 1 << 31
"""METHOD0 of the host's NOP."""


def broken_program(numbers: Random) -> list[int]:
    """Dwords of a damaged program, with flipped bits, and missing and random dwords.

    As all channels share one address space, the program must not be able to access other channels'
    memory: it has no copies (NOPs instead of SET_OBJECT) and no semaphores in memory.
    """
    (program,) = generate(numbers, [FUZZED], 1, CONFIG.semaphores, 60, FIRST_SLOT, in_memory=False)
    head, _ = Pushbuffer().set_object().dwords
    first = program.dwords.index(head)
    assert program.dwords[first + 1] in COPY_CLASSES
    dwords = [0] * (first + 2) + program.dwords[first + 2 :]
    for _ in range(numbers.randint(1, 30)):
        place = numbers.randrange(len(dwords))
        damage = numbers.randrange(4)
        if damage == 0:
            dwords[place] ^= 1 << numbers.randrange(32)
        elif damage == 1:
            dwords[place] = numbers.getrandbits(32)
        elif damage == 2:
            del dwords[place]
        else:
            dwords.insert(place, numbers.choice((0, 0xFFFF_FFFF, numbers.getrandbits(13) << 16)))
    return dwords


def broken_ring(numbers: Random, layout: Layout, dwords: int) -> list[int]:
    """Ring entries: parts of the program, too long or too short, and random words."""
    entries, start = [], 0
    while start < dwords and len(entries) < 100:
        length = numbers.randint(1, 60)
        entries.append(layout.pushbuffer + 4 * start | length << 42)
        start += length if numbers.random() < 0.8 else numbers.randint(1, 60)
        if numbers.random() < 0.1:
            # Arbitrary, but not longer than 63 dwords.
            entries.append(numbers.getrandbits(64) & ~(0x1F_FFC0 << 42))
    return entries


async def fuzz(machine: SimMachine, numbers: Random) -> None:
    """Submit a broken program to the channel."""
    layout = Layout(FUZZED)
    dwords = broken_program(numbers)
    if numbers.random() < 0.3:
        dwords = [numbers.getrandbits(32) for _ in range(len(dwords))]
    entries = broken_ring(numbers, layout, len(dwords))
    machine.memory_write(layout.base, b"".join(e.to_bytes(8, "little") for e in entries))
    machine.memory_write(layout.pushbuffer, Pushbuffer().raw(*dwords).to_bytes())
    await switch_on(machine, layout)
    put = len(entries) if numbers.random() < 0.9 else numbers.getrandbits(20)
    machine.memory_write(layout.userd + 0x8C, put.to_bytes(4, "little"))
    await machine.write32(address("DOORBELL"), FUZZED)


async def switch_on(machine: SimMachine, layout: Layout) -> None:
    machine.memory_write(layout.userd, bytes(512))
    registers = {
        "GP_BASE": layout.base,
        "GP_BASE_HI": (ENTRIES.bit_length() - 1) << 16,
        "USERD": layout.userd,
        "USERD_HI": 0,
        "CONFIG": 0,
        "SLICE": 200,
        "ACQUIRE": 0x8000_0000 | 1 << 15 | 8 << 11 | 2 << 7 | 2,  # time-out after 2.6 us
        "CONTROL": 1,
    }
    for name, value in registers.items():
        await machine.write32(channel_address(FUZZED, name), value)


async def clear_errors(machine: SimMachine, numbers: Random, seen: set[Cause]) -> int:
    """Clear errors of the fuzzed channel until it has none. Returns their number."""
    for count in range(ERRORS):
        for _ in range(20):
            status = CHANNEL["STATUS"].unpack(await read(machine, "STATUS"))
            if status["HALTED"]:
                break
            await machine.wait_cycles(100)
        else:
            return count
        seen.add(Cause(await read(machine, "CAUSE")))
        if numbers.random() < 0.8:
            await machine.write32(channel_address(FUZZED, "METHOD0"), NOP)
        for name in ("INTR_0", "INTR_1"):
            await machine.write32(channel_address(FUZZED, name), await read(machine, name))
    return ERRORS


async def read(machine: SimMachine, name: str) -> int:
    return await machine.read32(channel_address(FUZZED, name))


async def still_works(machine: SimMachine) -> None:
    """After being disabled and enabled, the channel executes a valid program."""
    layout, number = Layout(FUZZED), 0x600D
    await machine.write32(channel_address(FUZZED, "CONTROL"), 0)
    program = Pushbuffer().release(layout.words, number).release(WINDOW_BASE + 16 * 60, number)
    machine.memory_write(layout.pushbuffer, program.to_bytes())
    entry = layout.pushbuffer | len(program) << 42
    machine.memory_write(layout.base, entry.to_bytes(8, "little"))
    await switch_on(machine, layout)
    machine.memory_write(layout.userd + 0x8C, (1).to_bytes(4, "little"))
    await machine.write32(address("DOORBELL"), FUZZED)
    await machine.wait_cycles(6000)
    assert int.from_bytes(machine.memory_read(layout.words, 4), "little") == number
    assert not (await read(machine, "STATUS")) & 2


@cocotb.test(timeout_time=200, timeout_unit="ms")
async def malformed(dut):
    """Broken programs halt only their channel, next to valid ones."""
    seeds = Random(int(os.environ["COCOTB_RANDOM_SEED"]))
    seen: set[Cause] = set()
    total = 0
    for number in range(int(os.environ["SIGNALBOX_ROUNDS"])):
        seed = seeds.getrandbits(32)
        numbers = Random(seed)
        machine = await SimMachine.start(dut)
        await machine.wait_cycles(2 * CONFIG.semaphores)
        await RawSpaces.same_addresses(machine)
        sound = Round(
            machine,
            CONFIG,
            numbers,
            int(os.environ["SIGNALBOX_COMMANDS"]),
            channels=range(1, CONFIG.channels),
            levels=1,
        )
        await fuzz(machine, numbers)
        await sound.begin()
        errors = await clear_errors(machine, numbers, seen)
        await sound.end()
        await still_works(machine)
        total += errors
        cocotb.log.info("round %d, seed %d: %d errors cleared", number, seed, errors)
    cocotb.log.info("%d errors: %s", total, ", ".join(sorted(cause.name for cause in seen)))
    assert total
