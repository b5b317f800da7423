"""Checks a run against a file of expected speedups per hardware, and updates that file, which can be committed."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from torchstone.atomic_files import write_atomically
from torchstone.errors import UsageError
from torchstone.harness.changes_between_runs import Estimate, speedup_estimate
from torchstone.harness.report import PairsReport
from torchstone.reports.safe_text import natural
from torchstone.schema import decode, encode

FILE = "expectations.json"
FORMAT = 1

ExpectationStatus = Literal["met", "improved", "regressed", "new", "undecided", "skipped"]
"""`undecided`: too few samples for an interval. `skipped`: the pair was skipped or not run here."""


class Expected(msgspec.Struct, frozen=True, kw_only=True):
    """The expected speedup of a pair, and the run that set it."""

    speedup: float
    speedup_low: float
    """Lower end of the 95 % interval in the run that set it."""
    speedup_high: float
    optimized_ms: float | None = None
    """Median time in that run, for information. Only the speedup is checked."""
    run_id: str = ""
    commit: str = ""
    """Commit of the tree that was run, if it is a git repository."""


class Expectations(msgspec.Struct, frozen=True, kw_only=True):
    """Content of the file."""

    hardware: dict[str, dict[str, Expected]] = {}
    """Hardware key (`NVIDIA H200 (9.0)`, or the CPU's model name) -> pair -> expectation."""
    format: int = FORMAT


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """One pair against its expectation."""

    name: str
    finding: ExpectationStatus
    expected: float | None
    speedup: float | None
    ratio: Estimate | None
    """Speedup of the run over the expected one."""
    reason: str = ""


def read_expectations(path: Path) -> Expectations:
    """Read the file. A missing file has no expectations."""
    try:
        found = decode(path.read_bytes(), Expectations)
    except FileNotFoundError:
        return Expectations()
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}.") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not a file of expectations ({error}). Name another with --file.") from error
    if found.format > FORMAT:
        raise UsageError(f"{path} has format {found.format}; this torchstone reads up to {FORMAT}. Use a newer one.")
    return found


def write_expectations(path: Path, expectations: Expectations) -> None:
    """Replace the file in one step, with sorted keys, so that a diff shows what changed."""
    try:
        write_atomically(path, msgspec.json.format(encode(expectations)) + b"\n")
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}. Name another with --file.") from error


def hardware_of(report: PairsReport) -> str:
    """The key under which this run's expectations are kept."""
    return str(report.manifest.configuration.get("hardware_key") or report.manifest.hardware.cpu)


def check_run(report: PairsReport, expectations: Expectations, threshold_pct: float = 5.0) -> tuple[Checked, ...]:
    """Check every pair of the run, and every expected pair that was planned but not run."""
    expected = expectations.hardware.get(hardware_of(report), {})
    checked = [_check(record.name, report, expected.get(record.name), threshold_pct) for record in report.pairs]
    checked += [_unreached(pair.name, expected.get(pair.name)) for pair in report.not_run if pair.name in expected]
    return tuple(sorted(checked, key=lambda each: natural(each.name)))


def update(report: PairsReport, expectations: Expectations, checked: tuple[Checked, ...]) -> Expectations:
    """The expectations with new values for pairs that are new, improved or regressed in this run.

    A met expectation keeps its value. Otherwise small losses within the threshold would add up unnoticed.
    """
    key = hardware_of(report)
    records = {record.name: record for record in report.pairs}
    changed: dict[str, Expected] = {}
    for each in checked:
        record = records.get(each.name)
        found = None if record is None else speedup_estimate(record)
        if record is None or found is None or each.finding not in ("new", "improved", "regressed"):
            continue
        timing = record.comparison.optimized.timing
        changed[each.name] = Expected(
            speedup=_rounded(found.ratio),
            speedup_low=_rounded(found.low),
            speedup_high=_rounded(found.high),
            optimized_ms=None if timing is None else _rounded(timing.median_ms),
            run_id=report.run_id,
            commit="" if report.manifest.git is None else report.manifest.git.commit,
        )
    kept = expectations.hardware.get(key, {})
    return Expectations(hardware={**expectations.hardware, key: {**kept, **changed}})


def _check(name: str, report: PairsReport, expected: Expected | None, threshold_pct: float) -> Checked:
    record = next(record for record in report.pairs if record.name == name)
    found = speedup_estimate(record)
    was = None if expected is None else expected.speedup
    if record.status == "skipped":
        return Checked(name=name, finding="skipped", expected=was, speedup=None, ratio=None, reason="skipped")
    if record.status == "failed":
        finding: ExpectationStatus = "new" if expected is None else "regressed"
        return Checked(name=name, finding=finding, expected=was, speedup=None, ratio=None, reason="the pair failed")
    speedup = record.comparison.speedup
    if found is None:
        reason = "too few samples for an interval"
        return Checked(name=name, finding="undecided", expected=was, speedup=speedup, ratio=None, reason=reason)
    if expected is None:
        return Checked(name=name, finding="new", expected=None, speedup=speedup, ratio=None)
    ratio = found.over(Estimate(expected.speedup, expected.speedup_low, expected.speedup_high))
    return Checked(name=name, finding=_finding(ratio, threshold_pct), expected=was, speedup=speedup, ratio=ratio)


def _finding(ratio: Estimate, threshold_pct: float) -> ExpectationStatus:
    limit = 1 + threshold_pct / 100
    if ratio.is_below(1 / limit):
        return "regressed"
    return "improved" if ratio.is_above(limit) else "met"


def _unreached(name: str, expected: Expected | None) -> Checked:
    was = None if expected is None else expected.speedup
    return Checked(name=name, finding="skipped", expected=was, speedup=None, ratio=None, reason="not run")


def _rounded(value: float) -> float:
    """Four significant digits: more would only make noise in a diff."""
    return float(f"{value:.4g}")
