"""Latency of an urgent copy behind queued low copies, with and without priorities; and the speed of
the simulation."""

import time

import cocotb

from signalbox.driver.channel.priority_policy import NoPriorityPolicy, Policy, PriorityPolicy
from signalbox.tb.benchmarks.latency import NUMBERS, SERIES, SIZES, URGENT, key
from signalbox.tb.benchmarks.scenes import HIGH, LOW, bound, report, request
from signalbox.tb.machine.cocotb_order import joined, until_started
from signalbox.tb.machine.testbench import MachineTestbench
from signalbox.tb.simulation.trace import Done, Doorbell

LIMIT = {"timeout_time": 50, "timeout_unit": "ms"}

LOW_DST, LOW_SRC, HIGH_DST, HIGH_SRC = (0xA0_0000 + (part << 17) for part in range(4))


def policy_of(series: str) -> Policy:
    """Policy of a series."""
    kind = PriorityPolicy if SERIES[series].priorities else NoPriorityPolicy
    return bound(kind(2))


async def latency(dut, series: str, number: int, size: int) -> int:
    """Cycles from the doorbell of an urgent copy to its end. The urgent copy is submitted while the
    first of `number` low copies runs; the host has received all of these."""
    policy, slice_cycles = policy_of(series), SERIES[series].slice_cycles
    tb = await MachineTestbench.start(dut, counting=policy.semaphores)
    low = await tb.copy_channel(LOW, slice_cycles=slice_cycles)
    high = await tb.copy_channel(HIGH, slice_cycles=slice_cycles)
    await low.submit(joined(*[request(policy, LOW, LOW_DST, LOW_SRC, size)] * number))
    await until_started(tb, 1)
    await high.submit(request(policy, HIGH, HIGH_DST, HIGH_SRC, URGENT))
    end = tb.now() + 2 * number * size // 16 + 5000
    while not (done := await tb.events(Done, channel=HIGH)):
        assert tb.now() < end, "the urgent copy does not end"
        await tb.wait(100)
    rung = (await tb.events(Doorbell, channel=HIGH))[-1]
    return done[0].cycle - rung.cycle


@cocotb.test(**LIMIT)
@cocotb.parametrize(series=list(SERIES))
async def sweep(dut, series: str):
    """Latencies for every number and size."""
    for number in NUMBERS:
        for size in SIZES:
            value = await latency(dut, series, number, size)
            report(**{key(series, number, size): value})


@cocotb.test(**LIMIT)
async def speed(dut):
    """Simulated cycles per second of real time, while copies run."""
    tb = await MachineTestbench.start(dut)
    policy = policy_of("baseline")
    low = await tb.copy_channel(LOW)
    await low.submit(joined(*[request(policy, LOW, LOW_DST, LOW_SRC, 1 << 16)] * 12))
    began, first = time.monotonic(), tb.now()
    await tb.wait(40_000)
    report(speed=round((tb.now() - first) / (time.monotonic() - began)))
