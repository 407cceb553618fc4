"""Raw submission: pushbuffers from elsewhere, beside a described memory image, and what came of it.

A pushbuffer is a list of dwords; or a binary file of little-endian dwords; or a text file (.txt) of
hexadecimal dwords between spaces, with comments from # to the end of the line. The image is a TOML
or JSON file with the same content (examples: `driver/pushbuffers/`):

    channel = 0                       # default 0
    address = 0x100000                # of the pushbuffer; default: anywhere that is free
    privileged = false                # whether privileged methods are allowed

    [[segment]]                       # memory before the run
    address = 0x200000
    hex = "00 01 02 03"               # or: file = "frame.bin" (beside the image), or
                                      # fill = 0x55 with size = 4096
    name = "source"                   # for the report; default its address

    [[expect]]                        # memory after the run, compared
    address = 0x300000
    hex = "00 01 02 03"               # or file, or fill and size

    [[semaphore]]                     # on-chip semaphores before the run, by slot
    slot = 3
    value = 1

The channel begins with the copy class on subchannel 4. Where a pushbuffer brings addresses, they
are virtual and physical at once (VA = PA).
"""

import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from driver.channel import Channel
from driver.device import Device
from driver.disassemble import disassemble
from driver.fault import ChannelError, ChannelTimeout
from driver.memory import Buffer, MemoryUseError
from driver.pushbuffer import Pushbuffer

__all__ = [
    "Change",
    "ImageError",
    "MemoryImage",
    "RawReport",
    "Segment",
    "load_dwords",
    "load_image",
    "parse_image",
    "run",
]

_MOST_DWORDS = (1 << 21) - 1
"""LENGTH of a ring entry has 21 bits."""


class ImageError(ValueError):
    """A pushbuffer or image file that cannot be used; names file, entry and field."""


@dataclass(frozen=True)
class Segment:
    """Bytes at an address, before the run or expected after it."""

    address: int
    data: bytes
    name: str

    @property
    def end(self) -> int:
        """Address behind the last byte."""
        return self.address + len(self.data)


@dataclass(frozen=True)
class MemoryImage:
    """A described memory, and how to run a pushbuffer beside it."""

    channel: int = 0
    address: int | None = None
    privileged: bool = False
    segments: tuple[Segment, ...] = ()
    expected: tuple[Segment, ...] = ()
    semaphores: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Change:
    """Bytes of a segment that the run changed, next to each other."""

    segment: str
    address: int
    before: bytes
    after: bytes


@dataclass(frozen=True)
class RawReport:
    """What became of a pushbuffer, from what the hardware shows.

    Members
    -------
    dwords : the pushbuffer. channel : where it ran. cycles : how long, to within the polling.
    methods, copies : how many it executed.
    reference : data of its last SET_REFERENCE.
    error : why the channel halted, stuck : what it waits for; both None when all was executed.
    semaphores : (slot, before, after) of on-chip semaphores that changed.
    changes : memory of the image that changed.
    mismatches : expected memory that is otherwise; `segment` is the expectation's name, `before`
        what was expected.
    events : lines of a trace, when the caller has one.
    """

    dwords: tuple[int, ...]
    channel: int
    cycles: int
    methods: int
    copies: int
    reference: int
    error: ChannelError | None
    stuck: ChannelTimeout | None
    semaphores: tuple[tuple[int, int, int], ...]
    changes: tuple[Change, ...]
    mismatches: tuple[Change, ...]
    events: tuple[str, ...] = ()

    @property
    def good(self) -> bool:
        """Everything was executed, and all expectations hold."""
        return self.error is None and self.stuck is None and not self.mismatches

    def with_events(self, events: Sequence[str]) -> "RawReport":
        """The report with lines of a trace."""
        return replace(self, events=tuple(events))

    def format(self) -> str:
        """The report as text."""
        parts = [
            f"Pushbuffer of {len(self.dwords)} dwords on channel {self.channel}:",
            _indent(disassemble(self.dwords, copy_subchannels=[4]) or "(nothing)"),
            f"Executed: {self.methods} methods in about {self.cycles} cycles.",
            f"Reference: {self.reference:#x}.",
            f"Copied: {self.copies} copies ended.",
            f"Refused: {self.error or 'nothing'}",
        ]
        if self.stuck is not None:
            parts.append(f"Stuck: {self.stuck}.")
        parts.append(_section("On-chip semaphores", self._semaphore_lines()))
        parts.append(_section("Memory", [_change_line(change) for change in self.changes]))
        if self.mismatches:
            lines = [_mismatch_line(change) for change in self.mismatches]
            parts.append(_section("Not as expected", lines))
        if self.events:
            parts.append(_section("Events", self.events))
        return "\n".join(parts)

    def _semaphore_lines(self) -> list[str]:
        return [
            f"semaphore {slot}: {before:#x} → {after:#x}" for slot, before, after in self.semaphores
        ]


def _section(title: str, lines: Sequence[str]) -> str:
    return f"{title}:\n{_indent(chr(10).join(lines))}" if lines else f"{title}: no change."


def _indent(text: str) -> str:
    return "\n".join("  " + line for line in text.splitlines())


def _short(data: bytes) -> str:
    return data[:8].hex(" ") + (" …" if len(data) > 8 else "")


def _change_line(change: Change) -> str:
    span = f"{change.address:#x}, {len(change.after)} bytes of {change.segment}"
    return f"{span}: {_short(change.before)} → {_short(change.after)}"


def _mismatch_line(change: Change) -> str:
    span = f"{change.address:#x}, {len(change.after)} bytes of {change.segment}"
    return f"{span}: {_short(change.after)}, expected {_short(change.before)}"


# Files


def load_dwords(path: Path | str) -> list[int]:
    """Dwords of a text file (.txt), or of a binary one. Raises `ImageError`."""
    path = Path(path)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ImageError(f"{path}: cannot be read: {error}") from error
    if path.suffix == ".txt":
        dwords = _text_dwords(path, data.decode("utf-8", "replace"))
    elif len(data) % 4:
        raise ImageError(f"{path}: {len(data)} bytes are not a whole number of 4-byte dwords")
    else:
        dwords = [int(dword) for dword in np.frombuffer(data, "<u4")]
    if not dwords:
        raise ImageError(f"{path}: the pushbuffer is empty")
    return dwords


def _text_dwords(path: Path, text: str) -> list[int]:
    dwords = []
    for number, line in enumerate(text.splitlines(), 1):
        for word in line.partition("#")[0].split():
            try:
                dwords.append(int(word, 16))
            except ValueError:
                raise ImageError(f"{path}:{number}: {word!r} is no hexadecimal dword") from None
            if not 0 <= dwords[-1] < 1 << 32:
                raise ImageError(f"{path}:{number}: {word} does not fit 32 bits")
    return dwords


def load_image(path: Path | str) -> MemoryImage:
    """Read an image: JSON when the name ends in .json, else TOML. Raises `ImageError`."""
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ImageError(f"{path}: cannot be read: {error}") from error
    try:
        tables = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except (json.JSONDecodeError, tomllib.TOMLDecodeError) as error:
        raise ImageError(f"{path}: cannot be understood: {error}") from error
    return parse_image(tables, str(path), path.parent)


def parse_image(tables: Any, file: str = "image", folder: Path = Path()) -> MemoryImage:
    """Check an image; files that it names are looked for in `folder`. Raises `ImageError`."""
    if not isinstance(tables, dict):
        raise ImageError(f"{file}: is not a table")
    top = _Table(file, "the top level", tables, folder)
    top.known("channel", "address", "privileged", "segment", "expect", "semaphore")
    segments = tuple(entry.segment() for entry in top.tables("segment"))
    _refuse_overlaps(file, segments)
    semaphores = {}
    for entry in top.tables("semaphore"):
        entry.known("slot", "value")
        semaphores[entry.number("slot", None)] = entry.number("value", None, 64)
    privileged = tables.get("privileged", False)
    if not isinstance(privileged, bool):
        raise ImageError(f"{file}: the top level: privileged = {privileged!r} is not true or false")
    return MemoryImage(
        channel=top.number("channel", 0),
        address=top.number("address", None) if "address" in tables else None,
        privileged=privileged,
        segments=segments,
        expected=tuple(entry.segment() for entry in top.tables("expect")),
        semaphores=semaphores,
    )


def _refuse_overlaps(file: str, segments: Sequence[Segment]) -> None:
    for first, second in pairwise(sorted(segments, key=lambda segment: segment.address)):
        if second.address < first.end:
            raise ImageError(
                f"{file}: segments {first.name!r} ({first.address:#x} … {first.end:#x}) and "
                f"{second.name!r} ({second.address:#x} …) overlap"
            )


@dataclass(frozen=True)
class _Table:
    """A table of the file, and what to call it."""

    file: str
    what: str
    values: Mapping[str, Any]
    folder: Path

    def error(self, message: str) -> ImageError:
        return ImageError(f"{self.file}: {self.what}: {message}")

    def known(self, *keys: str) -> None:
        for key in self.values:
            if key not in keys:
                raise self.error(f"unknown key {key!r}; known are {', '.join(sorted(keys))}")

    def tables(self, key: str) -> list["_Table"]:
        value = self.values.get(key, [])
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
            raise self.error(f"{key} is not a list of tables")
        return [
            _Table(self.file, f"{key} {number}", item, self.folder)
            for number, item in enumerate(value, 1)
        ]

    def number(self, key: str, default: int | None, bits: int = 40) -> int:
        value = self.values.get(key, default)
        if value is None:
            raise self.error(f"{key} is missing")
        if isinstance(value, str):  # JSON has no hexadecimal numbers
            try:
                value = int(value, 0)
            except ValueError:
                raise self.error(f"{key} = {value!r} is not a number") from None
        if type(value) is not int or not 0 <= value < 1 << bits:
            raise self.error(f"{key} = {value!r} is not a number of {bits} bits")
        return value

    def segment(self) -> Segment:
        self.known("address", "name", "hex", "file", "fill", "size")
        address = self.number("address", None)
        name = self.values.get("name", f"{address:#x}")
        if not isinstance(name, str):
            raise self.error(f"name = {name!r} is not a text")
        data = self._data()
        if not data:
            raise self.error("there are no bytes in it")
        return Segment(address, data, name)

    def _data(self) -> bytes:
        given = {"hex", "file", "fill"} & set(self.values)
        if len(given) != 1:
            raise self.error("give exactly one of hex, file, fill")
        kind = given.pop()
        if "size" in self.values and kind != "fill":
            raise self.error(f"size goes with fill, not with {kind}")
        if kind == "fill":
            return bytes([self.number("fill", None, 8)]) * self.number("size", None, 32)
        value = self.values[kind]
        if not isinstance(value, str):
            raise self.error(f"{kind} = {value!r} is not a text")
        try:
            return bytes.fromhex(value) if kind == "hex" else (self.folder / value).read_bytes()
        except (ValueError, OSError) as error:
            raise self.error(f"{kind} = {value!r}: {error}") from error


# Running


async def run(
    device: Device,
    dwords: Sequence[int],
    image: MemoryImage | None = None,
    *,
    patience: int = 20_000,
) -> RawReport:
    """Put `dwords` on a channel as one segment and report.

    The channel's buffers must not lie in the image: run it on a freshly opened device. A channel
    that executes nothing for `patience` cycles is reported as stuck.

    Raises `ImageError` for an image that does not fit the device.
    """
    image = image or MemoryImage()
    if not 0 < len(dwords) <= _MOST_DWORDS:
        raise ImageError(f"{len(dwords)} dwords: a segment has 1 … {_MOST_DWORDS}")
    _reserve(device, image)
    data = Pushbuffer().raw(*dwords).to_bytes()
    if image.address is None:
        segment = device.allocate(len(data), name="pushbuffer")
    else:
        segment = _reserve_at(device, image.address, len(data), "pushbuffer")
    device.settings = replace(device.settings, privileged=image.privileged, early_waits=False)
    segment.write(data)
    for slot, value in image.semaphores.items():
        device.semaphore_address(slot)  # refuses a slot that was not built
        await device.control.write_semaphore(slot, value)
    channel = await device.channel(image.channel)
    await channel.drain()
    return await _observe(device, channel, segment, list(dwords), image, patience)


async def _observe(
    device: Device,
    channel: Channel,
    pushbuffer: Buffer,
    dwords: Sequence[int],
    image: MemoryImage,
    patience: int,
) -> RawReport:
    """Submit, wait for the end, and compare before and after."""
    before = await _state(device, channel)
    begin = device.machine.now()
    error = stuck = None
    await channel.submit_segment(pushbuffer, len(dwords))
    try:
        await channel.drain(patience=patience)
    except ChannelError as caught:
        error = caught
    except ChannelTimeout as caught:
        stuck = caught
    cycles = device.machine.now() - begin
    after = await _state(device, channel)
    return RawReport(
        dwords=tuple(dwords),
        channel=channel.index,
        cycles=cycles,
        methods=after.methods - before.methods & 0xFFFF_FFFF,
        copies=after.copies - before.copies & 0xFFFF_FFFF,
        reference=after.reference,
        error=error,
        stuck=stuck,
        semaphores=tuple(
            (slot, old, new)
            for slot, (old, new) in enumerate(zip(before.semaphores, after.semaphores, strict=True))
            if old != new
        ),
        changes=_changes(device, image.segments),
        mismatches=_changes(device, image.expected),
    )


@dataclass(frozen=True)
class _State:
    """What the hardware shows of a channel, and of all on-chip semaphores."""

    methods: int
    copies: int
    reference: int
    semaphores: tuple[int, ...]


async def _state(device: Device, channel: Channel) -> _State:
    control, index = device.control, channel.index
    slots = range(device.info.semaphores)
    return _State(
        methods=await control.read_channel(index, "METHODS"),
        copies=await control.read_channel(index, "COPIES"),
        reference=await control.read_channel(index, "REFERENCE"),
        semaphores=tuple([await control.read_semaphore(slot) for slot in slots]),
    )


def _reserve(device: Device, image: MemoryImage) -> None:
    """Keep the driver out of the image's memory, and fill it."""
    if image.channel >= device.info.channels:
        raise ImageError(
            f"channel = {image.channel}: the device has channels 0 … {device.info.channels - 1}"
        )
    for start, end in _spans((*image.segments, *image.expected)):
        _reserve_at(device, start, end - start, "the image")
    for segment in image.segments:
        device.machine.memory_write(segment.address, segment.data)


def _spans(segments: Sequence[Segment]) -> list[tuple[int, int]]:
    """Ranges that segments cover; those that touch or overlap as one."""
    spans: list[tuple[int, int]] = []
    for segment in sorted(segments, key=lambda segment: segment.address):
        if spans and segment.address <= spans[-1][1]:
            spans[-1] = spans[-1][0], max(spans[-1][1], segment.end)
        else:
            spans.append((segment.address, segment.end))
    return spans


def _reserve_at(device: Device, address: int, size: int, name: str) -> Buffer:
    try:
        return device.memory.reserve(address, size, name=name)
    except MemoryUseError as error:
        raise ImageError(f"{name} at {address:#x}: {error}") from error


def _changes(device: Device, segments: Sequence[Segment]) -> tuple[Change, ...]:
    """Ranges of segments that are otherwise now."""
    found: list[Change] = []
    for segment in segments:
        data = segment.data
        now = device.machine.memory_read(segment.address, len(data))
        differs = np.frombuffer(data, np.uint8) != np.frombuffer(now, np.uint8)
        edges = np.flatnonzero(np.diff(np.concatenate(([0], differs, [0])).astype(np.int8)))
        for first, last in edges.reshape(-1, 2):
            where = segment.address + int(first)
            found.append(Change(segment.name, where, data[first:last], now[first:last]))
    return tuple(found)
