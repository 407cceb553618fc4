"""The documents generated from the register description, and the options for the configuration."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from signalbox.hw import register_map
from signalbox.hw.config import CONFIGS
from signalbox.hw.methods import CeMethod, CopyLaunch, HostMethod, pack
from signalbox.hw.registers import CHANNEL, CONTEXT, GLOBAL, REGISTERS, SEMAPHORE

LARGE = CONFIGS["large"]


def macros(text: str) -> list[tuple[str, bool]]:
    """Name of every macro of a header, and whether it has an argument."""
    found = re.findall(r"^#define (SIGNALBOX_\w+)(\(n\))? ", text, re.MULTILINE)
    return [(name, bool(argument)) for name, argument in found]


def test_markdown_names_everything():
    text = register_map.markdown(LARGE)
    for block in REGISTERS:
        section = text.partition(f"## {block.name.capitalize()} registers")[2]
        for register in block:
            assert f"| `{register.offset:#05x}` | 31:0 | **{register.name}** |" in section
            assert all(f"| {field.name} |" in section for field in register.fields)
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    assert len(rows) == sum(len(block.registers) for block in REGISTERS)
    assert {row.count("|") for row in rows} == {7}
    assert "channels 64" in text and "64 of 64 are built" in text


def test_names_no_section_that_users_do_not_have():
    for text in (register_map.markdown(LARGE), register_map.header(LARGE)):
        assert not re.findall(r"\((?:spec|section) .*\)|\(\d+\.\d.*\)|\b[A-Z]+-\d+\)", text)
    assert "github.com/NVIDIA/open-gpu-doc" in register_map.markdown(LARGE)


def test_header_has_no_name_twice():
    names = [name for name, _ in macros(register_map.header(LARGE))]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(("compiler", "standard"), [("gcc", "c99"), ("g++", "c++11")])
def test_header_compiles_and_agrees(tmp_path: Path, compiler: str, standard: str):
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    text = register_map.header(LARGE)
    (tmp_path / "signalbox.h").write_text(text)
    prints = "\n".join(
        f'    printf("{name} %llu\\n", (unsigned long long){name}{"(3)" if argument else ""});'
        for name, argument in macros(text)
        if name != "SIGNALBOX_H"
    )
    include = '#include "signalbox.h"\n'
    (tmp_path / "main.c").write_text(
        f"#include <stdio.h>\n{include}{include}int main(void) {{\n{prints}\n    return 0;\n}}\n"
    )
    options = [f"-std={standard}", "-pedantic", "-Wall", "-Wextra", "-Werror", "-Wno-long-long"]
    subprocess.run([compiler, *options, "main.c", "-o", "main"], cwd=tmp_path, check=True)
    output = subprocess.run([tmp_path / "main"], capture_output=True, text=True, check=True).stdout
    values = {name: int(value) for name, value in map(str.split, output.splitlines())}

    for register in GLOBAL:
        assert values[f"SIGNALBOX_{register.name}"] == GLOBAL.address(register.name)
    for block in (CHANNEL, SEMAPHORE, CONTEXT):
        for register in block:
            name = f"SIGNALBOX_{block.name}_{register.name}"
            assert values[name] == block.address(register.name, 3)
            for field in register.fields:
                assert values[f"{name}_{field.name}_MASK"] == field.mask
                assert values[f"{name}_{field.name}_SHIFT"] == field.lo
    for method in HostMethod:
        assert values[f"SIGNALBOX_HOST_{method.name}"] == method
    assert values["SIGNALBOX_COPY_LAUNCH_DMA"] == CeMethod.LAUNCH_DMA == 0x300
    assert values["SIGNALBOX_CLASS_COPY"] == 0xC7B5
    assert values["SIGNALBOX_COMPUTE_SEND_PCAS_A"] == 0x2B4
    assert values["SIGNALBOX_QMD_RELEASE1_ENABLE_WORD"] == 951 // 64
    assert values["SIGNALBOX_QMD_RELEASE1_ENABLE_MASK"] == 1 << 951 % 64
    assert values["SIGNALBOX_SKEDCHECK_DEPENDENCE"] == 36
    assert values["SIGNALBOX_SEC_OP_ONE_INC"] == 5
    assert values["SIGNALBOX_CAUSE_SEM_UNDERFLOW"] == 17
    assert values["SIGNALBOX_CODE_OF_SEM_UNDERFLOW"] == values["SIGNALBOX_CODE_SEMAPHORE"] == 25
    assert values["SIGNALBOX_LAUNCH_DMA_WIDE_MASK"] == pack(CopyLaunch, wide=1)
    assert values["SIGNALBOX_ENTRY_SYNC_WAIT_MASK"] == 1 << 63
    assert values["SIGNALBOX_CONFIG_CHANNELS"] == LARGE.channels


def test_command_writes_both(tmp_path: Path):
    files = [tmp_path / "map.md", tmp_path / "signalbox.h"]
    places = ["--markdown", str(files[0]), "--header", str(files[1])]
    register_map.main([*places, "--config", "tiny", "--memory-bytes", "0x200000", "--trace"])
    assert "channels 1, " in files[0].read_text()
    header = files[1].read_text()
    assert "SIGNALBOX_CONFIG_MEMORY_BYTES 0x200000u\n" in header
    assert "SIGNALBOX_CONFIG_TRACE 0x1u\n" in header


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--header", "x.h", "--channels", "65"], "channels = 65 is outside its limits 1 … 64"),
        ([], "nothing to write"),
    ],
)
def test_command_refuses(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        register_map.main(arguments)
    assert message in capsys.readouterr().err
