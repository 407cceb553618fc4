"""Software interface of the runlist, and the words of an active list."""

from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import PA_BITS, Config
from signalbox.hw.runlists import GroupEntry, RunlistError

__all__ = [
    "PRETEST_BITS",
    "RunlistControl",
    "group_word",
    "runlist_acquire",
    "runlist_state",
    "runlist_submit",
]

PRETEST_BITS = 8 + 15
"""Width of the longest RUNLIST_ACQ_PRETEST, in cycles."""

_HEADER = data.Layout.cast(GroupEntry)

runlist_submit = data.StructLayout({
    "valid": 1,
    "page": PA_BITS - 12,
    "length": 16,
    "offset": 16,
})
"""Strobe: a list of `length` entries at physical address `page` << 12; its turns begin at entry
`offset`."""

runlist_refused = data.StructLayout({"valid": 1, "error": RunlistError, "entry": 16})
"""Strobe: the submitted list is refused. `entry`: index of the faulty entry; with OVERFLOW, length
of the list."""

runlist_state = data.StructLayout({
    "reading": 1,
    "pending": 1,
    "running": 1,
    "tsgid": 12,
    "groups": 16,
})
"""`reading`: a submitted list is being read; `pending`: it is being read, or is not active yet.
`running`: TSG `tsgid` has the turn. `groups`: TSGs of the active list."""

runlist_acquire = data.StructLayout({"valid": 1, "idle": 1})
"""Two strobes, each at the beginning of a state. `valid`: all TSGs with work wait for failed
acquires with ACQUIRE_SWITCH_TSG (spec 2.3). `idle`: that, and all engines are idle; it may come
later than `valid`."""


def group_word(config: Config) -> data.StructLayout:
    """A TSG in its place of the list."""
    return data.StructLayout({
        "channels": config.channels,
        "tsgid": _HEADER["tsgid"].width,
        "timeout": _HEADER["timeout"].width,
        "scale": _HEADER["scale"].width,
    })


class RunlistControl(wiring.Signature):
    """Register interface of the runlist, seen from the registers.

    Members
    -------
    enable : out, the list gives the channels their turns; 0: all may be served, each for its own
        slice.
    unit : out, 16 bits: cycles that stand for 1,024 ns; 0 counts as 1.
    pretest : out, `PRETEST_BITS` bits: cycles without work before failed acquires are repeated.
    submit : out, strobe: a list is submitted, see `runlist_submit`.
    refused : in, strobe: a list is refused, see `runlist_refused`.
    state : in, see `runlist_state`.
    acquire : in, see `runlist_acquire`.
    """

    def __init__(self) -> None:
        super().__init__({
            "enable": Out(1),
            "unit": Out(16),
            "pretest": Out(PRETEST_BITS),
            "submit": Out(runlist_submit),
            "refused": In(runlist_refused),
            "state": In(runlist_state),
            "acquire": In(runlist_acquire),
        })
