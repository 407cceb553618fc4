"""Reads and checks [[space]], and the runlist of a workload file (`driver/workload/reader.py`).

Under scheduling = "runlist" the channels of each address space are a time-slice group.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, get_args

from signalbox.driver.channel.interleave import LONGEST_NS, Interleave, interleaved
from signalbox.driver.runtime.own_machine import Scheduling
from signalbox.driver.text_table import counted
from signalbox.driver.workload.specs import SpaceSpec, Workload
from signalbox.driver.workload.toml_table import Table
from signalbox.hw.config import LIMITS, Config

__all__ = ["TurnsSpec", "read_spaces", "read_turns", "with_runlist"]

_LEVELS = {level.name.lower(): level for level in Interleave}

_ENTRIES = 16
"""Smallest runlist that is built without a size in the file, so that small workloads share a
machine."""


@dataclass(frozen=True)
class TurnsSpec:
    """Scheduling of the channels. `turn` : slice of groups without one of their own, in cycles;
    None: the driver's."""

    scheduling: Scheduling = "flat"
    turn: int | None = None


def read_turns(table: Table, config: Config) -> TurnsSpec:
    """Read `scheduling` and `turn` of [policy]. Raises `WorkloadError`."""
    scheduling = table.text("scheduling", "flat", get_args(Scheduling))
    found = TurnsSpec("runlist" if scheduling == "runlist" else "flat", _turn(table, config))
    _refuse_flat(table, found, "turn")
    return found


def read_spaces(top: Table, turns: TurnsSpec, config: Config) -> tuple[SpaceSpec, ...]:
    """Read every [[space]]. Raises `WorkloadError`."""
    spaces: dict[str, SpaceSpec] = {}
    for table in top.tables("space"):
        table.known({"name", "interleave", "turn"})
        name = table.text("name", None)
        if name in spaces:
            raise table.error(f"name = {name!r} is used twice")
        level = _LEVELS[table.text("interleave", "low", tuple(_LEVELS))]
        spaces[name] = SpaceSpec(name, level, _turn(table, config))
        _refuse_flat(table, turns, "interleave", "turn")
    return tuple(spaces.values())


def _turn(table: Table, config: Config) -> int | None:
    """Slice of a group in cycles; None without one."""
    if "turn" not in table.values:
        return None
    return table.number("turn", None, 1, LONGEST_NS // config.cycle_ns)


def _refuse_flat(table: Table, turns: TurnsSpec, *keys: str) -> None:
    """Refuse settings of groups under flat scheduling, which has no groups."""
    for key in keys:
        if key in table.values and turns.scheduling == "flat":
            value = table.values[key]
            raise table.error(f"{key} = {value!r} needs scheduling = 'runlist' in [policy]")


def with_runlist(workload: Workload, file: str, machine: Mapping[str, Any]) -> Workload:
    """The workload on a machine with room for its runlist. `machine` : the table [machine]. If it
    has no `runlist_entries`, the machine gets as many as the list needs, rounded up. Raises
    `WorkloadError` if there is no room."""
    if workload.policy.scheduling == "flat":
        return workload
    groups = workload.groups
    turns = len(interleaved(groups))
    spaces = counted(len(groups), "address space")
    needs = f"the runlist has {counted(turns, 'turn')} of {spaces}"
    remedy = "use fewer address spaces, or lower interleave levels"
    if "runlist_entries" in machine:
        if turns > workload.config.runlist_entries:
            raise Table(file, "[machine]", machine).error(
                f"runlist_entries = {workload.config.runlist_entries}: {needs}; leave "
                f"runlist_entries out, {remedy}"
            )
        return workload
    most = LIMITS["runlist_entries"].high
    if turns > most:
        raise Table(file, "[policy]", {}).error(
            f"scheduling = 'runlist': {needs}, a machine has room for {most}: {remedy}"
        )
    entries = max(_ENTRIES, 1 << (turns - 1).bit_length())
    return replace(workload, config=replace(workload.config, runlist_entries=entries))
