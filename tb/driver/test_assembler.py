"""Assembler and disassembler for programs of the supplied core."""

from pathlib import Path
from random import Random

import pytest

from signalbox.driver.kernels.assembler import AssemblerError, assemble, disassemble, registers
from signalbox.driver.kernels.library import KERNELS
from signalbox.hw.sm import isa
from signalbox.hw.sm.isa import INSTRUCTIONS, Operand, Special


def encoded(text: str) -> int:
    (word,) = memoryview(assemble(text)).cast("Q")
    return word


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("add r1, r2, r3", 0x00000003_00_02_01_02),
        ("add r1, r2, -3", 0xFFFFFFFD_00_02_01_82),
        ("mad r254, r2, 0x10, r4", 0x00000010_04_02_FE_85),
        ("mov r7, r8", 0x00000008_00_00_07_01),
        ("lea r4, r2, r9, 3", 0x00000009_03_02_04_17),
        ("leas r4, r2, -1, 0", 0xFFFFFFFF_00_02_04_98),
        ("s2r r1, ntid.y", 0x00000009_00_00_01_20),
        ("ldc r1, [0x10]", 0x00000010_00_00_01_21),
        ("ldc r1, [0][0x10]", 0x00000010_00_00_01_21),
        ("ldc r1, [ 7 ] [8]", 0x00000008_00_07_01_21),
        ("ldc r1, [2][8 + 0x10]", 0x00000018_00_02_01_21),
        (".const A 8\nldc r1, [A+4]", 0x0000000C_00_00_01_21),
        ("ldg r1, [r2 - 4]", 0xFFFFFFFC_00_02_01_22),
        ("stg [r2 + 8], r3", 0x00000008_03_02_00_23),
        ("lds r1, [r3]", 0x00000000_00_03_01_24),
        ("sts [r3 + 4], r5", 0x00000004_05_03_00_25),
        ("ldl r1, [r3]", 0x00000000_00_03_01_26),
        ("stl [r3 + 4], r5", 0x00000004_05_03_00_27),
        ("bra 0x10", 0x00000010_00_00_00_30),
        ("wait 5", 0x00000005_00_00_00_B7),
        ("exit", 0x00000000_00_00_00_38),
        ("not r1, r2", 0xFFFFFFFF_00_02_01_88),
        ("nop", 0x00000000_00_00_00_01),
        ("add\tr1,\tr2, r3", 0x00000003_00_02_01_02),
    ],
)
def test_encodings(text: str, word: int) -> None:
    assert encoded(text) == word


def test_labels_constants_comments() -> None:
    program = assemble(
        """
        .const STEP 4     # per round
        .const ALSO STEP
        start: again:     ; two names
            add r1, r1, STEP
            ldg r2, [r4 - ALSO]
            bany r1, end
            bra start
        end: exit
        """
    )
    assert disassemble(program) == [
        "add r1, r1, 4",
        "ldg r2, [r4 - 4]",
        "bany r1, 0x20",
        "bra 0x0",
        "exit",
    ]
    assert assemble("mov r1, N", {"N": 7}) == assemble("mov r1, 7")


def test_until() -> None:
    """`until` expands to a loop that loads a word until it has the wanted value."""
    text = "nop\ntop: until r4, [r2 + 8], {}\nbra top"
    same = """
        nop
        top: ldg r4, [r2 + 8]
        xor r4, r4, {}
        bnone r4, behind
        wait 100
        bra top
        behind: bra top
    """
    for wanted in ("1", "r7", "-1"):
        assert assemble(text.format(wanted)) == assemble(same.format(wanted))
    with pytest.raises(AssemblerError, match="line 2"):
        assemble("nop\nuntil r4, [q2], 1")
    for text in ("until r4, [r2], r4", "until r2, [r2], 1", "until r3, [r2 + 4], 1"):
        with pytest.raises(AssemblerError, match="line 2: until overwrites r"):
            assemble(f"nop\n{text}")


def test_join_one() -> None:
    """`join` with a word expands to a loop that loads the word until it is 1, or the block has no
    children; then it loads it once more."""
    same = """
        nop
        top: ldg r4, [r2 + 8]
        xor r4, r4, 1
        bnone r4, behind
        s2r r4, children
        bnone r4, last
        wait 100
        bra top
        last: ldg r4, [r2 + 8]
        xor r4, r4, 1
        behind: bra top
    """
    assert assemble("nop\ntop: join r4, [r2 + 8]\nbra top") == assemble(same)
    assert len(assemble("join r4")) == 8
    for text in ("join r2, [r2]", "join r3, [r2 + 4]"):
        with pytest.raises(AssemblerError, match="line 2: join overwrites r"):
            assemble(f"nop\n{text}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("exit\nadd r1, r2", "line 2: add has 3 operands, not 2"),
        ("frob r1", "line 1: 'frob' is not an instruction"),
        ("mov r255, 0", "line 1: 'r255' is not a register r0 … r254"),
        ("add r1, 5, r2", "line 1: '5' is not a register"),
        ("lea r3, r2, r1, 0", "line 1: r3 is not the first of a pair"),
        ("ldg r1, [r254]", "line 1: r254 is not the first of a pair"),
        ("lea r2, r2, r1, 32", "line 1: shift 32 is past 31"),
        ("mov r1, 0x100000000", "line 1: 0x100000000 does not fit 32 bits"),
        ("mov r1, -2147483649", "line 1: -2147483649 does not fit 32 bits"),
        ("mov r1, N", "line 1: 'N' is neither a number nor a named constant"),
        ("bra nowhere", "line 1: no label 'nowhere'"),
        ("a:\na: exit", "line 2: 'a' is defined twice"),
        (".const a 1\na: exit", "line 2: 'a' is defined twice"),
        ("r1: exit", "line 1: 'r1' is a register"),
        (".const 5", r"line 1: '.const 5' is not of the form .const NAME NUMBER"),
        (".word 5", r"line 1: '.word 5' is not of the form"),
        ("s2r r1, tid", "line 1: 'tid' is not one of tid.x"),
        ("ldg r1, r2", r"line 1: 'r2' is not of the form \[register \+ number\]"),
        ("ldc r1, 8", r"line 1: '8' is not of the form \[number\] or \[buffer\]\[number\]"),
        ("ldc r1, [8][0]", r"line 1: constant buffer 8 is outside 0 … 7"),
        ("ldc r1, [-1][0]", r"line 1: constant buffer -1 is outside 0 … 7"),
    ],
)
def test_errors(text: str, message: str) -> None:
    with pytest.raises(AssemblerError, match=f"^{message}"):
        assemble(text)


def written(numbers: Random, operand: Operand) -> str:
    word = numbers.getrandbits(32) - (1 << 31)
    pair, register = f"r{2 * numbers.randrange(127)}", f"r{numbers.randrange(255)}"
    offset = f"+ {word}" if word >= 0 else f"- {-word}"
    match operand:
        case Operand.D_PAIR | Operand.A_PAIR:
            return pair
        case Operand.B:
            return numbers.choice((register, str(word)))
        case Operand.SHIFT:
            return str(numbers.randrange(32))
        case Operand.GLOBAL:
            return f"[{pair} {offset}]"
        case Operand.SHARED | Operand.LOCAL:
            return f"[{register} {offset}]"
        case Operand.CONSTANT:
            buffer = numbers.choice(("", *(f"[{n}]" for n in range(1, 8))))
            return f"{buffer}[0x{numbers.getrandbits(13):x}]"
        case Operand.SPECIAL:
            return numbers.choice(list(Special)).name.lower().replace("_", ".")
        case Operand.TARGET:
            return f"0x{numbers.getrandbits(10):x}"
        case _:
            return register


@pytest.mark.parametrize("form", INSTRUCTIONS, ids=lambda form: form.name)
def test_there_and_back(form: isa.Instruction) -> None:
    numbers = Random(form.opcode)
    for _ in range(20):
        text = f"{form.name} {', '.join(written(numbers, one) for one in form.operands)}".strip()
        assert disassemble(assemble(text)) == [text]


def test_what_is_none() -> None:
    words = [0, 0x80 | isa.Opcode.EXIT, 0x7F]
    program = b"".join(word.to_bytes(8, "little") for word in words)
    assert disassemble(program) == [f".word 0x{word:016x}" for word in words]
    assert registers(program) == 0


def test_registers() -> None:
    assert registers(assemble("mov r1, 200")) == 2
    assert registers(assemble("mov r1, r200")) == 201
    assert registers(assemble("stg [r10], r3")) == 12
    assert registers(assemble("sel r1, r2, r3, r9")) == 10


def test_kernels_need_what_they_name() -> None:
    for kernel in KERNELS:
        assert 0 < kernel.registers <= 16, kernel.name


def test_document() -> None:
    """ISA.md equals the table of the description."""
    assert (Path(isa.__file__).parent / "ISA.md").read_text() == isa.table()
