"""Methods of the compute class (HOST-9; spec 5.1)."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out, connect, flipped

from signalbox.hw.config import Config
from signalbox.hw.errors import Cause
from signalbox.hw.front_end.host_port import ComputePort, cause_of, compute_method
from signalbox.hw.front_end.inline_qmd import InlineQmd
from signalbox.hw.methods import (
    ComputeMethod,
    PcasAction,
    ReportOp,
    ReportSemaphore,
    SemOp,
    SignalingPcas,
)
from signalbox.hw.records.launch import (
    LaunchAction,
    Refusal,
    slot_limit,
    task_launch,
    task_launched,
)
from signalbox.hw.records.memory import MemoryStatus, WritePort
from signalbox.hw.records.semaphore import SemaphoreError, SemaphorePort
from signalbox.hw.semaphore.causes import CAUSE_OF as SEMAPHORE_CAUSES
from signalbox.hw.semaphore.qmd_reductions import reduction_of

__all__ = ["ComputeMethodUnit"]

_KEPT = {
    ComputeMethod.SEND_PCAS_A: 32,
    ComputeMethod.SEND_PCAS_B: 32,
    ComputeMethod.SET_REPORT_SEMAPHORE_A: 8,
    ComputeMethod.SET_REPORT_SEMAPHORE_B: 32,
    ComputeMethod.SET_REPORT_SEMAPHORE_C: 32,
}
"""Channel settings that are stored, and their widths."""

_SCHEDULES = (
    PcasAction.SCHEDULE,
    PcasAction.INVALIDATE_COPY_SCHEDULE,
    PcasAction.PREFETCH_SCHEDULE,
    PcasAction.INVALIDATE_PREFETCH_COPY_SCHEDULE,
    PcasAction.INVALIDATE_PREFETCH_COPY_FORCE_REQUIRE_SCHEDULING,
)
"""There is no QMD cache to invalidate, copy to or prefetch into."""

_ACTIONS = {
    PcasAction.INCREMENT_PUT: LaunchAction.INCREMENT_PUT,
    PcasAction.DECREMENT_DEPENDENCE: LaunchAction.DECREMENT_DEPENDENCE,
}
"""Actions other than an immediate launch."""

_NOTHING = (PcasAction.NOP, PcasAction.INVALIDATE, PcasAction.PREFETCH)


class ComputeMethodUnit(wiring.Component):
    """Stores channel settings and executes compute methods, one at a time.

    The loaded dwords of an inline QMD are in memory before the channel's next action method starts.
    A launch is handed on 4 cycles after its method is accepted, if no dwords were loaded, and
    answered in the cycle after the task unit's response.

    Members
    -------
    host : in, the host, except for `over`, which comes from `LaunchArbiter`.
    launch : out, a launch by a channel.
    launched : in, its result.
    limit : out, strobe: slots that a context's tasks may hold (SET_CWD_SLOT_COUNT).
    semaphore : out, the semaphore unit, for SET_REPORT_SEMAPHORE.
    write : out, the memory, for inline QMDs.
    idle : out, no method is in progress.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        super().__init__({
            "host": In(ComputePort(config)),
            "launch": Out(stream.Signature(task_launch(config))),
            "launched": In(task_launched),
            "limit": Out(slot_limit(config)),
            "semaphore": Out(SemaphorePort(config)),
            "write": Out(WritePort(config)),
            "idle": Out(1),
        })
        self._inline = InlineQmd(config)
        self._method = Signal(compute_method(config))
        self._answer = Signal.like(self.host.answer)
        self._page = Signal(32)
        """Page of the channel's inline QMD."""

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.inline = inline = self._inline
        host, method = self.host, self._method
        connect(m, inline.write, flipped(self.write))
        self._kept = {name: self._keep(m, name, width) for name, width in _KEPT.items()}
        store = self._pages(m)
        refused = self._describe(m)
        m.d.comb += [
            inline.setting.eq(host.setting),
            inline.clear.eq(host.clear),
            inline.channel.eq(method.channel),
            inline.asid.eq(method.asid),
            inline.page.eq(self._page),
            host.answer.eq(self._answer),
        ]
        m.d.sync += self._answer.eq(0)
        unlaunched = cause_of(m, self.launched.verdict.refusal)
        with m.FSM(name="method") as fsm:
            self._begin(m)
            self._do(m, store)
            self._launch(m, unlaunched)
            self._report(m, refused)
        m.d.comb += self.idle.eq(fsm.ongoing("IDLE") & ~host.method.valid)
        return m

    # -- channel settings --------------------------------------------------------------------------

    def _ram(self, m: Module, name: str, width: int) -> tuple:
        """A RAM with one word per channel. Returns its write port, and the word of the method's
        channel, one cycle later."""
        ram = Memory(shape=width, depth=1 << self._config.channel_bits, init=[])
        m.submodules[name] = ram
        read = ram.read_port()
        m.d.comb += read.addr.eq(self._method.channel)
        return ram.write_port(), read.data

    def _keep(self, m: Module, name: ComputeMethod, width: int) -> Value:
        """Value of a stored setting."""
        write, value = self._ram(m, name.name.lower(), width)
        setting, clear = self.host.setting, self.host.clear
        m.d.comb += [
            write.addr.eq(Mux(clear.valid, clear.channel, setting.channel)),
            write.data.eq(Mux(clear.valid, 0, setting.data)),
            write.en.eq(clear.valid | (setting.valid & (setting.address == name >> 2))),
        ]
        return value

    def _pages(self, m: Module) -> Signal:
        """Pages of the inline QMDs; the returned strobe sets that of the method's channel."""
        store = Signal()
        write, page = self._ram(m, "inline_pages", 32)
        m.d.comb += [
            write.addr.eq(self._method.channel),
            write.data.eq(self._method.data),
            write.en.eq(store),
            self._page.eq(page),
        ]
        return store

    # -- one method --------------------------------------------------------------------------------

    def _end(self, m: Module, cause: Cause | Value = Cause.NONE) -> None:
        """Complete or refuse the method."""
        m.d.sync += [self._answer.valid.eq(1), self._answer.cause.eq(cause)]
        m.next = "IDLE"

    def _begin(self, m: Module) -> None:
        host, inline = self.host, self._inline
        with m.State("IDLE"):
            m.d.comb += host.method.ready.eq(1)
            m.d.sync += self._method.eq(host.method.p)
            with m.If(host.method.valid):
                m.next = "READ"
        with m.State("READ"):
            m.next = "LOOK"
        with m.State("LOOK"):
            m.d.comb += inline.start.eq(inline.some)
            m.next = "DO"
            with m.If(inline.some):
                m.next = "WRITE"
        with m.State("WRITE"):
            with m.If(inline.done):
                m.next = "DO"
                with m.If(inline.status != MemoryStatus.OK):
                    bus = inline.status == MemoryStatus.BUS
                    m.d.sync += self._answer.va.eq(self._page << 8)
                    self._end(m, Mux(bus, Cause.INLINE_BUS, Cause.INLINE_FAULT))

    def _do(self, m: Module, store: Signal) -> None:
        value = self._method.data
        report = data.View(ReportSemaphore, value)
        with m.State("DO"):
            self._end(m)
            with m.Switch(self._method.address):
                with m.Case(ComputeMethod.SEND_SIGNALING_PCAS_B >> 2):
                    with m.If(data.View(SignalingPcas, value).schedule):
                        self._begin_launch(m)
                with m.Case(ComputeMethod.SEND_SIGNALING_PCAS2_B >> 2):
                    with m.Switch(value[:4]):
                        with m.Case(*_SCHEDULES):
                            self._begin_launch(m)
                        for name, action in _ACTIONS.items():
                            with m.Case(name):
                                self._begin_launch(m, action)
                        with m.Case(*_NOTHING):
                            pass
                        with m.Default():
                            self._end(m, Cause.COMPUTE_MODE)
                with m.Case(ComputeMethod.SET_INLINE_QMD_ADDRESS_A >> 2):
                    # QMDs are in the lowest 40 bits of an address space.
                    with m.If(value != 0):
                        self._end(m, Cause.COMPUTE_MODE)
                with m.Case(ComputeMethod.SET_INLINE_QMD_ADDRESS_B >> 2):
                    m.d.comb += store.eq(1)
                with m.Case(ComputeMethod.SET_REPORT_SEMAPHORE_D >> 2):
                    with m.Switch(report.operation):
                        with m.Case(ReportOp.RELEASE):
                            m.d.sync += self._answer.valid.eq(0)
                            m.next = "REPORT"
                        with m.Case(ReportOp.TRAP):
                            m.d.sync += self._answer.trap.eq(1)
                        with m.Default():
                            self._end(m, Cause.COMPUTE_MODE)
                with m.Case(ComputeMethod.SET_CWD_SLOT_COUNT >> 2):
                    self._limit(m)
                with m.Case(ComputeMethod.WAIT_FOR_IDLE >> 2):
                    pass
                with m.Default():
                    self._end(m, Cause.COMPUTE_MODE)

    def _begin_launch(self, m: Module, action: LaunchAction = LaunchAction.SCHEDULE) -> None:
        with m.If(self._method.context < self._config.contexts):
            m.d.sync += [self._answer.valid.eq(0), self.launch.p.action.eq(action)]
            m.next = "LAUNCH"
        with m.Else():
            self._end(m, Cause.COMPUTE_MODE)

    def _limit(self, m: Module) -> None:
        """Slot limit of the channel's context; 0 means all."""
        limit, count = self.limit, self._method.data[:8]
        m.d.comb += [limit.context.eq(self._method.context), limit.count.eq(count)]
        with m.If(self._method.context < self._config.contexts):
            m.d.comb += limit.valid.eq(1)
        with m.Else():
            self._end(m, Cause.COMPUTE_MODE)

    def _launch(self, m: Module, cause: Value) -> None:
        launch, host, verdict = self.launch, self.host, self.launched.verdict
        begins = Signal()
        m.d.comb += begins.eq(launch.valid & launch.ready)
        with m.State("LAUNCH"):
            m.d.comb += launch.valid.eq(1)
            with m.If(launch.ready):
                m.next = "LAUNCHED"
        with m.State("LAUNCHED"):
            with m.If(self.launched.valid):
                m.d.sync += [
                    self._answer.check.eq(verdict.check),
                    self._answer.va.eq(launch.p.task.page << 8),
                    self._answer.unlaunched.eq(
                        (verdict.refusal != Refusal.NONE) | self.launched.nothing
                    ),
                ]
                self._end(m, cause)
        m.d.comb += [
            host.began.valid.eq(begins),
            host.began.channel.eq(self._method.channel),
            host.began.epoch.eq(self._method.epoch),
        ]

    def _report(self, m: Module, cause: Value) -> None:
        port = self.semaphore
        m.d.comb += port.response.ready.eq(1)
        awaken = data.View(ReportSemaphore, self._method.data).awaken
        with m.State("REPORT"):
            m.d.comb += port.request.valid.eq(1)
            with m.If(port.request.ready):
                m.next = "REPORTED"
        with m.State("REPORTED"):
            with m.If(port.response.valid):
                m.d.sync += [
                    self._answer.va.eq(port.request.p.va),
                    self._answer.trap.eq(awaken & (port.response.p.error == SemaphoreError.NONE)),
                ]
                self._end(m, cause)

    def _describe(self, m: Module) -> Signal:
        """Payloads of a launch and a report. Returns the cause of a refused report."""
        cause = Signal(Cause)
        with m.Switch(self.semaphore.response.p.error):
            for error, name in SEMAPHORE_CAUSES.items():
                with m.Case(error):
                    m.d.comb += cause.eq(name)
        method, request = self._method, self.semaphore.request.p
        report = data.View(ReportSemaphore, method.data)
        task, span = self.launch.p.task, self.launch.p.span
        m.d.comb += [
            self.launch.p.context.eq(method.context),
            [task[name].eq(method[name]) for name in ("asid", "channel", "epoch")],
            task.page.eq(self._kept[ComputeMethod.SEND_PCAS_A]),
            Cat(span.start, span.count).eq(self._kept[ComputeMethod.SEND_PCAS_B]),
            request.asid.eq(method.asid),
            request.va.eq(
                Cat(
                    self._kept[ComputeMethod.SET_REPORT_SEMAPHORE_B],
                    self._kept[ComputeMethod.SET_REPORT_SEMAPHORE_A],
                )
            ),
            request.operation.eq(Mux(report.reduction_enable, SemOp.REDUCTION, SemOp.RELEASE)),
            request.reduction.eq(reduction_of(m, report.reduction)),
            request.unsigned.eq(report.format == 0),
            request.timestamp.eq(~report.one_word),
            request.payload.eq(self._kept[ComputeMethod.SET_REPORT_SEMAPHORE_C]),
        ]
        return cause
