"""Scheduling experiments in JSON: the workloads read from them, and refused files."""

import json
from pathlib import Path
from typing import Any

import pytest

from signalbox import driver
from signalbox.driver.workload.experiment import tables
from signalbox.driver.workload.reader import load
from signalbox.driver.workload.specs import KernelSpec, Workload
from signalbox.driver.workload.toml_table import WorkloadError
from signalbox.tb.driver.test_kernel_workload import play

EXAMPLES = sorted((Path(driver.__file__).parent / "workloads").glob("*.json"))
TIMER = {
    "filename": "./bin/timer_spin.so",
    "thread_count": 64,
    "block_count": 3,
    "data_size": 0,
    "additional_info": 10_000_000,
}


def read(folder: Path, *benchmarks: dict[str, Any], **top: Any) -> Workload:
    """An experiment, read from a file."""
    content = {"name": "x", "max_iterations": 1, "max_time": 0, "benchmarks": [*benchmarks]}
    file = folder / "experiment.json"
    file.write_text(json.dumps(content | top))
    return load(file)


def kernels(workload: Workload) -> dict[str, KernelSpec]:
    return {spec.name: spec for spec in workload.kernels}


def multikernel(*items: dict[str, Any], **more: Any) -> dict[str, Any]:
    sizes = {"duration": 1_000_000, "block_count": 1, "thread_count": 32}
    return TIMER | {
        "filename": "multikernel.so",
        "additional_info": [sizes | item for item in items],
        **more,
    }


def actions(*items: dict[str, Any], **more: Any) -> dict[str, Any]:
    return TIMER | {"filename": "stream_action.so", "additional_info": {"actions": items, **more}}


def spin(duration: int = 1_000_000, **more: Any) -> dict[str, Any]:
    return {"type": "kernel", "parameters": {"duration": duration}, **more}


@pytest.mark.parametrize("file", EXAMPLES, ids=[file.stem for file in EXAMPLES])
def test_examples_run(file: Path) -> None:
    workload = load(file)
    result = play(workload)
    assert len(result.kernels) == len(workload.kernels) >= 3
    assert all(spec.starts for spec in workload.kernels)


def test_null_stream() -> None:
    """A kernel of the NULL stream is behind all earlier work, and later kernels are behind it."""
    (file,) = [file for file in EXAMPLES if file.stem == "null-stream"]
    first, null, last = play(load(file)).kernels
    assert [one.behind for one in (first, null, last)] == [(), (("K1", 0),), ((null.name, 0),)]


def test_times_and_sizes(tmp_path: Path) -> None:
    """Nanoseconds and seconds are scaled alike; sizes are taken from the file."""
    timed = TIMER | {"label": "K", "release_time": 0.25, "thread_count": [8, 4], "starts": [1, 1.5]}
    (spec,) = read(tmp_path, timed).kernels
    assert spec.numbers["CYCLES"] == 100 and spec.at == 2500 and spec.starts == (10_000, 15_000)
    assert (spec.name, spec.grid, spec.block) == ("K", (3, 1, 1), (8, 4, 1))
    (fine,) = read(tmp_path, timed, signalbox={"ns_per_cycle": 1000}).kernels
    assert fine.numbers["CYCLES"] == 10_000 and fine.at == 250_000
    (least,) = read(tmp_path, TIMER | {"additional_info": "1"}).kernels
    assert least.numbers["CYCLES"] == 1 and least.name == "benchmark 1"


def test_kernels_of_a_stream(tmp_path: Path) -> None:
    """A kernel's delay counts from the end of the stream's previous kernel, the first one's from
    the release; shared memory is given in words."""
    one = multikernel(
        {"kernel_label": "A", "delay": 0.1},
        {"kernel_label": "B", "shared_memory_size": 4096},
        {"kernel_label": "C", "delay": 0.2},
        {"kernel_label": "D"},
        label="s",
        release_time=1,
    )
    workload = read(tmp_path, one)
    found = kernels(workload)
    assert {spec.stream for spec in workload.kernels} == {"s"}
    assert {name: (spec.at, spec.delay) for name, spec in found.items()} == {
        "A": (11_000, None),
        "B": (11_000, None),
        "C": (11_000, 2000),
        "D": (11_000, None),
    }
    assert [spec.shared for spec in workload.kernels] == [0, 16384, 0, 0]


def test_actions(tmp_path: Path) -> None:
    """Delays of actions count from the previous action, or, after a synchronization, from the end
    of the stream's work."""
    one = actions(
        spin(label="A"),
        spin(label="B", delay=0.01),
        {"type": "synchronize"},
        spin(2_000_000, label="C"),
        {"type": "synchronize"},
        spin(label="D", delay=0.03),
    )
    found = kernels(read(tmp_path, one))
    assert {name: (spec.at, spec.delay) for name, spec in found.items()} == {
        "A": (0, None),
        "B": (100, None),
        "C": (100, 0),
        "D": (100, 300),
    }
    assert found["A"].grid == (3, 1, 1) and found["C"].numbers["CYCLES"] == 20


def test_iterations(tmp_path: Path) -> None:
    """An iteration is launched when the previous one has ended; with "sync_every_iteration", when
    all benchmarks' previous iterations have."""
    pair = multikernel({"kernel_label": "A"}, {"kernel_label": "B"})
    timer = TIMER | {"label": "T", "max_iterations": 3}
    found = kernels(read(tmp_path, pair, timer, max_iterations=2))
    assert [*found] == ["A #1", "B #1", "A #2", "B #2", "T #1", "T #2", "T #3"]
    assert [spec.delay for spec in found.values()] == [None, None, 0, None, None, 0, 0]
    del timer["max_iterations"]
    found = kernels(read(tmp_path, pair, timer, max_iterations=2, sync_every_iteration=True))
    assert found["A #2"].after == ("B #1", "T #1") == found["T #2"].after
    assert not found["A #1"].after


def test_streams(tmp_path: Path) -> None:
    """A channel per stream; priorities only if streams differ in them; one NULL stream."""
    null = TIMER | {"filename": "timer_spin_default_stream.so"}
    workload = read(tmp_path, TIMER, null, TIMER, null, actions(spin(), use_null_stream=True))
    assert [(one.name, one.null) for one in workload.streams] == [
        ("benchmark 1", False),
        ("NULL stream", True),
        ("benchmark 3", False),
    ]
    assert workload.policy.kind == "none" and workload.policy.channels_per_level == (3,)
    workload = read(tmp_path, *[TIMER] * 11, TIMER | {"stream_priority": -1})
    assert workload.policy.kind == "priority" and workload.policy.channels_per_level == (11, 1)
    assert workload.streams[-1].priority == -1 and workload.config.channels >= 12


def test_processes(tmp_path: Path) -> None:
    null = TIMER | {"filename": "timer_spin_default_stream.so"}
    workload = read(tmp_path, TIMER, null, null, use_processes=True)
    assert [one.space for one in workload.streams] == [f"benchmark {n}" for n in (1, 2, 3)]
    assert [one.name for one in workload.streams][1:] == [
        f"NULL stream of benchmark {n}" for n in (2, 3)
    ]


def test_names_of_streams(tmp_path: Path) -> None:
    """Every benchmark has its own stream, even if labels are equal, except those on the NULL
    stream."""
    null = TIMER | {"filename": "timer_spin_default_stream.so"}
    labels = ["K", "K", "K (2)", "NULL stream", "benchmark 6"]
    named = [TIMER | {"label": label} for label in labels]
    names = ["K", "K (2)", "K (2) (2)", "NULL stream (2)", "benchmark 6", "benchmark 6 (2)"]
    workload = read(tmp_path, *named, TIMER, null)
    assert [spec.stream for spec in workload.kernels] == [*names, "NULL stream"]
    assert [one.null for one in workload.streams] == [False] * 6 + [True]
    labels = ["NULL stream of A", "A"]
    streams = [null | {"label": label} for label in labels]
    workload = read(tmp_path, TIMER | {"label": "NULL stream of A"}, *streams, use_processes=True)
    assert len({spec.stream for spec in workload.kernels}) == 3
    assert [one.null for one in workload.streams] == [False, True, True]


def test_machine(tmp_path: Path) -> None:
    """The machine has the members given in the file, and by default channels for all streams."""
    assert read(tmp_path, *[TIMER] * 12).config.channels == 13
    for channels in (3, 20):
        workload = read(tmp_path, TIMER, signalbox={"machine": {"channels": channels}})
        assert workload.config.channels == channels
    with pytest.raises(WorkloadError, match="channels"):
        read(tmp_path, *[TIMER] * 3, signalbox={"machine": {"channels": 2}})
    for sms in ("4", 0, None, 133, 1 << 40):
        with pytest.raises(WorkloadError, match=r'"machine": sms'):
            masked = TIMER | {"sm_mask": "~0x1"}
            read(tmp_path, masked, signalbox={"machine": {"sms": sms}})


def test_comments_are_no_masks(tmp_path: Path) -> None:
    spoken = {"comment": "no sm_mask here", "label": "sm_mask"}
    assert not read(tmp_path, TIMER | spoken, multikernel({"comment": "sm_mask"})).config.sm_masks


def test_masks(tmp_path: Path) -> None:
    """A mask has the bits of disabled SMs, or with ~ those of the enabled ones; a kernel's mask
    overrides its benchmark's. The machine has masks only if the file has some."""
    masked = multikernel({}, {"sm_mask": "~0x3"}, sm_mask="0x5")
    long = {"sm_mask": "0X00" + "f" * 15 + "E"}
    workload = read(tmp_path, masked, TIMER | {"sm_mask": "ff7f"}, TIMER | long)
    assert [spec.sms for spec in workload.kernels] == [(1, 3, 4, 5, 6, 7), (0, 1), (7,), (0,)]
    assert workload.config.sms == 8 and workload.config.sm_masks
    workload = read(tmp_path, TIMER)
    assert workload.config.sms == 2 and not workload.config.sm_masks
    workload = read(tmp_path, masked, signalbox={"machine": {"sms": 66}})
    assert workload.kernels[1].sms == (0, 1, 64, 65)


def test_masks_of_larger_machines(tmp_path: Path) -> None:
    """Bits of SMs that the machine does not have are ignored, in both kinds of masks."""
    masks = ["~0xaaaaaaaaaaaaaaa8", "~0x103", "0x5555555555555557", "0x100"]
    workload = read(tmp_path, *[TIMER | {"sm_mask": mask} for mask in masks])
    odd = (3, 5, 7)
    assert [spec.sms for spec in workload.kernels] == [odd, (0, 1), odd, (*range(8),)]


@pytest.mark.parametrize(
    ("benchmark", "message"),
    [
        (
            {"filename": "./bin/mandelbrot.so"},
            "'mandelbrot' is not supported; those that are: timer",
        ),
        ({"filename": None}, "filename is missing"),
        ({"threads": 3}, "unknown key 'threads'; known keys: additional_info, block_count"),
        ({"additional_info": "soon"}, "additional_info = 'soon' is not a number of nanoseconds"),
        ({"additional_info": 0}, "additional_info = 0 is not a number of nanoseconds"),
        ({"thread_count": 0}, "thread_count = 0: 0 is outside 1 …"),
        ({"block_count": None}, "block_count is missing"),
        ({"block_count": [1, 2, 3, 4]}, "block_count = .1, 2, 3, 4. is neither an integer nor"),
        (
            {"additional_info": 1 << 59},
            f"additional_info = {1 << 59}: more than {2**32 - 1} cycles",
        ),
        ({"additional_info": 10**400}, f"additional_info = {10**400}: more than"),
        (multikernel({"duration": 1 << 59}), f"duration = {1 << 59}: more than"),
        ({"thread_count": 4096}, "block: "),
        ({"release_time": -1}, "release_time = -1 is not a number of seconds"),
        ({"release_time": 5e8}, "release_time = 500000000.0: more than 1099511627776 cycles"),
        ({"max_iterations": 0}, "max_iterations = 0 has no end"),
        ({"max_iterations": 5000}, "more than 4096 launches"),
        ({"max_iterations": 2, "starts": [0, 1]}, "several iterations have several starts"),
        ({"starts": [1]}, "is not .first, last., in seconds"),
        ({"starts": [2, 1]}, "starts = .20000, 10000. is not"),
        ({"stream_priority": -2}, "stream_priority = -2 is outside -1 … 0"),
        ({"sm_mask": "all"}, "sm_mask = 'all' is not a mask: a string of hexadecimal digits"),
        ({"sm_mask": "-2"}, "sm_mask = '-2' is not a mask"),
        ({"sm_mask": "0x1" + "0" * 16}, "is not a mask: .*of 64 bits at most"),
        ({"sm_mask": 10}, "sm_mask = 10 is not a mask"),
        ({"sm_mask": ""}, "sm_mask = '' is not a mask"),
        ({"sm_mask": "~"}, "sm_mask = '~' is not a mask"),
        ({"sm_mask": "0x"}, "sm_mask = '0x' is not a mask"),
        ({"sm_mask": "1_0"}, "sm_mask = '1_0' is not a mask"),
        ({"sm_mask": "1\n"}, "is not a mask"),
        ({"additional_info": "9" * 5000}, "is not a number of nanoseconds"),
        ({"sm_mask": "ff"}, "sm_mask = 'ff' disables all 8 SMs of the machine"),
        ({"sm_mask": "~0x300"}, "sm_mask = '~0x300' disables all 8 SMs of the machine: set"),
        ({"mps_thread_percentage": 50}, "limits of threads are not supported"),
        (multikernel(), "lists no kernel"),
        (multikernel({"copy_in_count": 5}), "kernel 1: copy_in_count: copies are not supported"),
        (multikernel({}, {"duration": 1.5}), "kernel 2: duration = 1.5 is not a number"),
        (TIMER | {"filename": "multikernel.so"}, "is not a list of kernels"),
        (actions(), "its actions have no kernel"),
        (actions({"type": "memcpy"}), "actions of type 'memcpy' are not supported"),
        (actions({"type": "synchronize", "parameters": {"device": True}}), "only the stream"),
        (actions(spin(), {"type": "synchronize"}, spin(), spin(delay=1)), "needs a synchronize"),
    ],
)
def test_refused(tmp_path: Path, benchmark: dict[str, Any], message: str) -> None:
    given = {key: value for key, value in (TIMER | benchmark).items() if value is not None}
    with pytest.raises(WorkloadError, match=f"experiment.json: .*{message}"):
        read(tmp_path, given)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": 1 "b": 2}', "not JSON: .*line 1"),
        ("[]", "not a JSON object"),
        ("[" * 100_000, "not JSON"),
        ('{"max_iterations": ' + "9" * 5000 + "}", "not JSON"),
        ('{"name": "\\ud800"}', "not JSON: .*surrogates not allowed"),
        ('{"benchmarks": []}', "there are no benchmarks"),
        ('{"bench": []}', "unknown key 'bench'"),
        ('{"signalbox": {"speed": 2}, "benchmarks": []}', "unknown key 'speed'"),
    ],
)
def test_no_experiment(text: str, message: str) -> None:
    with pytest.raises(WorkloadError, match=message):
        tables(text, "file")
