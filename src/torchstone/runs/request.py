"""Holds the options of a run, and checks them before anything is started."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from torchstone import registry
from torchstone.errors import UsageError, unknown_name
from torchstone.schema import (
    Baseline,
    Cache,
    Case,
    Deadlines,
    Effort,
    IsolationLevel,
    Limits,
    NonFiniteInputs,
    ResultReading,
    Shapes,
)
from torchstone.suites import Mode
from torchstone.suites.recorded_call_files import HUB, identity_of

DTYPES = (
    "float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz",
    "complex32", "complex64", "complex128", "int64", "int32", "int16", "int8", "uint64", "uint32", "uint16", "uint8",
    "bool",
)  # fmt: skip

DTYPE_ALIASES = {
    "f64": "float64", "fp64": "float64", "double": "float64", "f32": "float32", "fp32": "float32", "float": "float32",
    "f16": "float16", "fp16": "float16", "half": "float16", "bf16": "bfloat16", "c64": "complex64",
    "c128": "complex128", "i64": "int64", "long": "int64", "i32": "int32", "int": "int32", "i16": "int16",
    "i8": "int8", "u8": "uint8", "b8": "bool",
}  # fmt: skip

OUTPUT_DIR = Path("torchstone_runs")
"""Default folder in which run folders are made."""

IDENTITY = (
    "suite",
    "case",
    "backend",
    "operators",
    "dtypes",
    "source",
    "largest",
    "sample",
    "mode",
    "overhead_dominated",
    "expression",
    "case_keys",
    "device",
    "effort",
    "measured",
    "require_authored",
    "threads",
    "cache",
    "shapes",
    "non_finite",
    "gpu",
    "results",
    "baseline",
)
"""The options that must not change when a run is resumed."""

LATER_PARTS = {
    "mode": "fwd",
    "overhead_dominated": False,
    "shapes": "near",
    "non_finite": "check",
    "gpu": "",
    "results": "read",
    "baseline": "eager",
}
"""Options that manifests of earlier versions do not have, with the values that such runs had."""


_LEAST_MEMORY_BYTES = 256 << 20
"""Least memory limit of a worker. Below it torch's own kernels crash: on the CPU, addmm needs 224 to 256 MiB."""
_LEAST_PROCESSES = 2
"""Least limit on processes: the worker and its warden."""


class RunRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The options of one run, from the command line or the API."""

    suite: str = "smoke"
    case: Case | None = None
    """Judge on this case alone instead of a suite's cases."""
    backend: str | tuple[str, ...] = "aten"
    """Where the kernels come from. Several names: all of them are judged in this run and compared."""
    operators: tuple[str, ...] | None = None
    """Overload or base names; None: all operators of the suite."""
    kernels_dir: Path | None = None
    """Folder of kernels, for backends that read one."""
    device: str = "auto"
    """``auto``, ``cpu``, ``cuda`` or ``cuda:N``."""
    dtypes: tuple[str, ...] | None = None
    """torch dtype names; None: the suite's own choice."""
    source: str | None = None
    """Path or ``hf://…`` of the file from which a suite reads its cases; None: the suite's own file."""
    mode: Mode = "fwd"
    """Whether results are judged, gradients, or both."""
    largest: int | None = None
    """Only this many cases of each operator, those with the most bytes of arguments."""
    sample: int | None = None
    """Only this many cases in all, taken from every operator in turn."""
    overhead_dominated: bool = False
    """Only calls that take about as long as a kernel launch."""
    expression: str | None = None
    """Only cases whose operator or label matches this expression: ``relu and not bf16``."""
    case_keys: tuple[str, ...] | None = None
    """Only the cases with these keys: those that failed in an earlier run."""
    effort: Effort = "normal"
    cache: Cache = "cold"
    """Whether the arguments of timed calls lie in the device's cache."""
    shapes: Shapes = "near"
    """`stated`: judge only on the suite's own sizes and memory layouts."""
    non_finite: NonFiniteInputs = "check"
    """`ignore`: do not call pointwise operators with NaN and infinities among their inputs."""
    baseline: Baseline = "eager"
    """What is timed as the reference: torch's operator in eager mode, or under torch.compile. Results are always
    compared with eager mode."""
    run_id: str | None = None
    """Name of the run's folder; None: a name is made from the time."""
    resume: bool = False
    """Continue the run with that id, and keep its records."""
    fail_fast: bool = False
    """Stop after the first case whose verdict makes the run fail, see `fails`."""
    output_dir: Path = OUTPUT_DIR
    """Where run folders are made."""
    isolation: IsolationLevel = "best"
    deadlines: Deadlines = Deadlines()
    try_every_case: bool = False
    """Try every case of a kernel, also after two of them timed out in the same stage."""
    limits: Limits = Limits()
    executor: str = "local"
    """Name of the executor that brings the jobs to judges."""
    ray_address: str = "auto"
    """Address of the cluster, for the executor `ray`."""
    gpu: str = ""
    """Type of GPU to judge on, for executors that have several: ``H100``."""
    results: ResultReading = "read"
    """`copied`: the kernel's process copies its results; the judge reads none of its memory and uses no CUDA IPC."""
    threads: int = 1
    """Number of CPU threads, the same for candidate and reference."""
    judges: int = 1
    """Number of judges on each device."""
    measured: bool = True
    """False: cases are only checked, not timed."""
    require_authored: bool = False
    """Kernels that leave the work to torch or to a library get the verdict `delegated`."""
    command: tuple[str, ...] = ()
    """The command line of this run, for the summary; empty if a program started it."""

    @property
    def backends(self) -> tuple[str, ...]:
        """The names of the backends, as a tuple even if there is one only."""
        return (self.backend,) if isinstance(self.backend, str) else self.backend


def canonical_dtypes(names: Iterable[str]) -> tuple[str, ...]:
    """torch's names of the dtypes that a user names (``bf16``, ``torch.float32``), each once."""
    found: dict[str, None] = {}
    for name in names:
        bare = name.strip().removeprefix("torch.")
        dtype = DTYPE_ALIASES.get(bare, bare)
        if dtype not in DTYPES:
            raise unknown_name("dtype", name, (*DTYPES, *DTYPE_ALIASES))
        found[dtype] = None
    return tuple(found)


def check(request: RunRequest) -> RunRequest:
    """The request with canonical names instead of aliases. Raises UsageError for invalid options."""
    if request.threads < 1:
        raise UsageError(f"threads is {request.threads}; it must be 1 or more.")
    if request.largest is not None and request.largest < 1:
        raise UsageError(f"largest is {request.largest}; it must be 1 or more.")
    if request.sample is not None and request.sample < 1:
        raise UsageError(f"sample is {request.sample}; it must be 1 or more.")
    if request.judges < 1:
        raise UsageError(f"judges is {request.judges}; it must be 1 or more.")
    for stage, seconds in msgspec.structs.asdict(request.deadlines).items():
        if not 0 < seconds < float("inf"):
            raise UsageError(f"{stage} is {seconds:g}; a deadline must be above 0.")
    _require_room_for_a_worker(request.limits)
    check_run_id(request.run_id, request.resume)
    return msgspec.structs.replace(
        request,
        suite=registry.suites.canonical(request.suite),
        backend=_canonical_backend(request.backends),
        operators=None if request.operators is None else tuple(dict.fromkeys(request.operators)),
        dtypes=None if request.dtypes is None else canonical_dtypes(request.dtypes),
    )


def _require_room_for_a_worker(limits: Limits) -> None:
    """Raise UsageError for limits under which torch's own kernels would crash."""
    if limits.memory_bytes < _LEAST_MEMORY_BYTES:
        raise UsageError(
            f"the memory limit is {limits.memory_bytes} bytes; a worker needs {_LEAST_MEMORY_BYTES >> 20} MiB or more. "
            "Write --memory-limit 8GiB, or Limits(memory_bytes=8 << 30)."
        )
    if limits.processes < _LEAST_PROCESSES:
        raise UsageError(
            f"the process limit is {limits.processes}; a worker and its warden need {_LEAST_PROCESSES} or more."
        )


def _canonical_backend(names: tuple[str, ...]) -> str | tuple[str, ...]:
    """The canonical names, each once; a single one as a string."""
    found = tuple(dict.fromkeys(registry.backends.canonical(name) for name in names))
    if not found:
        raise UsageError("no backend is named. Name at least one, for example aten.")
    return found[0] if len(found) == 1 else found


def check_run_id(run_id: str | None, resume: bool) -> None:
    """Raise UsageError for a run id that is not a plain folder name, and for ``resume`` without a run id."""
    if run_id is not None and not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,127}", run_id):
        raise UsageError(f"run id '{run_id}' is not a plain folder name. Use letters, digits, '_', '-', '.', '+'.")
    if resume and run_id is None:
        raise UsageError("resume needs a run id. Give the id of the run to continue.")


def configuration(request: RunRequest, device: str) -> dict[str, Any]:
    """The request's options that a manifest keeps: those that can change results, not those of the output."""
    return {
        "suite": request.suite,
        "case": None if request.case is None else request.case.key,
        "case_recipe": None if request.case is None else msgspec.to_builtins(request.case),
        "backend": request.backend if isinstance(request.backend, str) else sorted(request.backend),
        "operators": None if request.operators is None else sorted(request.operators),
        "dtypes": None if request.dtypes is None else sorted(request.dtypes),
        "source": identity_of(request.source),
        "source_path": _absolute_source(request.source),
        "largest": request.largest,
        "sample": request.sample,
        "mode": request.mode,
        "overhead_dominated": request.overhead_dominated,
        "expression": request.expression,
        "case_keys": None if request.case_keys is None else sorted(request.case_keys),
        "kernels_dir": None if request.kernels_dir is None else str(request.kernels_dir.absolute()),
        "device": device,
        "effort": request.effort,
        "cache": request.cache,
        "shapes": request.shapes,
        "non_finite": request.non_finite,
        "baseline": request.baseline,
        "measured": request.measured,
        "require_authored": request.require_authored,
        "threads": request.threads,
        "judges": request.judges,
        "executor": request.executor,
        "ray_address": request.ray_address,
        "gpu": request.gpu,
        "results": request.results,
        "isolation": request.isolation,
        "deadlines": msgspec.to_builtins(request.deadlines),
        "try_every_case": request.try_every_case,
        "limits": msgspec.to_builtins(request.limits),
    }


def _absolute_source(source: str | None) -> str | None:
    """The source as an absolute path, which stays valid when the run is resumed from another folder."""
    return source if source is None or source.startswith(HUB) else str(Path(source).absolute())
