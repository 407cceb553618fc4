"""How much of the memory's time a queue of copies uses."""

import cocotb

from tb.copy.bench import CONFIG, Bench
from tb.copy.model import Copy

LATENCY = 100

BUDGET = 0.98


async def _measure(dut, size: int, count: int, source: int, target: int) -> None:
    bench = Bench(dut, latency=(LATENCY, LATENCY))
    await bench.start()
    for index in range(count):
        bench.submit(Copy(index, 0x10000 + source, 0x80000 + target, size))
    await bench.finish()
    shares = {}
    for name, moved in (("read", bench.read.moved), ("write", bench.write.moved)):
        shares[name] = len(moved) / (moved[-1] - moved[0] + 1)
    useful = count * size / CONFIG.beat_bytes / (bench.write.moved[-1] - bench.write.moved[0] + 1)
    print(
        f"width {CONFIG.data_width}: {count} copies of {size} bytes, {source} to {target}, latency"
        f" {LATENCY}: read {shares['read']:.2%}, write {shares['write']:.2%} of cycles,"
        f" useful {useful:.2%}, {bench.cycle} cycles in all"
    )
    assert min(shares.values()) >= BUDGET
    bench.check_memory()


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
