"""docs/judge-process.md: the limits of guard `clock` that it states are those of the code."""

from __future__ import annotations

from docs.pages import ROOT
from torchstone.judge_process.measurement_guards import ClockGuard

PAGE = " ".join((ROOT / "docs" / "judge-process.md").read_text().split())
WORDS = {3.0: "three", 4: "four"}


def test_the_limits_of_the_clock_guard_are_those_of_the_code() -> None:
    assert (
        f"if the candidate's {ClockGuard._CANDIDATE_PERCENTILE}th-percentile gap exceeds "
        f"{ClockGuard._LEAST_GAP_NS / 1e3:.0f} µs plus {WORDS[ClockGuard._LEAST_GAP_RATIO]} times the reference's "
        f"{ClockGuard._REFERENCE_PERCENTILE}th-percentile gap."
    ) in PAGE
    assert f"With fewer than {WORDS[ClockGuard._LEAST_ROUNDS]} other rounds the guard proves nothing." in PAGE
