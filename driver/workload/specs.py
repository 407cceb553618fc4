"""Contents of a checked workload file: spaces, streams, policy, work, ordered requests."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from graphlib import TopologicalSorter

from signalbox.driver.channel.interleave import GroupSettings, Interleave, interleaved
from signalbox.driver.channel.priority_policy import (
    CountFirstPolicy,
    NoPriorityPolicy,
    PriorityPolicy,
)
from signalbox.driver.channel.settings import ChannelSettings
from signalbox.driver.kernels.library import Kernel
from signalbox.driver.runtime.limits import DEFAULTS, Limit
from signalbox.driver.runtime.own_machine import Scheduling
from signalbox.driver.workload.flat_jobs import FLAT
from signalbox.driver.workload.nested_jobs import ALGORITHMS, Algorithm
from signalbox.driver.workload.references import REFERENCES, Reference, Shape
from signalbox.hw.config import Config

__all__ = [
    "DATA",
    "POLICIES",
    "UNMAPPED",
    "CopySpec",
    "KernelSpec",
    "LimitsSpec",
    "NestedSpec",
    "PolicySpec",
    "Request",
    "SpaceSpec",
    "Spec",
    "StreamSpec",
    "Workload",
    "requests",
]

DATA = ("random", "picture", "permutation")
"""Kinds of fresh data."""

UNMAPPED = ("source", "destination")
"""Sides of a copy that may be mapped only after a fault."""

POLICIES = {
    "priority": PriorityPolicy,
    "count-first": CountFirstPolicy,
    "none": NoPriorityPolicy,
}


@dataclass(frozen=True)
class SpaceSpec:
    """One [[space]]: interleave level and slice, in cycles, of its time-slice group. `turn` None:
    that of [policy]."""

    name: str
    interleave: Interleave = Interleave.LOW
    turn: int | None = None


@dataclass(frozen=True)
class StreamSpec:
    """One [[stream]]. `null` : like CUDA's NULL stream, in order with all streams of its space."""

    name: str
    priority: int = 0
    space: str | None = None
    null: bool = False


@dataclass(frozen=True)
class PolicySpec:
    """[policy]; see `driver.channel.priority_policy.LevelledChannels`. `slice` : slice of each
    channel, in cycles. `scheduling` : scheduling of the channels. `turn` : slice of each time-slice
    group, in cycles; None: the driver's."""

    kind: str = "priority"
    levels: int = 1
    channels_per_level: tuple[int, ...] | None = None
    stream_priorities: int | None = None
    slice: int = ChannelSettings.slice_cycles
    scheduling: Scheduling = "flat"
    turn: int | None = None

    def make(self, kind: str | None = None) -> PriorityPolicy | NoPriorityPolicy:
        """Create the policy, or one of another `kind` with the same channels."""
        chosen = POLICIES[kind or self.kind]
        return chosen(self.levels, self.channels_per_level, self.stream_priorities)

    def settings(self) -> ChannelSettings:
        """Channel settings with the slice of the policy. Raises as `ChannelSettings`."""
        return ChannelSettings(slice_cycles=self.slice)


@dataclass(frozen=True)
class LimitsSpec:
    """[limits]; see `driver.runtime.limits.Limit`."""

    nesting_depth: int = DEFAULTS[Limit.NESTING_DEPTH]
    pending_launches: int = DEFAULTS[Limit.PENDING_LAUNCHES]


@dataclass(frozen=True)
class CopySpec:
    """One [[copy]], a series of `count` equal copies. Members are the keys of the table; a
    `size` is a `width`, with `height` 1."""

    name: str
    stream: str
    width: int
    height: int = 1
    src_pitch: int = 0
    dst_pitch: int = 0
    at: int = 0
    after: tuple[str, ...] = ()
    source: str | None = None
    count: int = 1
    period: int = 0
    src_offset: int = 0
    dst_offset: int = 0
    data: str = "random"
    unmapped: str | None = None
    repair_after: int = 0

    @property
    def size(self) -> int:
        """Bytes of one copy."""
        return self.width * self.height

    @property
    def before(self) -> tuple[str, ...]:
        """Names of all copies and kernels that must end first."""
        return (*self.after, self.source) if self.source else self.after


@dataclass(frozen=True)
class KernelSpec:
    """One [[kernel]] or [[child]], a series of `count` equal launches.

    `args` are numbers; for pointers, names of the copies and kernels that write the data; for
    children, names of the kernels. `cancel_at` : cycle in which launches that have not ended are
    cancelled, or None. `shared` : bytes per block beyond the kernel's own. `sms` : SMs that take
    its blocks; None: all. `delay` : cycles from the end of all earlier work of the stream to its
    launch; None: it does not wait for that end. `starts` : first and last cycle in which its first
    warp must start, or None. `parent` : name of the kernel that launches it, or None.
    """

    name: str
    stream: str
    kernel: str
    shape: Shape
    args: Mapping[str, int | str]
    priority: int | None = None
    policy: str = "auto"
    shared: int = 0
    sms: tuple[int, ...] | None = None
    at: int = 0
    delay: int | None = None
    starts: tuple[int, int] | None = None
    cancel_at: int | None = None
    after: tuple[str, ...] = ()
    count: int = 1
    period: int = 0
    parent: str | None = None

    @property
    def reference(self) -> Reference:
        """Reference model of the kernel."""
        return REFERENCES[self.kernel]

    @property
    def grid(self) -> tuple[int, int, int]:
        """Number of blocks."""
        return self.shape.grid

    @property
    def block(self) -> tuple[int, int, int]:
        """Number of threads of a block."""
        return self.shape.block

    @property
    def numbers(self) -> dict[str, int]:
        """Numeric arguments; optional numbers and unused pointers default to 0."""
        given = {name: value for name, value in self.args.items() if isinstance(value, int)}
        unused = [name for name in self.reference.spare if name not in self.args]
        return dict.fromkeys((*self.reference.optional, *unused), 0) | given

    @property
    def sources(self) -> dict[str, str]:
        """Names of the copies and kernels that write the data, by pointer."""
        pointers = self.reference.pointers
        return {name: str(value) for name, value in self.args.items() if name in pointers}

    @property
    def children(self) -> dict[str, str]:
        """Names of the kernels that it launches, by parameter, in this order."""
        names = self.reference.children
        return {name: str(self.args[name]) for name in names if name in self.args}

    @property
    def before(self) -> tuple[str, ...]:
        """Names of all copies and kernels that must end first. For a child: only its parent, which
        launches the child once the work that it needs has ended."""
        if self.parent is not None:
            return (self.parent,)
        return tuple(dict.fromkeys((*self.after, *self.sources.values())))

    @property
    def words(self) -> dict[str, int]:
        """Number of 32-bit words of memory needed at each pointer."""
        return self.reference.words(self.shape, self.numbers)

    @property
    def size(self) -> int:
        """Size of the result in bytes."""
        output = self.reference.output
        return 4 * self.words[output] if output else 0

    @property
    def in_place(self) -> str | None:
        """Name of the copy or kernel whose data are overwritten, or None."""
        return self.sources.get(self.reference.output)


@dataclass(frozen=True)
class NestedSpec:
    """One [[nested]], a series of `count` runs of an algorithm, each with another input.

    `n` is the size of the input, `levels` the number of levels of a refinement, `seed` the seed of
    the input. `flat` : the host launches all kernels.
    """

    name: str
    stream: str
    kernel: str
    n: int
    levels: int = 1
    seed: int = 0
    flat: bool = False
    priority: int | None = None
    at: int = 0
    after: tuple[str, ...] = ()
    count: int = 1
    period: int = 0

    @property
    def algorithm(self) -> Algorithm:
        """The algorithm."""
        return ALGORITHMS[self.kernel]

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """All of its kernels, whose blocks have at most one warp."""
        return FLAT[self.kernel].kernels if self.flat else self.algorithm.kernels

    @property
    def before(self) -> tuple[str, ...]:
        """Names of all work that must end first."""
        return self.after

    @property
    def size(self) -> int:
        """Size of the result in bytes."""
        return 4 * self.algorithm.words(self.n)

    @property
    def memory(self) -> int:
        """Upper bound of the memory of all its runs, in bytes."""
        memory = FLAT[self.kernel].memory if self.flat else self.algorithm.memory
        return self.count * memory(self.n, self.levels)

    @property
    def depth(self) -> int:
        """Nesting depth that it needs."""
        return 1 if self.flat else self.algorithm.depth(self.n, self.levels)

    @property
    def grid(self) -> tuple[int, int, int]:
        """Blocks of its first kernel."""
        return (1, 1, 1)

    @property
    def block(self) -> tuple[int, int, int]:
        """Threads of a block of its first kernel."""
        return (self.algorithm.threads, 1, 1)


Spec = CopySpec | KernelSpec | NestedSpec


@dataclass(frozen=True)
class Workload:
    """A checked workload; `name` is the name of its file."""

    name: str
    config: Config
    policy: PolicySpec
    spaces: tuple[SpaceSpec, ...]
    streams: tuple[StreamSpec, ...]
    copies: tuple[CopySpec, ...]
    kernels: tuple[KernelSpec, ...] = ()
    nested: tuple[NestedSpec, ...] = ()
    limits: LimitsSpec = LimitsSpec()

    @property
    def launches(self) -> tuple[KernelSpec | NestedSpec, ...]:
        """All work launched by the driver: kernels, and algorithms with nested launches."""
        return (*(one for one in self.kernels if one.parent is None), *self.nested)

    @property
    def groups(self) -> dict[str | None, GroupSettings]:
        """Settings of the time-slice group of each address space with streams, by name; None: the
        device's own."""
        specs = {space.name: space for space in self.spaces}
        used = dict.fromkeys(stream.space for stream in self.streams)
        return {name: self._group(SpaceSpec("") if name is None else specs[name]) for name in used}

    @property
    def round_cycles(self) -> int:
        """Cycles of a round of the runlist: the slices of all its turns; 0 without a runlist."""
        if self.policy.scheduling == "flat":
            return 0
        groups, cycle_ns = self.groups, self.config.cycle_ns
        return sum(groups[name].cycles(cycle_ns) for name in interleaved(groups))

    def _group(self, space: SpaceSpec) -> GroupSettings:
        """Settings of the time-slice group of an address space."""
        turn = self.policy.turn if space.turn is None else space.turn
        if turn is None:
            return GroupSettings(level=space.interleave)
        return GroupSettings(turn * self.config.cycle_ns, space.interleave)

    @property
    def work(self) -> tuple[Spec, ...]:
        """All copies, kernels (children included) and algorithms."""
        return (*self.copies, *self.kernels, *self.nested)


@dataclass(frozen=True)
class Request:
    """A copy, kernel or run of an algorithm: number `index` of a series, requested in cycle `at`.
    `needs` has (name, index) of its dependencies."""

    spec: Spec
    index: int
    at: int
    needs: tuple[tuple[str, int], ...]

    @property
    def key(self) -> tuple[str, int]:
        """Name and index."""
        return self.spec.name, self.index


def requests(work: Sequence[Spec]) -> list[Request]:
    """All requests in order of time. A request follows its dependencies, and its time is not before
    theirs. Dependencies must have no cycles."""
    by_name = {spec.name: spec for spec in work}
    found: dict[tuple[str, int], Request] = {}
    chains: dict[str, int] = {}  # length of the longest chain of dependencies of each series
    for title in TopologicalSorter({spec.name: spec.before for spec in work}).static_order():
        spec = by_name[title]
        chains[title] = 1 + max((chains[name] for name in spec.before), default=-1)
        for index in range(spec.count):
            needs = tuple((name, index if by_name[name].count > 1 else 0) for name in spec.before)
            at = max([spec.at + index * spec.period, *(found[need].at for need in needs)])
            found[title, index] = Request(spec, index, at, needs)
    in_file = [found[spec.name, index] for spec in work for index in range(spec.count)]
    return sorted(in_file, key=lambda request: (request.at, chains[request.spec.name]))
