"""End of a task: its releases and its dependent task (HOST-10)."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from signalbox.hw.config import Config
from signalbox.hw.errors import Refusal
from signalbox.hw.lib.onehot import select
from signalbox.hw.methods import SemOp
from signalbox.hw.qmd import RELEASES
from signalbox.hw.records.launch import task_action, task_completed, task_ended, task_verdict
from signalbox.hw.records.memory import MemoryStatus, ReadPort, WritePort
from signalbox.hw.records.placement import task_pointer
from signalbox.hw.records.semaphore import SemaphoreError, SemaphorePort
from signalbox.hw.semaphore.qmd_reductions import reduction_of
from signalbox.hw.task_unit.qmd_fetch import QmdFetch
from signalbox.hw.task_unit.qmd_fields import RESUME
from signalbox.hw.task_unit.word_access import WordAccess

__all__ = ["TaskEnd"]

_FOUR_WORDS = 0
"""RELEASEn_STRUCTURE_SIZE with a timestamp."""


class TaskEnd(wiring.Component):
    """Ends one task at a time: read its QMD again, perform its releases in order, trigger the
    dependent task, report completion.

    A failure does not skip the remaining steps, unless the QMD cannot be read; the last failure is
    reported. The QMD of a resumed task is restored to its state at launch: CTA_RASTER_*_RESUME are
    0 again.

    Members
    -------
    ended : in, stream of `task_ended`: tasks whose blocks have all ended.
    semaphore : out, the semaphore unit, for releases.
    act : out, stream of `task_action`: action on a dependent task of the same context.
    completed : out, stream of `task_completed`.
    read : out, memory client, for QMDs.
    write : out, memory client, for the resume position.
    idle : out, no task is being ended.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        super().__init__({
            "ended": In(stream.Signature(task_ended(config))),
            "semaphore": Out(SemaphorePort(config)),
            "act": Out(stream.Signature(task_action(config))),
            "completed": Out(stream.Signature(task_completed)),
            "read": Out(ReadPort(config)),
            "write": Out(WritePort(config)),
            "idle": Out(1),
        })
        self._reader, self._word = QmdFetch(config), WordAccess(config)
        self._task = Signal(task_pointer)
        self._verdict = Signal(task_verdict)
        self._context = Signal(config.context_bits)
        self._trap = Signal()
        self._turn = Signal(len(RELEASES))

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.reader, m.submodules.word = self._reader, self._word
        connect(m, self._reader.read, flipped(self.read))
        connect(m, self._word.write, flipped(self.write))
        self._wire(m)
        enabled = self._release(m)
        with m.FSM(name="finish") as fsm:
            self._begin(m)
            self._releases(m, enabled)
            self._tell(m)
        m.d.comb += self.idle.eq(fsm.ongoing("IDLE") & ~self.ended.valid)
        return m

    def _wire(self, m: Module) -> None:
        task, record, word = self._task, self._reader.record, self._word.request
        m.d.comb += [
            self._reader.request.p.asid.eq(task.asid),
            self._reader.request.p.page.eq(task.page),
            word.p.asid.eq(task.asid),
            word.p.va.eq(Cat(Const(RESUME.offset, 8), task.page)),
            word.p.write.eq(1),
            word.p.strobe.eq(RESUME.strobe),
            self.act.p.task.page.eq(record.DEPENDENT_QMD0_POINTER),
            [
                self.act.p.task[name].eq(task[name])
                for name in ("asid", "channel", "depth", "epoch")
            ],
            self.act.p.context.eq(self._context),
            self.act.p.action.eq(record.DEPENDENT_QMD0_ACTION),
            self.completed.p.task.eq(task),
            self.completed.p.verdict.eq(self._verdict),
            self.completed.p.trap.eq(self._trap),
        ]

    def _fail(self, m: Module, refusal: Refusal | Value) -> None:
        m.d.sync += self._verdict.refusal.eq(refusal)

    def _begin(self, m: Module) -> None:
        reader, word = self._reader, self._word
        with m.State("IDLE"):
            m.d.comb += self.ended.ready.eq(1)
            m.d.sync += [
                self._task.eq(self.ended.p.task),
                self._context.eq(self.ended.p.context),
                self._verdict.eq(0),
                self._trap.eq(0),
                self._turn.eq(1),
            ]
            with m.If(self.ended.valid):
                m.next = "READ"
        with m.State("READ"):
            m.d.comb += reader.request.valid.eq(1)
            with m.If(reader.request.ready):
                m.next = "KNOW"
        with m.State("KNOW"):
            with m.If(reader.ended & (reader.status != MemoryStatus.OK)):
                self._fail(m, _memory(reader.status))
                m.next = "DONE"
            with m.Elif(reader.ended & self._task.resumed):
                m.next = "RESET"
            with m.Elif(reader.ended):
                m.next = "RELEASE"
        with m.State("RESET"):
            m.d.comb += word.request.valid.eq(1)
            with m.If(word.request.ready):
                m.next = "RESETTING"
        with m.State("RESETTING"):
            with m.If(word.answer.valid):
                m.next = "RELEASE"
                with m.If(word.answer.status != MemoryStatus.OK):
                    self._fail(m, _memory(word.answer.status))

    def _release(self, m: Module) -> Value:
        """Request of the current release. Returns whether the QMD enables it."""
        record, request = self._reader.record, self.semaphore.request.p

        def of(name: str) -> Value:
            return select(self._turn, [record[f"RELEASE{n}_{name}"] for n in range(len(RELEASES))])

        reduces = of("REDUCTION_ENABLE")
        m.d.comb += [
            request.asid.eq(self._task.asid),
            request.va.eq(Cat(of("ADDRESS_LOWER"), of("ADDRESS_UPPER"))),
            request.operation.eq(Mux(reduces, SemOp.REDUCTION, SemOp.RELEASE)),
            request.unsigned.eq(of("REDUCTION_FORMAT") == 0),
            request.wide.eq(of("PAYLOAD64B")),
            request.timestamp.eq(of("STRUCTURE_SIZE") == _FOUR_WORDS),
            request.payload.eq(Cat(of("PAYLOAD_LOWER"), of("PAYLOAD_UPPER"))),
        ]
        m.d.comb += request.reduction.eq(reduction_of(m, of("REDUCTION_OP")))
        traps = of("NON_BLOCKING_INTR_TYPE") != 0
        with m.If(self.semaphore.response.valid & traps):
            m.d.sync += self._trap.eq(1)
        return of("ENABLE")

    def _releases(self, m: Module, enabled: Value) -> None:
        """All releases in order."""
        port = self.semaphore
        m.d.comb += port.response.ready.eq(1)
        with m.State("RELEASE"):
            m.d.comb += port.request.valid.eq(enabled)
            with m.If(enabled):
                with m.If(port.request.ready):
                    m.next = "RELEASING"
            with m.Else():
                self._next(m)
        with m.State("RELEASING"):
            with m.If(port.response.valid):
                with m.If(port.response.p.error != SemaphoreError.NONE):
                    self._fail(m, Refusal.RELEASE)
                self._next(m)

    def _next(self, m: Module) -> None:
        m.d.sync += self._turn.eq(self._turn << 1)
        m.next = "RELEASE"
        with m.If(self._turn[-1]):
            m.next = "ACT"

    def _tell(self, m: Module) -> None:
        with m.State("ACT"):
            enabled = self._reader.record.DEPENDENT_QMD0_ENABLE
            m.d.comb += self.act.valid.eq(enabled)
            with m.If(~enabled | self.act.ready):
                m.next = "DONE"
        with m.State("DONE"):
            m.d.comb += self.completed.valid.eq(1)
            with m.If(self.completed.ready):
                m.next = "IDLE"


def _memory(status: Value) -> Value:
    """Reason of a failed memory access."""
    return Mux(status == MemoryStatus.BUS, Refusal.BUS, Refusal.FAULT)
