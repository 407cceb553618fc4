"""Context scheduler: selects the running context and binds its address spaces (ASID-20,
ASID-21)."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from signalbox.hw.config import PA_BITS, VA_BITS, Config
from signalbox.hw.instance_block import (
    SC_BASES,
    SC_LIMIT_BYTES,
    SC_LIMITED,
    SC_LIMITS,
    SC_STEP,
    SC_VALID,
    SUBCONTEXTS,
    PageDirectoryBase,
)
from signalbox.hw.lib.arbiter import RoundRobin
from signalbox.hw.lib.onehot import encode, lowest, select
from signalbox.hw.qmd import Placement
from signalbox.hw.records.memory import MemoryStatus, ReadPort
from signalbox.hw.records.placement import DEPTH_BITS, Policy
from signalbox.hw.records.translation import MmuPort
from signalbox.hw.registers import MmuOperation, PreemptionLevel
from signalbox.hw.task_unit.word_access import WordAccess

__all__ = ["Contexts", "context_setting", "hold_bits"]

_ALLOWANCE = 4
"""Cycles allowed per beat to restore the state of all SMs."""


def hold_bits(config: Config) -> int:
    """Binary logarithm of the maximum number of cycles of a turn that do not count in its slice."""
    beats = config.sms * config.place_bytes * 8 // config.data_width
    return (_ALLOWANCE * beats).bit_length()


_VIDEO = 0
"""Target of a page directory in this machine's memory."""


def context_setting() -> data.StructLayout:
    """Settings of a context.

    * `instance`: physical address >> 12 of its instance block.
    * `placement`: placement policy; CONTEXT selects automatically (ASID-32).
    * `nesting`: depth of its deepest kernels (NEST-11).
    * `save_area`: physical address >> 12 of its save area (PREEMPT-4).
    * `level`: preemption level (PREEMPT-1).
    * `saves`: its tasks may have blocks of lower priority stopped (PREEMPT-5).
    """
    return data.StructLayout({
        "instance": PA_BITS - 12,
        "placement": Placement,
        "nesting": DEPTH_BITS,
        "save_area": PA_BITS - 12,
        "level": PreemptionLevel,
        "saves": 1,
    })


class Contexts(wiring.Component):
    """Runs one context at a time. The next one is selected round robin among those with waiting
    tasks, once the running one has none left or its time slice has expired.

    Before a context runs, its instance block is read. Its subcontexts with a page directory are
    bound one after another: ASID to page directory base and address limit. The next subcontext is
    read during a bind. Once all binds are acknowledged, the context's tasks may have slots
    (`active`). A context that leaves first gives up all slots, as its preemption level specifies.
    If it has not done so `timeout` cycles after `leave`, tasks that still have blocks on SMs are
    killed (`overdue`).

    A context whose instance block cannot be read, or has a page directory that cannot be bound, is
    `broken`: its tasks stay in their lists until `mend`.

    Automatic placement: deep for a context with more than one address space, otherwise wide
    (ASID-32).

    Members
    -------
    settings : in, per context: its `context_setting`.
    slice : in, 32 bits: time slice in cycles while other contexts wait, at least 1. Cycles before
        the first block of the turn, and cycles with blocks `restoring`, do not count, up to
        2^`hold_bits` of them together.
    placed : in, strobe: a block is sent to an SM.
    restoring : in, with preemption: the state of blocks is being read from memory.
    timeout : in, 32 bits: cycles from `leave` to `overdue`; 0: never.
    waiting : in, per context: one of its lists is not empty.
    empty : in, no kernel row is occupied and no task is on its way into one.
    context : out, `context_bits` bits: the running context.
    starting : out, a context is being bound: its instance block is read, or its binds are not all
        acknowledged. It goes on even if its tasks have been killed.
    active : out, the context's tasks may have slots.
    leave : out, all its tasks must give up their slots; at level WFI, once they have ended. Also 1
        while no context runs.
    overdue : out, tasks with blocks on SMs must end early (TIMEOUT).
    automatic : out, a `Policy`: placement of tasks that leave the choice to the context (ASID-32).
    level : out, a `PreemptionLevel`: how its tasks leave their slots (PREEMPT-1); CILP where
        kernels are nested.
    saves : out, its tasks may have blocks of lower priority stopped (PREEMPT-5); 1 where kernels
        are nested.
    save_area : out, 28 bits: number of the first 4 KiB page of its save area; 0: none.
    nesting : out, `DEPTH_BITS` bits: depth of its deepest kernels. 0 without a save area: a wait
        for children is sure to end only if waiting blocks can be stopped.
    mmu : out, binds, see `MmuPort`.
    read : out, memory client.
    broken : out, per context: cannot run.
    mend : in, strobe per context: allow it to run again.
    bound : out, strobe: all binds of `context` are acknowledged.
    switches : out, a context leaves, or one with waiting tasks is being bound.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        super().__init__({
            "settings": In(context_setting()).array(config.contexts),
            "slice": In(32),
            "placed": In(1),
            **({"restoring": In(1)} if config.preemption else {}),
            "timeout": In(32),
            "waiting": In(config.contexts),
            "empty": In(1),
            "context": Out(config.context_bits),
            "starting": Out(1),
            "active": Out(1),
            "leave": Out(1, init=1),
            "overdue": Out(1),
            "automatic": Out(Policy),
            "level": Out(PreemptionLevel),
            "saves": Out(1),
            "save_area": Out(PA_BITS - 12),
            "nesting": Out(DEPTH_BITS),
            "mmu": Out(MmuPort(config)),
            "read": Out(ReadPort(config)),
            "broken": Out(config.contexts),
            "mend": In(config.contexts),
            "bound": Out(1),
            "switches": Out(1),
        })
        self._word = WordAccess(config)
        self._setting = Signal(context_setting())
        self._turn = Signal(config.contexts)
        self._several = Signal()
        self._left = Signal(SUBCONTEXTS)
        self._limited = Signal(SUBCONTEXTS)
        self._asid = Signal(range(SUBCONTEXTS))
        self._base = Signal(PA_BITS - 12)
        self._limit = Signal(VA_BITS - 12)
        self._binds, self._binding = Signal(name="binds"), Signal(name="binding")
        """`_binds`: the bind of the subcontext just read begins. `_binding`: a bind is in
        progress."""
        self._breaks = Signal(config.contexts)
        """The context is marked as broken; it no longer asks for a turn."""
        self._refused = Signal(name="refused")
        """A bind of the context was refused."""

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.word = self._word
        m.submodules.turns = turns = RoundRobin(self._config.contexts)
        connect(m, self._word.read, flipped(self.read))
        m.d.sync += [
            turns.requests.eq(self.waiting & ~self.broken & ~self._breaks),
            self.broken.eq((self.broken & ~self.mend) | self._breaks),
        ]
        m.d.comb += self.switches.eq(self.leave & (self.active | turns.requests.any()))
        self._place(m)
        self._bind(m)
        with m.FSM(name="context") as fsm:
            self._choose(m, turns)
            self._read_valid(m)
            self._read_bases(m)
            self._read_limits(m)
            self._end_binding(m)
            self._break(m)
            self._run(m, turns.requests)
        rests = ("NONE", "RUNS", "TOLD", "LEAVES")
        m.d.comb += self.starting.eq(~Cat(fsm.ongoing(state) for state in rests).any())
        return m

    def _choose(self, m: Module, turns: RoundRobin) -> None:
        with m.State("NONE"):
            m.d.sync += self._turn.eq(turns.grant)
            with m.If(turns.requests.any()):
                m.d.comb += turns.advance.eq(1)
                m.next = "CHOSEN"
        with m.State("CHOSEN"):
            words = (setting.as_value() for setting in self.settings)
            m.d.sync += [
                self._setting.eq(data.View(context_setting(), select(self._turn, words))),
                self.context.eq(encode(self._turn)),
            ]
            m.next = "VALID"

    def _ask(self, m: Module, offset: Value) -> None:
        """Read a word of the instance block."""
        request = self._word.request
        m.d.comb += [
            request.valid.eq(1),
            request.p.physical.eq(1),
            request.p.va.eq((self._setting.instance << 12) | offset),
        ]

    def _break(self, m: Module) -> None:
        """Mark the context as broken, once no bind is in progress."""
        with m.State("BROKEN"):
            with m.If(~self._binding):
                m.d.comb += self._breaks.eq(self._turn)
                m.next = "NONE"

    def _read_valid(self, m: Module) -> None:
        """Read the masks of subcontexts with a page directory and with an address limit."""
        word = self._word
        with m.State("VALID"):
            self._ask(m, Const(SC_VALID, 12))
            m.d.sync += [self._several.eq(0), self._refused.eq(0)]
            with m.If(word.request.ready):
                m.next = "KNOW"
        with m.State("KNOW"):
            m.d.sync += self._left.eq(word.answer.data)
            self._go_on(m, "WHICH")
        with m.State("WHICH"):
            self._ask(m, Const(SC_LIMITED, 12))
            with m.If(word.request.ready):
                m.next = "KNOWN"
        with m.State("KNOWN"):
            m.d.sync += self._limited.eq(word.answer.data)
            self._go_on(m, "NEXT")

    def _go_on(self, m: Module, state: str, known: Value | int = 1) -> None:
        """Once the word has been read, go to `state`; to BROKEN if the read failed or `known` is
        0."""
        answer = self._word.answer
        with m.If(answer.valid):
            m.next = state
            with m.If((answer.status != MemoryStatus.OK) | ~Value.cast(known).bool()):
                m.next = "BROKEN"

    def _read_bases(self, m: Module) -> None:
        """Read the next page directory base."""
        word, first = self._word, Signal(SUBCONTEXTS)
        base = data.View(PageDirectoryBase, word.answer.data)
        m.d.comb += first.eq(lowest(self._left))
        with m.State("NEXT"):
            m.d.sync += [self._asid.eq(encode(first)), self._left.eq(self._left & ~first)]
            m.next = "BASE"
            with m.If(self._left == 0):
                m.next = "BOUND"
        with m.State("BASE"):
            with m.If(self._left != 0):
                m.d.sync += self._several.eq(1)
            self._ask(m, SC_BASES + self._asid * SC_STEP)
            with m.If(word.request.ready):
                m.next = "FOUND"
        with m.State("FOUND"):
            m.d.sync += [self._base.eq(base.base), self._limit.eq(~0)]
            known = (base.target == _VIDEO) & base.version2 & (base.base >> PA_BITS - 12 == 0)
            self._go_on(m, "LIMIT", known)

    def _read_limits(self, m: Module) -> None:
        """Read the address limit that belongs to the page directory base, if there is one."""
        word, found = self._word, self._word.answer.data
        with m.State("LIMIT"):
            with m.If(~self._limited.bit_select(self._asid, 1)):
                m.next = "BIND"
            with m.Else():
                self._ask(m, SC_LIMITS + self._asid * SC_LIMIT_BYTES)
                with m.If(word.request.ready):
                    m.next = "LIMITED"
        with m.State("LIMITED"):
            m.d.sync += self._limit.eq(Mux(found[VA_BITS:].any(), ~0, found[12:VA_BITS]))
            self._go_on(m, "BIND")
        with m.State("BIND"):
            with m.If(~self._binding):
                m.d.comb += self._binds.eq(~self._refused)
                m.next = "NEXT"
                with m.If(self._refused):
                    m.next = "BROKEN"

    def _bind(self, m: Module) -> None:
        """Bind the subcontext that has been read."""
        command, done = self.mmu.command, self.mmu.done
        offers = Signal()
        m.d.comb += [command.valid.eq(offers), command.p.operation.eq(MmuOperation.BIND)]
        with m.If(self._binds):
            m.d.sync += [
                offers.eq(1),
                self._binding.eq(1),
                command.p.asid.eq(self._asid),
                command.p.base.eq(self._base),
                command.p.limit.eq(self._limit),
            ]
        with m.Elif(command.ready):
            m.d.sync += offers.eq(0)
        with m.If(done.valid):
            m.d.sync += [self._binding.eq(0), self._refused.eq(self._refused | done.refused)]

    def _end_binding(self, m: Module) -> None:
        """Let the context run once all binds are acknowledged."""
        with m.State("BOUND"):
            with m.If(~self._binding):
                m.d.comb += self.bound.eq(~self._refused)
                m.next = "BROKEN"
                with m.If(~self._refused):
                    m.d.sync += [self.active.eq(1), self.leave.eq(0)]
                    m.next = "RUNS"

    def _run(self, m: Module, requests: Signal) -> None:
        """Run until another context is due."""
        count = Signal(32)
        over, counts = Signal(name="over"), self._counts(m)
        mine, others = (requests & self._turn).any(), (requests & ~self._turn).any()
        m.d.comb += over.eq((count >= self.slice) & count.any())
        m.d.sync += count.eq(Mux(self.active, count + (counts & ~over), 0))
        left = Signal(32)
        m.d.sync += [
            left.eq(Mux(self.leave, left - left.bool(), self.timeout)),
            self.overdue.eq(self.active & (self.overdue | (self.leave & (left == 1)))),
        ]
        with m.State("RUNS"):
            with m.If(others & (over | (self.empty & ~mine))):
                m.d.sync += self.leave.eq(1)
                m.next = "TOLD"
        with m.State("TOLD"):  # `empty` lags by one cycle
            m.next = "LEAVES"
        with m.State("LEAVES"):
            with m.If(self.empty):
                m.d.sync += self.active.eq(0)
                m.next = "NONE"

    def _counts(self, m: Module) -> Value:
        """Whether this cycle counts in the slice. Restoring does not count: a context whose slice
        is shorter than the restoring of its blocks would never execute anything."""
        begun, held = Signal(name="begun"), Signal(hold_bits(self._config) + 1, name="held")
        restoring = self.restoring if self._config.preemption else Const(0)
        counts = (begun & ~restoring) | held[-1]
        m.d.sync += [
            begun.eq(self.active & (begun | self.placed)),
            held.eq(Mux(self.active, held + ~counts, 0)),
        ]
        return counts

    def _place(self, m: Module) -> None:
        """Drives the automatic placement policy and the settings of preemption."""
        able = self._setting.save_area != 0
        nests = able & (self._setting.nesting > 1) if self._config.nested else Const(0)
        m.d.comb += [
            self.level.eq(Mux(nests, PreemptionLevel.CILP, self._setting.level)),
            self.saves.eq(self._setting.saves | nests),
            self.save_area.eq(self._setting.save_area),
            self.nesting.eq(Mux(able, self._setting.nesting, 0)),
        ]
        with m.Switch(self._setting.placement):
            for name in Policy:
                with m.Case(Placement[name.name]):
                    m.d.comb += self.automatic.eq(name)
            with m.Default():
                m.d.comb += self.automatic.eq(Mux(self._several, Policy.DEEP, Policy.WIDE))
