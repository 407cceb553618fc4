"""Tasks that are launched on the compute engine."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from signalbox.hw.errors import Refusal
from signalbox.tb.models.tasks import record_of
from signalbox.tb.testbench.masks import mask

__all__ = ["Job", "Launch", "only_on"]

_LOWER = 672
"""First bit of SM_DISABLE_MASK_LOWER."""


def only_on(sms: Iterable[int]) -> int:
    """Bits of a record for a task of these SMs only; they also disable SMs that do not exist."""
    return (~mask(sms) & 0xFFFF_FFFF) << _LOWER


class Job(Protocol):
    """Work of a task: memory contents before and after, and its record."""

    @property
    def results(self) -> dict[int, np.ndarray]: ...

    def memory(self) -> dict[int, bytes]: ...

    def launch(self) -> dict[str, Any]: ...


@dataclass(eq=False)
class Launch:
    """A task: a job in an address space, with a priority.

    Members
    -------
    more : additional bits of the record.
    accepted : cycle in which its launch was accepted.
    refused : whether its launch was refused.
    over : cycle in which it was over.
    verdict : its verdict when it was over.
    """

    number: int
    job: Job
    asid: int
    priority: int = 0
    context: int = 0
    more: int = 0
    accepted: int | None = None
    refused: bool = False
    over: int | None = None
    verdict: Refusal | None = None

    @property
    def page(self) -> int:
        return 0x10_0000 + self.number

    @property
    def record(self) -> int:
        return self.more | record_of(self.job.launch(), group=self.priority)
