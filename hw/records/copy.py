"""Copies: commands to copy engines, and how each has ended."""

from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import VA_BITS, Config
from signalbox.hw.methods import LaunchSemaphore

__all__ = ["CopyError", "CopyPort", "copy_command", "copy_done"]


class CopyError(enum.Enum, shape=3):
    """How a copy failed. Bytes of bursts before the failure may have been written."""

    NONE = 0
    READ_BUS = 1
    READ_FAULT = 2
    WRITE_BUS = 3
    WRITE_FAULT = 4
    SEMAPHORE = 5
    """The copy is complete, its semaphore release was refused."""


def copy_command(config: Config) -> data.StructLayout:
    """One checked LAUNCH_DMA (section 4).

    `line_length` bytes per line; `line_count` lines, `pitch_in`/`pitch_out` bytes apart (unsigned,
    addresses wrap at 49 bits); `transfer` 0 copies nothing. After the last byte is visible the
    semaphore, if any, is released: ONE_WORD payload only, FOUR_WORDS with timestamp;
    `reduction_enable` makes it a reduction. `subchannel` and `data` are the method's, and come back
    with `copy_done`.
    """
    return data.StructLayout({
        "channel": config.channel_bits,
        "subchannel": 3,
        "data": 32,
        "asid": config.asid_bits,
        "transfer": 1,
        "src": VA_BITS,
        "dst": VA_BITS,
        "src_physical": 1,
        "dst_physical": 1,
        "pitch_in": 32,
        "pitch_out": 32,
        "line_length": 32,
        "line_count": 32,
        "semaphore": LaunchSemaphore,
        "semaphore_va": VA_BITS,
        "payload": 64,
        "wide": 1,
        "reduction_enable": 1,
        "reduction": 4,
        "reduction_unsigned": 1,
    })


def copy_done(config: Config) -> data.StructLayout:
    """End of one copy, in the order in which an engine accepted them; `va` is the first byte of
    the burst that failed, when one did; `subchannel` and `data` are those of its command."""
    return data.StructLayout({
        "channel": config.channel_bits,
        "subchannel": 3,
        "data": 32,
        "error": CopyError,
        "va": VA_BITS,
    })


class CopyPort(wiring.Signature):
    """A copy engine, seen from the host. `command` is ready while the engine can begin reading at
    once; `idle` is 1 while nothing that it accepted is unfinished. While `stop` is 1 copies end as
    soon as what was begun of them allows, with a part of their bytes and without release."""

    def __init__(self, config: Config) -> None:
        super().__init__({
            "command": Out(stream.Signature(copy_command(config))),
            "done": In(stream.Signature(copy_done(config))),
            "idle": In(1),
            "stop": Out(1),
        })
