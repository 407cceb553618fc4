"""Raw submission: runs pushbuffers of other software with a memory image.

A pushbuffer is a list of dwords, a binary file of little-endian dwords, or a text file (.txt) of
hexadecimal dwords separated by white space, with comments from # to the end of the line. The image
is a TOML file, or a JSON file with the same content (examples: `driver/pushbuffers/`):

    channel = 0                       # default 0
    address = 0x100000                # of the pushbuffer; default: any free address
    privileged = false                # whether privileged methods are allowed

    [[segment]]                       # memory before the run
    address = 0x200000
    hex = "00 01 02 03"               # or: file = "frame.bin" (in the image's folder), or
                                      # fill = 0x55 with size = 4096
    name = "source"                   # for the report; default: its address

    [[expect]]                        # expected memory after the run
    address = 0x300000
    hex = "00 01 02 03"               # or file, or fill and size
    name = "result"                   # default: the name of the segment that contains its first
                                      # byte, else its address

    [[semaphore]]                     # on-chip semaphores before the run, by slot
    slot = 3
    value = 1

The channel starts with the copy class bound to subchannel 4 and, if the machine has SMs, the
compute class to subchannel 1. All addresses of the image are virtual, in a separate address space.
It maps the pages that contain the pushbuffer, segments and expectations; the rest of these pages is
0. An access to any other page faults. Physical addresses in a pushbuffer are meaningless, as the
image does not choose them.
"""

import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from signalbox.driver.channel.channel import Channel
from signalbox.driver.commands.pushbuffer import Pushbuffer
from signalbox.driver.device import Device
from signalbox.driver.faults.channel_error import ChannelError, ChannelTimeout
from signalbox.driver.memory.address_space import AddressSpace
from signalbox.driver.memory.page_tables import MapError
from signalbox.driver.memory.physical import Buffer, OutOfMemory
from signalbox.driver.raw.report import Acquire, Change, RawReport, Span, held_acquire
from signalbox.hw.config import SLOT_BYTES

__all__ = [
    "ImageError",
    "MemoryImage",
    "Segment",
    "load_dwords",
    "load_image",
    "parse_image",
    "run",
]

_PAGE = 4096

_MOST_DWORDS = (1 << 21) - 1
"""Maximum number of dwords of a segment: LENGTH of a ring entry has 21 bits."""


class ImageError(ValueError):
    """A pushbuffer or image cannot be used; the message says why, with file, table and key if it
    comes from a file."""


@dataclass(frozen=True)
class Segment:
    """Bytes at a virtual address, before the run or expected after it."""

    address: int
    data: bytes
    name: str

    @property
    def end(self) -> int:
        """First address past the segment."""
        return self.address + len(self.data)


@dataclass(frozen=True)
class MemoryImage:
    """A memory image, and how to run a pushbuffer with it.

    Members
    -------
    channel : channel number.
    address : virtual address of the pushbuffer; None for any.
    privileged : whether privileged methods are allowed.
    segments, expected : memory before the run, and expected after it.
    semaphores : values of on-chip semaphores before the run, by slot.
    """

    channel: int = 0
    address: int | None = None
    privileged: bool = False
    segments: tuple[Segment, ...] = ()
    expected: tuple[Segment, ...] = ()
    semaphores: Mapping[int, int] = field(default_factory=dict)


# Files


def load_dwords(path: Path | str) -> list[int]:
    """Read a pushbuffer from a text file (.txt) or a binary file. Raises `ImageError`."""
    path = Path(path)
    if path.suffix in {".toml", ".json"}:
        raise ImageError(f"{path}: this is a memory image, not a pushbuffer")
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
                raise ImageError(f"{path}:{number}: {word!r} is not a hexadecimal dword") from None
            if not 0 <= dwords[-1] < 1 << 32:
                raise ImageError(f"{path}:{number}: {word} does not fit 32 bits")
    return dwords


def load_image(path: Path | str) -> MemoryImage:
    """Read an image, JSON if the name ends in .json, else TOML. Raises `ImageError`."""
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ImageError(f"{path}: cannot be read: {error}") from error
    try:
        tables = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
        repr(tables)  # fails for numbers too long for a message
    except (ValueError, RecursionError) as error:  # also numbers too long, lists too deep
        raise ImageError(f"{path}: cannot be parsed: {error}") from error
    return parse_image(tables, str(path), path.parent)


def parse_image(tables: Any, file: str = "image", folder: Path = Path()) -> MemoryImage:
    """Check the tables of an image. `file` names it in errors; the paths in it are relative to
    `folder`. Raises `ImageError`."""
    if not isinstance(tables, dict):
        raise ImageError(f"{file}: is not a table")
    top = _Table(file, "the top level", tables, folder)
    top.known("channel", "address", "privileged", "segment", "expect", "semaphore")
    segments = tuple(entry.segment() for entry in top.tables("segment"))
    _refuse_overlaps(file, segments)
    semaphores: dict[int, int] = {}
    for entry in top.tables("semaphore"):
        entry.known("slot", "value")
        slot = entry.number("slot", None)
        if slot in semaphores:
            raise entry.error(f"slot {slot} has a value already")
        semaphores[slot] = entry.number("value", None, 64)
    privileged = tables.get("privileged", False)
    if not isinstance(privileged, bool):
        raise ImageError(f"{file}: the top level: privileged = {privileged!r} is not true or false")
    address = top.number("address", None) if "address" in tables else None
    if address is not None and address % 4:
        raise ImageError(f"{file}: the top level: address = {address:#x} is not a multiple of 4")
    return MemoryImage(
        channel=top.number("channel", 0),
        address=address,
        privileged=privileged,
        segments=segments,
        expected=tuple(entry.segment(segments) for entry in top.tables("expect")),
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
    """A table of the file; `what` names it in errors. Methods raise `ImageError`."""

    file: str
    what: str
    values: Mapping[str, Any]
    folder: Path

    def error(self, message: str) -> ImageError:
        return ImageError(f"{self.file}: {self.what}: {message}")

    def known(self, *keys: str) -> None:
        for key in self.values:
            if key not in keys:
                raise self.error(f"unknown key {key!r}; known keys: {', '.join(sorted(keys))}")

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

    def segment(self, around: Sequence[Segment] = ()) -> Segment:
        """The segment described by the table. The default name is that of the segment of `around`
        that contains its first byte, else its address."""
        self.known("address", "name", "hex", "file", "fill", "size")
        address = self.number("address", None)
        names = (other.name for other in around if other.address <= address < other.end)
        name = self.values.get("name", next(names, f"{address:#x}"))
        if not isinstance(name, str):
            raise self.error(f"name = {name!r} is not a string")
        try:
            data = self._data()
        except MemoryError:
            raise self.error("there is not enough memory for its bytes") from None
        if not data:
            raise self.error("it has no bytes")
        return Segment(address, data, name)

    def _data(self) -> bytes:
        given = {"hex", "file", "fill"} & set(self.values)
        if len(given) != 1:
            raise self.error("give exactly one of hex, file, fill")
        kind = given.pop()
        if "size" in self.values and kind != "fill":
            raise self.error(f"size is for fill, not for {kind}")
        if kind == "fill":
            return bytes([self.number("fill", None, 8)]) * self.number("size", None, 32)
        value = self.values[kind]
        if not isinstance(value, str):
            raise self.error(f"{kind} = {value!r} is not a string")
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
    """Submit `dwords` to a channel as one segment, wait for the end, and report.

    A channel that executes nothing for `patience` cycles is reported as stuck. Raises `ImageError`
    if pushbuffer or image does not fit the device; otherwise as `Pushbuffer.raw`,
    `Device.create_space` and `Device.channel`.
    """
    image = image or MemoryImage()
    if not 0 < len(dwords) <= _MOST_DWORDS:
        raise ImageError(f"{len(dwords)} dwords: a segment has 1 … {_MOST_DWORDS}")
    _check_sizes(device, image)
    try:
        space = device.create_space("image")
        address = await _place(device, space, image, Pushbuffer().raw(*dwords).to_bytes())
        channel = await device.channel(
            image.channel, space, privileged=image.privileged, early_waits=False
        )
    except OutOfMemory as error:
        raise ImageError(
            f"there is no room for all of the image: {error}; build more with --memory-bytes"
        ) from error
    for slot, value in image.semaphores.items():
        await device.control.write_semaphore(slot, value)
    await channel.drain()
    return await _observe(device, channel, address, list(dwords), image, patience)


async def _observe(
    device: Device,
    channel: Channel,
    pushbuffer: int,
    dwords: Sequence[int],
    image: MemoryImage,
    patience: int,
) -> RawReport:
    """Submit the pushbuffer, wait for its end, and compare the states before and after."""
    before = await _state(device, channel)
    error = stuck = None
    await channel.submit_segment(pushbuffer, dwords)
    try:
        await channel.drain(patience=patience)
    except ChannelError as caught:
        error = caught
    except ChannelTimeout as caught:
        stuck = caught
    after = await _state(device, channel)
    methods = after.methods - before.methods & 0xFFFF_FFFF
    mismatches = _changes(channel.space, image.expected)
    return RawReport(
        dwords=tuple(dwords),
        channel=channel.index,
        compute=device.info.compute,
        methods=methods,
        copies=after.copies - before.copies & 0xFFFF_FFFF,
        reference=after.reference,
        objects=await channel.objects(),
        error=error,
        stuck=stuck,
        acquire=await _look(device, channel.space, held_acquire(dwords, methods))
        if stuck
        else None,
        semaphores=tuple(
            (slot, old, new)
            for slot, (old, new) in enumerate(zip(before.semaphores, after.semaphores, strict=True))
            if old != new
        ),
        changes=_changes(channel.space, image.segments),
        kept=_kept(image.expected, mismatches),
        mismatches=mismatches,
    )


@dataclass(frozen=True)
class _State:
    """Counters of a channel, and values of all on-chip semaphores."""

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


async def _look(device: Device, space: AddressSpace, acquire: Acquire | None) -> Acquire | None:
    """`acquire` with its slot and the semaphore's current value filled in."""
    if acquire is None:
        return None
    window = device.info.window
    if acquire.address < window:
        buffer, offset = _find(space, acquire.address)
        found = buffer.read(shape=acquire.size, offset=offset).tobytes()
        return replace(acquire, found=int.from_bytes(found, "little"))
    slot = (acquire.address - window) // SLOT_BYTES
    value = await device.control.read_semaphore(slot)
    return replace(acquire, slot=slot, found=value & ((1 << 8 * acquire.size) - 1))


def _check_sizes(device: Device, image: MemoryImage) -> None:
    """Check that the device has the channel and semaphores of an image. Raises `ImageError`."""
    info = device.info
    if image.channel >= info.channels:
        raise ImageError(
            f"channel = {image.channel}: the device has channels 0 … {info.channels - 1}; choose "
            "one of them, or build more with --channels"
        )
    for slot in image.semaphores:
        if slot >= info.semaphores:
            raise ImageError(
                f"semaphore slot = {slot}: the device has 0 … {info.semaphores - 1}; choose one "
                "of them, or build more with --semaphores"
            )


async def _place(device: Device, space: AddressSpace, image: MemoryImage, pushbuffer: bytes) -> int:
    """Map and fill memory for image and pushbuffer. Returns the virtual address of the pushbuffer.
    Raises `ImageError`, `OutOfMemory`."""
    named = [*image.segments, *image.expected]
    filled = list(image.segments)
    if image.address is not None:
        own = Segment(image.address, pushbuffer, "pushbuffer")
        _refuse_overlap(own, named)
        named.append(own)
        filled.append(own)
    for start, end in _spans(named):
        await _map(device, space, start, end)
    for segment in filled:
        buffer, offset = _find(space, segment.address)
        buffer.write(segment.data, offset)
    if image.address is not None:
        return image.address
    buffer = device.memory.allocate_pages(len(pushbuffer), name="image")
    buffer.write(pushbuffer)
    mapping = await space.map(buffer, above=space.upper, read_only=True, name="pushbuffer")
    return mapping.va


def _refuse_overlap(own: Segment, others: Sequence[Segment]) -> None:
    for other in others:
        if own.address < other.end and other.address < own.end:
            raise ImageError(
                f"address = {own.address:#x}: the pushbuffer ({len(own.data)} bytes) overlaps a "
                f"segment, {other.name!r}"
            )


def _spans(segments: Sequence[Segment]) -> list[tuple[int, int]]:
    """Page-aligned ranges (start, end) that contain the segments; adjacent ones are merged."""
    spans: list[tuple[int, int]] = []
    for segment in sorted(segments, key=lambda segment: segment.address):
        start, end = segment.address // _PAGE * _PAGE, -(-segment.end // _PAGE) * _PAGE
        if spans and start <= spans[-1][1]:
            spans[-1] = spans[-1][0], max(spans[-1][1], end)
        else:
            spans.append((start, end))
    return spans


async def _map(device: Device, space: AddressSpace, start: int, end: int) -> None:
    """Map zeroed memory at `start` … `end` - 1. Raises `ImageError`, `OutOfMemory`."""
    buffer = device.memory.allocate_pages(end - start, name="image")
    buffer.fill()
    try:
        await space.map(buffer, va=start)
    except MapError as error:
        raise ImageError(f"{start:#x} … {end:#x} cannot be mapped: {error}") from error


def _find(space: AddressSpace, va: int) -> tuple[Buffer, int]:
    """The buffer mapped at a virtual address, and the byte offset in it."""
    mapping = space.find(va)
    assert mapping is not None and mapping.buffer is not None, f"{va:#x} was mapped"
    return mapping.buffer, va - mapping.va


def _kept(expected: Sequence[Segment], mismatches: Sequence[Change]) -> tuple[Span, ...]:
    """Expectations without a mismatch."""
    wrong = [change.address for change in mismatches]
    return tuple(
        Span(segment.name, segment.address, len(segment.data))
        for segment in expected
        if not any(segment.address <= address < segment.end for address in wrong)
    )


def _changes(space: AddressSpace, segments: Sequence[Segment]) -> tuple[Change, ...]:
    """Ranges where memory differs from the segments."""
    found: list[Change] = []
    for segment in segments:
        data = segment.data
        buffer, offset = _find(space, segment.address)
        now = buffer.read(shape=len(data), offset=offset).tobytes()
        differs = np.frombuffer(data, np.uint8) != np.frombuffer(now, np.uint8)
        edges = np.flatnonzero(np.diff(np.concatenate(([0], differs, [0])).astype(np.int8)))
        for first, last in edges.reshape(-1, 2):
            where = segment.address + int(first)
            found.append(Change(segment.name, where, data[first:last], now[first:last]))
    return tuple(found)
