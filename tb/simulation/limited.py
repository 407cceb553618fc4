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
    """Run `command` in the top folder and append its output to `log`. Returns its exit status, or
    None if it was killed after `limit` seconds. `limit` : None for no limit. Processes that the
    command has started are killed in any case."""
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
