"""Semaphores in memory: read, compute, write, one operation at a time."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import VA_BITS, Config
from signalbox.hw.records.memory import MemoryStatus, ReadPort, WritePort
from signalbox.hw.records.semaphore import SemaphoreError, semaphore_clients, semaphore_response
from signalbox.hw.semaphore.alu import Alu, Control, Outcome, Prepared, Preparer

__all__ = ["InMemorySemaphores", "in_memory_operation"]


def in_memory_operation(config: Config) -> data.StructLayout:
    """Legal, aligned operation in memory; `tag` returns with its response."""
    return data.StructLayout({
        "tag": semaphore_clients(config),
        "asid": config.asid_bits,
        "va": VA_BITS,
        "control": Control,
        "timestamp": 1,
        "payload": 64,
    })


class InMemorySemaphores(wiring.Component):
    """Executes semaphore operations in memory, one after the other.

    Acquires only read. A release writes without reading. A reduction reads, computes and writes,
    with both accesses marked atomic; no other operation of this unit comes in between. A timestamp
    becomes visible before the payload is written (spec 2.2). Accesses are single beats; only the
    bytes concerned are strobed.

    Latency: two memory round trips for a reduction, one for other operations, one more for a
    timestamp, and 3 cycles between trips. Errors: BUS and FAULT, as reported by memory. After an
    error, nothing more is written; a timestamp may have been written before.

    Members
    -------
    operation : in, stream of `in_memory_operation`.
    response : out, strobe: result and tag of the operation.
    memory_read : out, memory client that reads.
    memory_write : out, memory client that writes.
    time : in, 64 bits: nanoseconds, for timestamps.
    """

    def __init__(self, config: Config) -> None:
        super().__init__({
            "operation": In(stream.Signature(in_memory_operation(config))),
            "response": Out(
                data.StructLayout({
                    "valid": 1,
                    "tag": semaphore_clients(config),
                    "result": semaphore_response(),
                })
            ),
            "memory_read": Out(ReadPort(config)),
            "memory_write": Out(WritePort(config)),
            "time": In(64),
        })
        self.config = config

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.preparer = preparer = Preparer()
        m.submodules.alu = alu = Alu()
        operation = self.operation.payload
        prepared = Signal(Prepared)
        word = Signal(64)  # data read, then data to write
        compared = Signal(64)
        outcome = Signal(Outcome)
        stamp = Signal(64)
        stamping = Signal()  # the write in progress is the timestamp's
        request_sent = Signal()
        beat_sent = Signal()
        result = Signal(semaphore_response())

        m.d.sync += prepared.eq(preparer.prepared)  # used from the next state on
        m.d.comb += [
            preparer.control.eq(operation.control),
            preparer.payload.eq(operation.payload),
            alu.prepared.eq(prepared),
            alu.value.eq(word),
            alu.compared.eq(compared),
            self.response.tag.eq(operation.tag),
            self.response.result.eq(result),
        ]
        self._drive_read(m, operation)
        self._drive_write(m, operation, stamping, Mux(stamping, stamp, word))
        reading, writing = self.memory_read, self.memory_write

        with m.FSM(name="step") as step:
            with m.State("IDLE"):
                m.d.sync += [
                    stamping.eq(operation.timestamp),
                    result.passed.eq(0),
                    result.error.eq(SemaphoreError.NONE),
                ]
                with m.If(self.operation.valid):
                    with m.If(~operation.control.release):
                        m.next = "READ"
                    with m.Else():
                        m.next = "EXECUTE"
            with m.State("READ"):
                with m.If(reading.request.ready):
                    m.next = "BEAT"
            with m.State("BEAT"):
                operand = self._from_lane(operation, reading.beat.payload.data)
                m.d.sync += [word.eq(operand), compared.eq(prepared.comparable(operand))]
                with m.If(reading.beat.valid):
                    m.next = "EXECUTE"
                    self._refuse_unless_ok(m, reading.beat.payload.status, result)
            with m.State("EXECUTE"):
                m.d.sync += [outcome.eq(alu.outcome), stamp.eq(self.time)]
                m.next = "CHOOSE"
            with m.State("CHOOSE"):
                m.d.sync += [word.eq(outcome.result), result.passed.eq(outcome.passed)]
                m.next = "WRITE"
                with m.If(operation.control.acquire):
                    m.next = "RESPOND"
            with m.State("WRITE"):
                with m.If(writing.request.ready):
                    m.d.sync += request_sent.eq(1)
                with m.If(writing.beat.ready):
                    m.d.sync += beat_sent.eq(1)
                with m.If(writing.done.valid):
                    m.d.sync += [request_sent.eq(0), beat_sent.eq(0), stamping.eq(0)]
                    with m.If(~stamping):
                        m.next = "RESPOND"
                    self._refuse_unless_ok(m, writing.done.payload.status, result)
            with m.State("RESPOND"):
                m.next = "IDLE"
        # Outside the states: Icarus 11 can oscillate on signals assigned twice in a process.
        m.d.comb += [
            reading.request.valid.eq(step.ongoing("READ")),
            reading.beat.ready.eq(step.ongoing("BEAT")),
            writing.request.valid.eq(step.ongoing("WRITE") & ~request_sent),
            writing.beat.valid.eq(step.ongoing("WRITE") & ~beat_sent),
            writing.done.ready.eq(step.ongoing("WRITE")),
            self.response.valid.eq(step.ongoing("RESPOND")),
            self.operation.ready.eq(step.ongoing("RESPOND")),
        ]
        return m

    @staticmethod
    def _refuse_unless_ok(m: Module, status: MemoryStatus, result: data.View) -> None:
        """Ends the operation if a memory access failed."""
        with m.If(status != MemoryStatus.OK):
            m.d.sync += [
                result.passed.eq(0),
                result.error.eq(
                    Mux(status == MemoryStatus.BUS, SemaphoreError.BUS, SemaphoreError.FAULT)
                ),
            ]
            m.next = "RESPOND"

    def _beat_address(self, va: Value) -> Value:
        return Cat(Const(0, self.config.offset_bits), va[self.config.offset_bits :])

    def _lane(self, va: Value) -> Value:
        """Index of the 64-bit word in the beat."""
        return va[3 : self.config.offset_bits]

    def _from_lane(self, operation: data.View, beat: Value) -> Value:
        """The operand: 64 bits of the beat; for a 32-bit operation, the word at `va` in the low
        half."""
        word = beat.word_select(self._lane(operation.va), 64)
        upper = ~operation.control.wide & operation.va[2]
        return Cat(Mux(upper, word[32:], word[:32]), word[32:])

    def _drive_read(self, m: Module, operation: data.View) -> None:
        request = self.memory_read.request.payload
        m.d.comb += [
            request.asid.eq(operation.asid),
            request.va.eq(self._beat_address(operation.va)),
            request.atomic.eq(~operation.control.acquire),
        ]

    def _drive_write(self, m: Module, operation: data.View, stamping: Value, word: Value) -> None:
        request, beat = self.memory_write.request.payload, self.memory_write.beat.payload
        va = operation.va | (stamping << 3)
        eight = stamping | operation.control.high
        bytes_ = Mux(eight, 0xFF, Mux(va[2], 0xF0, 0x0F))
        lanes = self.config.beat_bytes // 8
        m.d.comb += [
            request.asid.eq(operation.asid),
            request.va.eq(self._beat_address(va)),
            request.atomic.eq(~operation.control.release),
            beat.data.eq(Cat(word[:32], Mux(eight, word[32:], word[:32])).replicate(lanes)),
            beat.last.eq(1),
            beat.strobe.eq(
                Cat(bytes_ & (self._lane(va) == lane).replicate(8) for lane in range(lanes))
            ),
        ]
