"""A server that schedules its applications on the host by a runlist (HOST-7)."""

import re
from unittest.mock import Mock

import pytest

from signalbox.driver.channel.interleave import GroupSettings, Interleave
from signalbox.driver.platform.info import DeviceError
from signalbox.driver.server.settings import ServerSettings
from signalbox.tb.driver.server.session import Session, serve
from signalbox.tb.reports.serve import main

SETTINGS = {
    "scheduling": "runlist",
    "turns": {"short": 20_480},
    "interleave": {"often": "high", "short": "medium"},
}
WANTED = {
    "short": GroupSettings(20_480, Interleave.MEDIUM),
    "often": GroupSettings(level=Interleave.HIGH),
    "plain": GroupSettings(),
}


def test_turns() -> None:
    """Spaces have the runlist settings of their application, and only while it is connected."""

    async def body(session: Session) -> None:
        runlist, applications = session.server.device.runlist, session.server.applications
        clients = [await session.client(name) for name in WANTED]
        for client in clients:
            await session.works(client)
        groups = {
            one.name: {runlist.settings(space) for space in one.spaces.values()}
            for one in applications.values()
        }
        assert groups == {name: {group} for name, group in WANTED.items()}
        spaces = [space for one in applications.values() for space in one.spaces.values()]
        for client in clients:
            await client.close()
        await session.settle()
        assert {runlist.settings(space) for space in spaces} == {GroupSettings()}

    serve(body, config={"runlist_entries": 16}, **SETTINGS)


def test_full_list() -> None:
    """A client whose channels do not fit the list gets an error; another one continues."""

    async def body(session: Session) -> None:
        one, other = await session.client("plain"), await session.client("another")
        await session.works(one)
        with pytest.raises(DeviceError, match=r"the runlist has 2 turns of 2 groups"):
            await session.works(other)
        await session.works(one)
        await one.close()
        await session.settle(1)
        await session.works(other)

    serve(body, config={"runlist_entries": 1}, **SETTINGS)


def test_refusals(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match=r"interleave of 'a' = 'most' is none of \['low', 'medium"):
        ServerSettings(interleave={"a": "most"})
    with pytest.raises(ValueError, match="slice_ns = 0 is outside 1 …"):
        ServerSettings(turns={"a": 0})
    with pytest.raises(ValueError, match="scheduling = 'round' is none of"):
        ServerSettings(scheduling="round")  # pyright: ignore[reportArgumentType]
    for options, text in (
        (["--scheduling", "runlist"], "give the machine --runlist-entries N"),
        (["--interleave", "a=most"], "'a=most' is not of the form NAME=low|medium|high"),
        (["--turn", "a"], "'a' is not of the form NAME=N"),
        (["--turn", "a=b"], "'b' is not a number"),
        (["--patience", f"0x{1 << 20_000:x}"], "does not fit 64 bits"),
    ):
        with pytest.raises(SystemExit):
            main(["--config", "tiny", *options])
        assert re.search(re.escape(text), capsys.readouterr().err)


def test_failed_simulation(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A failed simulation is reported as by the other commands, in the last line."""
    failing = Mock(side_effect=AssertionError("serve failed: OutOfMemory"))
    monkeypatch.setattr("signalbox.tb.reports.serve.serve", failing)
    with pytest.raises(SystemExit, match="1"):
        main(["--config", "tiny"])
    assert capsys.readouterr().err.splitlines()[-1] == "FAILED: serve failed: OutOfMemory"


def test_machine_without_runlists() -> None:
    async def body(_: Session) -> None: ...

    with pytest.raises(DeviceError, match="the machine has no runlists"):
        serve(body, **SETTINGS)
