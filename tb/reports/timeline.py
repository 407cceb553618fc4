"""Timelines for Perfetto (https://ui.perfetto.dev): native track events, 1 ns per cycle.

    write(Path("timeline.pftrace"), {"priorities": activity, "baseline": other})

Each run is a process. Its tracks are:

- the holder of the time slice and, with a runlist, the address space that has the turn;
- copy engines, channels, on-chip semaphores;
- the kernels of each stream, with their waits, and their children;
- for each SM its block slots, with launches of children and the saving of stopped blocks, its
  hardware warps, and the number of resident warps;
- for each address space its page walks in flight and its misses; invalidations and faults.

Arrows lead from a doorbell to the copy on the engine and to its end; from a launch in a channel to
the kernel's first warp and to its end; and from a launch by a block to the child's first block.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace

from signalbox.driver.memory.translation_fault import client_name
from signalbox.tb.reports.activity import Activity, CopySpan
from signalbox.tb.reports.kernel_lives import BlockLife, KernelLife, SmLife
from signalbox.tb.reports.tracks import Process
from signalbox.tb.reports.translation import Translation
from signalbox.tb.simulation.trace import Fault

__all__ = [
    "FAULTS",
    "FLOOR",
    "INVALIDATIONS",
    "KERNELS",
    "SAVING",
    "TRANSLATION",
    "TURN",
    "WARPS",
    "block_track",
    "channel_track",
    "child_track",
    "engine_track",
    "misses_track",
    "sm_track",
    "walks_track",
    "warp_track",
    "write",
]

FLOOR = "time slice"
"""Name of the track that shows the holder of the time slice."""

TURN = "turn"
"""Name of the track that shows the address space that has the turn by the runlist."""

KERNELS = "kernels"
"""Name of the track group of kernels, with one track per stream, and tracks for their children."""

WARPS = "warps"
"""Name of the counter of an SM's warps."""

TRANSLATION = "translation"
"""Name of the track group of translation."""

SAVING = "state is saved"
"""Name of the slice inside the slice of a stopped block."""

INVALIDATIONS, FAULTS = "invalidations", "faults"
"""Names of the tracks of instants in the group `TRANSLATION`."""

_RUN_FLOWS = 1 << 32
"""Number of flow ids reserved for each run."""


def engine_track(engine: int) -> str:
    """Name of an engine's track."""
    return f"copy engine {engine}"


def walks_track(space: str) -> str:
    """Name of the counter of an address space's page walks in flight."""
    return f"{space}: page walks under way"


def misses_track(space: str) -> str:
    """Name of the counter of an address space's accumulated misses in first-level TLBs."""
    return f"{space}: L1 misses"


def sm_track(sm: int) -> str:
    """Name of an SM's track group."""
    return f"SM {sm}"


def block_track(slot: int) -> str:
    """Name of the track of a block slot."""
    return f"block slot {slot}"


def child_track(stream: str, depth: int, number: int) -> str:
    """Name of a track of a stream's kernels with nesting depth `depth`. `number` : from 1 on."""
    return f"{stream}, depth {depth} ({number})"


def warp_track(warp: int) -> str:
    """Name of the track of a hardware warp."""
    return f"warp {warp}"


def channel_track(activity: Activity, channel: int) -> str:
    """Name of a channel's track: its number and its streams."""
    streams = activity.channels.get(channel)
    return f"channel {channel} ({', '.join(streams)})" if streams else f"channel {channel}"


def write(file: Path, runs: Mapping[str, Activity]) -> None:
    """Write a timeline with one process per named run."""
    trace = Trace()
    numbers = iter(range(1, 1 << 62))
    for pid, (name, activity) in enumerate(runs.items(), 1):
        flows = iter(range(pid * _RUN_FLOWS, (pid + 1) * _RUN_FLOWS))
        _Run(activity, Process(trace, numbers, pid, name), flows).write()
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(trace.SerializeToString())


class _Run:
    """The tracks of one run. `flows` : ids for its arrows."""

    def __init__(self, activity: Activity, process: Process, flows: Iterator[int]) -> None:
        self._activity = activity
        self._process = process
        works = [*activity.copies, *activity.compute.kernels]
        self._flows = {id(work): next(flows) for work in works}
        self._first = {
            id(kernel.first_warp if kernel.parent is None else kernel.blocks[0]): [
                self._flows[id(kernel)]
            ]
            for kernel in activity.compute.kernels
        }
        """Arrows to first warps, and to first blocks of children."""

    def write(self) -> None:
        """Write all tracks."""
        activity, process = self._activity, self._process
        floor = process.track(FLOOR)
        for span in activity.floor:
            process.slice(floor, span.start, span.end, f"channel {span.name}")
        if activity.turns:
            track = process.track(TURN)
            for turn in activity.turns:
                process.slice(track, turn.start, turn.end, turn.name)
        for engine in sorted({copy.engine for copy in activity.copies}):
            track = process.track(engine_track(engine))
            for copy in activity.of_engine(engine):
                name = f"{copy.record.stream}: {copy.name}{' (faulted)' if copy.failed else ''}"
                flow = self._flows[id(copy)]
                process.slice(track, copy.start, copy.end, name, _copy(copy), [flow])
        for channel in activity.channels:
            self._channel(channel)
        for index, values in sorted(activity.semaphores.items()):
            process.counter(activity.semaphore_name(index), values)
        self._kernels()
        for number, sm in enumerate(activity.compute.sms):
            self._sm(number, sm)
        self._translation(activity.translation)

    def _channel(self, channel: int) -> None:
        """Methods and waits of a channel, its doorbells and launches, and the ends of its work."""
        activity, process = self._activity, self._process
        track = process.track(channel_track(activity, channel))
        spans = [*activity.waits[channel], *activity.methods[channel]]
        for span in sorted(spans, key=lambda span: (span.start, span.end)):
            process.slice(track, span.start, span.end, span.name)
        copies = [copy for copy in activity.copies if copy.record.channel == channel]
        announced: dict[int, list[CopySpan]] = {}
        for copy in copies:
            announced.setdefault(copy.doorbell, []).append(copy)
        for cycle in activity.doorbells[channel]:
            these = announced.get(cycle, [])
            name = f"doorbell: {', '.join(copy.name for copy in these)}" if these else "doorbell"
            process.instant(track, cycle, name, flows=[self._flows[id(copy)] for copy in these])
        for copy in copies:
            name = f"{'fault' if copy.failed else 'end'} of {copy.name}"
            process.instant(track, copy.end, name, last=[self._flows[id(copy)]])
        for kernel in activity.compute.roots:
            if kernel.record.channel == channel:
                flow = [self._flows[id(kernel)]]
                process.instant(track, kernel.launched, f"launch of {kernel.title}", flows=flow)
                process.instant(track, kernel.over, f"end of {kernel.title}", last=flow)
        for cycle, halted, cause in activity.errors:
            if halted == channel:
                process.instant(track, cycle, f"halted: {cause}")

    def _kernels(self) -> None:
        """Kernels: one track per stream, as kernels of a stream do not overlap; and, for their
        descendants, as many tracks per depth as needed."""
        process, kernels = self._process, self._activity.compute.kernels
        group = process.track(KERNELS) if kernels else 0
        for stream in dict.fromkeys(kernel.record.stream for kernel in kernels):
            mine = [kernel for kernel in kernels if kernel.record.stream == stream]
            for depth in sorted({kernel.depth for kernel in mine}):
                level = [kernel for kernel in mine if kernel.depth == depth]
                for number, apart in enumerate(_apart(level), 1):
                    name = stream if depth == 1 else child_track(stream, depth, number)
                    track = process.track(name, group)
                    for kernel in apart:
                        self._kernel(track, kernel)

    def _kernel(self, track: int, kernel: KernelLife) -> None:
        """A kernel, with its phases as nested slices."""
        process = self._process
        cycles = (kernel.launched, kernel.opened[0], kernel.first_block, kernel.last_exit)
        names = ("waits for a slot", "waits for an SM", "runs", "completes")
        process.begin(track, kernel.launched, kernel.title, _kernel(kernel))
        for name, start, end in zip(names, cycles, (*cycles[1:], kernel.over), strict=True):
            process.slice(track, start, end, name)
        process.end(track, kernel.over)

    def _sm(self, number: int, sm: SmLife) -> None:
        """Blocks and warps of an SM."""
        process = self._process
        group = process.track(sm_track(number))
        process.counter(WARPS, sm.resident_warps(), group)
        slots = {block.slot for block in sm.blocks}
        tracks = {slot: process.track(block_track(slot), group) for slot in sorted(slots)}
        for block in sm.blocks:
            name, notes, flows = block.name, _block(block), self._first.get(id(block), [])
            process.slice(tracks[block.slot], block.placed, block.end, name, notes, flows)
            for launch in block.launches:
                arrow = [] if launch.child is None else [self._flows[id(launch.child)]]
                span = launch.start, launch.end, launch.name
                process.slice(tracks[block.slot], *span, flows=arrow)
            if block.saved >= 0:
                # A launch in progress continues while the other warps are being saved.
                begin = max([block.saving, *(launch.end for launch in block.launches)])
                process.slice(tracks[block.slot], begin, block.saved, SAVING)
        warps = [(block, warp) for block in sm.blocks for warp in block.warps]
        places = {warp.warp for _, warp in warps}
        tracks = {place: process.track(warp_track(place), group) for place in sorted(places)}
        for block, warp in sorted(warps, key=lambda pair: pair[1].start):
            name, flows = f"{block.name} warp {warp.index}", self._first.get(id(warp), [])
            process.slice(tracks[warp.warp], warp.start, warp.end, name, flows=flows)

    def _translation(self, found: Translation) -> None:
        """Walks and misses of each address space, invalidations and faults."""
        process = self._process
        group = process.track(TRANSLATION)
        for space in found.spaces.values():
            process.counter(walks_track(space.title), space.walks_under_way(), group)
            misses = ((cycle, count) for count, cycle in enumerate([0, *space.misses]))
            process.counter(misses_track(space.title), misses, group)
        track = process.track(INVALIDATIONS, group)
        for one in found.invalidations:
            process.instant(track, one.cycle, f"{one.scope.name}: {found.title(one.asid)}")
        track = process.track(FAULTS, group)
        for space in found.spaces.values():
            for fault in space.faults:
                notes = _fault(fault)
                name = f"{notes['cause']}: {notes['access']} of {notes['va']}, {space.title}"
                process.instant(track, fault.cycle, name, notes)


def _apart(kernels: list[KernelLife]) -> list[list[KernelLife]]:
    """Distribute kernels, given in launch order, to lists without overlaps."""
    found: list[list[KernelLife]] = []
    for kernel in kernels:
        free = (one for one in found if one[-1].over <= kernel.launched)
        chosen = next(free, None)
        if chosen is None:
            found.append(chosen := [])
        chosen.append(kernel)
    return found


def _kernel(kernel: KernelLife) -> dict[str, object]:
    """Notes of a kernel."""
    record = kernel.record
    return {
        "kernel": record.kernel,
        "stream": record.stream,
        "asid": record.asid,
        "priority": record.priority,
        "depth": kernel.depth,
        "launched by": "the driver" if kernel.parent is None else kernel.parent.title,
        "grid": record.grid,
        "block": record.block,
        "blocks": len(kernel.blocks),
    }


def _block(block: BlockLife) -> dict[str, object]:
    """Notes of a block."""
    return {
        "step": block.step.name,
        "warps": len(block.warps),
        "first warp after": block.warps[0].start - block.placed,
    }


def _copy(copy: CopySpan) -> dict[str, object]:
    """Notes of a copy."""
    return {
        "stream": copy.record.stream,
        "priority": copy.record.priority,
        "channel": copy.record.channel,
        "bytes": copy.record.size,
        "accepted": copy.accepted,
        "latency": copy.record.latency,
    }


def _fault(fault: Fault) -> dict[str, object]:
    """Notes of a faulting access."""
    return {
        "asid": fault.asid,
        "va": f"{'physical ' if fault.physical else ''}{fault.va:#x}",
        "access": fault.access.name.lower(),
        "cause": fault.cause.name,
        "requester": client_name(fault.client) or f"client {fault.client}",
    }
