"""Algorithms with nested launches in workload files: results compared with numpy's, and refused
files."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from signalbox.driver.device import Device
from signalbox.driver.runtime.limits import Limit
from signalbox.driver.workload import nested_jobs
from signalbox.driver.workload.expected_data import VerifyError
from signalbox.driver.workload.flat_jobs import FLAT
from signalbox.driver.workload.reader import load, parse
from signalbox.driver.workload.specs import LimitsSpec, NestedSpec
from signalbox.driver.workload.toml_table import WorkloadError
from signalbox.tb.driver.fakes.machine import SPACE, FakeMachine
from signalbox.tb.driver.test_kernel_workload import DEFAULT, HEAD, copy, entry, kernel, play

NESTED = DEFAULT.with_name("nested.toml")
FLAT_FILE = DEFAULT.with_name("flat.toml")

MACHINE = "[machine]\nsave_places = 8\nnested_kernels = 60\n"
LIMITS = "[limits]\nnesting_depth = 4\n"


def nested(name: str, kind: str, n: int, **more: Any) -> str:
    return entry("nested", name=name, kernel=kind, n=n, **more)


FLAT_NAMES = ("sort", "short", "grid", "search")


def every(*, flat: bool = False) -> str:
    """A workload with each algorithm, a series, and copies and kernels that use the results.
    `flat` : on a machine without nested launches."""
    more = {"flat": True} if flat else {}
    work = (
        nested("sort", "merge sort", 150, count=2, **more),
        nested("short", "merge sort", 1, **more),
        nested("grid", "refinement", 16, levels=3, seed=3, **more),
        nested("search", "breadth first", 50, stream="t", after=["grid"], priority=7, **more),
        copy("sorted", 600, source="sort", stream="t", count=2),
        copy("y", 200),
        kernel("sums", "reduction", 3, 30, {"X": "grid", "N": 90}, stream="t"),
        kernel("more", "saxpy", 2, 25, {"X": "search", "Y": "y", "N": 50, "ALPHA": 3}),
    )
    return ("" if flat else MACHINE + LIMITS) + HEAD + "".join(work)


OTHERS = 3 << 16
"""Memory that all runs of a space share, in bytes: kernels, fences, page tables, a chunk of
records."""


@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize("count", [1, 5])
@pytest.mark.parametrize(
    ("kind", "n", "levels"),
    [
        ("merge sort", 1, 1),
        ("merge sort", 32, 1),
        ("merge sort", 33, 1),
        ("merge sort", 3000, 1),
        ("refinement", 1, 1),
        ("refinement", 32, 5),
        ("refinement", 128, 2),
        ("breadth first", 2, 1),
        ("breadth first", 5000, 1),
    ],
)
def test_memory(kind: str, n: int, levels: int, count: int, flat: bool):
    """The memory that the file says it needs suffices for all runs, and is not twice as much."""
    spec = NestedSpec("x", "s", kind, n, levels, flat=flat, count=count)
    prepare = FLAT[kind].prepare if flat else spec.algorithm.prepare
    config = replace(
        parse(MACHINE + HEAD + nested("a", "merge sort", 1)).config, memory_bytes=SPACE
    )

    async def used() -> int:
        device = await Device.open(FakeMachine(config))
        device.set_limit(Limit.NESTING_DEPTH, 24)
        stream, free = await device.stream(), device.memory.free_bytes
        for index in range(count):
            numbers = np.random.default_rng(index)
            await prepare(device, stream, numbers, n, levels)
        return free - device.memory.free_bytes

    found = asyncio.run(used())
    assert spec.memory // 2 < found < spec.memory + OTHERS


@pytest.mark.parametrize("kind", ["priority", "none"])
def test_every_algorithm(kind: str):
    """All results equal numpy's; records have titles, priorities, sizes and children."""
    result = play(parse(every()), kind)
    names = [result.title(record) for record in result.kernels]
    assert sorted(names) == ["grid", "more", "search", "short", "sort[0]", "sort[1]", "sums"]
    records = {record.name: record for record in result.kernels}
    assert records["search"].priority == (7 if kind == "priority" else 0)
    assert records["grid"].completed <= records["search"].ready
    sizes = [(record.kernel, record.grid, record.block) for record in result.kernels]
    assert ("merge sort", (1, 1, 1), (32, 1, 1)) in sizes
    assert ("breadth first", (1, 1, 1), (1, 1, 1)) in sizes
    children = [record.kernel for record in result.children]
    assert children.count("merge sort") == 2 * 14
    assert children.count("refine") == 4 + 16
    assert children.count("search level") == 1 and children.count("search edges") == 2
    pages = {(record.asid, record.page) for record in result.children}
    assert len(pages) == len(children)


@pytest.mark.parametrize("kind", ["priority", "none"])
def test_flat(kind: str):
    """On a machine without nested launches: all results equal numpy's; each kernel has a record
    with its step, and is launched when the last one has ended; other work follows the last one."""
    result = play(parse(every(flat=True)), kind)
    steps = {name: [one for one in result.kernels if one.name == name] for name in FLAT_NAMES}
    titles = [result.title(one) for one in steps["sort"]]
    assert titles == [f"sort[{n}].{step}" for n in range(2) for step in range(1, 5)]
    kernels = [one.kernel for one in steps["sort"][:4]]
    assert kernels == ["sort leaves", *["merge nodes"] * 3]
    assert [one.grid[0] for one in steps["sort"][:4]] == [8, 4, 2, 1]
    assert [one.step for one in steps["grid"]] == [1, 2, 3] and not result.children
    for name in ("grid", "search"):
        ends = {one.step: one.completed for one in steps[name]}
        for one in steps[name]:
            last = max((end for end in ends.values() if end < one.completed), default=0)
            assert one.submitted >= last or one.kernel == "search heavy vertices"
    assert {one.priority for one in steps["search"]} == {7 if kind == "priority" else 0}
    over = max(one.completed for one in steps["grid"])
    assert all(one.ready >= over for one in steps["search"])
    (sums,) = (one for one in result.kernels if one.name == "sums")
    assert sums.completed > over


def test_the_flat_example():
    """The same algorithms, with the same input, as in the example with nested launches."""
    flat, deep = load(FLAT_FILE).nested, load(NESTED).nested
    assert [replace(one, flat=False) for one in flat] == list(deep)
    assert all(one.flat for one in flat)
    play(load(FLAT_FILE))


def test_inputs():
    """The input depends on the seed and the place in the series, not on the run's seed."""
    seen: list[bytes] = []
    algorithm = nested_jobs.ALGORITHMS["merge sort"]

    async def watch(*given: Any):
        job = await algorithm.prepare(*given)
        seen.append(job.expected.image.tobytes())
        return job

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(nested_jobs.ALGORITHMS, "merge sort", replace(algorithm, prepare=watch))
        text = READY + nested("a", "merge sort", 40, count=2)
        for seed, run in ((5, 1), (5, 2), (6, 1)):
            play(parse(text.replace("n = 40", f"n = 40\nseed = {seed}")), seed=run)
    first, again, other = seen[:2], seen[2:4], seen[4:]
    assert first == again and len({*first, *other}) == 4


@pytest.mark.parametrize(
    ("kind", "buffers"), [("merge sort", 3), ("refinement", 4), ("breadth first", 6)]
)
def test_addresses(kind: str, buffers: int):
    """The memory of an algorithm is in use in its space."""
    more = {"levels": 2} if kind == "refinement" else {}
    space, *_ = play(parse(READY + nested("a", kind, 16, **more))).spaces
    assert len(space.addresses) == buffers


@pytest.mark.parametrize("name", ["sort", "grid", "search"])
@pytest.mark.parametrize(("file", "known"), [(NESTED, nested_jobs.ALGORITHMS), (FLAT_FILE, FLAT)])
def test_wrong_results_are_noticed(
    monkeypatch: pytest.MonkeyPatch, file: Path, known: dict[str, Any], name: str
):
    (spec,) = (spec for spec in load(file).nested if spec.name == name)
    algorithm = known[spec.kernel]

    async def wrong(*given: Any):
        job = await algorithm.prepare(*given)
        job.expected.image[0, -1] ^= 1
        return job

    monkeypatch.setitem(known, spec.kernel, replace(algorithm, prepare=wrong))
    with pytest.raises(VerifyError, match=rf"{name}\[0\]: \d+ of \d+ bytes are wrong"):
        play(load(file))


def test_refused_children_are_noticed():
    """A job reports that its children were refused, rather than wrong bytes."""
    workload = replace(load(NESTED), limits=LimitsSpec(nesting_depth=2))
    with pytest.raises(VerifyError, match=r"sort\[0\]: .* could not launch .* children: DEPTH"):
        play(workload)


def child(name: str, kind: str, grid: int, block: int, args: dict[str, Any]) -> str:
    text = kernel(name, kind, grid, block, args)
    return text.replace("[[kernel]]", "[[child]]").replace("stream = 's'\n", "")


def launch(name: str, kind: str, args: dict[str, str]) -> str:
    """A child that launches others."""
    return child(name, kind, 1, 32, args)


TREE = "".join((
    copy("x", 256, at=300),
    copy("y", 256),
    copy("z", 256, count=2),
    kernel("top", "launch in turn", 1, 32, {"FIRST": "sides", "SECOND": "end"}, count=2),
    launch("sides", "launch both", {"FIRST": "sum", "SECOND": "scaled"}),
    child("sum", "vector add", 2, 32, {"A": "x", "B": "y", "N": 64}),
    child("scaled", "saxpy", 2, 32, {"X": "x", "Y": "z", "N": 64, "ALPHA": 5}),
    launch("end", "launch in turn", {"FIRST": "scan"}),
    child("scan", "prefix sum", 2, 32, {"X": "scaled"}),
    copy("scan out", 256, source="scan", count=2, stream="t"),
    kernel("sums", "reduction", 2, 32, {"X": "sum", "N": 64}, count=2),
))
"""A tree of kernels: a sum and a product, then prefix sums of the product; other work, and a
series, use its results."""


@pytest.mark.parametrize("kind", ["priority", "none"])
def test_children(kind: str):
    """Kernels of a file launch others: all results equal numpy's, and data arrive in time."""
    result = play(parse(MACHINE + LIMITS + HEAD + TREE), kind)
    assert [result.title(one) for one in result.kernels] == [
        "top[0]",
        "top[1]",
        "sums[0]",
        "sums[1]",
    ]
    titles = [one.title for one in result.children]
    names = ("sides", "sum", "scaled", "end", "scan")
    assert sorted(titles) == sorted(f"{name}[{n}]" for name in names for n in range(2))
    top = result.kernels[0]
    assert top.submitted >= 300, "the data of its descendants"
    ends = [record.completed for record in result.records if record.name == "scan out"]
    assert min(ends) >= top.completed


@pytest.mark.parametrize(("depth", "where"), [(1, "top"), (2, "sides"), (3, "")])
def test_refused_children_of_files_are_noticed(depth: int, where: str):
    workload = parse(MACHINE + LIMITS + HEAD + TREE)
    limited = replace(workload, limits=LimitsSpec(nesting_depth=depth))
    if where:
        with pytest.raises(VerifyError, match=rf"{where}\[0\]: .* could not launch .*: DEPTH"):
            play(limited)
    else:
        play(limited)


def test_the_example():
    """Streams are as many device priorities apart as kernels are nested."""
    result = play(load(NESTED))
    priorities = {record.name: record.priority for record in result.kernels}
    assert priorities["urgent"] == 4 and not priorities["sort"] and not priorities["long"]
    assert {record.kernel for record in result.kernels} >= set(nested_jobs.ALGORITHMS)


READY = MACHINE + LIMITS + HEAD
SORT = nested("k", "merge sort", 100)
LIMITED = MACHINE + "[limits]\n"


def one(kind: str = "merge sort", n: int = 100, **more: Any) -> str:
    """A workload that is valid except for the arguments."""
    return READY + nested("k", kind, n, **more)


DATA = copy("x", 400)
A = child("a", "prefix sum", 1, 32, {"X": "x"})
B = child("b", "prefix sum", 1, 32, {"X": "a"})


def top(**args: Any) -> str:
    """A kernel that launches others."""
    return kernel("t", "launch both", 1, 32, args)


def tree(*work: str) -> str:
    """A machine, limits and data for kernels that launch others."""
    return READY + DATA + "".join(work)


def sort_then(work: str) -> str:
    """A valid sort, followed by other work."""
    return READY + SORT + work


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            one("bubble sort"),
            r"nested 1 \('k'\): kernel = 'bubble sort' is not one of 'merge sort', 'refinement'",
        ),
        (one(n=0), r"n = 0 is outside 1 … 65536"),
        (one("breadth first", 1), r"n = 1 is outside 2 … 65536"),
        (READY + entry("nested", kernel="merge sort"), r"nested 1: n is missing"),
        (one(stream="u"), r"stream = 'u': there is no such stream"),
        (one(grid=2), r"unknown key 'grid'; known keys: after, at"),
        (one(levels=2), r"levels is for 'refinement', not for 'merge sort'"),
        (one("refinement", 12, levels=2), r"n = 12 is not a power of two"),
        (one("refinement", 8), r"levels is missing"),
        (one("refinement", 8, levels=5), r"levels = 5 is outside 1 … 4"),
        (one(priority=64), r"priority = 64 is outside 0 … 63"),
        (one(seed=-1), r"seed = -1 is outside 0"),
        (one(after=["z"]), r"after = 'z': there is no such copy or kernel"),
        (one(after=["k"]), r"wait for each other: k → k"),
        (
            one(after=["x"], count=2) + copy("x", 4, count=3),
            r"'x' is a series of 3, this one of 2",
        ),
        (sort_then(copy("k", 4)), r"nested 1 \('k'\): name = 'k' is used twice"),
        (
            sort_then(copy("o", 4, source="k")),
            r"source = 'k': its result has 400 bytes, this is a copy of 4 × 1",
        ),
        (
            sort_then(kernel("l", "reduction", 1, 32, {"X": "k", "N": 101})),
            r"X = 'k': that has 400 bytes, 'reduction' needs 404",
        ),
        (
            sort_then(kernel("l", "pointer chase", 1, 9, {"NEXT": "k", "STEPS": 1})),
            r"only a copy with data = 'permutation' can be followed",
        ),
        (
            MACHINE + HEAD + SORT,
            r"'merge sort' of this size needs nesting_depth = 3; \[limits\] has nesting_depth = 1",
        ),
        (
            one("refinement", 16, levels=5),
            r"'refinement' of this size needs nesting_depth = 5; \[limits\] has nesting_depth = 4",
        ),
        (tree(child("c", "spin", 1, 1, {"CYCLES": 1})), r"child 1 \('c'\): no kernel launches 'c'"),
        (
            tree(top(FIRST="z")),
            r"kernel 1 \('t'\): args: FIRST = 'z': there is no such \[\[child\]\]",
        ),
        (tree(top()), r"args: FIRST of 'launch both' is missing"),
        (tree(top(FIRST=3)), r"args: FIRST = 3 is a kernel: name a \[\[child\]\]"),
        (tree(top(FIRST="a", STATUS="x")), r"has no 'STATUS'; it takes FIRST, SECOND"),
        (tree(top(FIRST="a", SECOND="a"), A), r"args: SECOND = 'a': 't' launches it already"),
        (
            tree(top(FIRST="a"), launch("a", "launch both", {"FIRST": "a"})),
            r"child 1 \('a'\): args: FIRST = 'a': 't' launches it already",
        ),
        (tree(top(FIRST="a"), A, A), r"child 2 \('a'\): name = 'a' is used twice"),
        (
            tree(top(FIRST="a", SECOND="b"), A, B),
            r"child 2 \('b'\): args: X = 'a': that is not complete before it",
        ),
        (
            tree(top(FIRST="a"), child("a", "prefix sum", 1, 32, {"X": "nope"})),
            r"child 1 \('a'\): args: X = 'nope': there is no such copy or kernel",
        ),
        (
            tree(copy("p", 400, count=2), top(FIRST="a"))
            + child("a", "prefix sum", 1, 32, {"X": "p"}),
            r"child 1 \('a'\): args: X = 'p': that is a series of 2, this one of 1",
        ),
        (
            tree(top(FIRST="a"), A + "at = 3\n"),
            r"unknown key 'at'; known keys: args, block, grid, kernel, name, policy",
        ),
        (
            tree(top(FIRST="a"), child("a", "endless", 1, 1, {})),
            r"'endless' never ends, so it cannot be a child",
        ),
        (
            tree(kernel("t", "launch both", 2, 32, {"FIRST": "a"}), A),
            r"'launch both' launches kernels, so it has one block of one warp",
        ),
        (
            tree(kernel("t", "launch both", 1, 33, {"FIRST": "a"}), A),
            r"so it has one block of one warp",
        ),
        (
            tree(kernel("t", "launch both", 1, 32, {"FIRST": "a"}, cancel_at=9), A),
            r"cancel_at = 9: 'launch both' launches kernels",
        ),
        (
            MACHINE + HEAD + DATA + top(FIRST="a") + A,
            r"FIRST = 'a': it needs nesting_depth = 2; \[limits\] has nesting_depth = 1",
        ),
        (HEAD + DATA + top(FIRST="a") + A, r"kernel 1 \('t'\): \[machine\] has nested_kernels = 0"),
        (HEAD + A, r"child 1 \('a'\): \[machine\] has nested_kernels = 0"),
        (LIMITS + HEAD + SORT, r"\[limits\]: \[machine\] has nested_kernels = 0: its"),
        (
            HEAD + SORT,
            r"nested 1 \('k'\): \[machine\] has nested_kernels = 0.*\(flat = true: the host",
        ),
        (
            HEAD
            + '[[stream]]\nname = "n"\nspace = "a"\nnull = true\n'
            + nested("k", "merge sort", 9, flat=True),
            r"nested 1 \('k'\): flat = true: its space has a NULL stream",
        ),
        (HEAD + nested("k", "merge sort", 9, flat=1), r"flat = 1 is neither true nor false"),
        ("[machine]\nsms = 0\n" + HEAD + SORT, r"\[machine\] has sms = 0: it cannot run kernels"),
        (
            MACHINE + "timing_core = true\n" + HEAD + SORT,
            r"has timing_core = true, whose SMs run only 'timing'",
        ),
        (
            MACHINE + "sm_registers = 512\n" + LIMITS + HEAD + SORT,
            r"'merge sort': registers: a block needs",
        ),
        (
            "[machine]\nnested_kernels = 60\n" + HEAD + SORT,
            r"\[machine\]: nested_kernels = 60 needs save_places",
        ),
        (LIMITED + "nesting_depth = 25\n" + HEAD + SORT, r"nesting_depth = 25 is outside 1 … 24"),
        (
            LIMITED + "pending_launches = 0\n" + HEAD + SORT,
            r"pending_launches = 0 is outside 1 … 2048",
        ),
        (
            LIMITED + "width = 3\n" + HEAD + SORT,
            r"\[limits\]: unknown key 'width'; known keys: nesting_d",
        ),
    ],
)
def test_refused(text: str, message: str):
    with pytest.raises(WorkloadError, match=message):
        parse(text, "w")
