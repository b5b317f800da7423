"""Scores of generation: estimates, intervals, and what is counted."""

from __future__ import annotations

import itertools
import json
import math
import random
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from torchstone.cli.generate_report import report
from torchstone.generation.run_folder import ATTEMPTS, GENERATION, StoredGeneration
from torchstone.generation.scores import (
    Interval,
    RunScores,
    difference,
    mean,
    pass_at_k,
    run_scores,
    score_report,
    share,
    sign_test,
)
from torchstone.runs.folder import MANIFEST, open_journal
from torchstone.runs.manifest import collect
from torchstone.schema import encode
from torchstone.schema.generation import (
    Attempt,
    GenerationRun,
    Judged,
    NoCode,
    NotJudged,
    Outcome,
    ProviderFailed,
    Strategy,
    Usage,
)

RIGHT = Judged(verdict="agrees", verdicts={"agrees": 6}, records_file="r", right=True, correctness=1.0)
WRONG = Judged(verdict="disagrees", verdicts={"agrees": 4, "disagrees": 2}, records_file="r")
CHEAT = Judged(verdict="cheated", verdicts={"cheated": 6}, records_file="r")
SILENT = ProviderFailed("overloaded", "busy")
PER_ATTEMPT = Usage(100, 20, 0, 0.5)


def fast(speedup: float, low: float | None = None) -> Judged:
    low = speedup * 0.95 if low is None else low
    return msgspec.structs.replace(RIGHT, speedup=speedup, speedup_low=low, speedup_high=speedup * 1.05)


def stored(
    outcomes: dict[str, Sequence[Outcome]],
    *,
    strategy: Strategy = "refine",
    folder: str = "one",
    usage: Usage = PER_ATTEMPT,
) -> StoredGeneration:
    run = GenerationRun(
        started_unix_ns=0, suite="smoke", provider="scripted", model="m", dsl="triton", strategy=strategy,
        max_attempts=5, folders={name: name for name in outcomes},
    )  # fmt: skip
    attempts = tuple(
        Attempt(operator=name, folder=name, number=number, outcome=outcome, usage=usage)
        for name, found in outcomes.items()
        for number, outcome in enumerate(found, 1)
    )
    return StoredGeneration(Path(folder), run, collect({}), attempts, "")


def scores_of(outcomes: dict[str, Sequence[Outcome]], strategy: Strategy = "refine") -> RunScores:
    return run_scores(stored(outcomes, strategy=strategy))


# ---- estimates


@pytest.mark.parametrize(("attempts", "right", "k"), [(5, 2, 1), (5, 2, 3), (5, 0, 5), (5, 5, 2), (7, 1, 4), (4, 4, 4)])
def test_pass_at_k_is_the_share_of_all_choices_of_k_attempts_that_hold_a_right_one(
    attempts: int, right: int, k: int
) -> None:
    choices = list(itertools.combinations(range(attempts), k))
    holding = sum(any(number < right for number in choice) for choice in choices)
    assert pass_at_k(attempts, right, k) == pytest.approx(holding / len(choices))


def test_pass_at_k_is_unbiased() -> None:
    """On average over runs of n attempts it is the chance 1 - (1 - q)^k, and the plug-in estimate is not."""
    chance, n, k, rng = 0.3, 6, 3, random.Random(5)
    drawn = [sum(rng.random() < chance for _ in range(n)) for _ in range(20_000)]
    truth = 1 - (1 - chance) ** k
    unbiased = sum(pass_at_k(n, right, k) for right in drawn) / len(drawn)
    plug_in = sum(1 - (1 - right / n) ** k for right in drawn) / len(drawn)
    assert unbiased == pytest.approx(truth, abs=0.01)
    assert abs(plug_in - truth) > 0.02


def test_pass_at_k_is_given_for_independent_attempts_only() -> None:
    outcomes: dict[str, Sequence[Outcome]] = {"a": [RIGHT, WRONG, WRONG], "b": [WRONG, WRONG, WRONG]}
    assert scores_of(outcomes, "refine").pass_at == ()
    first, *rest = run_scores(stored(outcomes, strategy="best-of-n"), ks=(1, 3, 4)).pass_at
    assert (first.k, first.estimate.value, first.operators) == (1, pytest.approx(1 / 6), 2)
    assert [each.k for each in rest] == [3]


def test_an_operator_with_too_few_answers_is_left_out_of_pass_at_k_and_that_is_told() -> None:
    outcomes: dict[str, Sequence[Outcome]] = {"a": [RIGHT, WRONG], "b": [WRONG, SILENT]}
    at_two = run_scores(stored(outcomes, strategy="best-of-n"), ks=(2,)).pass_at
    assert [(each.k, each.operators, each.estimate.value) for each in at_two] == [(2, 1, 1.0)]


@pytest.mark.parametrize(
    ("count", "total", "low", "high"), [(0, 10, 0.0, 0.278), (10, 10, 0.722, 1.0), (5, 10, 0.237, 0.763)]
)
def test_a_share_has_the_wilson_interval(count: int, total: int, low: float, high: float) -> None:
    found = share(count, total)
    assert (found.low, found.high) == (pytest.approx(low, abs=2e-3), pytest.approx(high, abs=2e-3))


def test_the_interval_of_a_share_covers_the_truth_nineteen_times_of_twenty() -> None:
    truth, rng = 0.35, random.Random(11)
    drawn = (share(sum(rng.random() < truth for _ in range(40)), 40) for _ in range(2000))
    covered = sum(each.low <= truth <= each.high for each in drawn)
    assert 0.93 < covered / 2000 < 0.975


def test_the_interval_of_a_mean_is_the_same_every_time_and_is_not_empty_at_the_edges() -> None:
    assert mean([0.0, 0.5, 1.0]) == mean([0.0, 0.5, 1.0])
    assert mean([1.0, 1.0, 1.0]).low < 0.6
    assert mean([0.0, 0.0]).high > 0.4


@pytest.mark.parametrize(("one", "other", "chance"), [(0, 0, 1.0), (5, 5, 1.0), (0, 5, 0.0625), (1, 9, 0.0215)])
def test_the_sign_test_is_exact(one: int, other: int, chance: float) -> None:
    assert sign_test(one, other) == pytest.approx(chance, abs=1e-3)
    assert sign_test(other, one) == sign_test(one, other)


# ---- counts


def test_operators_without_a_right_kernel_stay_in_every_count() -> None:
    scores = scores_of({"a": [WRONG, fast(2.0)], "b": [WRONG] * 5, "c": [fast(1.2)], "d": []})
    assert (scores.operators, scores.right_operators, scores.open_operators) == (4, 2, 1)
    assert scores.correct.value == 0.5
    assert {p: each.value for p, each in scores.fast.items()} == {"1": 0.5, "1.5": 0.25, "2": 0.0}
    assert scores.geomean_speedup == pytest.approx(math.sqrt(2.0 * 1.2))


def test_the_best_kernel_is_the_one_whose_speedup_is_surest() -> None:
    (operator,) = scores_of({"a": [fast(3.0, low=0.9), fast(1.5, low=1.4), WRONG]}).per_operator
    assert (operator.best, operator.speedup) == (2, 1.5)


def test_a_wrong_kernel_has_no_speed() -> None:
    wrong_but_fast = msgspec.structs.replace(WRONG, speedup=9.0)
    assert scores_of({"a": [wrong_but_fast]}).fast["1"].value == 0.0


def test_attempts_to_success_are_counted_where_there_is_success() -> None:
    scores = scores_of({"a": [RIGHT], "b": [WRONG, NoCode("…"), RIGHT, RIGHT], "c": [WRONG]})
    assert scores.attempts_to_success == {"1": 1, "3": 1}
    assert scores.mean_attempts_to_success == 2.0


def test_tokens_and_costs_of_failures_are_paid_by_the_right_kernels() -> None:
    scores = scores_of({"a": [WRONG, RIGHT], "b": [WRONG, WRONG]})
    assert (scores.tokens_per_right, scores.cost_usd_per_right) == (480.0, 2.0)
    assert scores_of({"b": [WRONG]}).cost_usd_per_right is None


def test_a_cost_that_is_partly_unknown_is_unknown() -> None:
    first, second = stored({"a": [RIGHT]}), stored({"b": [RIGHT]}, usage=Usage(5, 5))
    both = first._replace(attempts=(*first.attempts, *second.attempts))
    assert run_scores(both).usage.cost_usd is None
    assert run_scores(both).usage.tokens == 130


def test_kinds_of_failure_and_attempted_cheats_are_counted() -> None:
    hidden = msgspec.structs.replace(WRONG, verdict="cheated", verdicts={"agrees": 5, "cheated": 1})
    scores = scores_of({"a": [WRONG, CHEAT, hidden, RIGHT], "b": [NoCode("…"), SILENT, NotJudged("…"), WRONG]})
    assert scores.failures == {
        "disagrees": 2, "cheated": 2, "no code": 1, "no reply: overloaded": 1, "not judged": 1,
    }  # fmt: skip
    assert (scores.cheating_attempts, scores.cheating_operators) == (2, 1)
    assert sum(scores.failures.values()) + 1 == scores.attempts


def test_the_order_of_the_attempts_makes_no_difference() -> None:
    run = stored({"a": [WRONG, fast(2.0)], "b": [fast(1.1), WRONG]})
    assert run_scores(run._replace(attempts=run.attempts[::-1])) == run_scores(run)


# ---- side by side


def test_two_runs_are_compared_on_the_operators_that_they_share() -> None:
    one = run_scores(stored({"a": [fast(2.0)], "b": [fast(1.0)], "c": [WRONG], "d": [RIGHT]}, folder="one"))
    other = run_scores(stored({"a": [fast(4.0)], "b": [fast(2.0)], "c": [RIGHT], "e": [RIGHT]}, folder="two"))
    found = difference(one, other)
    assert (found.operators, found.both_right, found.only_first, found.only_second) == (3, 2, 0, 1)
    assert found.speedup_ratio == Interval(pytest.approx(2.0), pytest.approx(2.0), pytest.approx(2.0))  # type: ignore[arg-type]


def test_a_run_against_itself_differs_in_nothing() -> None:
    run = stored({"a": [fast(2.0)], "b": [fast(1.0)], "c": [WRONG]})
    (found,) = score_report([run, run]).differences
    assert (found.only_first, found.only_second, found.chance) == (0, 0, 1.0)
    assert found.speedup_ratio is not None
    assert found.speedup_ratio.value == pytest.approx(1.0)


# ---- the command


def written(folder: Path, run: StoredGeneration) -> Path:
    folder.mkdir(parents=True)
    (folder / GENERATION).write_bytes(encode(run.run))
    (folder / MANIFEST).write_bytes(encode(run.manifest))
    with open_journal(folder, ATTEMPTS) as journal:
        for attempt in run.attempts:
            journal.append(attempt)
    return folder


def test_the_report_shows_runs_side_by_side_as_tables_and_as_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    one = stored({"aten.relu.default": [WRONG, fast(1.31)], "aten.add.Tensor": [CHEAT, WRONG]}, strategy="best-of-n")
    written(tmp_path / "generated_kernels" / "first", one)
    other = written(tmp_path / "second", stored({"aten.relu.default": [fast(1.5)], "aten.add.Tensor": [RIGHT]}))
    done = CliRunner().invoke(report, ["first", str(other)], catch_exceptions=False)
    assert done.exit_code == 0
    rows = {line.split("|")[1].strip(): line for line in done.output.splitlines() if line.startswith("|")}
    assert "1: 50 % (9 to 91)" in rows["correct"]
    assert "2: 100 % (34 to 100)" in rows["correct"]
    assert "1 of 1 operator" in rows["attempted cheats"]
    assert "1.31x, attempt 2 of 2" in rows["aten.relu.default"]
    assert "none right of 2" in rows["aten.add.Tensor"]
    assert "second against first: 2 operators in common" in done.output
    as_json = CliRunner().invoke(report, ["first", str(other), "--json", "--p", "1.4", "--k", "2"])
    whole = json.loads(as_json.output)
    assert [run["fast"]["1.4"]["value"] for run in whole["runs"]] == [0.0, 0.5]
    assert [item["k"] for item in whole["runs"][0]["pass_at"]] == [2]


def test_a_folder_that_is_no_run_of_generation_is_told_in_one_line(tmp_path: Path) -> None:
    done = CliRunner().invoke(report, [str(tmp_path)])
    assert "is not a run of 'torchstone generate'" in str(done.exception)
