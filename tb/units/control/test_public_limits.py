"""Limits of public hardware (HOST-12, spec page 60, spec 7) as configurations, where the design
reaches them; `docs/hardware-guide.md` lists all limits, with reasons."""

from dataclasses import replace

import pytest
from amaranth.back import rtlil

from signalbox.driver.channel.interleave import GroupSettings, Interleave
from signalbox.driver.compute.engine import ComputeSettings
from signalbox.driver.runtime.limits import Limit, Limits
from signalbox.driver.server.settings import ServerSettings
from signalbox.hw.config import CONFIGS, LIMITS, NESTING, PRIORITIES, Config, ConfigError
from signalbox.hw.instance_block import SUBCONTEXTS
from signalbox.hw.runlists import MOST_CHANNELS
from signalbox.hw.top import Signalbox

PUBLIC = {
    "asids": 64,
    "channels": 32,
    "l1_entries": 16,
    "l2_entries": 8192,
    "nested_kernels": 2048,
    "save_places": 64,
}
"""Subcontexts, hardware queues of streams, entries of a TLB, 16 GiB in pages of 2 MiB, pending
launches (which need save places)."""


TOGETHER = replace(CONFIGS["large"], runlist_entries=64, **PUBLIC)
"""All these limits, with room for a runlist with as many groups as channels."""


def test_together() -> None:
    """One machine can have all these limits."""
    assert all(getattr(TOGETHER, name) == value for name, value in PUBLIC.items())


@pytest.mark.nightly
def test_elaborates() -> None:
    """This machine elaborates; with two SMs, as all of them are the same."""
    assert rtlil.convert(Signalbox(replace(TOGETHER, sms=2)))


@pytest.mark.parametrize("name", PUBLIC)
def test_alone(name: str) -> None:
    """Each limit is reached by a configuration of the default machine."""
    needs = {"save_places": 64} if name == "nested_kernels" else {}
    assert getattr(replace(Config(), **needs, **{name: PUBLIC[name]}), name) == PUBLIC[name]


def test_numbers() -> None:
    """Limits that are constants, not configurations."""
    assert (SUBCONTEXTS, PRIORITIES, NESTING, MOST_CHANNELS, len(Interleave)) == (
        64,
        64,
        24,
        128,
        3,
    )
    assert GroupSettings().slice_ns == (128 << 3) * 1024
    assert ServerSettings().applications == 48
    assert ServerSettings(applications=60).applications == 60
    assert Limits(6, ComputeSettings().sharing)[Limit.PENDING_LAUNCHES] == 2048


def test_out_of_reach() -> None:
    """Public numbers of channels that the design does not reach are refused."""
    most = LIMITS["channels"].high
    assert most == 64
    for public in (2048, 4096):
        with pytest.raises(
            ConfigError, match=f"channels = {public} is outside its limits 1 … {most}"
        ):
            Config(channels=public)
