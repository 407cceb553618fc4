"""Testbench of the semaphore unit: drives every port and checks every cycle against the reference
model.

Operations take effect in order of acceptance: on-chip operations at once, operations in memory when
they are answered. The model executes each at that time, and later outputs (`response`, `update`)
are compared in exactly the cycle in which they are due. A flag of `zero` may change in any cycle
until it is due, but never changes back.
"""

import os
from collections import deque
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Self

from signalbox.hw.config import SLOT_BYTES, WINDOW_BASE, Config
from signalbox.hw.records.semaphore import semaphore_clients
from signalbox.hw.semaphore.unit import SemaphoreUnit
from signalbox.tb.models.semaphores import ACQUIRES, SemaphoreMemory
from signalbox.tb.testbench.clocked import Testbench, component
from signalbox.tb.testbench.ends import Sink, Source
from signalbox.tb.units.semaphore.configs import SIZES
from signalbox.tb.units.semaphore.memory import Memory
from signalbox.tb.units.semaphore.outputs import Outputs

__all__ = ["Operation", "SemaphoreTestbench", "slot"]

# Cycles from acceptance on chip; one more directly after an operation that writes the same slot.
RESPONSE = 3  # to the response
WINDOW = 6  # to the control port's response


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


class Client:
    """Operations of one client, one at a time.

    Members
    -------
    offered, waiting : operation on the port, and operation accepted but not answered.
    accepted : cycle of each acceptance.
    waits : cycles from each offer to its acceptance.
    latencies : cycles from acceptance to response, of on-chip operations.
    results : (operation, passed, error).
    eager : offer the next operation at once; otherwise after a random pause.
    """

    def __init__(self, tb: "SemaphoreTestbench", number: int) -> None:
        self.offered: Operation | None = None
        self.waiting: Operation | None = None
        self.accepted: list[int] = []
        self.waits: list[int] = []
        self.latencies: list[int] = []
        self.results: list[tuple[Operation, bool, str]] = []
        self.eager = True
        self._tb, self._offered_at = tb, 0
        self._source = Source(tb, f"client__{number}__request", self._pace, self._taken)
        self._accept = partial(tb.accept, number)

    @property
    def idle(self) -> bool:
        return not self._source.pending and self.waiting is None

    def put(self, *operations: Operation) -> None:
        """Queue operations."""
        for operation in operations:
            self._source.put(partial(self._offer, operation))

    def _pace(self) -> bool:
        return self.waiting is None and (self.eager or self._tb.random.random() < 0.3)

    def _offer(self, operation: Operation) -> dict[str, Any]:
        self.offered, self._offered_at = operation, self._tb.cycle
        return asdict(operation)

    def _taken(self, _: dict[str, Any]) -> None:
        operation, self.offered = self.offered, None
        assert operation is not None
        self.accepted.append(self._tb.cycle)
        self.waits.append(self._tb.cycle - self._offered_at)
        self.waiting = operation
        self._accept(operation)


class SemaphoreTestbench(Testbench):
    """Testbench of `SemaphoreUnit(SIZES[$SIZE])`.

    Members
    -------
    clients : by port number.
    window_results : answers to the control port, in order.
    window_eager : the control port makes its next access at once; otherwise after a random pause.
    model : the reference.
    memory : memory at the unit's ports.
    outputs : checks of further outputs.
    offered, accepted : cycles in which an operation was offered, and accepted.
    """

    timeout = 20_000

    def __init__(self, dut: Any, counting: int = 0) -> None:
        """`counting` : number of counting semaphores."""
        self.config: Config = SIZES[os.environ["SIZE"]]
        super().__init__(dut, component(SemaphoreUnit, self.config))
        self.window_results: list[int] = []
        self.window_eager = True
        self.model = SemaphoreMemory(self.config.semaphores)
        self.offered: list[int] = []
        self.accepted: list[int] = []
        self._in_memory: deque[int] = deque()
        self._window_offered = self._window_busy = False
        self._responses: dict[int, tuple[int, bool, str]] = {}
        self._window_due: dict[int, int | None] = {}
        self._writing = (0, 0)
        self.count(counting)
        # In each cycle responses are sampled before requests, and these before memory.
        self.outputs = Outputs(self, self.config, self.model)
        numbers = range(semaphore_clients(self.config))
        for number in numbers:
            then = partial(self._respond, number)
            Sink(self, f"client__{number}__response", then=then)
        Sink(self, "window__response", then=self._respond_window)
        self.clients = [Client(self, number) for number in numbers]
        self._window = Source(self, "window__request", self._window_pace, self._accept_window)
        self.memory = Memory(self, self.config)

    async def start(self) -> Self:
        """Start the clock and reset; the unit clears its slots."""
        await super().start()
        await self.steps(self.config.semaphores + 4)
        return self

    def count(self, counting: int) -> None:
        """Set the number of counting semaphores; the unit must be idle."""
        self.model.counting = counting
        self.drive(counting=counting)

    def put_access(self, address: int, data: int | None = None) -> None:
        """Queue an access of the control port: without `data` a read, else a write."""
        self._window.put(partial(self._offer_window, address, data))

    async def finish(self) -> None:
        """Step until everything is done."""
        await self.until(self._idle, "all operations are answered")

    async def do(self, operation: Operation, client: int = 0) -> tuple[bool, str]:
        """Execute one operation alone. Returns the unit's answer."""
        self.clients[client].put(operation)
        await self.finish()
        return self.clients[client].results[-1][1:]

    async def access(self, address: int, data: int | None = None) -> int:
        """Execute one access of the control port. Returns the answer."""
        self.put_access(address, data)
        await self.finish()
        return self.window_results[-1]

    def compare_memory(self) -> None:
        """Check every byte of memory against the model."""
        for key in self.memory.content.keys() | self.model.memory.keys():
            assert self.memory.content[key] == self.model.memory[key], key

    async def step(self) -> None:
        """One cycle. Checks that no response is missing."""
        cycle = self.cycle
        self.drive(time=self.time(cycle))
        await super().step()
        waits = self._window_offered or any(client.offered for client in self.clients)
        if waits or self.accepted[-1:] == [cycle]:
            self.offered.append(cycle)
        assert cycle not in self._responses, f"no response in cycle {cycle}"
        assert cycle not in self._window_due, f"no response to the control port in cycle {cycle}"

    def time(self, cycle: int) -> int:
        """PTIMER in a cycle; both halves change."""
        return cycle * 0x0000_0123_4567_89AB % (1 << 64)

    def _idle(self) -> bool:
        due = self._responses or self._window_due or self.outputs.pending
        busy = self._window.pending or self._window_busy
        return all(client.idle for client in self.clients) and not busy and not due

    # Responses

    def _respond(self, number: int, payload: dict[str, Any]) -> None:
        client = self.clients[number]
        got = (bool(payload["passed"]), payload["error"].name)
        operation, client.waiting = client.waiting, None
        assert operation is not None, f"client {number}: an unexpected response"
        due = self._responses.get(self.cycle)
        if due is not None and due[0] == number:
            del self._responses[self.cycle]
            expected = due[1:]
            client.latencies.append(self.cycle - client.accepted[-1])
        else:
            assert self._in_memory and self._in_memory[0] == number, "memory: order"
            self._in_memory.popleft()
            expected = self._end_in_memory(operation)
        assert got == expected, f"{operation}: {got}, not {expected}"
        client.results.append((operation, *got))

    def _respond_window(self, payload: dict[str, Any]) -> None:
        data = payload["data"]
        assert self.cycle in self._window_due, "an unexpected response to the control port"
        due = self._window_due.pop(self.cycle)
        assert due is None or data == due, f"window: {data:#x}, not {due:#x}"
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

    # Requests accepted by the unit

    def accept(self, number: int, operation: Operation) -> None:
        """Execute an operation of client `number`, accepted in this cycle, on the model, unless it
        is in memory."""
        self._note_acceptance()
        fields = asdict(operation)
        refusal_fields = {k: v for k, v in fields.items() if k not in {"payload", "asid"}}
        on_chip = self.model.on_chip(operation.va)
        if not on_chip and self.model.refusal(**refusal_fields) == "NONE":
            self._in_memory.append(number)
            return
        delay = self._delay(operation.va >> 4)
        now = self.time(self.cycle + 1 + delay)
        passed, error = self.model.execute(**fields, now=now)
        self._responses[self.cycle + RESPONSE + delay] = (number, passed, error)
        tried = passed or error in {"UNDERFLOW", "OVERFLOW"}
        if tried and operation.operation not in ACQUIRES:
            self._wrote((operation.va - WINDOW_BASE) // SLOT_BYTES, delay, passed)

    def _window_pace(self) -> bool:
        return not self._window_busy and (self.window_eager or self.random.random() < 0.3)

    def _offer_window(self, address: int, data: int | None) -> dict[str, int]:
        self._window_offered = self._window_busy = True
        return {"address": address, "write": data is not None, "data": data or 0}

    def _accept_window(self, request: dict[str, int]) -> None:
        self._note_acceptance()
        self._window_offered = False
        address = request["address"]
        delay = self._delay(address >> 2)
        due = self.cycle + WINDOW + delay
        if not request["write"]:
            self._window_due[due] = self.model.window_read(address)
            return
        self._window_due[due] = None  # any data
        self.model.window_write(address, request["data"])
        index, word = divmod(address, 4)
        if index < self.config.semaphores and word < 2:
            self._wrote(index, delay, True)

    def _note_acceptance(self) -> None:
        assert self.cycle not in self.accepted[-1:], "two operations accepted in one cycle"
        self.accepted.append(self.cycle)

    def _delay(self, index: int) -> int:
        """1 directly after an operation that writes the same slot, else 0."""
        bits = self.config.semaphore_bits
        return int(self._writing == (self.cycle, index % (1 << bits)))

    def _wrote(self, index: int, delay: int, written: bool) -> None:
        """Expect the effects of an operation on a slot, which wrote it or was refused."""
        self._writing = (self.cycle + 1 + delay, index)
        self.outputs.expect(index, delay, written)
