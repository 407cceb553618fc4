"""Configurations for tests of the compute engine and its units, by name."""

from dataclasses import replace

from signalbox.hw.config import CONFIGS, Config

__all__ = [
    "COMPUTE",
    "CROWDS",
    "ENGINES",
    "LISTS",
    "MASKS",
    "METADATA",
    "NESTED",
    "OLDEST",
    "RUNLISTS",
    "SAVING",
    "TASKS",
    "TIMING",
    "TREES",
]

COMPUTE = Config(
    asids=16,
    contexts=2,
    slots=4,
    spare_rows=4,
    sms=2,
    sm_warps=6,
    sm_blocks=3,
    sm_registers=2048,
    sm_shared=4096,
    lanes=8,
)
"""A compute engine that fills up quickly."""

TIMING = replace(COMPUTE, timing_core=True)
"""A compute engine with timing cores."""

SAVING = replace(COMPUTE, save_places=6)
"""A compute engine that saves stopped blocks, with one save place per block slot."""

NESTED = replace(SAVING, save_places=32, nested_kernels=60)
"""A compute engine with nested launches."""

FEW_PLACES = replace(NESTED, save_places=3)
"""An engine with fewer save places than block slots, so fewer blocks can wait for children."""

ONE_PLACE = replace(NESTED, save_places=1)
"""An engine in which only one block can wait for children."""

MASKS = replace(SAVING, sms=3, save_places=9, sm_masks=True)
"""An engine whose tasks can disable SMs."""

_ROOM = {"save_places": 96, "nested_kernels": 200}
TREES = {
    **{f"TREES_{sms}": replace(NESTED, sms=sms, **_ROOM) for sms in (1, 2, 8)},
    "TREES_MASKS": replace(NESTED, sms=3, sm_masks=True, **_ROOM),
}
"""Engines with nested launches, of different sizes; one with SM masks."""

CROWDS = {sms: replace(NESTED, sms=sms, **_ROOM) for sms in (2, 4)}
"""Engines on which all warps launch kernels, by number of SMs."""

ENGINES = {
    "COMPUTE": COMPUTE,
    "SAVING": SAVING,
    "MASKS": MASKS,
    "NESTED": NESTED,
    "FEW_PLACES": FEW_PLACES,
    "ONE_PLACE": ONE_PLACE,
    **TREES,
    **{f"CROWD_{sms}": config for sms, config in CROWDS.items()},
}
"""Engines of `tb.units.compute.testbench`, selected by the variable WORK_CONFIG."""

METADATA = {
    "tiny": CONFIGS["tiny"],
    "default": CONFIGS["default"],
    "large": Config(
        data_width=512, sm_warps=64, sm_registers=65536, sm_shared=228 * 1024, sm_blocks=32
    ),
    "masks": Config(sm_masks=True),
    "masks-64": Config(sms=64, sm_masks=True),
    "masks-65": Config(sms=65, sm_masks=True),
}

LISTS = {
    "tiny": CONFIGS["tiny"],
    "default": CONFIGS["default"],
    "saving": Config(data_width=64, save_places=40),
    "nested": Config(data_width=64, save_places=40, nested_kernels=20),
    "large": Config(data_width=512, contexts=16),
}

TASKS = {
    "tiny": CONFIGS["tiny"],
    "default": Config(queue_window=8),
    "saving": Config(queue_window=8, save_places=64),
    "nested": Config(queue_window=8, save_places=64, nested_kernels=40),
    "masks": Config(queue_window=8, save_places=64, nested_kernels=40, sm_masks=True),
    "large": Config(asids=256, data_width=512, slots=64, contexts=16, queues=21, queue_window=16),
}
"""Task units; the large one has more than three address spaces per slot."""

OLDEST = {
    "tiny": CONFIGS["tiny"],
    "wide": Config(slots=16, spare_rows=5, queue_window=32),
    "saving": replace(SAVING, queue_window=8),
}

RUNLISTS = {
    "tiny": replace(CONFIGS["tiny"], runlist_entries=1),
    "narrow": Config(channels=3, data_width=64, runlist_entries=2),
    "default": Config(runlist_entries=5),
    "large": replace(CONFIGS["large"], runlist_entries=64),
}
"""Hosts with runlists; "narrow" has few enough channels and places to cover all their cases."""
