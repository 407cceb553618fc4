"""Ports of the host from one source to several units. Ports between two units are in the file of
the unit that serves them (`hw/README.md`)."""

from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.host.oldest_first import STAMP_BITS
from signalbox.hw.host.records import INDEX_BITS, Method, head_beat
from signalbox.hw.records.channel import channel_event

__all__ = [
    "Activity",
    "ArrivalOrder",
    "ChannelStart",
    "ChannelState",
    "EntryEvents",
    "HeadPort",
    "MethodEvents",
    "RingIndexPort",
    "Served",
    "Turns",
    "UserdWrites",
]


class ChannelStart(wiring.Signature):
    """Starts of channels, seen from the fetch unit.

    Members
    -------
    cleared : out, strobe: `channel` starts with an empty ring; it has no outstanding operation.
    """

    def __init__(self, config: Config) -> None:
        super().__init__({"cleared": Out(channel_event(config))})


class ChannelState(wiring.Signature):
    """State of every channel, derived from several units; per channel, combinational. Seen from
    `ChannelStates`.

    Members
    -------
    alive : out, enabled and not halted.
    occupied : out, has fetched beats.
    drained : out, alive, and everything fetched was executed.
    empty : out, nothing is left to execute, not even in its ring.
    busy : out, something is still to be fetched, or the channel is not `drained`.
    working : out, alive and not empty.
    reserving : out, working, has a turn, and all of its acquire group held in the previous cycle:
        its reservation of an engine lasts.
    """

    def __init__(self, config: Config) -> None:
        names = ("alive", "occupied", "drained", "empty", "busy", "working", "reserving")
        super().__init__({name: Out(config.channels) for name in names})


class Activity(wiring.Signature):
    """Outstanding operations of all units, registered; seen from `Outstanding`.

    Members
    -------
    active : out, per channel, a copy, task, read, write-back or semaphore operation is outstanding.
    all_idle : out, no copy, task or change of a semaphore in memory is outstanding.
    """

    def __init__(self, config: Config) -> None:
        super().__init__({"active": Out(config.channels), "all_idle": Out(1)})


class Served(wiring.Signature):
    """The served channel, seen from the method pipeline.

    Members
    -------
    active : out, a channel is served.
    channel : out, `channel_bits` bits: its number; valid while `active`.
    select : out, `channel_bits` bits: number of the served channel while `active`, otherwise of the
        channel that would be served next.
    asked : out, the channel has requested an operation of the semaphore unit.
    """

    def __init__(self, config: Config) -> None:
        # `active`, not `valid`, as `select` has a meaning without it.
        super().__init__({
            "active": Out(1),
            "channel": Out(config.channel_bits),
            "select": Out(config.channel_bits),
            "asked": Out(1),
        })


class HeadPort(wiring.Signature):
    """Fetched beats of the served channel, seen from the method pipeline.

    Members
    -------
    oldest : in, a `head_beat`, registered: the oldest beat of `Served.select`.
    valid : in, there is such a beat.
    take : out, the beat leaves; only with `valid`.
    """

    def __init__(self, config: Config) -> None:
        super().__init__({"oldest": In(head_beat(config)), "valid": In(1), "take": Out(1)})


class EntryEvents(wiring.Signature):
    """Ring entries of the served channel, seen from the method pipeline.

    Members
    -------
    started : out, strobe: an entry of `channel` starts; its GP_GET becomes `get`.
    finished : out, strobe: all of `channel`'s entry up to GP_GET `get` was executed. Not in two
        successive cycles for the same channel.
    """

    def __init__(self, config: Config) -> None:
        event = channel_event(config, get=INDEX_BITS)
        super().__init__({"started": Out(event), "finished": Out(event)})


class MethodEvents(wiring.Signature):
    """Methods of the served channel, seen from the method pipeline.

    Members
    -------
    executed : out, strobe: `method` of `channel` was executed.
    cleared : out, strobe: `channel` starts with nothing set; never together with `executed`.
    released : out, strobe: `channel` is let go because it is blocked; its reservation ends.
    """

    def __init__(self, config: Config) -> None:
        super().__init__({
            "executed": Out(channel_event(config, method=Method)),
            "cleared": Out(channel_event(config)),
            "released": Out(channel_event(config)),
        })


class ArrivalOrder(wiring.Signature):
    """Order in which head commands were received, seen from `Arrivals`.

    Members
    -------
    stamps : out, per channel, `STAMP_BITS` bits: stamp of the doorbell that announced its head
        command.
    """

    def __init__(self, config: Config) -> None:
        super().__init__({"stamps": Out(data.ArrayLayout(STAMP_BITS, config.channels))})


class Turns(wiring.Signature):
    """Turns of channels, seen from the runlist.

    Members
    -------
    eligible : out, per channel, may be served; without runlists always. A channel that is being
        served and is not eligible must let go.
    """

    def __init__(self, config: Config) -> None:
        super().__init__({"eligible": Out(config.channels, init=(1 << config.channels) - 1)})


class UserdWrites(wiring.Signature):
    """Writes to USERD, seen from the write-back.

    Members
    -------
    writing : out, per channel, a write is in progress.
    referenced : out, strobe: REF of `channel` is `value` in memory.
    failed : out, strobe: a write of GP_GET of `channel` has failed.
    """

    def __init__(self, config: Config) -> None:
        super().__init__({
            "writing": Out(config.channels),
            "referenced": Out(channel_event(config, value=32)),
            "failed": Out(channel_event(config)),
        })


class RingIndexPort(wiring.Signature):
    """GP_PUT or GP_GET of a channel, seen from the channel registers.

    Members
    -------
    channel : out, `channel_bits` bits: number of a channel.
    index : in, `INDEX_BITS` bits: its index, one cycle later.
    """

    def __init__(self, config: Config) -> None:
        super().__init__({"channel": Out(config.channel_bits), "index": In(INDEX_BITS)})
