"""Simulation top, monitor and trace reader together."""

import gc

import pytest

from signalbox.hw.config import Config, ConfigError
from signalbox.hw.errors import Cause
from signalbox.tb.simulation import trace
from signalbox.tb.simulation.stand_in import StandIn
from signalbox.tb.simulation.top import MEMORY_BYTES, TRACE, simulate_top, top


@pytest.mark.smoke
def test_top(simulator: str):
    config = Config(
        channels=16, copy_engines=2, semaphores=64, sms=0, memory_bytes=MEMORY_BYTES, trace=True
    )
    run = simulate_top(
        StandIn(config), "signalbox.tb.simulation.cocotb_top", simulator=simulator, name="sim-top"
    )
    events = trace.read(run / TRACE)
    began = events[0].cycle
    assert events[:6] == [
        trace.Doorbell(began, 15),
        trace.Method(began, 15, 7, 0x3FFC, 0xFFFFFFFF),
        trace.Acquire(began, 15, True),
        trace.Semaphore(began, 63, (1 << 64) - 1),
        trace.Start(began, 1, 15),
        trace.Error(began, 0, Cause.FETCH_FAULT),
    ]
    served = [event for event in events if isinstance(event, trace.Served)]
    assert [event.channel for event in served][:2] == [3, None]
    assert trace.Floor(began + 1, 2) in events
    (done,) = (event for event in events if isinstance(event, trace.Done))
    assert (done.engine, done.channel, done.failed) == (1, 15, True)
    assert done.cycle == served[1].cycle - 1 + 20


@pytest.mark.filterwarnings("ignore::amaranth.hdl.UnusedElaboratable")
def test_memory_is_the_configured_one():
    assert ".BYTES(4096)" in top(StandIn(Config(memory_bytes=4096)))
    with pytest.raises(ConfigError, match=r"memory_bytes = 4294967296: .* at most 268435456 bytes"):
        simulate_top(
            StandIn(Config()),
            "signalbox.tb.simulation.cocotb_top",
            simulator="verilator",
            name="sim-top",
        )
    gc.collect()  # unused designs warn when they are collected


def test_parse_every_kind():
    text = """0 served 3
1 served -
2 floor 0
3 doorbell 7
4 method 1 4 300 deadbeef
5 acquire 1 0
6 sem 5 18446744073709551615
7 start 0 1
8 done 0 1 0
9 error 2 18
"""
    assert list(trace.parse(text.splitlines())) == [
        trace.Served(0, 3),
        trace.Served(1, None),
        trace.Floor(2, 0),
        trace.Doorbell(3, 7),
        trace.Method(4, 1, 4, 0x300, 0xDEADBEEF),
        trace.Acquire(5, 1, False),
        trace.Semaphore(6, 5, (1 << 64) - 1),
        trace.Start(7, 0, 1),
        trace.Done(8, 0, 1, False),
        trace.Error(9, 2, Cause.SEM_OVERFLOW),
    ]


@pytest.mark.parametrize("line", ["", "1 unknown 2", "x served 1", "1 done 0 1", "1 error 2 99"])
def test_parse_refuses(line: str):
    with pytest.raises(ValueError, match="trace line 1"):
        list(trace.parse([line]))
