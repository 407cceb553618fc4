"""Commands with a time limit."""

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
    """Run `command` in the top folder and append its output to `log`. Returns its exit status.
    After `limit` seconds the command is killed with all processes that it started, and the result
    is None."""
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
