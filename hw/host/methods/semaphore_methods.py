"""Semaphore methods: SEM_EXECUTE and SEMAPHORED (COPY-7, COPY-13; spec 2.1 … 2.4)."""

from collections.abc import Iterable
from functools import reduce
from operator import or_

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from signalbox.hw.config import Config
from signalbox.hw.errors import Cause
from signalbox.hw.host.channel_settings import setting_event
from signalbox.hw.host.methods.acquire_deadlines import AcquireDeadlines
from signalbox.hw.host.methods.channel_rights import channel_rights
from signalbox.hw.host.methods.on_chip_requests import OnChipRequests
from signalbox.hw.host.methods.semaphore_decoder import SemaphoreDecoder, semaphore_operation
from signalbox.hw.host.methods.served_channel import channel_status
from signalbox.hw.host.methods.service import Outcome, Service
from signalbox.hw.host.records import acquire_state, method_settings
from signalbox.hw.host.scheduling.parking import AcquirePort
from signalbox.hw.host.waits.memory_semaphores import MemorySemaphorePort
from signalbox.hw.records.channel import channel_event, present_time
from signalbox.hw.records.semaphore import SemaphoreError, SemaphorePort
from signalbox.hw.registers import Wait
from signalbox.hw.semaphore.causes import CAUSE_OF

__all__ = ["SemaphoreMethods"]


class _Case:
    """Outcome of one kind of semaphore operation, as in `Outcome`. `passes`, `fails`: result of an
    acquire that is decided."""

    def __init__(self, name: str) -> None:
        self.done = Signal(name=f"{name}_done")
        self.park = Signal(name=f"{name}_park")
        self.busy = Signal(name=f"{name}_busy")
        self.disarm = Signal(name=f"{name}_disarm")
        self.refuse = Signal(name=f"{name}_refuse")
        self.passes = Signal(name=f"{name}_passes")
        self.fails = Signal(name=f"{name}_fails")


def _any(bits: Iterable[Value]) -> Value:
    return reduce(or_, bits)


class SemaphoreMethods(wiring.Component):
    """Executes the held semaphore method; owns the state of its acquire.

    An acquire `== 0` of a counting semaphore, in a channel with a copy object, is decided here,
    from the zero flags. All other on-chip operations are requested from the semaphore unit
    (`OnChipRequests`), operations in memory from `MemorySemaphores`.

    Members
    -------
    service : in, the served channel.
    run : in, execute its method as a semaphore method in this cycle.
    settings : in, `method_settings` of the channel.
    rights : in, `channel_rights` of the channel.
    now, known : in, see `ServedChannel`.
    setting : in, writes of channel registers, see `setting_event`.
    time : in, `present_time`.
    zero : in, per counting semaphore: its value is 0.
    candidate : in, strobe: `channel` is likely to be served in the next cycle.
    ends_group : in, strobe: the channel starts a copy, which ends its acquire group.
    semaphore : out, the semaphore unit.
    in_memory : out, semaphores in memory.
    acquires : out, waits and group of the channel.
    outcome : out, see `Outcome`.
    arm : out, strobe, see `TimerPort`.
    reserve : out, strobe: the channel reserves an engine.
    decided : out, strobe: an acquire of `channel` is decided; `passed`: it holds.
    keep, asked : out, see `Progress`.
    state : out, an `acquire_state`, registered: of the channel's acquire.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        super().__init__({
            "service": In(Service(config)),
            "run": In(1),
            "settings": In(method_settings()),
            "rights": In(channel_rights(config)),
            "now": In(channel_status),
            "known": In(channel_status),
            "setting": In(setting_event(config)),
            "time": In(present_time),
            "zero": In(config.counters),
            "candidate": In(channel_event(config)),
            "ends_group": In(1),
            "semaphore": Out(SemaphorePort(config)),
            "in_memory": Out(MemorySemaphorePort(config)),
            "acquires": Out(AcquirePort(config)),
            "outcome": Out(Outcome()),
            "arm": Out(channel_event(config, units=1, due=32)),
            "reserve": Out(channel_event(config)),
            "decided": Out(channel_event(config, passed=1)),
            "keep": Out(1),
            "asked": Out(1),
            "state": Out(acquire_state),
        })
        self._operation = Signal(semaphore_operation(config), name="operation")
        """The held method, decoded."""
        self._zero, self._able = Signal(name="zero_flag"), Signal(name="able")
        """`_zero`: zero flag of the method's counting semaphore. `_able`: an engine can take a
        copy, and the group holds."""
        self._deadlines, self._requests = AcquireDeadlines(config), OnChipRequests(config)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.deadlines, m.submodules.requests = self._deadlines, self._requests
        self._decode(m)
        self._connect(m)
        operation, known = self._operation, self.known
        blocked = Signal()
        goes = Signal()
        answered = Signal()
        response = self.semaphore.response
        m.d.comb += [
            blocked.eq(known.copying | (self.service.step.traits.idle & known.tasks)),
            goes.eq(self.run & operation.known & ~blocked & ~self.asked),
            answered.eq(self.run & self.asked & response.ready & response.valid),
        ]
        cases = [
            # An operation of a group is known to exist.
            self._in_group(
                m,
                (operation.in_group & self.run)
                & ~(known.copying | self.asked | self.service.leave),
            ),
            self._on_chip(m, goes & operation.on_chip & ~operation.in_group),
            self._judge(m, "answer", answered, response.payload),
            self._in_memory(m, goes & ~operation.on_chip),
        ]
        self._merge(m, cases, blocked, answered)
        self._wait(m)
        self._cause(m)
        return m

    def _decode(self, m: Module) -> None:
        m.submodules.decoder = decoder = SemaphoreDecoder(self._config)
        counters = max(1, (self._config.counters - 1).bit_length())
        slot = self.settings.semaphore.va[4:][:counters]
        m.d.comb += [
            decoder.step.eq(self.service.step),
            decoder.settings.eq(self.settings),
            decoder.rights.eq(self.rights),
            self._operation.eq(decoder.operation),
            self._zero.eq(self.zero.bit_select(slot, 1)),
            self._able.eq(self.known.able & self.acquires.held),
        ]

    def _connect(self, m: Module) -> None:
        service, deadlines, requests = self.service, self._deadlines, self._requests
        connect(m, flipped(self.semaphore), requests.port)
        m.d.comb += [
            deadlines.setting.eq(self.setting),
            deadlines.select.eq(service.select),
            deadlines.time.eq(self.time),
            deadlines.load.eq(service.load),
            deadlines.state.eq(self.state),
            requests.channel.eq(service.channel),
            requests.request.eq(self._operation.request),
            requests.acquires.eq(self._operation.acquires),
            requests.ahead.eq(service.ahead),
            requests.candidate.eq(self.candidate),
            requests.early.eq(service.early),
            requests.able.eq(
                ~(service.leave | self.now.copying)
                & ((self.now.able | self.rights.early_waits) | ~service.loaded.settings.copies)
            ),
            requests.forget.eq(service.reset | service.replace),
            self.asked.eq(requests.asked),
            self.acquires.watch.eq(requests.watch),
        ]
        for event in (
            self.acquires.guard,
            self.acquires.unguard,
            self.in_memory.begin,
            self.in_memory.collect,
            self.arm,
            self.reserve,
            self.decided,
        ):
            m.d.comb += event.channel.eq(service.channel)

    # -- cases, separate as many of their inputs come late in the cycle ----------------------------

    def _judge(
        self, m: Module, name: str, now: Value, answer: data.View, parks: Value | int = 0
    ) -> _Case:
        """Outcome of the response `answer`, valid with `now`: refused, done, or a decided acquire.
        `parks`: the method parks for another reason."""
        case, good = _Case(name), answer.error == SemaphoreError.NONE
        acquires = self._operation.acquires
        m.d.comb += [
            case.park.eq(parks | (case.fails & ~self._deadlines.late)),
            case.refuse.eq(now & ~good),
            case.done.eq(now & good & ~acquires),
            case.passes.eq(now & good & acquires & answer.passed),
            case.fails.eq(now & good & acquires & ~answer.passed),
        ]
        return case

    def _in_group(self, m: Module, now: Value) -> _Case:
        """Acquire that joins the group. It fails unless the whole group holds in this cycle, and
        passes only while an engine is available. `now` implies that the channel need not let go."""
        case, able = _Case("in_group"), self.known.able
        holds = self.acquires.held & self._zero
        late, unsettled = self._deadlines.late, self._deadlines.unsettled
        m.d.comb += [
            # Joins even if it times out in this cycle; it leaves one cycle later.
            self.acquires.guard.valid.eq(now),
            self.acquires.guard.counter.eq(self.settings.semaphore.va[4:16]),
            case.park.eq(now & Mux(holds, ~able, ~unsettled & ~late)),
            case.disarm.eq(now & holds & ~able),
            case.passes.eq(now & holds & able),
            case.fails.eq(now & ~holds & ~unsettled),
            case.busy.eq(now & ~holds & unsettled),
        ]
        return case

    def _on_chip(self, m: Module, now: Value) -> _Case:
        """Any other on-chip operation: requested from the semaphore unit. An acquire to which
        COPY-13 applies is requested only while an engine is available."""
        case, operation, requests = _Case("on_chip"), self._operation, self._requests
        late, unsettled = self._deadlines.late, self._deadlines.unsettled
        decides = now & ~(operation.acquires & self.service.leave)
        held_back = operation.engine_first & ~self.known.able
        settled = decides & held_back & ~unsettled
        m.d.comb += [
            case.fails.eq(settled & late),
            case.park.eq(settled & ~late),
            case.disarm.eq(case.park & ~self.state.failed),
            requests.ask.eq(decides & ~held_back),
            case.busy.eq(decides & (~held_back | unsettled)),
        ]
        return case

    def _in_memory(self, m: Module, now: Value) -> _Case:
        """Start the operation, park, and return for its result.

        Where COPY-13 applies, an acquire that holds is read once more with an engine reserved. So
        it is decided when a copy can start at once, and polling keeps no engine from others.
        """
        port, able, confirm = self.in_memory, self._able, self.state.confirm
        unsettled, ended = self._deadlines.unsettled, self.known.ended
        confirms = self._operation.engine_first & confirm
        collects = Signal()
        starts = Signal()
        repeats = Signal()
        m.d.comb += [
            collects.eq(now & ended & ~unsettled),
            repeats.eq(self._operation.engine_first & port.result.passed & ~(confirm & able)),
            starts.eq(now & ~ended & ~(confirms & (self.service.leave | ~able))),
        ]
        held_back = now & ~ended & confirms & ~able & ~self.service.leave
        parks = (collects & repeats) | starts | held_back
        case = self._judge(m, "result", collects & ~repeats, port.result, parks)
        m.d.comb += [
            case.busy.eq(now & ended & unsettled),
            case.disarm.eq(collects & repeats & ~confirm),
            port.collect.valid.eq(collects),
            port.begin.request.eq(self._operation.request),
            port.begin.valid.eq(starts),
            # The second read keeps its engine; otherwise other channels might take it every time.
            self.keep.eq(starts & confirms),
        ]
        with m.If(collects & repeats):
            m.d.sync += confirm.eq(1)
        return case

    # -- outcome -----------------------------------------------------------------------------------

    def _merge(self, m: Module, cases: list[_Case], blocked: Value, answered: Value) -> None:
        out, operation, late = self.outcome, self._operation, self._deadlines.late
        passes = Signal()
        fails = Signal()
        m.d.comb += [
            passes.eq(_any(one.passes for one in cases)),
            fails.eq(_any(one.fails for one in cases)),
            out.done.eq(_any(one.passes | one.done for one in cases)),
            out.park.eq((self.run & blocked & ~self.asked) | _any(one.park for one in cases)),
            out.busy.eq((self.run & self.asked & ~answered) | _any(one.busy for one in cases)),
            out.disarm.eq(passes | _any(one.disarm for one in cases)),
            out.refuse.eq(
                (self.run & ~operation.known & ~blocked)
                | (fails & late)
                | _any(one.refuse for one in cases)
            ),
        ]
        self._decide(m, passes, fails)
        # A semaphore leaves the group in two cases. The channel itself requests a change of it; so
        # the change does not end the channel's reservation. Its acquire times out, as the copy may
        # follow without it. Only counting semaphores are in groups; `counter` is too narrow for
        # other addresses of the window.
        changes = self._requests.ask & ~operation.acquires & self.settings.semaphore.counter
        m.d.comb += [
            self.acquires.unguard.valid.eq(changes | (cases[0].fails & late) | self.ends_group),
            self.acquires.unguard.counter.eq(self.settings.semaphore.va[4:16]),
            self.acquires.unguard.all.eq(self.ends_group),
        ]

    def _decide(self, m: Module, passes: Value, fails: Value) -> None:
        """An acquire that holds reserves the engine for the following copy (COPY-13); one that
        fails is retried, or times out (spec 2.4)."""
        state, deadlines, operation = self.state, self._deadlines, self._operation
        in_memory, in_group = ~self.asked & ~operation.in_group, ~self.asked & operation.in_group
        m.d.comb += [
            self.decided.valid.eq(passes | fails),
            self.decided.passed.eq(passes),
            self._requests.passes.eq(passes),
            self._requests.fails.eq(fails),
            self.arm.units.eq(~in_memory),
            self.arm.due.eq(
                Mux(
                    in_memory, deadlines.retry, Mux(state.failed, state.deadline, deadlines.timeout)
                )
            ),
            self.arm.valid.eq(fails & ~deadlines.late & (in_memory | deadlines.timed)),
            self.reserve.valid.eq((passes & (in_group | operation.engine_first)) | self.keep),
        ]
        with m.If(fails & ~in_memory & ~deadlines.timed):
            m.d.comb += self.outcome.disarm.eq(1)
        with m.If(passes | fails):
            m.d.sync += [
                state.failed.eq(~passes & ~deadlines.late & deadlines.timed),
                state.confirm.eq(0),
            ]
        # Follows the present time until the first failure; meaningful only with `failed`.
        with m.If(~state.failed):
            m.d.sync += state.deadline.eq(deadlines.timeout)
        with m.If(self.service.load):
            m.d.sync += state.eq(self.service.loaded.acquire)
        # A replaced method begins anew: the refused acquire may have left these set.
        with m.If(self.service.replace):
            m.d.sync += [state.failed.eq(0), state.confirm.eq(0)]
        with m.If(self.service.reset):
            m.d.sync += state.eq(0)

    def _wait(self, m: Module) -> None:
        """Wait of a method that parks."""
        wait, operation, known = self.outcome.wait, self._operation, self.known
        with m.If(known.copying):
            m.d.comb += wait.eq(Wait.COPIES)
        with m.Elif(self.service.step.traits.idle & known.tasks):
            m.d.comb += wait.eq(Wait.TASKS)
        with m.Elif(self.asked):
            m.d.comb += wait.eq(Wait.ONCHIP)
        with m.Elif(operation.on_chip & ~operation.in_group):
            m.d.comb += wait.eq(Wait.ENGINE_ONLY)
        with m.Elif(operation.on_chip):
            timed = self._deadlines.timed & self.acquires.held & self._zero
            m.d.comb += wait.eq(Mux(timed, Wait.ENGINE_TIMED, Wait.ENGINE))
        with m.Elif(known.ended):
            passed = self.in_memory.result.passed
            m.d.comb += wait.eq(Mux(passed, Wait.ENGINE, Wait.RETRY))
        with m.Elif(operation.engine_first & self.state.confirm & ~self._able):
            m.d.comb += wait.eq(Wait.ENGINE)
        with m.Else():
            m.d.comb += wait.eq(Wait.FENCE)

    def _cause(self, m: Module) -> None:
        """Cause of a method that is refused."""
        cause, operation = self.outcome.cause, self._operation
        error = Mux(self.asked, self.semaphore.response.payload.error, self.in_memory.result.error)
        with m.Switch(error):
            for reason, known in CAUSE_OF.items():
                with m.Case(reason):
                    m.d.comb += cause.eq(known)
            with m.Default():
                m.d.comb += cause.eq(Cause.ACQUIRE_TIMEOUT)
        with m.If(operation.on_chip & ~self.asked):
            m.d.comb += cause.eq(Cause.ACQUIRE_TIMEOUT)
        with m.If(~operation.known):
            m.d.comb += cause.eq(Cause.SEM_UNSUPPORTED)
