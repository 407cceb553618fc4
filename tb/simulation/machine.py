"""The simulation top as a machine for the driver (`driver.platform.machine.Machine`).

    machine = await SimMachine.start(dut)
    device = await Device.open(machine)

On Verilator, its memory may be a `SharedMemory`, parts of which other processes can share:

    machine = await SimMachine.start(dut, SharedMemory(config.memory_bytes))

Python runs only for register accesses, interrupts and ends of waits, not in every clock cycle.
"""

import logging
from typing import Any, Self

from cocotb.clock import Clock
from cocotb.triggers import Event, RisingEdge, Timer, select
from cocotbext.axi import AxiLiteMaster, AxiResp

from signalbox.driver.server.shared_memory import SharedMemory
from signalbox.tb.simulation.backdoor import open_backdoor
from signalbox.tb.testbench.bus import axi4lite

__all__ = ["MachineError", "SimMachine"]

CLOCK_NS = 10
"""Clock period in ns."""


class MachineError(Exception):
    """The control port answered an access with an error."""


class SimMachine:
    """A running simulation top (`tb.simulation.top`) with a Signalbox. Created by `start`.

    Members
    -------
    dut : handle of the top.
    memory : backdoor to the simulated memory.
    """

    def __init__(self, dut: Any, memory: SharedMemory | None = None) -> None:
        self.dut = dut
        self.memory = open_backdoor(dut.memory, memory)
        bus = axi4lite(dut, "control")
        logging.getLogger(f"cocotb.{dut._name}.control").setLevel(logging.WARNING)
        self._control = AxiLiteMaster(bus, dut.clk, dut.rst)
        self._edge = RisingEdge(dut.clk)
        self._raised = RisingEdge(dut.irq)
        self._wake = Event()

    @classmethod
    async def start(cls, dut: Any, memory: SharedMemory | None = None) -> Self:
        """Start the clock, reset the design, and wait until the reset has ended.

        Parameters
        ----------
        memory : memory that replaces the machine's, on Verilator only. It has as many bytes as
            `memory_bytes` of the design's configuration, and may be closed before the simulation
            ends.

        Raises `RuntimeError` if `memory` is given on Icarus, `ValueError` if it has another size.
        """
        machine = cls(dut, memory)
        dut.reset_request.value = 1
        Clock(dut.clk, CLOCK_NS, unit="ns", impl="gpi").start(start_high=False)
        for _ in range(2):
            await machine._edge
        dut.reset_request.value = 0
        await machine._edge
        while dut.rst.value != 0:
            await machine._edge
        return machine

    async def read32(self, offset: int) -> int:
        """Read the register at byte offset `offset`. Raises `MachineError` if the port answers with
        an error."""
        answer = await self._control.read(offset, 4)
        if answer.resp != AxiResp.OKAY:
            raise MachineError(f"read of register {offset:#06x}: {AxiResp(answer.resp).name}")
        return int.from_bytes(answer.data, "little")

    async def write32(self, offset: int, value: int) -> None:
        """Write the register at byte offset `offset`. Raises `MachineError` if the port answers
        with an error."""
        answer = await self._control.write(offset, value.to_bytes(4, "little"))
        if answer.resp != AxiResp.OKAY:
            raise MachineError(f"write of register {offset:#06x}: {AxiResp(answer.resp).name}")

    async def interrupt(self) -> None:
        """Wait until `irq` is 1 or `wake` is called. Returns at once if `irq` is already 1,
        otherwise at the first clock edge after either event."""
        woken = 0
        while not woken and self.dut.irq.value != 1:
            woken, _ = await select(self._raised, self._wake.wait())
            await self._edge

    def wake(self) -> None:
        """Wake every coroutine that waits for an interrupt."""
        self._wake.set()
        self._wake.clear()

    async def wait_cycles(self, cycles: int) -> None:
        """Wait for `cycles` (1 or more) clock edges. Python does not run in between."""
        if cycles > 1:
            await Timer((cycles - 1) * CLOCK_NS + CLOCK_NS // 2, unit="ns")
        await self._edge

    def memory_read(self, address: int, size: int) -> bytes:
        """Read `size` bytes of memory at a physical address, in no simulated time."""
        return self.memory.read(address, size) if size else b""

    def memory_write(self, address: int, data: bytes) -> None:
        """Write `data` to memory at a physical address, in no simulated time."""
        if data:
            self.memory.write(address, data)

    def now(self) -> int:
        """Cycle counter of the top, which also counts the cycles of its trace."""
        return self.dut.cycle.value.to_unsigned()
