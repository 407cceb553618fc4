"""Binds and invalidations by registers, and the registers of the fault buffer."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from signalbox.driver.faults.fault_buffer import FaultBufferError
from signalbox.driver.faults.fault_registers import FaultRegisters
from signalbox.driver.memory.mmu import Mmu
from signalbox.driver.memory.mmu_registers import MmuError, MmuRegisters
from signalbox.driver.memory.physical import Memory
from signalbox.driver.platform.control_port import ControlPort
from signalbox.hw.config import Config
from signalbox.hw.registers import GLOBAL, MmuOperation
from signalbox.tb.driver.fakes.machine import SPACE, FakeMachine
from signalbox.tb.driver.hangs import HANGS

LIMIT = (1 << 49) - 1


def run(body: Callable[[MmuRegisters, FakeMachine], Coroutine[Any, Any, None]]) -> None:
    machine = FakeMachine(Config(memory_bytes=SPACE, asids=8))
    mmu = MmuRegisters(ControlPort(machine))
    assert isinstance(mmu, Mmu)
    asyncio.run(asyncio.wait_for(body(mmu, machine), HANGS))


def test_commands():
    """Each call returns after its command has taken effect, with all arguments."""

    async def body(mmu, machine):
        bound = machine.translator.bound
        await mmu.bind(3, 0xFF_1234_5000, LIMIT)
        await mmu.bind(7, 0x5000, 0x1_2345_6FFF)
        assert bound == {3: (0xFF_1234_5000, LIMIT), 7: (0x5000, 0x1_2345_6FFF)}
        await mmu.unbind(3)
        assert list(bound) == [7]
        await mmu.invalidate_all()
        await mmu.invalidate_asid(7)
        await mmu.invalidate_page(7, 0x1_2345_6789_ABC)
        words = machine.mmu.words
        assert words["MMU_VA_HI"] << 32 | words["MMU_VA_LO"] == 0x1_2345_6789_000
        assert machine.mmu.commands == [
            (MmuOperation.BIND, 3),
            (MmuOperation.BIND, 7),
            (MmuOperation.UNBIND, 3),
            (MmuOperation.INVALIDATE_ALL, 0),
            (MmuOperation.INVALIDATE_ASID, 7),
            (MmuOperation.INVALIDATE_PAGE, 7),
        ]

    run(body)


def test_tasks_take_turns():
    async def body(mmu, machine):
        await asyncio.gather(*(mmu.bind(asid, asid << 12, LIMIT) for asid in range(8)))
        assert machine.translator.bound == {asid: (asid << 12, LIMIT) for asid in range(8)}
        assert [asid for _, asid in machine.mmu.commands] == list(range(8))

    run(body)


def test_cancelled():
    """A command waits for the previous one even if the latter's task was cancelled."""

    async def body(mmu, machine):
        first = asyncio.ensure_future(mmu.bind(1, 0x1000, LIMIT))
        while not machine.mmu.busy:
            await asyncio.sleep(0)
        first.cancel()
        await mmu.bind(2, 0x2000, LIMIT)
        assert machine.translator.bound == {1: (0x1000, LIMIT), 2: (0x2000, LIMIT)}

    run(body)


def test_refused():
    async def body(mmu, machine):
        with pytest.raises(MmuError, match="the machine refused UNBIND of ASID 8"):
            await mmu.unbind(8)
        await mmu.unbind(7)

    run(body)


def test_never_acknowledged():
    async def body(mmu, machine):
        machine.mmu.stuck = True
        with pytest.raises(MmuError, match=r"has not acknowledged UNBIND of ASID 1 for 200000 cyc"):
            await mmu.unbind(1)

    run(body)


def test_fault_registers():
    async def body(mmu, machine):
        memory = Memory(machine, SPACE, base=0x5000)
        buffer = memory.allocate_pages(8192)
        registers = FaultRegisters(ControlPort(machine))
        machine.faults.translate(4, 0x1000, 0, 1)
        assert machine.faults.pending
        await registers.enable(buffer)
        assert not machine.faults.pending
        assert machine.faults.words["FAULT_SIZE"] == 1 << 31 | 256
        assert await registers.get() == await registers.put() == 0
        for _ in range(256):
            machine.faults.translate(4, 0x1000, 0, 1)
        assert (await registers.put(), await registers.overflowed()) == (255, True)
        assert buffer.read("<u4", 1, 254 * 32 + 28)[0] >> 31 == 1
        assert not await registers.acknowledge()
        assert await registers.overflowed() and machine.faults.pending
        await registers.set_get(200)
        await registers.clear_overflow()
        assert await registers.get() == 200 and not machine.faults.pending
        machine.faults.words["FAULT_STATUS"] = GLOBAL["FAULT_STATUS"].pack(BUS=1)
        assert await registers.acknowledge() and not await registers.acknowledge()
        await registers.disable()
        assert await registers.put() == 0

    run(body)


def test_fault_record_under_way():
    """Enabling or disabling the buffer waits until the last record has been written."""

    async def body(mmu, machine):
        memory = Memory(machine, SPACE, base=0x5000)
        registers = FaultRegisters(ControlPort(machine))
        for _ in range(2):
            machine.faults.landing, began = 20, machine.now()
            await registers.enable(memory.allocate_pages(4096))
            assert machine.now() - began > 20 * 8
        machine.faults.landing = 20
        await registers.disable()
        assert machine.faults.landing == 0
        machine.faults.landing = 1 << 30
        with pytest.raises(FaultBufferError, match="a fault record has not ended for 200000 cyc"):
            await registers.disable()

    run(body)
