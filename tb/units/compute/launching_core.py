"""A core whose warps launch children and wait for them; it executes no program."""

from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, enum, memory, wiring

from signalbox.hw.config import Config
from signalbox.hw.errors import CoreCause
from signalbox.hw.lib.onehot import encode, lowest
from signalbox.hw.records.launch import Refusal
from signalbox.hw.records.placement import KernelWord, buffer_word
from signalbox.hw.sm.port import SmPort

__all__ = ["WITHOUT_JOIN", "WORK", "LaunchingCore"]

WORK = 30
"""Cycles for which a warp without children works."""

WITHOUT_JOIN = 1 << 4
"""Bit of the address of constant buffer 0: blocks end without waiting for their children."""


class Phase(enum.Enum, shape=3):
    """What a warp does."""

    NONE = 0
    ASK = 1
    WAIT = 2
    """It waits for the answer to its launch."""
    JOIN = 3
    WORK = 4
    END = 5


class LaunchingCore(wiring.Component):
    """Members are those of `SmPort`, seen from the core. Constant buffer 0 tells what the blocks of
    a kernel do, which have one warp each: its address is that of the record of the first child,
    its size in units of 16 bytes the number of children, whose records follow one another. A warp
    faults (MASK_STACK) if a launch is refused or a child has failed. Blocks are not stopped.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        super().__init__(SmPort(config).flip())

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, warps = self._config, range(self._config.sm_warps)
        words = self._words(m)
        shape = data.StructLayout({
            "phase": Phase,
            "row": config.row_bits,
            "slot": config.block_bits,
            "page": 32,
            "left": 13,
            "joins": 1,
            "failed": 1,
            "timer": range(WORK + 1),
        })
        states = [Signal(shape, name=f"warp_{n}") for n in warps]
        start, low, high = self.start, words[0], data.View(buffer_word, words[1])
        m.d.comb += [self.begin.ready.eq(1), start.ready.eq(1), self.saved.eq(0)]
        m.d.comb += self.stop.ready.eq(1)
        with m.If(start.valid):
            for n in warps:
                with m.If(start.p.warp == n):
                    m.d.sync += [
                        states[n].phase.eq(Mux(high.units == 0, Phase.WORK, Phase.ASK)),
                        states[n].row.eq(start.p.row),
                        states[n].slot.eq(start.p.slot),
                        states[n].page.eq(Cat(low[8:], high.address)),
                        states[n].left.eq(high.units),
                        states[n].joins.eq(~low[4]),
                        states[n].failed.eq(0),
                        states[n].timer.eq(WORK),
                    ]
        asks = Cat(one.phase == Phase.ASK for one in states)
        ends = Cat((one.phase == Phase.END) & ~one.failed for one in states)
        faults = Cat((one.phase == Phase.END) & one.failed for one in states)
        asked, ended, failed = (
            self._offer(m, port, lowest(wanted), name)
            for port, wanted, name in (
                (self.launch, asks, "launch"),
                (self.end, ends, "end"),
                (self.fault, faults, "fault"),
            )
        )
        m.d.comb += [
            self.end.payload.eq(encode(ended)),
            self.fault.p.cause.eq(CoreCause.MASK_STACK),
        ]
        for n, one in enumerate(states):
            with m.If(asked[n]):
                m.d.comb += [
                    self.launch.p[name].eq(one[name]) for name in self.launch.p.shape().members
                ]
            with m.If(failed[n]):
                m.d.comb += self.fault.p.row.eq(one.row)
            self._step(
                m,
                one,
                asked[n] & self.launch.ready,
                ended[n] & self.end.ready,
                failed[n] & self.fault.ready,
            )
        return m

    def _words(self, m: Module) -> list[Value]:
        """The words of constant buffer 0 of the starting warp's kernel."""
        found = []
        for word in (KernelWord.CONSTANTS_LOW, KernelWord.CONSTANTS_HIGH):
            m.submodules[word.name.lower()] = store = memory.Memory(
                shape=32, depth=self._config.rows, init=[]
            )
            write, read = store.write_port(), store.read_port(domain="comb")
            m.d.comb += [
                write.en.eq(self.kernel.valid & (self.kernel.word == word)),
                write.addr.eq(self.kernel.row),
                write.data.eq(self.kernel.data),
                read.addr.eq(self.start.p.row),
            ]
            found.append(read.data)
        return found

    def _offer(self, m: Module, port: Any, wanted: Value, name: str) -> Signal:
        """Offer something of one warp until it is taken. Returns the warp, one-hot."""
        held, chosen = (Signal(len(wanted), name=f"{name}_{kind}") for kind in ("held", "chosen"))
        m.d.comb += [chosen.eq(Mux(held.any(), held, wanted)), port.valid.eq(chosen.any())]
        m.d.sync += held.eq(Mux(port.ready, 0, chosen))
        return chosen

    def _step(self, m: Module, one: data.View, launches: Value, ends: Value, faults: Value) -> None:
        """One warp; what it offers was taken."""
        answer, slot = self.launched, one.slot
        with m.Switch(one.phase):
            with m.Case(Phase.ASK):
                with m.If(launches):
                    m.d.sync += [
                        one.phase.eq(Phase.WAIT),
                        one.page.eq(one.page + 1),
                        one.left.eq(one.left - 1),
                    ]
            with m.Case(Phase.WAIT):
                with m.If(answer.valid & (answer.slot == slot)):
                    refused = answer.verdict.refusal != Refusal.NONE
                    m.d.sync += one.failed.eq(one.failed | refused)
                    m.d.sync += one.phase.eq(
                        Mux(one.left != 0, Phase.ASK, Mux(one.joins, Phase.JOIN, Phase.WORK))
                    )
            with m.Case(Phase.JOIN):
                with m.If(~self.children.bit_select(slot, 1)):
                    m.d.sync += [
                        one.phase.eq(Phase.END),
                        one.failed.eq(one.failed | self.child_failed.bit_select(slot, 1)),
                    ]
            with m.Case(Phase.WORK):
                m.d.sync += one.timer.eq(one.timer - 1)
                with m.If((one.timer == 0) | self.kill.bit_select(one.row, 1)):
                    m.d.sync += one.phase.eq(Phase.END)
            with m.Case(Phase.END):
                with m.If(faults):
                    m.d.sync += one.failed.eq(0)
                with m.If(ends):
                    m.d.sync += one.phase.eq(Phase.NONE)
