"""Compute engine of the driver that owns the machine: contexts, task lists, kills, errors (ASID-22,
ASID-32, PLACE-27)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from signalbox.driver.compute.contexts import Context, ContextBroken, Contexts
from signalbox.driver.compute.launch import KernelLaunch
from signalbox.driver.compute.launcher import Launcher
from signalbox.driver.compute.placement import from_environment, placement
from signalbox.driver.compute.preemption import Urgency, level, urgency
from signalbox.driver.compute.priority_bands import Sharing
from signalbox.driver.compute.task_lists import TaskListError, TaskLists
from signalbox.driver.compute.tasks import Tasks
from signalbox.driver.faults.channel_error import ChannelError
from signalbox.driver.faults.fault_log import FaultLog
from signalbox.driver.faults.refused_child import RefusedChild, refused_child
from signalbox.driver.faults.task_error import Ancestor, TaskError
from signalbox.driver.faults.warp_fault import WarpFaults
from signalbox.driver.memory.address_space import AddressSpace
from signalbox.driver.memory.asids import AddressSpaces
from signalbox.driver.memory.fence import FencePool
from signalbox.driver.memory.physical import Memory
from signalbox.driver.platform.control_port import ControlPort
from signalbox.driver.platform.fair_lock import FairLock
from signalbox.driver.platform.info import DeviceInfo
from signalbox.driver.platform.whole import make_whole
from signalbox.hw.config import PRIORITIES
from signalbox.hw.errors import Cause
from signalbox.hw.instance_block import SUBCONTEXTS
from signalbox.hw.qmd import Placement
from signalbox.hw.registers import KillScope, PreemptionLevel

__all__ = ["ComputeEngine", "ComputeSettings"]

_TIMEOUT_CYCLES, _CYCLES_PER_BEAT = 1_000_000, 8
"""Default time-out of contexts: the larger of a number of cycles, and of cycles for each beat of
the state of all SMs."""

_KILL_POLL_CYCLES = 50
"""Cycles between two polls of a kill request in progress."""


@dataclass(frozen=True)
class ComputeSettings:
    """Settings of the compute engine. Raises `TypeError` for numbers that are not whole,
    `ValueError` for a number of priorities out of range.

    Members
    -------
    waiting : maximum number of waiting tasks of one priority in each context.
    slice_cycles : time slice of a context, in cycles.
    timeout_cycles : cycles from the end of a context's slice until its tasks that still have blocks
        on SMs are killed (TASK_TIMEOUT); 0: never. Default: 1,000,000, or 8 cycles for each beat of
        the state of all SMs if that is more, so that all of it can be saved.
    placement : default placement of contexts; None: that of the environment variable
        SIGNALBOX_PLACEMENT, or "auto".
    urgency : default urgency of contexts.
    level : default preemption level of contexts.
    spaces_each : maximum number of address spaces that join one context by default.
    sharing : which streams share a device priority if the nesting depth leaves too few priorities.
    priorities : number of device priorities in use, 1 … 64. Kernels of the host have 0 …
        `priorities` - 1; so have their descendants, unless a launch names a priority (NEST-1).
    """

    waiting: int = 64
    slice_cycles: int = 20_000
    timeout_cycles: int | None = None
    placement: Placement | str | None = None
    urgency: Urgency | str = Urgency.DRAIN
    level: PreemptionLevel | str = PreemptionLevel.CTA
    spaces_each: int = SUBCONTEXTS
    sharing: Sharing | str = Sharing.MOST_URGENT
    priorities: int = PRIORITIES

    def __post_init__(self) -> None:
        make_whole(self)
        if not 1 <= self.priorities <= PRIORITIES:
            raise ValueError(f"priorities = {self.priorities} is outside 1 … {PRIORITIES}")

    @property
    def policy(self) -> Placement:
        """Default placement of contexts. Raises `PlacementError`."""
        return from_environment() if self.placement is None else placement(self.placement)


class ComputeEngine(Launcher):
    """Compute engine of one device (`Device.compute`).

    Members
    -------
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
        super().__init__(control.machine, info, fences)
        self._control, self._memory, self._spaces = control, memory, spaces
        self._settings = settings
        beats = 8 * info.sms * info.save_place_bytes // info.data_width
        default_timeout = max(_TIMEOUT_CYCLES, _CYCLES_PER_BEAT * beats)
        given = settings.timeout_cycles
        self._timeout_cycles = default_timeout if given is None else given
        self._pending: int | None = None
        """Limit of pending launches, once it is known."""
        default = settings.policy
        self._contexts = Contexts(
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
        self._kills, self._refusals = FairLock(control.machine), FairLock(control.machine)

    @property
    def contexts(self) -> Contexts:
        """See `Launcher.contexts`."""
        return self._contexts

    def _own_space(self) -> AddressSpace | None:
        """Create a protected address space for the task lists; None on a machine with one ASID,
        where they are mapped in the space that has the ASID."""
        if not self._spaces.reserved:
            return None
        return self._spaces.create("system", asid=max(self._spaces.reserved))

    # -- life --------------------------------------------------------------------------------------

    async def rest(self) -> None:
        """See `TaskLists.rest`."""
        await self._lists.rest()

    async def open(self) -> None:
        """Set up task lists and contexts, after `rest`."""
        if self._system is not None:
            await self._lists.place(self._system, await self._spaces.acquire(self._system))
        await self._control.write("CONTEXT_SLICE", self._settings.slice_cycles)
        await self._control.write("CONTEXT_TIMEOUT", self._timeout_cycles)
        await self.contexts.open()
        await self._control.write("TASK_STATUS", WARP_FAULT=1, LOST=1, CHILD=1)

    def release(self) -> None:
        """Release the ASID of the task lists, once the machine has no tasks and all channels are
        closed. Can be repeated."""
        if self._system is not None and self._spaces.users(self._system):
            self._spaces.release(self._system)

    def free(self) -> None:
        """Free all memory, once all address spaces are closed."""
        for space in {*self._pools, *self._local, *(space for space, *_ in self._programs)}:
            self.forget(space)
        self._lists.free()
        self.contexts.free()

    def forget(self, space: AddressSpace) -> None:
        """See `Launcher.forget`."""
        super().forget(space)
        self.contexts.forget(space)

    # -- channels ----------------------------------------------------------------------------------

    async def join(self, space: AddressSpace, asid: int, channel: int) -> Context | None:
        """Add a channel of a space, before the channel is enabled; `asid` is the space's. Returns
        the context of the space's tasks; None if no context has room. Raises as `TaskLists.place`
        and `Contexts.join`."""
        if self._system is None:
            await self._lists.place(space, asid)
        return await self.contexts.join(space, channel)

    async def leave(self, space: AddressSpace, channel: int) -> None:
        """Remove a channel of a space, once it is disabled and idle. An interrupted call can be
        repeated. Raises `ContextError`."""
        await self.contexts.leave(space, channel)

    async def explain(
        self,
        error: ChannelError,
        space: AddressSpace,
        asid: int,
        tasks: Tasks,
        faults: FaultLog,
    ) -> TaskError:
        """Complete a channel's error with the task that caused it: its ancestors, warp and
        translation fault. `space`, `asid` and `tasks` are those of the channel."""
        warp, task, kernels = None, tasks.find(error.va), self.lineage(space, error.va)
        program = task.program if task else kernels.programs[0]
        fields = await self._control.read_channel_fields(error.channel, "CAUSE")
        if error.cause is Cause.TASK_KERNEL:
            await self.warp_faults.read()
        await faults.read_for(error)
        # From here on the call cannot be interrupted, which would lose what was taken.
        if error.cause is Cause.TASK_KERNEL:
            warp = self.warp_faults.take(asid, program.holds if program else lambda at: True)
        found = kernels.complete(TaskError.of(error, fields["SKEDCHECK"], warp), program)
        if error.cause is Cause.TASK_LISTS and self._system is not None:
            asid = max(self._spaces.reserved)
        if error.cause is not Cause.TASK_KERNEL:
            found.fault = faults.take(asid, error)
        elif warp is not None and warp.va is not None:
            found.fault = faults.take(asid, error, va=warp.va)
        return found

    # -- launches ----------------------------------------------------------------------------------

    @property
    def depth(self) -> int:
        """See `Launcher.depth`."""
        return self.contexts.depth

    async def _enter(self, space: AddressSpace, launch: KernelLaunch) -> None:
        self.contexts.enter(space)
        if self._info.nested_kernels:
            await self.contexts.nest(space, launch.depth)
            await self.limit_children(launch.pending)

    def _check_urgency(self, wanted: Urgency) -> None:
        self.contexts.check_urgency(wanted)

    def _policy(self, space: AddressSpace) -> Placement:
        return self.contexts.policy(space)

    async def limit_children(self, count: int) -> None:
        """Limit the children of kernels that are not complete (NEST-15)."""
        if count != self._pending:
            self._pending = None  # until the register is written: the call may be cancelled
            await self._control.write("CHILD_LIMIT", COUNT=count)
            self._pending = count

    # -- killing -----------------------------------------------------------------------------------

    async def kill(
        self, scope: KillScope, *, asid: int = 0, context: int = 0, record: int = 0
    ) -> None:
        """Kill the tasks in progress that the request names, and wait until they have ended. Each
        ends with an error of its channel (TASK_KILLED)."""
        async with self._kills:
            await self._killed()  # an earlier request, whose caller was cancelled
            await self._control.write("TASK_KILL_RECORD", record >> 8)
            await self._control.write("TASK_KILL", SCOPE=scope, CONTEXT=context, ASID=asid)
            await self._killed()

    async def kill_task(self, space: AddressSpace, record: int) -> None:
        """See `Launcher.kill_task`. The space has an ASID."""
        assert space.asid is not None, "an open channel has it"
        await self.kill(KillScope.TASK, asid=space.asid, record=record)

    async def kill_context(self, context: Context) -> None:
        """See `Launcher.kill_context`."""
        await self.kill(KillScope.CONTEXT, context=context.number)

    async def _killed(self) -> None:
        """Wait until no kill request is in progress."""
        while (await self._control.read_fields("TASK_STATE"))["KILLING"]:
            await self._control.machine.wait_cycles(_KILL_POLL_CYCLES)

    # -- errors ------------------------------------------------------------------------------------

    async def refused_child(self) -> RefusedChild | None:
        """See `Launcher.refused_child`."""
        async with self._refusals:
            found = await refused_child(self._control)
        space = next((one for one in self._spaces if found and one.asid == found.asid), None)
        if found is None or space is None:
            return found
        (kernel, *_), above = self.lineage(space, found.record).names, found.launcher
        launcher = self.lineage(space, above)
        parents = Ancestor(launcher.names[0], above), *launcher.parents
        return replace(found, kernel=kernel, parents=parents)

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
