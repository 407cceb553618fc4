"""Runlists of workload files: contents, the machine that they get, refused files, runs."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from signalbox.driver.channel.interleave import GroupSettings, Interleave
from signalbox.driver.device import Device, DeviceError
from signalbox.driver.workload.reader import parse
from signalbox.driver.workload.records import Result
from signalbox.driver.workload.replay import run
from signalbox.driver.workload.specs import Workload
from signalbox.driver.workload.toml_table import WorkloadError
from signalbox.hw.config import Config
from signalbox.tb.driver.fakes.machine import SPACE, FakeMachine
from signalbox.tb.driver.hangs import HANGS
from signalbox.tb.reports.turns import turns, turns_table

RUNLIST = "[policy]\nscheduling = 'runlist'\n"
COPY = "[[stream]]\nname = 's'\n[[copy]]\nstream = 's'\nsize = 4\n"
SPACE_A = "[[space]]\nname = 'a'\n"


def programs(levels: Sequence[str]) -> str:
    """Address spaces p0, p1, … of these levels, each with a stream and a copy."""
    text = ""
    for number, level in enumerate(levels):
        text += f"[[space]]\nname = 'p{number}'\ninterleave = '{level}'\n"
        text += f"[[stream]]\nname = 's{number}'\nspace = 'p{number}'\n"
        text += f"[[copy]]\nstream = 's{number}'\nsize = 40\n"
    return text


def many(low: int, medium: int, high: int) -> str:
    """Programs of these levels."""
    return programs([*low * ["low"], *medium * ["medium"], *high * ["high"]])


def machine(workload: Workload) -> FakeMachine:
    return FakeMachine(replace(workload.config, memory_bytes=SPACE))


def test_flat_by_default() -> None:
    """Without a runlist nothing changes: neither the machine nor the scheduling."""
    workload = parse(COPY)
    assert workload.policy.scheduling == "flat"
    assert workload.config == Config()
    assert workload.round_cycles == 0


def test_groups() -> None:
    """Each space with streams is a group; its slice is its own, else that of [policy], else the
    driver's."""
    text = RUNLIST + "turn = 3000\n" + programs(["high", "low"]) + COPY
    text += (
        SPACE_A + "turn = 500\n[[stream]]\nname = 'a'\nspace = 'a'\n[[space]]\nname = 'unused'\n"
    )
    workload = parse(text)
    assert workload.groups == {
        "p0": GroupSettings(30_000, Interleave.HIGH),
        "p1": GroupSettings(30_000),
        None: GroupSettings(30_000),
        "a": GroupSettings(5000),
    }
    # Slices are rounded up to 103 cycles each; "high" has a turn before each of the three others.
    assert workload.round_cycles == 103 * (2 * 30 + 5 + 3 * 30)
    assert parse(RUNLIST + COPY).groups == {None: GroupSettings()}
    slow = parse("[machine]\ncycle_ns = 100\n" + RUNLIST + "turn = 7\n" + COPY)
    assert slow.groups == {None: GroupSettings(700)}
    assert slow.round_cycles == 11


@pytest.mark.parametrize(
    ("levels", "entries"),
    [
        ((1, 0, 0), 16),
        ((4, 0, 2), 16),
        ((3, 2, 2), 32),
        ((8, 3, 1), 64),
        ((8, 3, 5), 256),
        ((16, 15, 15), 4096),
    ],
)
def test_machine(levels: tuple[int, int, int], entries: int) -> None:
    """The machine has room for all turns of the list: 1, 12, 27, 64, 192 and 4096."""
    text = "[machine]\nchannels = 64\n" + RUNLIST + many(*levels)
    assert parse(text).config == Config(channels=64, runlist_entries=entries)


def test_machine_of_the_file() -> None:
    """A number in the file is kept if it suffices, also for a workload without a runlist."""
    assert parse("[machine]\nrunlist_entries = 3\n" + COPY).config.runlist_entries == 3
    text = "[machine]\nrunlist_entries = 3\n" + RUNLIST + many(3, 0, 0)
    assert parse(text).config.runlist_entries == 3


def test_run() -> None:
    """Groups have their levels and slices from the first list on; the run leaves none behind."""
    workload = parse(RUNLIST + "turn = 1000\n" + programs(["high", "low", "low"]))
    fake, policy = machine(workload), workload.policy

    async def main() -> None:
        device = await Device.open(fake, policy.make(), scheduling=policy.scheduling)
        for _ in range(2):
            result = await asyncio.wait_for(run(device, workload, seed=1), HANGS)
            assert len(result.records) == 3
        await device.close()

    asyncio.run(main())
    longest = max(fake.runlist.lists, key=len)
    assert fake.runlist.words["RUNLIST_CONTROL"] == 0
    assert [word.timeout << word.scale for word in longest] == 4 * [10]
    assert len({word.tsgid for word in longest}) == 3
    assert longest[0].tsgid == longest[2].tsgid


def test_turns_of_a_space_with_the_name_of_the_devices_own() -> None:
    """They are not those of the device's own space."""
    text = SPACE_A + "[[stream]]\nname = 't'\nspace = 'a'\n[[copy]]\nstream = 't'\nsize = 4\n"
    workload = parse(RUNLIST + COPY + text.replace("'a'", "'device'"))

    async def main() -> Result:
        device = await Device.open(
            machine(workload), workload.policy.make(), scheduling=workload.policy.scheduling
        )
        return await asyncio.wait_for(run(device, workload), HANGS)

    result = asyncio.run(main())
    channels = {record.stream: record.channel for record in result.records}
    found = turns(result, [(0, 10, channels["s"]), (10, 40, channels["t"])])
    assert [(one.start, one.end, one.name) for one in found] == [
        (0, 10, "device"),
        (10, 40, "device"),
    ]
    rows = [line.split()[4:] for line in turns_table(result, {"run": found}).splitlines()]
    assert rows[-2:] == [["1", "10"], ["1", "30"]]


def test_device_with_flat_scheduling() -> None:
    """A workload with a runlist does not run on a device without one."""
    workload = parse(RUNLIST + COPY)

    async def main() -> None:
        device = await Device.open(machine(workload), workload.policy.make())
        with pytest.raises(DeviceError, match="scheduling is flat"):
            await run(device, workload)
        await device.close()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "[policy]\nscheduling = 'fair'\n" + COPY,
            r"w: \[policy\]: scheduling = 'fair' is not one of 'flat', 'runlist'",
        ),
        ("[policy]\nscheduling = true\n" + COPY, r"\[policy\]: scheduling = True is not a string"),
        (
            "[policy]\nturn = 9\n" + COPY,
            r"w: \[policy\]: turn = 9 needs scheduling = 'runlist' in \[policy\]",
        ),
        (RUNLIST + "turn = 0\n" + COPY, r"\[policy\]: turn = 0 is outside 1 … 855638016"),
        (RUNLIST + "turn = 855638017\n" + COPY, r"\[policy\]: turn = 855638017 is outside 1 … "),
        (RUNLIST + "turn = 2.5\n" + COPY, r"\[policy\]: turn = 2.5 is not an integer"),
        (RUNLIST + "turn = '5 us'\n" + COPY, r"\[policy\]: turn = '5 us' is not an integer"),
        (
            "[machine]\ncycle_ns = 1000\n" + RUNLIST + "turn = 8556381\n" + COPY,
            r"\[policy\]: turn = 8556381 is outside 1 … 8556380",
        ),
        (
            SPACE_A + "interleave = 'high'\n" + COPY,
            r"w: space 1 \('a'\): interleave = 'high' needs scheduling = 'runlist' in \[policy\]",
        ),
        (
            SPACE_A + "turn = 9\n" + COPY,
            r"w: space 1 \('a'\): turn = 9 needs scheduling = 'runlist' in \[policy\]",
        ),
        (
            RUNLIST + SPACE_A + "interleave = 'top'\n" + COPY,
            r"w: space 1 \('a'\): interleave = 'top' is not one of 'low', 'medium', 'high'",
        ),
        (
            RUNLIST + SPACE_A + "interleave = 2\n" + COPY,
            r"w: space 1 \('a'\): interleave = 2 is not a string",
        ),
        (
            RUNLIST + SPACE_A + "level = 'high'\n" + COPY,
            r"space 1 \('a'\): unknown key 'level'; known keys: interleave, name, turn",
        ),
        (RUNLIST + SPACE_A + "turn = 0.5\n" + COPY, r"space 1 \('a'\): turn = 0.5 is not an int"),
        (RUNLIST + SPACE_A + "turn = -1\n" + COPY, r"space 1 \('a'\): turn = -1 is outside 1 … "),
        (
            "[machine]\nrunlist_entries = 0\n" + RUNLIST + COPY,
            r"\[machine\]: runlist_entries = 0: the runlist has 1 turn of 1 address space; leave",
        ),
        (
            "[machine]\nrunlist_entries = 5\n" + RUNLIST + many(2, 0, 2),
            r"entries = 5: the runlist has 6 turns of 4 address spaces; leave runlist_entries out,",
        ),
        (
            "[machine]\nchannels = 64\n" + RUNLIST + many(20, 20, 20),
            r"\[policy\]: scheduling = 'runlist': the runlist has 8,820 turns .* room for 4096: ",
        ),
        (
            "[machine]\nrunlist_entries = 4097\n" + RUNLIST + COPY,
            r"w: \[machine\]: runlist_entries = 4097 is outside its limits 0 … 4096",
        ),
    ],
)
def test_refused(text: str, message: str) -> None:
    with pytest.raises(WorkloadError, match=message):
        parse(text, "w")
