"""SM port: the interface between an SM logic controller and a core (`hw/sm/README.md`)."""

from collections.abc import Callable

from amaranth.hdl import Mux, Shape, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import VA_BITS, Config
from signalbox.hw.errors import CoreCause
from signalbox.hw.records.launch import task_verdict
from signalbox.hw.records.memory import MemoryStatus, read_beat, write_beat
from signalbox.hw.records.placement import INDEX_BITS, SAVE_PAGE_BITS, coordinates, kernel_word

__all__ = [
    "CoreError",
    "CoreFactory",
    "SmControl",
    "SmMemory",
    "SmPort",
    "block_begin",
    "block_launch",
    "block_save",
    "core_fault",
    "core_request",
    "launch_answer",
    "make_core",
    "record_fault",
    "record_page",
    "warp_start",
]


def block_begin(config: Config) -> data.StructLayout:
    """A block enters a slot. With preemption, `restores`: it continues from the state saved
    from page `page` on."""
    saved = {"restores": 1, "page": SAVE_PAGE_BITS} if config.preemption else {}
    return data.StructLayout({
        "slot": config.block_bits,
        "row": config.row_bits,
        "at": coordinates,
        "shared": range(config.shared_units + 1),
        **saved,
    })


def block_save(config: Config) -> data.StructLayout:
    """Save the block in `slot` from page `page` on. A restored block is saved at its old place."""
    return data.StructLayout({"slot": config.block_bits, "page": SAVE_PAGE_BITS})


def warp_start(config: Config) -> data.StructLayout:
    """Warp number `index` of a block starts."""
    return data.StructLayout({
        "warp": config.warp_bits,
        "slot": config.block_bits,
        "row": config.row_bits,
        "index": INDEX_BITS,
        "registers": range(config.register_units + 1),
    })


def core_request(config: Config) -> data.StructLayout:
    """A burst of a core, like `hw.records.memory.memory_request`, for kernel row `row`; `physical`
    only for the state of blocks."""
    physical = {"physical": 1} if config.preemption else {}
    return data.StructLayout({"row": config.row_bits, "va": VA_BITS, "beats": 8, **physical})


def core_fault(config: Config) -> data.StructLayout:
    """Warp number `index` of the block in `slot`, of `row`, faulted; `at` is the address of its
    instruction, `va` the address accessed, if any. If the state of the block itself cannot be saved
    or restored, `index` is 0."""
    return data.StructLayout({
        "row": config.row_bits,
        "slot": config.block_bits,
        "index": INDEX_BITS,
        "cause": CoreCause,
        "at": VA_BITS,
        "va": VA_BITS,
    })


def block_launch(config: Config) -> data.StructLayout:
    """The block in `slot`, of kernel row `row`, launches the QMD at virtual address `page` << 8 of
    its address space."""
    return data.StructLayout({"slot": config.block_bits, "row": config.row_bits, "page": 32})


_RECORD_ALIGNMENT, _RECORD_BITS = 8, 40
"""Of the address of a QMD: number of low bits that are 0, and width."""


def record_page(va: Value) -> Value:
    """`page` of a `block_launch`, by the address of the QMD."""
    return va[_RECORD_ALIGNMENT:_RECORD_BITS]


def record_fault(va: Value) -> Value:
    """`CoreCause` of a warp that launches a QMD at a wrong address, or NONE."""
    odd, far = va[:_RECORD_ALIGNMENT].any(), va[_RECORD_BITS:].any()
    far_or_none = Mux(far, CoreCause.MEMORY_FAULT, CoreCause.NONE)
    return Mux(odd, CoreCause.MEMORY_ALIGNMENT, far_or_none)


def launch_answer(config: Config) -> data.StructLayout:
    """Strobe: the launch by the block in `slot` was accepted (Refusal.NONE), or refused."""
    return data.StructLayout({"valid": 1, "slot": config.block_bits, "verdict": task_verdict})


class SmControl(wiring.Signature):
    """Control side of a core, seen from the SM logic controller.

    Members
    -------
    kernel : out, kernel words; those of a row only while none of its warps runs.
    begin : out, stream of `block_begin`: blocks that enter a slot.
    start : out, stream of `warp_start`: warps that start.
    end : in, stream of hardware warps that have ended.
    finish : out, strobe per block slot: the block is over; of a stopped block: its warps have
        ended.
    stop : out, with preemption: stream of `block_save`.
    saved : in, with preemption; strobe per block slot: the stopped block's state is in memory.
    """

    def __init__(self, config: Config) -> None:
        stops = {
            "stop": Out(stream.Signature(block_save(config))),
            "saved": In(config.sm_blocks),
        }
        super().__init__({
            **(stops if config.preemption else {}),
            "kernel": Out(kernel_word(config)),
            "begin": Out(stream.Signature(block_begin(config))),
            "start": Out(stream.Signature(warp_start(config))),
            "end": In(stream.Signature(config.warp_bits)),
            "finish": Out(config.sm_blocks),
        })


class SmMemory(wiring.Signature):
    """Memory side of a core, seen from the memory.

    Members
    -------
    read_request : in, stream of `core_request`.
    read_beat : out, stream of `read_beat`.
    write_request : in, stream of `core_request`.
    write_beat : in, stream of `write_beat`.
    write_done : out, stream of responses, each a `MemoryStatus`.
    """

    def __init__(self, config: Config) -> None:
        done = data.StructLayout({"status": MemoryStatus})
        super().__init__({
            "read_request": In(stream.Signature(core_request(config))),
            "read_beat": Out(stream.Signature(read_beat(config))),
            "write_request": In(stream.Signature(core_request(config))),
            "write_beat": In(stream.Signature(write_beat(config))),
            "write_done": Out(stream.Signature(done)),
        })


class SmPort(wiring.Signature):
    """A core, seen from the SM logic controller and the memory behind it; with the members of
    `SmControl` and `SmMemory`.

    Members
    -------
    number : out, `sm_bits` bits, constant: number of the SM.
    kill : out, per kernel row: its warps must end.
    fault : in, stream of `core_fault`.

    With nested launches
    --------------------
    launch : in, stream of `block_launch`; the block is not over before the answer.
    launched : out, strobe: the answer, see `launch_answer`.
    children : out, per block slot: has children that are not complete. 1 with the answer of an
        accepted launch, and for some cycles after a block with children has begun again.
    child_failed : out, per block slot: a child that is complete, or a descendant of it, has failed;
        valid while `children` is 0.
    """

    def __init__(self, config: Config) -> None:
        nested = {
            "launch": In(stream.Signature(block_launch(config))),
            "launched": Out(launch_answer(config)),
            "children": Out(config.sm_blocks),
            "child_failed": Out(config.sm_blocks),
        }
        super().__init__({
            **(nested if config.nested else {}),
            **SmControl(config).members,
            **SmMemory(config).members,
            "number": Out(config.sm_bits),
            "kill": Out(config.rows),
            "fault": In(stream.Signature(core_fault(config))),
        })


CoreFactory = Callable[[Config], wiring.Component]
"""Constructs a core for one SM, for example a class constructed from the configuration."""


class CoreError(TypeError):
    """The members of a core differ from the SM port; the message names them."""


def make_core(factory: CoreFactory, config: Config) -> wiring.Component:
    """A core with the ports of `SmPort(config).flip()`: the same names, directions and widths.

    Raises `CoreError` for a core with other ports. Exceptions of the factory are not caught.
    """
    name = getattr(factory, "__qualname__", repr(factory))
    core, wanted = factory(config), _ports(SmPort(config).flip())
    signature = getattr(core, "signature", None)
    if not isinstance(core, wiring.Component) or signature is None:
        raise CoreError(f"{name} makes {core!r}, which is no Amaranth component")
    found = _ports(signature)
    problems = [
        f"{port} is {found.get(port, 'missing')}, not {wanted.get(port, 'wanted')}"
        for port in {**wanted, **found}
        if found.get(port) != wanted.get(port)
    ]
    if problems:
        more = f"; and {len(problems) - 3} more" if len(problems) > 3 else ""
        raise CoreError(f"{name} has not the SM port: {'; '.join(problems[:3])}{more}")
    return core


def _ports(signature: wiring.Signature) -> dict[str, str]:
    """Direction and width of each port, by its name."""
    found = {}
    for path, member in signature.members.flatten():
        if member.is_port:
            width = Shape.cast(member.shape).width
            found[".".join(map(str, path))] = f"{member.flow.name} of {width} bits"
    return found
