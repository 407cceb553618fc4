"""The semaphore unit: its clients take turns; the address decides between chip and memory."""

from functools import reduce
from operator import or_

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.config import VA_BITS, WINDOW_BASE, Config
from hw.lib.arbiter import RoundRobin
from hw.records import (
    HOST_CLIENTS,
    ReadPort,
    RegisterPort,
    SemaphoreError,
    SemaphorePort,
    WritePort,
)
from hw.semaphore.alu import Bitwise, Control, Decoder
from hw.semaphore.fence import Fence, fence_operation
from hw.semaphore.onchip import OnChip

__all__ = ["SemaphoreUnit"]


def _taken(config: Config) -> data.StructLayout:
    """An operation in the second stage. `client` is one-hot, 0 for the control port, which has
    `cpu`: `word` of a slot is read, or with `cpu_write` written."""
    return data.StructLayout({
        "client": HOST_CLIENTS + config.copy_engines,
        "asid": config.asid_bits,
        "va": VA_BITS,
        "control": Control,
        "supported": 1,
        "timestamp": 1,
        "payload": 64,
        "cpu": 1,
        "cpu_write": 1,
        "word": 2,
    })


class SemaphoreUnit(wiring.Component):
    """Executes semaphore operations, each atomically with respect to all others (COPY-9).

    Stage 1 (the cycle in which a request is accepted): clients and control port take turns, round
    robin; nothing ever stalls, so one operation is accepted in every cycle, except that for
    `config.semaphores` cycles after reset the slots are being cleared. Stage 2: address and
    operation are checked; an operation on chip takes effect, one in memory joins the fence unit's
    queue, which has room for one of each client. So slow memory delays nobody else on chip.

    Latency: on chip `response`, `zero` and `update` show an operation 2 cycles after the request
    was accepted. The control port is answered after 3 cycles; memory: see `Fence`.

    Errors (in this order): UNSUPPORTED; in the window UNKNOWN, whatever is not the start of a slot
    that was built; elsewhere ALIGNMENT; then UNDERFLOW and OVERFLOW on chip, BUS and FAULT in
    memory (2.2, COPY-12).

    Members
    -------
    client : the host's (0 on chip, 1 in memory), then one for each copy engine.
    memory_read, memory_write : memory client of the fence unit.
    window : the control port's access to slots; address = slot * 4 + word, where words 0 and 1 are
        the payload, 2 and 3 the timestamp, low half first. Slots that were not built read as 0.
    counting : semaphores below are counting semaphores (COPY-12).
    zero : low 32 bits of semaphore i are 0, for the first `config.counters` semaphores.
    update : a semaphore on chip was written, by a client or the control port, and now holds
        `value`; in the cycle in which `zero` shows it (COPY-10).
    time : nanoseconds, for timestamps.
    """

    def __init__(self, config: Config) -> None:
        super().__init__({
            "client": In(SemaphorePort(config)).array(HOST_CLIENTS + config.copy_engines),
            "memory_read": Out(ReadPort(config)),
            "memory_write": Out(WritePort(config)),
            "window": In(RegisterPort(12)),
            "counting": In(range(config.counters + 1)),
            "zero": Out(config.counters, init=-1),
            "update": Out(
                data.StructLayout({"valid": 1, "index": config.semaphore_bits, "value": 64})
            ),
            "time": In(64),
        })
        self.config = config

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.on_chip = on_chip = OnChip(self.config)
        m.submodules.fence = fence = Fence(self.config)
        m.d.comb += [
            on_chip.counting.eq(self.counting),
            on_chip.time.eq(self.time),
            self.zero.eq(on_chip.zero),
            self.update.eq(on_chip.update),
            fence.time.eq(self.time),
        ]
        connect(m, fence.memory_read, flipped(self.memory_read))
        connect(m, fence.memory_write, flipped(self.memory_write))

        taken, valid = self._take_turns(m, on_chip)
        refusal, in_memory = self._check(m, taken, valid)
        effective = valid & ~in_memory & (refusal == SemaphoreError.NONE)
        self._operate(m, taken, effective, on_chip)
        self._queue(m, taken, valid & in_memory, fence)
        self._respond(m, taken, valid & ~in_memory, refusal, on_chip, fence)
        self._answer_window(m, taken, valid, effective, on_chip)
        return m

    def _take_turns(self, m: Module, on_chip: OnChip) -> tuple[data.View, Signal]:
        """Stage 1; returns the register of stage 2 and whether it holds an operation."""
        offers = [self._offer(m, number) for number in range(len(self.client))]
        offers.append(self._window_offer(m))
        ports = [*self.client, self.window]
        m.submodules.turns = turns = RoundRobin(len(ports))
        m.d.comb += [
            turns.requests.eq(Cat(port.request.valid & ~on_chip.clearing for port in ports)),
            turns.advance.eq(turns.requests.any()),
            Cat(port.request.ready for port in ports).eq(turns.grant),
        ]
        chosen = Signal(_taken(self.config))
        gated = (
            offer.as_value() & turns.grant[number].replicate(len(offer.as_value()))
            for number, offer in enumerate(offers)
        )
        taken = Signal(_taken(self.config))
        valid = Signal()
        m.d.comb += [
            chosen.as_value().eq(reduce(or_, gated)),
            on_chip.peek.eq(self._slot(chosen.va)),
        ]
        m.d.sync += [taken.eq(chosen), valid.eq(turns.advance)]
        return taken, valid

    def _offer(self, m: Module, number: int) -> data.View:
        """What client `number` asks for, decoded."""
        request = self.client[number].request.payload
        m.submodules[f"decoder{number}"] = decoder = Decoder()
        offer = Signal(_taken(self.config), name=f"offer{number}")
        m.d.comb += [
            decoder.operation.eq(request.operation),
            decoder.reduction.eq(request.reduction),
            decoder.unsigned.eq(request.unsigned),
            decoder.wide.eq(request.wide),
            decoder.timestamp.eq(request.timestamp),
            offer.client.eq(1 << number),
            offer.asid.eq(request.asid),
            offer.va.eq(request.va),
            offer.control.eq(decoder.control),
            offer.supported.eq(decoder.supported),
            offer.timestamp.eq(request.timestamp & ~decoder.control.acquire),
            offer.payload.eq(request.payload),
        ]
        return offer

    def _window_offer(self, m: Module) -> data.View:
        """A read is an acquire whose condition nobody looks at; a write releases one half."""
        request = self.window.request.payload
        offer = Signal(_taken(self.config), name="offer_window")
        word = request.address[:2]
        writes_value = request.write & ~word[1]
        m.d.comb += [
            offer.va.eq(Cat(Const(0, 4), request.address[2:], Const(0, 2)) | WINDOW_BASE),
            offer.control.acquire.eq(~writes_value),
            offer.control.wide.eq(1),
            offer.control.always.eq(1),
            offer.control.bitwise.eq(Bitwise.PAYLOAD),
            offer.control.low.eq(writes_value & ~word[0]),
            offer.control.high.eq(writes_value & word[0]),
            offer.supported.eq(1),
            offer.payload.eq(request.data.replicate(2)),
            offer.cpu.eq(1),
            offer.cpu_write.eq(request.write),
            offer.word.eq(word),
        ]
        return offer

    def _slot(self, va: Value) -> Value:
        return va[4 : 4 + self.config.semaphore_bits]

    def _check(self, m: Module, taken: data.View, valid: Value) -> tuple[Signal, Signal]:
        """Why the operation is refused before it sees its value, and whether it is in memory."""
        refusal = Signal(SemaphoreError)
        in_memory = Signal()
        window = taken.va[16:] == WINDOW_BASE >> 16
        known = (taken.va[4:16] < self.config.semaphores) & ~taken.va[:4].any()
        aligned = ~Mux(
            taken.timestamp,
            taken.va[:4].any(),
            taken.va[:2].any() | (taken.control.wide & taken.va[2]),
        )
        located = Mux(
            window,
            Mux(known, SemaphoreError.NONE, SemaphoreError.UNKNOWN),
            Mux(aligned, SemaphoreError.NONE, SemaphoreError.ALIGNMENT),
        )
        m.d.comb += refusal.eq(Mux(taken.supported, located, SemaphoreError.UNSUPPORTED))
        m.d.comb += in_memory.eq(taken.supported & ~window & aligned)
        return refusal, in_memory

    def _operate(self, m: Module, taken: data.View, effective: Value, on_chip: OnChip) -> None:
        """Stage 2 on chip."""
        operation = on_chip.operation
        cpu_stamp = taken.cpu_write & taken.word[1]
        m.d.comb += [
            operation.valid.eq(effective),
            operation.slot.eq(self._slot(taken.va)),
            operation.control.eq(taken.control),
            operation.payload.eq(taken.payload),
            operation.low_stamp.eq(taken.timestamp | (cpu_stamp & ~taken.word[0])),
            operation.high_stamp.eq(taken.timestamp | (cpu_stamp & taken.word[0])),
            operation.cpu.eq(taken.cpu),
        ]

    def _queue(self, m: Module, taken: data.View, enters: Value, fence: Fence) -> None:
        """Stage 2 in memory; the queue is never full, for a client waits for its response."""
        entry = Signal(fence_operation(self.config))
        m.submodules.queue = queue = SyncFIFOBuffered(
            width=len(entry.as_value()), depth=len(self.client)
        )
        m.d.comb += [
            entry.tag.eq(taken.client),
            entry.asid.eq(taken.asid),
            entry.va.eq(taken.va),
            entry.control.eq(taken.control),
            entry.timestamp.eq(taken.timestamp),
            entry.payload.eq(taken.payload),
            queue.w_data.eq(entry),
            queue.w_en.eq(enters),
            fence.operation.valid.eq(queue.r_rdy),
            fence.operation.payload.as_value().eq(queue.r_data),
            queue.r_en.eq(fence.operation.ready),
        ]

    def _respond(
        self,
        m: Module,
        taken: data.View,
        ends: Value,
        refusal: Value,
        on_chip: OnChip,
        fence: Fence,
    ) -> None:
        """A register per client, since fence unit and chip may end operations together."""
        for number, client in enumerate(self.client):
            response = client.response
            with m.If(response.ready):
                m.d.sync += response.valid.eq(0)
            with m.If(fence.response.valid & fence.response.tag[number]):
                m.d.sync += [response.valid.eq(1), response.payload.eq(fence.response.result)]
            with m.Elif(ends & taken.client[number]):
                m.d.sync += response.valid.eq(1)
                with m.If(refusal == SemaphoreError.NONE):
                    m.d.sync += [
                        response.payload.passed.eq(on_chip.passed),
                        response.payload.error.eq(on_chip.error),
                    ]
                with m.Else():
                    m.d.sync += [
                        response.payload.passed.eq(0),
                        response.payload.error.eq(refusal),
                    ]

    def _answer_window(
        self, m: Module, taken: data.View, valid: Value, effective: Value, on_chip: OnChip
    ) -> None:
        """The cycle after stage 2, when the slot's contents are at hand."""
        response = self.window.response
        ending = Signal()
        known = Signal()
        word = Signal(2)
        m.d.sync += [ending.eq(valid & taken.cpu), known.eq(effective), word.eq(taken.word)]
        slot = Mux(word[1], on_chip.stamp, on_chip.value)
        half = Mux(word[0], slot[32:], slot[:32])
        with m.If(response.ready):
            m.d.sync += response.valid.eq(0)
        with m.If(ending):
            m.d.sync += [response.valid.eq(1), response.payload.data.eq(Mux(known, half, 0))]
