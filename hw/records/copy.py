"""Copy commands and their completions."""

from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import VA_BITS, Config
from signalbox.hw.methods import LaunchSemaphore

__all__ = ["CopyError", "CopyPort", "copy_command", "copy_done", "remap_components"]


class CopyError(enum.Enum, shape=3):
    """Failure of a copy. Bytes of bursts before the failure may have been written."""

    NONE = 0
    READ_BUS = 1
    READ_FAULT = 2
    WRITE_BUS = 3
    WRITE_FAULT = 4
    SEMAPHORE = 5
    """The copy is complete, but its semaphore release was refused."""


def remap_components() -> data.StructLayout:
    """Fields of SET_REMAP_COMPONENTS, without its reserved bits (`hw.methods.RemapComponents`).

    `dst`: a `RemapSource` per destination component; `size`, `sources`, `targets`: bytes per
    component, source and destination components of an element, each minus 1.
    """
    return data.StructLayout({
        "dst": data.ArrayLayout(3, 4),
        "size": 2,
        "sources": 2,
        "targets": 2,
    })


def copy_command(config: Config) -> data.StructLayout:
    """One checked LAUNCH_DMA (spec 4).

    `line_length` bytes per line; `line_count` lines, `pitch_in`/`pitch_out` bytes apart (unsigned,
    addresses wrap at 49 bits); `transfer` 0 copies nothing. With `remap`, `line_length` counts
    elements of `components` (HOST-16): `targets` × `size` bytes each at the destination, `sources`
    × `size` at the source. Once the last byte is visible, the semaphore, if any, is released:
    ONE_WORD writes the payload only, FOUR_WORDS adds a timestamp; `reduction_enable` turns the
    release into a reduction. `subchannel` and `data` identify the method and return with
    `copy_done`.
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
        "remap": 1,
        "components": remap_components(),
        "const_a": 32,
        "const_b": 32,
        "semaphore": LaunchSemaphore,
        "semaphore_va": VA_BITS,
        "payload": 64,
        "wide": 1,
        "reduction_enable": 1,
        "reduction": 4,
        "reduction_unsigned": 1,
    })


def copy_done(config: Config) -> data.StructLayout:
    """Completion of one copy; an engine completes copies in order. `va` is the first byte of the
    failed burst, if any; `subchannel` and `data` are copied from the command."""
    return data.StructLayout({
        "channel": config.channel_bits,
        "subchannel": 3,
        "data": 32,
        "error": CopyError,
        "va": VA_BITS,
    })


class CopyPort(wiring.Signature):
    """A copy engine, seen from the host.

    Members
    -------
    command : out, stream of `copy_command`; ready while the engine can start reading at once.
    done : in, stream of `copy_done`.
    idle : in, all accepted copies are complete.
    stop : out, while 1, copies end as soon as their outstanding bursts are complete; the rest of
        their bytes is not copied, and no semaphore is released.
    """

    def __init__(self, config: Config) -> None:
        super().__init__({
            "command": Out(stream.Signature(copy_command(config))),
            "done": In(stream.Signature(copy_done(config))),
            "idle": In(1),
            "stop": Out(1),
        })
