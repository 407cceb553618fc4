"""Testbench of the semaphore unit: drives every port and checks every cycle against the reference
model.

Operations take effect in order of acceptance: those on chip at once, those in memory when they are
answered. The model executes each at that time, and later outputs (`response`, `update`) are
compared in exactly the cycle in which they are due. A flag of `zero` may change in any cycle until
it is due, but never changes back.
"""

import os
from collections import deque
from dataclasses import asdict, dataclass, field
from random import Random
from typing import Any

import cocotb
from cocotb.triggers import RisingEdge

from signalbox.hw.config import SLOT_BYTES, WINDOW_BASE, Config
from signalbox.hw.methods import pack
from signalbox.hw.records.semaphore import SemaphoreError, semaphore_clients, semaphore_request
from signalbox.tb.models.semaphores import ACQUIRES, SemaphoreMemory
from signalbox.tb.testbench.reset import reset
from signalbox.tb.units.semaphore.configs import SIZES
from signalbox.tb.units.semaphore.memory import Memory

__all__ = ["Bench", "Operation", "slot"]

# Cycles from acceptance on chip; one more directly after an operation that writes the same slot.
EFFECT = 2  # to update
RESPONSE = 3  # to the response
EXACT = 4  # to the zero flag, at the latest
WINDOW = 6  # to the control port's response
TIMEOUT = 20_000  # cycles


def slot(index: int) -> int:
    """Address of an on-chip semaphore."""
    return WINDOW_BASE + index * SLOT_BYTES


@dataclass(frozen=True)
class Operation:
    """One semaphore operation, with the fields of `semaphore_request`."""

    va: int
    operation: int
    payload: int = 0
    reduction: int = 0
    unsigned: bool = True
    wide: bool = False
    timestamp: bool = False
    asid: int = 0


@dataclass
class Client:
    """Operations of one client.

    Members
    -------
    todo : operations not yet offered.
    offered, waiting : operation on the port, and operation accepted but not answered.
    accepted : cycle of each acceptance.
    offered_at : cycle of the current offer.
    latencies : cycles from acceptance to response, of on-chip operations.
    results : (operation, passed, error).
    eager : offer the next operation at once; else after a random pause.
    """

    todo: deque[Operation] = field(default_factory=deque)
    offered: Operation | None = None
    waiting: Operation | None = None
    accepted: list[int] = field(default_factory=list)
    offered_at: int = 0
    waits: list[int] = field(default_factory=list)
    latencies: list[int] = field(default_factory=list)
    results: list[tuple[Operation, bool, str]] = field(default_factory=list)
    eager: bool = True

    @property
    def idle(self) -> bool:
        return not self.todo and self.offered is None and self.waiting is None


class Bench:
    """Testbench of `SemaphoreUnit(SIZES[$SIZE])`.

    Members
    -------
    clients : by port number; add operations to their `todo`.
    window_todo : accesses of the control port: (address, None) to read, (address, data) to write.
    window_results : answers to the control port, in order.
    model : the reference.
    memory : memory at the fence unit's ports.
    cycle : number of the last sampled cycle.
    updates : number of `update` strobes so far.
    accepted : cycles in which an operation was accepted.
    """

    def __init__(self, dut: Any) -> None:
        self.dut = dut
        self.config: Config = SIZES[os.environ["SIZE"]]
        self.random = Random(int(os.environ["COCOTB_RANDOM_SEED"]))
        self.clients = [Client() for _ in range(semaphore_clients(self.config))]
        self.window_todo: deque[tuple[int, int | None]] = deque()
        self.window_results: list[int] = []
        self.window_eager = True
        self.model = SemaphoreMemory(self.config.semaphores)
        self.memory = Memory(dut, self.config, self.random)
        self.cycle = 0
        self.updates = 0
        self.accepted: list[int] = []
        self.in_memory: deque[int] = deque()
        self.window_offered: tuple[int, int | None] | None = None
        self._window_busy = False
        self._responses: dict[int, tuple[int, bool, str]] = {}
        self._window_due: dict[int, int] = {}
        self._updates_due: dict[int, tuple[int, bool, int]] = {}
        self._zero_due: dict[int, int] = {}
        self._zeros = [self.model.zero(self.config.counters)]
        self._writing = (0, 0)

    async def start(self, counting: int = 0) -> None:
        """Start the clock and reset."""
        dut = self.dut
        for number in range(len(self.clients)):
            dut[f"client__{number}__request__valid"].value = 0
            dut[f"client__{number}__request__payload"].value = 0
            dut[f"client__{number}__response__ready"].value = 1
        dut["window__request__valid"].value = 0
        dut["window__request__payload"].value = 0
        dut["window__response__ready"].value = 1
        dut.counting.value = counting
        dut.time.value = 0
        self.model.counting = counting
        await reset(dut)
        for _ in range(self.config.semaphores + 4):  # the unit clears its slots
            await self.step()

    def count(self, counting: int) -> None:
        """Set the number of counting semaphores; the unit must be idle."""
        self.model.counting = counting
        self.dut.counting.value = counting

    async def run(self) -> None:
        """Run until everything is done."""
        for _ in range(TIMEOUT):
            await self.step()
            idle = all(client.idle for client in self.clients)
            if idle and not self.window_todo and not self._window_busy and not self._due():
                return
        raise AssertionError("operations are not answered")

    async def do(self, operation: Operation, client: int = 0) -> tuple[bool, str]:
        """Execute one operation alone. Returns the unit's answer."""
        self.clients[client].todo.append(operation)
        await self.run()
        return self.clients[client].results[-1][1:]

    async def access(self, address: int, data: int | None = None) -> int:
        """Execute one access of the control port. Returns the answer."""
        self.window_todo.append((address, data))
        await self.run()
        return self.window_results[-1]

    def compare_memory(self) -> None:
        """Check every byte of memory against the model."""
        for key in self.memory.content.keys() | self.model.memory.keys():
            assert self.memory.content[key] == self.model.memory[key], key

    async def step(self) -> None:
        """One cycle: sample, check, drive."""
        await RisingEdge(self.dut.clk)
        self.cycle += 1
        self._check_outputs()
        self._sample_responses()
        self._sample_requests()
        self.memory.step(self.cycle)
        self._drive()

    def time(self, cycle: int) -> int:
        """PTIMER in a cycle; both halves change."""
        return cycle * 0x0000_0123_4567_89AB % (1 << 64)

    def _due(self) -> bool:
        return bool(self._responses or self._window_due or self._updates_due or self._zero_due)

    # Outputs of the unit

    def _check_outputs(self) -> None:
        for _ in range(self._zero_due.pop(self.cycle, 0)):
            self._zeros.pop(0)
        zero = int(self.dut.zero.value)
        for index in range(self.config.counters):
            # States from the earliest possible one; once a state is shown, earlier ones are
            # excluded.
            states = [state >> index & 1 for state in self._zeros]
            assert zero >> index & 1 in states, f"cycle {self.cycle}: zero is {zero:#x}"
        due = self._updates_due.pop(self.cycle, None)
        update = int(self.dut.update.value)
        shown = update >> 1 if update & 1 else None
        assert shown == (due and due[0]), f"cycle {self.cycle}: update of {shown}, not {due}"
        self.updates += due is not None and due[1]
        if self.config.trace:
            bits = self.config.semaphore_bits
            written = int(self.dut.written.value)
            got = (written >> 1 & ((1 << bits) - 1), written >> (1 + bits)) if written & 1 else None
            assert got == ((due[0], due[2]) if due and due[1] else None), f"cycle {self.cycle}"

    def _sample_responses(self) -> None:
        for number, client in enumerate(self.clients):
            due = self._responses.get(self.cycle)
            if not self.dut[f"client__{number}__response__valid"].value:
                assert due is None or due[0] != number, f"no response in cycle {self.cycle}"
                continue
            payload = int(self.dut[f"client__{number}__response__payload"].value)
            got = (bool(payload & 1), SemaphoreError(payload >> 1).name)
            operation = client.waiting
            assert operation is not None, f"client {number}: an unexpected response"
            if due is not None and due[0] == number:
                del self._responses[self.cycle]
                expected = due[1:]
                client.latencies.append(self.cycle - client.accepted[-1])
            else:
                assert self.in_memory and self.in_memory[0] == number, "memory: order"
                self.in_memory.popleft()
                expected = self._end_in_memory(operation)
            assert got == expected, f"{operation}: {got}, not {expected}"
            client.results.append((operation, *got))
            client.waiting = None
        data = int(self.dut["window__response__payload"].value)
        due = self._window_due.pop(self.cycle, None)
        assert bool(self.dut["window__response__valid"].value) == (due is not None)
        if due is not None:
            assert due in {data, -1}, f"window: {data:#x}, not {due:#x}"
            self.window_results.append(data)
            self._window_busy = False

    def _end_in_memory(self, operation: Operation) -> tuple[bool, str]:
        """Execute an operation in memory on the model. Returns the expected answer."""
        failure, self.memory.failure = self.memory.failure, None
        writes, self.memory.writes = self.memory.writes, []
        stamped = operation.timestamp and operation.operation not in ACQUIRES
        now = 0
        if stamped and writes:
            address, content = writes.pop(0)
            assert address == operation.va + 8 and len(content) == 8, "timestamp comes first"
            now = int.from_bytes(content, "little")
            assert now in {self.time(cycle) for cycle in range(self.cycle + 1)}, "not the time"
            self.model.write_stamp(operation.va, now, operation.asid)
        if failure is not None:
            assert not writes, "written despite an error"
            return False, failure
        expected = self.model.execute(**asdict(operation), now=now)
        if operation.operation in ACQUIRES:
            assert not writes and not stamped, "an acquire writes"
        else:
            size = 8 if operation.wide or stamped else 4
            value = self.model.read(operation.va, 8 * size, operation.asid)
            assert writes == [(operation.va, value.to_bytes(size, "little"))], writes
        return expected

    # Inputs accepted by the unit

    def _sample_requests(self) -> None:
        accepted = 0
        for number, client in enumerate(self.clients):
            if client.offered is None:
                continue
            if self.dut[f"client__{number}__request__ready"].value:
                accepted += 1
                client.accepted.append(self.cycle)
                client.waits.append(self.cycle - client.offered_at)
                client.waiting, client.offered = client.offered, None
                self._accept(number, client.waiting)
        if self.window_offered is not None and self.dut["window__request__ready"].value:
            accepted += 1
            self._accept_window(*self.window_offered)
            self.window_offered = None
        assert accepted <= 1, "two operations accepted in one cycle"
        if accepted:
            self.accepted.append(self.cycle)

    def _accept(self, number: int, operation: Operation) -> None:
        fields = {name: value for name, value in asdict(operation).items()}
        refusal_fields = {k: v for k, v in fields.items() if k not in {"payload", "asid"}}
        on_chip = self.model.on_chip(operation.va)
        if not on_chip and self.model.refusal(**refusal_fields) == "NONE":
            self.in_memory.append(number)
            return
        delay = self._delay(operation.va >> 4)
        now = self.time(self.cycle + 1 + delay)
        passed, error = self.model.execute(**fields, now=now)
        self._responses[self.cycle + RESPONSE + delay] = (number, passed, error)
        tried = passed or error in {"UNDERFLOW", "OVERFLOW"}
        if tried and operation.operation not in ACQUIRES:
            self._wrote((operation.va - WINDOW_BASE) // SLOT_BYTES, delay, passed)

    def _accept_window(self, address: int, data: int | None) -> None:
        delay = self._delay(address >> 2)
        due = self.cycle + WINDOW + delay
        if data is None:
            self._window_due[due] = self.model.window_read(address)
            return
        self._window_due[due] = -1
        self.model.window_write(address, data)
        index, word = divmod(address, 4)
        if index < self.config.semaphores and word < 2:
            self._wrote(index, delay, True)

    def _delay(self, index: int) -> int:
        """1 directly after an operation that writes the same slot, else 0."""
        bits = self.config.semaphore_bits
        return int(self._writing == (self.cycle, index % (1 << bits)))

    def _wrote(self, index: int, delay: int, written: bool) -> None:
        """Expect the effects of an operation on a slot, which wrote it or was refused."""
        self._writing = (self.cycle + 1 + delay, index)
        self._updates_due[self.cycle + EFFECT + delay] = (index, written, self.model.values[index])
        self._zeros.append(self.model.zero(self.config.counters))
        due = self.cycle + EXACT + delay
        self._zero_due[due] = self._zero_due.get(due, 0) + 1

    def _drive(self) -> None:
        for number, client in enumerate(self.clients):
            if client.offered is None and client.waiting is None and client.todo:
                if client.eager or self.random.random() < 0.3:
                    client.offered = client.todo.popleft()
                    client.offered_at = self.cycle + 1
                    self.dut[f"client__{number}__request__payload"].value = pack(
                        semaphore_request(self.config), **asdict(client.offered)
                    )
            self.dut[f"client__{number}__request__valid"].value = int(client.offered is not None)
        if self.window_todo and not self._window_busy:
            if self.window_eager or self.random.random() < 0.3:
                self.window_offered = address, data = self.window_todo.popleft()
                self._window_busy = True
                self.dut["window__request__payload"].value = (
                    address | (data is not None) << 12 | (data or 0) << 13
                )
        self.dut["window__request__valid"].value = int(self.window_offered is not None)
        self.dut.time.value = self.time(self.cycle + 1)


async def start(dut: Any, counting: int = 0) -> Bench:
    """A testbench after reset."""
    bench = Bench(dut)
    cocotb.log.info("size %s, seed %s", os.environ["SIZE"], os.environ["COCOTB_RANDOM_SEED"])
    await bench.start(counting)
    return bench
