"""Execution of methods: one per cycle when nothing makes it wait (HOST-3, HOST-4, HOST-8).

Methods that only set state take effect at once, also while an earlier copy of the channel runs.
All others wait for the channel's own copies (COPY-1, COPY-4).
"""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.config import VA_BITS, WINDOW_BASE, Config
from hw.errors import Cause
from hw.host.acquire import AcquireSpans
from hw.host.context import Method, ObjectKind, channel_context
from hw.host.prefetch import channel_event
from hw.host.settings import setting_event, setting_ram
from hw.methods import (
    CeMethod,
    CopyLaunch,
    HostMethod,
    LaunchSemaphore,
    LaunchTransfer,
    LegacySemaphore,
    MemOp,
    ObjectClass,
    SemaphoreExecute,
    SemOp,
)
from hw.records import (
    SemaphoreError,
    SemaphorePort,
    copy_command,
    semaphore_request,
    semaphore_response,
)
from hw.registers import Wait

__all__ = ["Execute"]

ENGINE_METHODS = 0x100
"""First byte offset of the methods that go to the object of the subchannel (1.2)."""

SOFTWARE_ENGINE = 0x1F
"""SET_OBJECT ENGINE of software objects."""

PEER = 3
"""Physical-mode target that is not modelled: memory of another device."""

RENDER_TRUE = 1
"""SET_RENDER_ENABLE_C mode that is modelled: unconditional."""

_COPY_FIELDS = {
    CeMethod.SET_SEMAPHORE_A: ("semaphore_va", 32, 17),
    CeMethod.SET_SEMAPHORE_B: ("semaphore_va", 0, 32),
    CeMethod.SET_SEMAPHORE_PAYLOAD: ("payload", 0, 32),
    CeMethod.SET_SEMAPHORE_PAYLOAD_UPPER: ("payload", 32, 32),
    CeMethod.SET_SRC_PHYS_MODE: ("src_target", 0, 2),
    CeMethod.SET_DST_PHYS_MODE: ("dst_target", 0, 2),
    CeMethod.OFFSET_IN_UPPER: ("src", 32, 17),
    CeMethod.OFFSET_IN_LOWER: ("src", 0, 32),
    CeMethod.OFFSET_OUT_UPPER: ("dst", 32, 17),
    CeMethod.OFFSET_OUT_LOWER: ("dst", 0, 32),
    CeMethod.PITCH_IN: ("pitch_in", 0, 32),
    CeMethod.PITCH_OUT: ("pitch_out", 0, 32),
    CeMethod.LINE_LENGTH_IN: ("line_length", 0, 32),
    CeMethod.LINE_COUNT: ("line_count", 0, 32),
}
"""Copy-class methods that set state: field, lowest bit, width."""

_SEM_CAUSES = {
    SemaphoreError.UNDERFLOW: Cause.SEM_UNDERFLOW,
    SemaphoreError.OVERFLOW: Cause.SEM_OVERFLOW,
    SemaphoreError.UNKNOWN: Cause.SEM_UNKNOWN,
    SemaphoreError.ALIGNMENT: Cause.SEM_ALIGNMENT,
    SemaphoreError.UNSUPPORTED: Cause.SEM_UNSUPPORTED,
    SemaphoreError.BUS: Cause.SEM_BUS,
    SemaphoreError.FAULT: Cause.SEM_FAULT,
}


class Execute(wiring.Component):
    """Executes the method held in `work.method`.

    Combinational from `work`; an operation on an on-chip semaphore takes some cycles, during which
    `busy` is 1 and `work` stays.

    Members
    -------
    work, channel, run : the served channel's context; `run`: execute its method.
    leave : the channel is to be let go: decide no acquire, start no copy.
    done : the method is complete; `update`: the context becomes `next_work` (always with `done`).
    park, wait : it is not, and has to wait; `keep`: without losing its reserved engine.
    busy : it is not, and needs a few cycles more. asked : the semaphore unit has been asked, and
        its answer must be taken.
    copying, able, queue, held, ended : per channel; see `Launcher`, `Parking`, `Fences`.
    spent, free, result, all_idle, writeback_free : see there.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        channels, event = config.channels, channel_event(config)
        counter = channel_event(config, counter=config.semaphore_bits)
        super().__init__({
            "work": In(channel_context(config)),
            "channel": In(config.channel_bits),
            "run": In(1),
            "leave": In(1),
            "done": Out(1),
            "update": Out(1),
            "next_work": Out(channel_context(config)),
            "park": Out(1),
            "wait": Out(Wait),
            "keep": Out(1),
            "busy": Out(1),
            "asked": Out(1),
            "setting": In(setting_event(config)),
            "copying": In(channels),
            "able": In(channels),
            "queue": In(channels),
            "held": In(channels),
            "ended": In(channels),
            "result": In(semaphore_response()),
            "free": In(1),
            "spent": In(1),
            "all_idle": In(1),
            "writeback_free": In(1),
            "zero": In(config.counters),
            "counting": In(range(config.counters + 1)),
            "cycles": In(32),
            "units": In(32),
            "semaphore": Out(SemaphorePort(config)),
            "begin": Out(channel_event(config, request=semaphore_request(config))),
            "collect": Out(event),
            "watch": Out(channel_event(config, index=config.semaphore_bits)),
            "guard": Out(counter),
            "unguard": Out(channel_event(config, counter=config.semaphore_bits, all=1)),
            "reserve": Out(event),
            "launch": Out(
                channel_event(
                    config,
                    behind=1,
                    interrupt=1,
                    data=32,
                    subchannel=3,
                    command=copy_command(config),
                )
            ),
            "arm": Out(channel_event(config, units=1, due=32)),
            "disarm": Out(event),
            "reference": Out(
                stream.Signature(data.StructLayout({"channel": config.channel_bits, "value": 32}))
            ),
            "notify": Out(event),
            "resume": Out(channel_event(config, target=12)),
            "give_up": Out(1),
            "halt": Out(channel_event(config, cause=Cause, va=VA_BITS, method=Method)),
            "acquire": Out(channel_event(config, passed=1)),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, work = self._config, self.work
        (self._setup,) = setting_ram(m, config, self.setting, "CONFIG")
        m.submodules.spans = self._spans = spans = AcquireSpans(config)
        m.d.comb += [
            self._setup.addr.eq(self.channel),
            spans.setting.eq(self.setting),
            spans.channel.eq(self.channel),
        ]
        self._pick(m)
        m.d.comb += [
            self.next_work.eq(work),
            self.update.eq(self.done),
            self.halt.method.eq(work.method),
        ]
        for event in (
            self.begin,
            self.collect,
            self.watch,
            self.guard,
            self.unguard,
            self.reserve,
            self.launch,
            self.arm,
            self.disarm,
            self.notify,
            self.resume,
            self.halt,
            self.acquire,
        ):
            m.d.comb += event.channel.eq(self.channel)
        self._semaphore_fields(m)
        engine = work.method.address >= ENGINE_METHODS >> 2
        with m.If(self.run):
            with m.If(work.method.cause != Cause.NONE):
                self._refuse(m, work.method.cause)
            with m.Elif(engine):
                self._engine_method(m)
            with m.Else():
                self._host_method(m)
        m.d.comb += self.asked.eq(~self._asking.ongoing("IDLE"))
        return m

    def _pick(self, m: Module) -> None:
        """The served channel's bit of everything that is kept per channel."""
        names = ("copying", "able", "queue", "held", "ended")
        self._is = {name: Signal(name=f"is_{name}") for name in names}
        for name, bit in self._is.items():
            m.d.comb += bit.eq(getattr(self, name).bit_select(self.channel, 1))
        self._copy_channel = Signal()
        m.d.comb += self._copy_channel.eq(
            Cat(self.work.objects[i] == ObjectKind.COPY for i in range(8)).any()
        )

    # -- outcomes ----------------------------------------------------------------------------------

    def _refuse(self, m: Module, cause: Cause, va: object = 0) -> None:
        """Halt the channel; the method stays readable (HOST-6)."""
        m.d.comb += [self.halt.valid.eq(1), self.halt.cause.eq(cause), self.halt.va.eq(va)]

    def _park(self, m: Module, wait: Wait) -> None:
        m.d.comb += [self.park.eq(1), self.wait.eq(wait)]

    def _finish(self, m: Module) -> None:
        m.d.comb += self.done.eq(1)

    def _after_copies(self, m: Module):
        """Block for what must wait for the channel's own copies."""
        with m.If(self._is["copying"]):
            self._park(m, Wait.COPIES)
        return m.Else()

    # -- host methods (spec 2) ---------------------------------------------------------------------

    def _host_method(self, m: Module) -> None:
        method, state = self.work.method, self.next_work
        value = method.data
        with m.Switch(method.address[:6]):
            with m.Case(HostMethod.SET_OBJECT >> 2):
                self._set_object(m)
            with m.Case(HostMethod.ILLEGAL >> 2):
                self._refuse(m, Cause.METHOD_ILLEGAL)
            with m.Case(
                HostMethod.NOP >> 2,
                HostMethod.MEM_OP_A >> 2,
                HostMethod.MEM_OP_B >> 2,
                HostMethod.MEM_OP_C >> 2,
            ):
                self._finish(m)
            with m.Case(HostMethod.SEM_ADDR_LO >> 2, HostMethod.SEMAPHOREB >> 2):
                m.d.comb += state.semaphore.va[:32].eq(value & ~3)
                self._finish(m)
            with m.Case(HostMethod.SEM_ADDR_HI >> 2, HostMethod.SEMAPHOREA >> 2):
                m.d.comb += state.semaphore.va[32:].eq(value)
                self._finish(m)
            with m.Case(HostMethod.SEM_PAYLOAD_LO >> 2, HostMethod.SEMAPHOREC >> 2):
                m.d.comb += state.semaphore.payload[:32].eq(value)
                self._finish(m)
            with m.Case(HostMethod.SEM_PAYLOAD_HI >> 2):
                m.d.comb += state.semaphore.payload[32:].eq(value)
                self._finish(m)
            with m.Case(HostMethod.SEM_EXECUTE >> 2, HostMethod.SEMAPHORED >> 2):
                self._semaphore(m)
            with m.Case(HostMethod.NON_STALL_INTERRUPT >> 2):
                with self._after_copies(m):
                    m.d.comb += self.notify.valid.eq(1)
                    self._finish(m)
            with m.Case(HostMethod.FB_FLUSH >> 2):
                with self._after_copies(m):
                    self._finish(m)
            with m.Case(HostMethod.MEM_OP_D >> 2):
                self._mem_op(m)
            with m.Case(HostMethod.SET_REFERENCE >> 2):
                self._set_reference(m)
            with m.Case(HostMethod.WFI >> 2):
                self._wait_for_idle(m)
            with m.Case(HostMethod.YIELD >> 2):
                m.d.comb += self.give_up.eq(value[1])
                self._finish(m)
            with m.Case(HostMethod.CLEAR_FAULTED >> 2):
                self._clear_faulted(m)
            with m.Default():
                self._refuse(m, Cause.METHOD_UNDEFINED)

    def _set_object(self, m: Module) -> None:
        method = self.work.method
        binding = self.next_work.objects[method.subchannel]
        with m.If(method.data[16:21] == SOFTWARE_ENGINE):
            m.d.comb += binding.eq(ObjectKind.SOFTWARE)
            self._finish(m)
        with m.Elif(method.data[:16] == ObjectClass.COPY):
            m.d.comb += binding.eq(ObjectKind.COPY)
            self._finish(m)
        with m.Else():
            self._refuse(m, Cause.OBJECT_CLASS)

    def _privileged(self):
        return self._setup.data[16]

    def _mem_op(self, m: Module) -> None:
        """Barriers and invalidations. All that they order has happened once the channel's copies
        have ended: there is no cache, and the identity translator remembers nothing."""
        with m.If(~self._privileged()):
            self._refuse(m, Cause.METHOD_PRIVILEGED)
        with m.Else():
            with m.Switch(self.work.method.data[27:32]):
                with m.Case(*MemOp):
                    with self._after_copies(m):
                        self._finish(m)
                with m.Default():
                    self._refuse(m, Cause.METHOD_UNDEFINED)

    def _set_reference(self, m: Module) -> None:
        m.d.comb += [
            self.reference.payload.channel.eq(self.channel),
            self.reference.payload.value.eq(self.work.method.data),
        ]
        with self._after_copies(m):
            with m.If(self.reference.ready):
                m.d.comb += self.reference.valid.eq(1)
                self._finish(m)
            with m.Else():
                self._park(m, Wait.WRITEBACK)

    def _wait_for_idle(self, m: Module) -> None:
        everyone = self.work.method.data[0]
        with self._after_copies(m):
            with m.If(everyone & ~(self.all_idle & self.free)):
                self._park(m, Wait.ALL_IDLE)
            with m.Else():
                self._finish(m)

    def _clear_faulted(self, m: Module) -> None:
        with m.If(~self._privileged()):
            self._refuse(m, Cause.METHOD_PRIVILEGED)
        with m.Else():
            m.d.comb += [
                self.resume.valid.eq(1),
                self.resume.target.eq(self.work.method.data[:12]),
            ]
            self._finish(m)

    # -- semaphores (spec 2.1 … 2.4) ---------------------------------------------------------------

    def _semaphore_fields(self, m: Module) -> None:
        """The operation of SEM_EXECUTE or SEMAPHORED, as a request."""
        config, work = self._config, self.work
        value = work.method.data
        legacy = work.method.address == HostMethod.SEMAPHORED >> 2
        new, old = data.View(SemaphoreExecute, value), data.View(LegacySemaphore, value)
        self._request = request = Signal(semaphore_request(config))
        self._known, self._acquires = Signal(), Signal()
        operation = Signal(3)
        m.d.comb += [
            request.asid.eq(self._setup.data[: config.asid_bits]),
            request.va.eq(work.semaphore.va),
            request.operation.eq(operation),
            request.reduction.eq(Mux(legacy, old.reduction, new.reduction)),
            request.unsigned.eq(Mux(legacy, old.unsigned, new.unsigned)),
            request.wide.eq(~legacy & new.wide),
            request.timestamp.eq(
                ~self._acquires & Mux(legacy, ~old.one_word, new.release_timestamp)
            ),
            request.payload.eq(Mux(request.wide, work.semaphore.payload, self._low_payload())),
            self._known.eq(operation <= SemOp.REDUCTION),
            self._acquires.eq((operation != SemOp.RELEASE) & (operation != SemOp.REDUCTION)),
        ]
        with m.If(~legacy):
            m.d.comb += operation.eq(new.operation)
        with m.Else():
            with m.Switch(old.operation):
                for code, name in enumerate((
                    SemOp.ACQUIRE,
                    SemOp.RELEASE,
                    SemOp.ACQ_CIRC_GEQ,
                    SemOp.ACQ_AND,
                    SemOp.REDUCTION,
                )):
                    with m.Case(1 << code):
                        m.d.comb += operation.eq(name)
                with m.Default():
                    m.d.comb += operation.eq(7)

    def _low_payload(self):
        return self.work.semaphore.payload[:32]

    def _semaphore(self, m: Module) -> None:
        work, request = self.work, self._request
        window = work.semaphore.va[16:] == WINDOW_BASE >> 16
        self._slot = work.semaphore.va[4:16]
        priority = (
            (self._slot < self.counting)
            & (work.semaphore.va[:4] == 0)
            & (request.operation == SemOp.ACQUIRE)
            & ~request.wide
            & (self._low_payload() == 0)
            & self._copy_channel
        )
        with m.If(~self._known):
            self._refuse(m, Cause.SEM_UNSUPPORTED, work.semaphore.va)
        with m.Elif(self._is["copying"]):
            self._park(m, Wait.COPIES)
        # What was asked is taken, even if COUNTING has changed since.
        with m.Elif(window & priority & ~self.asked):
            self._acquire_counting(m)
        with m.Elif(window):
            self._on_chip(m)
        with m.Else():
            self._in_memory(m)

    def _decided(self, m: Module, passed: int) -> None:
        m.d.comb += [self.acquire.valid.eq(1), self.acquire.passed.eq(passed)]

    def _acquired(self, m: Module) -> None:
        """The condition holds: keep the engine for the copy that follows (COPY-13)."""
        self._decided(m, 1)
        self._finish(m)
        m.d.comb += [
            self.reserve.valid.eq(self._copy_channel),
            self.next_work.failed.eq(0),
            self.next_work.confirm.eq(0),
            self.disarm.valid.eq(1),
        ]

    def _not_acquired(self, m: Module, wait: Wait) -> None:
        """The condition does not hold: park, or time out (2.4)."""
        spans, work = self._spans, self.work
        deadline = Signal(32, name=f"deadline_{wait.name.lower()}")
        late = Signal(name=f"late_{wait.name.lower()}")
        since = (self.units - work.deadline)[:32]
        m.d.comb += [
            late.eq(work.failed & ~since[31]),
            deadline.eq(Mux(work.failed, work.deadline, self.units + spans.timeout)),
        ]
        self._decided(m, 0)
        with m.If(spans.timeout_enable & late):
            self._refuse(m, Cause.ACQUIRE_TIMEOUT, work.semaphore.va)
            m.d.comb += [self.update.eq(1), self.next_work.failed.eq(0)]
        with m.Else():
            self._park(m, wait)
            m.d.comb += [
                self.update.eq(1),
                self.next_work.failed.eq(spans.timeout_enable),
                self.next_work.deadline.eq(deadline),
                self.next_work.confirm.eq(0),
            ]
            if wait is Wait.RETRY:
                m.d.comb += [self.arm.valid.eq(1), self.arm.due.eq(self.cycles + spans.retry)]
            else:
                m.d.comb += [
                    self.arm.valid.eq(spans.timeout_enable),
                    self.disarm.valid.eq(~spans.timeout_enable),
                    self.arm.units.eq(1),
                    self.arm.due.eq(deadline),
                ]

    def _acquire_counting(self, m: Module) -> None:
        """Decided here, against the zero flags: the whole group holds at this moment, or not."""
        holds = Signal()
        m.d.comb += [
            holds.eq(self._is["held"] & self.zero.bit_select(self._slot, 1)),
            self.guard.counter.eq(self._slot),
        ]
        with m.If(~self.leave):
            m.d.comb += self.guard.valid.eq(1)
            with m.If(~self._is["able"]):
                self._park(m, Wait.ENGINE)
                m.d.comb += self.disarm.valid.eq(1)
            with m.Elif(holds):
                self._acquired(m)
            with m.Else():
                self._not_acquired(m, Wait.ENGINE)

    def _on_chip(self, m: Module) -> None:
        """Ask the semaphore unit and wait for its answer, which takes about two cycles."""
        start, port = Signal(), self.semaphore
        held_back = self._acquires & self._copy_channel & ~(self._is["able"] & self._is["held"])
        m.d.comb += [
            port.request.payload.eq(self._request),
            self.watch.index.eq(self._slot),
            self.unguard.counter.eq(self._slot),
        ]
        with m.FSM(name="on_chip") as asking:
            with m.State("IDLE"):
                with m.If(self._acquires & self.leave):
                    pass
                with m.Elif(held_back):
                    self._park(m, Wait.ENGINE)
                    m.d.comb += self.disarm.valid.eq(1)
                with m.Else():
                    m.d.comb += [
                        start.eq(1),
                        port.request.valid.eq(1),
                        self.busy.eq(1),
                        self.watch.valid.eq(self._acquires),
                    ]
                    m.next = "ASKED"
                    with m.If(~port.request.ready):
                        m.next = "ASKING"
            with m.State("ASKING"):
                m.d.comb += [port.request.valid.eq(1), self.busy.eq(1)]
                with m.If(port.request.ready):
                    m.next = "ASKED"
            with m.State("ASKED"):
                m.d.comb += [port.response.ready.eq(1), self.busy.eq(~port.response.valid)]
                with m.If(port.response.valid):
                    self._answered(m, port.response.payload, Wait.ONCHIP)
                    # Who changes a semaphore of its own group does not wait for it.
                    m.d.comb += self.unguard.valid.eq(~self._acquires)
                    m.next = "IDLE"
        self._asking = asking

    def _answered(self, m: Module, answer: data.View, wait: Wait) -> None:
        with m.If(answer.error != SemaphoreError.NONE):
            with m.Switch(answer.error):
                for error, cause in _SEM_CAUSES.items():
                    with m.Case(error):
                        self._refuse(m, cause, self.work.semaphore.va)
        with m.Elif(~self._acquires):
            self._finish(m)
        with m.Elif(answer.passed):
            self._acquired(m)
        with m.Else():
            self._not_acquired(m, wait)

    def _in_memory(self, m: Module) -> None:
        """Start the operation, park, and come back for its result.

        In a channel with a copy object an acquire that holds is read once more with an engine
        reserved, so that it is decided when a copy can start at once (COPY-13) and polling keeps no
        engine from others.
        """
        with_engine = self._acquires & self._copy_channel
        confirm, able = self.work.confirm, self._is["able"] & self._is["held"]
        m.d.comb += self.begin.request.eq(self._request)
        with m.If(self._is["ended"]):
            with m.If(with_engine & ~confirm & self.result.passed):
                m.d.comb += [
                    self.collect.valid.eq(1),
                    self.update.eq(1),
                    self.next_work.confirm.eq(1),
                    self.disarm.valid.eq(1),
                ]
                self._park(m, Wait.ENGINE)
            with m.Elif(with_engine & confirm & self.result.passed & ~able):
                m.d.comb += self.collect.valid.eq(1)
                self._park(m, Wait.ENGINE)
            with m.Else():
                m.d.comb += self.collect.valid.eq(1)
                self._answered(m, self.result, Wait.RETRY)
        with m.Elif(with_engine & confirm & (self.leave | ~able)):
            with m.If(~self.leave):
                self._park(m, Wait.ENGINE)
        with m.Elif(~self.free):
            # Who has only to confirm keeps its engine, or others would start on it every time.
            m.d.comb += [
                self.reserve.valid.eq(with_engine & confirm),
                self.keep.eq(with_engine & confirm),
            ]
            self._park(m, Wait.FENCE_UNIT)
        with m.Else():
            m.d.comb += [
                self.begin.valid.eq(1),
                self.reserve.valid.eq(with_engine & confirm),
                self.keep.eq(with_engine & confirm),
            ]
            self._park(m, Wait.FENCE)

    # -- copy class (spec 4) -----------------------------------------------------------------------

    def _engine_method(self, m: Module) -> None:
        method = self.work.method
        with m.Switch(self.work.objects[method.subchannel]):
            with m.Case(ObjectKind.COPY):
                self._copy_method(m)
            with m.Case(ObjectKind.SOFTWARE):
                self._refuse(m, Cause.OBJECT_SOFTWARE)
            with m.Default():
                self._refuse(m, Cause.OBJECT_UNBOUND)

    def _copy_method(self, m: Module) -> None:
        method, state = self.work.method, self.next_work.copy
        with m.Switch(method.address):
            for name, (field, low, width) in _COPY_FIELDS.items():
                with m.Case(name >> 2):
                    part = state[field][low : low + width]
                    m.d.comb += part.eq(method.data)
                    self._finish(m)
            with m.Case(
                CeMethod.NOP >> 2,
                CeMethod.SET_RENDER_ENABLE_A >> 2,
                CeMethod.SET_RENDER_ENABLE_B >> 2,
                CeMethod.SET_REMAP_CONST_A >> 2,
                CeMethod.SET_REMAP_CONST_B >> 2,
                CeMethod.SET_REMAP_COMPONENTS >> 2,
            ):
                self._finish(m)
            with m.Case(CeMethod.SET_RENDER_ENABLE_C >> 2):
                with m.If(method.data[:3] == RENDER_TRUE):
                    self._finish(m)
                with m.Else():
                    self._refuse(m, Cause.COPY_MODE)
            with m.Case(CeMethod.LAUNCH_DMA >> 2):
                self._launch(m)
            with m.Default():
                self._refuse(m, Cause.COPY_METHOD)

    def _launch_legal(self, m: Module, launch: data.View) -> tuple[Signal, Signal]:
        """Whether the mode is modelled, and whether the copy has no bytes."""
        copy = self.work.copy
        copies, bad, zero = launch.transfer != LaunchTransfer.NONE, Signal(), Signal()
        m.d.comb += [
            bad.eq(
                (launch.transfer == 3)
                | (copies & ~(launch.src_pitch & launch.dst_pitch))
                | launch.remap
                | (launch.semaphore == LaunchSemaphore.CONDITIONAL_INTERRUPT)
                | (launch.interrupt == 3)
                | (launch.reduction_enable & launch.reduction[3])
                | (launch.vpr_mode != 0)
                | (launch.reserved != 0)
                | (launch.src_physical & (copy.src_target == PEER))
                | (launch.dst_physical & (copy.dst_target == PEER))
            ),
            zero.eq(
                copies & ((copy.line_length == 0) | (launch.multi_line & (copy.line_count == 0)))
            ),
        ]
        return bad, zero

    def _launch(self, m: Module) -> None:
        method = self.work.method
        launch = data.View(CopyLaunch, method.data)
        bad, zero = self._launch_legal(m, launch)
        behind = (launch.transfer == LaunchTransfer.PIPELINED) & (launch.interrupt == 0)
        self._describe_copy(m, launch)
        with m.If(bad):
            self._refuse(m, Cause.COPY_MODE)
        with m.Elif(zero):
            self._refuse(m, Cause.COPY_ZERO)
        with m.Elif(self._is["copying"] & (~behind | self.spent)):
            self._park(m, Wait.COPIES)
        with m.Elif(self.leave):
            pass
        with m.Elif(self._is["copying"]):
            with m.If(self._is["queue"] & self._is["held"]):
                m.d.comb += self.launch.behind.eq(1)
                self._start(m)
            with m.Elif(self._is["held"]):
                self._park(m, Wait.QUEUE)
            with m.Else():
                self._park(m, Wait.COPIES)
        with m.Elif(self._is["able"] & self._is["held"]):
            self._start(m)
        with m.Else():
            self._park(m, Wait.ENGINE)
            m.d.comb += self.disarm.valid.eq(1)

    def _start(self, m: Module) -> None:
        m.d.comb += [
            self.launch.valid.eq(1),
            self.unguard.valid.eq(1),
            self.unguard.all.eq(1),
        ]
        self._finish(m)

    def _describe_copy(self, m: Module, launch: data.View) -> None:
        work, command = self.work, self.launch.command
        m.d.comb += [
            self.launch.interrupt.eq(launch.interrupt != 0),
            self.launch.data.eq(work.method.data),
            self.launch.subchannel.eq(work.method.subchannel),
            command.channel.eq(self.channel),
            command.asid.eq(self._setup.data[: self._config.asid_bits]),
            command.transfer.eq(launch.transfer != LaunchTransfer.NONE),
            command.src.eq(work.copy.src),
            command.dst.eq(work.copy.dst),
            command.src_physical.eq(launch.src_physical),
            command.dst_physical.eq(launch.dst_physical),
            command.pitch_in.eq(work.copy.pitch_in),
            command.pitch_out.eq(work.copy.pitch_out),
            command.line_length.eq(work.copy.line_length),
            command.line_count.eq(Mux(launch.multi_line, work.copy.line_count, Const(1, 32))),
            command.semaphore.eq(launch.semaphore),
            command.semaphore_va.eq(work.copy.semaphore_va),
            command.payload.eq(work.copy.payload),
            command.wide.eq(launch.wide),
            command.reduction_enable.eq(launch.reduction_enable),
            command.reduction.eq(launch.reduction),
            command.reduction_unsigned.eq(launch.reduction_unsigned),
        ]
