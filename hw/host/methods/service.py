"""Service of a channel: from the method pipeline to the execution of methods, and back."""

from amaranth.lib import wiring
from amaranth.lib.wiring import Out

from signalbox.hw.config import Config
from signalbox.hw.errors import Cause
from signalbox.hw.host.records import Step, method_refused, method_state, object_bound
from signalbox.hw.records.channel import channel_event
from signalbox.hw.registers import Wait

__all__ = ["MethodReports", "Outcome", "Progress", "Service"]


class Outcome(wiring.Signature):
    """Outcome of a method in this cycle, combinational. At most one of `done`, `park`, `busy` and
    `refuse` is 1; if none is, the channel is about to be let go.

    Members
    -------
    done : out, the method is complete.
    park : out, the method is not complete, and waits for `wait`.
    busy : out, the method needs more cycles.
    refuse : out, the method is refused for `cause`.
    disarm : out, the channel's timer is stopped.
    wait : out, a `Wait`; valid with `park`.
    cause : out, a `Cause`; valid with `refuse`.
    """

    def __init__(self) -> None:
        super().__init__({
            "done": Out(1),
            "park": Out(1),
            "busy": Out(1),
            "refuse": Out(1),
            "disarm": Out(1),
            "wait": Out(Wait),
            "cause": Out(Cause),
        })


class Service(wiring.Signature):
    """Service of a channel by the method pipeline.

    Members
    -------
    channel : out, `channel_bits` bits: number of the served channel.
    step : out, its held method, decoded.
    run : out, execute `step` in this cycle.
    select : out, `channel_bits` bits: number of the served channel, or of the one that would be
        served next.
    load : out, strobe: the channel's state becomes `loaded`.
    loaded : out, a `method_state`, read from the RAM.
    reset : out, strobe: the channel's state is cleared.
    replace : out, strobe: the held method is replaced.
    again : out, with `replace`: by a method of the same subchannel and address, as when a refused
        method is repeated.
    early : out, `loaded` is the state of the served channel, and the channel will run.
    ahead : out, no channel is being served.
    leave : out, the channel must be let go. No acquire may be decided, unless its operation was
        requested before.
    quit : out, the channel must be let go at once. No copy may start, either.
    """

    def __init__(self, config: Config) -> None:
        super().__init__({
            "channel": Out(config.channel_bits),
            "step": Out(Step),
            "run": Out(1),
            "select": Out(config.channel_bits),
            "load": Out(1),
            "loaded": Out(method_state()),
            "reset": Out(1),
            "replace": Out(1),
            "again": Out(1),
            "early": Out(1),
            "ahead": Out(1),
            "leave": Out(1),
            "quit": Out(1),
        })


class Progress(wiring.Signature):
    """Answer to `Service`, combinational from registers.

    Members
    -------
    state : out, a `method_state`, registered: the channel's, set by its methods.
    done, park, busy, refuse, wait : out, see `Outcome`.
    sets : out, with `done`, early in the cycle: the method only sets state.
    keep : out, with `park`: the channel keeps its reserved engine.
    yields : out, strobe: the method is YIELD; the channel must be let go (spec 2.6).
    asked : out, registered: the channel has requested an operation of the semaphore unit, and must
        accept the response.
    """

    def __init__(self) -> None:
        super().__init__({
            "state": Out(method_state()),
            "done": Out(1),
            "park": Out(1),
            "busy": Out(1),
            "refuse": Out(1),
            "wait": Out(Wait),
            "sets": Out(1),
            "keep": Out(1),
            "yields": Out(1),
            "asked": Out(1),
        })


class MethodReports(wiring.Signature):
    """Methods that concern the channel registers, seen from the execution of methods.

    Members
    -------
    halt : out, strobe: a `method_refused`; the channel halts, from the next cycle on.
    resume : out, strobe: CLEAR_FAULTED for channel `target`, 12 bits.
    bound : out, strobe: SET_OBJECT, an `object_bound`.
    acquire : out, strobe: an acquire of `channel` is decided; `passed`: it holds.
    """

    def __init__(self, config: Config) -> None:
        super().__init__({
            "halt": Out(method_refused(config)),
            "resume": Out(channel_event(config, target=12)),
            "bound": Out(object_bound(config)),
            "acquire": Out(channel_event(config, passed=1)),
        })
