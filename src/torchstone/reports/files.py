"""Builds the report files of a run, with the names and fields that users of BackendBench know.

This module writes no files; `runs` does. Equal records give equal bytes.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from typing import Any

import msgspec

from torchstone.reports.case_results import VERDICT_NAMES, CaseResult
from torchstone.reports.markdown import overall_summary
from torchstone.reports.operator_summary import OperatorSummary
from torchstone.reports.summary import Summary
from torchstone.schema import Agrees, Cheated, Crashed, Disagrees, TimedOut, Verdict, explain, verdict_name

OVERALL_SUMMARY = "OVERALL_SUMMARY.md"
OPERATOR_SUMMARY = "operator_summary.csv"
FULL_RESULTS = "full_results.json"
FAILED_TESTS = "failed_tests.json"


def report_files(summary: Summary, results: Sequence[CaseResult]) -> dict[str, bytes]:
    """Every report file by name."""
    rows = [_row(result) for result in results]
    return {
        OVERALL_SUMMARY: overall_summary(summary, results).encode(),
        OPERATOR_SUMMARY: _operator_summary(summary).encode(),
        FULL_RESULTS: _json(rows),
        FAILED_TESTS: _json([row for row in rows if not row["is_correct"]]),
    }


def _json(rows: list[dict[str, Any]]) -> bytes:
    """Indented JSON; msgspec writes null for NaN and infinity."""
    return msgspec.json.format(msgspec.json.encode(rows), indent=2) + b"\n"


def short_name(operator: str) -> str:
    """The operator's name without ATen's namespace, as in other benchmarks: ``relu.default``."""
    return operator.removeprefix("aten.")


def _row(result: CaseResult) -> dict[str, Any]:
    record, verdict = result.record, result.record.verdict
    right = isinstance(verdict, Agrees)
    return {
        "op_name": short_name(record.case.operator),
        "operator": record.case.operator,
        "backend": record.implementation.backend,
        "args": record.case.label,
        "test_type": "performance" if record.case.timed else "correctness",
        "verdict": verdict_name(verdict),
        "is_correct": right,
        "error_msg": None if right else explain(verdict),
        "error_type": _error_type(verdict),
        "traceback": verdict.traceback if isinstance(verdict, Crashed) else None,
        "log_tail": record.log_tail or None,
        "max_abs_error": result.errors.max_abs_error,
        "max_rel_error": result.errors.max_rel_error,
        "worst_over_bound": result.errors.worst_over_bound,
        **_speed_fields(result),
        **_limit_fields(result),
        **_circumstance_fields(result),
        "device": record.device,
        "device_model": record.device_model,
        "device_uuid": record.device_uuid,
        "node": record.node,
        "implementation": record.implementation.where,
        "implementation_key": record.implementation.key,
        "isolation": list(record.isolation.active),
        "job_key": record.job_key,
    }


def _speed_fields(result: CaseResult) -> dict[str, Any]:
    """Times in milliseconds and ratios; speedups and their times are null where they are unresolved."""
    timing, speedup = result.timing, result.speedup
    return {
        "speedup": speedup.ratio if speedup else None,
        "speedup_low": speedup.low if speedup else None,
        "speedup_high": speedup.high if speedup else None,
        "outcome": speedup.outcome if speedup else None,
        "minimum_detectable_effect": speedup.minimum_detectable_effect if speedup else None,
        "capped": (speedup.capped or None) if speedup else None,
        "benchmark_time_ms": timing.candidate_ns / 1e6 if timing and speedup else None,
        "reference_time_ms": timing.reference_ns / 1e6 if timing and speedup else None,
        "baseline": _baseline(result),
        "clocked": timing.clocked if timing else None,
        "benchmark_call_time_ms": _milli(timing.candidate_call_ns) if timing else None,
        "reference_call_time_ms": _milli(timing.reference_call_ns) if timing else None,
        "unresolved": timing.unresolved or None if timing else None,
    }


def _baseline(result: CaseResult) -> str | None:
    return None if result.record.measurement is None else result.record.measurement.baseline


def _milli(nanoseconds: float | None) -> float | None:
    return None if nanoseconds is None else nanoseconds / 1e6


def _limit_fields(result: CaseResult) -> dict[str, Any]:
    """The device's limit and the share of it that was reached; null without a resolved time."""
    reached, measured = result.attainment, result.record.measurement
    light = measured.speed_of_light if measured is not None else None
    return {
        "of_limit_percent": reached.candidate_percent if reached else None,
        "reference_of_limit_percent": reached.reference_percent if reached else None,
        "over_limit": reached.over_limit if reached else None,
        "bound": reached.bound if reached else None,
        "limit_time_ms": reached.limit_ns / 1e6 if reached else None,
        "gigabytes_per_second": reached.candidate_bytes_per_second / 1e9 if reached else None,
        "reference_gigabytes_per_second": reached.reference_bytes_per_second / 1e9 if reached else None,
        "gigaflops_per_second": _giga(reached.candidate_flops_per_second) if reached else None,
        "reference_gigaflops_per_second": _giga(reached.reference_flops_per_second) if reached else None,
        "min_bytes": light.min_bytes if light else None,
        "flops": light.flops if light else None,
        "flops_counted": light.flops_counted if light else None,
    }


def _circumstance_fields(result: CaseResult) -> dict[str, Any]:
    """Memory, energy and disturbances; null where they were not measured."""
    found, measured = result.record.attribution, result.record.measurement
    return {
        "peak_memory_bytes": found.peak_memory_bytes if found else None,
        "reference_peak_memory_bytes": found.reference_peak_memory_bytes if found else None,
        "energy_millijoules": measured.energy_millijoules if measured else None,
        "disturbed_rounds": len(measured.disturbances) if measured else None,
    }


def _giga(value: float | None) -> float | None:
    return None if value is None else value / 1e9


def _error_type(verdict: Verdict) -> str | None:
    """The class of the exception, or a word for the kind of failure; None if the case agrees."""
    match verdict:
        case Agrees():
            return None
        case Crashed(kind="exception", message=message):
            found = re.match(r"[A-Za-z_][\w.]*(?=:|$)", message)
            return found.group() if found else "exception"
        case Crashed(kind=kind):
            return kind
        case Disagrees(reason=reason):
            return reason
        case Cheated(guard=guard):
            return guard
        case TimedOut():
            return "timeout"
        case _:
            return verdict_name(verdict)


_COLUMNS = (
    "operator", "total_tests", "correctness_tests", "performance_tests", "passed_correctness_tests",
    "passed_performance_tests", "failed_correctness_tests", "failed_performance_tests", "correctness_rate",
    "avg_speedup", "geomean_speedup", "max_absolute_error", "max_relative_error", "speedup_low", "speedup_high",
    "unresolved_performance_tests", "candidate_time_ms", "reference_time_ms", "worst_over_bound",
    "of_limit_percent", "reference_of_limit_percent", "bound", "over_limit_tests", *VERDICT_NAMES,
)  # fmt: skip


def _operator_summary(summary: Summary) -> str:
    text = io.StringIO()
    columns = ("operator", "backend", *_COLUMNS[1:], "best") if summary.compares else _COLUMNS
    writer = csv.DictWriter(text, columns, lineterminator="\n", extrasaction="ignore")
    writer.writeheader()
    writer.writerows(_operator_row(item) for item in summary.operators)
    return text.getvalue()


def _operator_row(item: OperatorSummary) -> dict[str, Any]:
    tested = item.cases - item.excused
    passed = item.counts.get("agrees", 0)
    return {
        "operator": short_name(item.operator),
        "backend": item.backend,
        "best": item.best,
        "total_tests": item.cases,
        "correctness_tests": tested,
        "performance_tests": item.timed_cases,
        "passed_correctness_tests": passed,
        "passed_performance_tests": item.measured_cases,
        "failed_correctness_tests": tested - passed,
        "failed_performance_tests": item.timed_cases - item.measured_cases,
        "correctness_rate": item.correctness,
        "avg_speedup": item.average_speedup,
        "geomean_speedup": item.geomean_speedup,
        "max_absolute_error": item.max_abs_error,
        "max_relative_error": item.max_rel_error,
        "speedup_low": item.speedup_low,
        "speedup_high": item.speedup_high,
        "unresolved_performance_tests": item.measured_cases - item.resolved_cases,
        "candidate_time_ms": None if item.candidate_ns is None else item.candidate_ns / 1e6,
        "reference_time_ms": None if item.reference_ns is None else item.reference_ns / 1e6,
        "worst_over_bound": item.worst_over_bound,
        "of_limit_percent": item.of_limit_percent,
        "reference_of_limit_percent": item.reference_of_limit_percent,
        "bound": "/".join(item.bounds) or None,
        "over_limit_tests": item.over_limit_cases,
        **{name: item.counts.get(name, 0) for name in VERDICT_NAMES},
    }
