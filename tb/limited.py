"""Commands that take a limited time."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from signalbox.tb.folders import ROOT

__all__ = ["run_limited"]


def run_limited(
    command: Sequence[str], env: Mapping[str, str], log: Path, limit: float | None
) -> int | None:
    """Exit status of `command` in the top folder; what it prints is added to `log`. After `limit`
    seconds it is stopped, with every process that it started, and the status is None."""
    with log.open("a") as output:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=dict(env),
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            return process.wait(limit)
        except subprocess.TimeoutExpired:
            return None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
