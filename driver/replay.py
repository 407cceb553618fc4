"""Runs a workload on a device, verifies every byte, and says when each copy ended."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from driver.addressspace import AddressSpace
from driver.device import Device
from driver.fault import ChannelError
from driver.memory import Buffer
from driver.repairs import FaultRecord, Repairs
from driver.stream import Event, Stream
from driver.workload import CopySpec, Request, Workload, requests

__all__ = ["CopyRecord", "Replay", "Result", "SpaceRecord", "VerifyError", "run"]

_GUARD = 32
"""Bytes behind every destination that must stay as they are."""


class VerifyError(AssertionError):
    """A copy brought other bytes than it should have."""


@dataclass(frozen=True)
class CopyRecord:
    """What became of one copy; cycles from the start of the run.

    `requested` is the time that the file asks for; `submitted` is when its doorbell was rung;
    `ready` the later of that and the end of the last copy that it waits for; `completed` when its
    last byte was written.
    """

    name: str
    index: int
    stream: str
    channel: int
    priority: int
    size: int
    requested: int
    submitted: int
    ready: int
    completed: int

    @property
    def latency(self) -> int:
        """Cycles from when it could have begun to its end."""
        return self.completed - self.ready


@dataclass(frozen=True)
class SpaceRecord:
    """An address space in which copies ran, its ASID, and the (first, last) virtual addresses of
    their memory, rising."""

    name: str
    asid: int
    addresses: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Result:
    """A finished and verified run; `start` is the machine's cycle that the records count from."""

    workload: Workload
    policy: str
    records: tuple[CopyRecord, ...]
    start: int
    spaces: tuple[SpaceRecord, ...] = ()
    faults: tuple[FaultRecord, ...] = ()

    @property
    def total_cycles(self) -> int:
        """Cycles from the start to the end of the last copy."""
        return max((record.completed for record in self.records), default=0)

    @property
    def total_bytes(self) -> int:
        """Bytes copied."""
        return sum(record.size for record in self.records)

    def of(self, name: str) -> list[CopyRecord]:
        """Records of the series called `name`, in order."""
        return [record for record in self.records if record.name == name]

    def title(self, record: CopyRecord) -> str:
        """Name of a copy, with its index when it is one of a series."""
        series = any(copy.name == record.name and copy.count > 1 for copy in self.workload.copies)
        return f"{record.name}[{record.index}]" if series else record.name

    def completion_order(self) -> list[str]:
        """Names of all copies as they ended."""
        return [self.title(record) for record in sorted(self.records, key=lambda r: r.completed)]


@dataclass
class _Copy:
    """One copy that is being run, from virtual address `src` to `to`, which is in the buffer `dst`;
    `image` are the bytes that it brings, `canvas` what its destination held before."""

    request: Request
    stream: Stream
    src: int
    src_pitch: int
    dst: Buffer
    to: int
    canvas: np.ndarray
    image: np.ndarray
    done: Event
    submitted: int = 0


class Replay:
    """One run of a workload on a device whose policy is the wanted one.

    Copies are requested at their times by one task; dependencies are events, which the channels
    wait for. `seed` makes the random data.
    """

    def __init__(self, device: Device, workload: Workload, *, seed: int = 0) -> None:
        self._device = device
        self._workload = workload
        self._numbers = np.random.default_rng(seed)
        self._spaces: dict[str | None, AddressSpace] = {None: device.space}
        self._streams: dict[str, Stream] = {}
        self._copies: dict[tuple[str, int], _Copy] = {}
        self._buffers: list[Buffer] = []
        self._repairs = Repairs(device)

    def finished(self) -> int:
        """How many copies have ended by now; may be asked at any time during the run."""
        copies = self._copies.values()
        return sum(copy.done.recorded and copy.done.query() for copy in copies)

    async def run(self) -> Result:
        """Carry it out and verify every byte. To be called once.

        Raises `VerifyError`, `ChannelError`, `OutOfMemory`, `OutOfAsids`, `DeviceError`.
        """
        device, machine = self._device, self._device.machine
        await self._open_streams()
        order = requests(self._workload.copies)
        for request in order:
            await self._place(request)
        spaces = self._space_records()
        await self._take_away()
        await device.synchronize()
        start = machine.now()
        for request in order:
            await self._repairs.wait_until(start + request.at)
            await self._submit(self._copies[request.key])
        await self._synchronize()
        copies = [self._copies[request.key] for request in order]
        for copy in copies:
            self._verify(copy)
        records = tuple(self._record(copy, start) for copy in copies)
        for buffer in self._buffers:
            await device.free(buffer)
        policy, faults = type(device.policy).__name__, self._repairs.records(start)
        return Result(self._workload, policy, records, start, spaces, faults)

    async def _open_streams(self) -> None:
        """Streams and their address spaces."""
        for name in self._workload.spaces:
            self._spaces[name] = self._device.create_space(name)
        for spec in self._workload.streams:
            space = self._spaces[spec.space]
            stream = await self._device.stream(spec.priority, space=space, name=spec.name)
            self._streams[spec.name] = stream

    def _space_records(self) -> tuple[SpaceRecord, ...]:
        """The spaces of the streams, in the order of their ASIDs."""
        found: dict[AddressSpace, list[tuple[int, int]]] = {
            stream.space: [] for stream in self._streams.values()
        }
        for mapping in (mapping for buffer in self._buffers for mapping in buffer.mappings):
            found[mapping.space].append((mapping.va, mapping.end - 1))
        records = [
            SpaceRecord(space.name, space.asid, tuple(sorted(addresses)))
            for space, addresses in found.items()
            if space.asid is not None
        ]
        return tuple(sorted(records, key=lambda record: record.asid))

    async def _take_away(self) -> None:
        """Unmap what copies shall miss."""
        for key, copy in self._copies.items():
            spec = copy.request.spec
            if spec.unmapped is not None:
                va = copy.src if spec.unmapped == "source" else copy.to
                await self._repairs.take_away(key, copy.stream, va, spec.repair_after)

    async def _synchronize(self) -> None:
        """Wait for all copies, and repair what they miss."""
        while True:
            try:
                await self._device.synchronize()
                return
            except ChannelError as error:
                await self._repairs.attend(error)

    async def _place(self, request: Request) -> None:
        """Allocate and fill the memory of one copy, in the address space of its stream."""
        spec = request.spec
        stream = self._streams[spec.stream]
        origin = self._origin(request)
        if origin is None:
            image = _DATA[spec.data](spec, request.index, self._numbers)
            src, src_pitch = await self._upload(spec, image, stream.space), spec.src_pitch
        else:
            before = origin.request.spec
            image, src_pitch = origin.image, before.dst_pitch
            src = await self._shared(origin, stream.space)
        size = spec.dst_offset + spec.dst_pitch * spec.height + _GUARD
        canvas = self._numbers.integers(0, 256, size, np.uint8)
        name = f"{spec.name} destination"
        dst = await self._device.upload(canvas, space=stream.space, name=name)
        self._buffers.append(dst)
        to = stream.space.at(dst, spec.dst_offset)
        done = self._device.event(interrupt=False)
        copy = _Copy(request, stream, src, src_pitch, dst, to, canvas, image, done)
        self._copies[request.key] = copy

    def _origin(self, request: Request) -> _Copy | None:
        """The copy whose bytes this one takes on."""
        keys = [key for key in request.needs if key[0] == request.spec.source]
        return self._copies[keys[0]] if keys else None

    @staticmethod
    async def _shared(origin: _Copy, space: AddressSpace) -> int:
        """Address of what another copy brings; in another space that is mapped too, to be read."""
        offset = origin.request.spec.dst_offset
        if all(mapping.space is not space for mapping in origin.dst.mappings):
            await space.map(origin.dst, read_only=True)
        return space.at(origin.dst, offset)

    async def _upload(self, spec: CopySpec, image: np.ndarray, space: AddressSpace) -> int:
        """Address of a fresh image in memory."""
        source = np.zeros(spec.src_pitch * spec.height, np.uint8)
        _lines(source, 0, spec.src_pitch, spec)[:] = image
        size, name = spec.src_offset + source.size, f"{spec.name} source"
        buffer = await self._device.allocate(size, space=space, read_only=True, name=name)
        buffer.write(source, spec.src_offset)
        self._buffers.append(buffer)
        return space.at(buffer, spec.src_offset)

    async def _submit(self, copy: _Copy) -> None:
        """Submit one copy behind those that it depends on."""
        spec, stream = copy.request.spec, copy.stream
        for key in copy.request.needs:
            await self._copies[key].done.wait(stream)
        if spec.height == 1:
            await stream.memcpy_async(copy.to, copy.src, spec.width, done=copy.done)
        else:
            pitches = {"dst_pitch": spec.dst_pitch, "src": copy.src, "src_pitch": copy.src_pitch}
            shape = {"width": spec.width, "height": spec.height}
            await stream.memcpy_2d_async(copy.to, **pitches, **shape, done=copy.done)
        copy.submitted = self._device.machine.now()

    def _verify(self, copy: _Copy) -> None:
        """Compare every byte of a copy's destination, those around it too."""
        spec = copy.request.spec
        expected = copy.canvas.copy()
        _lines(expected, spec.dst_offset, spec.dst_pitch, spec)[:] = copy.image
        found = copy.dst.read()
        wrong = np.flatnonzero(found != expected)
        if wrong.size:
            first = int(wrong[0])
            raise VerifyError(
                f"{spec.name}[{copy.request.index}]: {wrong.size} of {found.size} bytes are wrong; "
                f"the first at physical {copy.dst.at(first):#x} (byte {first - spec.dst_offset} of "
                f"the destination) is {found[first]:#04x}, not {expected[first]:#04x}"
            )

    def _record(self, copy: _Copy, start: int) -> CopyRecord:
        """Times of a finished copy, from cycle `start`."""
        spec = copy.request.spec
        ready = max([copy.submitted, *(self._copies[key].done.cycle for key in copy.request.needs)])
        return CopyRecord(
            name=spec.name,
            index=copy.request.index,
            stream=spec.stream,
            channel=copy.stream.channel.index,
            priority=copy.stream.priority,
            size=spec.size,
            requested=copy.request.at,
            submitted=copy.submitted - start,
            ready=ready - start,
            completed=copy.done.cycle - start,
        )


def _lines(array: np.ndarray, offset: int, pitch: int, spec: CopySpec) -> np.ndarray:
    """View of the bytes of an image that begins at `offset`."""
    area = array[offset : offset + pitch * spec.height]
    return area.reshape(spec.height, pitch)[:, : spec.width]


def _random(spec: CopySpec, index: int, numbers: np.random.Generator) -> np.ndarray:
    return numbers.integers(0, 256, (spec.height, spec.width), np.uint8)


def _picture(spec: CopySpec, index: int, numbers: np.random.Generator) -> np.ndarray:
    """A gradient with a bright square that moves from frame to frame; one byte per pixel."""
    row, column = np.mgrid[0 : spec.height, 0 : spec.width]
    picture = ((column * 255 // max(1, spec.width - 1) + row) // 2).astype(np.uint8)
    side = max(1, min(spec.height, spec.width) // 4)
    top = 3 * index % max(1, spec.height - side)
    left = 5 * index % max(1, spec.width - side)
    picture[top : top + side, left : left + side] = 255
    return picture


_DATA: dict[str, Callable[[CopySpec, int, np.random.Generator], np.ndarray]] = {
    "random": _random,
    "picture": _picture,
}


async def run(device: Device, workload: Workload, *, seed: int = 0) -> Result:
    """`Replay.run`, for who does not look on."""
    return await Replay(device, workload, seed=seed).run()
