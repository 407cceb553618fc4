"""Semaphores on chip: value and timestamp memories, and the stage that operates on them."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, memory, wiring
from amaranth.lib.wiring import In, Out

from hw.config import Config
from hw.records import SemaphoreError
from hw.semaphore.alu import Alu, Control

__all__ = ["OnChip", "on_chip_operation"]

DISTRIBUTED_ROWS = 64
"""Up to so many slots the values lie in distributed RAM, which reads faster than block RAM."""


def on_chip_operation(config: Config) -> data.StructLayout:
    """One operation on `slot`, already found legal.

    `low_stamp`, `high_stamp` write these halves of the timestamp: from the timer, or with `cpu`
    from the payload.
    """
    return data.StructLayout({
        "valid": 1,
        "slot": config.semaphore_bits,
        "control": Control,
        "payload": 64,
        "low_stamp": 1,
        "high_stamp": 1,
        "cpu": 1,
    })


class OnChip(wiring.Component):
    """One operation per cycle on `config.semaphores` slots; each sees all earlier ones.

    Reset does not reach memories: for `config.semaphores` cycles after it all slots are cleared,
    one by one, and no operation may come.

    The slot is named one cycle ahead on `peek`, so that its value is at hand in the cycle of the
    operation. What the previous operation wrote is not in the memory's output yet; it is taken
    from `value` instead.

    Members
    -------
    clearing : slots are being cleared after reset.
    peek : slot of the next cycle's operation.
    operation : see `on_chip_operation`; `slot` equals `peek` of the previous cycle.
    counting : semaphores below are counting semaphores (COPY-12).
    time : nanoseconds, for timestamps.
    passed, error : of the operation; combinational.
    value, stamp : the slot's 64-bit payload and the timestamp that it had, one cycle after the
        operation. The payload is meaningful unless `error`.
    zero : low 32 bits of semaphore i are 0, for the first `config.counters` semaphores.
    update : semaphore `index` was written and now holds `value`; in the cycle after the operation,
        with `zero` (COPY-10).

    Attributes
    ----------
    values, sweep : the payload memory, and the slot that is being cleared (state, for proofs).
    """

    def __init__(self, config: Config) -> None:
        super().__init__({
            "clearing": Out(1, init=1),
            "peek": In(config.semaphore_bits),
            "operation": In(on_chip_operation(config)),
            "counting": In(range(config.counters + 1)),
            "time": In(64),
            "passed": Out(1),
            "error": Out(SemaphoreError),
            "value": Out(64),
            "stamp": Out(64),
            "zero": Out(config.counters, init=-1),
            "update": Out(
                data.StructLayout({"valid": 1, "index": config.semaphore_bits, "value": 64})
            ),
        })
        self.config = config
        self.sweep = Signal(config.semaphore_bits)
        # Neither memory is transparent: the bypass below is explicit (page 70: known miscompiles).
        attrs = {"ram_style": "distributed"} if config.semaphores <= DISTRIBUTED_ROWS else {}
        # Rows for every index: reading past the end would be undefined in simulation.
        rows = 1 << config.semaphore_bits
        self.values = memory.Memory(shape=64, depth=rows, init=[], attrs=attrs)
        self.stamps = memory.Memory(shape=64, depth=rows, init=[])

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.values = self.values
        m.submodules.alu = alu = Alu()
        operation = self.operation
        write = self.values.write_port()
        read = self.values.read_port()

        changes = Signal()
        bypass = Signal()
        m.d.comb += [
            read.addr.eq(self.peek),
            alu.control.eq(operation.control),
            alu.value.eq(Mux(bypass, self.value, read.data)),
            alu.payload.eq(operation.payload),
            alu.counting.eq(operation.slot < self.counting),
            write.addr.eq(Mux(self.clearing, self.sweep, operation.slot)),
            write.data.eq(Mux(self.clearing, 0, alu.result)),
            write.en.eq(self.clearing | changes),
            changes.eq(operation.valid & alu.write),
            self.passed.eq(alu.passed),
            self.error.eq(alu.error),
        ]
        m.d.sync += [
            bypass.eq(changes & (operation.slot == self.peek)),
            self.value.eq(alu.result),
            self.update.valid.eq(changes),
            self.update.index.eq(operation.slot),
        ]
        m.d.comb += self.update.value.eq(self.value)
        for index in range(self.config.counters):
            with m.If(changes & (operation.slot == index)):
                m.d.sync += self.zero[index].eq(alu.zero)
        with m.If(self.clearing):
            m.d.sync += self.sweep.eq(self.sweep + 1)
            with m.If(self.sweep == self.config.semaphores - 1):
                m.d.sync += self.clearing.eq(0)
        self._keep_stamps(m, changes)
        return m

    def _keep_stamps(self, m: Module, changes: Signal) -> None:
        m.submodules.stamps = self.stamps
        operation = self.operation
        write = self.stamps.write_port(granularity=32)
        read = self.stamps.read_port()
        enabled = (changes | (operation.valid & operation.cpu)).replicate(2)
        m.d.comb += [
            write.addr.eq(Mux(self.clearing, self.sweep, operation.slot)),
            write.data.eq(Mux(self.clearing, 0, Mux(operation.cpu, operation.payload, self.time))),
            write.en.eq(
                self.clearing.replicate(2)
                | (enabled & Cat(operation.low_stamp, operation.high_stamp))
            ),
            read.addr.eq(operation.slot),
            self.stamp.eq(read.data),
        ]
