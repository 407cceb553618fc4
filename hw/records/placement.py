"""Records between the task unit, the global logic controller and the SMs."""

from amaranth.hdl import ShapeLike
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import PA_BITS, VA_BITS, Config
from signalbox.hw.records.nested import block_family

__all__ = [
    "BLOCK_COUNT_BITS",
    "DEPTH_BITS",
    "ENDS_WAITING",
    "INDEX_BITS",
    "LEVEL_BITS",
    "LOCAL_PAGE",
    "LOCAL_UNIT",
    "PRIORITY_BITS",
    "SAVE_PAGE_BITS",
    "STATE_BITS",
    "USES_LOCAL",
    "GlobalPort",
    "KernelWord",
    "Policy",
    "SmLink",
    "block_claim",
    "block_form",
    "block_lack",
    "block_record",
    "block_stop",
    "block_victim",
    "buffer_word",
    "constant_words",
    "coordinates",
    "disabled_sms",
    "ended_block",
    "kernel_needs",
    "kernel_open",
    "kernel_word",
    "local_area",
    "local_word",
    "queue_span",
    "returned_block",
    "row_blocks",
    "row_left",
    "saved_list",
    "sm_report",
    "space_word",
    "stopped_block",
    "task_level",
    "task_pointer",
    "task_saved",
    "wanted",
]

BLOCK_COUNT_BITS = 32
"""Width of a block count: a grid has fewer than 2^32 blocks."""

ENDS_WAITING = 8
"""Most block ends of an SM that may still be queued after `freed` reported them."""

INDEX_BITS = 6
"""Width of the number of a warp in its block."""

PRIORITY_BITS = 7
"""Width of a task's priority: the device priority, or a level above for some descendants of kernels
with a high one (`Config.levels`)."""

LEVEL_BITS = 7
"""Width of an optional priority: 0 means none, otherwise the priority + 1."""

SAVE_PAGE_BITS = PA_BITS - 12
"""Width of the number of a 4 KiB page at which a save place or area begins."""

STATE_BITS = 11
"""Width of the size of a block's state, in units of registers."""

DEPTH_BITS = 5
"""Width of a nesting depth; 1 is that of a kernel of the host."""

task_pointer = data.StructLayout({
    "page": 32,
    "asid": 10,
    "channel": 6,
    "depth": DEPTH_BITS,
    "resumed": 1,
    "epoch": 1,
    "is_queue": 1,
    "queue": 6,
    "dropped": 1,
    "saved": 1,
})
"""A task without a slot, 8 bytes in the lists: virtual address `page` << 8 of its QMD in its
address space, the launching channel, nesting depth. `resumed`: it has run before and resumes.
`epoch`: tag of the host for its waits, inherited by launched tasks. `is_queue`: it is open queue
number `queue`. `dropped`: it was killed in its list and is already reported. `saved`: some of its
blocks are saved, see `task_saved`."""


block_form = data.StructLayout({"barrier": 1, "warps": 7, "registers": 8, "shared": 8})
"""Needs that determine the form of a block's saved state: as in `kernel_needs`, but `registers` per
thread."""


def task_saved(config: Config) -> data.StructLayout:
    """Saved blocks of a task without a slot: second word of its list entry. `save_place`: place of
    the first saved block; the others are linked to it. `placed`: the task has no undistributed
    blocks but these. `form`: form of its blocks when they were saved; the QMD may have changed
    since."""
    return data.StructLayout({
        "save_place": config.place_bits,
        "placed": 1,
        "form": block_form,
    })


queue_span = data.StructLayout({"start": 24, "count": 8, "behind": 1})
"""Entries appended to a queue: `count` entries from number `start`, modulo 2^24; a count of 0
closes the queue. `behind`: append at the tail, ignore `start`."""


def task_level(config: Config) -> data.StructLayout:
    """Identifies one task list."""
    return data.StructLayout({"level": config.level_bits, "context": config.context_bits})


coordinates = data.StructLayout({"x": 32, "y": 16, "z": 16})
"""A block's position in its grid, or the size of a grid (CTA_RASTER_WIDTH, HEIGHT, DEPTH)."""

kernel_needs = data.StructLayout({
    "priority": PRIORITY_BITS,
    "barrier": 1,
    "warps": 7,
    "registers": 7,
    "shared": 8,
    "saves": 1,
    "block_registers": 10,
})
"""Resource needs of a kernel's blocks: `warps` per block, 1 … 64; `registers` units per warp, 1 …
64, and `block_registers` units per block; `shared` units per block. `barrier`: its warps
synchronize, so a block must become resident as a whole (PLACE-26). `saves`: blocks of lower
priority may be stopped for it (PREEMPT-5). A row is opened only for blocks that fit an empty SM
(PLACE-27)."""


class Policy(enum.Enum, shape=2):
    """Choice among the qualifying SMs (PLACE-9, ASID-30 … 32)."""

    WIDE = 0
    DEEP = 1
    AFFINITY = 2


def disabled_sms(config: Config) -> dict[str, int]:
    """With `Config.sm_masks`, the member `disabled`: SMs that take no block of the kernel, of the
    first `Config.masked_sms`. At least one other SM takes them."""
    return {"disabled": config.masked_sms} if config.masked_sms else {}


def kernel_open(config: Config) -> data.StructLayout:
    """Opens a row for a task: `blocks` undistributed blocks, the first one at `first`. With
    preemption, those of the list `saved` precede them. There is at least one block. `disabled`: see
    `disabled_sms`."""
    saved = {"saved": saved_list(config)} if config.preemption else {}
    return data.StructLayout({
        **saved,
        **disabled_sms(config),
        "row": config.row_bits,
        "needs": kernel_needs,
        "asid": config.asid_bits,
        "policy": Policy,
        "blocks": BLOCK_COUNT_BITS,
        "first": coordinates,
        "grid": coordinates,
    })


def saved_list(config: Config) -> data.StructLayout:
    """With `some`, a list of saved blocks, the first one at `save_place`."""
    return data.StructLayout({"some": 1, "save_place": config.place_bits})


def row_blocks(config: Config) -> data.StructLayout:
    """Adds `blocks` undistributed blocks to a row."""
    return data.StructLayout({"row": config.row_bits, "blocks": BLOCK_COUNT_BITS})


def row_left(config: Config) -> data.StructLayout:
    """State of a stopped row: the number of undistributed blocks and the position of the first
    one."""
    return data.StructLayout({
        "row": config.row_bits,
        "blocks": BLOCK_COUNT_BITS,
        "next": coordinates,
    })


def ended_block(config: Config) -> data.StructLayout:
    """An ended block: its row, and the low bits of its x position, in a queue task its number. With
    preemption, `restores`: its state was at `save_place`. With nested launches, `reserved`: a save
    place was reserved for it."""
    saved = {"restores": 1, "save_place": config.place_bits} if config.preemption else {}
    nested = {"reserved": 1} if config.nested else {}
    return data.StructLayout({
        "row": config.row_bits,
        "number": config.number_bits,
        **saved,
        **nested,
    })


class GlobalPort(wiring.Signature):
    """The kernel status register table, seen from the task unit. At most one request per row and
    cycle.

    Members
    -------
    open : out, stream of `kernel_open`: open a free row.
    add : out, stream of `row_blocks`: add blocks to an open row.
    stop : out, stream of row numbers: withdraw all undistributed blocks; answered by `stopped`.
    stopped : in, stream of `row_left`: the blocks withdrawn.
    close : out, stream of row numbers: free a drained row.
    drained : in, per row: no block is undistributed or on an SM. 0 from the cycle after `open` or
        `add` is accepted; 1 for a free row.
    ended : in, strobe, an `ended_block`: a block has ended; `drained` reflects it from the next
        cycle on.

    With preemption
    ---------------
    drops : out, with `stop`: withdraw saved blocks, too. Otherwise, they are placed again and end,
        like those on SMs.
    leave : out, per row: its blocks must leave the SMs; only for stopped rows.
    keep : out, stream of row numbers: take back the saved blocks of a drained row; answered by
        `kept`. Otherwise, they are lost when the row closes.
    kept : in, stream of `saved_list`: the list of these blocks.
    discard : out, stream of places: free all places of the kept list that begins at this place.

    With nested launches
    --------------------
    reserve : out, strobe: reserve a save place for a block that is on an SM and has none.
    reserved : in, one cycle after `reserve`: a place is reserved, until the block ends or is saved.
    release : out, strobe: the last reservation is not needed.
    """

    def __init__(self, config: Config) -> None:
        saves = {
            "drops": Out(1),
            "leave": Out(config.rows),
            "keep": Out(stream.Signature(config.row_bits)),
            "kept": In(stream.Signature(saved_list(config))),
            "discard": Out(stream.Signature(config.place_bits)),
        }
        nested = {"reserve": Out(1), "reserved": In(1), "release": Out(1)}
        super().__init__({
            **(saves if config.preemption else {}),
            **(nested if config.nested else {}),
            "open": Out(stream.Signature(kernel_open(config))),
            "add": Out(stream.Signature(row_blocks(config))),
            "stop": Out(stream.Signature(config.row_bits)),
            "stopped": In(stream.Signature(row_left(config))),
            "close": Out(stream.Signature(config.row_bits)),
            "drained": In(config.rows),
            "ended": In(data.StructLayout({"valid": 1, **ended_block(config).members})),
        })


def block_record(config: Config) -> data.StructLayout:
    """One block sent to an SM; the kernel words of its row are sent earlier. With preemption,
    `restores`: it continues from the state saved at `save_place`. With nested launches, its
    `family`."""
    saved = {"restores": 1, "save_place": config.place_bits} if config.preemption else {}
    return data.StructLayout({
        "row": config.row_bits,
        "at": coordinates,
        **saved,
        **_family(config),
    })


def _family(config: Config) -> dict[str, ShapeLike]:
    return {"family": block_family(config)} if config.nested else {}


def sm_report(config: Config) -> data.StructLayout:
    """Resources freed on an SM in this cycle, in units: a warp's registers and hardware warp
    (`warps`); with the last warp of a block also its shared memory and block slot (`block`)."""
    return data.StructLayout({
        "registers": range(config.register_units + 1),
        "warps": 1,
        "shared": range(config.shared_units + 1),
        "block": 1,
    })


wanted = data.StructLayout({
    "registers": kernel_needs.members["block_registers"],
    "warps": kernel_needs.members["warps"],
    "shared": kernel_needs.members["shared"],
})
"""Amounts needed, in units, as wide as in the kernel words, so that nothing is truncated."""


def block_claim(config: Config) -> data.StructLayout:
    """A block that has not begun: its priority + 1, and the needs of its first warp, in units. With
    `Config.sm_masks`, its row."""
    row = {"row": config.row_bits} if config.masked_sms else {}
    return data.StructLayout({"valid": 1, "level": LEVEL_BITS, **wanted.members, **row})


block_victim = data.StructLayout({
    "valid": 1,
    "leaves": 1,
    "restores": 1,
    "reserved": 1,
    "level": LEVEL_BITS,
    "state": STATE_BITS,
})
"""The block to be stopped next. `leaves`: its row must leave. `restores`: it has a save place.
`reserved`: it has none, but one is reserved for it. `level`: its priority + 1. `state`: size of its
state."""

block_lack = data.StructLayout({"valid": 1, "level": LEVEL_BITS})
"""The most urgent block with warps to start lacks resources, and may have others stopped. `level`:
its priority + 1. Valid only while the victim holds resources."""


def block_stop(config: Config) -> data.StructLayout:
    """Strobe: stop the victim, if its row must leave or its level is below `level`. `given`: the
    victim has no save place, and gets `save_place`. `reserved`: the place is only for a victim with
    a reservation; any other is not stopped."""
    return data.StructLayout({
        "valid": 1,
        "level": LEVEL_BITS,
        "given": 1,
        "reserved": 1,
        "save_place": config.place_bits,
    })


def stopped_block(config: Config) -> data.StructLayout:
    """Answer to a stop; with `some`, this block has left its SM. `save_place`: its place, or the
    one that was `given` and not used. `restores`: its state is there. With nested launches, its
    `family`."""
    return data.StructLayout({
        "some": 1,
        "given": 1,
        "restores": 1,
        "row": config.row_bits,
        "at": coordinates,
        "save_place": config.place_bits,
        **_family(config),
    })


def returned_block(config: Config) -> data.StructLayout:
    """Strobe, answer to a recall; with `some`, a block that leaves its SM without having begun."""
    return data.StructLayout({
        "valid": 1,
        "some": 1,
        **block_record(config).members,
        "needs": kernel_needs,
    })


class SmLink(wiring.Signature):
    """An SM, seen from the global logic controller.

    Members
    -------
    block : out, stream of `block_record`: a block for the SM. A slot is free for it, so the SM
        accepts it within a few cycles. A block with a family also waits until the SM has reported
        the families of its blocks that are over.
    freed : in, an `sm_report`: resources freed in this cycle (PLACE-24), otherwise 0. Amounts add
        up in any order.
    ended : in, stream of `ended_block`: a block that has ended, including all its warps and their
        memory accesses. `freed` reports it in the same cycle or earlier; up to ENDS_WAITING ends
        may lag.
    highest : in, `LEVEL_BITS` bits: highest priority + 1 of any block on the SM, 0 without blocks.
    received : in, 6 bits: blocks accepted since reset, modulo 64. `highest` covers all of them, so
        the controller can tell whether it covers all blocks sent.
    waits : in, a `block_claim`: the most urgent block with warps to start, if it has not begun and
        lacks resources.
    claim : out, a `block_claim`: the most urgent block that waits on another SM, if it may come to
        this one. No warp of lower priority starts before it, with the exceptions of rule 7 of
        `hw/sm/README.md`.
    room : in, the first warp of the claimed block can start, and no equally urgent block of the SM
        has warps to start. Reported 2 cycles after the claim changed, or 3 if a warp starts
        meanwhile, and 1 cycle after anything else changed. Holds until the claim ends or such a
        block arrives; pauses for a cycle if another block arrives or is withdrawn.
    recall : out, strobe: the SM must return the claimed block, which it reported in `waits`. Not
        again before `returned`. With `Config.sm_masks`, `claim` names that block in this cycle,
        although it is not valid; in the next cycle it may name a block that this SM keeps room for.
    returned : in, see `returned_block`. Resources of the block are not in `freed`, and it has no
        end.

    With preemption
    ---------------
    leave : out, per row: its blocks must leave.
    victim : in, a `block_victim`: the block to be stopped next.
    lacks : in, a `block_lack`: the most urgent block lacks resources, and the victim holds some.
    spare : out, a block without a save place can be stopped, too: some place is not reserved.
    stop : out, see `block_stop`. Not again before `stopped` is accepted.
    stopped : in, stream of `stopped_block`. Resources of the block are in `freed`; it has no end.
    """

    def __init__(self, config: Config) -> None:
        stops = {
            "leave": Out(config.rows),
            "victim": In(block_victim),
            "lacks": In(block_lack),
            "spare": Out(1),
            "stop": Out(block_stop(config)),
            "stopped": In(stream.Signature(stopped_block(config))),
        }
        super().__init__({
            **(stops if config.preemption else {}),
            "block": Out(stream.Signature(block_record(config))),
            "freed": In(sm_report(config)),
            "ended": In(stream.Signature(ended_block(config))),
            "highest": In(LEVEL_BITS),
            "received": In(6),
            "waits": In(block_claim(config)),
            "claim": Out(block_claim(config)),
            "room": In(1),
            "recall": Out(1),
            "returned": In(returned_block(config)),
        })


LOCAL_UNIT = 16
"""Unit of the size of local memory per thread, in bytes."""

LOCAL_PAGE = 4096
"""Alignment of the area of local memory, and of each SM's part of it."""

local_area = data.StructLayout({"va": VA_BITS, "size": 40, "sms": 9})
"""Memory for the local memory of all threads: virtual address, size of the part of each SM in
bytes, number of SMs that have one."""


USES_LOCAL = 24
"""Bit of the kernel word BLOCK_Z: the kernel has local memory."""


class KernelWord(enum.IntEnum, shape=5):
    """Kernel words kept per row by the SMs, 32 bits each; fields listed from the lowest bit. The
    task unit sends them before it opens the row, in this order. Words of local memory are sent only
    for a kernel that has it, words of constant buffers 1 … 7 only for valid buffers."""

    NEEDS = 0
    """priority 7, barrier 1, warps 7, registers 7, shared 8, saves 1: `kernel_needs` without the
    last member."""
    SPACE = 1
    """block_registers 10, registers per thread 9, ASID 10."""
    PROGRAM_LOW = 2
    """Virtual address of the first instruction, 49 bits in two words."""
    PROGRAM_HIGH = 3
    CONSTANTS_LOW = 4
    """Constant buffer 0 (the arguments): lowest 32 bits of its virtual address."""
    CONSTANTS_HIGH = 5
    """`buffer_word`: the other 17 bits, 2 unused, size in 16-byte units 13, 0 for an invalid
    buffer."""
    GRID_WIDTH = 6
    GRID_REST = 7
    """height 16, depth 16."""
    BLOCK_XY = 8
    """threads of a block in x 16, in y 16."""
    BLOCK_Z = 9
    """threads of a block in z 16, valid constant buffers 8, one bit each, local memory 1
    (`USES_LOCAL`)."""
    SAVE_AREA = 10
    """With preemption: number of the first 4 KiB page of the context's save area."""
    LOCAL_LOW = 11
    """Area of the local memory: lowest 32 bits of its virtual address."""
    LOCAL_HIGH = 12
    """`local_word`: the other 17 bits, size per thread in 16-byte units 15."""
    LOCAL_STRIDE = 13
    """Size of each SM's part of the area, in pages of 4 KiB 28."""
    CONSTANTS_1_LOW = 18
    """Constant buffer n at 16 + 2 n, as for buffer 0."""
    CONSTANTS_1_HIGH = 19
    CONSTANTS_2_LOW = 20
    CONSTANTS_2_HIGH = 21
    CONSTANTS_3_LOW = 22
    CONSTANTS_3_HIGH = 23
    CONSTANTS_4_LOW = 24
    CONSTANTS_4_HIGH = 25
    CONSTANTS_5_LOW = 26
    CONSTANTS_5_HIGH = 27
    CONSTANTS_6_LOW = 28
    CONSTANTS_6_HIGH = 29
    CONSTANTS_7_LOW = 30
    CONSTANTS_7_HIGH = 31


space_word = data.StructLayout({"block_registers": 10, "thread_registers": 9, "asid": 10})
"""KernelWord.SPACE."""

buffer_word = data.StructLayout({"address": 17, "unused": 2, "units": 13})
"""KernelWord.CONSTANTS_HIGH, and the same word of the other buffers. `units` is 0 for a buffer that
is not valid."""

local_word = data.StructLayout({"address": 17, "units": 15})
"""KernelWord.LOCAL_HIGH."""


def constant_words(number: int) -> tuple[KernelWord, KernelWord]:
    """The words of a constant buffer."""
    if number == 0:
        return KernelWord.CONSTANTS_LOW, KernelWord.CONSTANTS_HIGH
    low = KernelWord.CONSTANTS_1_LOW + 2 * (number - 1)
    return KernelWord(low), KernelWord(low + 1)


def kernel_word(config: Config) -> ShapeLike:
    """Strobe: one kernel word of a row, broadcast to all SMs without back-pressure."""
    return data.StructLayout({
        "valid": 1,
        "row": config.row_bits,
        "word": KernelWord,
        "data": 32,
    })
