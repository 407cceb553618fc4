"""Compute engine: loads kernels, prepares launches, manages contexts (ASID-22, ASID-32, PLACE-27).

    task = await engine.prepare(launch, space)
    pushbuffer.launch_task(task.record)

`Stream.launch` does both. A task is identified by its record, which belongs to one task until that
task has ended.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from signalbox.driver.compute.child import Child, NestingError
from signalbox.driver.compute.contexts import Context, ContextBroken, Contexts
from signalbox.driver.compute.launch import Extent, KernelLaunch, sizes
from signalbox.driver.compute.local_memory import LocalMemory
from signalbox.driver.compute.occupancy import Occupancy, occupancy
from signalbox.driver.compute.placement import AUTO, from_environment, placement
from signalbox.driver.compute.preemption import Urgency, level, urgency
from signalbox.driver.compute.priority_bands import Sharing
from signalbox.driver.compute.program import Program
from signalbox.driver.compute.qmd import Release, TaskRecord
from signalbox.driver.compute.task_lists import TaskListError, TaskLists
from signalbox.driver.compute.task_memory import TaskMemory, TaskPool
from signalbox.driver.compute.tasks import Task, Tasks
from signalbox.driver.faults.channel_error import ChannelError
from signalbox.driver.faults.fault_log import FaultLog
from signalbox.driver.faults.refused_child import RefusedChild, refused_child
from signalbox.driver.faults.task_error import TaskError
from signalbox.driver.faults.warp_fault import WarpFaults
from signalbox.driver.kernels.library import Kernel
from signalbox.driver.memory.address_space import AddressSpace
from signalbox.driver.memory.asids import AddressSpaces
from signalbox.driver.memory.fence import FencePool
from signalbox.driver.memory.physical import Memory
from signalbox.driver.platform.control_port import ControlPort
from signalbox.driver.platform.fair_lock import FairLock
from signalbox.driver.platform.info import DeviceInfo
from signalbox.hw.errors import Cause
from signalbox.hw.instance_block import SUBCONTEXTS
from signalbox.hw.qmd import QMD_BYTES, Placement
from signalbox.hw.registers import KillScope, PreemptionLevel

__all__ = ["ComputeEngine", "ComputeSettings"]

_KILL_POLL_CYCLES = 50
"""Cycles between two polls of a kill request in progress."""


@dataclass(frozen=True)
class ComputeSettings:
    """Settings of the compute engine.

    Members
    -------
    waiting : maximum number of waiting tasks of one priority in each context.
    slice_cycles : time slice of a context, in cycles.
    timeout_cycles : cycles after the end of its slice until the tasks of a context that still have
        blocks on SMs are killed (TASK_TIMEOUT); 0: they are waited for.
    placement : default placement of contexts; None for that of the environment variable
        SIGNALBOX_PLACEMENT.
    urgency : default urgency of contexts.
    level : default preemption level of contexts.
    spaces_each : maximum number of address spaces that join one context by default.
    sharing : which streams share a device priority if the nesting depth leaves too few.
    """

    waiting: int = 64
    slice_cycles: int = 20_000
    timeout_cycles: int = 1_000_000
    placement: Placement | str | None = None
    urgency: Urgency | str = Urgency.DRAIN
    level: PreemptionLevel | str = PreemptionLevel.CTA
    spaces_each: int = SUBCONTEXTS
    sharing: Sharing | str = Sharing.MOST_URGENT

    @property
    def policy(self) -> Placement:
        """Default placement of contexts. Raises `PlacementError`."""
        return from_environment() if self.placement is None else placement(self.placement)


class ComputeEngine:
    """Compute engine of one device (`Device.compute`).

    Members
    -------
    contexts : contexts and their address spaces.
    warp_faults : faults of warps.
    """

    def __init__(
        self,
        control: ControlPort,
        memory: Memory,
        spaces: AddressSpaces,
        info: DeviceInfo,
        settings: ComputeSettings,
        fences: Callable[[AddressSpace], FencePool],
    ) -> None:
        self._control, self._memory, self._spaces = control, memory, spaces
        self._info, self._settings, self._fences = info, settings, fences
        self._pending: int | None = None
        """Limit of pending launches, once it is known."""
        default = settings.policy
        self.contexts = Contexts(
            control,
            memory,
            info.contexts,
            default=default,
            default_urgency=urgency(settings.urgency),
            default_level=level(settings.level),
            save_bytes=info.save_places * info.save_place_bytes,
            spaces_each=settings.spaces_each,
        )
        self.warp_faults = WarpFaults(control)
        rows = info.slots + info.spare_rows
        self._lists = TaskLists(
            control,
            memory,
            rows=rows,
            contexts=info.contexts,
            waiting=settings.waiting,
            save_places=info.save_places,
            nested_kernels=info.nested_kernels,
        )
        self._system = self._own_space()
        self._lost = False
        self._lock, self._kills = FairLock(control.machine), FairLock(control.machine)
        self._refusals = FairLock(control.machine)
        self._pools: dict[AddressSpace, TaskPool] = {}
        self._local: dict[AddressSpace, LocalMemory] = {}
        self._programs: dict[tuple[AddressSpace, bytes], Program] = {}

    def _own_space(self) -> AddressSpace | None:
        """Create a protected address space for the task lists; None on a machine with one ASID,
        where they are mapped in the space that has it."""
        if not self._spaces.reserved:
            return None
        return self._spaces.create("system", asid=max(self._spaces.reserved))

    # -- life --------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Set up task lists and contexts. Raises `TaskListError` if the machine still has tasks."""
        await self._lists.rest()
        if self._system is not None:
            await self._lists.place(self._system, await self._spaces.acquire(self._system))
        await self._control.write("CONTEXT_SLICE", self._settings.slice_cycles)
        await self._control.write("CONTEXT_TIMEOUT", self._settings.timeout_cycles)
        await self.contexts.open()
        await self._control.write("TASK_STATUS", WARP_FAULT=1, LOST=1, CHILD=1)

    def release(self) -> None:
        """Release the ASID of the task lists, once the machine has no tasks and all channels are
        closed."""
        if self._system is not None:
            self._spaces.release(self._system)

    def free(self) -> None:
        """Free all memory, once all address spaces are closed."""
        for space in {*self._pools, *self._local, *(space for space, _ in self._programs)}:
            self.forget(space)
        self._lists.free()
        self.contexts.free()

    def forget(self, space: AddressSpace) -> None:
        """Free programs and task records of a closed space."""
        if pool := self._pools.pop(space, None):
            pool.end()
        if local := self._local.pop(space, None):
            local.end()
        for key in [key for key in self._programs if key[0] is space]:
            self._programs.pop(key).buffer.free()
        self.contexts.forget(space)

    # -- channels ----------------------------------------------------------------------------------

    async def join(self, space: AddressSpace, asid: int) -> Context | None:
        """Add a channel of a space, before it is enabled; `asid` is the space's. Returns the
        context of its tasks; None if all are taken. Raises as `TaskLists.place`."""
        if self._system is None:
            await self._lists.place(space, asid)
        return self.contexts.join(space)

    async def leave(self, space: AddressSpace) -> None:
        """Remove a channel of a space, once it is disabled and idle. Raises `ContextError`."""
        await self.contexts.leave(space)

    async def explain(
        self, error: ChannelError, asid: int, tasks: Tasks, faults: FaultLog
    ) -> TaskError:
        """Complete a channel's error with the task, warp and translation fault that caused it;
        `asid` is that of the channel's space."""
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
        """Number of blocks of a kernel that fit an SM at once; `shared` is additional shared memory
        per block, in bytes. Raises `BlockError` if not even one block fits."""
        one = KernelLaunch(
            kernel=kernel, grid=(1, 1, 1), block=sizes(block), args={}, shared=shared
        )
        needs = {"registers": kernel.registers, "block": one.block, "shared": one.shared_bytes}
        return occupancy(self._info, **needs)

    async def load(self, kernel: Kernel, space: AddressSpace) -> Program:
        """Load a kernel into an address space, once; it stays until the space is closed. Raises as
        `AddressSpace.allocate`."""
        key, text = (space, kernel.program), kernel.program
        async with self._lock:
            if key not in self._programs:
                options = {"above": space.upper, "read_only": True, "name": kernel.name}
                buffer = await space.allocate(len(text), **options)
                buffer.write(text)
                self._programs[key] = Program(kernel, space, buffer)
        return self._programs[key]

    async def prepare(self, launch: KernelLaunch, space: AddressSpace) -> Task:
        """Write program, arguments and task record of a launch to memory of an address space.

        Returns the task, to be launched by its `record` or dropped with `Task.discard`. Raises
        `PreemptionError`, `BlockError`, `OutOfContexts`, `OutOfMemory`, `OutOfAddresses`,
        `ValueError` for wrong arguments.
        """
        arguments, program, local = await self._load(launch, space)
        self.contexts.enter(space)
        if self._info.nested_kernels:
            await self.contexts.nest(space, launch.depth)
            await self._limit_children(launch.pending)
        memory = await self._pool(space).take(QMD_BYTES + len(arguments))
        fences = self._fences(space)
        fence = await fences.take()
        release = Release(fence.address, fence.following, timestamp=True)
        fence.advance()
        task = Task(program, memory, fence, fences, local)
        try:
            self._write(launch, program, memory, arguments, (release,))
        except Exception:
            task.discard()
            raise
        return task

    async def prepare_child(self, launch: KernelLaunch, space: AddressSpace) -> Child:
        """The same for a kernel that is launched by others (NEST-10). Also raises
        `NestingError`."""
        if not self._info.nested_kernels:
            raise NestingError("the machine has no nested launches (Config.nested_kernels)")
        if launch.kernel.local:  # the area is a setting of the channel that launches
            raise NestingError(f"{launch.kernel.name} has local memory: kernels cannot launch it")
        arguments, program, _ = await self._load(launch, space)
        memory = await self._pool(space).take(QMD_BYTES + len(arguments))
        try:
            self._write(launch, program, memory, arguments, ())
        except Exception:
            memory.free()
            raise
        return Child(program, memory)

    async def _limit_children(self, count: int) -> None:
        """Limit the children of kernels that are not complete (NEST-15)."""
        if count != self._pending:
            await self._control.write("CHILD_LIMIT", COUNT=count)
            self._pending = count

    async def _load(
        self, launch: KernelLaunch, space: AddressSpace
    ) -> tuple[bytes, Program, LocalMemory | None]:
        """Check a launch; its arguments, and its program and local memory in the space."""
        kernel = launch.kernel
        self.contexts.check_urgency(launch.urgency)
        self.occupancy(kernel, launch.block, launch.shared)
        arguments = kernel.arguments(**launch.args)
        program = await self.load(kernel, space)
        return arguments, program, await self._reserve_local(space, kernel.local)

    def _pool(self, space: AddressSpace) -> TaskPool:
        if space not in self._pools:
            self._pools[space] = TaskPool(space, self._memory.machine)
        return self._pools[space]

    async def _reserve_local(self, space: AddressSpace, size: int) -> LocalMemory | None:
        """Local memory of a space, with room for `size` bytes per thread; None for 0."""
        if size == 0:
            return None
        if space not in self._local:
            self._local[space] = LocalMemory(space, self._memory.machine, self._info)
        await self._local[space].reserve(size)
        return self._local[space]

    def _write(
        self,
        launch: KernelLaunch,
        program: Program,
        memory: TaskMemory,
        arguments: bytes,
        releases: tuple[Release, ...],
    ) -> None:
        """Write the task record, directly followed by the arguments."""
        open_ = launch.placement is AUTO
        policy = self.contexts.policy(program.space) if open_ else launch.placement
        record = TaskRecord(
            program=program.va,
            registers=launch.kernel.registers,
            grid=launch.grid,
            block=launch.block,
            arguments=memory.va + QMD_BYTES,
            argument_bytes=len(arguments),
            constants=launch.constants,
            shared=launch.shared_bytes,
            local=launch.kernel.local,
            barrier=launch.kernel.barrier,
            priority=launch.priority,
            head=launch.head,
            placement=policy,
            urgency=launch.urgency,
            releases=releases,
        )
        memory.write(record.pack(self._info) + arguments)

    # -- killing -----------------------------------------------------------------------------------

    async def kill(
        self, scope: KillScope, *, asid: int = 0, context: int = 0, record: int = 0
    ) -> None:
        """Kill the tasks in progress that the request names, and wait until they have ended, each
        with an error of its channel (TASK_KILLED)."""
        async with self._kills:
            await self._killed()  # a request whose caller was cancelled
            await self._control.write("TASK_KILL_RECORD", record >> 8)
            await self._control.write("TASK_KILL", SCOPE=scope, CONTEXT=context, ASID=asid)
            await self._killed()

    async def _killed(self) -> None:
        """Wait until no kill request is in progress."""
        while (await self._control.read_fields("TASK_STATE"))["KILLING"]:
            await self._control.machine.wait_cycles(_KILL_POLL_CYCLES)

    # -- errors ------------------------------------------------------------------------------------

    async def refused_child(self) -> RefusedChild | None:
        """The first launch of a kernel by a kernel that was refused since the last call, and how
        many there were; None if there was none (NEST-11)."""
        async with self._refusals:
            return await refused_child(self._control)

    async def serve(self) -> None:
        """Serve the compute engine's interrupt: read warp faults, lost tasks, broken contexts."""
        await self.warp_faults.read()
        if (await self._control.read_fields("TASK_STATUS"))["LOST"]:
            self._lost = True
            await self._control.write("TASK_STATUS", LOST=1)
        await self.contexts.look()

    def tell(self) -> None:
        """Raise `TaskListError`, once, if the machine has lost a task."""
        lost, self._lost = self._lost, False
        if lost:
            raise TaskListError("the machine lost a task: it could not read it from its list")

    def broken(self, spaces: Sequence[AddressSpace]) -> ContextBroken | None:
        """Error of the first broken context of these address spaces, or None."""
        contexts = (self.contexts.of(space) for space in spaces)
        return next((one.broken for one in contexts if one is not None and one.broken), None)
