"""Compares measured cycles with recorded ones, which must match exactly."""

import json
import os
from collections.abc import Mapping
from pathlib import Path

from signalbox.tb.benchmarks import (
    clean,
    crowd,
    flat,
    latency,
    launches,
    makespan,
    nested,
    parents,
    placement,
    preemption,
    recall,
    runlists,
    sharing,
    spread,
    stops,
    translation,
    urgency,
)
from signalbox.tb.benchmarks.rows import ROWS
from signalbox.tb.folders import ROOT

__all__ = ["DOCS", "RECORDED", "compare", "differences", "document", "recording"]

RECORDED = Path(__file__).with_name("recorded.json")
DOCS = ROOT / "docs"


def differences(measured: Mapping[str, int], recorded: Mapping[str, int]) -> list[str]:
    """One sentence for each row that differs from the recorded one."""
    return [
        f"{name}: recorded {recorded.get(name)}, measured {measured.get(name)}"
        for name in sorted(measured.keys() | recorded.keys())
        if measured.get(name) != recorded.get(name)
    ]


def recording() -> bool:
    """Whether measurements are to be recorded."""
    return os.environ.get("SIGNALBOX_RECORD") == "1"


def compare(measured: Mapping[str, int], names: list[str]) -> None:
    """Compare the rows `names` with the recorded ones; or record them, if `recording`."""
    assert set(names) == set(measured), "not every row was measured, or more than these"
    recorded = json.loads(RECORDED.read_text()) if RECORDED.exists() else {}
    if recording():
        recorded |= measured
        known = [*ROWS]
        parts = (latency, translation, placement, launches, urgency, recall, makespan, spread)
        for part in (
            *parts,
            stops,
            preemption,
            clean,
            nested,
            crowd,
            flat,
            parents,
            sharing,
            runlists,
        ):
            known += part.keys()
        kept = {name: recorded[name] for name in known if name in recorded}
        RECORDED.write_text(json.dumps(kept, indent=2) + "\n")
    else:
        wrong = differences(measured, {name: recorded.get(name) for name in names})
        assert not wrong, "cycles differ (SIGNALBOX_RECORD=1 records them): " + "; ".join(wrong)


def document(name: str, title: str, *tables: str) -> None:
    """Print tables; if `recording`, also write them to a page in `docs/`."""
    text = "\n\n".join(tables)
    print(f"\n{text}\n")
    if recording():
        (DOCS / f"{name}.md").write_text(f"# {title}\n\n{text}\n")
