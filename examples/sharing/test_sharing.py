"""Tests of the programs in this folder."""

import subprocess
import sys
from pathlib import Path

import run

from signalbox.tb.simulation.sizes import COMPUTE, options


def test_machine():
    """The machine of the example is that of `make sim`."""
    assert run.MACHINE.split() == options(COMPUTE)


def test_three_programs():
    """Two succeed; the one that never ends is killed."""
    command = [sys.executable, str(Path(__file__).with_name("run.py"))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    for line in ("adds: 4 sums", "copies: 12 copies", "never ends: killed", "0 applications of 3"):
        assert line in done.stdout, done.stdout
