"""Halt causes of refused semaphore operations (HOST-4)."""

from signalbox.hw.errors import Cause
from signalbox.hw.records.semaphore import SemaphoreError

__all__ = ["CAUSE_OF"]

CAUSE_OF = {
    SemaphoreError.UNDERFLOW: Cause.SEM_UNDERFLOW,
    SemaphoreError.OVERFLOW: Cause.SEM_OVERFLOW,
    SemaphoreError.UNKNOWN: Cause.SEM_UNKNOWN,
    SemaphoreError.ALIGNMENT: Cause.SEM_ALIGNMENT,
    SemaphoreError.UNSUPPORTED: Cause.SEM_UNSUPPORTED,
    SemaphoreError.BUS: Cause.SEM_BUS,
    SemaphoreError.FAULT: Cause.SEM_FAULT,
}
