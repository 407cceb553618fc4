"""Raw pushbuffers on the RTL."""

import re
from pathlib import Path

import pytest

from signalbox.driver.commands.pushbuffer import Pushbuffer
from signalbox.driver.raw.submission import ImageError
from signalbox.hw.methods import HostMethod
from signalbox.tb.simulation.raw import main, simulate_raw
from signalbox.tb.simulation.sizes import SIZES, options

IMAGE = """
channel = 1
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
hex = "55 00 01 02 03 55 55 55"
"""
MACHINE = SIZES["default"]
"""A configuration that other tests build as well."""


def write(folder: Path, commands: Pushbuffer) -> tuple[Path, Path]:
    file, image = folder / "pushbuffer.bin", folder / "image.toml"
    file.write_bytes(commands.to_bytes())
    image.write_text(IMAGE)
    return file, image


def test_report(simulator: str, tmp_path: Path):
    commands = Pushbuffer().copy(0x30_0001, 0x20_0000, 4).add(0xFF_FFFF_0010, 3)
    file, image = write(tmp_path, commands.host(HostMethod.SET_REFERENCE, 9))
    outcome = simulate_raw(file, image, MACHINE, simulator=simulator)
    assert outcome.good, outcome.text
    for part in (
        "Executed: 12 methods",
        "Copied: 1 copy ended",
        "Reference: 0x9",
        "semaphore 1: 0x0 → 0x3",
        "0x300001: 4 bytes of target: 55 55 55 55 → 00 01 02 03",
        "As expected:\n  0x300000: 8 bytes of target",
    ):
        assert part in outcome.text
    first, last = (int(outcome.events[place].partition(":")[0]) for place in (0, -1))
    assert outcome.events[0].endswith("doorbell")
    assert f"Executed: 12 methods in {last - first} cycles" in outcome.text
    events = "\n".join(outcome.events)
    for part in ("LAUNCH_DMA", "copy engine 0 is done", "on-chip semaphore 1 := 0x3"):
        assert part in events


def test_refused(tmp_path: Path):
    file, image = write(tmp_path, Pushbuffer().host(HostMethod.ILLEGAL))
    outcome = simulate_raw(file, image, MACHINE)
    assert not outcome.good
    assert "Refused: channel 1 halted with METHOD_ILLEGAL" in outcome.text
    assert "0x300001: 4 bytes of target: 55 55 55 55, expected 00 01 02 03" in outcome.text
    assert any("halts with METHOD_ILLEGAL" in line for line in outcome.events)


def test_stuck_and_cut_short(tmp_path: Path):
    commands = Pushbuffer().acquire(0x20_0000, 9).raw(0x2004_8100, 0)
    file, image = write(tmp_path, commands)
    outcome = simulate_raw(file, image, MACHINE, patience=2000)
    assert not outcome.good
    for part in (
        "Stuck: channel 1 waits: the acquire of dword 5 wants memory at 0x200000 to be 0x9",
        "there is 0x3020100; nothing was executed for 2,000 cycles",
        "the group lacks 3 of its 4 dwords",
    ):
        assert part in outcome.text
    assert sum("acquire fails  … ×" in line for line in outcome.events) == 1


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main([]) == 2
    example = re.search(r"(\S*copy\.txt) and ", capsys.readouterr().err)
    assert example is not None and Path(example[1]).is_file()
    assert main([str(tmp_path / "missing.bin")]) == 2
    assert "error: " in capsys.readouterr().err
    file, _ = write(tmp_path, Pushbuffer().host(HostMethod.NOP))
    for option, message in (
        ("--slice=0", "error: slice_cycles = 0 is outside 1"),
        ("--patience=0", "error: patience = 0 is not at least 1"),
        ("--memory-bytes=0x2000_0000", "error: memory_bytes = 536870912: a simulation has at"),
    ):
        assert main([str(file), option]) == 2
        assert message in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        main([str(file), "--events=-1"])
    assert "argument --events: '-1' is negative" in capsys.readouterr().err


def test_unusable(tmp_path: Path):
    file, image = write(tmp_path, Pushbuffer().host(HostMethod.NOP))
    image.write_text("channel = 8")
    with pytest.raises(ImageError, match="channel = 8: the device has channels 0 … 7"):
        simulate_raw(file, image, MACHINE)


FAR = """
[[segment]]
address = 0
hex = "01 02 03 04 05 06 07 08"
[[segment]]
address = 0x40_0000_0000
fill = 0
size = 0x{size:x}
[[expect]]
address = 0x40_0000_0000
hex = "01 02 03 04 05 06 07 08"
"""


def command(folder: Path, size: int, *further: str) -> list[str]:
    """Returns the arguments that run an image of `size` bytes on that machine."""
    file, image = write(folder, Pushbuffer().copy(0x40_0000_0000, 0, 8))
    image.write_text(FAR.format(size=size))
    return [str(file), "--memory", str(image), *options(MACHINE), *further]


def test_far_image(simulator: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """An image may have addresses beyond the size of the memory."""
    assert main(command(tmp_path, 0x1_0000, "--simulator", simulator)) == 0, capsys.readouterr()


def test_too_large_image(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """An image of 17 MiB does not fit into the memory, and too large a memory is refused."""
    assert main(command(tmp_path, 0x110_0000)) == 2
    assert "more with --memory-bytes" in capsys.readouterr().err
    assert main(command(tmp_path, 0x1_0000, "--memory-bytes", "0x10001000")) == 2
    assert "at most 268435456 bytes (256 MiB)" in capsys.readouterr().err
