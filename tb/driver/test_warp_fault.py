"""Faults of warps: read from the registers, claimed by tasks (HOST-10)."""

import asyncio
from collections.abc import Callable

from signalbox.driver.faults.warp_fault import WarpFault, WarpFaults
from signalbox.driver.platform.control_port import ControlPort
from signalbox.hw.errors import CoreCause
from signalbox.tb.driver.fakes.machine import FakeMachine


def tell(machine: FakeMachine, cause: int, asid: int, at: int, va: int) -> None:
    """Set the machine's fault registers."""
    words = machine.engine.words
    words["TASK_STATUS"] |= 1
    words["WARP_FAULT"] = cause | 131 << 8 | asid << 16 | 5 << 26
    words["WARP_FAULT_BLOCK_X"], words["WARP_FAULT_BLOCK_YZ"] = 7, 8 | 9 << 16
    for name, value in (("AT", at), ("VA", va)):
        words[f"WARP_FAULT_{name}_LO"] = value & 0xFFFF_FFFF
        words[f"WARP_FAULT_{name}_HI"] = value >> 32


async def claim(faults: WarpFaults, asid: int, mine: Callable[[int], bool]) -> WarpFault | None:
    """Read and take, as a task that has failed does."""
    await faults.read()
    return faults.take(asid, mine)


def test_claim():
    """Each task claims only faults of its address space and program; reading a fault lets the
    machine report the next."""
    machine = FakeMachine()

    async def main():
        faults = WarpFaults(ControlPort(machine))
        assert await claim(faults, 3, lambda at: True) is None
        tell(machine, 5, 3, 0x1_2345_6780, 0x1_FFFF_FFFF_F004)
        await faults.read()
        assert not machine.engine.words["TASK_STATUS"]
        tell(machine, 8, 4, 0x1000, 0x77)
        assert await claim(faults, 3, lambda at: at == 0x1000) is None
        found = await claim(faults, 3, lambda at: at == 0x1_2345_6780)
        assert found is not None and (found.sm, found.asid) == (131, 3)
        assert (found.index, found.block) == (5, (7, 8, 9))
        assert (found.cause, found.va) == (CoreCause.MEMORY_FAULT, 0x1_FFFF_FFFF_F004)
        assert "had MEMORY_FAULT at 0x123456780, accessing 0x1fffffffff004: the" in found.text()
        (other,) = faults.unclaimed
        assert (other.cause, other.va) == (CoreCause.MASK_STACK, None)
        tell(machine, 13, 4, 0x1008, 0)
        tell_again = await claim(faults, 4, lambda at: True)
        assert tell_again is other and faults.unclaimed == ()

    asyncio.run(main())


def test_unknown_cause():
    machine = FakeMachine()

    async def main():
        faults = WarpFaults(ControlPort(machine))
        tell(machine, 13, 0, 0x1000, 0)
        found = await claim(faults, 0, lambda at: True)
        assert found is not None and found.cause == 13
        assert (
            found.text("line 3")
            == "warp 5 of block (7, 8, 9) on SM 131 had cause 13 at 0x1000 (line 3)"
        )

    asyncio.run(main())
