"""The fastest backend of an operator is marked only where the intervals allow it."""

from __future__ import annotations

from torchstone.reports.fastest_backend import BackendSpeed, fastest

CASES = frozenset({"a", "b"})


def speed(low: float, ratio: float, high: float, cases: frozenset[str] = CASES) -> BackendSpeed:
    return BackendSpeed(low, ratio, high, cases)


def test_an_interval_above_all_others_wins() -> None:
    assert fastest({"x": speed(1.9, 2.0, 2.1), "y": speed(1.0, 1.1, 1.8), "z": speed(0.4, 0.5, 0.6)}) == "x"


def test_intervals_that_meet_have_no_winner() -> None:
    assert fastest({"x": speed(1.9, 2.0, 2.1), "y": speed(1.5, 1.8, 1.9)}) is None


def test_a_single_right_backend_wins() -> None:
    assert fastest({"x": speed(0.4, 0.5, 0.6)}) == "x"


def test_nothing_is_compared_with_a_backend_without_a_resolved_time() -> None:
    assert fastest({"x": speed(1.9, 2.0, 2.1), "y": None}) is None
    assert fastest({}) is None


def test_speedups_over_different_cases_are_not_compared() -> None:
    assert fastest({"x": speed(1.9, 2.0, 2.1), "y": speed(1.0, 1.1, 1.2, frozenset({"a"}))}) is None
