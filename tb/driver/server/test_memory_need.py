"""Memory of a server's machine, checked before the machine is built."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from signalbox.driver.memory.physical import OutOfMemory
from signalbox.driver.server.memory_need import least_memory
from signalbox.driver.server.settings import ServerSettings
from signalbox.hw.config import CONFIGS, Config
from signalbox.tb.driver.server.session import session
from signalbox.tb.reports.serve import main


async def one_application(config: Config, settings: ServerSettings) -> None:
    """Serve one application, on a machine without SMs its copies only."""
    async with session(settings, config) as served:
        device = await served.client()
        stream = await device.stream()
        if config.sms:
            await served.works(device, stream)
        await served.close()


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("tiny", {}),
        ("tiny", {"memory_each": 1 << 16}),
        ("default", {}),
        ("default", {"context_each": True, "level": "wfi"}),
        ("copies", {}),
        ("large", {}),
    ],
)
def test_least_memory(name: str, settings: dict[str, Any]):
    """One application fits; with a page less it does not."""
    config, chosen = CONFIGS[name], ServerSettings(**settings)
    least = least_memory(config, chosen)
    asyncio.run(one_application(replace(config, memory_bytes=least), chosen))
    with pytest.raises(OutOfMemory):
        asyncio.run(one_application(replace(config, memory_bytes=least - 4096), chosen))


def test_too_little_memory(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """The error comes before the build, and names the options and the least value."""

    def failing(*_: Any, **__: Any) -> None:
        raise AssertionError("not to be called")

    monkeypatch.setattr("signalbox.tb.reports.serve.serve", failing)
    with pytest.raises(SystemExit) as ended:
        main(["--memory-bytes", "4096", "--sms", "0", "--memory-each", "65536"])
    assert ended.value.code == 2
    least = least_memory(Config(sms=0), ServerSettings(memory_each=1 << 16))
    wanted = "--memory-bytes 4096: the server and one application with --memory-each 65536 need "
    wanted += str(least)
    assert wanted in capsys.readouterr().err
