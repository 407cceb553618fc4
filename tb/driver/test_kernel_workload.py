"""Kernels in workload files: results compared with numpy, and refused files."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from signalbox import driver
from signalbox.driver.device import Device
from signalbox.driver.kernels.library import KERNELS, SAXPY
from signalbox.driver.kernels.timing import TIMING, TimingTask
from signalbox.driver.workload.reader import load, parse
from signalbox.driver.workload.records import Result
from signalbox.driver.workload.references import REFERENCES, Shape
from signalbox.driver.workload.replay import VerifyError, run
from signalbox.driver.workload.specs import CopySpec, KernelSpec, Workload, requests
from signalbox.driver.workload.toml_table import WorkloadError
from signalbox.tb.driver.fakes.machine import SPACE, FakeMachine
from signalbox.tb.driver.hangs import HANGS

DEFAULT = Path(driver.__file__).parent / "workloads" / "two-applications.toml"

HEAD = """
[[space]]
name = "a"
[[space]]
name = "b"
[[stream]]
name = "s"
space = "a"
[[stream]]
name = "t"
space = "b"
"""


def copy(name: str, size: int, **more: Any) -> str:
    return entry("copy", name=name, size=size, **more)


def kernel(name: str, kind: str, grid: Any, block: Any, args: dict[str, Any], **more: Any) -> str:
    pairs = ", ".join(f"{key} = {value!r}" for key, value in args.items())
    text = entry("kernel", name=name, kernel=kind, grid=grid, block=block, **more)
    return f"{text}args = {{ {pairs} }}\n"


def entry(kind: str, **values: Any) -> str:
    given = {"stream": "s"} | values
    text = {key: "true" if value is True else repr(value) for key, value in given.items()}
    return f"[[{kind}]]\n" + "".join(f"{key} = {value}\n" for key, value in text.items())


def play(
    workload: Workload, kind: str | None = None, machine: type = FakeMachine, seed: int = 1
) -> Result:
    fake = machine(replace(workload.config, memory_bytes=SPACE))

    async def main():
        device = await Device.open(fake, workload.policy.make(kind), workload.policy.settings())
        return await asyncio.wait_for(run(device, workload, seed=seed), HANGS)

    return asyncio.run(main())


EVERY_KERNEL = HEAD + "".join((
    copy("x", 256, count=2),
    copy("y", 256, count=2),
    copy("z", 260, count=2),
    copy("m", 36),
    copy("next", 400, data="permutation"),
    kernel("add", "vector add", 3, 20, {"A": "x", "B": "z", "N": 64}, count=2, priority=5),
    kernel("scaled", "saxpy", 2, 40, {"X": "add", "Y": "y", "N": 64, "ALPHA": 7}, count=2),
    kernel("product", "matrix multiply", [2, 1, 1], [2, 2], {"A": "m", "B": "m", "N": 3}),
    kernel("sums", "reduction", 3, 30, {"X": "scaled", "N": 64}, count=2, stream="t"),
    kernel("scan", "prefix sum", 2, 30, {"X": "x"}, count=2, period=10, policy="deep"),
    kernel("chase", "pointer chase", 2, 50, {"NEXT": "next", "STEPS": 9}, after=["scan"], count=2),
    kernel("spin", "spin", [2, 2, 2], 1, {"CYCLES": 5}),
    copy("out", 256, source="scaled", stream="t", count=2),
    copy("sums out", 12, source="sums", count=2),
))
"""The vector addition and the product have fewer threads than words and rows; one kernel reads
memory of the other space; the scaling works in place, in `y`."""


@pytest.mark.parametrize("kind", ["priority", "none"])
def test_every_kernel(kind: str):
    result = play(parse(EVERY_KERNEL), kind)
    assert {record.kernel for record in result.kernels} == {each.name for each in KERNELS}
    assert {result.title(record) for record in result.kernels} >= {"add[1]", "product", "spin"}
    priorities = {record.name: record.priority for record in result.kernels}
    assert priorities["add"] == (5 if kind == "priority" else 0)
    for record in result.kernels:
        assert record.submitted <= record.ready <= record.completed <= result.total_cycles


def test_the_default_workload():
    workload = load(DEFAULT)
    result = play(workload)
    order = [record.name for record in sorted(result.kernels, key=lambda r: r.completed)]
    assert sorted(order) == ["long", "product", "running", "sums", "urgent", "weighted"]
    assert len({record.asid for record in result.kernels}) == 3
    names = [space.name for space in result.spaces if space.addresses]
    assert sorted(names) == ["alarm", "filter", "solver"]
    assert result.spaces[-1].name == "task lists"


@pytest.mark.parametrize("name", ["weighted", "product", "running", "sums", "urgent"])
def test_wrong_results_are_noticed(monkeypatch: pytest.MonkeyPatch, name: str):
    """A kernel with an altered numpy reference fails the verification."""
    spec = next(spec for spec in load(DEFAULT).kernels if spec.name == name)
    reference = spec.reference

    def wrong(shape: Shape, values: dict[str, Any]) -> None:
        reference.compute(shape, values)
        values[reference.output][-1] ^= 1

    monkeypatch.setitem(REFERENCES, spec.kernel, replace(reference, compute=wrong))
    with pytest.raises(VerifyError, match=r" of \d+ bytes are wrong"):
        play(load(DEFAULT))


def test_order_of_requests():
    """Copies come before the kernel that needs them, whatever their times."""
    text = HEAD + copy("x", 4, at=70) + copy("y", 4) + copy("out", 4, source="k")
    text += kernel("k", "saxpy", 1, 1, {"X": "x", "Y": "y", "N": 1, "ALPHA": 1}, at=5)
    order = [(one.spec.name, one.at) for one in requests(parse(text).work)]
    assert order == [("y", 0), ("x", 70), ("k", 70), ("out", 70)]


@pytest.mark.parametrize("behind", [{}, {"stream": "t", "after": ["late"]}])
def test_cancelled_no_sooner_than_launched(behind: dict[str, Any]):
    """A kernel is cancelled after its launch even if the launch is delayed beyond the time of
    cancellation."""

    def spin(name: str, **more: Any) -> str:
        return kernel(name, "spin", 1, 1, {"CYCLES": 1}, **more)

    text = HEAD + spin("first") + spin("late", delay=5000) + spin("c", cancel_at=10, **behind)
    records = {record.name: record for record in play(parse(text)).kernels}
    assert records["c"].submitted > records["first"].completed + 5000


@pytest.mark.parametrize("behind", [{}, {"stream": "t", "after": ["missing"]}])
def test_cancelled_behind_a_fault(behind: dict[str, Any]):
    """A kernel that waits for the repair of a fault, in its own channel or another one, is
    cancelled after its launch, however late; other work keeps its times meanwhile."""
    text = HEAD + copy("missing", 9, unmapped="destination", repair_after=110_000)
    text += kernel("c", "spin", 1, 1, {"CYCLES": 1}, cancel_at=10, **behind)
    text += copy("timely", 9, stream="t", at=4000)
    result = play(parse(text))
    (cancelled,), (fault,) = result.kernels, result.faults
    assert cancelled.cancelled and cancelled.completed > fault.faulted + 110_000
    assert result.of("timely")[0].submitted < 4100


def test_timing_kernels():
    """The arguments of "timing" are a timing core's record, and its accesses must fit the
    memory."""
    args = {"ACCESSES": 3, "STRIDE": 16, "CYCLES": 7, "SPREAD": 15, "BLOCK_BYTES": 64}
    text = HEAD + "[machine]\ntiming_core = true\n" + copy("data", 4096)
    workload = parse(text + kernel("k", "timing", 60, 32, args | {"BASE": "data"}))
    assert [record.grid for record in play(workload).kernels] == [(60, 1, 1)]
    (spec,) = workload.kernels
    assert not spec.size and spec.words == {"BASE": (59 * 64 + 2 * 16 + 64) // 4}
    task = TimingTask(
        cycles=7, spread=15, accesses=3, base=0x12_3456_7890, block_bytes=64, stride=16
    )
    assert TIMING.arguments(**spec.numbers, BASE=task.base) == task.pack()
    with pytest.raises(WorkloadError, match="that has 4096 bytes, 'timing' needs 4128"):
        parse(text + kernel("k", "timing", 64, 32, args | {"BASE": "data"}))
    for wrong, message in (
        ({"ACCESSES": 1 << 16, "STRIDE": 0}, r"args: accesses = 65536: 0 … 65535"),
        ({"CYCLES": 0xFFFF_FFF1}, r"args: cycles \+ spread = 4294967296: 4294967295 at most"),
    ):
        with pytest.raises(WorkloadError, match=message):
            parse(text + kernel("k", "timing", 60, 32, args | {"BASE": "data"} | wrong))
    with pytest.raises(WorkloadError, match="whose SMs run only 'timing'"):
        parse(text + kernel("k", "spin", 1, 1, {"CYCLES": 1}))


def test_supplied_kernels_have_references():
    launching = {"launch both", "launch in turn"}
    assert {each.name for each in KERNELS} | {"endless", "timing"} | launching == set(REFERENCES)
    spec = KernelSpec("k", "s", SAXPY.name, Shape((1, 1, 1), (1, 1, 1)), {"X": "x", "N": 2})
    assert spec.words == {"X": 2, "Y": 2} and spec.size == 8 and spec.before == ("x",)
    assert CopySpec("c", "s", 4).before == ()


DATA = copy("x", 400) + copy("y", 400)
ADD = {"A": "x", "B": "y", "N": 100}


def add(**changes: Any) -> str:
    """Returns a valid [[kernel]] after its copies, with `changes` applied."""
    values = {"grid": 2, "block": 50, "args": ADD, "kind": "vector add"} | changes
    return HEAD + DATA + kernel("k", **values)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (add(kind="fft"), r"kernel 1 \('k'\): kernel = 'fft' is not one of 'vector add', 'saxpy'"),
        (add(stream="u"), r"stream = 'u': there is no such stream"),
        (add(grid=0), r"kernel 1 \('k'\): grid = 0: 0 is outside 1 … 2147483647"),
        (add(grid=[1, 70000]), r"grid = \[1, 70000\]: 70000 is outside 1 … 65535"),
        (add(grid=[2, 2]), r"grid = \[2, 2\]: 'vector add' extends in x only"),
        (
            add(kind="spin", grid=[1 << 16, 1 << 15, 2], args={"CYCLES": 1}),
            r"grid = \[65536, 32768, 2\]: more than 4294967295 blocks",
        ),
        (add(grid="2"), r"grid = '2' is neither an integer nor a list of up to three"),
        (add(block=[]), r"block = \[\] is neither"),
        (add(block=2000), r"block: a block of \(2000, 1, 1\) has 2000 threads: 1024 at most"),
        (add(block=1000), r"block: warps: a block needs 32, an SM has 16"),
        (add(priority=64), r"priority = 64 is outside 0 … 63"),
        (add(policy="best"), r"policy = 'best' is not one of 'auto', 'wide'"),
        (add(count=0), r"count = 0 is outside 1"),
        (add(kind="endless", args={}), r"kernel = 'endless' never ends: give it a cancel_at"),
        (add(cancel_at=9000), r"cancel_at = 9000: 'vector add' has a result, which it would lack"),
        (
            add(kind="spin", args={"CYCLES": 1}, at=50, count=3, period=20, cancel_at=89),
            r"cancel_at = 89: its last launch is later",
        ),
        (add(cycles=1), r"unknown key 'cycles'; known keys: after, args"),
        (add(args={"A": "x", "B": "y"}), r"args: N of 'vector add' is missing"),
        (add(args=ADD | {"M": 1}), r"args: 'vector add' has no 'M'; it takes A, B, C, N"),
        (add(args=ADD | {"N": "x"}), r"args: N = 'x' is not an integer from 0"),
        (add(args=ADD | {"N": -1}), r"args: N = -1 is not an integer from 0"),
        (add(args=ADD | {"N": 0}), r"args: A would have 0 words: 1 … "),
        (add(args=ADD | {"A": 4096}), r"args: A = 4096 is a pointer: name the copy or kernel"),
        (add(args=ADD | {"A": "z"}), r"args: A = 'z': there is no such copy or kernel"),
        (
            add(args=ADD | {"N": 101}),
            r"args: A = 'x': that has 400 bytes, 'vector add' needs 404",
        ),
        (add(after=["z"]), r"after = 'z': there is no such copy or kernel"),
        (add() + copy("k", 400), r"kernel 1 \('k'\): name = 'k' is used twice"),
        (add() + copy("o", 40, source="k"), r"its result has 400 bytes, this is a copy of 40 × 1"),
        (
            add(kind="spin", args={"CYCLES": 1}) + copy("o", 4, source="k"),
            r"source = 'k': 'spin' has no result",
        ),
        (add() + copy("o", 400, source="m"), r"source = 'm': there is no such copy or kernel"),
        (
            add(args=ADD | {"C": "x"}) + copy("o", 400, source="x"),
            r"'x' is overwritten by 'k': name that, or copy it first",
        ),
        (
            add(args=ADD | {"C": "x"}) + kernel("l", "vector add", 1, 1, ADD),
            r"kernel 2 \('l'\): 'x' is overwritten by 'k'",
        ),
        (
            add(args=ADD | {"C": "x"}, stream="t"),
            r"C = 'x': the kernel would write it, but it is in another address space",
        ),
        (
            add(
                kind="matrix multiply", block=[10, 10], args={"A": "y", "B": "x", "C": "x", "N": 10}
            ),
            r"args: C = 'x': 'matrix multiply' would overwrite its own input",
        ),
        (
            add(kind="reduction", grid=100, args={"X": "x", "SUMS": "x", "N": 100}),
            r"args: SUMS = 'x': 'reduction' would overwrite its own input",
        ),
        (
            add(kind="pointer chase", block=100, args={"NEXT": "p", "OUT": "p", "STEPS": 1})
            + copy("p", 400, data="permutation"),
            r"args: OUT = 'p': 'pointer chase' would overwrite its own input",
        ),
        (add(args=ADD | {"C": "x"}, count=2), r"C = 'x': the kernel would write it 2 times"),
        (
            add(args=ADD | {"C": "x", "N": 99}),
            r"C = 'x': that has 400 bytes, the kernel writes 396",
        ),
        (
            add(args=ADD | {"C": "k"}),
            r"copies or kernels wait for each other: k → k",
        ),
        (
            HEAD
            + copy("x", 400, count=3)
            + copy("y", 400)
            + kernel("k", "vector add", 1, 1, ADD, count=2),
            r"A = 'x': that is a series of 3, this one of 2",
        ),
        (
            HEAD
            + copy("x", 402, dst_offset=2)
            + copy("y", 400)
            + kernel("k", "vector add", 1, 1, ADD),
            r"A = 'x': its data are not contiguous, aligned words",
        ),
        (
            HEAD + DATA + kernel("k", "pointer chase", 1, 9, {"NEXT": "x", "STEPS": 1}),
            r"NEXT = 'x': only a copy with data = 'permutation' can be followed",
        ),
        (HEAD + copy("x", 6, data="permutation"), r"needs a size that is a multiple of 4"),
        (
            add(kind="pointer chase", args={"NEXT": "x", "STEPS": 0}),
            r"args: STEPS = 0: at least 1",
        ),
        (add() + "[machine]\nsms = 0\n", r"\[machine\] has sms = 0: it cannot run kernels"),
        (
            add(kind="timing", args={"BASE": "x", "CYCLES": 1}),
            r"kernel = 'timing': \[machine\] has timing_core = false",
        ),
        (
            add() + "[machine]\nasids = 2\n",
            r"in 2 address spaces, the machine has 2 ASIDs \(asids\), one of them reserved",
        ),
    ],
)
def test_refused(text: str, message: str):
    with pytest.raises(WorkloadError, match=message):
        parse(text, "w")


def test_permutations_are_permutations():
    text = HEAD + copy("next", 400, data="permutation")
    text += kernel("k", "pointer chase", 1, 50, {"NEXT": "next", "STEPS": 1})
    seen: list[np.ndarray] = []
    chase = REFERENCES["pointer chase"]

    def watch(shape: Shape, values: dict[str, Any]) -> None:
        seen.append(values["NEXT"])
        chase.compute(shape, values)

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(REFERENCES, "pointer chase", replace(chase, compute=watch))
        play(parse(text))
    assert sorted(seen[0].tolist()) == list(range(100))
