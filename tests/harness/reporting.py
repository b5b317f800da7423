"""Reports made from fake comparisons, without a run."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from torchstone.harness.discovery import Problem
from torchstone.harness.plan import PlannedPair
from torchstone.harness.report import PairsReport, make_report
from torchstone.harness.results import Comparison, PairRecord
from torchstone.schema import Git, Hardware, Manifest, Software


def manifest(commit: str = "abc", hardware_key: str = "NVIDIA H200 (9.0)") -> Manifest:
    return Manifest(
        hardware=Hardware("a CPU", 2, 1 << 34),
        software=Software("0.1.0", "3.11.0", "linux"),
        git=Git(commit, "main", False),
        environment={},
        seeds={"benchmarks": "1"},
        configuration={"hardware_key": hardware_key},
    )


def record(comparison: Comparison, key: str = "") -> PairRecord:
    chapter, _, example = comparison.name.rpartition("/")
    return PairRecord(
        key=key or comparison.name,
        chapter=chapter,
        example=example,
        baseline_path=f"{chapter}/baseline_{example}.py",
        optimized_path=f"{chapter}/optimized_{example}.py",
        comparison=comparison,
        device="cpu",
        manifest_key="m",
    )


def planned(made: PairRecord) -> PlannedPair:
    fields = PlannedPair.__struct_fields__
    return PlannedPair(**{name: getattr(made, name) for name in fields})


def report(
    comparisons: Iterable[Comparison],
    not_run: Iterable[str] = (),
    run_id: str = "a",
    problems: tuple[Problem, ...] = (),
    made_under: Manifest | None = None,
    key: str = "",
) -> PairsReport:
    """A report on these comparisons; the pairs in `not_run` were planned too."""
    records = [record(comparison, key and key + comparison.name) for comparison in comparisons]
    empty = next(iter(records)).comparison
    missed = [record(msgspec.structs.replace(empty, name=name)) for name in not_run]
    plans = [planned(each) for each in (*records, *missed)]
    return make_report(run_id, made_under or manifest(), records, plans, problems)
