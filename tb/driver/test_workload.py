"""Workload files: contents, refused files, and verification of runs."""

import asyncio
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from signalbox import driver
from signalbox.driver.device import Device
from signalbox.driver.faults.channel_error import ChannelError
from signalbox.driver.memory.physical import OutOfMemory
from signalbox.driver.runtime.stream import Stream
from signalbox.driver.workload.expected_data import ExpectedData
from signalbox.driver.workload.reader import load, parse
from signalbox.driver.workload.records import SpaceRecord
from signalbox.driver.workload.repairs import Repairs
from signalbox.driver.workload.replay import VerifyError, run
from signalbox.driver.workload.report import (
    common_addresses,
    counted,
    faults,
    order_table,
    pipeline,
    records_table,
    stages_table,
    streams_table,
)
from signalbox.driver.workload.specs import Workload, requests
from signalbox.driver.workload.toml_table import WorkloadError
from signalbox.tb.driver.fakes.machine import SPACE, FakeMachine
from signalbox.tb.driver.hangs import HANGS

EXAMPLES = {
    path.stem: path for path in sorted(Path(driver.__file__).parent.glob("workloads/*.toml"))
}
COPIES = ("eight-priorities", "fault-repair", "published-order", "runlist", "two-spaces")
IN_OUT = ("in", "out")
STREAM = "[[stream]]\nname = 's'\n"


def play(workload: Workload, kind: str | None = None, machine: FakeMachine | None = None):
    fake = machine or FakeMachine(replace(workload.config, memory_bytes=SPACE))

    async def main():
        policy = workload.policy
        device = await Device.open(
            fake, policy.make(kind), policy.settings(), scheduling=policy.scheduling
        )
        return await asyncio.wait_for(run(device, workload, seed=1), HANGS)

    return asyncio.run(main())


def test_run_again():
    """A run leaves no streams, address spaces or memory behind."""
    workload = load(EXAMPLES["two-spaces"])
    machine = FakeMachine(replace(workload.config, memory_bytes=SPACE))

    async def main():
        device = await Device.open(machine, workload.policy.make(None), workload.policy.settings())
        left: set[tuple[int, int, int]] = set()
        for seed in range(3):
            await asyncio.wait_for(run(device, workload, seed=seed), HANGS)
            left.add((device.memory.free_bytes, len(device.channels), len([*device.spaces])))
        assert len(left) == 1
        await device.close()

    asyncio.run(main())


WORK = """
[machine]
save_places = 8
nested_kernels = 60
[limits]
nesting_depth = 4
[[space]]
name = "other"
[[stream]]
name = "t"
space = "other"
[[stream]]
name = "s"
[[copy]]
stream = "t"
size = 100
[[nested]]
name = "sort"
kernel = "merge sort"
stream = "s"
n = 150
[[kernel]]
name = "last"
kernel = "spin"
stream = "t"
grid = 1
block = 32
args = { CYCLES = 7 }
"""


def test_failed_run(monkeypatch: pytest.MonkeyPatch):
    """A run that fails leaves nothing behind either: in its preparation, wherever memory runs out,
    or at its end."""
    workload = parse(WORK)
    machine = FakeMachine(replace(workload.config, memory_bytes=SPACE))

    async def main():
        device = await Device.open(machine, workload.policy.make(None), workload.policy.settings())

        def left() -> tuple[int, ...]:
            sizes = len(device.channels), len([*device.spaces]), len(device._streams)
            return device.memory.free_bytes, *sizes

        await run(device, workload)
        before, allocate = left(), device.memory.allocate
        most, count = 0, 0

        def scarce(*args: Any, **options: Any):
            nonlocal count
            count += 1
            if count > most:
                raise OutOfMemory("no more")
            return allocate(*args, **options)

        with monkeypatch.context() as patch:
            patch.setattr(device.memory, "allocate", scarce)
            while count >= most:
                most, count = most + 1, 0
                with suppress(OutOfMemory):
                    await run(device, workload)
                assert left() == before, most
        assert most > 20
        monkeypatch.setattr(ExpectedData, "verify", Mock(side_effect=VerifyError("wrong")))
        with pytest.raises(VerifyError):
            await run(device, workload)
        assert left() == before

    asyncio.run(main())


def test_examples_are_there():
    assert list(EXAMPLES) == [
        "eight-priorities",
        "fault-repair",
        "flat",
        "many-sms",
        "nested",
        "never-ending",
        "published-order",
        "runlist",
        "two-applications",
        "two-spaces",
        "video",
    ]
    assert len(load(EXAMPLES["eight-priorities"]).streams) == 8


@pytest.mark.parametrize("name", COPIES)
def test_examples_run(name: str):
    workload = load(EXAMPLES[name])
    results = {kind: play(workload, kind) for kind in ("priority", "none")}
    for result in results.values():
        assert len(result.records) == sum(copy.count for copy in workload.copies)
        assert result.total_cycles == max(record.completed for record in result.records)
        assert all(record.latency > 0 for record in result.records)
    text = streams_table(results)
    assert all(stream.name in text for stream in workload.streams)
    text = order_table(results)
    assert all(copy.name in text for copy in workload.copies)
    shown = records_table(results["none"])
    assert all(results["none"].title(record) in shown for record in results["none"].records)
    assert (pipeline(workload) is not None) == (name == "two-spaces")


def test_copies_of_a_series_are_told_apart():
    text = STREAM + "[[copy]]\nname='f'\nstream='s'\nsize=9\ncount=2\n"
    text += "[[copy]]\nname='g'\nstream='s'\nsize=9\n"
    result = play(parse(text))
    assert result.completion_order() == ["f[0]", "f[1]", "g"]
    names = [line.split()[1] for line in order_table({"a run": result}).splitlines()[3:]]
    assert names == result.completion_order()


def test_gain_is_told_when_runs_are_compared():
    once = play(parse(STREAM + "[[copy]]\nstream='s'\nsize=9\ncount=2\n"))
    late = [replace(one, completed=one.completed + one.latency) for one in once.records]
    slow = replace(once, records=late)
    assert "gain" not in streams_table({"one": once})
    head, _, row = streams_table({"one": once, "other": slow}).splitlines()[1:]
    assert (head.split()[-1], row.split()[-1]) == ("gain", "2.00x")


def test_numbers_of_things():
    assert counted(1, "copy", "copies") == "1 copy"
    assert counted(2000, "copy", "copies") == "2,000 copies"
    assert (counted(0, "byte"), counted(1, "byte")) == ("0 bytes", "1 byte")


def test_video_is_a_chain():
    workload = load(EXAMPLES["video"])
    stages = [copy.name for copy in workload.copies if "bulk" not in copy.name]
    assert stages == [f"{s} {d}" for s in ("decode", "scale", "filter", "encode") for d in IN_OUT]
    priorities = {stream.name: stream.priority for stream in workload.streams}
    assert all((priorities[name] == 0) == ("bulk" in name) for name in priorities)
    short = tuple(replace(copy, count=min(copy.count, 2)) for copy in workload.copies)
    result = play(replace(workload, copies=short))
    for frame in range(2):
        ends = [result.of(name)[frame].completed for name in stages]
        assert ends == sorted(ends)
    line = pipeline(result.workload)
    assert line is not None
    assert line.frames == 2
    text = stages_table(line, {"priority": result})
    assert all(name in text for name in ("decode", "scale", "filter", "encode", "whole frame"))


def test_the_longest_chain():
    """A series may be the source of several others, of which only one leads on."""
    text = STREAM + "[[stream]]\nname = 't'\n"
    for name, source in (("a", ""), ("b", "a"), ("c", "b"), ("side", "a")):
        text += f"[[copy]]\nname = '{name}'\nsize = 9\ncount = 2\n"
        text += f"stream = '{'t' if name > 'b' else 's'}'\n"
        text += f"source = '{source}'\n" if source else ""
    line = pipeline(parse(text))
    assert line is not None and [spec.name for spec in line.series] == ["a", "b", "c"]


def test_images_offsets_and_sources():
    text = (
        STREAM
        + """
[[copy]]
name = "a"
stream = "s"
width = 10
height = 4
src_pitch = 17
dst_pitch = 13
src_offset = 3
dst_offset = 5
data = "picture"
count = 2

[[copy]]
name = "b"
stream = "s"
width = 10
height = 4
source = "a"
count = 2
"""
    )
    result = play(parse(text))
    assert [record.name for record in result.records] == ["a", "a", "b", "b"]


def test_spaces(monkeypatch: pytest.MonkeyPatch):
    """Streams of two spaces use the same addresses at once, and one can copy from the other's
    buffer."""
    copied: dict[str, set[tuple[int, int]]] = {}
    submit = Stream.memcpy_async

    async def watched(self, dst, src, size, **options):
        copied.setdefault(self.name, set()).add((dst - dst % 4096, src))
        await submit(self, dst, src, size, **options)

    monkeypatch.setattr(Stream, "memcpy_async", watched)
    result = play(load(EXAMPLES["two-spaces"]))
    assert copied["first"] & copied["second"], "the same addresses"
    for one, two in zip(result.of("a"), result.of("b"), strict=True):
        assert one.completed - one.latency < two.completed
        assert two.completed - two.latency < one.completed
    spaces = {space.name: space for space in result.spaces}
    assert sorted(spaces) == ["device", "first program", "second program"]
    assert [space.asid for space in result.spaces] == [0, 1, 2]
    for stream, name in (("first", "first program"), ("second", "second program")):
        for addresses in copied[stream]:
            for va in addresses:
                assert any(first <= va <= last for first, last in spaces[name].addresses)
    ranges = [addresses for space in result.spaces for addresses in space.addresses]
    assert all((last + 1 - first) % 4096 == 0 for first, last in ranges), "whole pages"


def test_common_addresses():
    one = SpaceRecord("one", 0, ((0, 9), (20, 29)))
    two = SpaceRecord("two", 1, ((5, 24), (40, 49)))
    assert common_addresses([]) == []
    assert common_addresses([one]) == [(0, 9), (20, 29)]
    assert common_addresses([one, two]) == [(5, 9), (20, 24)]
    assert common_addresses([one, two, SpaceRecord("three", 2, ((40, 49),))]) == []


def test_fault_repair_resume():
    """A copy and its stream's later work wait for the repair, other streams do not; both faults are
    reported."""
    workload = load(EXAMPLES["fault-repair"])
    result = play(workload)
    told = [(fault.name, fault.index, fault.stream) for fault in result.faults]
    assert told == [("late destination", 0, "faulting"), ("late source", 0, "faulting")]
    shown = " ".join(faults(result).split())
    for fault, access in zip(result.faults, ("write", "read"), strict=True):
        assert fault.report.startswith(f"{access} of 0x")
        assert "in address space 'first program' (ASID 0) faulted with" in fault.report
        assert "copy engine 0 (client 3 of HUB)" in fault.report
        (copy,) = result.of(fault.name)
        (spec,) = (copy for copy in workload.copies if copy.name == fault.name)
        assert fault.faulted + spec.repair_after <= fault.resumed
        assert fault.faulted < copy.completed < fault.resumed
        assert fault.report in shown
    first = result.faults[0]
    assert result.of("behind")[0].completed > first.resumed
    others = [record for name in ("neighbour", "other") for record in result.of(name)]
    assert max(record.latency for record in others) < 1000
    meanwhile = sum(first.faulted < record.completed < first.resumed for record in others)
    assert meanwhile >= 3
    assert f"{meanwhile} copies of other streams ended" in shown


@pytest.mark.parametrize("kind", ["priority", "none"])
@pytest.mark.parametrize("missing", ["source", "destination"])
def test_series_of_faults(kind: str, missing: str):
    """Each copy of a series faults, in several channels, and another stream copies its results."""
    text = """
[[space]]
name = "x"
"""
    for name, priority in (("a", 0), ("b", -1)):
        text += f"""
[[stream]]
name = "{name}"
priority = {priority}
space = "x"
[[copy]]
name = "{name}"
stream = "{name}"
width = 300
height = 3
dst_offset = 7
count = 3
period = 700
unmapped = "{missing}"
repair_after = 100
"""
    text += "[[stream]]\nname = 'own'\n[[copy]]\nname = 'on'\nstream = 'own'\n"
    text += "source = 'a'\ncount = 3\nwidth = 300\nheight = 3\n"
    text += "[machine]\nchannels = 4\n"
    result = play(parse(text), kind)
    told = [(fault.name, fault.index) for fault in result.faults]
    assert sorted(told) == [(name, index) for name in "ab" for index in range(3)]
    assert len(result.records) == 9


SPIN = (
    "[[kernel]]\nname='k'\nstream='s'\nkernel='spin'\ngrid=1\nblock=1\nargs={CYCLES=1}\ndelay=10\n"
)
MANY = "[[copy]]\nname='k'\nstream='s'\nsize=4\ncount=100\nperiod=100\n"


@pytest.mark.parametrize("behind", [SPIN, MANY], ids=["delay", "series"])
def test_repairs_between_requests(behind: str):
    """A copy is repaired while the next work waits for its end, and between frequent requests."""
    text = "[[copy]]\nname = 'c'\nstream = 's'\nsize = 9\nunmapped = 'destination'\n"
    result = play(parse(STREAM + text + behind))
    (fault,) = result.faults
    assert fault.resumed - fault.faulted < 1000
    assert all(fault.resumed < record.completed for record in result.kernels)


def test_other_errors_end_the_run(monkeypatch: pytest.MonkeyPatch):
    """Errors not requested by the workload are not repaired."""

    async def lose(self: Repairs, copy: tuple[str, int], stream: Stream, va: int, after: int):
        mapping = stream.space.find(va)
        assert mapping is not None
        await stream.space.unmap(mapping)

    monkeypatch.setattr(Repairs, "take_away", lose)
    with pytest.raises(ChannelError, match="the copy's destination is not mapped"):
        play(load(EXAMPLES["fault-repair"]))


def test_wrong_bytes_are_noticed():
    class Broken(FakeMachine):
        def memory_read(self, address, size):
            data = super().memory_read(address, size)
            return data[:7] + bytes([data[7] ^ 1]) + data[8:] if size == 100 + 32 else data

    workload = parse(STREAM + "[[copy]]\nname = 'c'\nstream = 's'\nsize = 100")
    machine = Broken(replace(workload.config, memory_bytes=SPACE))
    with pytest.raises(
        VerifyError, match=r"c\[0\]: 1 of 132 bytes are wrong; the first at .*byte 7"
    ):
        play(workload, machine=machine)


def test_order_of_requests():
    text = (
        STREAM
        + """
[[copy]]
name = "late"
stream = "s"
size = 1
at = 10
after = ["first", "series"]

[[copy]]
name = "series"
stream = "s"
size = 1
at = 5
count = 1

[[copy]]
name = "first"
stream = "s"
size = 1
at = 30
"""
    )
    order = [(request.spec.name, request.at) for request in requests(parse(text).copies)]
    assert order == [("series", 5), ("first", 30), ("late", 30)]


COPY = STREAM + "[[copy]]\nname = 'c'\nstream = 's'\n"


def test_long_chains():
    """Long chains of dependencies, with many paths to each copy, can be ordered."""
    tables = [STREAM]
    for number in reversed(range(1500)):
        after = [f"{side}{number - 1}" for side in "ab"] if number else []
        for side in "ab":
            name = f"{side}{number}"
            tables.append(f"[[copy]]\nname='{name}'\nstream='s'\nsize=4\nafter={after}\n")
    found = requests(parse("".join(tables)).copies)
    names = [f"{side}{number}" for number in range(1500) for side in "ab"]
    assert [request.spec.name for request in found] == names


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"there is no \[\[stream\]\]"),
        (STREAM, r"there is no \[\[copy\]\]"),
        ("x = ", r"w: not TOML"),
        ("x = " + 5000 * "[", r"w: not TOML"),
        ("x = " + 5000 * "1", r"w: not TOML"),
        ("[machine]\nsms = 0x" + 5000 * "f", r"w: not TOML: .* digits"),
        ("[machine]\nsms" + 5000 * ".x" + " = 1", r"w: "),
        (
            COPY + "size = 4\nsizes = 3",
            r"w: copy 1 \('c'\): unknown key 'sizes'; known keys: after, at",
        ),
        ("[stream]\nname='s'", r"stream is not a list of tables: write \[\[stream\]\]"),
        (STREAM + STREAM, r"stream 2 \('s'\): name = 's' is used twice"),
        ("[[stream]]\npriority = 1", r"stream 1: name is missing"),
        (
            "[[stream]]\nname='s'\npriority = 'x'",
            r"stream 1 \('s'\): priority = 'x' is not an integer",
        ),
        (COPY, r"copy 1 \('c'\): size is missing"),
        (COPY + "size = -4", r"copy 1 \('c'\): size = -4 is outside 1 … "),
        (COPY + "size = 4\nwidth = 4", r"size and width are mutually exclusive"),
        (COPY + "width = 4", r"height is missing"),
        (COPY + "size = 4294967296", r"size = 4294967296 is outside 1 … 4294967295"),
        (COPY + "width = 4294967296\nheight = 1", r"width = 4294967296 is outside 1 … 4294967295"),
        (COPY + "width = 1\nheight = 4294967296", r"height = 4294967296 is outside 1 … 4294967295"),
        (COPY + "width = 4\nheight = 2\ndst_pitch = 3", r"dst_pitch = 3 is outside 4 …"),
        (COPY + "size = 4\nat = true", r"at = True is not an integer"),
        (COPY + "size = 4\ndata = 'noise'", r"data = 'noise' is not one of 'random', 'picture'"),
        (
            COPY + "size = 4\nunmapped = 'all'",
            r"unmapped = 'all' is not one of 'source', 'destination'",
        ),
        (COPY + "size = 4\nunmapped = true", r"unmapped = True is not a string"),
        (COPY + "size = 4\nrepair_after = 9", r"copy 1 \('c'\): repair_after needs unmapped"),
        (
            COPY + "size = 4\nunmapped = 'source'\nrepair_after = -1",
            r"repair_after = -1 is outside",
        ),
        (
            COPY + "size = 4\n[[copy]]\nstream='s'\nsize=4\nsource='c'\nunmapped='source'",
            r"copy 2: unmapped = 'source' is for fresh data, not for those of another copy",
        ),
        (COPY + "size = 4\nafter = 'x'", r"after = 'x' is not a list of strings"),
        (COPY + "size = 4\nafter = ['x']", r"copy 1 \('c'\): after = 'x': there is no such copy"),
        (COPY + "size = 4\nafter = ['c']", r"copies or kernels wait for each other: c → c"),
        (STREAM + "[[copy]]\nstream='t'\nsize=1", r"copy 1: stream = 't': there is no such stream"),
        (
            COPY
            + "size = 4\ncount = 3\n[[copy]]\nstream = 's'\nsize = 4\ncount = 2\nafter = ['c']",
            r"copy 2: after = 'c': that is a series of 3, this one of 2",
        ),
        (
            COPY + "size = 4\n[[copy]]\nstream = 's'\nsize = 5\nsource = 'c'",
            r"copy 2: source = 'c': that copy is 4 × 1 bytes, this one 5 × 1",
        ),
        (
            COPY + "size = 4\n[[copy]]\nstream = 's'\nsize = 4\nsource = 'c'\ndata = 'random'",
            r"data is determined by source = 'c'",
        ),
        (
            COPY + "size=4\nafter=['d']\n[[copy]]\nname='d'\nstream='s'\nsize=4\nafter=['c']",
            r"w: copies or kernels wait for each other: c → d → c",
        ),
        (
            "[machine]\nchannels = 65\n" + COPY + "size=1",
            r"w: \[machine\]: channels = 65 is outside",
        ),
        ("[machine]\nwheels = 1\n" + COPY + "size=1", r"\[machine\]: unknown key 'wheels'"),
        (
            "[policy]\nkind = 'fair'\n" + COPY + "size=1",
            r"kind = 'fair' is not one of 'priority', 'count-first', 'none'",
        ),
        (COPY + "size=1\n[[space]]\nname='a'\n[[space]]\nname='a'", r"space 2 .* is used twice"),
        (
            "[[stream]]\nname='s'\nspace='a'",
            r"stream 1 \('s'\): space = 'a': there is no such address space",
        ),
        (
            "[machine]\nchannels = 1\n[[space]]\nname='a'\n[[stream]]\nname='t'\nspace='a'\n"
            + COPY
            + "size=1",
            r"stream 's': none of the channels of priority 0 \(0\) is usable: other address spaces",
        ),
        (
            "[machine]\nasids = 1\n[[space]]\nname='a'\n[[stream]]\nname='t'\nspace='a'\n"
            + COPY
            + "size=1",
            r"w: its streams are in 2 address spaces, the machine has 1 ASIDs \(asids\)",
        ),
        ("[policy]\nslice = 0\n" + COPY + "size=1", r"\[policy\]: slice = 0 is outside"),
        ("[policy]\nlevels = 9\n" + COPY + "size=1", r"9 levels need 9 channels, the device has 8"),
        (
            "[policy]\nchannels_per_level = [1, 2]\nlevels = 1\n" + COPY + "size=1",
            r"channels_per_level names 2 levels, not 1",
        ),
        (
            "[machine]\ncounters = 1\n[policy]\nlevels = 3\n" + COPY + "size=1",
            r"levels = 3 needs 2 counting semaphores, the machine has 1",
        ),
    ],
)
def test_refused(text: str, message: str):
    with pytest.raises(WorkloadError, match=message):
        parse(text, "w")


def test_file_errors(tmp_path: Path):
    with pytest.raises(WorkloadError, match="cannot be read"):
        load(tmp_path / "missing.toml")
