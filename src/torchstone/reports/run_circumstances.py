"""Collects what a run's summary says about its circumstances: date, machine, versions, git commit and command."""

from __future__ import annotations

import math
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from itertools import pairwise

import msgspec

from torchstone.reports.safe_text import byte_size, counted, duration
from torchstone.schema import Git, Hardware, Record, RunDescription, RunPart, Software

_COMMIT_DIGITS = 12
_PACKAGES = ("torch", "triton")
"""Packages whose versions a summary shows. The manifest has those of all packages."""


class RunCircumstances(msgspec.Struct, frozen=True):
    """The circumstances of a run that its figures depend on."""

    began: str | None
    """Start of the run, ISO 8601, UTC. None: the folder has no plan."""
    duration_seconds: float | None
    """Sum over the parts of the run, each from its start to its end, or to its last record if it was killed."""
    suite: str
    backends: tuple[str, ...]
    device: str
    """The device of the request; ``cuda`` means every visible GPU."""
    machine: str
    """Processor, cores, memory and GPUs."""
    versions: dict[str, str]
    """Versions of torchstone, python, torch, triton, CUDA and the driver, if they are installed."""
    git: str | None
    """Commit and branch of the folder in which the run was started; None: it is in no repository."""
    commands: tuple[str, ...]
    """Command lines that started and resumed the run; empty texts for runs from Python."""
    planned_cases: int | None
    """None: the folder has no plan."""


def backends_in(description: RunDescription) -> tuple[str, ...]:
    """The names of the run's backends, as the request gives them."""
    told = description.manifest.configuration.get("backend", "")
    return tuple(map(str, told)) if isinstance(told, list | tuple) else (str(told),)


def circumstances_of(description: RunDescription, records: Iterable[Record]) -> RunCircumstances:
    """The circumstances of a run. The records only show when parts that were killed ended."""
    manifest, planned = description.manifest, description.planned
    parts = planned.parts if planned is not None else ()
    return RunCircumstances(
        began=_date(parts[0].began_unix_ns) if parts else None,
        duration_seconds=_seconds(parts, [record.finished_unix_ns for record in records]),
        suite=str(manifest.configuration.get("suite", "")),
        backends=backends_in(description),
        device=str(manifest.configuration.get("device", "")),
        machine=_machine(manifest.hardware),
        versions=_versions(manifest.software),
        git=_git(manifest.git),
        commands=tuple(shlex.join(part.command) for part in parts),
        planned_cases=planned.total if planned is not None else None,
    )


def _date(unix_ns: int) -> str:
    return datetime.fromtimestamp(unix_ns // 10**9, UTC).isoformat()


def _seconds(parts: tuple[RunPart, ...], finished: list[int]) -> float | None:
    """The duration of all parts. The time between parts does not count."""
    begins = [*(part.began_unix_ns for part in parts), math.inf]
    total = 0.0
    for part, (began, following) in zip(parts, pairwise(begins), strict=True):
        last_record = max((moment for moment in finished if began <= moment < following), default=began)
        total += (part.ended_unix_ns or last_record) - began
    return round(total / 1e9, 3) if total else None


def _machine(hardware: Hardware) -> str:
    gpus = Counter(f"{gpu.name} ({byte_size(gpu.memory_bytes)})" for gpu in hardware.gpus)
    told = [f"{count} x {name}" if count > 1 else name for name, count in gpus.items()]
    cores = counted(hardware.cpu_cores, "core")
    return ", ".join((hardware.cpu, cores, byte_size(hardware.memory_bytes), *told))


def _versions(software: Software) -> dict[str, str]:
    packages = {name: software.packages[name] for name in _PACKAGES if name in software.packages}
    rest = {"cuda": software.cuda, "driver": software.driver}
    known = {name: version for name, version in rest.items() if version}
    return {"torchstone": software.torchstone, "python": software.python, **packages, **known}


def _git(state: Git | None) -> str | None:
    if state is None:
        return None
    return f"{state.commit[:_COMMIT_DIGITS]} on {state.branch}" + (", tracked files changed" if state.dirty else "")


def circumstance_lines(circumstances: RunCircumstances, not_judged: int | None) -> Iterator[tuple[str, str]]:
    """A name and a text for each line of a heading. The last line always gives the number of cases not judged."""
    when = [circumstances.began.replace("T", " ").replace("+00:00", " UTC")] if circumstances.began else []
    when += [duration(circumstances.duration_seconds)] if circumstances.duration_seconds is not None else []
    when += [f"resumed {counted(len(circumstances.commands) - 1, 'time')}"] if len(circumstances.commands) > 1 else []
    if when:
        yield "date", ", ".join(when)
    backends = f"backend{'s' if len(circumstances.backends) > 1 else ''} {', '.join(circumstances.backends)}"
    yield "judged", f"suite {circumstances.suite}, {backends}, device {circumstances.device}"
    yield "machine", circumstances.machine
    yield "versions", ", ".join(f"{name} {version}" for name, version in circumstances.versions.items())
    yield "git", circumstances.git or "no repository"
    if any(circumstances.commands):
        yield "command", next(filter(None, circumstances.commands))
    yield "not judged", _not_judged(circumstances.planned_cases, not_judged)


def _not_judged(planned: int | None, not_judged: int | None) -> str:
    if planned is None or not_judged is None:
        return "unknown: there is no plan.json (an older version made this run, or it was stopped before its plan)"
    if not not_judged:
        return f"none of {counted(planned, 'case')}"
    return f"{not_judged} of {counted(planned, 'case')}: the run was stopped before them, or is still going on"
