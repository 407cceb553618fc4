"""Trace port: events recorded by simulations, one group of signals per kind of event.

Groups with `valid` are strobes of one cycle, except `served` and `floor`, which are levels.
"""

from amaranth.lib import data
from amaranth.lib.wiring import Member, Out, Signature

from signalbox.hw.config import Config
from signalbox.hw.errors import Cause, Refusal
from signalbox.hw.mmu.memory_system import fault_event
from signalbox.hw.mmu.records import Scope
from signalbox.hw.placement.controller import Step

__all__ = ["TracePort"]


class TracePort(Signature):
    """Events of one Signalbox, from the machine's side; member `trace` of a top level with
    `config.trace`.

    Members
    -------
    served : out, level: `channel` has the method pipeline.
    floor : out, level: `channel` has the floor.
    doorbell : out, strobe: `channel` was rung.
    method : out, strobe: `channel` executed a method: `address` in dwords, `data`.
    acquire : out, strobe: an acquire of `channel` was decided.
    semaphore : out, strobe: on-chip semaphore `index` was written and now holds `value`.
    start : out, strobe per copy engine: a copy of `channel` was accepted.
    done : out, strobe per copy engine: a copy of `channel` has ended; `failed`: without success.
    error : out, strobe: `channel` was halted by `cause`.
    lookup : out, strobe per memory client: look-up of an address of `asid` in the first-level TLB.
    walk : out, strobe: a page walk for `asid` begins.
    walked : out, strobe: a page walk for `asid` has ended.
    invalidation : out, strobe: an invalidation of `scope` (`hw.mmu.records.Scope`), also by a bind,
        takes effect in the next cycle.
    fault : out, strobe: the report of a fault (`hw.mmu.bursts.fault_report`) was recorded.

    With a compute engine:

    launched : out, strobe: the task unit starts a launch of the record at `page` << 8.
    opened : out, strobe: the task gets kernel row `row`.
    over : out, strobe: the task is over.
    placed : out, strobe: a block of `row` is sent to an SM.
    warp : out, strobe per SM: a warp starts.
    exit : out, strobe per SM: a warp has ended.

    With preemption:

    stop : out, strobe per SM: the warps of the block in `slot` are being saved.
    stopped : out, strobe per SM: the stopped block at (x, y, z) of `row` has left. `restores`: its
        state is saved; otherwise it had not begun.

    With nested launches:

    asked : out, strobe per SM: the block in `slot`, of `row`, launches the record at `page` << 8.
    answered : out, strobe per SM: the launch by the block in `slot` was accepted (Refusal.NONE), or
        refused.
    """

    def __init__(self, config: Config) -> None:
        channel = {"valid": 1, "channel": config.channel_bits}
        space = {"valid": 1, "asid": config.asid_bits}
        compute = self._compute(config) if config.compute else {}
        super().__init__({
            "served": Out(data.StructLayout(channel)),
            "floor": Out(data.StructLayout(channel)),
            "doorbell": Out(data.StructLayout(channel)),
            "method": Out(
                data.StructLayout({**channel, "subchannel": 3, "address": 12, "data": 32})
            ),
            "acquire": Out(data.StructLayout({**channel, "passed": 1})),
            "semaphore": Out(
                data.StructLayout({"valid": 1, "index": config.semaphore_bits, "value": 64})
            ),
            "start": Out(data.StructLayout(channel)).array(config.copy_engines),
            "done": Out(data.StructLayout({**channel, "failed": 1})).array(config.copy_engines),
            "error": Out(data.StructLayout({**channel, "cause": Cause})),
            "lookup": Out(data.StructLayout({**space, "hit": 1})).array(config.memory_clients),
            "walk": Out(data.StructLayout(space)),
            "walked": Out(data.StructLayout(space)),
            "invalidation": Out(data.StructLayout({**space, "scope": Scope})),
            "fault": Out(fault_event(config)),
            **compute,
        })

    @staticmethod
    def _compute(config: Config) -> dict[str, Member]:
        channel = {"valid": 1, "channel": config.channel_bits}
        row = {"valid": 1, "row": config.row_bits}
        warp = {"valid": 1, "warp": config.warp_bits}
        place = {"sm": config.sm_bits, "step": Step, "x": 32, "y": 16, "z": 16}
        begun = {**warp, "row": config.row_bits, "slot": config.block_bits, "index": 6}
        layouts = {
            "launched": {**channel, "asid": config.asid_bits, "page": 32},
            "opened": {**row, "asid": config.asid_bits, "page": 32},
            "over": {**channel, "page": 32, "refusal": Refusal},
            "placed": {**row, **place},
        }
        row_and_place = {**row, "restores": 1, "x": 32, "y": 16, "z": 16}
        stops = {
            "stop": {"valid": 1, "slot": config.block_bits},
            "stopped": row_and_place,
        }
        preemption = stops if config.preemption else {}
        slot = {"valid": 1, "slot": config.block_bits}
        launches = {
            "asked": {**slot, "row": config.row_bits, "page": 32},
            "answered": {**slot, "refusal": Refusal},
        }
        nested = launches if config.nested else {}
        return {
            **{name: Out(data.StructLayout(fields)) for name, fields in layouts.items()},
            **{
                name: Out(data.StructLayout(fields)).array(config.sms)
                for name, fields in (preemption | nested).items()
            },
            "warp": Out(data.StructLayout(begun)).array(config.sms),
            "exit": Out(data.StructLayout(warp)).array(config.sms),
        }
