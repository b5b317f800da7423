"""Shared code of ncu and nsys: runs a process under the tool, keeps its report, reads its table."""

from __future__ import annotations

import contextlib
import math
import os
import stat
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import msgspec

from torchstone.profiling.base import LOG_CHARACTERS, Subject, unavailable, with_kernels
from torchstone.profiling.external_tools import Ended, find_tool, run, version_of
from torchstone.profiling.subject_messages import (
    MOST_OUTCOME_BYTES,
    ORDER,
    OUTCOME_FILE,
    BenchmarkFile,
    ProfileOrder,
    ProfileOutcome,
)
from torchstone.protocol.worker_environment import clean_environment
from torchstone.runs.folder import writing_to
from torchstone.schema import ProfiledKernel, ProfilerResult, decode, encode

UNSANDBOXED = (
    "the kernel runs outside the sandbox, with your rights, because {name} must inject itself and write. "
    "Profile only code you trust; --isolation strict leaves {name} out."
)
_MOST_REPORT_BYTES = 2 << 30
_MOST_TABLE_BYTES = 64 << 20
_READ_SECONDS = 120.0
_GRACE_SECONDS = 30


class UnreadableTableError(Exception):
    """The tool's table has an unexpected form; the text describes it."""


class Tool(NamedTuple):
    """One external profiler."""

    name: str
    product: str
    suffix: str
    """File name suffix of its reports."""
    launching: Callable[[str, Path], list[str]]
    """(tool, report without suffix) -> beginning of the command line; the subject's command follows."""
    reading: Callable[[str, Path], list[str]]
    """(tool, report) -> command that prints the table of the report."""
    parse: Callable[[str], list[ProfiledKernel]]
    """Printed table -> kernels. Raises UnreadableTableError."""
    refusals: dict[str, str]
    """Text that the tool prints if the machine refuses -> advice."""


def caution(tool: Tool, subject: Subject) -> str:
    """Warning for the user before the kernel runs; empty if the tool will not run."""
    return "" if _why_unusable(tool, subject) is not None else UNSANDBOXED.format(name=tool.name)


def profile_with(tool: Tool, subject: Subject) -> ProfilerResult:
    """Profile the subject with the tool, unless the tool cannot be used."""
    obstacle = _why_unusable(tool, subject)
    if obstacle is not None:
        return obstacle
    path = find_tool(tool.name)
    assert path is not None, "an obstacle otherwise"
    return launch(tool, path, subject)


def _why_unusable(tool: Tool, subject: Subject) -> ProfilerResult | None:
    if find_tool(tool.name) is None:
        notice = f"not on this machine. Install NVIDIA {tool.product}, or put {tool.name} on the PATH."
        return ProfilerResult(tool.name, "absent", notice)
    if subject.device.kind != "cuda":
        return unavailable(tool.name, "it profiles CUDA kernels only, and the device is the CPU. Use --device cuda.")
    if subject.isolation == "strict":
        return unavailable(tool.name, "--isolation strict: it cannot profile a kernel in the sandbox. Use best.")
    return None


def launch(tool: Tool, path: str, subject: Subject) -> ProfilerResult:
    """Run the subject under the program at this path, keep its report, read its table."""
    with tempfile.TemporaryDirectory(prefix="torchstone-profile-", ignore_cleanup_errors=True) as folder:
        scratch = Path(folder)
        environment = _environment(subject, scratch)
        version = version_of(path, environment, scratch)
        if version is None:
            return ProfilerResult(tool.name, "absent", f"{path} does not start. Reinstall NVIDIA {tool.product}.")
        ended = _run_subject(tool, path, subject, scratch, environment)
        result = ProfilerResult(
            tool.name, "profiled", version=version, log_tail=ended.output[-LOG_CHARACTERS:], sandboxed=False
        )
        report = scratch / f"report{tool.suffix}"
        refusal = "" if _is_plain_file(report) else _refusal(tool, ended)
        if refusal:
            return msgspec.structs.replace(result, status="unavailable", notice=refusal)
        failure = _failure(ended, subject, scratch)
        if failure:
            return msgspec.structs.replace(result, status="failed", notice=failure)
        if not _is_plain_file(report):
            return msgspec.structs.replace(result, status="unavailable", notice=_no_report(ended))
        return _read(tool, path, report, subject, environment, result)


def _environment(subject: Subject, scratch: Path) -> dict[str, str]:
    """Environment of the process: that of a worker's zygote, with homes and caches in the scratch folder.

    A benchmark gets the user's environment. The locale writes numbers with decimal points.
    """
    if isinstance(subject.what, BenchmarkFile):
        return {**os.environ, "LC_ALL": "C.UTF-8", **subject.what.variables}
    home = scratch / "home"
    home.mkdir(exist_ok=True)
    own = dict.fromkeys(("HOME", "TMPDIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME"), str(home))
    return {
        **clean_environment(os.environ),
        **own,
        "USER": "candidate",
        "LC_ALL": "C.UTF-8",
        **subject.device.environment(),
    }


def _run_subject(tool: Tool, path: str, subject: Subject, scratch: Path, environment: dict[str, str]) -> Ended:
    order = ProfileOrder(
        subject.what,
        subject.device.kind,
        calls=subject.calls,
        warmup_calls=subject.warmup_calls,
        threads=subject.threads,
        seconds=math.ceil(subject.seconds) + _GRACE_SECONDS,
        file_bytes=subject.limits.file_bytes,
    )
    (scratch / ORDER).write_bytes(encode(order))
    python = [sys.executable, "-P", "-m", "torchstone.profiling.subject", str(scratch / ORDER)]
    command = [*tool.launching(path, scratch / "report"), *python]
    folder = Path.cwd() if isinstance(subject.what, BenchmarkFile) else scratch
    return run(command, environment, folder, subject.seconds)


def _failure(ended: Ended, subject: Subject, scratch: Path) -> str:
    """Why the kernel or benchmark failed, as its process reported; empty if it finished or never began."""
    is_benchmark = isinstance(subject.what, BenchmarkFile)
    if ended.exit_code is None:
        advice = "" if is_benchmark else " Allow more with --timeout, or profile fewer calls (--calls)."
        return f"it did not end within {subject.seconds:g} s.{advice}"
    outcome = _outcome(scratch / OUTCOME_FILE)
    what = "benchmark" if is_benchmark else "kernel"
    return f"the {what} failed: {outcome.message}" if outcome is not None and not outcome.done else ""


def _outcome(path: Path) -> ProfileOutcome | None:
    if not _is_plain_file(path) or path.stat().st_size > MOST_OUTCOME_BYTES:
        return None
    with contextlib.suppress(msgspec.MsgspecError, RecursionError, UnicodeDecodeError, OSError):
        return decode(path.read_bytes(), ProfileOutcome)
    return None


def _is_plain_file(path: Path) -> bool:
    """Whether the path is a regular file, not a link. The kernel can write there and could link to a user's file."""
    with contextlib.suppress(OSError):
        return stat.S_ISREG(path.lstat().st_mode)
    return False


def _refusal(tool: Tool, ended: Ended) -> str:
    """Advice if the tool printed a known refusal of the machine; else empty."""
    return next((advice for mark, advice in tool.refusals.items() if mark in ended.output), "")


def _no_report(ended: Ended) -> str:
    lines = [line.strip() for line in ended.output.splitlines() if line.strip()]
    told = [line for line in lines if "error" in line.lower() or "warning" in line.lower()] or lines
    last = f" It printed: {told[-1]}" if told else ""
    return f"it made no report (exit code {ended.exit_code}).{last}"


def _read(
    tool: Tool, path: str, report: Path, subject: Subject, environment: dict[str, str], result: ProfilerResult
) -> ProfilerResult:
    """Keep the report and read its table. The report is kept even if its table cannot be read."""
    if report.stat().st_size > _MOST_REPORT_BYTES:
        notice = f"its report has {report.stat().st_size >> 20} MiB and was not kept. Profile fewer calls (--calls)."
        return msgspec.structs.replace(result, status="failed", notice=notice)
    name = f"{tool.name}{tool.suffix}"
    with writing_to(subject.folder, "profile folder"):
        _copy(report, subject.folder / name)
    kept = msgspec.structs.replace(result, files=(name,))
    told = run(tool.reading(path, report), environment, report.parent, _READ_SECONDS, _MOST_TABLE_BYTES)
    try:
        kernels = tool.parse(told.output)
    except UnreadableTableError as error:
        return msgspec.structs.replace(kept, notice=f"the report is kept, its table cannot be read: {error}.")
    return with_kernels(kept, kernels)


def _copy(source: Path, target: Path) -> None:
    """Copy a file; raises if it has become a link."""
    descriptor = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file, target.open("wb") as copy:
        while data := file.read(1 << 20):
            copy.write(data)
