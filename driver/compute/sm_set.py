"""SMs that take the blocks of a kernel (SM_DISABLE_MASK of its task record).

disabled_sms(Config(sms=4, sm_masks=True), {0, 1})      0b1100
"""

from collections.abc import Iterable
from operator import index
from typing import Protocol

__all__ = ["MaskedSms", "SmSetError", "disabled_sms", "sm_numbers"]


class MaskedSms(Protocol):
    """Numbers of SMs; `hw.config.Config` and `driver.platform.info.DeviceInfo` have them."""

    @property
    def sms(self) -> int:
        """Number of SMs."""
        ...

    @property
    def masked_sms(self) -> int:
        """Number of SMs that a task can disable: the first ones."""
        ...


class SmSetError(ValueError):
    """The blocks of a kernel cannot be restricted to these SMs."""


def sm_numbers(wanted: Iterable[int]) -> frozenset[int]:
    """The numbers as a set. Raises `SmSetError` if it is no collection of numbers."""
    try:
        return frozenset(index(one) for one in wanted)
    except TypeError:
        raise SmSetError(f"{wanted!r}: numbers of SMs are needed, such as [0, 1]") from None


def disabled_sms(machine: MaskedSms, wanted: Iterable[int] | None) -> int:
    """Mask of the SMs that are not `wanted`, one bit each; None stands for all SMs.

    Raises `SmSetError` as `sm_numbers`; if `wanted` is empty, or names an SM that does not exist;
    if the machine cannot disable the others.
    """
    every = range(machine.sms)
    chosen = {*every} if wanted is None else sm_numbers(wanted)
    if not chosen:
        raise SmSetError("none is named: a kernel needs an SM")
    if strange := [one for one in chosen if one not in every]:
        raise SmSetError(f"SM {strange[0]}: the machine has SMs 0 … {machine.sms - 1}")
    others = [sm for sm in every if sm not in chosen]
    if others and not machine.masked_sms:
        raise SmSetError("the machine cannot disable SMs for a kernel (Config.sm_masks)")
    if others and others[-1] >= machine.masked_sms:
        raise SmSetError(
            f"SM {others[-1]} cannot be disabled: task records have bits for the first "
            f"{machine.masked_sms} SMs"
        )
    return sum(1 << sm for sm in others)
