"""Runs a workload on a device, verifies every byte, and records when each copy and kernel ended."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Any

import numpy as np

from signalbox.driver.channel.priority_policy import NoPriorityPolicy
from signalbox.driver.compute.child import Child
from signalbox.driver.compute.tasks import Task
from signalbox.driver.device import Device
from signalbox.driver.faults.channel_error import ChannelError, ChannelTimeout
from signalbox.driver.memory.address_space import AddressSpace
from signalbox.driver.memory.physical import Buffer
from signalbox.driver.nested.family import LaunchRefused
from signalbox.driver.nested.flat import FlatLaunch
from signalbox.driver.runtime.event import Event
from signalbox.driver.runtime.limits import Limit
from signalbox.driver.runtime.stream import Stream
from signalbox.driver.workload.agenda import Action, Agenda
from signalbox.driver.workload.expected_data import GUARD, ExpectedData, VerifyError, lines
from signalbox.driver.workload.flat_jobs import FLAT, FlatJob
from signalbox.driver.workload.nested_jobs import NestedJob
from signalbox.driver.workload.records import (
    ChildRecord,
    CopyRecord,
    KernelRecord,
    Result,
    SpaceRecord,
)
from signalbox.driver.workload.repairs import Repairs
from signalbox.driver.workload.specs import (
    CopySpec,
    KernelSpec,
    NestedSpec,
    Request,
    Workload,
    requests,
)

__all__ = ["Replay", "VerifyError", "run"]

_LISTS = "task lists"
"""Name, in records, of the driver's address space for task lists."""


@dataclass(kw_only=True)
class _Work:
    """A copy, kernel or algorithm of the run. `expected` : its result; None if it has none.
    `behind` : keys of the work of other streams that it waits for because of a NULL stream."""

    request: Request
    stream: Stream
    done: Event
    expected: ExpectedData | None
    submitted: int = 0
    behind: tuple[tuple[str, int], ...] = ()

    @property
    def is_child(self) -> bool:
        """Whether it is launched by a kernel instead of the driver."""
        return False

    def check(self) -> None:
        """Raise `LaunchRefused` if it could not launch a child."""


@dataclass(kw_only=True)
class _Copy(_Work):
    """A copy from virtual address `src` to `to`."""

    spec: CopySpec
    src: int
    src_pitch: int
    to: int


@dataclass(kw_only=True)
class _Kernel(_Work):
    """A kernel with all its arguments.

    Members
    -------
    page, task : address >> 8 of its record, and its task, once the driver has launched it.
    child : the prepared child, if a kernel launches it.
    status : word that it writes if one of its own children is refused; None without children.
    """

    spec: KernelSpec
    args: dict[str, int]
    page: int = 0
    task: Task | None = None
    child: Child | None = None
    status: Buffer | None = None

    @property
    def cancelled(self) -> bool:
        """Whether it was cancelled before its end."""
        return self.task is not None and self.task.cancelled

    @property
    def is_child(self) -> bool:
        return self.spec.parent is not None

    def check(self) -> None:
        if self.status is not None and (answer := int(self.status.read(np.uint32, 1)[0])):
            raise LaunchRefused(answer)


@dataclass(kw_only=True)
class _Nested(_Work):
    """A prepared algorithm with nested launches. `page` : address >> 8 of the root's record, once
    it is submitted."""

    spec: NestedSpec
    job: NestedJob
    page: int = 0

    def check(self) -> None:
        self.job.family.check()


@dataclass(kw_only=True)
class _Step:
    """A kernel of a flat algorithm, and the machine cycle in which it was submitted."""

    launch: FlatLaunch
    submitted: int


@dataclass(kw_only=True)
class _Flat(_Work):
    """A prepared flat algorithm. `begun` : whether its run has started. `steps` : its kernels so
    far."""

    spec: NestedSpec
    job: FlatJob
    begun: bool = False
    steps: list[_Step] = field(default_factory=list)

    @property
    def busy(self) -> bool:
        """Whether a kernel has not ended. Raises as `Task.query`."""
        return not all(step.launch.task.query() for step in self.steps)


_Any = _Copy | _Kernel | _Nested | _Flat


class Replay:
    """One run of a workload on a device, under the device's policy.

    One coroutine submits copies and kernels at their times (`Agenda`). Channels wait for the events
    of dependencies. `seed` determines the random data. Under a `NoPriorityPolicy`, all kernels have
    priority 0. The device must have the scheduling of the workload's policy.
    """

    def __init__(self, device: Device, workload: Workload, *, seed: int = 0) -> None:
        self._device = device
        self._workload = workload
        self._numbers = np.random.default_rng(seed)
        self._requests: dict[tuple[str, int], Request] = {}
        self._spaces: dict[str | None, AddressSpace] = {None: device.space}
        self._streams: dict[str, Stream] = {}
        self._work: dict[tuple[str, int], _Any] = {}
        self._expected: dict[Buffer, tuple[str, ExpectedData]] = {}
        self._buffers: list[Buffer] = []
        self._repairs = Repairs(device)
        self._latest: dict[str, tuple[str, int]] = {}
        """Key of the last work submitted, by stream."""

    def finished(self) -> int:
        """Number of copies and kernels that have ended. May be called at any time during the
        run."""
        return sum(work.done.recorded and work.done.query() for work in self._work.values())

    async def run(self) -> Result:
        """Run the workload and verify every byte. Call once. A run that has ended, or failed,
        leaves no streams, spaces or memory on the device, except after a `ChannelError`: then work
        still waits in the halted channel.

        Raises `VerifyError`, `ChannelError`, `OutOfMemory`, `OutOfAsids`, `OutOfContexts`,
        `DeviceError`.
        """
        try:
            result = await self._run()
        except ChannelError:
            raise
        except Exception:
            with suppress(Exception):  # the first error is the one to report
                await self._free()
            raise
        await self._free()
        return result

    async def _run(self) -> Result:
        device, machine = self._device, self._device.machine
        device.set_limit(Limit.NESTING_DEPTH, self._workload.limits.nesting_depth)
        device.set_limit(Limit.PENDING_LAUNCHES, self._workload.limits.pending_launches)
        await self._open_streams()
        order = requests(self._workload.work)
        self._requests = {request.key: request for request in order}
        for request in order:
            if request.key not in self._work:
                await self._place(request)
        spaces = self._space_records()
        await self._unmap_missing()
        await device.synchronize()
        start = machine.now()
        await Agenda(self._actions(order, start), self._repairs.wait_until, machine.now).run()
        await self._synchronize()
        self._verify()
        return self._result([self._work[request.key] for request in order], spaces, start)

    def _verify(self) -> None:
        """Raise `VerifyError` if a child was refused, or for wrong data."""
        for (name, index), work in self._work.items():
            try:
                work.check()
            except LaunchRefused as error:
                raise VerifyError(f"{name}[{index}]: {error}") from error
        for title, expected in self._expected.values():
            expected.verify(title)

    async def _free(self) -> None:
        """Close streams, once their work has ended, then events; free all memory, and close address
        spaces."""
        for stream in self._streams.values():
            await stream.close()
        for work in self._work.values():
            work.done.close()
            if isinstance(work, _Nested | _Flat):
                await work.job.free()
            elif isinstance(work, _Kernel) and work.child is not None:
                work.child.free()
        for buffer in self._buffers:
            await self._device.free(buffer)
        for space in self._spaces.values():
            if space is not self._device.space:
                await self._device.close_space(space)

    def _actions(self, order: Sequence[Request], start: int) -> list[Action]:
        """Actions of a run that starts in machine cycle `start`: submissions and cancellations."""
        works = [self._work[request.key] for request in order]
        actions = [self._submission(work, start) for work in works if not work.is_child]
        for work in self._work.values():
            if isinstance(work, _Kernel) and work.spec.cancel_at is not None:
                cancel, at = partial(self._cancel, work), start + work.spec.cancel_at
                actions.append(Action(at=at, act=cancel, needs=[work.done]))
        return actions

    def _submission(self, work: _Any, start: int) -> Action:
        request = work.request
        act = self._advance if isinstance(work, _Flat) else self._submit
        return Action(
            at=start + request.at,
            act=partial(act, work),
            stream=request.spec.stream,
            delay=work.spec.delay if isinstance(work, _Kernel) else None,
            done=work.done,
            needs=[self._work[key].done for key in request.needs if key in self._work],
        )

    def _result(
        self,
        work: Sequence[_Any],
        spaces: tuple[SpaceRecord, ...],
        start: int,
    ) -> Result:
        """Result of a finished run that started in machine cycle `start`."""
        return Result(
            self._workload,
            type(self._device.policy).__name__,
            tuple(self._copy_record(one, start) for one in work if isinstance(one, _Copy)),
            start,
            spaces,
            self._repairs.records(start),
            tuple(chain.from_iterable(self._kernel_records(one, start) for one in work)),
            tuple(self._child_records(work)),
        )

    async def _open_streams(self) -> None:
        """Create address spaces and streams."""
        for space in self._workload.spaces:
            self._spaces[space.name] = self._device.create_space(space.name)
        if self._workload.policy.scheduling == "runlist":
            for name, group in self._workload.groups.items():
                settings = {"slice_ns": group.slice_ns, "level": group.level}
                await self._device.runlist.configure(self._spaces[name], **settings)
        for spec in self._workload.streams:
            space = self._spaces[spec.space]
            stream = await self._device.stream(spec.priority, space=space, name=spec.name)
            self._streams[spec.name] = stream

    def _space_records(self) -> tuple[SpaceRecord, ...]:
        """Records of the streams' spaces and the driver's own, by ASID."""
        jobs = (work.job for work in self._work.values() if isinstance(work, _Nested | _Flat))
        mine = {*self._buffers, *chain.from_iterable(job.buffers for job in jobs)}
        records = [
            SpaceRecord(
                space.name,
                space.asid,
                tuple((each.va, each.end - 1) for each in space if each.buffer in mine),
            )
            for space in dict.fromkeys(stream.space for stream in self._streams.values())
            if space.asid is not None
        ]
        if self._workload.launches:
            records += [SpaceRecord(_LISTS, asid, ()) for asid in self._device.spaces.reserved]
        return tuple(sorted(records, key=lambda record: record.asid))

    async def _unmap_missing(self) -> None:
        """Unmap the pages on which copies are to fault."""
        for key, copy in self._work.items():
            if isinstance(copy, _Copy) and copy.spec.unmapped is not None:
                va = copy.src if copy.spec.unmapped == "source" else copy.to
                await self._repairs.take_away(key, copy.stream, va, copy.spec.repair_after)

    async def _synchronize(self) -> None:
        """Wait for all work, repairing its faults."""
        while True:
            try:
                await self._device.synchronize()
                return
            except ChannelError as error:
                await self._repairs.attend(error)

    async def _place(self, request: Request, parent: _Kernel | None = None) -> None:
        """Prepare a copy, kernel or algorithm: allocate and fill its memory in the address space of
        its stream. A child has the end event of the [[kernel]] from which it descends."""
        spec = request.spec
        if isinstance(spec, CopySpec):
            work = await self._place_copy(request, spec)
        elif isinstance(spec, KernelSpec):
            done = self._device.event(interrupt=False) if parent is None else parent.done
            work = await self._place_kernel(request, spec, done)
        else:
            work = await self._place_nested(request, spec)
        self._work[request.key] = work
        if work.expected is not None:
            self._expected[work.expected.buffer] = f"{spec.name}[{request.index}]", work.expected

    async def _place_copy(self, request: Request, spec: CopySpec) -> _Copy:
        stream = self._streams[spec.stream]
        if spec.source is None:
            image = _DATA[spec.data](spec, request.index, self._numbers)
            src, src_pitch = await self._upload(spec, image, stream.space), spec.src_pitch
        else:
            origin = self._origin(request, spec.source)
            image, src_pitch = origin.image, origin.pitch
            src = await origin.address_in(stream.space)
        size = spec.dst_offset + spec.dst_pitch * spec.height
        expected = await self._destination(spec.name, stream, size, spec.dst_offset, spec.dst_pitch)
        expected.image = image
        return _Copy(
            request=request,
            spec=spec,
            stream=stream,
            done=self._device.event(interrupt=False),
            expected=expected,
            src=src,
            src_pitch=src_pitch,
            to=stream.space.at(expected.buffer, spec.dst_offset),
        )

    async def _place_kernel(self, request: Request, spec: KernelSpec, done: Event) -> _Kernel:
        """Prepare a kernel; its expected result is computed by numpy here."""
        stream, output = self._streams[spec.stream], spec.reference.output
        data = {pointer: self._origin(request, name) for pointer, name in spec.sources.items()}
        if output and output not in data:
            data[output] = await self._destination(spec.name, stream, spec.size, 0, spec.size)
        args = {name: await expected.address_in(stream.space) for name, expected in data.items()}
        words = {name: expected.words for name, expected in data.items()}
        spec.reference.compute(spec.shape, words | spec.numbers)
        kernel = _Kernel(
            request=request,
            spec=spec,
            stream=stream,
            done=done,
            expected=data[output].overwritten(words[output]) if output else None,
            args=args | spec.numbers,
        )
        if spec.children:
            await self._place_children(kernel)
        return kernel

    async def _place_children(self, kernel: _Kernel) -> None:
        """Prepare the children of a kernel, which become its arguments."""
        spec, stream = kernel.spec, kernel.stream
        for parameter, name in spec.children.items():
            await self._place(self._requests[name, kernel.request.index], kernel)
            work = self._work[name, kernel.request.index]
            assert isinstance(work, _Kernel), "only kernels are children"
            its = work.spec
            work.child = await stream.child(
                its.reference.kernel,
                its.grid,
                its.block,
                work.args,
                policy=its.policy,
                sms=its.sms,
            )
            kernel.args[parameter] = int(work.child)
        kernel.status = await self._device.upload(np.zeros(1, np.uint32), space=stream.space)
        self._buffers.append(kernel.status)
        kernel.args[spec.reference.status] = stream.address(kernel.status, 0)

    async def _place_nested(self, request: Request, spec: NestedSpec) -> _Nested | _Flat:
        """Prepare an algorithm, with input from its own seed."""
        stream, numbers = (
            self._streams[spec.stream],
            np.random.default_rng([spec.seed, request.index]),
        )
        sizes = self._device, stream, numbers, spec.n, spec.levels
        done = self._device.event(interrupt=False)
        common = {"request": request, "spec": spec, "stream": stream, "done": done}
        if spec.flat:
            flat = await FLAT[spec.kernel].prepare(*sizes)
            return _Flat(**common, expected=flat.expected, job=flat)
        job = await spec.algorithm.prepare(*sizes)
        return _Nested(**common, expected=job.expected, job=job)

    def _origin(self, request: Request, name: str) -> ExpectedData:
        """Result of the earlier copy or kernel `name`, an input of this request."""
        series = (name, request.index) in self._work
        expected = self._work[name, request.index if series else 0].expected
        assert expected is not None, "a workload refers only to work that has a result"
        return expected

    async def _destination(
        self, name: str, stream: Stream, size: int, offset: int, pitch: int
    ) -> ExpectedData:
        """Allocate `size` bytes and a guard, with random contents; the data start at `offset`."""
        canvas = self._numbers.integers(0, 256, size + GUARD, np.uint8)
        buffer = await self._device.upload(canvas, space=stream.space, name=f"{name} destination")
        self._buffers.append(buffer)
        image = lines(canvas, offset, pitch, ((size - offset) // pitch, pitch))
        return ExpectedData(buffer, offset, pitch, image, canvas)

    async def _upload(self, spec: CopySpec, image: np.ndarray, space: AddressSpace) -> int:
        """Upload a fresh image; returns its virtual address."""
        source = np.zeros(spec.src_pitch * spec.height, np.uint8)
        lines(source, 0, spec.src_pitch, image.shape)[:] = image
        size, name = spec.src_offset + source.size, f"{spec.name} source"
        buffer = await self._device.allocate(size, space=space, read_only=True, name=name)
        buffer.write(source, spec.src_offset)
        self._buffers.append(buffer)
        return space.at(buffer, spec.src_offset)

    async def _wait(self, work: _Any) -> None:
        """Let the stream of a copy, kernel or algorithm wait for its dependencies."""
        work.behind = self._before(work.request.spec.stream)
        for key in (*work.request.needs, *work.behind):
            await self._work[key].done.wait(work.stream)

    async def _submit(self, work: _Copy | _Kernel | _Nested) -> None:
        """Submit a copy or kernel, after waits for its dependencies."""
        await self._wait(work)
        if isinstance(work, _Copy):
            await self._submit_copy(work)
        elif isinstance(work, _Kernel):
            await self._submit_kernel(work)
        else:
            await self._submit_nested(work)
        self._latest[work.request.spec.stream] = work.request.key
        work.submitted = self._device.machine.now()

    def _before(self, name: str) -> tuple[tuple[str, int], ...]:
        """Keys of the last work submitted to each other stream that is ordered with stream `name`:
        a NULL stream is ordered with all streams of its space."""
        specs = {spec.name: spec for spec in self._workload.streams}
        mine = specs[name]
        return tuple(
            key
            for other, key in self._latest.items()
            if other != name
            and specs[other].space == mine.space
            and (mine.null or specs[other].null)
        )

    @staticmethod
    async def _submit_copy(copy: _Copy) -> None:
        spec, stream = copy.spec, copy.stream
        if spec.height == 1:
            await stream.memcpy_async(copy.to, copy.src, spec.width, done=copy.done)
        else:
            pitches = {"dst_pitch": spec.dst_pitch, "src": copy.src, "src_pitch": copy.src_pitch}
            shape = {"width": spec.width, "height": spec.height}
            await stream.memcpy_2d_async(copy.to, **pitches, **shape, done=copy.done)

    async def _submit_kernel(self, kernel: _Kernel) -> None:
        spec, stream = kernel.spec, kernel.stream
        task = await stream.launch(
            spec.reference.kernel,
            spec.shape.grid,
            spec.shape.block,
            kernel.args,
            priority=self._priority(kernel),
            policy=spec.policy,
            sms=spec.sms,
            shared=spec.shared,
        )
        kernel.page, kernel.task = task.record >> 8, task
        await kernel.done.record(stream)

    async def _submit_nested(self, nested: _Nested) -> None:
        task = await nested.job.launch(priority=self._priority(nested))
        nested.page = task.record >> 8
        await nested.done.record(nested.stream)

    async def _advance(self, flat: _Flat) -> bool:
        """Submit the next kernels of a flat algorithm, once the last ones have ended. Returns
        whether it is complete."""
        if not flat.begun:
            await self._wait(flat)
            flat.begun = True
            flat.job.start()
        elif flat.busy:
            return False
        launches = await flat.job.algorithm.step(priority=self._priority(flat))
        now = self._device.machine.now()
        flat.steps += [_Step(launch=launch, submitted=now) for launch in launches]
        flat.submitted = flat.steps[0].submitted
        if launches:
            return False
        await flat.done.record(flat.stream)
        self._latest[flat.request.spec.stream] = flat.request.key
        return True

    async def _cancel(self, kernel: _Kernel) -> bool:
        """Cancel a kernel if it has not ended. Returns whether it has ended now; if not, its launch
        still waits for other work, or for the repair of a fault."""
        assert kernel.task is not None, "the action needs its launch"
        try:
            await kernel.task.cancel(patience=0)
        except ChannelTimeout:
            return False
        except ChannelError as error:
            self._repairs.check(error)
            return False
        return True

    def _priority(self, kernel: _Kernel | _Nested | _Flat) -> int:
        """Priority of a kernel's launch."""
        if isinstance(self._device.policy, NoPriorityPolicy):
            return 0
        given = kernel.spec.priority
        return kernel.stream.device_priority if given is None else given

    def _copy_record(self, copy: _Copy, start: int) -> CopyRecord:
        return CopyRecord(
            name=copy.spec.name,
            index=copy.request.index,
            stream=copy.spec.stream,
            channel=copy.stream.channel.index,
            priority=copy.stream.priority,
            size=copy.spec.size,
            **self._times(copy, start),
        )

    def _kernel_records(self, work: _Any, start: int) -> Iterator[KernelRecord]:
        """Records of the kernels that the driver launched."""
        if isinstance(work, _Flat):
            yield from self._step_records(work, start)
        elif not isinstance(work, _Copy) and not work.is_child:
            yield self._kernel_record(work, start)

    def _step_records(self, flat: _Flat, start: int) -> Iterator[KernelRecord]:
        """Records of the kernels of a flat algorithm. Only the first ones wait for other work."""
        whole = self._times(flat, start)
        for number, step in enumerate(flat.steps, 1):
            task, submitted = step.launch.task, step.submitted - start
            times = {
                "submitted": submitted,
                "ready": max(submitted, whole["ready"]),
                "completed": self._device.cycle_of(task.time_ns) - start,
            }
            yield KernelRecord(
                name=flat.spec.name,
                index=flat.request.index,
                kernel=task.name,
                stream=flat.spec.stream,
                channel=flat.stream.channel.index,
                asid=_asid(flat.stream),
                priority=self._priority(flat),
                grid=(step.launch.blocks, 1, 1),
                block=(step.launch.threads, 1, 1),
                page=task.record >> 8,
                step=number,
                **{**whole, **times},
            )

    def _kernel_record(self, kernel: _Kernel | _Nested, start: int) -> KernelRecord:
        spec = kernel.spec
        return KernelRecord(
            name=spec.name,
            index=kernel.request.index,
            kernel=spec.kernel,
            stream=spec.stream,
            channel=kernel.stream.channel.index,
            asid=_asid(kernel.stream),
            priority=self._priority(kernel),
            grid=spec.grid,
            block=spec.block,
            page=kernel.page,
            cancelled=isinstance(kernel, _Kernel) and kernel.cancelled,
            **self._times(kernel, start),
        )

    def _child_records(self, works: Sequence[_Work]) -> Iterator[ChildRecord]:
        """Records of the kernels that kernels may launch."""
        for work in works:
            if isinstance(work, _Nested):
                for child in work.job.family.children:
                    yield _child_record(child, work.stream, "")
            elif isinstance(work, _Kernel) and work.child is not None:
                name, count = work.spec.name, work.spec.count
                title = f"{name}[{work.request.index}]" if count > 1 else name
                yield _child_record(work.child, work.stream, title)

    def _times(self, work: _Work, start: int) -> dict[str, Any]:
        """Times of finished work, in cycles from machine cycle `start`, and its `behind`."""
        needs = (*work.request.needs, *work.behind)
        ready = max([work.submitted, *(self._work[key].done.cycle for key in needs)])
        return {
            "requested": work.request.at,
            "submitted": work.submitted - start,
            "ready": ready - start,
            "completed": work.done.cycle - start,
            "behind": work.behind,
        }


def _asid(stream: Stream) -> int:
    """ASID of an open stream."""
    asid = stream.space.asid
    assert asid is not None, "a space with open streams has one"
    return asid


def _child_record(child: Child, stream: Stream, title: str) -> ChildRecord:
    return ChildRecord(
        title=title,
        kernel=child.program.kernel.name,
        asid=_asid(stream),
        grid=child.grid,
        block=child.block,
        page=child.record >> 8,
    )


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


def _permutation(spec: CopySpec, index: int, numbers: np.random.Generator) -> np.ndarray:
    words = numbers.permutation(spec.width // 4).astype(np.uint32)
    return words.view(np.uint8).reshape(1, -1)


_DATA: dict[str, Callable[[CopySpec, int, np.random.Generator], np.ndarray]] = {
    "random": _random,
    "picture": _picture,
    "permutation": _permutation,
}


async def run(device: Device, workload: Workload, *, seed: int = 0) -> Result:
    """Run a workload on a device. Raises as `Replay.run`."""
    return await Replay(device, workload, seed=seed).run()
