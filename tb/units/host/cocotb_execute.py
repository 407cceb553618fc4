"""Execution of methods (COPY-1, COPY-4, COPY-7, COPY-9, COPY-13, HOST-3, HOST-4, HOST-8): every
cycle against its model; methods of each kind individually."""

from copy import deepcopy
from dataclasses import replace
from itertools import product
from typing import Any

import cocotb

from signalbox.hw.errors import Cause
from signalbox.hw.host.records import ObjectKind
from signalbox.hw.methods import (
    COMPUTE_CLASSES,
    COPY_CLASSES,
    ENGINE_SUBCHANNELS,
    CeMethod,
    ComputeMethod,
    CopyLaunch,
    HostMethod,
    LegacySemaphore,
    MemOp,
    MemOpD,
    ObjectClass,
    SemaphoreExecute,
    SemOp,
    YieldOp,
    pack,
)
from signalbox.hw.records.semaphore import SemaphoreError
from signalbox.hw.registers import Wait
from signalbox.tb.models.execution import EVENTS, ChannelConfig, Refusal, State
from signalbox.tb.models.methods import ACTS, CHANGES, HOST_STATE, Inline, Method, Settings
from signalbox.tb.testbench.goals import Rounds
from signalbox.tb.testbench.sample import fewer, some
from signalbox.tb.units.host.execute_testbench import (
    CHANNELS,
    CONFIG,
    COUNTERS,
    LIMIT,
    WHYS,
    Channel,
    ExecuteTestbench,
    window,
)

SEVERAL = {**LIMIT, "skip": CHANNELS < 2}

COPY_STATE = [
    one for one in CeMethod if one not in (CeMethod.LAUNCH_DMA, CeMethod.SET_RENDER_ENABLE_C)
]

ERRORS = [one.name for one in SemaphoreError if one != SemaphoreError.NONE]

PASSED, FAILED = (True, "NONE"), (False, "NONE")

LAST = CHANNELS - 1

PLAIN, COUNTER, MEMORY = CONFIG.semaphores - 1, COUNTERS - 1, 0x12_3456_7890

KINDS = ("group", "chip", "memory")
"""Ways in which an acquire is decided."""


def objects(**subchannels: ObjectKind) -> list[ObjectKind]:
    """Objects bound to the subchannels: `s0`, `s1` ..."""
    return [subchannels.get(f"s{number}", ObjectKind.NONE) for number in range(ENGINE_SUBCHANNELS)]


def state(*, copies: bool = True, va: int = MEMORY, payload: int = 0, **copy: int) -> State:
    """State of a channel; with `copies`, a copy object is bound to subchannel 1."""
    bound = objects(s1=ObjectKind.COPY) if copies else objects()
    settings = Settings(bound, va, payload)
    settings.copy.update({"line_length": 64, **copy})
    return State(settings)


def execute(op: int, **fields: int) -> Method:
    return Method(HostMethod.SEM_EXECUTE, pack(SemaphoreExecute, operation=op, **fields))


def legacy(bit: int, **fields: int) -> Method:
    return Method(HostMethod.SEMAPHORED, pack(LegacySemaphore, operation=1 << bit, **fields))


def launch(**fields: int) -> Method:
    fields = {"transfer": 1, "src_pitch": 1, "dst_pitch": 1, **fields}
    return Method(CeMethod.LAUNCH_DMA, pack(CopyLaunch, **fields), 1)


def acquire(kind: str) -> tuple[State, Method]:
    """A channel with an acquire that is decided in this way."""
    place = {"group": window(COUNTER), "chip": window(PLAIN), "memory": MEMORY}[kind]
    method = execute(SemOp.ACQUIRE if kind == "group" else SemOp.ACQ_CIRC_GEQ)
    return state(va=place), method


def events(shown: dict[str, Any]) -> set[str]:
    """Events of a cycle."""
    return {name for name in EVENTS if shown[name] is not None}


async def begin(dut: Any, config: ChannelConfig | None = None) -> ExecuteTestbench:
    """A testbench in which all semaphores on chip that can count do so."""
    tb = ExecuteTestbench(dut)
    tb.model.counting = COUNTERS
    await tb.start()
    for channel in range(CHANNELS):
        await tb.configure(channel, config or ChannelConfig())
        await tb.edit(channel, reset=True)
    return tb


@cocotb.test(**LIMIT)
async def state_methods(dut):
    """HOST-3, HOST-8: each state method of the host and of the copy class takes one cycle, with any
    data, also while copies and tasks of the channel run; each sets only its own state, of its own
    channel. Only YIELD ends the slice, with two of its operations."""
    tb = await begin(dut)
    for channel in {0, LAST}:
        one = await tb.place(channel, state(), copies=2, tasks=True)
        await tb.serve(channel)
        for place in sorted([*HOST_STATE, *COPY_STATE]):
            for data in (0, 0xFFFFFFFF, 1, 3, 0xFF, 0xFFFF0000, tb.random.getrandbits(32)):
                one.method = Method(place, data, 1)
                shown = await tb.execute()
                assert shown["done"] and shown["sets"] and not events(shown)
                stops = place == HostMethod.YIELD and data & 3 in (
                    YieldOp.RUNLIST_TIMESLICE,
                    YieldOp.TSG,
                )
                assert shown["yields"] == stops
    await tb.select(0)


@cocotb.test(**LIMIT)
async def own_copies_first(dut):
    """COPY-1, COPY-4: all other methods, including refused ones, wait for the channel's copies
    without any effect, and no longer when these have ended. SET_OBJECT and methods without effect
    do not wait."""
    tb = await begin(dut, ChannelConfig(privileged=True))
    tb.all_idle = True
    release = pack(SemaphoreExecute, operation=SemOp.RELEASE)
    waiting = [
        Method(HostMethod.SEM_EXECUTE, release),
        *(execute(op) for op in (*SemOp, 7)),
        Method(HostMethod.SEMAPHORED, 3),
        *(Method(place, data) for place, data in product(CONTROL, (0, 1))),
        Method(HostMethod.MEM_OP_D, pack(MemOpD, operation=MemOp.MEMBAR)),
        Method(HostMethod.NOP, cause=Cause.HEADER_RESERVED),
        Method(CeMethod.SET_RENDER_ENABLE_C, 0, 1),
        launch(vpr_mode=1),
        launch(transfer=2),
        launch(interrupt=1),
    ]
    for method, va in product(waiting, (window(COUNTER), window(PLAIN), MEMORY)):
        one = await tb.place(0, state(va=va), method=method, copies=1)
        shown = await tb.serve(0)
        assert shown["park"] == Wait.COPIES and not events(shown), method
        one.copies = 0
        shown = await tb.serve(0)
        assert shown["done"] or (events(shown) and shown["park"] != Wait.COPIES), method
    for method in (
        Method(HostMethod.SET_OBJECT, ObjectClass.COPY),
        Method(CeMethod.SET_RENDER_ENABLE_C, 1, 1),
    ):
        await tb.place(0, state(), method=method, copies=1, tasks=True)
        assert (await tb.serve(0))["done"]


CONTROL = (
    HostMethod.ILLEGAL,
    HostMethod.NON_STALL_INTERRUPT,
    HostMethod.FB_FLUSH,
    HostMethod.SET_REFERENCE,
    HostMethod.WFI,
    HostMethod.CLEAR_FAULTED,
    HostMethod.MEM_OP_D,
    0x0C,
    0x7C,
)
"""Places of control methods that wait for copies."""


@cocotb.test(**LIMIT)
async def tasks_first(dut):
    """HOST-3: releases with a wait for idle, copies, WFI, FB_FLUSH and SET_REFERENCE wait for the
    channel's tasks; other semaphore methods and NON_STALL_INTERRUPT do not."""
    tb = await begin(dut)
    for method, waits in (
        (execute(SemOp.RELEASE, release_wfi=1), True),
        (execute(SemOp.REDUCTION, release_wfi=1), True),
        (execute(SemOp.RELEASE), False),
        (execute(SemOp.ACQUIRE, release_wfi=1), False),
        (legacy(1), True),
        (legacy(4), True),
        (legacy(1, release_no_wfi=1), False),
        (legacy(0), False),
        (launch(), True),
        (launch(vpr_mode=1), True),
        (Method(HostMethod.WFI), True),
        (Method(HostMethod.FB_FLUSH), True),
        (Method(HostMethod.SET_REFERENCE), True),
        (Method(HostMethod.NON_STALL_INTERRUPT), False),
    ):
        await tb.place(0, state(), method=method, tasks=True)
        assert ((await tb.serve(0))["park"] == Wait.TASKS) == waits, method


@cocotb.test(**LIMIT)
async def operations_on_chip(dut):
    """HOST-4: each operation of both methods is requested once, with its data, and is done when it
    is answered; a failed acquire parks until an update. Every error of the unit is a refusal at the
    semaphore's address."""
    for copies, early in product((False, True), repeat=2):
        tb = await begin(dut, ChannelConfig(early_waits=early))
        methods = [
            *(execute(op, wide=w, release_timestamp=w) for op, w in product(SemOp, (0, 1))),
            *(execute(SemOp.REDUCTION, reduction=r, unsigned=r & 1) for r in range(16)),
            *(legacy(bit, one_word=word) for bit, word in product(range(5), (0, 1))),
            legacy(4, reduction=5, unsigned=1),
        ]
        for method, answer in product(
            some(methods, 5), (PASSED, FAILED, *((False, one) for one in ERRORS))
        ):
            tb.answer = answer
            one = await tb.place(0, state(copies=copies, va=window(PLAIN), payload=1 << 40 | 7))
            one.method = method
            shown = await tb.serve(0)
            acquires = "acquire" in events(shown)
            if answer[1] != "NONE":
                assert shown["refuse"] == Cause[f"SEM_{answer[1]}"]
                assert shown["halt"]["va"] == window(PLAIN)
            elif acquires and answer == FAILED:
                assert shown["park"] == Wait.ONCHIP and not shown["acquire"]["passed"]
            else:
                assert shown["done"] and acquires == (shown["disarm"] is not None)
                assert (shown["reserve"] is not None) == (acquires and copies and not early)


@cocotb.test(**LIMIT)
async def unknown_operations(dut):
    """HOST-4: an operation that does not exist is refused, wherever its semaphore is."""
    tb = await begin(dut)
    bits = [value for value in range(32) if value.bit_count() != 1]
    methods = [execute(7), *(Method(HostMethod.SEMAPHORED, one) for one in some(bits, 4))]
    for method, va in product(methods, (window(COUNTER), window(PLAIN), MEMORY)):
        await tb.place(0, state(va=va), method=method)
        shown = await tb.serve(0)
        assert shown["refuse"] == Cause.SEM_UNSUPPORTED and events(shown) == {"halt"}


@cocotb.test(**LIMIT)
async def groups(dut):
    """COPY-9, COPY-13: an acquire of 0 of a counting semaphore, also with EARLY_WAITS, joins the
    group; it passes in a cycle in which the whole group holds and an engine is able, and reserves
    that engine. Without an engine it waits for one; if the group does not hold, it fails. If the
    channel must let go, nothing happens."""
    for early, timed in product((False, True), repeat=2):
        tb = await begin(dut, ChannelConfig(early_waits=early, timed=timed, timeout=100))
        for counter in {0, COUNTERS - 1}:
            for held, zero, able, leave in product((False, True), repeat=4):
                tb.held, tb.zero, tb.leave = held, {counter} if zero else set(), leave
                method = tb.random.choice((execute(SemOp.ACQUIRE), legacy(0)))
                own = state(va=window(counter), payload=1 << 33)
                await tb.place(0, own, method=method, able=able)
                shown = await tb.serve(0)
                if leave:
                    assert not events(shown) and not shown["done"] and shown["park"] is None
                    continue
                assert shown["guard"] == {"channel": 0, "counter": counter}
                if held and zero and able:
                    assert shown["done"] and shown["acquire"]["passed"]
                    assert events(shown) == {"guard", "acquire", "reserve", "disarm"}
                elif held and zero:
                    assert shown["park"] == (Wait.ENGINE_TIMED if timed else Wait.ENGINE)
                    assert events(shown) == {"guard", "disarm"}
                else:
                    assert shown["park"] == Wait.ENGINE and not shown["acquire"]["passed"]
                    assert (shown["arm"] is not None) == timed
        tb.leave = False


@cocotb.test(**LIMIT)
async def others_join_no_group(dut):
    """COPY-13: acquires of another value, of 64 bits, of other semaphores, at other addresses of
    the window, or in channels without a copy object, join no group."""
    tb = await begin(dut)
    counter = window(COUNTERS - 1)
    for own, method in (
        (state(va=counter, payload=1), execute(SemOp.ACQUIRE)),
        (state(va=counter), execute(SemOp.ACQUIRE, wide=1)),
        (state(va=counter), execute(SemOp.ACQ_CIRC_GEQ)),
        (state(va=counter, copies=False), execute(SemOp.ACQUIRE)),
        (state(va=window(COUNTERS)), execute(SemOp.ACQUIRE)),
        (state(va=counter + 4), execute(SemOp.ACQUIRE)),
    ):
        await tb.place(0, own, method=method)
        shown = await tb.serve(0)
        assert shown["guard"] is None and shown["done"] and shown["asked"]
    await tb.place(0, state(va=counter & 0xFFFFFFFF), method=execute(SemOp.ACQUIRE))
    assert (await tb.serve(0))["begin"] is not None


@cocotb.test(**LIMIT)
async def changed_semaphores(dut):
    """COPY-13: a counting semaphore that the channel itself changes leaves its group. A change at
    any other address removes none, even if it is refused because no semaphore is there."""
    tb = await begin(dut)
    slots, left = 1 << CONFIG.semaphore_bits, []

    def look() -> None:
        """Note the semaphore that left the group in the previous cycle."""
        event = tb.get("acquires__unguard")
        if event["valid"]:
            left.append((event["channel"], event["counter"], event["all"]))

    tb.live = look
    outside = [window(slot) for slot in range(slots, 1 << 12) if slot % slots < COUNTERS]
    others = [window(PLAIN), window(0) + 4, window(COUNTER) + 8, *some(outside[:32], 8)]
    for op in CHANGES:
        for counter in {0, COUNTER}:
            await tb.place(LAST, state(va=window(counter)), method=execute(op))
            assert (await tb.serve(LAST))["done"]
            assert left == [(LAST, counter, 0)]
            left.clear()
        for va, answer in product(others, (PASSED, (False, "UNKNOWN"))):
            tb.answer = answer
            await tb.place(LAST, state(va=va), method=execute(op))
            shown = await tb.serve(LAST)
            assert shown["asked"] and shown["done"] == (answer == PASSED)
            assert not left, hex(va)
        tb.answer = PASSED


@cocotb.test(**LIMIT)
async def engine_first(dut):
    """COPY-13: without an engine, an on-chip acquire in no group is not even requested if its
    channel has a copy object and no EARLY_WAITS; no acquire is if the channel must let go. Releases
    and reductions are requested in any case."""
    for copies, early, leave in product((False, True), repeat=3):
        tb = await begin(dut, ChannelConfig(early_waits=early))
        tb.leave = leave
        for op in SemOp:
            own = state(copies=copies, va=window(PLAIN))
            await tb.place(0, own, method=execute(op), able=False)
            shown = await tb.serve(0)
            if op in CHANGES:
                assert shown["done"] and shown["asked"]
            elif leave:
                assert not events(shown) and shown["park"] is None
            elif copies and not early:
                assert shown["park"] == Wait.ENGINE_ONLY and events(shown) == {"disarm"}
            else:
                assert shown["done"] and shown["reserve"] is None
        tb.leave = False


@cocotb.test(**LIMIT)
async def in_memory(dut):
    """HOST-4: each operation in memory is begun, the channel waits for its end, and then its result
    counts: a failed acquire is retried, any error is a refusal."""
    for copies in (False, True):
        tb = await begin(dut, ChannelConfig(retry=0x7F00, early_waits=True, asid=CONFIG.asids - 1))
        for op, result in product(SemOp, (PASSED, FAILED, *((False, one) for one in ERRORS))):
            tb.result = result
            one = await tb.place(LAST, state(copies=copies, payload=3), method=execute(op))
            shown = await tb.serve(LAST)
            assert shown["park"] == Wait.FENCE and events(shown) == {"begin"}
            assert shown["begin"]["request"]["va"] == MEMORY
            one.ended = True
            shown = await tb.serve(LAST)
            assert shown["collect"] == {"channel": LAST}
            if result[1] != "NONE":
                assert shown["refuse"] == Cause[f"SEM_{result[1]}"]
                assert shown["halt"]["va"] == MEMORY
            elif op in CHANGES or result == PASSED:
                assert shown["done"]
            else:
                assert shown["park"] == Wait.RETRY
                assert shown["arm"]["due"] == tb.cycles - 2 + 0x7F00 & 0xFFFFFFFF
                shown = await tb.serve(LAST)
                assert shown["park"] == Wait.FENCE and shown["begin"] is not None


@cocotb.test(**LIMIT)
async def confirmed_in_memory(dut):
    """COPY-13: a successful acquire in memory is read again with an engine reserved, and passes
    only if the engine is still available and the group still holds; it keeps its engine meanwhile.
    It is begun again only with an engine and while the group holds, and not while the channel must
    let go."""
    tb = await begin(dut)
    for op in (one for one in SemOp if one not in CHANGES):
        tb.result = PASSED
        one = await tb.place(0, state(), method=execute(op))
        await tb.serve(0)
        one.ended = True
        shown = await tb.serve(0)
        assert shown["park"] == Wait.ENGINE and events(shown) == {"collect", "disarm"}
        for able, held in ((False, True), (True, False)):
            one.able, tb.held = able, held
            assert events(await tb.serve(0)) == set()
            assert one.wait == Wait.ENGINE
        one.able = tb.held = tb.leave = True
        shown = await tb.serve(0)
        assert not events(shown) and shown["park"] is None
        tb.leave = False
        for able, held in ((False, True), (True, False), (True, True)):
            shown = await tb.serve(0)
            assert shown["park"] == Wait.FENCE and shown["keep"]
            assert events(shown) == {"begin", "reserve"}
            one.ended, one.able, tb.held = True, able, held
            shown = await tb.serve(0)
            if able and held:
                assert shown["done"] and {"reserve", "acquire", "collect"} <= events(shown)
            else:
                assert shown["park"] == Wait.ENGINE and events(shown) == {"collect"}
                one.able = tb.held = True


@cocotb.test(**LIMIT)
async def time_outs(dut):
    """COPY-7: a failed acquire has a deadline, one time-out after its first failure. It keeps the
    deadline when it fails again earlier, and is refused when it fails at the deadline or later;
    then it leaves its group. The deadline is not compared before the second cycle of a service."""
    timeout = 50
    for engine, kind in product((True, False), KINDS):
        tb = await begin(dut, ChannelConfig(timeout=timeout, timed=True, early_waits=not engine))
        tb.answer = tb.result = FAILED
        for after, kept in product((1, timeout - 1, timeout, timeout + 1, 1 << 30), (False, True)):
            own, method = acquire(kind)
            one = await tb.place(0, own, method=method)
            first = tb.units
            for when in (first, first + timeout - 1, first + after):
                tb.units = when & 0xFFFFFFFF
                for _ in range(2):
                    await tb.select(0)
                again = kept and when != first
                shown = await tb.serve(0, kept=again)
                if shown["park"] == Wait.FENCE:
                    one.ended = True
                    shown = await tb.serve(0, kept=again)
                assert shown["acquire"] == {"channel": 0, "passed": False}
                if when < first + timeout:
                    assert shown["park"] is not None and one.state.failed
                    assert one.state.deadline == first + timeout & 0xFFFFFFFF
                else:
                    assert shown["refuse"] == Cause.ACQUIRE_TIMEOUT and not one.state.failed
                    assert (shown["unguard"] is not None) == (kind == "group")


@cocotb.test(**LIMIT)
async def time_outs_without_engine(dut):
    """COPY-13: the deadline of an on-chip acquire that lacks an engine runs if the acquire has
    failed before; otherwise there is none."""
    tb = await begin(dut, ChannelConfig(timeout=50, timed=True))
    for fails, after in product((False, True), (10, 60)):
        own, method = acquire("chip")
        one = await tb.place(0, own, method=method)
        tb.answer = FAILED
        if fails:
            assert (await tb.serve(0))["park"] == Wait.ONCHIP
        one.able = False
        tb.units = tb.units + after & 0xFFFFFFFF
        shown = await tb.serve(0)
        if fails and after > 50:
            assert shown["refuse"] == Cause.ACQUIRE_TIMEOUT
        else:
            assert shown["park"] == Wait.ENGINE_ONLY
            assert (shown["disarm"] is None) == fails


@cocotb.test(**LIMIT)
async def refused_after_a_failure(dut):
    """COPY-7, COPY-13: an acquire that is refused after it has failed, or has held in memory
    without an engine, leaves no state for its replacement, even for the same acquire repeated: the
    time-out begins with the first failure, and in memory it is first read without an engine."""
    timeout = 50
    tb = await begin(dut, ChannelConfig(timeout=timeout, timed=True))

    async def decided() -> dict[str, Any]:
        """Serve the acquire until its operation, in memory or on chip, is answered."""
        shown = await tb.serve(LAST)
        if shown["park"] == Wait.FENCE:
            assert not shown["keep"]
            one.ended = True
            shown = await tb.serve(LAST)
        return shown

    # The registers still hold the context of `LAST`, if `last` is `LAST`; otherwise it is read.
    for kind, last in product(("chip", "memory"), {0, LAST}):
        own, method = acquire(kind)
        one = await tb.place(LAST, own, method=method)
        for _ in range(3):
            tb.answer = tb.result = FAILED
            assert (await decided())["park"] is not None and one.state.failed
            assert one.state.deadline == tb.units + timeout & 0xFFFFFFFF
            tb.answer = tb.result = (False, "FAULT")
            assert (await decided())["refuse"] == Cause.SEM_FAULT
            tb.units = tb.units + 2 * timeout & 0xFFFFFFFF
            for _ in range(2):
                await tb.select(last)
            await tb.edit(LAST, method=method)
    for last in {0, LAST}:
        own, method = acquire("memory")
        one = await tb.place(LAST, own, method=method)
        for _ in range(3):
            tb.result = PASSED
            assert (await decided())["park"] == Wait.ENGINE and one.state.confirm
            tb.result = (False, "FAULT")
            assert (await tb.serve(LAST))["keep"]
            one.ended = True
            assert (await tb.serve(LAST))["refuse"] == Cause.SEM_FAULT
            await tb.select(last)
            await tb.edit(LAST, method=method)


@cocotb.test(**LIMIT)
async def untimed(dut):
    """Without TIMEOUT_ENABLE, a failed acquire has no deadline, and no timer except for its retry
    in memory."""
    tb = await begin(dut, ChannelConfig(timeout=1, retry=5))
    tb.answer = tb.result = FAILED
    for kind in KINDS:
        own, method = acquire(kind)
        one = await tb.place(0, own, method=method)
        for _ in range(3):
            shown = await tb.serve(0)
            if shown["park"] == Wait.FENCE:
                one.ended = True
                shown = await tb.serve(0)
            assert not one.state.failed and shown["park"] is not None
            assert (shown["arm"] is not None) == (kind == "memory")
            tb.units = tb.units + 1000 & 0xFFFFFFFF


@cocotb.test(**LIMIT)
async def requested_ahead(dut):
    """COPY-3, COPY-7: a failed on-chip acquire is requested again in the cycle in which its channel
    is selected, and only once. Its response is dropped if another channel is served, or the acquire
    may not be decided; then it is requested when the port is free."""
    tb = await begin(dut)
    for case in ("claimed", "leave", "copying", "no engine", "late", *["other"] * (CHANNELS > 1)):
        own, method = acquire("chip")
        one = await tb.place(0, own, method=method)
        tb.answer = FAILED
        assert (await tb.serve(0))["park"] == Wait.ONCHIP
        await tb.select(0)
        met = deepcopy(tb.model.met)
        if case == "other":
            await tb.place(LAST, own, method=method)
        tb.candidate, tb.answer = 0, PASSED
        tb.leave = case == "leave"
        one.copies = int(case == "copying")
        one.able = case != "no engine"
        if case == "other":
            await tb.serve(LAST)
        elif case == "late":
            await tb.select(0)
        if case in ("late", "other"):
            tb.candidate = None
        shown = await tb.serve(0)
        tb.candidate, tb.leave = None, False
        assert tb.model.met["ahead: requested"] > met["ahead: requested"]
        claimed = tb.model.met["ahead: claimed"] > met["ahead: claimed"]
        assert claimed == (case == "claimed")
        assert shown["done"] == (case in ("claimed", "late", "other"))
        for _ in range(10):
            await tb.select(0)
        assert (tb.model.met["ahead: dropped"] > met["ahead: dropped"]) == (case != "claimed")
        if case != "claimed":
            one.copies, one.able = 0, True
            if one.method is not None:
                assert (await tb.serve(0))["done"]
        met = deepcopy(tb.model.met)
        tb.candidate = 0
        await tb.select(0)
        tb.candidate = None
        assert tb.model.met["ahead: requested"] == met["ahead: requested"]


@cocotb.test(**LIMIT)
async def forgotten(dut):
    """A channel that starts, or whose method was replaced, is not requested ahead."""
    tb = await begin(dut)
    for channel, replaces in product({0, LAST}, (False, True)):
        own, method = acquire("chip")
        await tb.place(channel, own, method=method)
        tb.answer = FAILED
        await tb.serve(channel)
        await tb.edit(channel, reset=not replaces, method=method if replaces else None)
        tb.candidate = channel
        for _ in range(3):
            await tb.select(channel)
        tb.candidate = None
        assert tb.model.met["ahead: requested"] == 0


@cocotb.test(**LIMIT)
async def refused_launches(dut):
    """HOST-8: each copy that is not modelled, not allowed or empty is refused with its cause, after
    the channel's copies and tasks."""
    for privileged in (False, True):
        tb = await begin(dut, ChannelConfig(privileged=privileged))
        barred = Cause.NONE if privileged else Cause.METHOD_PRIVILEGED
        for method, own, cause in (
            (launch(transfer=3), {}, Cause.COPY_MODE),
            (launch(src_pitch=0), {}, Cause.COPY_MODE),
            (launch(dst_pitch=0), {}, Cause.COPY_MODE),
            (launch(remap=1), {}, Cause.NONE),
            (launch(remap=1), {"remap": 0x0303_3210}, Cause.COPY_REMAP),
            (launch(remap=1), {"remap": 0x0333_3210}, Cause.NONE),
            (launch(remap=1), {"remap": 0x0222_3210}, Cause.NONE),
            (launch(remap=1), {"remap": 0x0100_0610}, Cause.COPY_REMAP),
            (launch(remap=1), {"remap": 0x0000_7774}, Cause.NONE),
            (launch(remap=1), {"remap": 0x0100_7774}, Cause.COPY_REMAP),
            (launch(remap=1), {"remap": 0x0100_7765}, Cause.NONE),
            (launch(remap=1, transfer=0), {"remap": 7}, Cause.NONE),
            (launch(remap=1), {"remap": 7, "line_length": 0}, Cause.COPY_REMAP),
            (launch(remap=1, src_pitch=0), {"remap": 7}, Cause.COPY_MODE),
            (launch(), {"remap": 7}, Cause.NONE),
            (launch(remap=1), {"line_length": 0}, Cause.COPY_ZERO),
            (launch(semaphore=3), {}, Cause.COPY_MODE),
            (launch(interrupt=3), {}, Cause.COPY_MODE),
            (launch(reduction_enable=1, reduction=8), {}, Cause.COPY_MODE),
            (launch(vpr_mode=1), {}, Cause.COPY_MODE),
            (launch(reserved=8), {}, Cause.COPY_MODE),
            (launch(src_physical=1), {"src_mode": 3}, Cause.COPY_MODE),
            (launch(dst_physical=1), {"dst_mode": 4}, Cause.COPY_MODE),
            (launch(dst_physical=1), {"dst_mode": 0x20}, Cause.COPY_MODE),
            (launch(src_physical=1), {"dst_mode": 3}, barred),
            (launch(dst_physical=1), {"src_mode": 3}, barred),
            (launch(), {"line_length": 0}, Cause.COPY_ZERO),
            (launch(multi_line=1), {"line_count": 0}, Cause.COPY_ZERO),
            (launch(multi_line=1), {"line_count": 9, "line_length": 0}, Cause.COPY_ZERO),
            (launch(), {"src_mode": 3, "dst_mode": 3, "line_count": 0}, Cause.NONE),
            (launch(transfer=0, src_pitch=0), {"line_length": 0}, Cause.NONE),
            (launch(reduction_enable=1, reduction=7), {}, Cause.NONE),
            (launch(multi_line=1, transfer=2), {"line_count": 5}, Cause.NONE),
        ):
            one = await tb.place(0, state(**own), method=method)
            if cause:
                one.copies, one.tasks = 1, True
                assert (await tb.serve(0))["park"] == Wait.TASKS, method
                one.tasks = False
                assert (await tb.serve(0))["park"] == Wait.COPIES, method
                one.copies = 0
            shown = await tb.serve(0)
            assert shown["refuse"] == (cause or None) and shown["done"] == (not cause), method


@cocotb.test(**LIMIT)
async def launches(dut):
    """COPY-1, COPY-9: a copy starts only while its group holds: on an engine that can take it, or,
    if it is pipelined and has no interrupt, behind the channel's running copy while there is room
    and the slice lasts; never if the channel must let go at once. Its start ends the group."""
    tb = await begin(dut)
    for held, able, queue, copies, spent, quits in product((False, True), repeat=6):
        tb.held, tb.spent, tb.quit = held, spent, quits
        for method in (launch(), launch(transfer=2), launch(transfer=0), launch(interrupt=1)):
            one = await tb.place(0, state(), method=method, able=able, queue=queue)
            one.copies = int(copies)
            shown = await tb.serve(0)
            behind = method == launch() and not spent
            if copies and not behind:
                assert shown["park"] == Wait.COPIES and not events(shown)
            elif quits:
                assert shown["park"] is None and not shown["done"] and not events(shown)
            elif held and (queue if copies else able):
                assert shown["done"] and shown["launch"]["behind"] == copies
                assert shown["unguard"] == {"channel": 0, "all": 1}
                one.method, one.queue, tb.spent = launch(), False, False
                assert (await tb.execute())["park"] == Wait.QUEUE
            elif copies:
                assert shown["park"] == (Wait.QUEUE if held else Wait.COPIES)
            else:
                assert shown["park"] == Wait.ENGINE


@cocotb.test(**LIMIT)
async def copy_ends_as_another_starts(dut):
    """COPY-4: if the running copy ends in the cycle in which another would start behind it, the
    launch waits one more cycle for the engine."""
    tb = await begin(dut)
    for spent, quits, able, multi in product((False, True), repeat=4):
        method = launch(transfer=2) if multi else launch()
        one = await tb.place(0, state(), method=method, copies=1)
        tb.spent, tb.quit, cycle = spent, quits, 0

        def ends(one: Channel = one, able: bool = able) -> None:
            nonlocal cycle
            cycle += 1
            if cycle == 3:
                one.copies, one.able = 0, able

        tb.live = ends
        shown = await tb.serve(0)
        tb.live = lambda: None
        if spent or multi:
            assert shown["park"] == Wait.COPIES
        elif quits:
            assert shown["park"] is None and not shown["done"]
        elif able:
            assert cycle == 4 and shown["launch"] and not shown["launch"]["behind"]
        else:
            assert cycle == 4 and shown["park"] == Wait.ENGINE
        tb.spent = tb.quit = False


@cocotb.test(**LIMIT)
async def control_methods(dut):
    """HOST-3, HOST-8: each control method has its effect, or is refused with its cause."""
    kinds = {f"s{number}": kind for number, kind in enumerate(ObjectKind)}
    for privileged in (False, True):
        tb = await begin(dut, ChannelConfig(privileged=privileged))
        for method, cause in control_cases(privileged):
            for channel in {0, LAST}:
                own = State(Settings(objects(**kinds)))
                await tb.place(channel, own, method=method)
                shown = await tb.serve(channel)
                assert shown["refuse"] == (cause or None), method
                parks = method.place in ASKING or method.place == HostMethod.SET_REFERENCE
                assert shown["done"] or cause or parks, method
                if cause:
                    assert events(shown) == {"halt"} and shown["halt"]["method"]["valid"]


LOAD = ComputeMethod.LOAD_INLINE_DATA

ASKING = (HostMethod.MEM_OP_D, HostMethod.WFI, *ACTS)


def control_cases(privileged: bool) -> list[tuple[Method, Cause]]:
    """Control methods with the causes of their refusals; subchannel numbers are object kinds."""
    barred = Cause.NONE if privileged else Cause.METHOD_PRIVILEGED
    built = Cause.NONE if CONFIG.compute else Cause.OBJECT_CLASS
    none, copy, software, compute = (kind.value for kind in ObjectKind)
    return [
        (Method(HostMethod.ILLEGAL), Cause.METHOD_ILLEGAL),
        (Method(HostMethod.NON_STALL_INTERRUPT), Cause.NONE),
        (Method(HostMethod.FB_FLUSH), Cause.NONE),
        (Method(HostMethod.WFI), Cause.NONE),
        (Method(HostMethod.WFI, 1), Cause.NONE),
        (Method(HostMethod.SET_REFERENCE, 77), Cause.NONE),
        (Method(HostMethod.CLEAR_FAULTED, 0xABC), barred),
        *((Method(HostMethod.SET_OBJECT, one, 4), Cause.NONE) for one in (0xC6B5, 0xC7B5)),
        *((Method(HostMethod.SET_OBJECT, one, 3), built) for one in (0xC6C0, 0xC7C0, 0xC9C0)),
        (Method(HostMethod.SET_OBJECT, 0x1F << 16, 4), Cause.NONE),
        *(
            (Method(place, data, subchannel), Cause.OBJECT_SOFTWARE)
            for place in (HostMethod.SET_OBJECT, *CeMethod, ComputeMethod.SET_REPORT_SEMAPHORE_D)
            for data in (ObjectClass.COPY, ObjectClass.COMPUTE, 0x1F << 16, 1)
            for subchannel in range(ENGINE_SUBCHANNELS, 8)
        ),
        *((Method(HostMethod.FB_FLUSH, 0, subchannel), Cause.NONE) for subchannel in range(5, 8)),
        *(
            (Method(HostMethod.SET_OBJECT, one), Cause.OBJECT_CLASS)
            for one in (0, 0xC7B4, 0xC5B5, 0xC8B5, 0xC5C0, 0xC8C0, 0xCBC0, 0xFFFF)
        ),
        *(
            (
                Method(HostMethod.MEM_OP_D, code << 27),
                Cause.METHOD_UNDEFINED if privileged and code not in {*MemOp} else barred,
            )
            for code in range(32)
        ),
        *(
            (Method(place), Cause.METHOD_UNDEFINED)
            for place in range(0, 0x100, 4)
            if place not in {*HostMethod}
        ),
        *((Method(place, 1, none), Cause.OBJECT_UNBOUND) for place in CeMethod),
        *((Method(place, 1, software), Cause.OBJECT_SOFTWARE) for place in CeMethod),
        (Method(0x104, 0, copy), Cause.COPY_METHOD),
        (Method(0x3FFC, 0, copy), Cause.COPY_METHOD),
        (Method(CeMethod.SET_RENDER_ENABLE_C, 1, copy), Cause.NONE),
        (Method(CeMethod.SET_RENDER_ENABLE_C, 9, copy), Cause.NONE),
        (Method(CeMethod.SET_RENDER_ENABLE_C, 2, copy), Cause.COPY_MODE),
        *(
            (Method(place, 5, compute), Cause.NONE)
            for place in ComputeMethod
            if place != ComputeMethod.LOAD_INLINE_DATA
        ),
        (Method(ComputeMethod.LOAD_INLINE_DATA, 5, compute), Cause.INLINE_ORDER),
        (Method(ComputeMethod.LOAD_INLINE_QMD_DATA + 252, 5, compute), Cause.NONE),
        (Method(ComputeMethod.LOAD_INLINE_QMD_DATA + 256, 5, compute), Cause.NONE),
        (Method(CeMethod.LAUNCH_DMA, 0, compute), Cause.NONE),
        *((Method(HostMethod.NOP, 1, cause=one), one) for one in HEADER_CAUSES),
    ]


HEADER_CAUSES = (Cause.HEADER_RESERVED, Cause.HEADER_RANGE, Cause.ENTRY_RANGE, Cause.FETCH_BUS)


@cocotb.test(**LIMIT)
async def waits_for_units(dut):
    """HOST-3: WFI of scope ALL, an invalidation and a compute method ask their unit, park, and are
    done or refused when the wait is over; then they no longer ask. WFI does not ask if nothing is
    outstanding, or with the channel's own scope."""
    tb = await begin(dut, ChannelConfig(privileged=True, asid=CONFIG.asids - 1, context=9))
    own = State(Settings(objects(s3=ObjectKind.COMPUTE)))
    invalidate = Method(HostMethod.MEM_OP_D, pack(MemOpD, operation=MemOp.MMU_TLB_INVALIDATE))
    cases = [
        ("barrier", Method(HostMethod.WFI, 1), Wait.ALL_IDLE),
        ("invalidation", invalidate, Wait.TRANSLATION),
        *(("compute", Method(place, 3, 3), Wait.COMPUTE) for place in ACTS),
    ]
    for (unit, method, wait), refuses in product(cases, (False, True)):
        one = await tb.place(LAST, own, method=method)
        for _ in range(2):
            shown = await tb.serve(LAST)
            assert shown["park"] == wait and events(shown) == {f"{unit}_ask"}
        one.over = {unit}
        if refuses and unit != "barrier":
            one.uninvalidated = unit == "invalidation"
            one.why = tb.random.choice(WHYS) if unit == "compute" else None
            cause = Cause.METHOD_UNDEFINED if one.why is None else one.why.cause
            shown = await tb.serve(LAST)
            assert shown["refuse"] == cause and events(shown) == {"halt"}
            assert one.why is None or shown["halt"]["va"] == one.why.va
            await tb.edit(LAST, method=method)
            shown = await tb.serve(LAST)
            assert shown["park"] == wait
        else:
            shown = await tb.serve(LAST)
            assert shown["done"] and shown[f"{unit}_drop"] == {"channel": LAST}
    for data, idle in ((0, False), (1, True)):
        tb.all_idle = idle
        await tb.place(0, own, method=Method(HostMethod.WFI, data))
        assert (await tb.serve(0))["done"]


@cocotb.test(**LIMIT)
async def inline_transfers(dut):
    """HOST-14: LAUNCH_DMA opens a transfer; its data are settings while the engine has room, then
    the next one is executed. Any other compute method ends the transfer, is refused once, and drops
    the remaining data; so does software that replaces a refused method. Other channels are not
    affected."""
    tb = await begin(dut)
    compute = objects(s3=ObjectKind.COMPUTE)
    launch, data = (Method(place, 3, 3) for place in (ComputeMethod.LAUNCH_DMA, LOAD))
    other, host = Method(ComputeMethod.NOP, 0, 3), Method(HostMethod.NOP)
    one = await tb.place(LAST, State(Settings(compute)))

    async def runs(method: Method, answer: tuple[bool, int] | None = None) -> dict[str, Any]:
        """Execute a method. `answer` : the engine executes it, with this answer."""
        one.method = method
        shown = await tb.serve(LAST)
        if answer is not None:
            assert shown["park"] == Wait.COMPUTE and events(shown) == {"compute_ask"}
            one.over, tb.progress = {"compute"}, answer
            shown = await tb.serve(LAST)
            assert shown["done"]
        return shown

    async def refused(method: Method, why: Refusal | None = None, times: int = 1) -> None:
        """Execute a method that is refused: by the engine, or for its order. It is executed again
        if the recorded error is a failed copy or task of the same cycle."""
        one.method = method
        if why is not None:
            assert (await tb.serve(LAST))["park"] == Wait.COMPUTE
            one.over, one.why = {"compute"}, why
        for _ in range(times):
            one.alive = True
            shown = await tb.serve(LAST)
            assert shown["refuse"] == (why.cause if why else Cause.INLINE_ORDER)

    for ends, times in product(("", "other", "repeated", "launch", "fault", "no mode"), (1, 2)):
        await refused(data, None, times)
        await tb.edit(LAST, method=host)
        assert (await tb.serve(LAST))["done"]
        if ends == "no mode":
            await refused(launch, WHYS[0], times)
        else:
            await runs(launch, (True, 2))
            for _ in range(2):
                assert events(await runs(data)) == {"compute_setting"}
            await runs(host)
            await runs(data, (True, 0))
        if ends == "":
            await runs(data, (False, 0))
            assert (await runs(other))["done"]
            continue
        if ends in ("other", "repeated", "launch"):
            await refused(launch if ends == "launch" else other, None, times)
        elif ends == "fault":
            await refused(data, WHYS[1], times)
            await tb.edit(LAST, method=data)
            await runs(data, (True, 0))
            await refused(data, WHYS[1], times)
        await tb.edit(LAST, method=other if ends == "repeated" else host)
        assert (await tb.serve(LAST))["done"]
        assert (await runs(other))["done"]
        for _ in range(3):
            assert (await runs(data))["ignored"]
        await runs(launch, (True, 0))
        await runs(data, (False, 0))
    assert all(tb.channels[channel].state == State() for channel in range(LAST))


@cocotb.test(**LIMIT)
async def refused_by_the_engine(dut):
    """HOST-9: the engine is told when software replaces a method that the engine has refused by
    another one; not when the same method is repeated, and not for methods that the engine did not
    refuse."""
    tb = await begin(dut)
    own = State(Settings(objects(s3=ObjectKind.COMPUTE)))
    method, undefined = Method(ComputeMethod.SEND_SIGNALING_PCAS2_B, 2, 3), Method(0x0C)
    skips = []

    def look() -> None:
        """Note the channel of a method skipped in the previous cycle."""
        event = tb.get("compute__skip")
        if event["valid"]:
            skips.append(event["channel"])

    tb.live = look
    # The registers still hold the context of `LAST`, if `last` is `LAST`; otherwise it is read.
    for last in {0, LAST}:
        one = await tb.place(LAST, own, method=method)
        for instead in (method, Method(HostMethod.NOP), method, undefined):
            one.method = method
            assert (await tb.serve(LAST))["park"] == Wait.COMPUTE
            one.over, one.why = {"compute"}, WHYS[1]
            assert (await tb.serve(LAST))["refuse"] == WHYS[1].cause
            await tb.select(last)
            await tb.edit(LAST, method=instead)
            assert skips == ([] if instead == method else [LAST])
            skips.clear()
        for instead in (undefined, Method(HostMethod.NOP)):
            assert (await tb.serve(LAST))["refuse"] == Cause.METHOD_UNDEFINED
            await tb.edit(LAST, method=instead)
        assert not skips


@cocotb.test(**LIMIT)
async def references(dut):
    """HOST-3, COPY-4: SET_REFERENCE writes its value once, and is done when it is served again with
    the value in memory. If the value could not be written, the method is refused, and writes again
    when it is repeated. A start or another method ends it."""
    tb = await begin(dut)
    for channel, fails, ends in product({0, LAST}, (0, 1, 2), ("", "reset", "replace")):
        one = await tb.place(channel, state(), method=Method(HostMethod.SET_REFERENCE, 0x12345678))
        for failure in (True,) * fails + (False,):
            shown = await tb.serve(channel)
            assert shown["park"] == Wait.WRITEBACK and one.state.referred
            assert shown["write"] == {"channel": channel, "value": 0x12345678}
            one.write, one.unwritten = False, failure
            if failure:
                shown = await tb.serve(channel)
                assert shown["refuse"] == Cause.USERD_WRITE and not one.state.referred
                await tb.edit(channel, method=one.method)
        if ends == "reset":
            await tb.edit(channel, reset=True)
            assert not tb.channels[channel].state.referred
            continue
        shown = await tb.serve(channel)
        assert shown["done"] and events(shown) == set() and not one.state.referred
        if ends == "replace":
            one.unwritten = True
            one.method = Method(HostMethod.SET_REFERENCE, 1)
            assert (await tb.execute())["write"]["value"] == 1


@cocotb.test(**SEVERAL)
async def states_of_channels(dut):
    """COPY-1: each channel has its own state, even if others are served between its methods; a
    start clears only the state of its channel."""
    tb = await begin(dut)
    states = []
    for channel in range(CHANNELS):
        own = state(va=window(channel % COUNTERS), payload=channel)
        own.settings.copy = {name: tb.random.getrandbits(17) for name in own.settings.copy}
        own.failed, own.deadline, own.confirm = bool(channel & 1), channel, bool(channel & 2)
        states.append(own)
        await tb.place(channel, own)
    for number in range(40):
        channel = tb.random.randrange(CHANNELS)
        one = tb.channels[channel]
        one.method = Method(HostMethod.SEM_PAYLOAD_HI, number)
        assert (await tb.serve(channel))["state"] == states[channel]
        if number % 10 == 9:
            await tb.edit(channel, reset=True)
            assert tb.channels[channel].state == State()
        states[channel] = tb.channels[channel].state.copied()


# -- random ----------------------------------------------------------------------------------------

SITUATIONS = [
    *(f"set {place.value:#x}" for place in (*HOST_STATE, *COPY_STATE)),
    "semaphore: park COPIES",
    "semaphore: park TASKS",
    "semaphore: refused SEM_UNSUPPORTED",
    *(f"chip: {op.name}" for op in SemOp),
    *(f"memory: {op.name}" for op in SemOp),
    *(f"{where}: refused SEM_{one}" for where, one in product(("chip", "memory"), ERRORS)),
    *(f"{where}: changed" for where in ("chip", "memory")),
    *(f"{where}: passed" for where in KINDS),
    *(f"{where}: passed after a failure" for where in KINDS),
    *(f"{where}: reserves" for where in KINDS),
    *(f"{where}: leave" for where in KINDS),
    *(f"{where}: unsettled" for where in KINDS),
    *(f"{where}: refused ACQUIRE_TIMEOUT" for where in (*KINDS, "chip without engine")),
    "chip failed: park ONCHIP",
    "chip failed again: park ONCHIP",
    "chip: park ENGINE_ONLY",
    "group failed: park ENGINE",
    "group failed again: park ENGINE",
    "group: park ENGINE",
    "group: park ENGINE_TIMED",
    "memory failed: park RETRY",
    "memory failed again: park RETRY",
    "memory: park FENCE",
    "memory: to be confirmed",
    "memory: engine lost",
    "memory confirms: park ENGINE",
    "memory: ACQUIRE confirms",
    "memory: decided at the last moment",
    "request waits",
    "ahead: requested",
    "ahead: claimed",
    "ahead: dropped",
    "ahead: leave",
    "ahead: no engine",
    "chip: behind a dropped request",
    *(
        f"launch: refused {one}"
        for one in ("COPY_MODE", "COPY_REMAP", "COPY_ZERO", "METHOD_PRIVILEGED")
    ),
    *(f"launch: park {one}" for one in ("TASKS", "COPIES", "ENGINE", "QUEUE")),
    "launch: started",
    "launch: behind",
    "launch: interrupt",
    "launch: spent",
    "launch: not pipelined",
    "launch: quit",
    "launch: ended in this cycle",
    "launch: without its group",
    "launch: no engine",
    "control: park COPIES",
    "control refused: park COPIES",
    *(f"control: park {one}" for one in ("TASKS", "WRITEBACK", "ALL_IDLE", "TRANSLATION")),
    *(f"control: {one}" for one in ("NOTHING", "BIND", "NOTIFY", "BARRIER", "REFERENCE")),
    *(f"control: {one}" for one in ("IDLE", "RESUME", "INVALIDATE", "SET", "IGNORE", "COMPUTE")),
    "control: park COMPUTE",
    "control: refused, not repeated",
    "control: BIND while copying",
    "control: refused INLINE_ORDER",
    *(f"inline: {one}" for one in ("loaded", "goes on", "ends", "again", "replaced")),
    "set while copying",
    "control: refused USERD_WRITE",
    "control: refused TASK_CHECK",
    *(f"control: refused METHOD_{one}" for one in ("UNDEFINED", "ILLEGAL", "PRIVILEGED")),
    *(f"control: refused OBJECT_{one}" for one in ("UNBOUND", "SOFTWARE", "CLASS")),
    *(f"control: refused COPY_{one}" for one in ("METHOD", "MODE")),
    *(f"WFI {one}" for one in ("ALL: over", "ALL: waits", "channel: over")),
    "reset",
    "replaced",
    "kept",
    "halted while asked",
]


@cocotb.test(**LIMIT)
async def as_the_model(dut):
    """Random methods, conditions, edits and ends of services behave like the model in every cycle,
    until each situation of a sample was met; with one channel many are rare, so the sample is
    smaller."""
    tb = await begin(dut)
    met, share = tb.model.met, 4 if CHANNELS > 1 else 8
    wanted = tb.random.sample(SITUATIONS, fewer(len(SITUATIONS) // share, 2))
    rounds = Rounds(fewer(20, 10), 2000)
    while rounds.more(
        all(met[one] for one in wanted),
        [one for one in wanted if not met[one]],
    ):
        await Play(tb).some_time()
    cocotb.log.info("%s rounds, met: %s", rounds.number, dict(met))


class Play:
    """One round of random behaviour, with its own rates."""

    def __init__(self, tb: ExecuteTestbench) -> None:
        self.tb, self.random = tb, tb.random
        self.rates = {
            name: self.random.choice((0.02, 0.1, 0.4)) for name in ("ends", "fails", "lose", "edit")
        }
        self.fast = self.random.random() < 0.5
        self.target = 0
        self.busy = self.random.choice((0.0, 0.01, 0.05))
        self.lets_go = self.random.choice((0.0, 0.02, 0.1, 0.4))
        self.inline = self.random.random() < 0.25

    def often(self, rate: str) -> bool:
        return self.random.random() < self.rates[rate]

    async def some_time(self) -> None:
        """Some hundred cycles."""
        tb, numbers = self.tb, self.random
        tb.live = lambda: None
        tb.leave = tb.quit = False
        tb.candidate = None
        for channel in range(CHANNELS):
            await tb.edit(channel, reset=True)
        tb.model.counting = numbers.choice((COUNTERS, numbers.randint(0, COUNTERS)))
        for channel in range(CHANNELS):
            await self.anew(channel)
        tb.live = self.live
        end, last = tb.cycle + 500, -1
        while tb.cycle < end:
            last = await self.act(last)
        tb.live = lambda: None
        tb.candidate, tb.leave, tb.quit, tb.accepts = None, False, False, True
        for _ in range(10):
            await tb.select(tb.served)

    async def anew(self, channel: int) -> None:
        """Another channel, in the middle of its work."""
        tb, numbers = self.tb, self.random
        live, tb.live = tb.live, lambda: None
        candidate, tb.candidate = tb.candidate, None
        tb.leave = tb.quit = False
        await tb.configure(
            channel,
            ChannelConfig(
                numbers.randrange(CONFIG.asids),
                numbers.getrandbits(4),
                numbers.random() < 0.7,
                numbers.random() < 0.4,
                numbers.choice((0, 5, 0x7F00)),
                numbers.choice((0, 5, 20, 0xFFFF000)),
                numbers.random() < 0.7,
            ),
        )
        tasks, copies = numbers.random() < 0.15, numbers.choice((0, 0, 1, 3))
        await tb.place(channel, self.state(), tasks=tasks, copies=copies)
        tb.live, tb.candidate = live, candidate

    def state(self) -> State:
        """A random state."""
        numbers = self.random
        kinds = [ObjectKind.COPY] * 3 + [ObjectKind.COMPUTE, ObjectKind.SOFTWARE, ObjectKind.NONE]
        bound = [numbers.choice(kinds) for _ in range(ENGINE_SUBCHANNELS)]
        if numbers.random() < 0.3:
            bound = [ObjectKind.NONE if one == ObjectKind.COPY else one for one in bound]
        slot = numbers.choice((*range(min(4, COUNTERS)), COUNTERS, PLAIN, numbers.getrandbits(12)))
        places = [window(slot & 0xFFF), window(0), window(PLAIN), numbers.getrandbits(38) << 2]
        payload = numbers.choice((0, 0, 1 << 32, numbers.getrandbits(64)))
        settings = Settings(bound, numbers.choice(places), payload)
        for name in settings.copy:
            width = 49 if name in ("src", "dst", "semaphore_va") else 32
            width = 64 if name == "payload" else width
            settings.copy[name] = numbers.getrandbits(width)
        for name in ("src_mode", "dst_mode"):
            settings.copy[name] = numbers.choice((0, 1, 2, 3, 4))
        if numbers.random() < 0.7:
            settings.copy["remap"] = 0x0333_0000 | numbers.getrandbits(18) & 0x3_3333
        for name in ("line_length", "line_count"):
            settings.copy[name] *= numbers.random() < 0.8
        inline = Inline(room=numbers.choice((0, 0, 1, 63)))
        if self.inline and numbers.random() < 0.5:
            inline = replace(inline, open=True, failed=numbers.random() < 0.3)
        return State(settings, inline=inline)

    # -- conditions --------------------------------------------------------------------------------

    def live(self) -> None:
        """Conditions of the next cycle."""
        tb, numbers = self.tb, self.random
        for channel, one in enumerate(tb.channels):
            self.progress(one, served=tb.serving and channel == tb.served)
        if self.often("lose"):
            tb.held = numbers.random() < 0.7
        for counter in range(min(4, COUNTERS)):
            if self.often("lose"):
                tb.zero ^= {counter}
        tb.all_idle = numbers.random() < 0.2
        tb.spent = numbers.random() < 0.2
        tb.accepts = numbers.random() < 0.7
        tb.leave = numbers.random() < self.lets_go
        if tb.channels[self.target].wait == Wait.ONCHIP:
            tb.leave = numbers.random() < 0.1
            tb.channels[self.target].able = numbers.random() < 0.8
        tb.quit = tb.leave and numbers.random() < 0.5
        tb.units = tb.units + (numbers.random() < (0.5 if self.fast else 0.05)) & 0xFFFFFFFF
        candidates = (None, self.target, self.target, numbers.randrange(CHANNELS))
        tb.candidate = numbers.choice(candidates)
        tb.latency = numbers.choice((3, 3, 3, 4, 9))
        tb.answer, tb.result = (
            (False, numbers.choice(ERRORS))
            if numbers.random() < 0.15
            else (numbers.random() > 3 * self.rates["fails"] / 2, "NONE")
            for _ in range(2)
        )

    def progress(self, one: Channel, *, served: bool) -> None:
        """Conditions that a channel waits for become true, or false."""
        numbers = self.random
        if one.copies and (self.often("ends") or (served and numbers.random() < 0.1)):
            one.copies -= numbers.choice((1, one.copies))
        if one.tasks and self.often("ends"):
            one.tasks = False
        elif not (served or one.state.referred) and numbers.random() < self.busy:
            one.tasks = True
        if self.often("lose"):
            one.able = numbers.random() < 0.6
        if self.often("lose"):
            one.queue = numbers.random() < 0.6
        if one.result is not None and self.often("ends"):
            one.ended = True
        if one.write and self.often("ends"):
            one.write, one.unwritten = False, numbers.random() < 0.4
        for unit in sorted(one.asking - one.over):
            if self.often("ends"):
                one.over.add(unit)
                refused = numbers.random() < 0.3
                one.uninvalidated = refused and unit == "invalidation"
                one.why = numbers.choice(WHYS) if refused and unit == "compute" else None
        if served and self.tb.model.asked and numbers.random() < 0.02:
            one.alive = False
            self.tb.model.met["halted while asked"] += 1

    # -- actions -----------------------------------------------------------------------------------

    async def act(self, last: int) -> int:
        """Serve or edit a channel, or let a cycle pass. Returns the channel served in the end, if
        any."""
        tb, numbers = self.tb, self.random
        ready = [c for c, one in enumerate(tb.channels) if one.alive and one.ready]
        channel = numbers.choice(ready) if ready else -1
        if last in ready and numbers.random() < 0.3:
            channel = last
        halted = [c for c, one in enumerate(tb.channels) if not one.alive]
        if halted and numbers.random() < 0.5:
            await self.resume(numbers.choice(halted))
        elif channel < 0 or numbers.random() < 0.1:
            await tb.select(numbers.randrange(CHANNELS))
        elif numbers.random() < self.rates["edit"] / 10:
            tb.model.met["reset"] += 1
            await tb.edit(channel, reset=True)
            await self.anew(channel)
        else:
            self.target = channel
            await self.serve(channel, kept=channel == last)
            return channel
        return -1

    async def resume(self, channel: int) -> None:
        """Clear the error of a halted channel; a refused method is replaced, often by itself."""
        tb, one = self.tb, self.tb.channels[channel]
        if one.refused:
            repeats = 0.6 if one.state.inline.failed else 0.3
            method = one.method if self.random.random() < repeats else self.method(one)
            tb.model.met["replaced"] += 1
            await tb.edit(channel, method=method)
        else:
            one.alive = True

    async def serve(self, channel: int, *, kept: bool) -> None:
        """Serve the channel, for several methods if it can continue."""
        tb, one, numbers = self.tb, self.tb.channels[channel], self.random
        if one.method is None:
            one.method = self.method(one)
        tb.model.met["kept"] += kept
        shown = await tb.serve(channel, kept=kept)
        while shown["done"] and one.alive and not tb.leave and not shown["yields"]:
            if numbers.random() < 0.1:
                return
            one.method = self.method(one)
            shown = await tb.execute()

    def method(self, one: Channel) -> Method:
        """A random method."""
        numbers = self.random
        data, subchannel = numbers.getrandbits(32), numbers.randrange(8)
        bound = one.state.settings.objects
        copies = [s for s, kind in enumerate(bound) if kind == ObjectKind.COPY]
        if one.copies and copies and numbers.random() < 0.3:
            return self.launch(data, numbers.choice(copies))
        computes = [s for s, kind in enumerate(bound) if kind == ObjectKind.COMPUTE]
        if computes and self.inline and numbers.random() < (0.4 if one.state.inline.open else 0.05):
            place = LOAD if one.state.inline.open else ComputeMethod.LAUNCH_DMA
            return Method(place, data, numbers.choice(computes))
        match numbers.randrange(12):
            case 0:
                return Method(numbers.choice([*HOST_STATE]), data & numbers.getrandbits(32))
            case 1 | 10 if copies:
                return Method(numbers.choice(COPY_STATE), data, numbers.choice(copies))
            case 2 | 3 | 4:
                return execute(
                    numbers.choice((*SemOp, SemOp.ACQUIRE, SemOp.ACQUIRE)),
                    wide=numbers.random() < 0.2,
                    release_wfi=data >> 1 & 1,
                    release_timestamp=data & 1,
                    reduction=data >> 4 & 15,
                    unsigned=data >> 8 & 1,
                )
            case 5:
                place = numbers.choice((HostMethod.SEM_EXECUTE, HostMethod.SEMAPHORED))
                return Method(place, data & ~31 | (1 << numbers.randrange(5)) + (data % 7 == 0))
            case 6 if copies:
                return self.launch(data, numbers.choice(copies))
            case 8 if computes:
                place = numbers.choice([*ComputeMethod, *ACTS, 0x3000])
                return Method(place, data, numbers.choice(computes))
            case 9:
                classes = (*COPY_CLASSES, *COPY_CLASSES, *COMPUTE_CLASSES, 0x1F << 16, 0xC0B5)
                return Method(HostMethod.SET_OBJECT, numbers.choice(classes), subchannel)
            case 7 if data & 1:
                code = numbers.choice((*MemOp, MemOp.MMU_TLB_INVALIDATE, 0, 31))
                return Method(HostMethod.MEM_OP_D, data & (1 << 27) - 1 | code << 27)
            case 11:
                some_places = (*CeMethod, *HostMethod, data & 0x3FFC)
                rare = (CeMethod.SET_RENDER_ENABLE_C, HostMethod.ILLEGAL, 0x104)
                place = numbers.choice((numbers.choice(some_places), numbers.choice(rare)))
                cause = numbers.choice((Cause.NONE,) * 8 + HEADER_CAUSES)
                return Method(place, data, numbers.choice((subchannel, *copies)), cause)
        return Method(numbers.choice(CONTROL), data, subchannel)

    def launch(self, data: int, subchannel: int) -> Method:
        """A copy, mostly legal."""
        numbers = self.random
        bits = data & ~pack(CopyLaunch, **ILLEGAL, transfer=3, interrupt=3)
        bits |= pack(CopyLaunch, src_pitch=1, dst_pitch=1)
        bits |= pack(
            CopyLaunch,
            transfer=numbers.choice((0, 1, 1, 1, 1, 2)),
            interrupt=numbers.choice((0, 0, 0, 1, 2)),
        )
        if numbers.random() < 0.1:
            bits = data
        if numbers.random() < 0.7:
            bits &= ~pack(CopyLaunch, src_physical=1, dst_physical=1)
        return Method(CeMethod.LAUNCH_DMA, bits, subchannel)


ILLEGAL = {
    "semaphore": 2,
    "reduction": 8,
    "vpr_mode": 3,
    "reserved": 15,
}
"""Bits that make a copy illegal, by field."""
