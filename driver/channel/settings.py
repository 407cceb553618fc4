"""Channel settings: time slice, ring, pushbuffer memory, privileges, acquire timeout, priority."""

from dataclasses import dataclass
from typing import TypedDict

from signalbox.driver.platform.whole import make_whole
from signalbox.hw.config import PRIORITIES
from signalbox.hw.methods import AcquireTimer, pack

__all__ = ["ChannelOptions", "ChannelSettings"]

_LONGEST_TIMEOUT_NS = (0xFFFF << 15) * 1024
"""Longest timeout, in ns: the largest mantissa and exponent of the ACQUIRE register, which counts
units of 1024 ns."""


@dataclass(frozen=True)
class ChannelSettings:
    """Settings of a channel. Raises `ValueError` for values out of range, `TypeError` for numbers
    that are not whole.

    Members
    -------
    slice_cycles : time slice, 1 … 2^31 cycles.
    ring_entries : ring size, a power of two in 2 … 2^20; one entry is always empty.
    pushbuffer_bytes : memory for segments, a multiple of 16 from 64 up; one segment takes at most
        a quarter of it.
    privileged : whether privileged methods are allowed.
    acquire_timeout_ns : timeout of acquires in ns, rounded up; 0 for none.
    early_waits : whether waits for events of other streams are executed without a free copy engine.
        Then only the acquires of a priority policy need one (COPY-13); otherwise every acquire
        before a copy does.
    priority : priority of its compute methods, 0 … 63, 63 being the most urgent. Launches of
        several channels go to the machine in this order.
    """

    slice_cycles: int = 2000
    ring_entries: int = 1024
    pushbuffer_bytes: int = 1 << 16
    privileged: bool = False
    acquire_timeout_ns: int = 0
    early_waits: bool = True
    priority: int = 0

    def __post_init__(self) -> None:
        make_whole(self)
        if not 1 <= self.slice_cycles <= 1 << 31:
            raise ValueError(f"slice_cycles = {self.slice_cycles} is outside 1 … 2^31")
        if not 0 <= self.priority < PRIORITIES:
            raise ValueError(f"priority = {self.priority} is outside 0 … {PRIORITIES - 1}")
        entries = self.ring_entries
        if not 2 <= entries <= 1 << 20 or entries & (entries - 1):
            raise ValueError(f"ring_entries = {entries} is not a power of two in 2 … 2^20")
        if not 0 <= self.acquire_timeout_ns <= _LONGEST_TIMEOUT_NS:
            raise ValueError(
                f"acquire_timeout_ns = {self.acquire_timeout_ns} is outside "
                f"0 … {_LONGEST_TIMEOUT_NS}"
            )
        if self.pushbuffer_bytes < 64 or self.pushbuffer_bytes % 16:
            raise ValueError(
                f"pushbuffer_bytes = {self.pushbuffer_bytes} is not a multiple of 16, at least 64"
            )

    @property
    def largest_segment(self) -> int:
        """Maximum number of dwords of one submission."""
        return self.pushbuffer_bytes // 4 // 4

    @property
    def acquire(self) -> int:
        """Value of the ACQUIRE register: the public retry period (2 << 2 cycles), and the
        timeout."""
        units = -(-self.acquire_timeout_ns // 1024)
        exponent = max(0, units.bit_length() - 16)
        mantissa = -(-units >> exponent)
        if mantissa == 1 << 16:
            exponent, mantissa = exponent + 1, 1 << 15
        return pack(
            AcquireTimer,
            retry_man=2,
            retry_exp=2,
            timeout_man=mantissa,
            timeout_exp=exponent,
            timeout_enable=units > 0,
        )


class ChannelOptions(TypedDict, total=False):
    """Fields of `ChannelSettings` that replace those of the device, for one channel."""

    slice_cycles: int
    ring_entries: int
    pushbuffer_bytes: int
    privileged: bool
    acquire_timeout_ns: int
    early_waits: bool
    priority: int
