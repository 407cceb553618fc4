"""The compute engine: kernels, launches, contexts (ASID-22, ASID-32, PLACE-27).

    task = await stream.launch(VECTOR_ADD, grid=4, block=64, args={"A": a, "B": b, "C": c, "N": n})
    await task.synchronize()

Tasks are told apart by their records: one record is one task, until that is over.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, SupportsInt

from driver.addressspace import AddressSpace
from driver.contexts import Context, ContextBroken, Contexts
from driver.control import Control
from driver.fault import ChannelError
from driver.faultlog import FaultLog
from driver.fence import FencePool
from driver.info import DeviceInfo
from driver.kernels import Kernel
from driver.mapping import Mapping as SpaceMapping
from driver.memory import Buffer, Memory
from driver.occupancy import Occupancy, occupancy
from driver.placement import AUTO, from_environment, placement
from driver.program import Program
from driver.pushbuffer import Pushbuffer
from driver.spaces import AddressSpaces
from driver.taskerror import TaskError
from driver.tasklists import TaskListError, TaskLists
from driver.taskmemory import TaskMemory, TaskPool
from driver.taskrecord import Release, TaskRecord
from driver.tasks import Task, Tasks
from driver.turns import Turns
from driver.warpfault import WarpFaults
from hw.config import SHARED_UNIT
from hw.errors import Cause
from hw.instance import SUBCONTEXTS
from hw.qmd import QMD_BYTES, Placement

if TYPE_CHECKING:
    from driver.stream import Stream

__all__ = ["Argument", "Compute", "ComputeSettings", "Extent", "Launch", "sizes"]

Extent = int | Sequence[int]
"""Sizes in x, y, z; those that are left out are 1."""

Argument = SupportsInt | Buffer | SpaceMapping
"""Of a kernel: a number; or, for its address, a buffer or a mapping of the stream's space."""


def sizes(extent: Extent) -> tuple[int, int, int]:
    """All three sizes. Raises `ValueError`."""
    given = (extent,) if isinstance(extent, int) else tuple(extent)
    if not 1 <= len(given) <= 3:
        raise ValueError(f"{extent} has {len(given)} sizes: there are 1 … 3")
    x, y, z = (*given, 1, 1, 1)[:3]
    return int(x), int(y), int(z)


@dataclass(frozen=True)
class ComputeSettings:
    """How the compute engine is set up.

    Members
    -------
    waiting : tasks of one priority that may wait in each context.
    slice_cycles : cycles that a context runs while others wait.
    placement : of contexts; else what the environment variable SIGNALBOX_PLACEMENT says.
    spaces_each : address spaces that go to one context by themselves.
    """

    waiting: int = 64
    slice_cycles: int = 20_000
    placement: Placement | str | None = None
    spaces_each: int = SUBCONTEXTS

    @property
    def policy(self) -> Placement:
        """The placement. Raises `PlacementError`."""
        return from_environment() if self.placement is None else placement(self.placement)


@dataclass(frozen=True, kw_only=True)
class Launch:
    """What a launch says, as in `Stream.launch`."""

    kernel: Kernel
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    args: Mapping[str, Argument]
    priority: int = 0
    placement: Placement = AUTO
    shared: int = 0
    head: bool = False
    overlap: bool = False

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a block: the kernel's, and `shared` more; in whole units."""
        size = prod(self.block) * self.kernel.shared_per_thread + self.shared
        return -(-size // SHARED_UNIT) * SHARED_UNIT


class Compute:
    """Of one device that has a compute engine (`Device.compute`).

    Members
    -------
    contexts : which address spaces run side by side.
    warp_faults : warps that could not go on.
    """

    def __init__(
        self,
        control: Control,
        memory: Memory,
        spaces: AddressSpaces,
        info: DeviceInfo,
        settings: ComputeSettings,
        fences: Callable[[AddressSpace], FencePool],
    ) -> None:
        self._control, self._memory, self._spaces = control, memory, spaces
        self._info, self._settings, self._fences = info, settings, fences
        default = settings.policy
        self.contexts = Contexts(
            control, memory, info.contexts, default=default, spaces_each=settings.spaces_each
        )
        self.warp_faults = WarpFaults(control)
        counts = {"slots": info.slots, "contexts": info.contexts, "waiting": settings.waiting}
        self._lists = TaskLists(control, memory, **counts)
        self._system = self._own_space()
        self._lost = False
        self._turns = Turns(control.machine)
        self._pools: dict[AddressSpace, TaskPool] = {}
        self._programs: dict[tuple[AddressSpace, bytes], Program] = {}

    def _own_space(self) -> AddressSpace | None:
        """The address space of the lists, which no application reaches; None on a machine with one
        ASID, where it is that of whoever has it."""
        if not self._spaces.reserved:
            return None
        return self._spaces.create("system", asid=max(self._spaces.reserved))

    # -- life --------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Tell the machine of lists and contexts; it has no task. Raises `TaskListError`."""
        await self._lists.rest()
        if self._system is not None:
            await self._lists.place(self._system, await self._spaces.acquire(self._system))
        await self._control.write("CONTEXT_SLICE", self._settings.slice_cycles)
        await self.contexts.open()
        await self._control.write("TASK_STATUS", WARP_FAULT=1, LOST=1)

    def release(self) -> None:
        """The machine has no task any more, and its channels are closed."""
        if self._system is not None:
            self._spaces.release(self._system)

    def free(self) -> None:
        """Give all memory back, once all address spaces are closed."""
        for space in {*self._pools, *(space for space, _ in self._programs)}:
            self.forget(space)
        self._lists.free()
        self.contexts.free()

    def forget(self, space: AddressSpace) -> None:
        """A space was closed: its programs and records go."""
        if pool := self._pools.pop(space, None):
            pool.end()
        for key in [key for key in self._programs if key[0] is space]:
            self._programs.pop(key).buffer.free()
        self.contexts.forget(space)

    # -- channels ----------------------------------------------------------------------------------

    async def join(self, space: AddressSpace, asid: int) -> Context | None:
        """A channel of a space, which has `asid`, is going to be opened; the context of its tasks,
        None when all are taken."""
        if self._system is None:
            await self._lists.place(space, asid)
        return self.contexts.join(space)

    async def leave(self, space: AddressSpace) -> None:
        """A channel of a space is closed and at rest. Raises `ContextError`."""
        await self.contexts.leave(space)

    async def explain(
        self, error: ChannelError, asid: int, tasks: Tasks, faults: FaultLog
    ) -> TaskError:
        """All that is known of a task's error of a channel of address space `asid`."""
        task = tasks.find(error.va)
        warp, place, kernel = None, "", task.name if task else ""
        fields = await self._control.read_channel_fields(error.channel, "CAUSE")
        if error.cause is Cause.TASK_KERNEL:
            holds = task.program.holds if task else lambda at: True
            warp = await self.warp_faults.claim(asid, holds)
            place = task.program.line(warp.at) if task and warp else ""
        found = TaskError.of(error, kernel, fields["SKEDCHECK"], warp, place)
        if error.cause is Cause.TASK_LISTS and self._system is not None:
            asid = max(self._spaces.reserved)
        if error.cause is not Cause.TASK_KERNEL:
            found.fault = await faults.claim(asid, error)
        elif warp is not None and warp.va is not None:
            found.fault = await faults.claim(asid, error, va=warp.va)
        return found

    # -- kernels -----------------------------------------------------------------------------------

    def occupancy(self, kernel: Kernel, block: Extent, shared: int = 0) -> Occupancy:
        """How many blocks of a kernel an SM holds at once, with `shared` bytes beside what the
        kernel needs. Raises `BlockError`, which names the resource that one block is too big for.
        """
        one = Launch(kernel=kernel, grid=(1, 1, 1), block=sizes(block), args={}, shared=shared)
        needs = {"registers": kernel.registers, "block": one.block, "shared": one.shared_bytes}
        return occupancy(self._info, **needs)

    async def load(self, kernel: Kernel, space: AddressSpace) -> Program:
        """A kernel in an address space; put there when it is not yet, until the space is closed.
        Raises as `AddressSpace.allocate`."""
        key, text = (space, kernel.program), kernel.program
        async with self._turns.take():
            if key not in self._programs:
                options = {"above": space.upper, "read_only": True, "name": kernel.name}
                buffer = await space.allocate(len(text), **options)
                buffer.write(text)
                self._programs[key] = Program(kernel, space, buffer)
        return self._programs[key]

    async def launch(self, stream: "Stream", launch: Launch) -> Task:
        """See `Stream.launch`."""
        kernel, space = launch.kernel, stream.space
        self.occupancy(kernel, launch.block, launch.shared)
        values = {name: _value(stream, value) for name, value in launch.args.items()}
        arguments = kernel.arguments(**values)
        program = await self.load(kernel, space)
        self.contexts.enter(space)
        memory = await self._pool(space).take(QMD_BYTES + len(arguments))
        fence = await self._fences(space).take()
        try:
            release = Release(fence.address, fence.following, timestamp=True)
            record = self._record(launch, program, memory, len(arguments), release)
            memory.write(record.pack(self._info) + arguments)
            fence.advance()
            return await self._submit(stream, launch, Task(program, stream, memory, fence))
        except Exception:
            memory.free()
            self._fences(space).give(fence)
            raise

    def _pool(self, space: AddressSpace) -> TaskPool:
        if space not in self._pools:
            self._pools[space] = TaskPool(space, self._memory.machine)
        return self._pools[space]

    def _record(
        self, launch: Launch, program: Program, memory: TaskMemory, size: int, release: Release
    ) -> TaskRecord:
        """The record, behind which the arguments lie."""
        open_ = launch.placement is AUTO
        policy = self.contexts.policy(program.space) if open_ else launch.placement
        return TaskRecord(
            program=program.va,
            registers=launch.kernel.registers,
            grid=launch.grid,
            block=launch.block,
            arguments=memory.va + QMD_BYTES,
            argument_bytes=size,
            shared=launch.shared_bytes,
            barrier=launch.kernel.barrier,
            priority=launch.priority,
            head=launch.head,
            placement=policy,
            releases=(release,),
        )

    @staticmethod
    async def _submit(stream: "Stream", launch: Launch, task: Task) -> Task:
        """In order with the earlier work of the stream, unless it may overlap."""
        async with stream.submission():
            task.channel = stream.channel
            commands = Pushbuffer()
            if not launch.overlap and not stream.idle:
                commands.wait_own()
            await stream.enqueue(commands.launch_task(task.record))
            task.channel.tasks.launched(task)
        return task

    # -- errors ------------------------------------------------------------------------------------

    async def serve(self) -> None:
        """Take note of what the machine tells of tasks and contexts."""
        await self.warp_faults.read()
        if (await self._control.read_fields("TASK_STATUS"))["LOST"]:
            self._lost = True
            await self._control.write("TASK_STATUS", LOST=1)
        await self.contexts.look()

    def tell(self) -> None:
        """Raise `TaskListError` if the machine lost a task, once."""
        lost, self._lost = self._lost, False
        if lost:
            raise TaskListError("the machine lost a task: it could not read it from its list")

    def broken(self, spaces: Sequence[AddressSpace]) -> ContextBroken | None:
        """Why tasks of one of these address spaces cannot run."""
        contexts = (self.contexts.of(space) for space in spaces)
        return next((one.broken for one in contexts if one is not None and one.broken), None)


def _value(stream: "Stream", argument: Argument) -> int:
    """An argument as a number."""
    if isinstance(argument, (Buffer, SpaceMapping)):
        return stream.address(argument, 0)
    return int(argument)
