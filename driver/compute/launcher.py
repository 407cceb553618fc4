"""Preparing launches: programs, arguments and task records in memory (HOST-10).

    task = await launcher.prepare(launch, space)
    pushbuffer.launch_task(task.record)

`Stream.launch` does both. A task is identified by its record, which belongs to one task until that
task has ended.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from signalbox.driver.compute.child import Child, NestingError
from signalbox.driver.compute.contexts import Context, Contexts
from signalbox.driver.compute.launch import Extent, KernelLaunch, sizes
from signalbox.driver.compute.lineage import Lineage, lineage
from signalbox.driver.compute.local_memory import LocalMemory
from signalbox.driver.compute.occupancy import Occupancy, occupancy
from signalbox.driver.compute.placement import AUTO
from signalbox.driver.compute.preemption import Urgency
from signalbox.driver.compute.program import Program
from signalbox.driver.compute.qmd import Release, TaskRecord
from signalbox.driver.compute.sm_set import disabled_sms
from signalbox.driver.compute.task_memory import TaskMemory, TaskPool
from signalbox.driver.compute.tasks import Task
from signalbox.driver.faults.refused_child import RefusedChild
from signalbox.driver.kernels.library import Kernel
from signalbox.driver.memory.address_space import AddressSpace
from signalbox.driver.memory.fence import FencePool
from signalbox.driver.platform.fair_lock import FairLock
from signalbox.driver.platform.info import DeviceInfo
from signalbox.driver.platform.machine import Machine
from signalbox.hw.qmd import QMD_BYTES, Placement

__all__ = ["Launcher"]


class Launcher(ABC):
    """Loads kernels, and writes the arguments and task records of their launches. Subclasses
    provide contexts and kill tasks."""

    def __init__(
        self, machine: Machine, info: DeviceInfo, fences: Callable[[AddressSpace], FencePool]
    ) -> None:
        self._machine, self._info, self._fences = machine, info, fences
        self._lock = FairLock(machine)
        self._pools: dict[AddressSpace, TaskPool] = {}
        self._local: dict[AddressSpace, LocalMemory] = {}
        self._programs: dict[tuple[AddressSpace, str, bytes], Program] = {}
        self._children: dict[AddressSpace, dict[int, Child]] = {}

    @property
    @abstractmethod
    def contexts(self) -> Contexts:
        """Contexts and their address spaces. Raises `DeviceError` if they are not the device's."""

    @property
    @abstractmethod
    def depth(self) -> int:
        """Nesting depth of the deepest kernels that contexts in use allow; 1 if contexts are not
        the device's."""

    @abstractmethod
    async def _enter(self, space: AddressSpace, launch: KernelLaunch) -> None:
        """Make the context of a space ready for a launch. Raises `OutOfContexts`, `DeviceError` for
        a limit that the machine cannot have."""

    def _applied(self, launch: KernelLaunch, *, child: bool = False) -> KernelLaunch:
        """A launch within the limits that others have set. Raises `SmSetError`, `DeviceError`."""
        return launch

    @abstractmethod
    def _check_urgency(self, wanted: Urgency) -> None:
        """Raise `PreemptionError` for SAVE on a machine that cannot stop blocks."""

    @abstractmethod
    def _policy(self, space: AddressSpace) -> Placement:
        """Placement of tasks of a space that have none of their own (ASID-32)."""

    @abstractmethod
    async def kill_task(self, space: AddressSpace, record: int) -> None:
        """Kill the task of a record, if it is in progress, and wait until it has ended. It ends
        with an error of its channel (TASK_KILLED); one that has launched others, when these are
        over, which is not waited for."""

    @abstractmethod
    async def kill_context(self, context: Context) -> None:
        """The same for all tasks of a context, one of `contexts`."""

    @abstractmethod
    async def refused_child(self) -> RefusedChild | None:
        """The first launch by a kernel that was refused since the last call, with the number of
        refused launches; None if there was none (NEST-11)."""

    def lineage(self, space: AddressSpace, record: int) -> Lineage:
        """The kernel of a record, and its ancestors (NEST-10)."""
        return lineage(self._machine, space, record, self._program_at)

    def _program_at(self, space: AddressSpace, va: int) -> Program | None:
        programs = (one for one in self._programs.values() if one.space is space)
        return next((one for one in programs if one.va == va), None)

    async def kill_tree(self, space: AddressSpace, record: int) -> None:
        """Kill the task of a record like `kill_task`, and those of its descendants whose `Child`
        has not been freed. A kernel whose launch is in progress may be missed; a further call
        kills it."""
        await self.kill_task(space, record)
        for child in [*self._children.get(space, ())]:
            if record in self.lineage(space, child).records[1:]:
                await self.kill_task(space, child)

    def forget(self, space: AddressSpace) -> None:
        """Free programs and task records of a closed space."""
        self._children.pop(space, None)
        if pool := self._pools.pop(space, None):
            pool.end()
        if local := self._local.pop(space, None):
            local.end()
        for key in [key for key in self._programs if key[0] is space]:
            self._programs.pop(key).buffer.free()

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
        key, text = (space, kernel.name, kernel.program), kernel.program
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
        `PreemptionError`, `BlockError`, `SmSetError`, `OutOfContexts`, `OutOfMemory`,
        `OutOfAddresses`, `DeviceError` for limits of the machine or of a server, `ValueError` for
        wrong arguments.
        """
        launch = self._applied(launch)
        arguments, program, local = await self._load(launch, space)
        await self._enter(space, launch)
        fences = self._fences(space)
        fence = await fences.take()
        try:
            memory = await self._pool(space).take(QMD_BYTES + len(arguments))
        except BaseException:
            fences.give(fence)
            raise
        release = Release(fence.address, fence.following, timestamp=True)
        fence.advance()
        nested = bool(self._info.nested_kernels) and launch.depth > 1
        task = Task(program, memory, fence, fences, local, nested=nested)
        try:
            self._write(launch, program, memory, arguments, (release,))
        except Exception:
            task.discard()
            raise
        return task

    async def prepare_children(
        self, launches: Sequence[KernelLaunch], space: AddressSpace
    ) -> list[Child]:
        """Prepare kernels that other kernels launch (NEST-10), as `prepare` does for the host's,
        with records at equal distances. Also raises `NestingError`."""
        if not self._info.nested_kernels:
            raise NestingError("the machine has no nested launches (Config.nested_kernels)")
        for launch in launches:
            if launch.kernel.local:  # the area is a setting of the channel that launches
                name = launch.kernel.name
                raise NestingError(f"{name} has local memory: kernels cannot launch it")
        launches = [self._applied(launch, child=True) for launch in launches]
        if not launches:
            return []
        loaded = [(await self._load(launch, space))[:2] for launch in launches]
        size = QMD_BYTES + max(len(arguments) for arguments, _ in loaded)
        memories = await self._pool(space).take_several(len(launches), size)
        try:
            for launch, (arguments, program), memory in zip(
                launches, loaded, memories, strict=True
            ):
                releases = (Release(launch.done, 1),) if launch.done else ()
                self._write(launch, program, memory, arguments, releases)
        except Exception:
            for memory in memories:
                memory.free()
            raise
        known = self._children.setdefault(space, {})
        return [
            Child(program, memory, launch, known)
            for launch, (_, program), memory in zip(launches, loaded, memories, strict=True)
        ]

    async def _load(
        self, launch: KernelLaunch, space: AddressSpace
    ) -> tuple[bytes, Program, LocalMemory | None]:
        """Check a launch. Returns its arguments, and its program and local memory in the space."""
        kernel = launch.kernel
        self._check_urgency(launch.urgency)
        disabled_sms(self._info, launch.sms)
        self.occupancy(kernel, launch.block, launch.shared)
        arguments = kernel.arguments(**launch.args)
        program = await self.load(kernel, space)
        return arguments, program, await self._reserve_local(space, kernel.local)

    def _pool(self, space: AddressSpace) -> TaskPool:
        if space not in self._pools:
            self._pools[space] = TaskPool(space, self._machine)
        return self._pools[space]

    async def _reserve_local(self, space: AddressSpace, size: int) -> LocalMemory | None:
        """Local memory of a space, with room for `size` bytes per thread; None for 0."""
        if size == 0:
            return None
        if space not in self._local:
            self._local[space] = LocalMemory(space, self._machine, self._info)
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
        policy = self._policy(program.space) if open_ else launch.placement
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
            disabled_sms=disabled_sms(self._info, launch.sms),
            releases=releases,
        )
        memory.write(record.pack(self._info) + arguments)
