"""Testbench for host tests: raw channels on the whole machine, and their results.

    tb = await MachineTestbench.start(dut)
    low = await tb.channel(0, slice_cycles=500)
    await low.submit(Pushbuffer().copy(dst, src, 64))
    await tb.until_idle(low)
    starts = await tb.events(Start)

Each test starts with a reset. Events come from the trace of the run, from the reset on. Each wait
has a limit in cycles, and on failure names the awaited condition.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, TypeVar

import cocotb

from signalbox.driver.commands.pushbuffer import Pushbuffer
from signalbox.driver.memory.page_tables import PageTables
from signalbox.driver.platform.control_port import ControlPort
from signalbox.hw.config import SLOT_BYTES, WINDOW_BASE
from signalbox.hw.errors import CODE_OF, Cause
from signalbox.hw.methods import AcquireTimer, GpEntry, SemOp, pack
from signalbox.hw.registers import GLOBAL, Wait, semaphore_address
from signalbox.tb.simulation.backdoor import SETTINGS
from signalbox.tb.simulation.machine import SimMachine
from signalbox.tb.simulation.spaces import RawSpaces
from signalbox.tb.simulation.trace import Event
from signalbox.tb.simulation.trace_file import TraceFile

__all__ = [
    "CHANNEL_BYTES",
    "COPY_BYTES",
    "Halt",
    "MachineTestbench",
    "RawChannel",
    "Reads",
    "in_order",
    "semaphore",
    "setup",
]

TIMEOUT = 20_000
"""Default limit of a wait, in cycles."""

COPY_BYTES = 1024
"""Bytes of a copy that takes some hundred cycles with the default memory settings."""

CHANNELS_AT = 0x10_0000
CHANNEL_BYTES = 0x1_0000
USERD_AT = 0x2000
ARENA_AT = 0x4000
"""Memory of raw channels: one part per channel, with ring, USERD and segments. In ASID 0 virtual
addresses are physical addresses (`tb.simulation.spaces`). The page tables follow this memory."""

DATA_AT = 0xA0_0000
"""First byte of memory for data."""

MEMORY = {"read_latency": 16, "write_latency": 16}

AnyEvent = TypeVar("AnyEvent", bound=Event)


def semaphore(slot: int) -> int:
    """Virtual address of an on-chip semaphore."""
    return WINDOW_BASE + SLOT_BYTES * slot


def setup() -> Pushbuffer:
    """A pushbuffer that begins by binding the copy class."""
    return Pushbuffer().set_object()


def in_order(*moments: int) -> bool:
    """Whether the numbers are strictly increasing."""
    return all(a < b for a, b in itertools.pairwise(moments))


@dataclass(frozen=True)
class Halt:
    """The error record of a halted channel, as shown by its registers."""

    cause: Cause
    codes: int
    method: int
    subchannel: int
    valid: bool
    data: int
    va: int
    more: bool


class MachineTestbench:
    """Testbench with one machine.

    Members
    -------
    dut, machine, control : the simulation top, the driver's machine, and its control port.
    random : random numbers with the run's seed.
    spaces : address spaces. ASID 0 is bound to one with identical addresses.
    """

    def __init__(self, dut: Any, machine: SimMachine, spaces: RawSpaces, trace: TraceFile) -> None:
        self.dut = dut
        self.machine = machine
        self.control = ControlPort(machine)
        self.random = Random(cocotb.RANDOM_SEED)
        self.spaces = spaces
        self.began = machine.now()
        self._data = DATA_AT
        self._trace = trace

    @classmethod
    async def start(cls, dut: Any, *, counting: int = 0, **memory: int) -> "MachineTestbench":
        """Reset the machine. Errors raise the interrupt line.

        Parameters
        ----------
        counting : number of counting semaphores.
        memory : settings of the memory model.
        """
        machine = await SimMachine.start(dut)
        return await cls._begin(machine, counting, memory)

    async def again(self, *, counting: int = 0, **memory: int) -> "MachineTestbench":
        """A new testbench on the same machine after a reset, within the same test. Parameters as
        for `start`."""
        self.dut.reset_request.value = 1
        await self.wait(2)
        self.dut.reset_request.value = 0
        await self.wait(16)
        return await self._begin(self.machine, counting, memory)

    @classmethod
    async def _begin(
        cls, machine: SimMachine, counting: int, memory: dict[str, int]
    ) -> "MachineTestbench":
        for name in SETTINGS:
            if name != "random":
                getattr(machine.dut.memory, name).value = (MEMORY | memory).get(name, 0)
        trace = await TraceFile.open(machine)
        tb = cls(machine.dut, machine, await RawSpaces.same_addresses(machine), trace)
        await tb.control.write("SEM_COUNTING", COUNT=counting)
        await tb.control.write("INTR_ENABLE", ERROR=1)
        return tb

    # Memory

    def allocate(self, size: int, align: int = 256) -> int:
        """Address of `size` zero bytes, reserved for this test."""
        address = self._data + -self._data % align
        self._data = address + size
        self.machine.memory_write(address, bytes(size))
        return address

    def pattern(self, size: int) -> tuple[int, bytes]:
        """Address and contents of `size` random bytes."""
        data = self.random.randbytes(size)
        address = self.allocate(size)
        self.machine.memory_write(address, data)
        return address, data

    def copies(self, count: int, size: int = COPY_BYTES) -> list[tuple[int, int]]:
        """(destination, source) of `count` copies of `size` bytes."""
        return [(self.allocate(size), self.pattern(size)[0]) for _ in range(count)]

    def endless(self) -> tuple[int, int, int, int, int, int]:
        """Arguments of `Pushbuffer.copy_2d` for a copy that is endless in practice: 2³²-1 lines."""
        ((dst, src),) = self.copies(1, 4096)
        return dst, 0, src, 0, 4096, (1 << 32) - 1

    def copied(self, dst: int, src: int, size: int = COPY_BYTES) -> bool:
        """Whether the destination equals the source."""
        return self.machine.memory_read(dst, size) == self.machine.memory_read(src, size)

    def word(self, address: int, size: int = 4) -> int:
        """Current number in memory."""
        return int.from_bytes(self.machine.memory_read(address, size), "little")

    def set_word(self, address: int, value: int, size: int = 4) -> None:
        """Write a number to memory immediately."""
        self.machine.memory_write(address, value.to_bytes(size, "little"))

    # Time

    async def wait(self, cycles: int) -> None:
        """Wait for `cycles` clock edges."""
        await self.machine.wait_cycles(cycles)

    def now(self) -> int:
        """The cycle counter, as in the trace."""
        return self.machine.now()

    async def until(
        self,
        condition: Callable[[], object],
        description: str,
        timeout: int = TIMEOUT,
        poll: int = 8,
    ) -> None:
        """Poll until the condition holds, every `poll` cycles; fail with `description`, the awaited
        condition, after `timeout` cycles."""
        end = self.now() + timeout
        while not condition():
            assert self.now() < end, f"not within {timeout} cycles: {description}"
            await self.machine.wait_cycles(poll)

    async def until_word(self, address: int, value: int, timeout: int = TIMEOUT) -> None:
        """Wait until the 32-bit word at `address` is `value`."""
        description = f"word {value:#x} at {address:#x}"
        await self.until(lambda: self.word(address) == value, description, timeout)

    async def let_go(self, slot: int, value: int) -> None:
        """Write the low word of an on-chip semaphore. This is a single update; writing both halves
        would make waiting channels fail once more after the first half."""
        await self.machine.write32(semaphore_address(slot, "PAYLOAD_LO"), value)

    async def until_semaphore(self, slot: int, value: int, timeout: int = TIMEOUT) -> None:
        """Wait until an on-chip semaphore is `value`."""
        end = self.now() + timeout
        while (found := await self.control.read_semaphore(slot)) != value:
            assert self.now() < end, f"semaphore {slot} is {found}, not {value}"

    async def until_idle(self, *channels: "RawChannel", timeout: int = TIMEOUT) -> None:
        """Wait until the channels have executed everything; fail if one halts."""
        end = self.now() + timeout
        for channel in channels:
            while True:
                status = await channel.status()
                assert not status["HALTED"], f"channel {channel.index}: {await channel.halt()}"
                if not status["PENDING"] and not status["COPIES"] and not status["WAIT"]:
                    if await channel.read("GP_GET") == channel.put:
                        break
                assert self.now() < end, f"channel {channel.index} is not idle: {status}"

    async def until_waits(self, channel: "RawChannel", wait: Wait, timeout: int = TIMEOUT) -> None:
        """Wait until the channel is waiting for `wait` and not being served."""
        end = self.now() + timeout
        while True:
            status = await channel.status()
            if status["WAIT"] == wait.value and not status["SERVED"]:
                return
            assert not status["HALTED"], f"channel {channel.index}: {await channel.halt()}"
            assert self.now() < end, f"channel {channel.index} does not wait for {wait}: {status}"

    # Events

    async def events(self, kind: type[AnyEvent], **match: Any) -> list[AnyEvent]:
        """Events of one kind since the start, oldest first, with the field values in `match`."""
        events = [event for event in await self.all_events() if isinstance(event, kind)]
        return [
            event
            for event in events
            if all(getattr(event, name) == value for name, value in match.items())
        ]

    async def all_events(self) -> list[Event]:
        """All events since the start."""
        return await self._trace.events()

    def watch_reads(self) -> "Reads":
        """Begin to record read requests on the memory port."""
        return Reads(self)

    # Channels

    async def channel(self, index: int, **settings: Any) -> "RawChannel":
        """A channel, enabled with an empty ring; settings as for `RawChannel.open`."""
        channel = RawChannel(self, index)
        await channel.open(**settings)
        return channel

    async def copy_channel(self, index: int, **settings: Any) -> "RawChannel":
        """As `channel`, with the copy class bound."""
        channel = await self.channel(index, **settings)
        await channel.submit(setup())
        await self.until_idle(channel)
        return channel

    async def space(self, asid: int, *channels: int) -> PageTables:
        """Bind a new address space in which only the memory of these channels is mapped."""
        tables = self.spaces.tables()
        for index in channels:
            own = CHANNELS_AT + CHANNEL_BYTES * index
            tables.map(own, own, CHANNEL_BYTES, page_size=CHANNEL_BYTES)
        await self.spaces.bind(asid, tables)
        return tables

    async def interrupts(self) -> dict[str, int]:
        """Fields of INTR."""
        return GLOBAL["INTR"].unpack(await self.control.read("INTR"))


class Reads:
    """Read requests on the memory port, recorded in every cycle as (cycle, address)."""

    def __init__(self, tb: MachineTestbench) -> None:
        self._tb = tb
        self.seen: list[tuple[int, int]] = []
        self._task = cocotb.start_soon(self._record())

    async def _record(self) -> None:
        dut, edge = self._tb.dut, self._tb.machine._edge
        while True:
            await edge
            if dut.axi__arvalid.value == 1 and dut.axi__arready.value == 1:
                self.seen.append((self._tb.now(), dut.axi__araddr.value.to_unsigned()))

    def stop(self) -> list[tuple[int, int]]:
        """Stop and return the recording."""
        self._task.cancel()
        return self.seen


class RawChannel:
    """One hardware channel. The test writes its ring, USERD and segments.

    Members
    -------
    index : channel number.
    put : ring index after the last pushed entry.
    ring, userd : addresses.
    """

    def __init__(self, tb: MachineTestbench, index: int) -> None:
        self.tb = tb
        self.index = index
        base = CHANNELS_AT + CHANNEL_BYTES * index
        self.ring, self.userd, self._arena = base, base + USERD_AT, base + ARENA_AT
        self._end = base + CHANNEL_BYTES
        self.put = 0

    async def open(
        self,
        *,
        asid: int = 0,
        slice_cycles: int = 1 << 30,
        limit2: int = 5,
        privileged: bool = False,
        retry: int = 8,
        timeout_units: int = 0,
        early_waits: bool = False,
        context: int = 0,
        priority: int = 0,
    ) -> None:
        """Write the registers and enable the channel.

        Parameters
        ----------
        limit2 : the ring has 2^limit2 entries.
        retry : retry period in cycles, below 128.
        timeout_units : time-out in units of 1,024 ns; 0 for none.
        """
        self.entries = 1 << limit2
        self.tb.machine.memory_write(self.userd, bytes(512))
        acquire = pack(
            AcquireTimer,
            retry_man=retry,
            timeout_man=timeout_units,
            timeout_enable=timeout_units > 0,
        )
        await self.write("CONTROL", ENABLE=0)
        await self.write("GP_BASE", self.ring)
        await self.write("GP_BASE_HI", OFFSET=self.ring >> 32, LIMIT2=limit2)
        await self.write("USERD", self.userd)
        await self.write("USERD_HI", ADDRESS=self.userd >> 32)
        rights = {"AUTH_LEVEL": int(privileged), "EARLY_WAITS": int(early_waits)}
        await self.write("CONFIG", ASID=asid, CONTEXT=context, PRIORITY=priority, **rights)
        await self.write("SLICE", slice_cycles)
        await self.write("ACQUIRE", acquire)
        await self.write("CONTROL", ENABLE=1)

    # Registers

    async def write(self, name: str, value: int = 0, **fields: int) -> None:
        """Write a register of the channel."""
        await self.tb.control.write_channel(self.index, name, value, **fields)

    async def read(self, name: str) -> int:
        """Value of a register of the channel."""
        return await self.tb.control.read_channel(self.index, name)

    async def status(self) -> dict[str, int]:
        """Fields of STATUS."""
        return await self.tb.control.read_channel_fields(self.index, "STATUS")

    async def until_inactive(self, timeout: int = TIMEOUT) -> None:
        """Wait until the channel has no memory accesses in flight."""
        end = self.tb.now() + timeout
        while (await self.status())["ACTIVE"]:
            assert self.tb.now() < end, f"channel {self.index} stays active"

    # Submission

    def place(self, dwords: Sequence[int], at: int | None = None) -> int:
        """Write a segment to memory, at the next free bytes or at `at`. Returns its address."""
        data = b"".join(dword.to_bytes(4, "little") for dword in dwords)
        if at is None:
            at, self._arena = self._arena, self._arena + len(data) + -len(data) % 16
            assert self._arena <= self._end, "the channel's memory is used up"
        self.tb.machine.memory_write(at, data)
        return at

    def push(self, word: int) -> None:
        """Write one ring entry, a 64-bit number, without changing GP_PUT."""
        self.tb.machine.memory_write(self.ring + 8 * self.put, word.to_bytes(8, "little"))
        self.put = (self.put + 1) % self.entries

    def segment(
        self, commands: Pushbuffer | Sequence[int], *, at: int | None = None, sync: bool = False
    ) -> None:
        """Write a segment to memory, and its entry to the ring."""
        dwords = commands.dwords if isinstance(commands, Pushbuffer) else commands
        address = self.place(dwords, at)
        self.push(pack(GpEntry, address=address // 4, length=len(dwords), sync_wait=sync))

    def publish(self, put: int | None = None) -> None:
        """Write GP_PUT to USERD."""
        self.tb.set_word(self.userd + 0x8C, self.put if put is None else put)

    async def ring_doorbell(self) -> None:
        """Ring the doorbell."""
        await self.tb.control.write("DOORBELL", CHID=self.index)

    async def kick(self) -> None:
        """Write GP_PUT and ring the doorbell."""
        self.publish()
        await self.ring_doorbell()

    async def submit(
        self, commands: Pushbuffer | Sequence[int], *, at: int | None = None, sync: bool = False
    ) -> None:
        """Submit one segment immediately."""
        self.segment(commands, at=at, sync=sync)
        await self.kick()

    # Errors

    async def halt(self) -> Halt:
        """The error record."""
        held = await self.tb.control.read_channel_fields(self.index, "METHOD0")
        low, high = await self.read("ERROR_VA"), await self.read("ERROR_VA_HI")
        codes = await self.read("INTR_1") << 32 | await self.read("INTR_0")
        why = await self.tb.control.read_channel_fields(self.index, "CAUSE")
        return Halt(
            Cause(why["CAUSE"]),
            codes,
            held["ADDRESS"] * 4,
            held["SUBCHANNEL"],
            bool(held["VALID"]),
            await self.read("DATA0"),
            high << 32 | low,
            bool(why["MORE"]),
        )

    async def until_halted(self, cause: Cause, timeout: int = TIMEOUT) -> Halt:
        """Wait until the channel is halted, and check all effects of an error. Returns its
        record."""
        end = self.tb.now() + timeout
        while not (await self.status())["HALTED"]:
            assert self.tb.now() < end, f"channel {self.index} did not halt for {cause.name}"
        halt = await self.halt()
        assert halt.cause is cause, halt
        assert halt.codes == 1 << CODE_OF[cause], halt
        assert self.tb.dut.irq.value == 1
        assert (await self.tb.interrupts())["ERROR"] == 1
        assert await self.tb.control.read("INTR_ERROR_LO") >> self.index & 1
        return halt

    async def clear(self) -> None:
        """Clear the error. A held method is executed again."""
        for name in ("INTR_0", "INTR_1"):
            pending = await self.read(name)
            if pending:
                await self.write(name, pending)

    async def replace(self, method: int, data: int = 0, subchannel: int = 0) -> None:
        """Clear the error, with another method instead of the held one."""
        await self.write("DATA0", data)
        await self.write("METHOD0", ADDRESS=method // 4, SUBCHANNEL=subchannel, VALID=1)
        await self.clear()

    async def skip(self) -> None:
        """Clear the error and continue after the held method."""
        await self.write("METHOD0", VALID=0)
        await self.clear()


def acquires(*slots: int) -> Pushbuffer:
    """Acquires of these on-chip semaphores for value 0."""
    commands = Pushbuffer()
    for slot in slots:
        commands.acquire(semaphore(slot), 0, SemOp.ACQUIRE)
    return commands
