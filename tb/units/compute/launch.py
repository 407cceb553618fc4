"""Tasks that are launched on the compute engine."""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from signalbox.hw.errors import Refusal
from signalbox.tb.models.tasks import record_of

__all__ = ["Job", "Launch"]


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
    refused : its launch was refused.
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
