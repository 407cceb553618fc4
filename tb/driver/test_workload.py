"""Workload files: what they say, what is refused, and that runs are verified."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

import driver
from driver.device import Device
from driver.replay import VerifyError, run
from driver.report import counted, order_table, pipeline, records_table, stages_table, streams_table
from driver.stream import Stream
from driver.workload import Workload, WorkloadError, load, parse, requests
from tb.driver.fake import SPACE, FakeMachine

EXAMPLES = sorted(Path(driver.__file__).parent.glob("workloads/*.toml"))
IN_OUT = ("in", "out")
STREAM = "[[stream]]\nname = 's'\n"


def play(workload: Workload, kind: str | None = None, machine: FakeMachine | None = None):
    fake = machine or FakeMachine(replace(workload.config, memory_bytes=SPACE))

    async def main():
        device = await Device.open(fake, workload.policy.make(kind), workload.policy.settings())
        return await asyncio.wait_for(run(device, workload, seed=1), 120)

    return asyncio.run(main())


def test_examples_are_there():
    names = [path.stem for path in EXAMPLES]
    assert names == [
        "eight-priorities",
        "fault-repair",
        "published-order",
        "two-spaces",
        "video",
    ]
    assert len(load(EXAMPLES[0]).streams) == 8


@pytest.mark.parametrize("path", EXAMPLES[:4], ids=lambda path: path.stem)
def test_examples_run(path: Path):
    workload = load(path)
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
    assert (pipeline(workload) is not None) == (path.stem == "two-spaces")


def test_copies_of_a_series_are_told_apart():
    text = STREAM + "[[copy]]\nname='f'\nstream='s'\nsize=9\ncount=2\n"
    text += "[[copy]]\nname='g'\nstream='s'\nsize=9\n"
    result = play(parse(text))
    assert result.completion_order() == ["f[0]", "f[1]", "g"]
    names = [line.split()[1] for line in order_table({"a run": result}).splitlines()[3:]]
    assert names == result.completion_order()


def test_numbers_of_things():
    assert counted(1, "copy", "copies") == "1 copy"
    assert counted(2000, "copy", "copies") == "2,000 copies"
    assert (counted(0, "byte"), counted(1, "byte")) == ("0 bytes", "1 byte")


def test_video_is_a_chain():
    workload = load(EXAMPLES[4])
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
    """Streams of two spaces use the same addresses at once; what one brings another can copy on."""
    copied: dict[str, set[tuple[int, int]]] = {}
    submit = Stream.memcpy_async

    async def watched(self, dst, src, size, **options):
        copied.setdefault(self.name, set()).add((dst - dst % 4096, src))
        await submit(self, dst, src, size, **options)

    monkeypatch.setattr(Stream, "memcpy_async", watched)
    play(load(EXAMPLES[3]))
    assert copied["first"] & copied["second"], "the same addresses"


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


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"there is no \[\[stream\]\]"),
        (STREAM, r"there is no \[\[copy\]\]"),
        ("x = ", r"w: not TOML"),
        (
            COPY + "size = 4\nsizes = 3",
            r"w: copy 1 \('c'\): unknown key 'sizes'; known are after, at",
        ),
        ("[stream]\nname='s'", r"stream is not a list of tables: write \[\[stream\]\]"),
        (STREAM + STREAM, r"stream 2 \('s'\): name = 's' is there twice"),
        ("[[stream]]\npriority = 1", r"stream 1: name is missing"),
        (
            "[[stream]]\nname='s'\npriority = 'x'",
            r"stream 1 \('s'\): priority = 'x' is not an integer",
        ),
        (COPY, r"copy 1 \('c'\): size is missing"),
        (COPY + "size = -4", r"copy 1 \('c'\): size = -4 is outside 1 … "),
        (COPY + "size = 4\nwidth = 4", r"size and width exclude each other"),
        (COPY + "width = 4", r"height is missing"),
        (COPY + "width = 4\nheight = 2\ndst_pitch = 3", r"dst_pitch = 3 is outside 4 …"),
        (COPY + "size = 4\nat = true", r"at = True is not an integer"),
        (COPY + "size = 4\ndata = 'noise'", r"data = 'noise' is none of 'random', 'picture'"),
        (COPY + "size = 4\nafter = 'x'", r"after = 'x' is not a list of texts"),
        (COPY + "size = 4\nafter = ['x']", r"copy 1 \('c'\): after = 'x': there is no such copy"),
        (COPY + "size = 4\nafter = ['c']", r"copies wait for each other: c → c"),
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
            r"data is settled by source = 'c'",
        ),
        (
            COPY + "size=4\nafter=['d']\n[[copy]]\nname='d'\nstream='s'\nsize=4\nafter=['c']",
            r"w: copies wait for each other: c → d → c",
        ),
        (
            "[machine]\nchannels = 65\n" + COPY + "size=1",
            r"w: \[machine\]: channels = 65 is outside",
        ),
        ("[machine]\nlanes = 1\n" + COPY + "size=1", r"\[machine\]: unknown key 'lanes'"),
        (
            "[policy]\nkind = 'fair'\n" + COPY + "size=1",
            r"kind = 'fair' is none of 'priority', 'count-first', 'none'",
        ),
        (COPY + "size=1\n[[space]]\nname='a'\n[[space]]\nname='a'", r"space 2 .* is there twice"),
        (
            "[[stream]]\nname='s'\nspace='a'",
            r"stream 1 \('s'\): space = 'a': there is no such address space",
        ),
        (
            "[machine]\nchannels = 1\n[[space]]\nname='a'\n[[stream]]\nname='t'\nspace='a'\n"
            + COPY
            + "size=1",
            r"stream 's': of the channels of priority 0 \(0\) none is usable: other address spaces",
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
            r"levels = 3 need 2 counting semaphores, the machine has 1",
        ),
    ],
)
def test_refused(text: str, message: str):
    with pytest.raises(WorkloadError, match=message):
        parse(text, "w")


def test_file_errors(tmp_path: Path):
    with pytest.raises(WorkloadError, match="cannot be read"):
        load(tmp_path / "missing.toml")
