"""Assembler and disassembler for the supplied core.

    .const N 5              a named constant
    loop:                   a label
        add r1, r1, N       # a comment

Instructions are those of `hw/sm/isa.py`. Registers are `r0` … `r254`; numbers are decimal or 0x…,
with an optional minus sign; special registers are written like `tid.x`. `not d, a` stands for
`xor d, a, -1`, `nop` for `mov r0, r0`, `ldc d, [4]` for `ldc d, [0][4]`, constant buffer 0. The
offset of a constant can be a sum: `ldc d, [A + 4]`.

`until d, [a], b` waits until the word in memory equals b in all active lanes, and leaves 0 in d. It
stands for five instructions, which load the word every hundred cycles.

`join d, [a]` waits for one child, whose record releases 1 to the word in memory (NEST-12). It waits
until the word is 1 or the block has no children left; so it also ends if the child has failed or
was not launched. d becomes 0 if the word is 1, else 1. The word must be 0 before the launch. The
statement stands for nine instructions, which load the word every hundred cycles.
"""

import re
from collections.abc import Mapping, Sequence

from signalbox.hw.methods import unpack
from signalbox.hw.qmd import CONSTANT_BUFFERS
from signalbox.hw.sm.isa import (
    IMMEDIATE,
    INSTRUCTION_BYTES,
    INSTRUCTIONS,
    LAYOUT,
    Operand,
    Special,
)

__all__ = ["AssemblerError", "assemble", "disassemble", "registers", "source_lines"]

REGISTERS = 255

_NAME = r"[A-Za-z_][\w.]*"
_LABEL = re.compile(rf"({_NAME})\s*:\s*")
_CONST = re.compile(rf"\.const\s+({_NAME})\s+(\S+)$")
_MEMORY = re.compile(r"\[\s*(r\d+)\s*(?:([+-])\s*(\S+?)\s*)?\]$")
_CONSTANT = re.compile(r"(?:\[\s*([^\s\]]+)\s*\]\s*)?\[\s*([^\s\]+]+)\s*(?:\+\s*([^\s\]]+)\s*)?\]$")
_UNTIL = re.compile(r"until\s+(r\d+)\s*,\s*(\[[^\]]*\])\s*,\s*(\S+)$")
_JOIN_ONE = re.compile(r"join\s+(r\d+)\s*,\s*(\[[^\]]*\])$")
_PAUSE = 100
"""Cycles from the answer to a load to the next load."""
_BY_NAME = {one.name: one for one in INSTRUCTIONS}
_BY_CODE = {one.opcode.value: one for one in INSTRUCTIONS}
_SPECIALS = {one.name.lower().replace("_", "."): one for one in Special}


class AssemblerError(ValueError):
    """A program text is not valid; the message gives line and cause."""


def assemble(text: str, constants: Mapping[str, int] | None = None) -> bytes:
    """Assemble a program. `constants` defines additional named constants.

    Raises `AssemblerError`.
    """
    names = dict(constants or {})
    labels: dict[str, int] = {}
    statements = _statements(text, labels, names)
    program = bytearray()
    for number, statement in statements:
        try:
            word = _Statement(statement, names, labels, len(program)).word
        except ValueError as error:
            raise AssemblerError(f"line {number}: {error}") from None
        program += word.to_bytes(INSTRUCTION_BYTES, "little")
    return bytes(program)


def source_lines(text: str, constants: Mapping[str, int] | None = None) -> list[tuple[int, str]]:
    """Line number and line, without comment, of each instruction. Raises `AssemblerError`."""
    return _statements(text, {}, dict(constants or {}))


def _statements(text: str, labels: dict[str, int], names: dict[str, int]) -> list[tuple[int, str]]:
    """Line number and text of each instruction. Labels and constants that the text defines are
    added to `labels` and `names`. Raises `AssemblerError`."""
    statements: list[tuple[int, str]] = []
    for number, line in enumerate(text.splitlines(), 1):
        rest = re.split(r"[#;]", line)[0].strip()
        try:
            rest = _take_names(rest, labels, names, len(statements))
            instructions = _expanded(rest, len(statements))
        except ValueError as error:
            raise AssemblerError(f"line {number}: {error}") from None
        statements += [(number, instruction) for instruction in instructions]
    return statements


def _expanded(text: str, index: int) -> list[str]:
    """Instructions of a statement, from instruction number `index` on. Raises `ValueError`."""
    top = index * INSTRUCTION_BYTES
    if found := _UNTIL.match(text):
        word, at, wanted = found.groups()
        return _until(word, at, wanted, top)
    if found := _JOIN_ONE.match(text):
        word, at = found.groups()
        return _join_one(word, at, top)
    return [text] if text else []


def _until(word: str, at: str, wanted: str, top: int) -> list[str]:
    """Instructions of `until`, from byte `top` on."""
    _check_word("until", word, at, wanted)
    end = top + 5 * INSTRUCTION_BYTES
    return [
        f"ldg {word}, {at}",
        f"xor {word}, {word}, {wanted}",
        f"bnone {word}, {end}",
        f"wait {_PAUSE}",
        f"bra {top}",
    ]


def _join_one(word: str, at: str, top: int) -> list[str]:
    """Instructions of `join d, [a]`, from byte `top` on. The word is loaded again after the last
    child, as that may have released it since."""
    _check_word("join", word, at)
    look = [f"ldg {word}, {at}", f"xor {word}, {word}, 1"]
    last, end = (top + n * INSTRUCTION_BYTES for n in (7, 9))
    return [
        *look,
        f"bnone {word}, {end}",
        f"s2r {word}, children",
        f"bnone {word}, {last}",
        f"wait {_PAUSE}",
        f"bra {top}",
        *look,
    ]


def _check_word(name: str, word: str, at: str, *others: str) -> None:
    """Raise `ValueError` if a loop overwrites a register that it needs."""
    pair = re.search(r"r(\d+)", at)
    if word in [*others, *(f"r{int(pair[1]) + n}" for n in (0, 1) if pair)]:
        raise ValueError(f"{name} overwrites {word}, which it needs")


def disassemble(program: bytes) -> list[str]:
    """Disassemble a program, one line per instruction; invalid ones are shown as `.word`. Branch
    targets are byte offsets."""
    words = [
        int.from_bytes(program[at : at + INSTRUCTION_BYTES], "little")
        for at in range(0, len(program), INSTRUCTION_BYTES)
    ]
    return [_text(word, index * INSTRUCTION_BYTES) for index, word in enumerate(words)]


def registers(program: bytes) -> int:
    """Number of registers per thread that a program needs."""
    most = 0
    for at in range(0, len(program), INSTRUCTION_BYTES):
        fields = unpack(LAYOUT, int.from_bytes(program[at : at + INSTRUCTION_BYTES], "little"))
        one = _BY_CODE.get(fields["code"] & ~IMMEDIATE)
        for operand in one.operands if one else ():
            field, pair = _REGISTER_FIELDS.get(operand, ("", False))
            if field and not (operand is Operand.B and fields["code"] & IMMEDIATE):
                number = fields[field] & 0xFF
                most = max(most, number + 1 + pair)
    return most


_REGISTER_FIELDS = {
    Operand.D: ("d", False),
    Operand.D_PAIR: ("d", True),
    Operand.A: ("a", False),
    Operand.A_PAIR: ("a", True),
    Operand.B: ("value", False),
    Operand.C: ("c", False),
    Operand.GLOBAL: ("a", True),
    Operand.SHARED: ("a", False),
    Operand.LOCAL: ("a", False),
}
"""Field that holds the register number of an operand, and whether it is a register pair."""


def _take_names(rest: str, labels: dict[str, int], names: dict[str, int], index: int) -> str:
    """Record the labels or the constant of a line; returns the rest, the instruction. Raises
    `ValueError`."""
    while found := _LABEL.match(rest):
        _unused(found[1], labels, names)
        labels[found[1]] = index * INSTRUCTION_BYTES
        rest = rest[found.end() :]
    if found := _CONST.match(rest):
        _unused(found[1], labels, names)
        names[found[1]] = _number(found[2], names)
        return ""
    if rest.startswith("."):
        raise ValueError(f"{rest!r} is not of the form .const NAME NUMBER")
    return rest


def _unused(name: str, labels: Mapping[str, int], names: Mapping[str, int]) -> None:
    if name in labels or name in names:
        raise ValueError(f"{name!r} is defined twice")
    if re.fullmatch(r"r\d+", name) or name in _SPECIALS:
        raise ValueError(f"{name!r} is a register")


def _number(text: str, names: Mapping[str, int]) -> int:
    """Value of a number or named constant, as an unsigned 32-bit word. Raises `ValueError`."""
    sign = -1 if text.startswith("-") else 1
    plain = text.removeprefix("-")
    if plain in names:
        value = names[plain]
    else:
        try:
            value = int(plain, 0)
        except ValueError:
            raise ValueError(f"{text!r} is neither a number nor a named constant") from None
    if not -(1 << 31) <= sign * value < 1 << 32:
        raise ValueError(f"{text} does not fit 32 bits")
    return sign * value & 0xFFFF_FFFF


def _register(text: str) -> int:
    if not re.fullmatch(r"r\d+", text) or int(text[1:]) >= REGISTERS:
        raise ValueError(f"{text!r} is not a register r0 … r{REGISTERS - 1}")
    return int(text[1:])


def _pair(text: str) -> int:
    number = _register(text)
    if number % 2 or number == REGISTERS - 1:
        raise ValueError(f"{text} is not the first of a pair")
    return number


class _Statement:
    """One instruction at byte offset `at`; `word` is its encoding. Raises `ValueError`."""

    def __init__(
        self, text: str, names: Mapping[str, int], labels: Mapping[str, int], at: int
    ) -> None:
        self._names, self._labels, self._at = names, labels, at
        self._fields = {"code": 0, "d": 0, "a": 0, "c": 0, "value": 0}
        name, operands = _split(text)
        if name not in _BY_NAME:
            raise ValueError(f"{name!r} is not an instruction")
        form = _BY_NAME[name]
        if len(operands) != len(form.operands):
            raise ValueError(f"{name} has {len(form.operands)} operands, not {len(operands)}")
        self._fields["code"] |= form.opcode
        for operand, written in zip(form.operands, operands, strict=True):
            self._operand(operand, written)
        self.word = int(LAYOUT.const(self._fields).as_value().value)

    def _operand(self, operand: Operand, written: str) -> None:
        fields = self._fields
        match operand:
            case Operand.D | Operand.A | Operand.C:
                fields[operand.name.lower()] = _register(written)
            case Operand.D_PAIR | Operand.A_PAIR:
                fields[operand.name[0].lower()] = _pair(written)
            case Operand.B if re.fullmatch(r"r\d+", written):
                fields["value"] = _register(written)
            case Operand.B:
                fields["code"] |= IMMEDIATE
                fields["value"] = _number(written, self._names)
            case Operand.SHIFT:
                fields["c"] = _number(written, self._names)
                if fields["c"] > 31:
                    raise ValueError(f"shift {written} is past 31")
            case Operand.GLOBAL | Operand.SHARED | Operand.LOCAL:
                self._memory(written, _pair if operand is Operand.GLOBAL else _register)
            case Operand.CONSTANT:
                self._constant(written)
            case Operand.SPECIAL:
                if written not in _SPECIALS:
                    raise ValueError(f"{written!r} is not one of {', '.join(_SPECIALS)}")
                fields["value"] = _SPECIALS[written].value
            case Operand.TARGET:
                fields["value"] = self._distance(written)

    def _memory(self, written: str, register) -> None:
        found = _MEMORY.match(written)
        if not found:
            raise ValueError(f"{written!r} is not of the form [register + number]")
        offset = _number(found[3], self._names) if found[3] else 0
        self._fields["a"] = register(found[1])
        self._fields["value"] = (-offset if found[2] == "-" else offset) & 0xFFFF_FFFF

    def _constant(self, written: str) -> None:
        found = _CONSTANT.match(written)
        if not found:
            raise ValueError(f"{written!r} is not of the form [number] or [buffer][number]")
        self._fields["a"] = _number(found[1] or "0", self._names)
        numbers = (_number(one or "0", self._names) for one in found.groups()[1:])
        self._fields["value"] = sum(numbers) & 0xFFFF_FFFF
        if self._fields["a"] >= CONSTANT_BUFFERS:
            raise ValueError(f"constant buffer {found[1]} is outside 0 … {CONSTANT_BUFFERS - 1}")

    def _distance(self, written: str) -> int:
        if written in self._labels:
            return self._labels[written] - self._at & 0xFFFF_FFFF
        if re.match(_NAME, written) and written not in self._names:
            raise ValueError(f"no label {written!r}")
        return _number(written, self._names) - self._at & 0xFFFF_FFFF


def _split(text: str) -> tuple[str, list[str]]:
    """Name and operands of an instruction, with the short forms `not` and `nop` expanded."""
    name, *rest = text.split(maxsplit=1)
    operands: Sequence[str] = [one.strip() for one in rest[0].split(",")] if rest else []
    name = name.lower()
    if name == "not":
        return "xor", [*operands, "-1"]
    if name == "nop" and not operands:
        return "mov", ["r0", "r0"]
    return name, list(operands)


def _text(word: int, at: int) -> str:
    fields = unpack(LAYOUT, word)
    form = _BY_CODE.get(fields["code"] & ~IMMEDIATE)
    immediate = bool(fields["code"] & IMMEDIATE)
    if form is None or (immediate and Operand.B not in form.operands):
        return f".word 0x{word:016x}"
    shown = [_shown(one, fields, at, immediate) for one in form.operands]
    return f"{form.name} {', '.join(shown)}".strip()


def _shown(operand: Operand, fields: Mapping[str, int], at: int, immediate: bool) -> str:
    value = fields["value"]
    signed = value - (value >> 31 << 32)
    match operand:
        case Operand.D | Operand.D_PAIR:
            return f"r{fields['d']}"
        case Operand.A | Operand.A_PAIR:
            return f"r{fields['a']}"
        case Operand.B:
            return str(signed) if immediate else f"r{value & 0xFF}"
        case Operand.C:
            return f"r{fields['c']}"
        case Operand.SHIFT:
            return str(fields["c"])
        case Operand.GLOBAL | Operand.SHARED | Operand.LOCAL:
            return f"[r{fields['a']} {'-' if signed < 0 else '+'} {abs(signed)}]"
        case Operand.CONSTANT:
            buffer = f"[{fields['a']}]" if fields["a"] else ""
            return f"{buffer}[0x{value:x}]"
        case Operand.SPECIAL:
            known = {one.value: name for name, one in _SPECIALS.items()}
            return known.get(value, str(value))
        case Operand.TARGET:
            return f"0x{(at + value) & 0xFFFF_FFFF:x}"
