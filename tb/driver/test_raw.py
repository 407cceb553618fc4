"""Raw pushbuffers: files, images, and the reports of runs."""

import asyncio
import json
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from signalbox.driver.channel.priority_policy import NoPriorityPolicy
from signalbox.driver.commands.pushbuffer import Pushbuffer
from signalbox.driver.device import Device
from signalbox.driver.raw.submission import (
    ImageError,
    MemoryImage,
    load_dwords,
    load_image,
    parse_image,
    run,
)
from signalbox.hw.config import Config
from signalbox.hw.errors import Cause
from signalbox.hw.methods import (
    COMPUTE_CLASSES,
    COPY_CLASSES,
    CeMethod,
    ComputeMethod,
    HostMethod,
    ObjectClass,
    SemOp,
)
from signalbox.tb.driver.fakes.machine import SPACE, FakeMachine
from signalbox.tb.driver.hangs import HANGS
from signalbox.tb.folders import ROOT
from signalbox.tb.simulation import trace
from signalbox.tb.simulation.raw import event_lines

COPIES = Config(sms=0, memory_bytes=SPACE)
"""A machine without a compute engine."""

IMAGE = """
channel = 2
address = 0x10_0000

[[segment]]
name = "source"
address = 0x20_0000
hex = "00 01 02 03"

[[segment]]
name = "target"
address = 0x30_0000
fill = 0x55
size = 8

[[expect]]
address = 0x30_0000
hex = "00 01 02 03 55 55 55 55"

[[semaphore]]
slot = 3
value = 7
"""


def execute(dwords, image: MemoryImage, config: Config | None = None, **options):
    async def main():
        device = await Device.open(FakeMachine(config), NoPriorityPolicy(1))
        return await asyncio.wait_for(run(device, dwords, image, **options), HANGS)

    return asyncio.run(main())


def write(folder: Path, name: str, text: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_run(tmp_path: Path):
    image = load_image(write(tmp_path, "image.toml", IMAGE))
    commands = Pushbuffer().copy(0x30_0000, 0x20_0000, 4).add(0xFF_FFFF_0030, -1)
    commands.host(HostMethod.SET_REFERENCE, 9)
    dwords = load_dwords(write(tmp_path, "pushbuffer.bin", commands.to_bytes()))
    assert dwords == commands.dwords
    report = execute(dwords, image)
    assert report.good
    assert (report.channel, report.methods, report.copies) == (2, 12, 1)
    assert report.reference == 9
    assert report.semaphores == ((3, 7, 6),)
    (change,) = report.changes
    assert (change.segment, change.address) == ("target", 0x30_0000)
    assert (change.before, change.after) == (b"UUUU", bytes(range(4)))
    text = report.timed(100, 342).format()
    for part in (
        "Pushbuffer of 15 dwords on channel 2",
        "LAUNCH_DMA = 0x00000182",
        "Executed: 12 methods in 242 cycles, from the doorbell (cycle 100)",
        "Copied: 1 copy ended",
        "Refused: nothing",
        "semaphore 3: 0x7 → 0x6",
        "0x300000: 4 bytes of target: 55 55 55 55 → 00 01 02 03",
        "As expected:\n  0x300000: 8 bytes of target",
    ):
        assert part in text
    assert "Executed: 12 methods.\n" in report.format()


def test_refused_and_unexpected():
    image = parse_image({"expect": [{"address": 0x30_0000, "hex": "01", "name": "result"}]})
    dwords = Pushbuffer().host(HostMethod.SET_REFERENCE, 1).inc(4, 0x300, 0).raw(0xC000_0000)
    report = execute(dwords.host(HostMethod.SET_REFERENCE, 2).dwords, image)
    assert not report.good
    assert report.error is not None
    assert report.error.cause is Cause.HEADER_RESERVED
    assert report.reference == 1
    text = report.format()
    assert "Refused: channel 0 halted with HEADER_RESERVED" in text
    assert "; it is dword 3 of the pushbuffer." in text
    assert "  To go on: correct the pushbuffer there" in text
    assert "()" not in text  # no advice for programs that drive a channel
    assert "0x300000: 1 byte of result: 00, expected 01" in text
    assert "As expected" not in text


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (
            lambda p: p.raw(0).acquire(0xFF_FFFF_0020, 1),
            "dword 6 wants on-chip semaphore 2 at 0xffffff0020 to be 0x1, there is 0x5;",
        ),
        (
            lambda p: p.acquire(0x30_0000, 7, SemOp.ACQ_STRICT_GEQ),
            "dword 5 wants memory at 0x300000 to be 0x7 or more, there is 0x1;",
        ),
        (
            lambda p: p.inc(0, HostMethod.SEMAPHOREA, 0, 0x30_0000, 6, 8),
            "dword 4 wants memory at 0x300000 to be 1 in a bit of 0x6, there is 0x1;",
        ),
    ],
)
def test_stuck_at_an_acquire(make, words: str):
    image = parse_image({
        "channel": 3,
        "segment": [{"address": 0x30_0000, "hex": "01 00 00 00 02 00 00 00"}],
        "semaphore": [{"slot": 2, "value": 5}],
    })
    commands = Pushbuffer()
    make(commands)
    report = execute(commands.dwords, image, patience=400)
    assert report.stuck is not None
    assert not report.good
    text = report.format()
    assert f"Stuck: channel 3 waits: the acquire of {words} nothing was executed for 400" in text


def test_addresses_are_virtual():
    """An image's addresses are virtual and may be far apart or in the first page; the pushbuffer
    may share a page with the image."""
    image = parse_image({
        "address": 0x40,
        "segment": [
            {"address": 0, "hex": "01 02 03 04"},
            {"address": 0xFF_0000_0FFE, "fill": 0, "size": 4},
        ],
        "expect": [{"address": 0xFF_0000_0FFE, "hex": "01 02 03 04"}],
    })
    report = execute(Pushbuffer().copy(0xFF_0000_0FFE, 0, 4).dwords, image)
    assert report.good, report.format()


def test_memory_that_is_not_named():
    report = execute(Pushbuffer().copy(0x30_0000, 0x20_0000, 4).dwords, MemoryImage())
    assert report.error is not None and report.error.cause is Cause.COPY_READ_FAULT
    text = report.format()
    assert "read of 0x200000 in address space 'image' (ASID 0) faulted with PDE" in text
    assert "  To go on: name the memory there, by a [[segment]] or an [[expect]]" in text


def test_cut_short():
    """The machine waits for the rest of a group and reports no error."""
    dwords = [*Pushbuffer().host(HostMethod.SET_REFERENCE, 5).dwords, 0x2004_8100, 0, 0x20_0000]
    report = execute(dwords, MemoryImage())
    assert (report.error, report.stuck) == (None, None)
    assert not report.good
    text = report.format()
    assert "Cut short: the pushbuffer ends inside the method group of dword 1 (0x20048100)" in text
    assert "the group lacks 2 of its 4 dwords" in text


def test_advice_is_for_who_writes_files():
    report = execute(Pushbuffer().inc(3, 0x300, 0).dwords, MemoryImage(), COPIES)
    text = report.format()
    assert "OBJECT_UNBOUND" in text and "it is dword 1 of the pushbuffer" in text
    assert (
        "To go on: bind the copy class (SET_OBJECT 0xc7b5 or 0xc6b5) there, or use subchannel 4"
        in text
    )


COMPUTE = ObjectClass.COMPUTE
ACTION = ComputeMethod.SEND_SIGNALING_PCAS2_B


@pytest.mark.parametrize(
    ("commands", "parts"),
    [
        (
            Pushbuffer().launch_task(0x20_0000),
            (
                "halted with TASK_MODEL (HCE_RE_ILLEGAL_OP)",
                "at SEND_SIGNALING_PCAS2_B = 0x00000002 (SCHEDULE) of subchannel 1",
                "To go on: correct the task's record in the image: QMD V03_00 of the compute class",
            ),
        ),
        (
            Pushbuffer().launch_task(0x30_0000),
            ("TASK_FAULT", "To go on: name the memory there, by a [[segment]] or an [[expect]]"),
        ),
        (
            Pushbuffer().set_object(3, COMPUTE).method(3, ACTION, 15),
            ("COMPUTE_MODE", "at SEND_SIGNALING_PCAS2_B = 0x0000000f of subchannel 3"),
        ),
        (
            Pushbuffer().set_object(1, ObjectClass.COPY).inc(1, ACTION, 1),
            ("COPY_METHOD", "at method 0x2c0 = 0x00000001 of subchannel 1"),
        ),
        (
            Pushbuffer().inc(3, 0x300, 0),
            (
                "OBJECT_UNBOUND",
                "at method 0x300 = 0x00000000 of subchannel 3",
                "To go on: bind the copy class (SET_OBJECT 0xc7b5 or 0xc6b5) or the compute class",
                "(0xc6c0, 0xc7c0 or 0xc9c0)",
                "there, or use subchannel 4 or 1, which have them",
            ),
        ),
        (
            Pushbuffer().set_object(3, 0x1234),
            (
                "To go on: name the copy class, 0xc7b5 or 0xc6b5, or the compute class, 0xc6c0,",
                "0xc7c0 or 0xc9c0; there is no other",
            ),
        ),
    ],
)
def test_refused_with_compute_engine(commands: Pushbuffer, parts: tuple[str, ...]):
    """A refusal names the class bound to the subchannel, and both available classes."""
    empty = {"address": 0x20_0000, "fill": 0, "size": 256, "name": "record"}
    text = execute(commands.dwords, parse_image({"segment": [empty]})).format()
    for part in parts:
        assert part in text, text


@pytest.mark.parametrize(
    ("named", "advice"),
    [
        (0x1234, "To go on: name the copy class, 0xc7b5 or 0xc6b5; there is no other."),
        (COMPUTE, "To go on: build a machine with the compute class: --sms N; this one has the co"),
    ],
)
def test_class_without_compute_engine(named: int, advice: str):
    text = execute(Pushbuffer().set_object(1, named).dwords, MemoryImage(), COPIES).format()
    assert advice in text, text
    sent = execute(Pushbuffer().inc(1, ACTION, 2).dwords, MemoryImage(), COPIES).format()
    assert "subchannel 1 method 0x2c0 = 0x00000002" in sent, "nothing is bound there"


@pytest.mark.parametrize("copies", COPY_CLASSES)
@pytest.mark.parametrize("computes", COMPUTE_CLASSES)
def test_equal_classes(copies: int, computes: int):
    """Classes with the same methods are accepted alike, named in the report, and read back
    (HOST-13)."""
    commands = Pushbuffer().set_object(2, computes).set_object(3, copies).wait_tasks()
    commands.immediate(2, ComputeMethod.NOP, 1).immediate(3, CeMethod.PITCH_IN, 1)
    report = execute(commands.dwords, parse_image({}))
    text = report.format()
    assert report.good, text
    assert f"Bound: 0xc6c0 to subchannel 1, {computes:#x} to subchannel 2, {copies:#x} to" in text
    assert "subchannel 2 NOP = 0x00000001" in text
    assert "subchannel 3 PITCH_IN = 0x00000001" in text


def test_inline_transfer():
    """Data from the pushbuffer reach memory; unmodelled modes and wrong orders of methods are
    refused (HOST-14)."""
    image = parse_image({
        "segment": [{"address": 0x30_0000, "fill": 0x55, "size": 16, "name": "target"}],
        "expect": [{"address": 0x30_0000, "hex": "55 55 55 41 42 43 44 45 55"}],
    })
    report = execute(Pushbuffer().write_inline(0x30_0003, b"ABCDE").dwords, image)
    assert report.good, report.format()
    assert "LAUNCH_DMA = 0x00000011  (pitch, completion FLUSH_ONLY)" in report.format()
    for commands, parts in (
        (Pushbuffer().inc(1, 0x180, 4, 1).immediate(1, 0x1B0, 0), ("COMPUTE_MODE",)),
        (Pushbuffer().immediate(1, 0x1B0, 1), ("INLINE_ZERO", "To go on: write LINE_LENGTH_IN")),
        (
            Pushbuffer().immediate(1, 0x1B4, 1),
            ("INLINE_ORDER", "at LOAD_INLINE_DATA", "To go on: LAUNCH_DMA comes first, then"),
        ),
        (
            Pushbuffer()
            .inc(1, 0x180, 5, 1)
            .immediate(1, 0x1B0, 1)
            .immediate(1, 0x1B4, 1)
            .wait_tasks(),
            ("INLINE_ORDER", "at WAIT_FOR_IDLE", "no other compute method before the last one"),
        ),
        (Pushbuffer().write_inline(0x77_0000, b"1"), ("INLINE_FAULT", "address 0x770000")),
    ):
        text = execute(commands.dwords, image).format()
        for part in parts:
            assert part in text, text


def test_methods_without_effect():
    """Executed compute methods for state that the machine lacks are named (HOST-14)."""
    commands = Pushbuffer().immediate(1, 0x310, 5).inc(1, 0x2A0, 1, 2).immediate(1, 0x3C00, 7)
    commands.wait_tasks().immediate(4, CeMethod.PITCH_IN, 1)
    text = execute(commands.dwords, parse_image({})).format()
    lines = text[text.index("Without effect:") :].splitlines()[1:5]
    assert [line.split(": subchannel 1 ")[1] for line in lines] == [
        "SET_SPA_VERSION = 0x00000005",
        "SET_SHADER_SHARED_MEMORY_WINDOW_A = 0x00000001",
        "SET_SHADER_SHARED_MEMORY_WINDOW_B = 0x00000002",
        "method 0x3c00 = 0x00000007",
    ]
    early = Pushbuffer().raw(0xC000_0000).immediate(1, 0x310, 5)
    assert "Without effect: nothing." in execute(early.dwords, parse_image({})).format()


def test_events_name_the_class_of_the_subchannel():
    events = [
        trace.Method(1, 0, 1, ACTION, 2),
        trace.Method(2, 0, 1, HostMethod.SET_OBJECT, ObjectClass.COPY),
        trace.Method(3, 0, 1, 0x300, 0x182),
        trace.Method(4, 1, 4, HostMethod.SET_OBJECT, COMPUTE),
        trace.Method(5, 0, 4, 0x300, 0x182),
        trace.Method(6, 0, 3, 0x300, 0x182),
    ]
    lines = [line.partition(": ")[2] for line in event_lines(events, 0, compute=True)]
    launch = "LAUNCH_DMA = 0x00000182  (transfer NON_PIPELINED, src_pitch, dst_pitch)"
    assert lines == [
        "subchannel 1 SEND_SIGNALING_PCAS2_B = 0x00000002  (SCHEDULE)",
        "subchannel 1 SET_OBJECT = 0x0000c7b5",
        f"subchannel 1 {launch}",
        f"subchannel 4 {launch}",
        "subchannel 3 method 0x300 = 0x00000182",
    ]
    (bare, *_) = event_lines(events, 0, compute=False)
    assert bare == "1: subchannel 1 method 0x2c0 = 0x00000002"


def test_expectations_are_named_after_their_segment():
    image = parse_image({
        "segment": [{"address": 0x20_0000, "fill": 0, "size": 64, "name": "target"}],
        "expect": [
            {"address": 0x20_0010, "hex": "01"},
            {"address": 0x20_0020, "hex": "00", "name": "mine"},
            {"address": 0x20_0040, "hex": "00"},
        ],
    })
    assert [segment.name for segment in image.expected] == ["target", "mine", "0x200040"]
    text = execute([0], image).format()
    assert "Not as expected:\n  0x200010: 1 byte of target: 00, expected 01" in text
    assert "As expected:\n  0x200020: 1 byte of mine\n  0x200040: 1 byte of 0x200040" in text


def test_privileged():
    reserved: Any = 5
    dwords = Pushbuffer().mem_op(reserved).dwords
    assert execute(dwords, parse_image({"privileged": True})).good
    refused = execute(dwords, MemoryImage())
    assert refused.error is not None
    assert refused.error.cause is Cause.METHOD_PRIVILEGED


def test_json(tmp_path: Path):
    write(tmp_path, "data.bin", bytes(100))
    tables = {"segment": [{"address": "0x200000", "file": "data.bin"}]}
    image = load_image(write(tmp_path, "image.json", json.dumps(tables)))
    assert image.segments[0].end == 0x20_0064


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("chanel = 1", r"image.toml: the top level: unknown key 'chanel'; known keys: address, "),
        ("channel = -1", r"channel = -1 is not a number of 40 bits"),
        ("privileged = 1", r"privileged = 1 is not true or false"),
        ("address = 0x1002", r"address = 0x1002 is not a multiple of 4"),
        ("segment = 1", r"segment is not a list of tables"),
        ("[[segment]]\nhex = '00'", r"segment 1: address is missing"),
        ("[[segment]]\naddress = 0", r"segment 1: give exactly one of hex, file, fill"),
        ("[[segment]]\naddress = 0\nhex = 'xy'", r"segment 1: hex = 'xy': non-hexadecimal"),
        ("[[segment]]\naddress = 0\nhex = ''", r"segment 1: it has no bytes"),
        ("[[segment]]\naddress = 0\nfile = 'no.bin'", r"file = 'no.bin': .*No such file"),
        ("[[segment]]\naddress = 0\nfill = 1", r"segment 1: size is missing"),
        ("[[segment]]\naddress = 0\nfill = 256\nsize = 1", r"fill = 256 is not a number of 8 bits"),
        ("[[segment]]\naddress = 0\nhex = '00'\nsize = 1", r"size is for fill, not for hex"),
        ("[[semaphore]]\nslot = 1", r"semaphore 1: value is missing"),
        ("[[semaphore]]\nslot = 1\nvalue = 2\n" * 2, r"semaphore 2: slot 1 has a value already"),
        ("=", r"image.toml: cannot be parsed"),
        ("channel = " + 5000 * "1", r"image.toml: cannot be parsed: .* digits"),
        ("channel = 0x" + 5000 * "f", r"image.toml: cannot be parsed: .* digits"),
        ("channel = " + 5000 * "[", r"image.toml: cannot be parsed: "),
        ("channel" + 5000 * ".x" + " = 1", r"image.toml: "),
        (
            "[[segment]]\naddress=0\nhex='0000'\n[[segment]]\naddress=1\nhex='00'",
            r"segments '0x0' \(0x0 … 0x2\) and '0x1' \(0x1 …\) overlap",
        ),
    ],
)
def test_image_errors(tmp_path: Path, text: str, message: str):
    with pytest.raises(ImageError, match=message):
        load_image(write(tmp_path, "image.toml", text))


def test_large_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Path, "read_bytes", Mock(side_effect=MemoryError))
    with pytest.raises(ImageError, match="segment 1: there is not enough memory for its bytes"):
        load_image(write(tmp_path, "image.toml", "[[segment]]\naddress = 0\nfile = 'large'"))


def test_example():
    """The user guide's pushbuffer runs."""
    folder = ROOT / "driver" / "pushbuffers"
    report = execute(load_dwords(folder / "copy.txt"), load_image(folder / "copy.toml"))
    assert report.good
    assert (report.methods, report.copies, report.reference) == (12, 1, 9)
    assert report.semaphores == ((1, 4, 7),)


def test_file_errors(tmp_path: Path):
    with pytest.raises(ImageError, match=r"odd.txt:2: 'nop' is not a hexadecimal dword"):
        load_dwords(write(tmp_path, "odd.txt", "1 2 # 3\nnop"))
    with pytest.raises(ImageError, match=r"long.txt:1: 123456789 does not fit 32 bits"):
        load_dwords(write(tmp_path, "long.txt", "123456789"))
    with pytest.raises(ImageError, match="is empty"):
        load_dwords(write(tmp_path, "empty.txt", "# nothing"))
    with pytest.raises(ImageError, match="5 bytes are not a whole number of 4-byte dwords"):
        load_dwords(write(tmp_path, "odd.bin", bytes(5)))
    with pytest.raises(ImageError, match="is empty"):
        load_dwords(write(tmp_path, "empty.bin", b""))
    with pytest.raises(ImageError, match="cannot be read"):
        load_dwords(tmp_path / "missing.bin")
    with pytest.raises(ImageError, match="this is a memory image, not a pushbuffer"):
        load_dwords(write(tmp_path, "image.toml", ""))


def test_does_not_fit():
    with pytest.raises(ImageError, match=r"channel = 9: the device has channels 0 … 7"):
        execute([0], MemoryImage(channel=9))
    large = parse_image({"segment": [{"address": 0xFF_0000_0000, "fill": 0, "size": SPACE}]})
    with pytest.raises(
        ImageError, match=r"no room for all of the image: no free range of 8388608 bytes .* --mem"
    ):
        execute([0], large)
    for room in (3 << 12, 1 << 15, 1 << 16):  # too small for root, page tables, channel
        with pytest.raises(ImageError, match=r"no room for all of the image: .* --memory-bytes"):
            execute([0], MemoryImage(), Config(sms=0, memory_bytes=room))
    window = parse_image({"segment": [{"address": 0xFF_FFFF_0010, "hex": "00"}]})
    with pytest.raises(
        ImageError, match=r"0xffffff0000 … 0xffffff1000 cannot be mapped: .* window"
    ):
        execute([0], window)
    with pytest.raises(ImageError, match=r"semaphore slot = 64: the device has 0 … 63"):
        execute([0], MemoryImage(semaphores={64: 0}))
    over = parse_image({"address": 0x20_0000, "segment": [{"address": 0x20_0000, "hex": "00"}]})
    with pytest.raises(ImageError, match=r"address = 0x200000: the pushbuffer .* overlaps a segm"):
        execute([0], over)
    with pytest.raises(ImageError, match="0 dwords"):
        execute([], MemoryImage())
