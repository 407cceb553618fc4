"""Semaphore unit: arbitrates between its clients; the address selects on-chip or in-memory
execution."""

from collections.abc import Sequence

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from signalbox.hw.config import VA_BITS, WINDOW_BASE, Config
from signalbox.hw.lib.arbiter import RoundRobin
from signalbox.hw.lib.stream import StreamFIFO
from signalbox.hw.records.memory import ReadPort, WritePort
from signalbox.hw.records.register import RegisterPort
from signalbox.hw.records.semaphore import (
    SemaphoreError,
    SemaphorePort,
    semaphore_clients,
    semaphore_update,
)
from signalbox.hw.semaphore.alu import Bitwise, Control, Decoder
from signalbox.hw.semaphore.in_memory import InMemorySemaphores, in_memory_operation
from signalbox.hw.semaphore.on_chip import OnChipSemaphores, ZeroPrediction, semaphore_write

__all__ = ["SemaphoreUnit"]


def _taken(config: Config) -> data.StructLayout:
    """Operation in the second stage.

    * `client`: requester, one-hot; 0 for the control port.
    * `cpu`: an access by the control port to `word` of a slot; `cpu_write`: it writes.
    * `supported`, `aligned`: the operation, or its address, is legal by 2.2.
    * `window`: all bits are 1 if the address is in the on-chip window.
    * `known`: the address is the start of a slot that was built. `exact`: `known` and `supported`.
    * `next`, `second`: the slot is that of the operation accepted one cycle, or two cycles before.
    * `counting`, `zero`, `minus`, `kind`: see `on_chip_operation`.
    """
    return data.StructLayout({
        "client": semaphore_clients(config),
        "slot": config.semaphore_bits,
        "control": Control,
        "supported": 1,
        "aligned": 1,
        "window": 3,
        "known": 1,
        "exact": 1,
        "next": 1,
        "second": 1,
        "counting": 1,
        "zero": 1,
        "minus": 1,
        "kind": ZeroPrediction,
        "timestamp": 1,
        "payload": 64,
        "cpu": 1,
        "cpu_write": 1,
        "word": 2,
    })


def _place(config: Config) -> data.StructLayout:
    """Location of an operation in memory."""
    return data.StructLayout({"asid": config.asid_bits, "va": VA_BITS})


def _granted(grant: Value, offers: Sequence[data.View | Value]) -> Value:
    """One-hot multiplexer, undefined without a grant: a tree with one select bit per node, as
    `grant` comes late in the cycle."""
    if len(offers) == 1:
        return Value.cast(offers[0])
    half = 1 << (len(offers) - 1).bit_length() - 1
    low, high = (_granted(grant[part], offers[part]) for part in (slice(half), slice(half, None)))
    return Mux(grant[half:].any(), high, low)


class SemaphoreUnit(wiring.Component):
    """Executes semaphore operations, each atomic with respect to all others (COPY-9).

    One request of a client or of the control port is accepted per cycle, round robin, with two
    exceptions. An operation directly after one that writes the same slot is delayed by a cycle, in
    which nothing is accepted. For `config.semaphores` + 2 cycles after reset, slots are cleared and
    nothing is accepted.

    * Cycle 0: all requests are decoded and checked, and one is accepted.
    * Cycle 1: an on-chip operation is prepared. One in memory enters the queue of the in-memory
      unit, which has room for one per client. So slow memory never delays on-chip operations of
      other clients.
    * Cycle 2: an on-chip operation is executed.

    Latency of an on-chip operation, in cycles after its acceptance: `update` 2, `response` 3, the
    response to the control port 6. `zero` 2, or 4 if the result must be computed, which is so for
    reductions of counting semaphores other than by one, reductions of other semaphores, and a
    decrement within 2 cycles after another operation that writes the semaphore. Latency in memory:
    see `InMemorySemaphores`.

    Errors, in the order of precedence (2.2, COPY-12): UNSUPPORTED; UNKNOWN, for an address inside
    the window that is not the start of a slot that was built; ALIGNMENT, outside the window; then
    UNDERFLOW and OVERFLOW on chip, BUS and FAULT in memory.

    Members
    -------
    client : in, one `SemaphorePort` per client: the host's two (0 on chip, 1 in memory), then one
        per copy engine, then the compute engine's.
    memory_read : out, memory client of the in-memory unit, reads.
    memory_write : out, memory client of the in-memory unit, writes.
    window : in, slots as seen by the control port; address = slot * 4 + word, where words 0 and 1
        are the payload, 2 and 3 the timestamp, low half first. Slots that were not built read as 0.
    counting : in, 0 … `counters`: semaphores below this index are counting semaphores (COPY-12).
    zero : out, one bit for each of the first `config.counters` semaphores: its low 32 bits are 0.
    update : out, strobe: an on-chip semaphore was written, by a client or the control port, or a
        counting one refused an operation (COPY-10, COPY-12).
    time : in, 64 bits: nanoseconds, for timestamps.
    written : out, strobe, only with `config.trace`; combinational, with `update`: the semaphore was
        written and now holds `value`.
    """

    def __init__(self, config: Config) -> None:
        members = {
            "client": In(SemaphorePort(config)).array(semaphore_clients(config)),
            "memory_read": Out(ReadPort(config)),
            "memory_write": Out(WritePort(config)),
            "window": In(RegisterPort(12)),
            "counting": In(range(config.counters + 1)),
            "zero": Out(config.counters, init=-1),
            "update": Out(semaphore_update(config)),
            "time": In(64),
        }
        if config.trace:
            members["written"] = Out(semaphore_write(config))
        super().__init__(members)
        self.config = config

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.on_chip = on_chip = OnChipSemaphores(self.config)
        m.submodules.fence = fence = InMemorySemaphores(self.config)
        m.d.comb += [
            on_chip.time.eq(self.time),
            self.zero.eq(on_chip.zero),
            self.update.eq(on_chip.update),
            fence.time.eq(self.time),
        ]
        if self.config.trace:
            m.d.comb += self.written.eq(on_chip.written)
        connect(m, fence.memory_read, flipped(self.memory_read))
        connect(m, fence.memory_write, flipped(self.memory_write))

        taken, moves, place = self._take_turns(m, on_chip)
        refusal, in_memory = self._check(m, taken)
        self._queue(m, taken, place, moves & in_memory, fence)
        self._respond(m, taken, moves & ~in_memory, refusal, on_chip, fence)
        self._answer_window(m, taken, moves, on_chip)
        return m

    def _take_turns(
        self, m: Module, on_chip: OnChipSemaphores
    ) -> tuple[data.View, Signal, data.View]:
        """Accepts one operation per cycle. Returns its register, a strobe with which it proceeds,
        and its location in memory. An operation directly after one that writes the same slot waits
        for a cycle."""
        taken = Signal(_taken(self.config))
        goes = Signal()
        waits = Signal()
        behind = Signal()
        effective = Signal()
        earlier = (taken.slot, on_chip.update.index)
        offers = [self._offer(m, number, earlier) for number in range(len(self.client))]
        offers.append(self._window_offer(m, earlier))
        ports = [*self.client, self.window]
        requests = Cat(port.request.valid for port in ports)
        accepts = ~(waits | on_chip.clearing)
        # Two identical arbiters, to halve the fan-out of the grants.
        m.submodules.turns = turns = RoundRobin(len(ports))
        m.submodules.payload_turns = payload_turns = RoundRobin(len(ports))
        chosen = Signal(_taken(self.config))
        clash = Signal()
        for arbiter in (turns, payload_turns):
            m.d.comb += [arbiter.requests.eq(requests), arbiter.advance.eq(accepts)]
        m.d.comb += [
            Cat(port.request.ready for port in ports).eq(
                turns.grant & accepts.replicate(len(ports))
            ),
            chosen.as_value().eq(_granted(turns.grant, offers)),
            chosen.payload.eq(_granted(payload_turns.grant, [offer.payload for offer in offers])),
            effective.eq(goes & taken.exact & taken.window.all()),
            clash.eq(turns.requests.any() & chosen.next & effective & ~taken.control.acquire),
            on_chip.peek.eq(Mux(waits, taken.slot, chosen.slot)),
        ]
        # The register of `slot` is far from `chosen`, so it has a multiplexer of its own.
        slot = _granted(payload_turns.grant, [offer.slot for offer in offers])
        with m.If(accepts):
            m.d.sync += [taken.eq(chosen), taken.slot.eq(slot)]
        m.d.sync += [
            goes.eq(waits | (accepts & turns.requests.any() & ~clash)),
            waits.eq(accepts & clash),
            behind.eq(waits | (chosen.second & on_chip.update.valid)),
        ]
        self._operate(m, taken, effective, behind, on_chip)
        return taken, goes, self._place(m, taken, accepts)

    def _place(self, m: Module, taken: data.View, accepts: Value) -> data.View:
        """Location in memory of the operation in `taken`. Selected in its cycle rather than with
        the grants, which come late."""
        places = []
        for number, client in enumerate(self.client):
            place = Signal(_place(self.config), name=f"place_{number}")
            request = client.request.payload
            with m.If(accepts):
                m.d.sync += [place.asid.eq(request.asid), place.va.eq(request.va)]
            places.append(place)
        place = Signal(_place(self.config))
        m.d.comb += place.as_value().eq(_granted(taken.client, places))
        return place

    def _offer(self, m: Module, number: int, earlier: tuple[Value, Value]) -> data.View:
        """Request of client `number`, decoded and checked; `earlier`: see `_describe`."""
        request = self.client[number].request.payload
        m.submodules[f"decoder{number}"] = decoder = Decoder()
        offer = Signal(_taken(self.config), name=f"offer{number}")
        control = decoder.control
        timestamp = request.timestamp & ~control.acquire
        m.d.comb += [
            decoder.operation.eq(request.operation),
            decoder.reduction.eq(request.reduction),
            decoder.unsigned.eq(request.unsigned),
            decoder.wide.eq(request.wide),
            decoder.timestamp.eq(request.timestamp),
            offer.client.eq(1 << number),
            offer.supported.eq(decoder.supported),
            offer.window.eq(
                Cat(
                    request.va[low : low + 11] == (WINDOW_BASE >> low) % (1 << 11)
                    for low in (16, 27, 38)
                )
            ),
            offer.timestamp.eq(timestamp),
            offer.aligned.eq(
                ~Mux(
                    timestamp,
                    request.va[:4].any(),
                    request.va[:2].any() | (request.wide & request.va[2]),
                )
            ),
            *self._describe(
                offer, control, decoder.supported, request.va, request.payload, earlier
            ),
        ]
        return offer

    def _window_offer(self, m: Module, earlier: tuple[Value, Value]) -> data.View:
        """Request of the control port. A read is an acquire whose condition is ignored; a write
        releases one half."""
        request = self.window.request.payload
        offer = Signal(_taken(self.config), name="offer_window")
        control = Signal(Control, name="control_window")
        word = request.address[:2]
        writes_value = request.write & ~word[1]
        va = Cat(Const(0, 4), request.address[2:], Const(0, 2)) | WINDOW_BASE
        m.d.comb += [
            control.acquire.eq(~writes_value),
            control.wide.eq(1),
            control.always.eq(writes_value),
            control.bitwise.eq(Bitwise.PAYLOAD),
            control.low.eq(writes_value & ~word[0]),
            control.high.eq(writes_value & word[0]),
            offer.supported.eq(1),
            offer.window.eq(~0),
            offer.cpu.eq(1),
            offer.cpu_write.eq(request.write),
            offer.word.eq(word),
            *self._describe(offer, control, Const(1), va, request.data.replicate(2), earlier),
        ]
        return offer

    def _describe(
        self,
        offer: data.View,
        control: data.View,
        supported: Value,
        va: Value,
        payload: Value,
        earlier: tuple[Value, Value],
    ) -> list:
        """Operation, address and payload, and flags derived from them; `earlier`: slots of the
        operations accepted one and two cycles before."""
        slot, low = self._slot(va), payload[:32]
        known = (va[4:16] < self.config.semaphores) & ~va[:4].any()
        return [
            offer.control.eq(control),
            offer.slot.eq(slot),
            offer.payload.eq(payload),
            offer.known.eq(known),
            offer.exact.eq(known & supported),
            offer.next.eq(slot == earlier[0]),
            offer.second.eq(slot == earlier[1]),
            offer.counting.eq(slot < self.counting),
            offer.zero.eq(~low.any()),
            offer.minus.eq(low.all()),
            *(
                offer.kind[name].eq(bit)
                for name, bit in ZeroPrediction.of(control, low[31]).items()
            ),
        ]

    def _slot(self, va: Value) -> Value:
        return va[4 : 4 + self.config.semaphore_bits]

    def _check(self, m: Module, taken: data.View) -> tuple[Signal, Signal]:
        """Error of an operation before its value is known, and whether it executes in memory."""
        refusal = Signal(SemaphoreError)
        in_memory = Signal()
        located = Mux(
            taken.window.all(),
            Mux(taken.known, SemaphoreError.NONE, SemaphoreError.UNKNOWN),
            Mux(taken.aligned, SemaphoreError.NONE, SemaphoreError.ALIGNMENT),
        )
        m.d.comb += [
            refusal.eq(Mux(taken.supported, located, SemaphoreError.UNSUPPORTED)),
            in_memory.eq(taken.supported & ~taken.window.all() & taken.aligned),
        ]
        return refusal, in_memory

    def _operate(
        self,
        m: Module,
        taken: data.View,
        effective: Value,
        behind: Value,
        on_chip: OnChipSemaphores,
    ) -> None:
        """Starts an on-chip operation."""
        operation = on_chip.operation
        cpu_stamp = taken.cpu_write & taken.word[1]
        m.d.comb += [
            operation.valid.eq(effective),
            operation.behind.eq(behind),
            operation.slot.eq(taken.slot),
            operation.control.eq(taken.control),
            operation.payload.eq(taken.payload),
            operation.counting.eq(taken.counting),
            operation.zero.eq(taken.zero),
            operation.minus.eq(taken.minus),
            operation.kind.eq(taken.kind),
            operation.low_stamp.eq(taken.timestamp | (cpu_stamp & ~taken.word[0])),
            operation.high_stamp.eq(taken.timestamp | (cpu_stamp & taken.word[0])),
            operation.cpu.eq(taken.cpu),
        ]

    def _queue(
        self,
        m: Module,
        taken: data.View,
        place: data.View,
        enters: Value,
        fence: InMemorySemaphores,
    ) -> None:
        """Queues an in-memory operation. There is always room, as a client has one operation
        outstanding."""
        entry = Signal(in_memory_operation(self.config))
        m.submodules.queue = queue = StreamFIFO(entry.shape(), len(self.client))
        entered = Signal()
        m.d.sync += [
            entered.eq(enters),
            entry.tag.eq(taken.client),
            entry.asid.eq(place.asid),
            entry.va.eq(place.va),
            entry.control.eq(taken.control),
            entry.timestamp.eq(taken.timestamp),
            entry.payload.eq(taken.payload),
        ]
        m.d.comb += [
            queue.i.payload.eq(entry),
            queue.i.valid.eq(entered),
        ]
        connect(m, queue.o, fence.operation)

    def _respond(
        self,
        m: Module,
        taken: data.View,
        ends: Value,
        refusal: Value,
        on_chip: OnChipSemaphores,
        fence: InMemorySemaphores,
    ) -> None:
        """An on-chip and an in-memory operation may end in the same cycle. Clients apply no
        back-pressure to responses (`SemaphorePort`)."""
        ended = Signal(len(self.client))
        cause = Signal(SemaphoreError)
        cause_3 = Signal.like(cause)
        fenced = Signal.like(ended)
        tag = fence.response.tag & fence.response.valid.replicate(len(self.client))
        m.d.sync += [
            ended.eq(taken.client & ends.replicate(len(ended))),
            cause.eq(refusal),
            cause_3.eq(cause),
            fenced.eq(tag),
        ]
        for number, client in enumerate(self.client):
            response = client.response
            m.d.sync += response.valid.eq(ended[number] | tag[number])
            with m.If(fenced[number]):
                m.d.comb += response.payload.eq(fence.response.result)
            with m.Elif(cause_3 == SemaphoreError.NONE):
                m.d.comb += [
                    response.payload.passed.eq(on_chip.passed),
                    response.payload.error.eq(on_chip.error),
                ]
            with m.Else():
                m.d.comb += response.payload.error.eq(cause_3)

    def _answer_window(
        self, m: Module, taken: data.View, moves: Value, on_chip: OnChipSemaphores
    ) -> None:
        """Responds to the control port once the slot's contents are available."""
        response = self.window.response
        stages = data.StructLayout({"ending": 1, "known": 1, "word": 2})
        stage = Signal(stages)
        value = Signal(64)
        m.d.comb += [stage.ending.eq(moves & taken.cpu), stage.known.eq(taken.known)]
        m.d.comb += stage.word.eq(taken.word)
        for number in range(4):
            later = Signal(stages, name=f"window_{number}")
            m.d.sync += later.eq(stage)
            stage = later
        m.d.sync += value.eq(on_chip.value)
        half = Mux(stage.word[1], on_chip.stamp, value).word_select(stage.word[0], 32)
        with m.If(response.ready):
            m.d.sync += response.valid.eq(0)
        with m.If(stage.ending):
            m.d.sync += [response.valid.eq(1), response.payload.data.eq(Mux(stage.known, half, 0))]
