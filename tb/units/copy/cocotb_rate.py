"""Memory utilisation of a queue of copies, and the limit of reading ahead."""

import cocotb

from signalbox.tb.units.copy.model import Copy
from signalbox.tb.units.copy.testbench import CONFIG, CopyTestbench

LATENCY = 100

BUDGET = 0.98


NEEDED = 64
"""Beats that may be in flight beyond those required by the latency."""


async def _measure(
    dut, size: int, count: int, source: int, target: int, latency: int = LATENCY
) -> None:
    tb = await CopyTestbench(dut, latency=(latency, latency)).start()
    for index in range(count):
        tb.submit(Copy(index, 0x10000 + source, 0x80000 + target, size))
    most = 0
    while tb.queued or tb.accepted:
        await tb.step()
        most = max(most, tb.read.beat.pending)
    await tb.finish()
    shares = {}
    for name, moved in (("read", tb.read_cycles), ("write", tb.write_cycles)):
        shares[name] = len(moved) / (moved[-1] - moved[0] + 1)
    useful = count * size / CONFIG.beat_bytes / (tb.write_cycles[-1] - tb.write_cycles[0] + 1)
    print(
        f"width {CONFIG.data_width}: {count} copies of {size} bytes, {source} to {target}, latency"
        f" {latency}: read {shares['read']:.2%}, write {shares['write']:.2%} of cycles,"
        f" useful {useful:.2%}, {tb.cycle} cycles in all,"
        f" at most {most} beats on their way"
    )
    assert most <= latency + NEEDED, "far too early reads delay others"
    assert min(shares.values()) >= BUDGET
    tb.check_memory()


@cocotb.test()
@cocotb.parametrize(case=["aligned", "source odd", "target odd", "both odd"])
async def queued_4k(dut, case: str) -> None:
    """Queued copies of 4 KiB keep memory busy (spec page 70)."""
    source, target = {
        "aligned": (0, 0),
        "source odd": (5, 0),
        "target odd": (0, 3),
        "both odd": (7, 2),
    }[case]
    await _measure(dut, 4096, 24, source, target)


@cocotb.test()
@cocotb.parametrize(case=["aligned", "both odd"])
async def one_64k(dut, case: str) -> None:
    source, target = {"aligned": (0, 0), "both odd": (7, 2)}[case]
    await _measure(dut, 65536, 1, source, target)


@cocotb.test()
@cocotb.parametrize(latency=[1, 30])
async def near_memory(dut, latency: int) -> None:
    """With near memory the rate is the same, and the copy reads no further ahead than necessary
    (`ReadWindow`)."""
    await _measure(dut, 4096, 12, 7, 2, latency)


@cocotb.test()
async def slow_memory(dut) -> None:
    """With one beat in three cycles, reading ahead reaches its bound, and memory is always busy, so
    that more would not help."""
    tb = await CopyTestbench(dut, latency=(1, 100)).start()
    tb.read.beat.pace = tb.write.beat.pace = lambda: tb.cycle % 3 == 0
    tb.submit(Copy(0, 0x10000, 0x80000, 1000 * CONFIG.beat_bytes))
    most = 0
    while tb.queued or tb.accepted:
        await tb.step()
        most = max(most, tb.read.beat.pending)
    await tb.finish()
    assert 256 <= most <= 256 + 5 + 17, most
    for moved in (tb.read_cycles, tb.write_cycles):
        assert 3 * len(moved) >= BUDGET * (moved[-1] - moved[0] + 1)
    tb.check_memory()


@cocotb.test()
async def reads_never_wait_for_writes(dut) -> None:
    """Requested beats are taken even if memory accepts no writes, so that reads of others can
    pass."""
    tb = await CopyTestbench(dut, latency=(20, 20)).start()
    stuck = True
    tb.write.request.pace = tb.write.beat.pace = lambda: not stuck
    for index in range(4):
        tb.submit(Copy(index, 0x10003, 0x80000, 600 * CONFIG.beat_bytes))
    await tb.steps(1500)
    assert len(tb.read_cycles) > 256 and not tb.read.beat.pending
    assert not tb.ended and len(tb.read_cycles) <= 512 + 17
    stuck = False
    await tb.finish()
    tb.check_memory()
