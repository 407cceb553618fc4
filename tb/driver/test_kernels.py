"""Supplied kernels on the interpreter, compared with numpy."""

import itertools
from typing import Any

import numpy as np
import pytest

from signalbox.driver.kernels.library import KERNELS, Kernel
from signalbox.tb.models.isa import Launch, Memory, run_block
from signalbox.tb.testbench.jobs import JOBS, Job


def run(job: Job) -> Memory:
    """Run all blocks of `job`, one at a time. Returns the memory."""
    memory = Memory()
    for va, content in job.memory().items():
        memory.map(va, content)
    launch = Launch(memory, **job.launch())
    for z, y, x in itertools.product(*(range(size) for size in reversed(job.grid))):
        block = run_block(launch, (x, y, z))
        assert all(warp.failure is None for warp in block.warps)
    return memory


@pytest.mark.parametrize("job", JOBS, ids=str)
def test_kernels(job: Job) -> None:
    memory = run(job)
    for va, expected in job.results.items():
        words = np.frombuffer(memory.read(va, expected.nbytes), np.uint32)
        assert np.array_equal(words, expected.ravel())


def test_all_are_tried() -> None:
    assert {job.kernel.name for job in JOBS} == {kernel.name for kernel in KERNELS}


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_arguments(kernel: Kernel) -> None:
    values = dict.fromkeys(kernel.parameters, 3)
    assert len(kernel.arguments(**values)) % 16 == 0
    with pytest.raises(ValueError, match=f"{kernel.name} takes"):
        kernel.arguments()
    name = next(iter(values))
    with pytest.raises(ValueError, match=f"{name} = {1 << 64} does not fit"):
        kernel.arguments(**{**values, name: 1 << 64})


def test_kinds_of_arguments() -> None:
    kernel = Kernel("two", "exit", {"A": 4, "B": 8})
    given = kernel.arguments(A=np.int64(-1), B=np.uint64(1 << 63))  # pyright: ignore[reportArgumentType]
    assert given == kernel.arguments(A=-1, B=1 << 63)
    for value in (1.5, "1", None):
        with pytest.raises(ValueError, match=f"two: A = {value!r} is not a whole number"):
            kernel.arguments(A=value, B=0)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"parameters": {"A": 0}}, "odd: A has 0 bytes: a parameter has 4 or 8"),
        ({"parameters": {"A": 4, "B": "8"}}, "odd: B has '8' bytes"),
        ({"local": 8}, "odd: local = 8 is not a multiple of 16"),
        ({"shared_per_thread": -4}, "odd: shared_per_thread = -4 < 0"),
    ],
)
def test_sizes_of_kernels(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Kernel("odd", "exit", **{"parameters": {}, **options})


def test_kernel_of_nothing() -> None:
    """A kernel needs neither registers nor parameters."""
    kernel = Kernel("nothing", "exit", {})
    assert kernel.registers == 1 and not any(kernel.arguments())


def test_lines() -> None:
    """An instruction of a kernel is traced to its source line."""
    kernel = Kernel("two", "start:  # nothing\n\n  mov   r1, N # more\nagain: bra  again", {"N": 4})
    assert kernel.line(0) == "line 3 of 'two': mov r1, N"
    assert kernel.line(8) == "line 4 of 'two': bra again"
    for offset in (-8, 4, 16):
        assert kernel.line(offset) == f"byte {offset} of 'two'"
