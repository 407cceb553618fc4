"""Scheduling experiments in JSON, read as workload files.

The format is that of cuda_scheduling_examiner (github.com/yalue/cuda_scheduling_examiner_mirror):
benchmarks that occupy SMs for a given time, each in its own CUDA stream.

    {
      "name": "two kernels",
      "max_iterations": 1,               # of each benchmark, one after the other
      "max_time": 0,                     # not applied
      "benchmarks": [
        {
          "filename": "./bin/timer_spin.so",
          "label": "K1",                 # default: the number of the benchmark
          "thread_count": 512,           # of a block; or [x, y, z], as for block_count
          "block_count": 2,
          "additional_info": 500000000,  # ns for which every block runs
          "release_time": 0.2,           # seconds from the start of the run
          "stream_priority": -1,         # 0 or -1, which is more urgent
          "sm_mask": "~0x3"              # text: bits of disabled SMs in hexadecimal, 64 at most;
                                         # with ~, of enabled ones; bits beyond the machine's SMs
                                         # are ignored
        }
      ],
      "signalbox": {                     # optional, ignored by other programs
        "ns_per_cycle": 100000,          # scale of time; this is the default
        "machine": {"sms": 2}            # members of hw.config.Config
      }
    }

Benchmarks, by the name of their module:

* `timer_spin`; `timer_spin_default_stream`, in the NULL stream.
* `multikernel`: "additional_info" is a list of kernels for the stream, each with "kernel_label",
  "duration" (ns), "block_count", "thread_count", and perhaps "shared_memory_size" (32-bit words),
  "sm_mask", and "delay": seconds from the end of the stream's last kernel to the launch.
* `stream_action`: "additional_info" has "use_null_stream" and "actions": kernels, and the
  synchronization of the stream.

A benchmark or kernel can have "starts": the range of seconds, from the start of the run, in which
its first warp must start; other programs ignore it. With "use_processes", each benchmark has an
address space of its own, and they still share the SMs, as under MPS. Members about processors, log
files and warm-up are ignored. The default machine has timing cores of the size of a Jetson TX2, and
2 SMs; 8 if there are masks.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from signalbox.driver.workload.kernel_reader import extent
from signalbox.driver.workload.toml_table import LONGEST, Table, WorkloadError
from signalbox.hw.config import LIMITS

__all__ = ["NS_PER_CYCLE", "tables"]

NS_PER_CYCLE = 100_000
"""Default nanoseconds of an experiment per cycle."""

_TOP = {
    *("name", "max_iterations", "max_time", "benchmarks", "use_processes", "sync_every_iteration"),
    *("cuda_device", "base_result_directory", "pin_cpus", "do_warmup", "comment", "signalbox"),
}
_BENCHMARK = {
    *("filename", "label", "thread_count", "block_count", "data_size", "additional_info"),
    *("release_time", "stream_priority", "sm_mask", "max_iterations", "max_time", "starts"),
    *("log_name", "cpu_core", "cuda_device", "mps_thread_percentage", "comment"),
}
_KERNEL = {
    *("kernel_label", "duration", "block_count", "thread_count", "shared_memory_size", "delay"),
    *("sm_mask", "starts", "copy_in_count", "copy_out_count", "comment"),
}
_ACTION = {"type", "label", "delay", "parameters", "starts", "comment"}
_PARAMETERS = {"type", "duration", "block_count", "thread_count", "shared_memory_size", "comment"}

_MACHINE = {
    "timing_core": True,
    "sm_warps": 64,
    "sm_blocks": 32,
    "sm_registers": 65536,
    "sm_shared": 64 * 1024,
}
_FEW_SMS, _MASKED_SMS = 2, 8

_MOST_KERNELS = 4096
_MOST_CYCLES = (1 << 32) - 1
"""Longest time of a kernel."""
_MASK_BITS = 64
_MASK = re.compile(r"(~?)(?:0[xX])?0*([0-9a-fA-F]{1,16})", re.ASCII)
_MOST_DIGITS = 18
_NULL = "NULL stream"


@dataclass
class _Kernel:
    """A kernel of a benchmark. `delay` : cycles from the launch of the previous kernel to its own;
    if it `waits`, from the end of all earlier work of the stream."""

    table: Table
    name: str
    values: dict[str, Any]
    delay: int = 0
    waits: bool = False


@dataclass
class _Benchmark:
    """A benchmark: its name, the kernels of one iteration, and the number of iterations. `null` :
    whether it uses the NULL stream."""

    table: Table
    name: str
    null: bool = False
    kernels: list[_Kernel] = field(default_factory=list)
    iterations: int = 1


def tables(text: str, file: str) -> dict[str, Any]:
    """The tables of a workload file with the content of experiment `text`. `file` names it in
    errors. Raises `WorkloadError`."""
    try:
        content = json.loads(text)
        json.dumps(content, ensure_ascii=False).encode()  # fails for unpaired surrogates
    except (ValueError, RecursionError) as error:
        raise WorkloadError(f"{file}: not JSON: {error}") from error
    if not isinstance(content, dict):
        raise WorkloadError(f"{file}: not a JSON object")
    return _Experiment(Table(file, "the top level", content)).tables()


class _Experiment:
    """An experiment file."""

    def __init__(self, top: Table) -> None:
        top.known(_TOP)
        self._top = top
        self._names = {_NULL}
        """Names of streams."""
        own = Table(top.file, '"signalbox"', _object(top, "signalbox"))
        own.known({"ns_per_cycle", "machine", "comment"})
        self._scale = own.number("ns_per_cycle", NS_PER_CYCLE, 1)
        found = top.tables("benchmarks")
        if not found:
            raise top.error("there are no benchmarks")
        masked = any(_has_masks(table) for table in found)
        self._machine = {
            **_MACHINE,
            "sms": _MASKED_SMS if masked else _FEW_SMS,
            "sm_masks": masked,
            **_object(own, "machine"),
        }
        self._benchmarks = [self._benchmark(table, n) for n, table in enumerate(found, 1)]

    def tables(self) -> dict[str, Any]:
        """The tables of the workload file."""
        kernels: list[dict[str, Any]] = []
        streams: dict[str, dict[str, Any]] = {}
        spaces = []
        for one in self._benchmarks:
            space = {}
            if self._top.flag("use_processes"):
                space = {"space": one.name}
                spaces.append({"name": one.name})
            name = one.name
            if one.null:
                name = _unique(f"{_NULL} of {name}", self._names) if space else _NULL
            priority = _integer(one.table, "stream_priority", 0, -1, 0)
            given = {"name": name, "priority": 0 if one.null else priority, "null": one.null}
            streams.setdefault(name, given | space)
            kernels += self._launches(one, name)
        self._barriers(kernels)
        return {
            "machine": {"channels": max(8, len(streams) + 1), **self._machine},
            "policy": _policy([one["priority"] for one in streams.values()]),
            "space": spaces,
            "stream": [*streams.values()],
            "kernel": [_without_iteration(kernel) for kernel in kernels],
        }

    # Benchmarks

    def _benchmark(self, table: Table, number: int) -> _Benchmark:
        table.known(_BENCHMARK)
        module = table.text("filename", None).rsplit("/", 1)[-1].removesuffix(".so")
        readers = {
            "timer_spin": self._timer,
            "timer_spin_default_stream": self._timer,
            "multikernel": self._multikernel,
            "stream_action": self._actions,
        }
        if module not in readers:
            known = ", ".join(readers)
            raise table.error(f"benchmark {module!r} is not supported; those that are: {known}")
        if table.values.get("mps_thread_percentage", 100) != 100:
            raise table.error("mps_thread_percentage: limits of threads are not supported")
        label = str(table.values.get("label") or f"benchmark {number}")
        name = _unique(label, self._names)
        found = _Benchmark(table, name, null=module.endswith("default_stream"))
        found.iterations = _integer(
            table, "max_iterations", _integer(self._top, "max_iterations", None), 0
        )
        if not found.iterations:
            raise table.error("max_iterations = 0 has no end: give a number of iterations")
        readers[module](found)
        return found

    def _timer(self, benchmark: _Benchmark) -> None:
        table = benchmark.table
        values = self._values(table, table, "additional_info")
        benchmark.kernels.append(_Kernel(table, benchmark.name, values))

    def _multikernel(self, benchmark: _Benchmark) -> None:
        given = benchmark.table.values.get("additional_info")
        if not isinstance(given, list):
            raise benchmark.table.error("additional_info is not a list of kernels")
        for number, item in enumerate(given, 1):
            what = f"{benchmark.table.what}: kernel {number}"
            table = Table(benchmark.table.file, what, _checked(benchmark.table, item))
            table.known(_KERNEL)
            for key in ("copy_in_count", "copy_out_count"):
                if table.values.get(key):
                    raise table.error(f"{key}: copies are not supported")
            delay = self._cycles(table, "delay")
            name = str(table.values.get("kernel_label") or f"{benchmark.name}.{number}")
            values = self._values(table, benchmark.table, "duration")
            benchmark.kernels.append(_Kernel(table, name, values, delay, delay > 0))
        if not given:
            raise benchmark.table.error("additional_info lists no kernel")

    def _actions(self, benchmark: _Benchmark) -> None:
        info = Table(
            benchmark.table.file,
            f"{benchmark.table.what}: additional_info",
            _checked(benchmark.table, benchmark.table.values.get("additional_info")),
        )
        info.known({"use_null_stream", "actions", "comment"})
        benchmark.null = info.flag("use_null_stream")
        waits, delay = False, 0
        for table in info.tables("actions"):
            table.known(_ACTION)
            kind, delay = table.text("type", None), delay + self._cycles(table, "delay")
            if kind == "synchronize":
                if table.values.get("parameters"):
                    raise table.error("parameters: only the stream can be synchronized")
                waits, delay = True, 0
                continue
            if kind != "kernel":
                raise table.error(f"actions of type {kind!r} are not supported")
            options = Table(table.file, table.what, _object(table, "parameters"))
            options.known(_PARAMETERS)
            options.text("type", "timer_spin", ("timer_spin",))
            defaults = {
                key: benchmark.table.values.get(key) for key in ("block_count", "thread_count")
            }
            starts = {"starts": table.values["starts"]} if "starts" in table.values else {}
            whole = Table(table.file, table.what, defaults | dict(options.values) | starts)
            number = len(benchmark.kernels) + 1
            name = str(table.values.get("label") or f"{benchmark.name}.{number}")
            values = self._values(whole, benchmark.table, "duration")
            if delay and not waits and any(one.waits for one in benchmark.kernels):
                raise table.error("delay: needs a synchronize before it, as an earlier action has")
            benchmark.kernels.append(_Kernel(table, name, values, delay, waits))
            waits, delay = False, 0
        if not benchmark.kernels:
            raise benchmark.table.error("its actions have no kernel")

    # Kernels

    def _values(self, table: Table, benchmark: Table, duration: str) -> dict[str, Any]:
        """Keys of a [[kernel]] that do not depend on when it is launched."""
        nanoseconds = table.values.get(duration)
        text = nanoseconds if isinstance(nanoseconds, str) else ""
        if text.isdecimal() and len(text) <= _MOST_DIGITS:
            nanoseconds = int(text)
        if type(nanoseconds) is not int or nanoseconds < 1:
            raise table.error(f"{duration} = {nanoseconds!r} is not a number of nanoseconds")
        cycles = max(1, round(Fraction(nanoseconds, self._scale)))
        if cycles > _MOST_CYCLES:
            raise table.error(f"{duration} = {nanoseconds}: more than {_MOST_CYCLES} cycles")
        values: dict[str, Any] = {
            "kernel": "timing",
            "grid": [*extent(table, "block_count")],
            "block": [*extent(table, "thread_count")],
            "args": {"CYCLES": cycles},
            "shared": 4 * _integer(table, "shared_memory_size", 0),
        }
        mask = table.values.get("sm_mask", benchmark.values.get("sm_mask"))
        if mask is not None:
            values["sms"] = self._sms(table, mask)
        if "starts" in table.values:
            given = table.values["starts"]
            if not isinstance(given, list) or len(given) != 2:
                raise table.error(f"starts = {given!r} is not [first, last], in seconds")
            limits: dict[str, Any] = {"first": given[0], "last": given[1]}
            seconds = Table(table.file, f"{table.what}: starts", limits)
            values["starts"] = [self._cycles(seconds, key) for key in limits]
        return values

    def _sms(self, table: Table, mask: object) -> list[int]:
        """SMs of the machine that a mask does not disable."""
        match = _MASK.fullmatch(mask) if isinstance(mask, str) else None
        if match is None:
            raise table.error(
                f"sm_mask = {mask!r} is not a mask: a string of hexadecimal digits, of "
                f"{_MASK_BITS} bits at most, perhaps with ~ before it"
            )
        named, others = int(match[2], 16), bool(match[1])
        machine = Table(table.file, '"machine"', self._machine)
        sms = machine.number("sms", None, 1, LIMITS["sms"].high)
        disabled = named ^ (1 << _MASK_BITS) - 1 if others else named
        left = [sm for sm in range(sms) if sm >= _MASK_BITS or not disabled >> sm & 1]
        if not left:
            hint = 'set "signalbox": {"machine": {"sms": …}}'
            raise table.error(f"sm_mask = {mask!r} disables all {sms} SMs of the machine: {hint}")
        return left

    def _cycles(self, table: Table, key: str) -> int:
        """A time in seconds as cycles; 0 if it is not given."""
        seconds = table.values.get(key, 0)
        if type(seconds) not in (int, float) or not 0 <= seconds < 1e9:
            raise table.error(f"{key} = {seconds!r} is not a number of seconds")
        cycles = round(seconds * 1e9 / self._scale)
        if cycles > LONGEST:
            raise table.error(f"{key} = {seconds!r}: more than {LONGEST} cycles")
        return cycles

    def _launches(self, benchmark: _Benchmark, stream: str) -> list[dict[str, Any]]:
        """The tables [[kernel]] of all launches of a benchmark, in order. Each iteration begins
        after the end of the one before."""
        at, found = self._cycles(benchmark.table, "release_time"), []
        if len(benchmark.kernels) * benchmark.iterations > _MOST_KERNELS:
            raise benchmark.table.error(f"more than {_MOST_KERNELS} launches")
        if benchmark.iterations > 1 and any("starts" in one.values for one in benchmark.kernels):
            raise benchmark.table.error("starts: several iterations have several starts")
        for iteration in range(benchmark.iterations):
            for number, kernel in enumerate(benchmark.kernels):
                waits = bool(found) and (kernel.waits or number == 0)
                at += 0 if waits else kernel.delay
                turn = f" #{iteration + 1}" if benchmark.iterations > 1 else ""
                found.append({
                    **kernel.values,
                    **({"delay": kernel.delay} if waits else {}),
                    "name": kernel.name + turn,
                    "stream": stream,
                    "at": at,
                    "iteration": (iteration, number == len(benchmark.kernels) - 1),
                })
        return found

    def _barriers(self, kernels: list[dict[str, Any]]) -> None:
        """Make names unique; with "sync_every_iteration", let iterations begin together."""
        seen: set[str] = set()
        for kernel in kernels:
            kernel["name"] = _unique(kernel["name"], seen)
        if not self._top.flag("sync_every_iteration"):
            return
        for kernel in kernels:
            before = kernel["iteration"][0] - 1
            kernel["after"] = [one["name"] for one in kernels if one["iteration"] == (before, True)]


def _has_masks(benchmark: Table) -> bool:
    info = benchmark.values.get("additional_info")
    kernels = info if isinstance(info, list) else []
    return any(isinstance(one, dict) and "sm_mask" in one for one in (benchmark.values, *kernels))


def _unique(name: str, taken: set[str]) -> str:
    """The name, with a number appended if it is taken. Adds the result to `taken`."""
    found, number = name, 2
    while found in taken:
        found, number = f"{name} ({number})", number + 1
    taken.add(found)
    return found


def _policy(priorities: list[int]) -> dict[str, Any]:
    """The table [policy]: a channel per stream, without priorities if all streams have the same
    one."""
    urgent = sum(priority < 0 for priority in priorities)
    if urgent in {0, len(priorities)}:
        return {"kind": "none", "levels": 1, "channels_per_level": [len(priorities)]}
    return {"levels": 2, "channels_per_level": [len(priorities) - urgent, urgent]}


def _without_iteration(kernel: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in kernel.items() if key != "iteration"}


def _integer(table: Table, key: str, default: int | None, low: int = 0, high: int = 1 << 31) -> int:
    return table.number(key, default, low, high)


def _object(table: Table, key: str) -> Mapping[str, Any]:
    value = table.values.get(key, {})
    if not isinstance(value, dict):
        raise table.error(f"{key} is not an object")
    return value


def _checked(table: Table, value: object) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise table.error("additional_info: not an object")
    return value
