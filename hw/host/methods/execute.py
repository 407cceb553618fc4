"""Execution of methods: one per cycle unless it has to wait (HOST-3, HOST-4, HOST-8).

Methods that only set state take effect at once, even while an earlier copy of the channel runs. All
others, including refused ones, wait for the channel's own copies (COPY-1, COPY-4), so errors of
those copies are reported first. Methods that ask for idle, and copies, also wait for the channel's
tasks.
"""

from collections.abc import Iterable
from functools import reduce
from operator import or_

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import VA_BITS, WINDOW_BASE, Config
from signalbox.hw.errors import Cause
from signalbox.hw.host.channel_settings import setting_event, setting_ram
from signalbox.hw.host.methods.acquire_timing import AcquireTiming
from signalbox.hw.host.methods.rare_methods import Action, RareMethods, verdict
from signalbox.hw.host.records import Method, ObjectKind, Step, channel_context, method_state
from signalbox.hw.host.waits.compute_waits import method_refusal
from signalbox.hw.methods import (
    CeMethod,
    CopyLaunch,
    HostMethod,
    LaunchTransfer,
    LegacySemaphore,
    MemOpD,
    SemaphoreExecute,
    SemOp,
)
from signalbox.hw.qmd import SkedCheck
from signalbox.hw.records.channel import channel_event
from signalbox.hw.records.copy import copy_command
from signalbox.hw.records.semaphore import (
    SemaphoreError,
    SemaphorePort,
    semaphore_request,
    semaphore_response,
)
from signalbox.hw.registers import CHANNEL, Wait
from signalbox.hw.semaphore.causes import CAUSE_OF

__all__ = ["Execute"]

PEER = 3
"""Physical-mode target that is not modelled: memory of another device."""

_PHYSICAL_MODES = {
    CeMethod.SET_SRC_PHYS_MODE: "src_refused",
    CeMethod.SET_DST_PHYS_MODE: "dst_refused",
}
"""Per mode, flag for a value that is not modelled."""

_COPY_FIELDS = {
    CeMethod.SET_SEMAPHORE_A: ("semaphore_va", 32, 17),
    CeMethod.SET_SEMAPHORE_B: ("semaphore_va", 0, 32),
    CeMethod.SET_SEMAPHORE_PAYLOAD: ("payload", 0, 32),
    CeMethod.SET_SEMAPHORE_PAYLOAD_UPPER: ("payload", 32, 32),
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

_AT_ONCE = (Action.NOTHING, Action.BIND, Action.SET, Action.IGNORE)
"""Complete regardless of the channel's outstanding operations."""

_CONTEXT = CHANNEL["CONFIG"].field("CONTEXT")

_NONZERO = {CeMethod.LINE_LENGTH_IN: "bytes", CeMethod.LINE_COUNT: "lines"}
"""Per setting, flag for a value that is not 0."""


class _Outcome:
    """Outcome of a method in this cycle: `done`; `park`, for `wait`; `busy`; `refuse`, for `cause`;
    or none, while the channel is to be let go. `disarm`: its timer is stopped. `passes`, `fails`:
    an acquire is decided."""

    def __init__(self, name: str) -> None:
        self.done = Signal(name=f"{name}_done")
        self.park = Signal(name=f"{name}_park")
        self.busy = Signal(name=f"{name}_busy")
        self.disarm = Signal(name=f"{name}_disarm")
        self.refuse = Signal(name=f"{name}_refuse")
        self.passes = Signal(name=f"{name}_passes")
        self.fails = Signal(name=f"{name}_fails")
        self.wait = Signal(Wait, name=f"{name}_wait")
        self.cause = Signal(Cause, name=f"{name}_cause")


def _any(bits: Iterable[Value]) -> Value:
    return reduce(or_, bits)


class Execute(wiring.Component):
    """Executes the method in `step`; owns the state set by methods.

    Outcomes are combinational from registers. An operation on an on-chip semaphore takes several
    cycles, and a method of `RareMethods` two; `busy` is 1 meanwhile.

    A failed on-chip acquire is requested again, from its stored request, while its channel is only
    being selected, two cycles before it runs. The response is used if the context arrives in the
    next cycle and the acquire may be decided then; otherwise it is dropped, as an acquire changes
    nothing.

    Members
    -------
    step : in, held method of the served channel.
    channel : in, served channel.
    run : in, execute `step` in this cycle.
    state : out, state set by the channel's methods.
    select : in, channel served in the next cycle, or still served.
    load : in, `state` is that of context `loaded` in the next cycle.
    loaded : in, context read from the RAM.
    reset : in, `state` is cleared.
    replace : in, the held method was replaced.
    early : in, `loaded` belongs to the served channel, and will run.
    ahead : in, no channel is being served.
    candidate : in, channel likely to be served in the next cycle; meaningful with `ahead`.
    leave : in, the channel is to be let go: no acquire may be decided.
    quit : in, it is to be let go at once: no copy may start.
    done : out, the method is complete.
    sets : out, it is complete because it only sets state; early.
    park : out, it is not complete and waits for `wait`.
    wait : out, see `park`.
    keep : out, with `park`: the channel keeps its reserved engine.
    busy : out, the method needs more cycles; never with `park`.
    asked : out, registered: a response of the semaphore unit is pending and must be accepted.
    setting : in, writes of channel registers.
    copying, able, queue : in, per channel, see `CopyLauncher`.
    tasks : in, per channel, has outstanding tasks.
    held : in, for the served channel, see `Parking`.
    ended : in, per channel, see `MemorySemaphores`.
    result : in, for the served channel, see `MemorySemaphores`.
    over : in, per channel, its wait in `Barrier`, `MemOps` or `ComputeWaits` is over.
    unwritten : in, per channel, see `UserdWriteback`.
    refused : in, per channel, see `MemOps`.
    uncomputed, why : in, `refused` and `why` of `ComputeWaits`.
    spent : in, see `Scheduler`.
    all_idle : in, no copy, task or change of a semaphore in memory is outstanding.
    zero : in, zero flags of the counting semaphores.
    counting : in, number of counting semaphores.
    cycles, units : in, present time in cycles, in units of 1,024 ns.
    semaphore : out, on-chip operations for the semaphore unit.
    begin, collect : out, see `MemorySemaphores`.
    watch, guard, unguard : out, see `Parking`.
    reserve, launch : out, see `CopyLauncher`.
    arm, disarm : out, see `RetryTimers`.
    reference : out, see `UserdWriteback`.
    notify : out, strobe: NON_STALL_INTERRUPT.
    await_all : out, strobe: a WFI of scope ALL waits, see `Barrier`.
    invalidate : out, strobe: an invalidation waits, see `MemOps`.
    compute : out, strobe: a compute method waits, see `ComputeWaits`.
    set_compute : out, strobe: a compute method that sets state is executed.
    ignored : out, strobe: a compute method without effect in this design is executed.
    drop : out, strobe: the method that waited is complete or gone.
    resume : out, strobe: CLEAR_FAULTED for channel `target`.
    give_up : out, strobe: YIELD, see `Scheduler`.
    halt : out, strobe: the method is refused.
    acquire : out, strobe: an acquire is decided.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        channels, event = config.channels, channel_event(config)
        counter = channel_event(config, counter=config.semaphore_bits)
        super().__init__({
            "step": In(Step),
            "channel": In(config.channel_bits),
            "run": In(1),
            "state": Out(method_state()),
            "select": In(config.channel_bits),
            "load": In(1),
            "loaded": In(channel_context()),
            "reset": In(1),
            "replace": In(1),
            "early": In(1),
            "ahead": In(1),
            "candidate": In(event),
            "leave": In(1),
            "quit": In(1),
            "done": Out(1),
            "sets": Out(1),
            "park": Out(1),
            "wait": Out(Wait),
            "keep": Out(1),
            "busy": Out(1),
            "asked": Out(1),
            "setting": In(setting_event(config)),
            "copying": In(channels),
            "tasks": In(channels),
            "able": In(channels),
            "queue": In(channels),
            "held": In(1),
            "ended": In(channels),
            "over": In(channels),
            "unwritten": In(channels),
            "refused": In(channels),
            "uncomputed": In(channels),
            "why": In(method_refusal),
            "result": In(semaphore_response()),
            "spent": In(1),
            "all_idle": In(1),
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
                    command=copy_command(config),
                )
            ),
            "arm": Out(channel_event(config, units=1, due=32)),
            "disarm": Out(event),
            "reference": Out(channel_event(config, value=32)),
            "notify": Out(event),
            "await_all": Out(event),
            "invalidate": Out(channel_event(config, data=MemOpD)),
            "compute": Out(
                channel_event(config, asid=config.asid_bits, context=4, address=12, data=32)
            ),
            "set_compute": Out(channel_event(config, address=12, data=32)),
            "ignored": Out(1),
            "drop": Out(event),
            "resume": Out(channel_event(config, target=12)),
            "give_up": Out(1),
            "halt": Out(
                channel_event(config, cause=Cause, check=SkedCheck, va=VA_BITS, method=Method)
            ),
            "acquire": Out(channel_event(config, passed=1)),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, method, kind = self._config, self.step.method, self.step.kind
        (self._setup,) = setting_ram(m, config, self.setting, "CONFIG")
        m.d.comb += self._setup.addr.eq(self.select)
        self._pick(m)
        self._spans(m)
        self._semaphore_fields(m)
        self._ask(m)
        m.d.comb += [event.channel.eq(self.channel) for event in self._events()]
        m.d.comb += self.halt.method.eq(method)

        self._set_host(m, self.run & kind.host)
        self._set_copy(m, self.run & kind.copy)
        outcomes = [
            self._semaphore(m, self.run & kind.semaphore),
            self._launch(m, self.run & kind.launch),
            self._rare(m, self.run & ~(kind.host | kind.copy | kind.semaphore | kind.launch)),
        ]
        m.d.comb += [
            self.sets.eq(self.run & (kind.host | kind.copy)),
            self.done.eq(self.sets | _any(one.done for one in outcomes)),
            self.park.eq(_any(one.park for one in outcomes)),
            self.busy.eq(_any(one.busy for one in outcomes)),
            self.disarm.valid.eq(_any(one.disarm for one in outcomes)),
            self.halt.valid.eq(_any(one.refuse for one in outcomes)),
            self.halt.va.eq(Mux(kind.semaphore, self.state.semaphore.va, self._where)),
        ]
        # Selected by kind alone, for timing.
        with m.If(kind.semaphore):
            m.d.comb += [self.wait.eq(outcomes[0].wait), self.halt.cause.eq(outcomes[0].cause)]
        with m.Elif(kind.launch):
            m.d.comb += [self.wait.eq(outcomes[1].wait), self.halt.cause.eq(outcomes[1].cause)]
        with m.Else():
            m.d.comb += [self.wait.eq(outcomes[2].wait), self.halt.cause.eq(outcomes[2].cause)]
        with m.If(self.load):
            m.d.sync += self.state.eq(self.loaded.state)
        with m.If(self.reset):
            m.d.sync += self.state.eq(0)
        with m.If(self.reset | self.replace):
            m.d.sync += self._again.eq(self._again & ~self._here)
        return m

    def _events(self) -> tuple:
        return (
            self.begin,
            self.collect,
            self.watch,
            self.guard,
            self.unguard,
            self.reserve,
            self.launch,
            self.arm,
            self.disarm,
            self.reference,
            self.notify,
            self.await_all,
            self.invalidate,
            self.compute,
            self.set_compute,
            self.drop,
            self.resume,
            self.halt,
            self.acquire,
        )

    def _pick(self, m: Module) -> None:
        """The served channel's bit of every per-channel input.

        They are one cycle old, valid from the first cycle of a service on: these conditions end
        only through an action of this channel, or are waited for anyway.
        """
        names = ("copying", "tasks", "able", "queue", "ended", "over")
        self._is = {name: Signal(name=f"is_{name}") for name in names}
        now = {name: getattr(self, name).bit_select(self.channel, 1) for name in names}
        self._now = now
        m.d.sync += [
            self._is["copying"].eq(now["copying"] | self.launch.valid),
            self._is["tasks"].eq(now["tasks"]),
            self._is["able"].eq(now["able"]),
            self._is["queue"].eq(now["queue"] & ~self.launch.valid),
            self._is["ended"].eq(now["ended"] & ~self.collect.valid),
            self._is["over"].eq(now["over"] & ~self.drop.valid),
        ]

    def _right(self, name: str) -> Value:
        """A bit of the served channel's CONFIG."""
        return self._setup.data[CHANNEL["CONFIG"].field(name).lo]

    def _spans(self, m: Module) -> None:
        """Retry time and time-out of an acquire that fails now. Sums and comparison are one cycle
        old; sums are valid from the first cycle of a service on, the comparison from the second."""
        m.submodules.spans = spans = AcquireTiming(self._config)
        self._timed = spans.timeout_enable
        self._due_cycles, self._due_units = Signal(32), Signal(32)
        fresh, past = Signal(), Signal()
        self._late, self._unsettled = Signal(), Signal()
        m.d.comb += [spans.setting.eq(self.setting), spans.channel.eq(self.select)]
        m.d.sync += [
            self._due_cycles.eq(self.cycles + spans.retry),
            self._due_units.eq(self.units + spans.timeout),
            past.eq(~(self.units - self.state.deadline)[31]),
            fresh.eq(self.load),
        ]
        m.d.comb += [
            self._late.eq(self._timed & self.state.failed & past),
            self._unsettled.eq(self.state.failed & fresh),
        ]

    # -- settings ----------------------------------------------------------------------------------

    def _set_host(self, m: Module, now: Value) -> None:
        """Host methods that only set state or do nothing."""
        method, place = self.step.method, self.state.semaphore
        value = method.data
        # In every cycle, as the number of counting semaphores may change.
        m.d.sync += place.counter.eq(self._is_counter(place.va))
        with m.If(now):
            with m.Switch(method.address[:6]):
                with m.Case(HostMethod.SEM_ADDR_LO >> 2, HostMethod.SEMAPHOREB >> 2):
                    m.d.sync += [
                        place.va[:32].eq(value & ~3),
                        place.low.eq(value[16:] == (WINDOW_BASE >> 16) & 0xFFFF),
                        place.counter.eq(self._is_counter(value)),
                    ]
                with m.Case(HostMethod.SEM_ADDR_HI >> 2, HostMethod.SEMAPHOREA >> 2):
                    m.d.sync += [
                        place.va[32:].eq(value),
                        place.high.eq(value[:8] == WINDOW_BASE >> 32),
                    ]
                with m.Case(HostMethod.SEM_PAYLOAD_LO >> 2, HostMethod.SEMAPHOREC >> 2):
                    m.d.sync += [place.payload[:32].eq(value), place.nonzero.eq(value != 0)]
                with m.Case(HostMethod.SEM_PAYLOAD_HI >> 2):
                    m.d.sync += place.payload[32:].eq(value)
                with m.Case(HostMethod.YIELD >> 2):
                    m.d.comb += self.give_up.eq(value[1])

    def _is_counter(self, va: Value) -> Value:
        """Whether the low half of a semaphore's address is that of an on-chip counting
        semaphore."""
        window = va[16:32] == (WINDOW_BASE >> 16) & 0xFFFF
        return window & (va[2:4] == 0) & (va[4:16] < self.counting)

    def _set_copy(self, m: Module, now: Value) -> None:
        """Copy-class methods that only set state or do nothing."""
        method, copy = self.step.method, self.state.copy
        with m.If(now):
            with m.Switch(method.address):
                for name, (field, low, width) in _COPY_FIELDS.items():
                    with m.Case(name >> 2):
                        m.d.sync += copy[field][low : low + width].eq(method.data)
                        if name in _NONZERO:
                            m.d.sync += copy[_NONZERO[name]].eq(method.data != 0)
                for name, field in _PHYSICAL_MODES.items():
                    with m.Case(name >> 2):
                        target, kind = method.data[:2], method.data[2:6]
                        m.d.sync += copy[field].eq((target == PEER) | (kind != 0))

    # -- methods of `RareMethods` ------------------------------------------------------------------

    def _rare(self, m: Module, now: Value) -> _Outcome:
        """Determine the action in one cycle, perform it in the next."""
        m.submodules.rare = rare = RareMethods(compute=self._config.compute)
        looked = Signal()
        found = Signal(verdict)
        self._where = Signal(VA_BITS)
        out = _Outcome("rare")
        method, copying = self.step.method, self._is["copying"]
        uncomputed = self.uncomputed.bit_select(self.channel, 1)
        m.d.comb += [
            rare.step.eq(self.step),
            rare.bound.eq(self.state.objects[method.subchannel]),
            rare.privileged.eq(self._right("AUTH_LEVEL")),
            rare.unwritten.eq(self.state.referred & self.unwritten.bit_select(self.channel, 1)),
            rare.refused.eq(self.refused.bit_select(self.channel, 1)),
            rare.uncomputed.eq(uncomputed),
            rare.why.eq(self.why),
            self._where.eq(Mux(uncomputed, self.why.va, 0)),
            self.halt.check.eq(Mux(uncomputed, self.why.check, SkedCheck.NONE)),
        ]
        m.d.sync += [found.eq(rare.verdict), looked.eq(now & ~out.done)]
        acts, refers, action = Signal(), Signal(), found.action
        idle, refused = action == Action.IDLE, action == Action.REFUSE
        invalidates, computes = action == Action.INVALIDATE, action == Action.COMPUTE
        at_once = reduce(or_, (action == one for one in _AT_ONCE))
        working, blocked = Signal(), Signal()
        later = (
            (action == Action.NOTIFY)
            | (action == Action.RESUME)
            | (action == Action.BARRIER)
            | ((action == Action.REFERENCE) & self.state.referred)
            | (idle & (~method.data[0] | self.all_idle | self._is["over"]))
            | ((invalidates | computes) & self._is["over"])
        )
        m.d.comb += [
            working.eq(found.idle & self._is["tasks"]),
            blocked.eq(copying | working),
            acts.eq(now & looked),
            out.busy.eq(now & ~looked),
            out.refuse.eq(acts & refused & ~copying),
            out.cause.eq(found.cause),
            out.done.eq(acts & (at_once | (later & ~blocked))),
            out.park.eq(acts & ~at_once & (copying | (~refused & (working | ~later)))),
            self.notify.valid.eq(out.done & (action == Action.NOTIFY)),
            refers.eq(acts & ~blocked & (action == Action.REFERENCE)),
            self.reference.valid.eq(refers & ~self.state.referred),
            self.reference.value.eq(method.data),
            self.await_all.valid.eq(out.park & idle & ~blocked),
            self.invalidate.valid.eq(out.park & invalidates & ~blocked),
            self.invalidate.data.eq(method.data),
            self.compute.valid.eq(out.park & computes & ~blocked),
            self.compute.asid.eq(self._setup.data[: self._config.asid_bits]),
            self.compute.context.eq(self._setup.data[_CONTEXT.lo : _CONTEXT.hi + 1]),
            self.set_compute.valid.eq(out.done & (action == Action.SET)),
            self.ignored.eq(out.done & (action == Action.IGNORE)),
            self.drop.valid.eq(
                (out.done & (idle | invalidates | computes)) | self.reset | self.replace
            ),
            self.resume.valid.eq(out.done & (action == Action.RESUME)),
            self.resume.target.eq(method.data),
        ]
        for event in (self.compute, self.set_compute):
            m.d.comb += [event.address.eq(method.address), event.data.eq(method.data)]
        # Parked until REF is in memory; complete, or refused, when served again.
        with m.If(acts):
            m.d.sync += self.state.referred.eq(refers & ~self.state.referred)
        with m.If(copying):
            m.d.comb += out.wait.eq(Wait.COPIES)
        with m.Elif(working):
            m.d.comb += out.wait.eq(Wait.TASKS)
        with m.Elif(action == Action.REFERENCE):
            m.d.comb += out.wait.eq(Wait.WRITEBACK)
        with m.Elif(invalidates):
            m.d.comb += out.wait.eq(Wait.TRANSLATION)
        with m.Elif(computes):
            m.d.comb += out.wait.eq(Wait.COMPUTE)
        with m.Else():
            m.d.comb += out.wait.eq(Wait.ALL_IDLE)
        with m.If(out.done & (action == Action.BIND)):
            self._bind(m, method.subchannel, found.object)
        return out

    def _bind(self, m: Module, subchannel: Value, kind: data.View) -> None:
        objects = Signal.like(self.state.objects)
        m.d.comb += [objects.eq(self.state.objects), objects[subchannel].eq(kind)]
        m.d.sync += [
            self.state.objects.eq(objects),
            self.state.copies.eq(Cat(objects[i] == ObjectKind.COPY for i in range(8)).any()),
        ]

    # -- semaphores (spec 2.1 … 2.4) ---------------------------------------------------------------

    def _semaphore_fields(self, m: Module) -> None:
        """The operation of SEM_EXECUTE or SEMAPHORED, as a request."""
        config, method, place = self._config, self.step.method, self.state.semaphore
        new, old = data.View(SemaphoreExecute, method.data), data.View(LegacySemaphore, method.data)
        legacy, operation = self._operation(m, method)
        self._request = request = Signal(semaphore_request(config))
        self._known, self._acquires, self._engine_first = Signal(), Signal(), Signal()
        self._copy_counter, self._zero = Signal(), Signal()
        slot = place.va[4:][: max(1, (config.counters - 1).bit_length())]
        m.d.comb += [
            self._zero.eq(self.zero.bit_select(slot, 1)),
            request.asid.eq(self._setup.data[: config.asid_bits]),
            request.va.eq(place.va),
            request.operation.eq(operation.code),
            request.reduction.eq(Mux(legacy, old.reduction, new.reduction)),
            request.unsigned.eq(Mux(legacy, old.unsigned, new.unsigned)),
            request.wide.eq(operation.wide),
            request.timestamp.eq(
                ~self._acquires & Mux(legacy, ~old.one_word, new.release_timestamp)
            ),
            request.payload.eq(Mux(request.wide, place.payload, place.payload[:32])),
            self._known.eq(self.step.traits.known),
            self._acquires.eq(self.step.traits.acquires),
            # COPY-13 applies to an acquire outside the group.
            self._engine_first.eq(self._acquires & self.state.copies & ~self._right("EARLY_WAITS")),
        ]
        # A 32-bit acquire of 0 of a counting semaphore, in a channel with a copy object.
        m.d.comb += self._copy_counter.eq(
            (place.low & place.high & place.counter & ~place.nonzero)
            & self.step.traits.plain
            & self.state.copies
        )

    @staticmethod
    def _operation(m: Module, method: data.View) -> tuple[Value, data.View]:
        """Whether a semaphore method is the legacy one; its operation."""
        new, old = data.View(SemaphoreExecute, method.data), data.View(LegacySemaphore, method.data)
        # Address bit that tells the two methods apart.
        legacy = method.address[2]
        operation = Signal(data.StructLayout({"code": 3, "wide": 1}))
        m.d.comb += operation.wide.eq(~legacy & new.wide)
        with m.If(~legacy):
            m.d.comb += operation.code.eq(new.operation)
        with m.Else():
            with m.Switch(old.operation):
                for bit, code in enumerate((
                    SemOp.ACQUIRE,
                    SemOp.RELEASE,
                    SemOp.ACQ_CIRC_GEQ,
                    SemOp.ACQ_AND,
                    SemOp.REDUCTION,
                )):
                    with m.Case(1 << bit):
                        m.d.comb += operation.code.eq(code)
        return legacy, operation

    def _ask(self, m: Module) -> None:
        """Request to the semaphore unit; the response takes three cycles."""
        port = self.semaphore
        self._asks, self._ahead, claims = Signal(), Signal(), Signal()
        # The response in flight was requested ahead and is not claimed, or not yet.
        self._unclaimed = unclaimed = Signal()
        m.d.comb += [
            self.guard.counter.eq(self.state.semaphore.va[4:16]),
            self.unguard.counter.eq(self.state.semaphore.va[4:16]),
            self.watch.index.eq(port.request.payload.va[4:16]),
            # A claim is just early enough: `Parking` takes updates from two cycles later on; that
            # of the next operation comes three cycles after this one was accepted.
            self.watch.valid.eq(claims | (self._asks & self._acquires)),
        ]
        with m.If(claims):
            m.d.sync += [unclaimed.eq(0), self.asked.eq(1)]
        with m.FSM(name="on_chip") as asking:
            with m.State("IDLE"):
                m.d.sync += [unclaimed.eq(self._ahead), self.asked.eq(self._asks)]
                with m.If(self._asks | self._ahead):
                    m.d.comb += port.request.valid.eq(1)
                    m.next = "ASKED"
                    with m.If(~port.request.ready):
                        m.next = "ASKING"
            with m.State("ASKING"):
                m.d.comb += port.request.valid.eq(1)
                with m.If(port.request.ready):
                    m.next = "ASKED"
            with m.State("ASKED"):
                m.d.comb += port.response.ready.eq(1)
                with m.If(port.response.valid):
                    m.d.sync += self.asked.eq(0)
                    m.next = "IDLE"
        self._asking = asking
        self._foresee(m, asking.ongoing("IDLE"), claims)

    def _foresee(self, m: Module, idle: Value, claims: Signal) -> None:
        """Whether the candidate's acquire is requested ahead, and whether its channel, loaded in
        the next cycle, claims the response: if the acquire may be decided now. Also the request on
        the port."""
        config, request, loaded = self._config, self.semaphore.request.payload, self.loaded
        kept = data.StructLayout({"slot": 12, "operation": SemOp, "wide": 1, "payload": 64})
        m.submodules.asks = asks = Memory(shape=kept, depth=1 << config.channel_bits, init=[])
        write, read = asks.write_port(), asks.read_port(domain="comb")
        # Per channel, its acquire was requested and failed.
        self._again, self._here = Signal(config.channels), Signal(config.channels)
        # Registered: requested ahead in the previous cycle; from the stored request; its channel.
        fresh, foreseen = Signal(name="fresh"), Signal(name="foreseen")
        whose = Signal(config.channel_bits)
        # One cycle late: the method and its request are stable until the response.
        keeps = Signal(name="keeps")
        able = self._now["able"] | ~loaded.state.copies | self._right("EARLY_WAITS")
        m.d.comb += [
            self._here.eq(1 << self.channel),
            self._ahead.eq(
                self.ahead
                & self.candidate.valid
                & self._again.bit_select(self.candidate.channel, 1)
            ),
            claims.eq(
                (self.early & fresh & (whose == self.channel))
                & ~self.leave
                & ~self._now["copying"]
                & able
            ),
            write.addr.eq(self.channel),
            write.en.eq(keeps),
            write.data.slot.eq(self._request.va[4:16]),
            write.data.operation.eq(self._request.operation),
            write.data.wide.eq(self._request.wide),
            write.data.payload.eq(self._request.payload),
            read.addr.eq(Mux(idle, self.candidate.channel, whose)),
            request.eq(self._request),
        ]
        m.d.sync += [
            whose.eq(read.addr),
            fresh.eq(idle & self._ahead),
            keeps.eq(idle & self._asks),
        ]
        with m.If(idle):
            m.d.sync += foreseen.eq(self._ahead)
        with m.If(Mux(idle, self.ahead, foreseen)):
            m.d.comb += [
                request.va.eq(WINDOW_BASE | (read.data.slot << 4)),
                request.operation.eq(read.data.operation),
                request.wide.eq(read.data.wide),
                request.timestamp.eq(0),
                request.payload.eq(read.data.payload),
            ]

    def _semaphore(self, m: Module, now: Value) -> _Outcome:
        """Outcome of a semaphore method; the cases are separate, as much is known late."""
        out = _Outcome("semaphore")
        state, response, acquires = self.state, self.semaphore.response, self._acquires
        goes, blocked = Signal(), Signal()
        m.d.comb += [
            blocked.eq(self._is["copying"] | (self.step.traits.idle & self._is["tasks"])),
            goes.eq(now & self._known & ~blocked & ~self.asked),
        ]
        answered = now & self.asked & response.ready & response.valid
        cases = [
            # `_copy_counter` implies `_known`.
            self._counting(
                m, self._copy_counter & now & ~self._is["copying"] & ~self.asked & ~self.leave
            ),
            self._on_chip(m, goes & state.semaphore.low & state.semaphore.high),
            self._judge(m, "answer", answered, response.payload),
            self._in_memory(m, goes & ~(state.semaphore.low & state.semaphore.high)),
        ]
        passes, fails, times_out = Signal(), Signal(), Signal()
        m.d.comb += [
            passes.eq(_any(one.passes for one in cases)),
            fails.eq(_any(one.fails for one in cases)),
            times_out.eq(fails & self._late),
            out.done.eq(_any(one.passes | one.done for one in cases)),
            out.park.eq((now & blocked & ~self.asked) | _any(one.park for one in cases)),
            out.busy.eq((now & self.asked & ~answered) | _any(one.busy for one in cases)),
            out.disarm.eq(passes | _any(one.disarm for one in cases)),
            out.refuse.eq(
                (now & ~self._known & ~blocked) | times_out | _any(one.refuse for one in cases)
            ),
        ]
        self._decide(m, passes, fails, out)
        # A channel that changes a semaphore of its own group does not wait for it: the semaphore
        # leaves the group with the request, so the change itself ends no reservation. It also
        # leaves when its acquire times out, as the copy may follow without it.
        with m.If((self._asks & ~acquires) | (cases[0].fails & self._late)):
            m.d.comb += self.unguard.valid.eq(1)
        self._describe(m, out)
        return out

    def _decide(self, m: Module, passes: Value, fails: Value, out: _Outcome) -> None:
        """An acquire that holds reserves the engine for the following copy (COPY-13); one that
        fails is retried, or times out (2.4)."""
        state = self.state
        in_memory, in_group = ~self.asked & ~self._copy_counter, ~self.asked & self._copy_counter
        m.d.comb += [
            self.acquire.valid.eq(passes | fails),
            self.acquire.passed.eq(passes),
            self.arm.units.eq(~in_memory),
            self.arm.due.eq(
                Mux(
                    in_memory,
                    self._due_cycles,
                    Mux(state.failed, state.deadline, self._due_units),
                )
            ),
            self.arm.valid.eq(fails & ~self._late & (in_memory | self._timed)),
        ]
        with m.If(passes & (in_group | self._engine_first)):
            m.d.comb += self.reserve.valid.eq(1)
        with m.If(fails & ~in_memory & ~self._timed):
            m.d.comb += out.disarm.eq(1)
        with m.If(passes | fails):
            m.d.sync += [
                state.failed.eq(~passes & ~self._late & self._timed),
                state.confirm.eq(0),
                self._again.eq(
                    (self._again & ~self._here)
                    | (self._here & (~passes & self.asked).replicate(len(self._here)))
                ),
            ]
        # Meaningful only with `failed`.
        with m.If(~state.failed):
            m.d.sync += state.deadline.eq(self._due_units)

    def _describe(self, m: Module, out: _Outcome) -> None:
        """Wait of a semaphore method if it waits, and cause if it is refused."""
        state, able = self.state, self._is["able"] & self.held
        on_chip = state.semaphore.low & state.semaphore.high
        with m.If(self._is["copying"]):
            m.d.comb += out.wait.eq(Wait.COPIES)
        with m.Elif(self.step.traits.idle & self._is["tasks"]):
            m.d.comb += out.wait.eq(Wait.TASKS)
        with m.Elif(self.asked):
            m.d.comb += out.wait.eq(Wait.ONCHIP)
        with m.Elif(on_chip & ~self._copy_counter):
            m.d.comb += out.wait.eq(Wait.ENGINE_ONLY)
        with m.Elif(on_chip):
            timed = self._timed & self.held & self._zero
            m.d.comb += out.wait.eq(Mux(timed, Wait.ENGINE_TIMED, Wait.ENGINE))
        with m.Elif(self._is["ended"]):
            m.d.comb += out.wait.eq(Mux(self.result.passed, Wait.ENGINE, Wait.RETRY))
        with m.Elif(self._engine_first & state.confirm & ~able):
            m.d.comb += out.wait.eq(Wait.ENGINE)
        with m.Else():
            m.d.comb += out.wait.eq(Wait.FENCE)

        answer = Mux(self.asked, self.semaphore.response.payload.error, self.result.error)
        with m.Switch(answer):
            for error, cause in CAUSE_OF.items():
                with m.Case(error):
                    m.d.comb += out.cause.eq(cause)
            with m.Default():
                m.d.comb += out.cause.eq(Cause.ACQUIRE_TIMEOUT)
        with m.If(on_chip & ~self.asked):
            m.d.comb += out.cause.eq(Cause.ACQUIRE_TIMEOUT)
        with m.If(~self._known):
            m.d.comb += out.cause.eq(Cause.SEM_UNSUPPORTED)

    def _judge(
        self, m: Module, name: str, now: Value, answer: data.View, parks: Value | int = 0
    ) -> _Outcome:
        """Outcome of a response: refused, done, or a decided acquire. `parks`: park for another
        reason."""
        case, good = _Outcome(name), answer.error == SemaphoreError.NONE
        m.d.comb += [
            case.park.eq(parks | (case.fails & ~self._late)),
            case.refuse.eq(now & ~good),
            case.done.eq(now & good & ~self._acquires),
            case.passes.eq(now & good & self._acquires & answer.passed),
            case.fails.eq(now & good & self._acquires & ~answer.passed),
        ]
        return case

    def _counting(self, m: Module, now: Value) -> _Outcome:
        """Decided here, from the zero flags: in this cycle the whole group holds or not; it passes
        only with an engine. `now` implies that the channel stays."""
        case = _Outcome("counting")
        holds = self.held & self._zero
        m.d.comb += [
            # A timed-out acquire leaves at once.
            self.guard.valid.eq(now),
            case.park.eq(now & Mux(holds, ~self._is["able"], ~self._unsettled & ~self._late)),
            case.disarm.eq(now & holds & ~self._is["able"]),
            case.passes.eq(now & holds & self._is["able"]),
            case.fails.eq(now & ~holds & ~self._unsettled),
            case.busy.eq(now & ~holds & self._unsettled),
        ]
        return case

    def _on_chip(self, m: Module, now: Value) -> _Outcome:
        """Any other on-chip semaphore: ask the unit; under COPY-13, an acquire only with an
        engine."""
        case = _Outcome("on_chip")
        decides = now & ~self._copy_counter & ~(self._acquires & self.leave)
        held_back = self._engine_first & ~self._is["able"]
        settled = decides & held_back & ~self._unsettled
        m.d.comb += [
            case.fails.eq(settled & self._late),
            case.park.eq(settled & ~self._late),
            case.disarm.eq(case.park & ~self.state.failed),
            self._asks.eq(decides & ~held_back),
            case.busy.eq(decides & (~held_back | self._unsettled)),
        ]
        return case

    def _in_memory(self, m: Module, now: Value) -> _Outcome:
        """Start the operation, park, and return for its result.

        In a channel with a copy object, an acquire that holds is read once more with an engine
        reserved. So it is decided when a copy can start at once (COPY-13), and polling keeps no
        engine from others.
        """
        confirm, able = self.state.confirm, self._is["able"] & self.held
        with_engine = self._engine_first
        confirms = with_engine & confirm
        collects, starts, repeats = Signal(), Signal(), Signal()
        m.d.comb += [
            collects.eq(now & self._is["ended"] & ~self._unsettled),
            repeats.eq(with_engine & self.result.passed & ~(confirm & able)),
            starts.eq(now & ~self._is["ended"] & ~(confirms & (self.leave | ~able))),
        ]
        held_back = now & ~self._is["ended"] & confirms & ~able & ~self.leave
        parks = (collects & repeats) | starts | held_back
        case = self._judge(m, "result", collects & ~repeats, self.result, parks)
        m.d.comb += [
            case.busy.eq(now & self._is["ended"] & self._unsettled),
            case.disarm.eq(collects & repeats & ~confirm),
            self.collect.valid.eq(collects),
            self.begin.request.eq(self._request),
            self.begin.valid.eq(starts),
            # A confirming acquire keeps its engine, or others would start on it every time.
            self.keep.eq(starts & confirms),
            self.reserve.valid.eq(starts & confirms),
        ]
        with m.If(collects & repeats):
            m.d.sync += confirm.eq(1)
        return case

    # -- copies (spec 4) ---------------------------------------------------------------------------

    def _launch_refused(self, m: Module, launch: data.View) -> tuple[Value, Signal]:
        """Whether the copy is refused, and the cause: mode not modelled, physical addresses without
        privilege, or no bytes."""
        copy = self.state.copy
        copies, bad, zero = launch.transfer != LaunchTransfer.NONE, Signal(), Signal()
        barred, cause = Signal(), Signal(Cause)
        physical = launch.src_physical | launch.dst_physical
        m.d.comb += [
            barred.eq(physical & ~self._right("AUTH_LEVEL")),
            cause.eq(
                Mux(bad, Cause.COPY_MODE, Mux(barred, Cause.METHOD_PRIVILEGED, Cause.COPY_ZERO))
            ),
            bad.eq(
                ~self.step.traits.modelled
                | (launch.src_physical & copy.src_refused)
                | (launch.dst_physical & copy.dst_refused)
            ),
            zero.eq(copies & (~copy.bytes | (launch.multi_line & ~copy.lines))),
        ]
        return bad | barred | zero, cause

    def _launch(self, m: Module, now: Value) -> _Outcome:
        launch = data.View(CopyLaunch, self.step.method.data)
        out = _Outcome("launch")
        wrong, cause = self._launch_refused(m, launch)
        copying, able, held = self._is["copying"], self._is["able"], self.held
        working = self._is["tasks"]
        # A copy has ended in this cycle: wait one more for the present state.
        ended = copying & ~self._now["copying"]
        behind = (launch.transfer == LaunchTransfer.PIPELINED) & (launch.interrupt == 0)
        follows = behind & ~self.spent
        legal, can, may = Signal(), Signal(), Signal()
        m.d.comb += [
            legal.eq(now & ~wrong & ~working),
            can.eq(held & Mux(copying, follows & self._is["queue"], able)),
            may.eq(~self.quit & ~ended),
            out.refuse.eq(now & wrong & ~copying & ~working),
            out.cause.eq(cause),
            out.done.eq(legal & can & may),
            out.park.eq(now & (working | (copying & (wrong | ~follows)) | (~wrong & may & ~can))),
            out.wait.eq(
                Mux(
                    working,
                    Wait.TASKS,
                    Mux(
                        copying,
                        Mux(follows & held & ~wrong, Wait.QUEUE, Wait.COPIES),
                        Wait.ENGINE,
                    ),
                )
            ),
            out.busy.eq(legal & ~self.quit & ended & follows),
            out.disarm.eq(out.park & ~copying),
        ]
        with m.If(out.done):
            m.d.comb += [
                self.launch.valid.eq(1),
                self.unguard.valid.eq(1),
                self.unguard.all.eq(1),
            ]
        self._describe_copy(m, launch)
        return out

    def _describe_copy(self, m: Module, launch: data.View) -> None:
        method, copy, command = self.step.method, self.state.copy, self.launch.command
        m.d.comb += [
            self.launch.behind.eq(self._is["copying"]),
            self.launch.interrupt.eq(launch.interrupt != 0),
            command.channel.eq(self.channel),
            command.subchannel.eq(method.subchannel),
            command.data.eq(method.data),
            command.asid.eq(self._setup.data[: self._config.asid_bits]),
            command.transfer.eq(launch.transfer != LaunchTransfer.NONE),
            command.src.eq(copy.src),
            command.dst.eq(copy.dst),
            command.src_physical.eq(launch.src_physical),
            command.dst_physical.eq(launch.dst_physical),
            command.pitch_in.eq(copy.pitch_in),
            command.pitch_out.eq(copy.pitch_out),
            command.line_length.eq(copy.line_length),
            command.line_count.eq(Mux(launch.multi_line, copy.line_count, Const(1, 32))),
            command.semaphore.eq(launch.semaphore),
            command.semaphore_va.eq(copy.semaphore_va),
            command.payload.eq(copy.payload),
            command.wide.eq(launch.wide),
            command.reduction_enable.eq(launch.reduction_enable),
            command.reduction.eq(launch.reduction),
            command.reduction_unsigned.eq(launch.reduction_unsigned),
        ]
