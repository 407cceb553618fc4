"""A machine in plain Python for tests of the driver: `tb.models.host` behind the register map."""

import asyncio
from typing import Any

from signalbox.hw.config import Config
from signalbox.hw.errors import CODE_OF, Cause
from signalbox.hw.registers import CHANNEL, GLOBAL, OBJECTS, REGISTERS, Access
from signalbox.tb.driver.fakes.compute import FakeCompute
from signalbox.tb.driver.fakes.compute_host import ComputeHost
from signalbox.tb.driver.fakes.faults import FakeFaults
from signalbox.tb.driver.fakes.mmu_port import FakeMmuPort
from signalbox.tb.driver.fakes.runlist import FakeRunlist
from signalbox.tb.driver.fakes.translator import Translator
from signalbox.tb.models.host import Copied, Held, Notified, Ring
from signalbox.tb.testbench.masks import mask

__all__ = ["FakeMachine"]

SPACE = 1 << 23
"""Bytes of memory: a power of two, more than any test uses."""


class FakeMachine:
    """A `driver.platform.machine.Machine` in Python. A cycle is one step of one channel and one
    block.

    Members
    -------
    model : the host.
    doorbells : channels rung, in order.
    translator : page tables and TLB.
    compute : the compute engine; None without one.
    mmu, faults : registers of binds and invalidations, and of the fault buffer.
    runlist : registers and turns of the runlist.
    linger : cycles for which a channel still uses its memory after it is disabled.
    memory : bytes of memory, any object that can be sliced like a bytearray; default: `SPACE`
        bytes, or fewer.
    idle_limit : number of consecutive polls of the interrupt line, with nothing to execute, after
        which a wait fails because it would never end.
    """

    def __init__(
        self, config: Config | None = None, *, idle_limit: int = 200, memory: Any = None
    ) -> None:
        self.config = config or Config(memory_bytes=SPACE)
        self.memory = memory or bytearray(min(self.config.memory_bytes, SPACE))
        self.cycle = 0
        self.translator = Translator(self.memory)
        self.mmu = FakeMmuPort(self.config, self.translator)
        self.faults = FakeFaults(self.memory, self.translator, self._time)
        self.runlist = FakeRunlist(self.config, self.memory)
        self.model = ComputeHost(self.config, self.memory, self._time, self.faults.translate)
        self.compute: FakeCompute | None = None
        if self.config.compute:
            parts = self.config, self.memory, self.translator, self.faults
            self.compute = FakeCompute(*parts, self.model.release, self.model.ended)
            self.model.compute = self.compute
        self.doorbells: list[int] = []
        self.idle_limit = idle_limit
        self.paused = False
        self.linger = 0
        self._active_until: dict[int, int] = {}
        self._seen = self._wakes = 0
        self._notify = self._copy = self._enable = 0
        self._where = {
            block.address(register.name, index): (block.name, register.name, index)
            for block in REGISTERS
            for index in range(block.built(self.config))
            for register in block
        }
        self._words: dict[int, int] = {
            GLOBAL.address(register.name): register.initial(self.config) or 0 for register in GLOBAL
        }

    @property
    def engine(self) -> FakeCompute:
        """The compute engine of a machine that has one."""
        assert self.compute is not None, "the machine has no compute engine"
        return self.compute

    def _time(self) -> int:
        return self.cycle * self.config.cycle_ns

    # driver.platform.machine.Machine

    async def read32(self, offset: int) -> int:
        """Returns a register's value."""
        await self.wait_cycles(4)
        block, name, index = self._where[offset]
        if block == "SEMAPHORE":
            return self.model.semaphores.window_read((offset - 0x8000) // 4)
        if block == "CHANNEL":
            return self._channel_word(index, name, offset)
        return self._global_word(name, offset)

    async def write32(self, offset: int, value: int) -> None:
        """Write a register. Raises `AssertionError` if the hardware would answer SLVERR."""
        await self.wait_cycles(4)
        block, name, index = self._where[offset]
        found = next(block_ for block_ in REGISTERS if block_.name == block)
        assert found[name].access is not Access.RO, f"write to {name}"
        if block == "SEMAPHORE":
            self.model.semaphores.window_write((offset - 0x8000) // 4, value)
            self.model.wake()
        elif block == "CHANNEL":
            self._write_channel(index, name, offset, value)
        elif block == "CONTEXT":
            self.engine.contexts[index][name] = value
        else:
            self._write_global(name, offset, value)

    async def interrupt(self) -> None:
        """Wait until the interrupt line is 1, or for a call of `wake`."""
        idle, before = 0, self._wakes
        while not self.line and self._wakes == before:
            idle = 0 if self._moves() else idle + 1
            assert idle < self.idle_limit, "waits for an interrupt that never comes"
            await self.wait_cycles(1)

    def wake(self) -> None:
        """Wake every task that waits for an interrupt."""
        self._wakes += 1

    async def wait_cycles(self, cycles: int) -> None:
        """Step the model and let other tasks run."""
        for _ in range(cycles):
            self.cycle += 1
            self.mmu.step()
            self.runlist.step()
            if not self.paused and (ready := self.runlist.able(self.model.ready())):
                self.model.step(ready[0])
            if not self.paused and self.compute is not None:
                self.compute.step()
        self._collect()
        await asyncio.sleep(0)

    def _moves(self) -> bool:
        busy = self.compute is not None and self.compute.busy
        return not self.paused and (busy or bool(self.model.ready()))

    def memory_read(self, address: int, size: int) -> bytes:
        """Returns bytes of memory."""
        assert address + size <= len(self.memory), "outside the memory"
        return bytes(self.memory[address : address + size])

    def memory_write(self, address: int, data: bytes) -> None:
        """Write bytes to memory."""
        assert address + len(data) <= len(self.memory), "outside the memory"
        self.memory[address : address + len(data)] = data
        self.model.wake()

    def now(self) -> int:
        """Cycles since the start."""
        return self.cycle

    # Registers

    @property
    def line(self) -> bool:
        """Level of the interrupt line."""
        return bool(self._pending() & self._enable)

    def copies(self) -> list[Copied]:
        """Returns the copies so far, in order of completion."""
        return [event for event in self.model.events if isinstance(event, Copied)]

    def _collect(self) -> None:
        for event in self.model.events[self._seen :]:
            if isinstance(event, Notified) and event.copy:
                self._copy |= 1 << event.channel
            elif isinstance(event, Notified):
                self._notify |= 1 << event.channel
        self._seen = len(self.model.events)

    def _errors(self) -> int:
        return mask(n for n, channel in enumerate(self.model.channels) if channel.halted)

    def _pending(self) -> int:
        tasks = self.compute is not None and self.compute.interrupt
        channels = (self._errors(), self._notify, self._copy)
        bits = (*channels, self.faults.pending, tasks, self.runlist.pending)
        return sum(bool(bit) << place for place, bit in enumerate(bits))

    def _global_word(self, name: str, offset: int) -> int:
        masks = {"INTR_ERROR": self._errors(), "INTR_NOTIFY": self._notify, "INTR_COPY": self._copy}
        if name.startswith("TIME_"):
            return self._time() >> 32 * int(name[-1]) & 0xFFFF_FFFF
        if name == "INTR":
            return self._pending()
        if name == "INTR_ENABLE":
            return self._enable
        if name == "FAULT_SIZE":
            return self.faults.size()
        if self.compute is not None and name == "TASK_STATE":
            return self.compute.state()
        for port in (self.mmu, self.faults, self.compute, self.runlist):
            if port is not None and name in port.words:
                return port.words[name]
        for group, value in masks.items():
            if name == f"{group}_LO":
                return value & 0xFFFF_FFFF
            if name == f"{group}_HI":
                return value >> 32
        return self._words[offset]

    def _write_global(self, name: str, offset: int, value: int) -> None:
        shift = 32 if name.endswith("_HI") else 0
        if name == "DOORBELL":
            self.doorbells.append(value)
            if value < self.config.channels:
                self.model.doorbell(value)
        elif name == "INTR_ENABLE":
            self._enable = value
        elif name.startswith("INTR_NOTIFY"):
            self._notify &= ~(value << shift)
        elif name.startswith("INTR_COPY"):
            self._copy &= ~(value << shift)
        elif name.startswith("MMU_"):
            self.mmu.write(name, value)
        elif name.startswith("FAULT_"):
            self.faults.write(name, value)
        elif name.startswith("RUNLIST_"):
            self.runlist.write(name, value)
        elif self.compute is not None and name in self.compute.words:
            self.compute.write(name, value)
        else:
            if name == "SEM_COUNTING":
                self.model.semaphores.counting = value
            self._words[offset] = value

    def _channel_word(self, index: int, name: str, offset: int) -> int:
        channel = self.model.channels[index]
        code = CODE_OF.get(channel.halted)
        blamed = channel.blamed if channel.halted else None
        match name:
            case "STATUS":
                return CHANNEL["STATUS"].pack(
                    ENABLED=int(channel.ring is not None),
                    HALTED=int(channel.halted is not Cause.NONE),
                    PENDING=int(self.model.busy(index)),
                    ACTIVE=int(self.active(index)),
                    WAIT=4 if channel.blocked else 0,
                    TASKS=self._tasks(index),
                )
            case "GP_PUT":
                return channel.put
            case "GP_GET":
                return channel.get
            case "INTR_0" | "INTR_1":
                bit = -1 if code is None else code - 32 * int(name[-1])
                return 1 << bit if 0 <= bit < 32 else 0
            case "CAUSE":
                return self.model.cause(index)
            case "ERROR_VA":
                return channel.va & 0xFFFF_FFFF
            case "ERROR_VA_HI":
                return channel.va >> 32
            case "METHOD0":
                if blamed is None:
                    return 0
                return blamed.address | blamed.subchannel << 16 | int(channel.holds) << 31
            case "DATA0":
                return blamed.data if blamed else 0
            case "REFERENCE":
                return channel.reference
            case "METHODS":
                return channel.executed & 0xFFFF_FFFF
            case "COPIES":
                return channel.copies
            case "TASKS":
                return self.model.over[index]
            case _ if name in OBJECTS:
                return channel.objects.get(OBJECTS.index(name), 0)
        return self._words.get(offset, 0)

    def _write_channel(self, index: int, name: str, offset: int, value: int) -> None:
        channel = self.model.channels[index]
        if name == "CONTROL":
            self._switch(index, bool(value & 1))
        elif name in {"INTR_0", "INTR_1"}:
            if value & self._channel_word(index, name, offset):
                self.model.clear(index)
        elif name == "DATA0" and channel.pending is not None:
            channel.pending = channel.blamed = channel.pending._replace(data=value)
        elif name == "METHOD0" and channel.halted:
            data = channel.pending.data if channel.pending else 0
            held = Held(value & 0x3FFC, value >> 16 & 7, data)
            channel.blamed, channel.holds = held, bool(value >> 31)
            channel.pending = held if channel.holds else None
        self._words[offset] = value

    def active(self, index: int) -> bool:
        """Whether a channel still uses its memory."""
        return self.cycle < self._active_until.get(index, 0) or self._tasks(index) > 0

    def _tasks(self, index: int) -> int:
        return self.compute.tasks(index) if self.compute else 0

    def _switch(self, index: int, on: bool) -> None:
        def word(name: str) -> int:
            return self._words[CHANNEL.address(name, index)]

        if not on:
            if self.model.channels[index].ring is not None:
                self._active_until[index] = self.cycle + self.linger
            self.model.disable(index)
            return
        assert not self.active(index), "a start of an active channel holds up the control port"
        high = CHANNEL["GP_BASE_HI"].unpack(word("GP_BASE_HI"))
        base = high["OFFSET"] << 32 | word("GP_BASE")
        userd = word("USERD_HI") << 32 | word("USERD")
        config = CHANNEL["CONFIG"].unpack(word("CONFIG"))
        ring = Ring(base, 1 << high["LIMIT2"], userd)
        privileged = bool(config["AUTH_LEVEL"])
        self.model.contexts[index] = config["CONTEXT"]
        self.model.enable(index, ring, privileged=privileged, asid=config["ASID"])
