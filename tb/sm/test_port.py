"""Custom cores: requirements of the SM port, and their place in the design."""

import pytest
from amaranth.lib import wiring
from amaranth.lib.wiring import In

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


@pytest.mark.parametrize(
    ("factory", "message"),
    [
        (OtherCore, "^OtherCore has not .*: without begin, .*; unknown clock_enable; different k"),
        (lambda config: OwnCore(Config(sms=2, slots=4)), "<lambda> has not .*: different kernel,"),
        (lambda config: 3, "makes 3, which is no Amaranth component"),
        (Config, "^Config cannot be made from a configuration: "),
    ],
)
def test_no_core(factory, message: str):
    with pytest.raises(CoreError, match=message):
        Sm(CONFIG, factory)


def test_core_without_sms():
    with pytest.raises(CoreError, match=r"^sms = 0: without SMs there is no place for a core$"):
        Signalbox(Config(sms=0), OwnCore)
