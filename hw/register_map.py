"""Documents of the register map: Markdown for people, a C header for programs.

python -m signalbox.hw.register_map --markdown FILE --header FILE [configuration options]
"""

import argparse
import enum
import re
from collections.abc import Iterable, Iterator
from dataclasses import fields
from pathlib import Path

from amaranth.lib import data

from signalbox.hw import methods, options, page_tables, qmd, runlists
from signalbox.hw.config import SLOT_BYTES, WINDOW_BASE, Config
from signalbox.hw.errors import CODE_OF, Cause, Code, CoreCause
from signalbox.hw.options import program
from signalbox.hw.registers import (
    ADDRESS_BITS,
    GLOBAL,
    ID,
    REGISTERS,
    VERSION,
    Block,
    MmuOperation,
    Register,
)

__all__ = ["header", "main", "markdown"]

_PREFACE = f"""\
Made from `hw/registers.py`. Byte addresses of the AXI4-Lite control port ({ADDRESS_BITS} bits);
every register has 32 bits. Bits that are not listed read as 0 and ignore writes. A write is
answered once it has taken effect. SLVERR, without side effects, answers an address without a
register, a channel or semaphore that was not built, a write to a read-only register, and a partial
write to a write-only register, a channel or a semaphore."""

_BRING_UP = f"""\
## Bringing a channel up

1. An address space, once for all channels that share it: page tables in memory; then MMU_PDB_LO,
   MMU_PDB_HI, MMU_LIMIT_LO, MMU_LIMIT_HI, MMU_COMMAND with BIND, and MMU_STATUS until BUSY is 0.
   All addresses below are virtual addresses in it.
2. Memory: a ring of 2^n entries of 8 bytes; {methods.USERD_BYTES} zero bytes, aligned to their
   size, for USERD ({", ".join(f"{member.name} at {member.value:#x}" for member in methods.Userd)});
   segments.
3. Registers of the channel, undefined until written (reset "–"): GP_BASE, GP_BASE_HI, USERD,
   USERD_HI, CONFIG, SLICE, ACQUIRE; then CONTROL.ENABLE = 1.
4. Each submission: the segment, its ring entry, the new GP_PUT in USERD, then the channel's number
   to DOORBELL. GP_GET is written to USERD and shown in the register of that name.
5. An error sets the channel's bit in INTR_ERROR; CAUSE, METHOD0, DATA0 and ERROR_VA describe it.
   Writing its bits in INTR_0 and INTR_1 resumes the channel: the held method is retried, unless
   METHOD0 was overwritten before, with NOP to skip it.
6. CONTROL.ENABLE = 0 switches it off; its memory is free when STATUS.ACTIVE is 0.

For tasks: TASK_LISTS_LO, TASK_LISTS_HI and TASK_LISTS_SIZE set the memory for 64 lists per context;
each context's registers name its instance block, whose address spaces are bound before its tasks
run; CONFIG.CONTEXT of a channel selects the context of its tasks. A task's record is written to
memory, SEND_PCAS_A gives its address, SEND_SIGNALING_PCAS2_B launches it.

Numbers of methods and bit fields of ring entries, headers and methods are in the C header. The
public ones are NVIDIA's, from <https://github.com/NVIDIA/open-gpu-doc>: class headers
`classes/host/clc56f.h`, `classes/dma-copy/clc7b5.h`, `classes/compute/clc6c0.h` and `clc6c0qmd.h`;
`manuals/ampere/ga100/dev_pbdma.ref.txt` and `dev_ram.ref.txt` describe rings, headers, host methods
and USERD, `pascal/gp100-mmu-format.pdf` the page tables,
`manuals/volta/gv100/dev_mmu_fault.ref.txt` the records of faults."""

_WORD = 64
"""Bits of a word in the description of records in memory."""

_SECTIONS = re.compile(r" \((?:(?:spec |section )?\d+(?:\.\d+)?(?:, \d+(?:\.\d+)?)*|[A-Z]+-\d+)\)")
"""References to the specification that are removed from docstrings: " (1.2)", " (spec 4)",
" (HOST-9)"."""

_RULES = {
    "ro": "read only; a write is answered with SLVERR",
    "rw": "read and write",
    "w1c": "read; writing a 1 clears the bit, an event in the same cycle is kept",
    "wo": "write only; reads as 0",
}

_NUMBERS = {
    "HOST": methods.HostMethod,
    "COPY": methods.CeMethod,
    "CLASS": methods.ObjectClass,
    "SEC_OP": methods.SecOp,
    "TERT_OP": methods.TertOp,
    "ENTRY_OPCODE": methods.EntryOpcode,
    "SEM_OP": methods.SemOp,
    "REDUCTION": methods.Reduction,
    "MEM_OP": methods.MemOp,
    "YIELD_OP": methods.YieldOp,
    "USERD": methods.Userd,
    "LAUNCH_TRANSFER": methods.LaunchTransfer,
    "LAUNCH_SEMAPHORE": methods.LaunchSemaphore,
    "LAUNCH_INTERRUPT": methods.Interrupt,
    "COMPUTE": methods.ComputeMethod,
    "PCAS_ACTION": methods.PcasAction,
    "REPORT_OP": methods.ReportOp,
    "RELEASE_OP": qmd.ReleaseOp,
    "DEPENDENT_ACTION": qmd.DependentAction,
    "PLACEMENT": qmd.Placement,
    "SKEDCHECK": qmd.SkedCheck,
    "CORE_CAUSE": CoreCause,
    "MMU": MmuOperation,
    "FAULT_TYPE": page_tables.FaultType,
    "ACCESS_TYPE": page_tables.AccessType,
    "RUNLIST_ERROR": runlists.RunlistError,
    "CODE": Code,
    "CAUSE": Cause,
}
"""Enumerations of the public command stream and of the errors, by prefix."""

_LAYOUTS = {
    "HEADER": methods.Header,
    "SUB_DEVICE_MASK": methods.SubDeviceMask,
    "ENTRY": methods.GpEntry,
    "SEM_EXECUTE": methods.SemaphoreExecute,
    "SEMAPHORED": methods.LegacySemaphore,
    "LAUNCH_DMA": methods.CopyLaunch,
    "MEM_OP_A": methods.MemOpA,
    "MEM_OP_C": methods.MemOpC,
    "MEM_OP_D": methods.MemOpD,
    "SEND_SIGNALING_PCAS_B": methods.SignalingPcas,
    "REPORT_SEMAPHORE": methods.ReportSemaphore,
    "RUNLIST_GROUP": runlists.GroupEntry,
    "RUNLIST_CHANNEL": runlists.ChannelEntry,
    "FAULT_RECORD": page_tables.FaultRecord,
    "PDE": page_tables.Pde,
    "DUAL_PDE": page_tables.DualPde,
    "PTE": page_tables.Pte,
}
"""Layouts of the public command stream, page tables and fault records, by prefix."""


def markdown(config: Config) -> str:
    """Register map of a machine with `config`, as Markdown."""
    lines = [
        f"# Register map, version {VERSION[0]}.{VERSION[1]}",
        "",
        _PREFACE,
        "",
        *_table(("Access", "Meaning"), _RULES.items()),
        "",
        "Built with: " + ", ".join(f"{name} {value}" for name, value in _members(config)) + ".",
        "",
        _BRING_UP,
    ]
    for block in REGISTERS:
        lines += ["", *_block_lines(block, config)]
    return "\n".join(lines) + "\n"


def header(config: Config) -> str:
    """C header of a machine with `config`: constants only, C99 and C++."""
    lines = [
        "/* Registers, methods and errors of a Signalbox; made by hw/register_map.py. */",
        "#ifndef SIGNALBOX_H",
        "#define SIGNALBOX_H",
        "",
        "/* Configuration of this machine; its ID and sizes can also be read from registers. */",
        *(_define(f"CONFIG_{name.upper()}", value) for name, value in _members(config)),
        _define("ID_VALUE", ID),
        _define("VERSION_MAJOR_VALUE", VERSION[0]),
        _define("VERSION_MINOR_VALUE", VERSION[1]),
        _define("WINDOW_BASE", WINDOW_BASE),
        _define("SLOT_BYTES", SLOT_BYTES),
        _define("USERD_BYTES", methods.USERD_BYTES),
    ]
    for block in REGISTERS:
        lines += ["", f"/* {block.name.capitalize()} registers: byte offsets, bit fields. */"]
        for register in block:
            lines += _register_defines(block, register)
    for prefix, numbers in _NUMBERS.items():
        lines += ["", f"/* {_summary(numbers)} */"]
        lines += [_define(f"{prefix}_{member.name}", member.value) for member in numbers]
    lines += ["", "/* CODE of every CAUSE. */"]
    lines += [_define(f"CODE_OF_{cause.name}", code.value) for cause, code in CODE_OF.items()]
    for prefix, layout in _LAYOUTS.items():
        lines += ["", f"/* {_summary(layout)} */"]
        lines += _layout_defines(prefix, data.Layout.cast(layout))
    lines += ["", "/* Task metadata, 256 bytes in memory. */", *_layout_defines("QMD", qmd.QMD)]
    lines += ["", "#endif"]
    return "\n".join(lines) + "\n"


def main(arguments: list[str] | None = None) -> None:
    """Writes the files named on the command line."""
    parser = argparse.ArgumentParser(
        prog=program("signalbox.hw.register_map"), description="Write the register map."
    )
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="for people")
    parser.add_argument("--header", type=Path, metavar="FILE", help="for C and C++ programs")
    options.add_options(parser)
    args = parser.parse_args(arguments)
    if args.markdown is None and args.header is None:
        parser.error("nothing to write: give --markdown FILE, --header FILE or both")
    config = options.chosen(parser, args)
    if args.markdown is not None:
        args.markdown.write_text(markdown(config), encoding="utf-8")
    if args.header is not None:
        args.header.write_text(header(config), encoding="utf-8")


def _members(config: Config) -> Iterator[tuple[str, int]]:
    for field in fields(config):
        yield field.name, int(getattr(config, field.name))


def _table(titles: Iterable[str], rows: Iterable[Iterable[object]]) -> list[str]:
    titles = list(titles)
    return [
        f"| {' | '.join(titles)} |",
        "|" + "---|" * len(titles),
        *(f"| {' | '.join(map(str, row))} |" for row in rows),
    ]


def _block_lines(block: Block, config: Config) -> list[str]:
    """Heading, location and registers of a block."""
    first, last = block.base, block.base + block.count * block.stride - 1
    title = f"## {block.name.capitalize()} registers, {first:#06x} … {last:#06x}"
    rows = [row for register in block for row in _register_rows(register, config)]
    lines = [title, "", *_table(("Offset", "Bits", "Name", "Access", "Reset", "Meaning"), rows)]
    if block.count > 1:
        place = (
            f"One set for each {block.name.lower()} n at {block.base:#06x} + n × {block.stride:#x};"
            f" {block.built(config)} of {block.count} are built."
        )
        lines[2:2] = [place, ""]
    return lines


def _register_rows(register: Register, config: Config) -> Iterator[tuple[str, ...]]:
    initial = register.initial(config)
    reset = "–" if initial is None else f"{initial:#x}"
    offset, name = f"`{register.offset:#05x}`", f"**{register.name}**"
    yield offset, "31:0", name, register.access.value, reset, register.doc
    for field in register.fields:
        bits = f"{field.hi}:{field.lo}" if field.width > 1 else f"{field.lo}"
        yield "", bits, field.name, "", "", field.doc


def _define(name: str, value: int) -> str:
    suffix = "u" if value < 1 << 32 else "ull"
    return f"#define SIGNALBOX_{name} {value:#x}{suffix}"


def _field_defines(name: str, lo: int, width: int) -> list[str]:
    mask = ((1 << width) - 1) << lo
    return [_define(f"{name}_SHIFT", lo), _define(f"{name}_MASK", mask)]


def _layout_defines(prefix: str, layout: data.Layout) -> list[str]:
    """All fields of a record, except reserved ones."""
    lines = []
    for name, field in layout:
        if not str(name).startswith("reserved"):
            lines += _member_defines(f"{prefix}_{str(name).upper()}", layout, field)
    return lines


def _member_defines(name: str, layout: data.Layout, field: data.Field) -> list[str]:
    """Field of a record; for a record of several 64-bit words, also the word."""
    if layout.size <= _WORD:
        return _field_defines(name, field.offset, field.width)
    word, low = divmod(field.offset, _WORD)
    return [_define(f"{name}_WORD", word), *_field_defines(name, low, field.width)]


def _register_defines(block: Block, register: Register) -> list[str]:
    """Address of the register, a macro with the set's index if there are several sets; fields."""
    if block is GLOBAL:
        name = register.name
        lines = [_define(name, block.address(register.name))]
    else:
        name = f"{block.name}_{register.name}"
        place = f"{block.address(register.name):#x}u + {block.stride:#x}u * (n)"
        lines = [f"#define SIGNALBOX_{name}(n) ({place})"]
    for field in register.fields:
        lines += _field_defines(f"{name}_{field.name}", field.lo, field.width)
    return lines


def _summary(described: type[enum.Enum] | type[data.Struct]) -> str:
    """First sentence of a docstring, without references to the specification, which users do not
    have."""
    text = _SECTIONS.sub("", " ".join((described.__doc__ or "").split()))
    return text.partition(". ")[0].rstrip(".") + "."


if __name__ == "__main__":
    main()
