"""Custom cores: requirements of the SM port, and their place in the design."""

from dataclasses import replace

import pytest
from amaranth.hdl import unsigned
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.compute.engine import ComputeEngine
from signalbox.hw.config import Config
from signalbox.hw.sm.core.core import Core
from signalbox.hw.sm.port import CoreError, SmPort
from signalbox.hw.sm.sm import Sm
from signalbox.hw.sm.timing.core import TimingCore
from signalbox.hw.top import Signalbox

CONFIG = Config(sms=2)


class OwnCore(wiring.Component):
    """A core with the SM port."""

    def __init__(self, config: Config) -> None:
        super().__init__(SmPort(config).flip())


class OtherCore(wiring.Component):
    """A core without the SM port."""

    def __init__(self, config: Config) -> None:
        super().__init__({"kernel": In(3), "clock_enable": In(1)})


def test_default():
    assert isinstance(Sm(CONFIG).core, Core)
    assert isinstance(Sm(Config(sms=2, timing_core=True)).core, TimingCore)


def test_own_core_in_every_sm():
    (design,) = {sm.design for sm in ComputeEngine(CONFIG, OwnCore).sms}
    assert isinstance(design.core, OwnCore)


class NoSignature(wiring.Component):
    """Forgets the constructor of its base class."""

    def __init__(self, config: Config) -> None:
        pass


class SameWidths(wiring.Component):
    """Has the SM port, with other shapes of the same widths."""

    def __init__(self, config: Config) -> None:
        members = dict(SmPort(config).flip().members)
        members["finish"] = In(unsigned(config.sm_blocks))
        members["end"] = Out(stream.Signature(range(config.sm_warps)))
        super().__init__(members)


class Broken(wiring.Component):
    """Fails in its constructor."""

    def __init__(self, config: Config) -> None:
        raise TypeError("own mistake")


def test_shapes_of_equal_width():
    assert isinstance(Sm(CONFIG, SameWidths).core, SameWidths)


def test_own_errors_pass():
    with pytest.raises(TypeError, match=r"^own mistake$"):
        Sm(CONFIG, Broken)


@pytest.mark.parametrize(
    ("factory", "message"),
    [
        (OtherCore, r"^OtherCore has .*: kernel is In of 3 bits, not In of \d+ bits; begin"),
        (
            lambda config: OwnCore(Config(sms=2, slots=4, spare_rows=1)),
            "<lambda> has .*: kernel is In of",
        ),
        (lambda config: 3, "makes 3, which is no Amaranth component"),
        (NoSignature, "which is no Amaranth component"),
    ],
)
def test_no_core(factory, message: str):
    with pytest.raises(CoreError, match=message):
        Sm(CONFIG, factory)


class EndlessBlocks(wiring.Component):
    """Has the SM port without the members for stopped blocks."""

    def __init__(self, config: Config) -> None:
        members = dict(SmPort(replace(config, save_places=0)).flip().members)
        super().__init__(members)


def test_core_that_cannot_stop_blocks():
    """A core without `stop` and `saved` is accepted only without save places."""
    assert isinstance(Sm(CONFIG, EndlessBlocks).core, EndlessBlocks)
    with pytest.raises(CoreError, match=r"stop.*is missing"):
        Sm(replace(CONFIG, save_places=4), EndlessBlocks)


@pytest.mark.parametrize("core", [Core, TimingCore])
def test_cores_that_stop_blocks(core: type[wiring.Component]):
    for places in (0, 4):
        assert isinstance(Sm(replace(CONFIG, save_places=places), core).core, core)


def test_core_without_sms():
    with pytest.raises(CoreError, match=r"^sms = 0: without SMs there is no place for a core$"):
        Signalbox(Config(sms=0), OwnCore)
