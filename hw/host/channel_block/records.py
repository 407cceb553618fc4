"""Records of errors, between the parts of the channel block."""

from amaranth.lib import data

from signalbox.hw.config import VA_BITS, Config
from signalbox.hw.errors import Cause
from signalbox.hw.qmd import SkedCheck
from signalbox.hw.records.channel import channel_event

__all__ = ["error_contents", "error_record", "error_row"]

error_row = data.StructLayout({"valid": 1, "second": 1, "pending": 1, "full": 1})
"""Place of an error record: the first or the `second` row of its channel. `valid`: it gets a row.
`pending`: the channel already has a record; `full`: it already has two."""

error_contents = data.StructLayout({
    "why": data.StructLayout({
        "cause": Cause,
        "check": SkedCheck,
        "va": VA_BITS,
        "asynchronous": 1,
    }),
    "head": data.StructLayout({"address": 12, "subchannel": 3, "valid": 1}),
    "data": 32,
})
"""Contents of an error record, one member per RAM.

`why`: cause, check of a task's record, and address; `asynchronous`: a copy or task has failed.
`head`: the offending method; `valid`: it is held. `data`: its data.
"""


def error_record(config: Config) -> data.StructLayout:
    """Strobe: an error of `channel` goes to `row`."""
    return channel_event(config, row=error_row, contents=error_contents)
