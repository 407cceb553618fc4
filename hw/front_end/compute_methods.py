"""Methods of the compute class (HOST-9, HOST-14; spec 5.1)."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out, connect, flipped

from signalbox.hw.config import Config
from signalbox.hw.errors import Cause, Refusal
from signalbox.hw.front_end.host_port import (
    INLINE_DWORDS,
    ComputePort,
    cause_of,
    compute_method,
)
from signalbox.hw.front_end.inline_buffer import InlineBuffer
from signalbox.hw.front_end.inline_qmd import InlineQmd
from signalbox.hw.front_end.inline_transfer import InlineTransfer
from signalbox.hw.front_end.kept_settings import KeptSettings
from signalbox.hw.lib.delayed import delayed
from signalbox.hw.methods import (
    ComputeMethod,
    PcasAction,
    ReportOp,
    ReportSemaphore,
    SemOp,
    SignalingPcas,
)
from signalbox.hw.records.launch import LaunchAction, slot_limit, task_launch, task_launched
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
    ComputeMethod.SET_I2M_SEMAPHORE_A: 8,
    ComputeMethod.SET_I2M_SEMAPHORE_B: 32,
    ComputeMethod.SET_I2M_SEMAPHORE_C: 32,
}
"""Stored channel settings and their widths, except for those of inline transfers, which are in
`InlineTransfer`."""

_SCHEDULES = (
    PcasAction.SCHEDULE,
    PcasAction.INVALIDATE_COPY_SCHEDULE,
    PcasAction.PREFETCH_SCHEDULE,
    PcasAction.INVALIDATE_PREFETCH_COPY_SCHEDULE,
    PcasAction.INVALIDATE_PREFETCH_COPY_FORCE_REQUIRE_SCHEDULING,
)
"""Actions that launch a task at once. There is no QMD cache to invalidate, copy to or prefetch
into."""

_ACTIONS = {
    PcasAction.INCREMENT_PUT: LaunchAction.INCREMENT_PUT,
    PcasAction.DECREMENT_DEPENDENCE: LaunchAction.DECREMENT_DEPENDENCE,
}
"""Launch actions of the other PCAS actions."""

_NOTHING = (PcasAction.NOP, PcasAction.INVALIDATE, PcasAction.PREFETCH)


class ComputeMethodUnit(wiring.Component):
    """Stores channel settings and executes compute methods, one at a time.

    The loaded dwords of an inline QMD are in memory before the channel's next action method is
    executed; a part of an inline transfer, before its last LOAD_INLINE_DATA is answered. If QMD
    dwords cannot be written, the method is refused. They are written when it is repeated, and
    dropped when it is not.

    A launch is offered 4 cycles after its method is accepted, if no QMD dwords were loaded, and
    answered in the cycle after the task unit's response.

    Members
    -------
    host : in, the host, except for `over`, which comes from `LaunchArbiter`.
    launch : out, stream of `task_launch`: launches by channels.
    launched : in, a `task_launched`: result of the launch.
    limit : out, strobe, a `slot_limit`: slots that a context's tasks may hold (SET_CWD_SLOT_COUNT).
    semaphore : out, the semaphore unit, for SET_REPORT_SEMAPHORE and ends of inline transfers.
    write : out, the memory, for inline QMDs and inline transfers.
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
        self._kept = KeptSettings(config, _KEPT)
        self._buffer, self._qmd = InlineBuffer(config), InlineQmd(config)
        self._transfer = InlineTransfer(config)
        self._method = Signal(compute_method(config))
        self._answer = Signal.like(self.host.answer)
        self._page = Signal(32)
        """Address >> 8 of the channel's inline QMD."""
        self._sends_part = Signal()
        """The buffer writes a part of a transfer."""
        self._loads = Signal()
        """The method is LOAD_INLINE_DATA."""

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.kept, m.submodules.inline = self._kept, self._buffer
        m.submodules.qmd, m.submodules.transfer = self._qmd, self._transfer
        host = self.host
        self._settings(m)
        self._load(m)
        store = self._pages(m)
        refused = self._describe(m)
        m.d.comb += host.answer.eq(self._answer)
        m.d.sync += self._answer.eq(0)
        unlaunched = cause_of(m, self.launched.verdict.refusal)
        with m.FSM(name="method") as fsm:
            self._begin(m)
            self._do(m, store)
            self._transfers(m)
            self._launch(m, unlaunched)
            self._report(m, refused)
        m.d.comb += self.idle.eq(fsm.ongoing("IDLE") & ~host.method.valid)
        return m

    # -- channel settings --------------------------------------------------------------------------

    def _settings(self, m: Module) -> None:
        """Connect the units that store settings."""
        host, channel = self.host, self._method.channel
        for unit in (self._kept, self._transfer):
            m.d.comb += [unit.setting.eq(host.setting), unit.clear.eq(host.clear)]
        # One cycle later for loaded dwords, which have longer paths.
        before = delayed(m, host.setting, "setting_before")
        clear = delayed(m, host.clear, "clear_before")
        skip = delayed(m, host.skip, "skip_before")
        m.d.comb += [
            self._buffer.setting.eq(before),
            self._qmd.setting.eq(before),
            # Dwords that could not be written are kept only if the refused method is repeated.
            self._qmd.clear.valid.eq(clear.valid | skip.valid),
            self._qmd.clear.channel.eq(Mux(skip.valid, skip.channel, clear.channel)),
        ]
        for unit in (self._kept, self._buffer, self._qmd, self._transfer):
            m.d.comb += unit.channel.eq(channel)

    def _load(self, m: Module) -> None:
        """Connects the buffer: to a transfer while that writes, otherwise to the inline QMD."""
        buffer, qmd, transfer = self._buffer, self._qmd, self._transfer
        connect(m, buffer.write, flipped(self.write))
        m.d.comb += [
            buffer.asid.eq(self._method.asid),
            buffer.va.eq(Mux(self._sends_part, transfer.va, self._page << 8)),
            buffer.size.eq(Mux(self._sends_part, transfer.size, 4 * INLINE_DWORDS)),
            buffer.mask.eq(Mux(self._sends_part, ~0, qmd.mask)),
            buffer.dword.eq(self._method.data),
            transfer.value.eq(self._method.data),
            transfer.free.eq(buffer.free),
            buffer.store.eq(transfer.store),
            buffer.move.eq(transfer.move),
            buffer.to.eq(transfer.to),
            transfer.done.eq(self._sends_part & buffer.done),
            transfer.status.eq(buffer.status),
        ]

    def _pages(self, m: Module) -> Signal:
        """Pages of the inline QMDs (address >> 8), 0 after a channel's start. Returns a strobe that
        sets the page of the method's channel."""
        store, known = Signal(name="store"), Signal(name="known")
        stored = Signal(self._config.channels)
        channel, clear = self._method.channel, self.host.clear
        m.d.sync += known.eq(stored.bit_select(channel, 1))
        with m.If(store):
            m.d.sync += stored.bit_select(channel, 1).eq(1)
        with m.If(clear.valid):
            m.d.sync += stored.bit_select(clear.channel, 1).eq(0)
        ram = Memory(shape=32, depth=1 << self._config.channel_bits, init=[])
        m.submodules.inline_pages = ram
        write, read = ram.write_port(), ram.read_port()
        m.d.comb += [
            read.addr.eq(channel),
            write.addr.eq(channel),
            write.data.eq(self._method.data),
            write.en.eq(store),
            self._page.eq(Mux(known, read.data, 0)),
        ]
        return store

    # -- one method --------------------------------------------------------------------------------

    def _end(self, m: Module, cause: Cause | Value = Cause.NONE) -> None:
        """Complete or refuse the method."""
        m.d.sync += [self._answer.valid.eq(1), self._answer.cause.eq(cause)]
        m.next = "IDLE"

    def _leave(self, m: Module, state: str) -> None:
        """Continue the method in another state."""
        m.d.sync += self._answer.valid.eq(0)
        m.next = state

    def _begin(self, m: Module) -> None:
        host, buffer, qmd = self.host, self._buffer, self._qmd
        with m.State("IDLE"):
            m.d.comb += host.method.ready.eq(1)
            m.d.sync += self._method.eq(host.method.p)
            with m.If(host.method.valid):
                m.next = "READ"
        with m.State("READ"):
            m.next = "LOOK"
        with m.State("LOOK"):
            m.d.comb += buffer.start.eq(qmd.mask.any())
            m.next = "DO"
            with m.If(qmd.mask.any()):
                m.next = "WRITE"
        with m.State("WRITE"):
            good = buffer.status == MemoryStatus.OK
            m.d.comb += [
                qmd.forget.eq(buffer.done & good),
                buffer.taken.eq(buffer.done & (qmd.forgotten | ~good)),
            ]
            with m.If(buffer.taken):
                m.next = "DO"
                with m.If(~good):
                    self._fail(m)

    def _fail(self, m: Module) -> None:
        """Refuse the method, as loaded dwords could not be written."""
        bus = self._buffer.status == MemoryStatus.BUS
        m.d.sync += self._answer.va.eq(self._buffer.at)
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
                            self._leave(m, "REPORT")
                        with m.Case(ReportOp.TRAP):
                            m.d.sync += self._answer.trap.eq(1)
                        with m.Default():
                            self._end(m, Cause.COMPUTE_MODE)
                with m.Case(ComputeMethod.SET_CWD_SLOT_COUNT >> 2):
                    self._limit(m)
                with m.Case(ComputeMethod.WAIT_FOR_IDLE >> 2):
                    pass
                with m.Case(ComputeMethod.LAUNCH_DMA >> 2):
                    self._begin_transfer(m)
                with m.Case(ComputeMethod.LOAD_INLINE_DATA >> 2):
                    m.d.comb += self._transfer.load.eq(1)
                    self._leave(m, "TRANSFER")
                with m.Default():
                    self._end(m, Cause.COMPUTE_MODE)

    def _begin_launch(self, m: Module, action: LaunchAction = LaunchAction.SCHEDULE) -> None:
        with m.If(self._method.context < self._config.contexts):
            m.d.sync += self.launch.p.action.eq(action)
            self._leave(m, "LAUNCH")
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

    # -- inline transfers --------------------------------------------------------------------------

    def _begin_transfer(self, m: Module) -> None:
        transfer = self._transfer
        with m.If(~transfer.modelled):
            self._end(m, Cause.COMPUTE_MODE)
        with m.Elif(transfer.empty):
            self._end(m, Cause.INLINE_ZERO)
        with m.Else():
            m.d.comb += transfer.begin.eq(1)
            self._leave(m, "TRANSFER")

    def _transfers(self, m: Module) -> None:
        transfer, buffer = self._transfer, self._buffer
        m.d.comb += self._sends_part.eq(transfer.writes)
        with m.State("TRANSFER"):
            m.d.comb += [buffer.start.eq(transfer.start), buffer.taken.eq(transfer.taken)]
            with m.If(transfer.over):
                m.d.sync += self._answer.inline.eq(transfer.progress)
                self._end(m)
                with m.If(~transfer.progress.open):
                    with m.If(buffer.status != MemoryStatus.OK):
                        self._fail(m)
                    with m.Elif(transfer.completion.release):
                        self._leave(m, "REPORT")
                    with m.Else():
                        m.d.sync += self._answer.trap.eq(transfer.completion.interrupt)

    # -- launches and reports ----------------------------------------------------------------------

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
        report = data.View(ReportSemaphore, self._method.data)
        awaken = Mux(self._loads, self._transfer.completion.interrupt, report.awaken)
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
        method, request, transfer = self._method, self.semaphore.request.p, self._transfer
        report, kept = data.View(ReportSemaphore, method.data), self._kept
        task, span = self.launch.p.task, self.launch.p.span
        m.d.comb += [
            self._loads.eq(method.address == ComputeMethod.LOAD_INLINE_DATA >> 2),
            self.launch.p.context.eq(method.context),
            [task[name].eq(method[name]) for name in ("asid", "channel", "epoch")],
            task.page.eq(kept[ComputeMethod.SEND_PCAS_A]),
            task.depth.eq(1),
            Cat(span.start, span.count).eq(kept[ComputeMethod.SEND_PCAS_B]),
            request.asid.eq(method.asid),
        ]
        with m.If(self._loads):
            m.d.comb += [
                request.va.eq(
                    Cat(
                        kept[ComputeMethod.SET_I2M_SEMAPHORE_B],
                        kept[ComputeMethod.SET_I2M_SEMAPHORE_A],
                    )
                ),
                request.operation.eq(SemOp.RELEASE),
                request.timestamp.eq(~transfer.completion.one_word),
                request.payload.eq(kept[ComputeMethod.SET_I2M_SEMAPHORE_C]),
            ]
        with m.Else():
            m.d.comb += [
                request.va.eq(
                    Cat(
                        kept[ComputeMethod.SET_REPORT_SEMAPHORE_B],
                        kept[ComputeMethod.SET_REPORT_SEMAPHORE_A],
                    )
                ),
                request.operation.eq(Mux(report.reduction_enable, SemOp.REDUCTION, SemOp.RELEASE)),
                request.timestamp.eq(~report.one_word),
                request.payload.eq(kept[ComputeMethod.SET_REPORT_SEMAPHORE_C]),
            ]
        m.d.comb += [
            request.reduction.eq(reduction_of(m, report.reduction)),
            request.unsigned.eq(report.format == 0),
        ]
        return cause
