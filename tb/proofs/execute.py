"""Proofs of the execution of methods: their order, and acquires (COPY-1, COPY-9, COPY-13)."""

from typing import Any

from amaranth import Cat, Elaboratable, Module, Mux, Signal, Value, unsigned
from amaranth.lib import data
from amaranth.lib.wiring import connect

from signalbox.hw.config import WINDOW_BASE
from signalbox.hw.host.methods.control_decoder import Action, verdict
from signalbox.hw.host.methods.execute import Execute
from signalbox.hw.host.methods.pipeline import MethodPipeline, channel_edit
from signalbox.hw.host.methods.semaphore_decoder import semaphore_operation
from signalbox.hw.host.records import ObjectKind, has_copies, method_flow
from signalbox.hw.methods import Header, HostMethod, SecOp, SemOp
from signalbox.tb.proofs.copy_launcher import lasting
from signalbox.tb.proofs.formal import (
    AnyConst,
    Assert,
    Assume,
    Cover,
    Inside,
    Proof,
    Wrap,
    anything,
)
from signalbox.tb.proofs.host import CONFIG, any_of, concerns, drive
from signalbox.tb.proofs.method_decoder import described

__all__ = ["PROOFS"]


class Serving(Elaboratable):
    """Method pipeline and execution of methods, connected as in the host."""

    def __init__(self) -> None:
        self.pipeline, self.execute = MethodPipeline(CONFIG), Execute(CONFIG)

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.pipeline, m.submodules.execute = self.pipeline, self.execute
        connect(m, self.pipeline.service, self.execute.service)
        connect(m, self.execute.progress, self.pipeline.progress)
        return m


class Points:
    """Named points of the execution of methods.

    Members
    -------
    requests, control : inside of the submodules with these names.
    known : see `ServedChannel`.
    operation : operation of the held semaphore method.
    ask : strobe: the operation of the held method is requested from the semaphore unit.
    ahead : strobe: an operation is requested ahead for the candidate.
    unclaimed : the response in flight was requested ahead, and no channel has claimed it.
    again : per channel: its acquire was requested, and failed.
    idle, asking, asked : state of the request to the semaphore unit.
    """

    def __init__(self, execute: Execute) -> None:
        inside = Inside(execute)
        semaphores = Inside(inside.submodule("semaphores"))
        self.control = Inside(inside.submodule("control"))
        self.requests = Inside(semaphores.submodule("requests"))
        self.known: Any = inside.submodule("status").known
        self.operation: Any = semaphores.signal("operation", semaphore_operation(CONFIG))
        self.ask: Value = semaphores.submodule("requests").ask
        self.ahead: Value = self.requests.signal("asks_ahead")
        self.unclaimed: Value = self.requests.signal("unclaimed")
        self.again: Value = self.requests.signal("again")
        self.idle, self.asking, self.asked = (
            self.requests.machine("on_chip").ongoing(name) for name in ("IDLE", "ASKING", "ASKED")
        )


def surround(m: Module, execute: Execute) -> Value:
    """Leave the environment of `Execute` unconstrained, except that copies run only after a launch.
    Returns the channels that had a running copy, or launched one, in the previous cycle."""
    drive(m, execute.control, "control", "setting")
    drive(m, execute.time, "time")
    drive(m, execute.on_chip, "on_chip", "zero")
    drive(m, execute.activity, "activity", "all_idle")
    drive(m, execute.engines, "engines", "able", "queue", "copying")
    drive(m, execute.slices, "slices", "candidate", "spent")
    drive(m, execute.acquires, "acquires", "held")
    drive(m, execute.in_memory, "in_memory", "ended", "result")
    for name in ("barrier", "invalidation", "compute"):
        drive(m, getattr(execute, name), name, "over")
    drive(m, execute.invalidation, "invalidation", "refused")
    drive(m, execute.semaphore.request, "request", "ready")
    drive(m, execute.semaphore.response, "response", "valid", "payload")
    m.d.comb += execute.on_chip.counting.eq(AnyConst(len(execute.on_chip.counting)))
    copying, launch = execute.engines.copying, execute.copies.launch
    before, launched = Signal(CONFIG.channels), Signal(CONFIG.channels)
    m.d.sync += [
        before.eq(copying),
        launched.eq(Cat(concerns(launch, c) for c in range(CONFIG.channels))),
    ]
    m.d.comb += Assume((copying & ~before & ~launched) == 0)
    return before | launched


def drive_pipeline(m: Module, pipeline: MethodPipeline) -> None:
    """Give arbitrary values to the pipeline's inputs about channels and their choice."""
    drive(m, pipeline.state, "state", "alive", "occupied")
    drive(m, pipeline.choice, "choice", "target", "found", "leave", "stay")
    drive(m, pipeline.head, "head", "valid")


class OrderProof(Proof):
    name = "host.order"
    shows = (
        "methods of a channel execute in the order of its dwords, each once, wherever it is left "
        "and served again; what must wait for its own copies executes while none runs"
    )
    induction = 1
    cover = 9
    long = True

    TRIGGERS = (
        HostMethod.NON_STALL_INTERRUPT,
        HostMethod.FB_FLUSH,
        HostMethod.MEM_OP_D,
        HostMethod.SET_REFERENCE,
        HostMethod.WFI,
        HostMethod.CLEAR_FAULTED,
        HostMethod.SEM_EXECUTE,
        HostMethod.SEMAPHORED,
    )

    def build(self, m: Module, wrap: Wrap) -> None:
        serving = Serving()
        dut, execute = serving.pipeline, serving.execute
        self._serving, self._points = serving, Points(execute)
        points = self._points
        inside = Inside(dut)
        ram = inside.submodule("contexts")
        load = ram.read_ports[0]
        looks, asks = (
            [memory.read_port(domain="comb") for _ in range(CONFIG.channels)]
            for memory in (ram, points.requests.submodule("asks"))
        )
        for ports in (looks, asks):
            m.d.comb += [look.addr.eq(channel) for channel, look in enumerate(ports)]
        m.submodules.dut = wrap(serving)
        drive_pipeline(m, dut)
        # An edit ends a wait; its other effects are not part of the order of dwords.
        drive(m, dut.edit, "edit", "valid")
        m.d.comb += dut.edit.payload.channel.eq(anything(m, CONFIG.channel_bits, "edited"))
        past_copying = surround(m, execute)
        base = self._dwords(m, dut)
        executed = Signal.like(base)
        done = dut.methods.executed
        m.d.comb += Assert(~done.valid | (done.channel == dut.served.channel))
        for channel in range(CONFIG.channels):
            with m.If(concerns(done, channel)):
                m.d.comb += [
                    Assert(Value.cast(done.method.cause) == 0),
                    Assert(done.method.data == executed[channel]),
                ]
                m.d.sync += executed[channel].eq(executed[channel] + 1)
        m.d.comb += Cover(Cat(executed[c] != 0 for c in range(CONFIG.channels)).all())
        self._asks = [look.data for look in asks]
        self._contexts(m, dut, inside, base, executed, load.data, [look.data for look in looks])
        run = inside.machine("service").ongoing("RUN")
        self._triggers(m, dut, execute, run)
        self._foreseen(m, execute)
        # Results from the previous cycle are about the same method.
        is_copying, looked = points.known.copying, points.control.signal("looked")
        found = points.control.signal("found", verdict)
        progress = execute.progress
        after_copies = any_of(
            dut.service.step.method.address == name >> 2 for name in self.TRIGGERS
        )
        at_once = any_of(found.action == one for one in (Action.NOTHING, Action.BIND))
        m.d.comb += [
            Assert(~run | (is_copying == past_copying.bit_select(dut.served.channel, 1))),
            Assert(~(run & looked) | ~(after_copies & at_once)),
            Assert(~progress.asked | ~is_copying),
            Assert(~(progress.park & progress.busy)),
            Assert(~(inside.signal("halting") & progress.asked)),
            Assert(inside.signal("running") == run),
        ]
        m.d.comb += Assert(~execute.reports.halt.valid | ~is_copying)

    def _dwords(self, m: Module, dut: MethodPipeline) -> Any:
        """The prefetch buffer: immediate methods, with their position in the channel as data.
        Returns the position of the first dword in each channel's head beat."""
        base = Signal(data.ArrayLayout(unsigned(13), CONFIG.channels))
        selected = Signal(CONFIG.channel_bits)
        low, high = (Signal(CONFIG.channels, name=name) for name in ("low", "high"))
        m.d.comb += [low.eq(AnyConst(2)), high.eq(AnyConst(2)), Assume((low & ~high) == 0)]
        m.d.sync += selected.eq(dut.served.select)
        head = dut.head.oldest.beat
        drive(m, head, "head", "first", "end", "get")
        first, last = low.bit_select(selected, 1), high.bit_select(selected, 1)
        m.d.comb += [
            head.low.eq(first),
            head.high.eq(last),
            dut.head.oldest.single.eq(first == last),
        ]
        for number in range(CONFIG.beat_dwords):
            header = data.View(Header, Signal(32, name=f"header_{number}"))
            m.d.comb += [
                header.sec_op.eq(SecOp.IMMD_DATA_METHOD),
                header.count.eq(base[selected] + number - first),
                header.subchannel.eq(anything(m, 3, f"subchannel_{number}")),
                header.address.eq(anything(m, 12, f"address_{number}")),
                head.data.word_select(number, 32).eq(header),
            ]
        for channel in range(CONFIG.channels):
            with m.If(dut.head.take & (dut.served.select == channel)):
                m.d.sync += base[channel].eq(base[channel] + 1 + high[channel] - low[channel])
        self.selected = selected
        self.ends = [(low[channel], high[channel]) for channel in range(CONFIG.channels)]
        return base

    def _contexts(
        self,
        m: Module,
        dut: MethodPipeline,
        inside: Inside,
        base: Any,
        executed: Any,
        loaded: Any,
        kept: list,
    ) -> None:
        """Invariant: the context of each channel, wherever it is stored, matches the methods that
        it has executed."""
        dirty, stays = inside.signal("dirty"), inside.signal("kept")
        flow, execute = inside.signal("flow", method_flow()), self._serving.execute
        work = (flow, execute.progress.state)
        edited = inside.signal("edited", channel_edit(CONFIG))
        service = inside.machine("service")
        select, load, run = (service.ongoing(name) for name in ("SELECT", "LOAD", "RUN"))
        m.d.comb += [
            Assert(select | load | run),
            Assert(dut.served.active == ~select),
            Assert(~load | ~dirty),
            Assert(~run | dirty),
            Assert(~edited.reset & ~edited.replace),
            Assert(~dut.served.active | (self.selected == dut.served.channel)),
        ]
        for channel in range(CONFIG.channels):
            ours = dut.served.channel == channel
            again, copying = self._points.again[channel], execute.engines.copying[channel]
            ask = self._asks[channel]

            def fits(
                flow: Any,
                state: Any,
                channel: int = channel,
                asks: Any = ~again | ~copying,
                again: Any = again,
                ask: Any = ask,
            ) -> Value:
                return (
                    self._in_order(
                        flow, state, base[channel], executed[channel], *self.ends[channel]
                    )
                    & self._sound(state, execute)
                    & asks
                    & (~again | self._asked_before(flow.step, state, ask))
                )

            with m.If(ours & (dirty | (load & stays))):
                m.d.comb += Assert(fits(*work))
            with m.If(~(ours & dirty)):
                m.d.comb += Assert(fits(kept[channel].flow, kept[channel].state))
            with m.If(ours & load & ~stays):
                m.d.comb += Assert(fits(loaded.flow, loaded.state))

    @staticmethod
    def _in_order(
        flow: Any, state: Any, base: Value, executed: Value, low: Value, high: Value
    ) -> Value:
        """The decoded methods follow the executed ones and precede those that have not been
        taken."""
        step, queued = flow.step, flow.queued
        taken = Mux(flow.begun, flow.place - low, 0)

        def legal(one: Any, number: Value, copies: Any = 1) -> Value:
            right = (Value.cast(one.method.cause) == 0) & (one.method.data == number)
            return ~one.method.valid | (right & described(one, copies))

        return (
            ~flow.group.open
            & ~flow.group.skip
            & ~flow.group.ignores
            & ~flow.group.stored_ignores
            & legal(step, executed, has_copies(state.settings.objects, step.method.subchannel))
            & legal(queued, (executed + step.method.valid)[:13])
            & ((base + taken)[:13] == (executed + step.method.valid + queued.method.valid)[:13])
            & (~flow.begun | ((flow.place > low) & (flow.place <= high)))
            & (~flow.begun | (flow.final == (flow.place == high)))
        )

    @staticmethod
    def _sound(state: Any, execute: Execute) -> Value:
        """The predecoded properties of the settings are correct."""
        place = state.settings.semaphore
        copies = any_of(one == ObjectKind.COPY for one in state.settings.objects)
        low = place.va[16:32] == (WINDOW_BASE >> 16) & 0xFFFF
        counter = low & (place.va[4:16] < execute.on_chip.counting) & (place.va[2:4] == 0)
        return (
            (place.low == low)
            & (place.high == (place.va[32:] == WINDOW_BASE >> 32))
            & (place.counter == counter)
            & (place.nonzero == place.payload[:32].any())
            & (place.va[:2] == 0)
            & (state.settings.copies == copies)
        )

    @staticmethod
    def _asked_before(step: Any, state: Any, ask: Any) -> Value:
        """The held method is an on-chip acquire that matches the request `ask`."""
        place = state.settings.semaphore
        counting = place.counter & ~place.nonzero & step.traits.plain & state.settings.copies
        return (step.method.valid & step.kind.semaphore & step.traits.acquires) & (
            (place.low & place.high & ~counting & OrderProof._exists(step.method))
            & OrderProof._kept(state, ask)
        )

    @staticmethod
    def _kept(state: Any, ask: Any) -> Value:
        """`ask` is the acquire that SEM_EXECUTE would now request."""
        place = state.settings.semaphore
        same = (ask.slot == place.va[4:16]) & (ask.payload[:32] == place.payload[:32])
        return same & OrderProof._only_reads(ask.operation)

    @staticmethod
    def _only_reads(operation: Any) -> Value:
        code = Value.cast(operation)
        return (code != SemOp.RELEASE) & (code != SemOp.REDUCTION)

    def _foreseen(self, m: Module, execute: Execute) -> None:
        """A request made ahead is an acquire, which changes no semaphore. The served channel can
        claim it only in the next cycle."""
        points, service, progress = self._points, execute.service, execute.progress
        idle, unclaimed, request = points.idle, points.unclaimed, execute.semaphore.request
        fresh, foreseen, whose, keeps = (
            points.requests.signal(name) for name in ("fresh", "foreseen", "whose", "keeps")
        )
        kept = Signal(data.ArrayLayout(self._asks[0].shape(), CONFIG.channels))
        acquires = progress.asked & service.step.traits.acquires
        m.d.comb += [
            Assert(~acquires | keeps | self._kept(progress.state, kept[service.channel])),
            Assert(~keeps | progress.asked),
            kept.as_value().eq(Cat(ask.as_value() for ask in self._asks)),
            Assert(idle | ~unclaimed | (foreseen & self._only_reads(kept[whose].operation))),
            Assert(~fresh | (unclaimed & ~idle & points.again.bit_select(whose, 1))),
        ]
        with m.If(request.valid & (points.ahead | (unclaimed & ~idle))):
            m.d.comb += Assert(self._only_reads(request.payload.operation))

    @staticmethod
    def _exists(method: Any) -> Value:
        legacy = method.address == HostMethod.SEMAPHORED >> 2
        known = any_of(method.data[:5] == 1 << bit for bit in range(5))
        return Mux(legacy, known, method.data[:3] <= SemOp.REDUCTION)

    def _triggers(self, m: Module, dut: MethodPipeline, execute: Execute, run: Value) -> None:
        points, launch = self._points, execute.copies.launch
        copying = execute.engines.copying.bit_select(dut.served.channel, 1)
        done = dut.methods.executed
        with m.If(done.valid):
            for name in self.TRIGGERS:
                m.d.comb += Assert((done.method.address != name >> 2) | ~copying)
        with m.If(launch.valid):
            m.d.comb += [Assert(launch.behind == copying), Assert(~dut.service.quit)]
        # The answer to an on-chip operation goes to the method that requested the operation.
        method, place = dut.service.step.method, execute.progress.state.settings.semaphore
        asks = (method.address == HostMethod.SEM_EXECUTE >> 2) | (
            method.address == HostMethod.SEMAPHORED >> 2
        )
        m.d.comb += [
            Assert(execute.progress.asked == (~points.idle & ~points.unclaimed)),
            Assert(points.idle | points.asking | points.asked),
        ]
        with m.If(execute.progress.asked):
            m.d.comb += [
                Assert(run & ~copying & method.valid & asks),
                Assert((place.va[16:] == WINDOW_BASE >> 16) & points.operation.known),
                Assert(~points.operation.in_group),
            ]
        for event in (execute.in_memory.begin, execute.copies.reserve, execute.invalidation.ask):
            m.d.comb += Assert(~event.valid | ~copying)
        ahead = points.ahead | (points.unclaimed & ~points.idle)
        m.d.comb += Assert(~execute.semaphore.request.valid | ~copying | ahead)


def of_one_kind(flow: Any) -> Value:
    """Whether each of the two decoded methods is of at most one kind."""
    kinds = [Value.cast(step.kind) for step in (flow.step, flow.queued)]
    return Cat((kind & (kind - 1)) == 0 for kind in kinds).all()


class AcquireProof(Proof):
    name = "host.acquire"
    shows = (
        "an acquire of a counting semaphore is decided only while the channel need not let go; it "
        "passes, and reserves an engine, only when its whole group holds in that very cycle and an "
        "engine can take the copy; a copy starts only so, too, or behind a running one where there "
        "is room; other acquires on chip are asked only so, but for the group"
    )
    induction = 1
    cover = 8
    breaks = ("freeze",)  # a design that forgets everything at once stays consistent
    long = True

    def build(self, m: Module, wrap: Wrap) -> None:
        serving = Serving()
        dut, execute = serving.pipeline, serving.execute
        points = Points(execute)
        inside = Inside(dut)
        contexts = inside.submodule("contexts")
        looks = [contexts.read_port(domain="comb") for _ in range(CONFIG.channels)]
        m.d.comb += [look.addr.eq(channel) for channel, look in enumerate(looks)]
        m.submodules.dut = wrap(serving)
        drive_pipeline(m, dut)
        drive(m, dut.head, "head", "oldest")
        drive(m, dut.edit, "edit", "valid", "payload")
        surround(m, execute)
        m.d.comb += [Assume(one) for one in lasting(m, execute.copies, execute.engines)]
        service = inside.machine("service")
        select, load, run = (service.ongoing(name) for name in ("SELECT", "LOAD", "RUN"))
        served, launch, reserve = dut.served.channel, execute.copies.launch, execute.copies.reserve
        able, queue, copying = (
            bits.bit_select(served, 1)
            for bits in (execute.engines.able, execute.engines.queue, execute.engines.copying)
        )
        flow = inside.signal("flow", method_flow())
        self._known(m, inside, execute, points, run)
        m.d.comb += [
            Assert(of_one_kind(one)) for one in (flow, *(look.data.flow for look in looks))
        ]
        m.d.comb += Assert(~load | of_one_kind(contexts.read_ports[0].data.flow))

        held, guard, unguard = (
            getattr(execute.acquires, name) for name in ("held", "guard", "unguard")
        )
        group = execute.reports.acquire.valid & execute.reports.acquire.passed & guard.valid
        asks = points.ask & points.operation.acquires
        slot = guard.counter[: (CONFIG.counters - 1).bit_length()]
        place = execute.progress.state.settings.semaphore
        with m.If(launch.valid):
            m.d.comb += [
                Assert(held & ~dut.service.quit & unguard.valid & unguard.all),
                Assert(Mux(launch.behind, copying & queue, able & ~copying)),
            ]
        with m.If(group):
            m.d.comb += [
                Assert(held & execute.on_chip.zero.bit_select(slot, 1)),
                Assert(reserve.valid & able & ~copying),
            ]
        m.d.comb += [
            Assert(~guard.valid | (~dut.service.leave & points.operation.in_group)),
            Assert(~unguard.valid | unguard.all | place.counter),
            Assert(~reserve.valid | execute.progress.asked | able),
            Assert(~asks | ~dut.service.leave),
            Assert(~(asks & points.operation.engine_first) | able),
            Assert(~select | ~(launch.valid | reserve.valid | guard.valid)),
            Assert(~reserve.valid | ~(launch.valid | dut.methods.released.valid)),
            Cover(launch.valid),
        ]

    def _known(
        self, m: Module, inside: Inside, execute: Execute, points: Points, run: Value
    ) -> None:
        """Invariant: the knowledge about the served channel is from the previous cycle, and nothing
        is executed in the cycle after a launch."""
        before = {name: Signal(CONFIG.channels) for name in ("able", "queue", "copying")}
        now, served, launched = execute.service.channel, Signal(CONFIG.channel_bits), Signal()
        m.d.sync += [
            *(bits.eq(getattr(execute.engines, name)) for name, bits in before.items()),
            served.eq(now),
            launched.eq(execute.copies.launch.valid),
        ]
        held = inside.signal("flow", method_flow()).step.method.valid
        m.d.comb += Assert(~(launched & run) | ~held)
        with m.If(run):
            bit = {name: bits.bit_select(served, 1) for name, bits in before.items()}
            m.d.comb += [
                Assert(served == now),
                Assert(points.known.able == bit["able"]),
                Assert(points.known.queue == (bit["queue"] & ~launched)),
                Assert(points.known.copying == (bit["copying"] | launched)),
            ]
        m.d.comb += Assert(run == inside.signal("running"))


PROOFS = (AcquireProof(), OrderProof())
