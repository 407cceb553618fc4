"""Configurations for tests of the whole machine, without a compute engine except for `COMPUTE`.
Tests with the same size share a build."""

from dataclasses import replace

from signalbox.hw.config import CONFIGS, LIMITS, Config
from signalbox.tb.simulation.top import MEMORY_BYTES
from signalbox.tb.testbench import configs

__all__ = ["COMPUTE", "NESTED", "SAVING", "SIZES", "options"]

_NARROW = Config(
    channels=3,
    data_width=64,
    semaphores=16,
    counters=4,
    copy_engines=2,
    asids=3,
    l1_entries=4,
    l1_misses=2,
    l2_entries=64,
    walks=3,
    walk_cache=2,
    prefetch_beats=8,
)
"""Few channels, a narrow bus, the smallest prefetch buffer and small TLBs, but two copy engines."""

SIZES = {
    name: replace(config, sms=0, memory_bytes=MEMORY_BYTES, trace=True)
    for name, config in (
        ("tiny", CONFIGS["tiny"]),
        ("default", replace(CONFIGS["default"], runlist_entries=16)),
        ("two-engines", CONFIGS["two-engines"]),
        ("narrow", _NARROW),
    )
}
"""Machines by name. The default machine has runlists. They are off after reset and then take no
cycle, so recorded numbers of cycles remain the same."""

COMPUTE = replace(
    configs.COMPUTE,
    channels=4,
    semaphores=16,
    counters=4,
    asids=8,
    memory_bytes=MEMORY_BYTES,
    trace=True,
)
"""A machine with a compute engine that fills up quickly."""

SAVING = replace(COMPUTE, save_places=6)
"""The same machine with preemption of blocks, and with one save place per block slot."""

NESTED = replace(COMPUTE, save_places=32, nested_kernels=60)
"""The same machine with nested launches."""


def options(config: Config) -> list[str]:
    """Options with which `make serve` and similar commands build this configuration, without
    switches such as `--trace`."""
    default = Config()
    return [
        f"--{name.replace('_', '-')}={getattr(config, name)}"
        for name in LIMITS
        if getattr(config, name) != getattr(default, name)
    ]
