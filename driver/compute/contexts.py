"""Resource manager for contexts: decides which address spaces run concurrently (ASID-21, ASID-22).

Tasks of all address spaces of one context share the SMs; contexts are time-sliced.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from signalbox.driver.compute.instance_block import INSTANCE_BYTES, InstanceBlock
from signalbox.driver.compute.placement import AUTO, placement
from signalbox.driver.compute.preemption import PreemptionError, Urgency, level, urgency
from signalbox.driver.memory.address_space import AddressSpace
from signalbox.driver.memory.physical import Memory
from signalbox.driver.platform.control_port import ControlPort
from signalbox.driver.platform.fair_lock import FairLock
from signalbox.hw.instance_block import SUBCONTEXTS
from signalbox.hw.qmd import Placement
from signalbox.hw.registers import CONTEXT, PreemptionLevel

__all__ = ["Context", "ContextBroken", "ContextError", "Contexts", "OutOfContexts", "Switches"]

_POLL_CYCLES = 50
"""Cycles between two polls of a context switch."""

_PATIENCE_CYCLES = 200_000
"""Cycles after which a context switch counts as hung."""

_NO_PLACES = "this machine cannot stop blocks: it was built with save_places = 0"

_NO_URGENCY = "a context's urgency is drain or save; that of its context is for launches"


class ContextError(Exception):
    """A context is in the wrong state for the call."""


class OutOfContexts(ContextError):
    """No context can take an address space; the message says how the contexts are used."""


@dataclass
class ContextBroken(Exception):
    """A context cannot run, and its tasks wait. `Contexts.mend` makes the machine retry."""

    context: int
    name: str
    spaces: tuple[str, ...]
    instance: int

    def __str__(self) -> str:
        return (
            f"context {self.context} {self.name!r} cannot run: its instance block at physical "
            f"{self.instance:#x} cannot be read, or one of its address spaces cannot be bound: "
            f"{', '.join(self.spaces) or 'none'}. Contexts.mend() makes the machine retry."
        )


@dataclass(eq=False)
class Context:
    """A context in use. Created by `Contexts`.

    Members
    -------
    number : number of the hardware context.
    placement : default placement of its tasks.
    urgency : urgency of its tasks.
    level : its preemption level.
    block : its instance block.
    chosen : whether address spaces join it only through `Contexts.choose`.
    broken : why it cannot run, or None.
    depth : nesting depth of its deepest kernels.
    known_depth : the same, as far as the machine has it for certain.
    """

    number: int
    name: str
    placement: Placement
    urgency: Urgency
    level: PreemptionLevel
    block: InstanceBlock
    chosen: bool = False
    broken: ContextBroken | None = None
    depth: int = 1
    known_depth: int = 1

    def __str__(self) -> str:
        return f"context {self.number} {self.name!r}"


@dataclass
class _Member:
    """An address space in use.

    Members
    -------
    context : context of its tasks.
    users : numbers of its open channels; none while it leaves the context.
    entered : whether it has launched a task, and so is in the instance block.
    """

    context: Context
    users: set[int] = field(default_factory=set)
    entered: bool = False


class Switches(NamedTuple):
    """Cost of context switches and preemption, since the machine was reset; modulo 2^32.

    Members
    -------
    starts : number of starts of contexts.
    cycles : cycles spent on leaving and binding contexts.
    saved : blocks that were stopped and saved.
    restored : saved blocks that were sent to SMs again.
    """

    starts: int
    cycles: int
    saved: int
    restored: int


class Contexts:
    """Contexts of one machine, and the address spaces in each.

    An address space is in one context while channels use it. By default it joins the first context
    with fewer than `spaces_each` spaces, so that all spaces run concurrently; `choose` selects
    another context.

    Parameters
    ----------
    count : number of contexts of the machine.
    default : placement of contexts that have none of their own.
    default_urgency, default_level : urgency and preemption level of such contexts.
    save_bytes : size of the memory for saved blocks, which all contexts share; 0 for a machine that
        cannot stop blocks.
    spaces_each : maximum number of address spaces that join one context by default.
    """

    def __init__(
        self,
        control: ControlPort,
        memory: Memory,
        count: int,
        *,
        default: Placement = AUTO,
        default_urgency: Urgency = Urgency.DRAIN,
        default_level: PreemptionLevel = PreemptionLevel.CTA,
        save_bytes: int = 0,
        spaces_each: int = SUBCONTEXTS,
    ) -> None:
        if not 1 <= spaces_each <= SUBCONTEXTS:
            raise ValueError(f"spaces_each = {spaces_each} is outside 1 … {SUBCONTEXTS}")
        self._control, self._default, self._spaces_each = control, default, spaces_each
        self._urgency, self._level, self._area = default_urgency, default_level, None
        if save_bytes:
            self._area = memory.allocate(save_bytes, align=4096, name="saved blocks")
        self._check(default_urgency, default_level)
        self._buffer = memory.allocate(count * INSTANCE_BYTES, align=4096, name="instance blocks")
        self._free = [
            InstanceBlock(self._buffer, number * INSTANCE_BYTES) for number in range(count)
        ]
        self._contexts: list[Context | None] = [None] * count
        # Numbers of ended contexts whose registers are still to be reset.
        self._ended: list[int] = []
        self._members: dict[AddressSpace, _Member] = {}
        self._wishes: dict[AddressSpace, Context] = {}
        self._lock = FairLock(control.machine)

    async def open(self) -> None:
        """Set up all contexts of the machine, which must hold no task."""
        for number, block in enumerate(self._free):
            await self._write(number, "INSTANCE_LO", block.address & 0xFFFF_FFFF)
            await self._write(number, "INSTANCE_HI", block.address >> 32)
            await self._set_up(number)

    def free(self) -> None:
        """Free the instance blocks and the save area, once nothing runs any more."""
        self._buffer.free()
        if self._area is not None:
            self._area.free()

    def __iter__(self) -> Iterator[Context]:
        """All contexts in use, by number."""
        return iter([context for context in self._contexts if context is not None])

    # -- contexts ----------------------------------------------------------------------------------

    async def create(self, name: str = "", *, wanted: Placement | str | None = None) -> Context:
        """Create a context for address spaces assigned by `choose`; `wanted` as in `place`.

        Raises `OutOfContexts`, `PlacementError`.
        """
        policy = self._default if wanted is None else placement(wanted)
        await self._reset()
        context = self._new(name, chosen=True)
        if context is None:
            raise OutOfContexts(f"no context for {name!r}: {self._describe_use()}")
        try:
            await self.place(context, policy)
        except BaseException:
            self._end(context)
            raise
        return context

    async def end(self, context: Context) -> None:
        """Free a created context. Raises `ContextError` while it has address spaces, and as
        `check`. The context has ended even if the call is interrupted."""
        self.check(context)
        if spaces := self.spaces(context):
            raise ContextError(f"{context} is in use by {', '.join(map(str, spaces))}")
        self._wishes = {s: wish for s, wish in self._wishes.items() if wish is not context}
        self._end(context)
        await self._reset()

    async def place(self, context: Context, wanted: Placement | str) -> None:
        """Set the placement of the context's tasks that are launched from now on without a
        placement. Raises `PlacementError`; `ContextError` as `check`."""
        self.check(context)
        await self._place(context, placement(wanted))

    async def urge(self, context: Context, wanted: Urgency | str) -> None:
        """Set the urgency of a context, from its next start on: what happens to blocks of lower
        priority while one of its tasks lacks room. Raises `PreemptionError`; `ContextError` as
        `check`."""
        self.check(context)
        chosen = urgency(wanted)
        self._check(chosen, context.level)
        context.urgency = chosen
        await self._preempt(context.number, chosen, context.level)

    async def set_level(self, context: Context, wanted: PreemptionLevel | str) -> None:
        """Set the preemption level of a context, from its next start on: how its tasks leave the
        SMs. Raises `PreemptionError`; `ContextError` as `check`."""
        self.check(context)
        chosen = level(wanted)
        self._check(context.urgency, chosen)
        context.level = chosen
        await self._preempt(context.number, context.urgency, chosen)

    async def nest(self, space: AddressSpace, depth: int) -> None:
        """Let kernels of a space's context launch others, to a nesting depth of at least `depth`,
        from the context's next start on (NEST-11)."""
        context = self._members[space].context
        if depth > context.known_depth:
            context.depth = max(depth, context.depth)
            await self._place(context, context.placement)

    @property
    def depth(self) -> int:
        """Nesting depth of the deepest kernels of all contexts in use, at least 1."""
        return max((context.depth for context in self), default=1)

    def check(self, context: Context) -> None:
        """Raise `ContextError` if a context has ended, or belongs to another machine."""
        if context not in [*self]:
            raise ContextError(f"{context} was ended, or is of another machine")

    def check_urgency(self, wanted: Urgency) -> None:
        """Raise `PreemptionError` for SAVE on a machine that cannot stop blocks."""
        if wanted is Urgency.SAVE and self._area is None:
            raise PreemptionError(_NO_PLACES)

    def policy(self, space: AddressSpace) -> Placement:
        """Placement of the tasks of a space that has entered its context (ASID-32). Raises
        `OutOfContexts` if it has none.

        The machine evaluates AUTO only when a context starts to run. A context that runs alone
        never restarts, although its address spaces change, so the driver decides here.
        """
        context = self._member(space).context
        if context.placement is not AUTO:
            return context.placement
        members = self._members.values()
        count = sum(member.context is context and member.entered for member in members)
        return Placement.DEEP if count > 1 else Placement.WIDE

    def spaces(self, context: Context) -> list[AddressSpace]:
        """Address spaces currently in a context."""
        return [space for space, member in self._members.items() if member.context is context]

    def of(self, space: AddressSpace) -> Context | None:
        """The context of an address space; None if it is not in use."""
        member = self._members.get(space)
        return member.context if member else None

    def _end(self, context: Context) -> None:
        """Free a context. The caller calls `_reset` next."""
        self._contexts[context.number] = None
        self._ended.append(context.number)

    async def _reset(self) -> None:
        """Reset the registers of ended contexts for the next users. The next call completes an
        interrupted one; it is made before any number is used again."""
        async with self._lock:
            while self._ended:
                await self._set_up(self._ended[0])
                del self._ended[0]

    async def _set_up(self, number: int) -> None:
        """Set the default placement, urgency and level of a context, and clear its error."""
        await self._write(number, "PLACEMENT", self._default)
        await self._preempt(number, self._urgency, self._level)
        await self._retry(number)

    async def _place(self, context: Context, policy: Placement) -> None:
        context.placement, depth = policy, context.depth
        word = CONTEXT["PLACEMENT"].pack(POLICY=policy, DEPTH=depth)
        await self._write(context.number, "PLACEMENT", word)
        context.known_depth = max(depth, context.known_depth)

    def _check(self, wanted: Urgency, wanted_level: PreemptionLevel) -> None:
        """Raise `PreemptionError` unless a context can have this urgency and level."""
        if wanted is Urgency.CONTEXT:
            raise PreemptionError(_NO_URGENCY)
        self.check_urgency(wanted)
        if wanted_level is PreemptionLevel.CILP and self._area is None:
            raise PreemptionError(_NO_PLACES)

    async def _preempt(self, number: int, wanted: Urgency, wanted_level: PreemptionLevel) -> None:
        fields = {"SAVE": wanted is Urgency.SAVE, "LEVEL": wanted_level}
        if self._area is not None:
            fields["PAGE"] = self._area.address >> 12
        await self._write(number, "SAVE_AREA", CONTEXT["SAVE_AREA"].pack(**fields))

    def _new(self, name: str, *, chosen: bool) -> Context | None:
        for number, context in enumerate(self._contexts):
            if context is None:
                name = name or f"context {number}"
                block = self._free[number]
                settings = self._default, self._urgency, self._level
                fresh = Context(number, name, *settings, block, chosen)
                self._contexts[number] = fresh
                return fresh
        return None

    # -- address spaces ----------------------------------------------------------------------------

    def choose(self, space: AddressSpace, context: Context) -> None:
        """Run the tasks of a space in a given context from now on. Raises `ContextError` while
        channels of the space are open, and as `check`."""
        if space in self._members:
            raise ContextError(f"{space} is in {self._members[space].context} and in use")
        self.check(context)
        self._wishes[space] = context

    async def join(self, space: AddressSpace, channel: int) -> Context | None:
        """Add a channel of a space. Returns the context of the space's tasks; None if no context
        has room. Raises `ContextError` as `leave`, if an earlier channel has not left."""
        await self._settle(space)
        member = self._members.get(space)
        if member is None:
            context = self._wishes.get(space) or self._with_room()
            if context is None:
                return None
            member = self._members[space] = _Member(context)
        member.users.add(channel)
        return member.context

    def enter(self, space: AddressSpace) -> None:
        """Enter a space in the instance block of its context, before its first task is launched.
        Raises `OutOfContexts` if it has no context, or if no context can hold its ASID."""
        member, asid = self._member(space), space.asid
        if member.entered:
            return
        assert asid is not None, "a channel has it"
        if asid >= SUBCONTEXTS:
            raise OutOfContexts(f"no context can hold {space}: ASIDs 0 … {SUBCONTEXTS - 1} only")
        member.context.block.add(asid, space.base, space.limit)
        member.entered = True

    def _member(self, space: AddressSpace) -> _Member:
        """A space in use. Raises `OutOfContexts` if it has no context."""
        member = self._members.get(space)
        if member is None:
            raise OutOfContexts(f"no context for tasks of {space}: {self._describe_use()}")
        return member

    async def leave(self, space: AddressSpace, channel: int) -> None:
        """Remove a channel of a space. With its last channel the space leaves its context; on
        return the machine no longer binds it. An interrupted call can be repeated. Raises
        `ContextError` if the machine takes too long."""
        if member := self._members.get(space):
            member.users.discard(channel)
        await self._settle(space)

    async def _settle(self, space: AddressSpace) -> None:
        """Make a space without channels leave its context."""
        async with self._lock:
            member = self._members.get(space)
            if member is not None and not member.users:
                await self._remove(space, member)
        await self._reset()

    async def _remove(self, space: AddressSpace, member: _Member) -> None:
        context = member.context
        if member.entered and space.asid is not None:
            context.block.remove(space.asid)
            await self._wait_for_binds()
        del self._members[space]
        if not context.chosen and not self.spaces(context):
            self._end(context)

    def forget(self, space: AddressSpace) -> None:
        """Drop the choice of a closed space."""
        self._wishes.pop(space, None)

    def _with_room(self) -> Context | None:
        """A context that spaces join by default and that has room; None if there is none."""
        for context in self:
            if not context.chosen and len(self.spaces(context)) < self._spaces_each:
                return context
        return self._new("", chosen=False)

    def _describe_use(self) -> str:
        """Use of the contexts, for messages."""
        held = [f"{one} has {len(self.spaces(one))} address spaces" for one in self]
        return f"of {len(self._contexts)} contexts {', '.join(held) or 'none is open'}"

    async def _wait_for_binds(self) -> None:
        """Wait until no context is being switched in: it may still read its old instance block.
        That may last longer than its tasks. Raises `ContextError`."""
        waited = 0
        while True:
            if not (await self._control.read_fields("TASK_STATE"))["STARTING"]:
                return
            if waited >= _PATIENCE_CYCLES:
                raise ContextError(f"no context has begun to run for {waited} cycles")
            await self._control.machine.wait_cycles(_POLL_CYCLES)
            waited += _POLL_CYCLES

    async def switches(self) -> Switches:
        """Read the cost of switches so far."""
        names = ("CONTEXT_STARTS", "CONTEXT_SWITCH", "BLOCKS_SAVED", "BLOCKS_RESTORED")
        return Switches(*[await self._control.read(name) for name in names])

    # -- errors ------------------------------------------------------------------------------------

    async def look(self) -> None:
        """Record the contexts that cannot run."""
        broken = (await self._control.read_fields("CONTEXT_BROKEN"))["CONTEXT"]
        for context in self:
            if broken >> context.number & 1 and context.broken is None:
                spaces = tuple(str(space) for space in self.spaces(context))
                address = context.block.address
                context.broken = ContextBroken(context.number, context.name, spaces, address)

    async def mend(self, context: Context) -> None:
        """Make the machine retry a context that could not run. Raises `ContextError` as
        `check`."""
        self.check(context)
        context.broken = None
        await self._retry(context.number)

    async def _retry(self, number: int) -> None:
        await self._control.write("CONTEXT_BROKEN", CONTEXT=1 << number)

    async def _write(self, number: int, name: str, value: int) -> None:
        await self._control.write_context(number, name, value)
