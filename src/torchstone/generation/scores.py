"""Computes the scores of generation runs: how often a model is right, how fast its kernels are, what they cost.

Scores are computed from the attempts of a run alone. The statistical sample is the operators: every interval is over
operators, and an operator without a right kernel stays in every count.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby

import msgspec

from torchstone.generation.run_folder import StoredGeneration
from torchstone.generation.strategies import rank
from torchstone.measuring.student_t import Z_95
from torchstone.schema.generation import Attempt, Judged, NoCode, NotJudged, ProviderFailed, Usage

PS = (1.0, 1.5, 2.0)
"""Default values of p for fast_p."""
KS = (1, 5, 10)
"""Default values of k for pass@k."""
_RESAMPLES = 2000
"""Bootstrap resamples for an interval."""
_SEED = 20240229
"""Seed of the resampling, so that the same attempts give the same interval."""


class Interval(msgspec.Struct, frozen=True):
    """An estimate with its 95 % interval over operators."""

    value: float
    low: float
    high: float


class OperatorScore(msgspec.Struct, frozen=True):
    """The results of all attempts at one operator."""

    operator: str
    attempts: int
    """Attempts that got a reply, with or without code, and that the machine could judge."""
    right_attempts: int
    own_code_attempts: int = 0
    """Right attempts with code of their own, alone or beside torch's operators."""
    first_right: int | None = None
    """Number of the first attempt that is right."""
    best: int | None = None
    """Number of the best right attempt: the one with the highest lower end of its speedup's interval."""
    speedup: float | None = None
    """Speedup of the best attempt."""
    speedup_low: float | None = None
    speedup_high: float | None = None
    is_torch_only: bool = False
    """Whether there are right attempts, and in each of them torch or a library does all the work."""
    cheating_attempts: int = 0
    """Attempts with a case in which the kernel was caught cheating."""
    tokens: int = 0
    cost_usd: float | None = None


class PassAtK(msgspec.Struct, frozen=True):
    """The chance that one of k independent attempts is right, by the unbiased estimate, as a mean over operators."""

    k: int
    estimate: Interval
    operators: int
    """Operators with k answered attempts or more. The others are left out."""


class RunScores(msgspec.Struct, frozen=True):
    """The scores of one run over all operators."""

    run: str
    """The run folder."""
    provider: str
    model: str
    dsl: str
    strategy: str
    suite: str
    max_attempts: int
    operators: int
    """All operators of the run."""
    open_operators: int
    """Operators without an answered attempt: the run was stopped or is in progress, or the provider failed."""
    attempts: int
    right_operators: int
    correct: Interval
    """Share of operators with a right kernel."""
    torch_only_operators: int
    """Right operators of which no right kernel has own code: torch or a library does all the work."""
    correct_with_own_code: Interval
    """Share of operators with a right kernel that has own code. If that is unknown, it counts as no own code."""
    fast: dict[str, Interval]
    """p -> share of operators whose best kernel is right and more than p times as fast: fast_p, also called perf@p."""
    geomean_speedup: float | None
    """Geometric mean over the right operators with a measured speedup, each with its best kernel."""
    pass_at: tuple[PassAtK, ...] = ()
    """Empty unless the strategy is best-of-n: attempts of other strategies are not independent."""
    attempts_to_success: dict[str, int] = {}
    """Number of the first right attempt -> how many operators. Operators without a right attempt are not counted."""
    mean_attempts_to_success: float | None = None
    """Mean number of the first right attempt, over the operators that have one."""
    usage: Usage = Usage()
    """Tokens and cost of all attempts."""
    tokens_per_right: float | None = None
    """Tokens of all attempts, failed ones included, divided by the number of operators with a right kernel."""
    cost_usd_per_right: float | None = None
    """None: no kernel is right, or the price of the model is not known."""
    failures: dict[str, int] = {}
    """Kind of failure -> attempts, the most frequent first."""
    cheating_attempts: int = 0
    cheating_operators: int = 0
    per_operator: tuple[OperatorScore, ...] = ()


class Difference(msgspec.Struct, frozen=True):
    """Compares two runs on the operators that both have."""

    first: str
    second: str
    operators: int
    """Operators that both runs have."""
    both_right: int
    only_first: int
    only_second: int
    chance: float
    """Exact sign test over the operators that only one run solves: the probability of a split at least as uneven, if
    both were equally good. 1 if there are no such operators."""
    speedup_ratio: Interval | None = None
    """Second over first, geometric mean over operators that both solve and that were timed. None: fewer than two."""


class ScoreReport(msgspec.Struct, frozen=True):
    """The scores of one or several runs."""

    runs: tuple[RunScores, ...]
    differences: tuple[Difference, ...] = ()
    """How every other run differs from the first."""


def score_report(runs: Iterable[StoredGeneration], ps: Sequence[float] = PS, ks: Sequence[int] = KS) -> ScoreReport:
    """The scores of these runs, and how the others differ from the first."""
    scores = tuple(run_scores(run, ps, ks) for run in runs)
    return ScoreReport(scores, tuple(difference(scores[0], other) for other in scores[1:]))


def run_scores(stored: StoredGeneration, ps: Sequence[float] = PS, ks: Sequence[int] = KS) -> RunScores:
    """The scores of one run."""
    run, attempts = stored.run, stored.attempts
    operators = _per_operator(run.folders, attempts)
    right = [item for item in operators if item.first_right is not None]
    usage = _added(attempt.usage for attempt in attempts)
    return RunScores(
        run=str(stored.folder),
        provider=run.provider,
        model=run.model,
        dsl=run.dsl,
        strategy=run.strategy,
        suite=run.suite,
        max_attempts=run.max_attempts,
        operators=len(operators),
        open_operators=sum(not item.attempts for item in operators),
        attempts=len(attempts),
        right_operators=len(right),
        correct=share(len(right), len(operators)),
        torch_only_operators=sum(item.is_torch_only for item in right),
        correct_with_own_code=share(sum(item.own_code_attempts > 0 for item in right), len(operators)),
        fast={f"{p:g}": share(sum((item.speedup or 0.0) > p for item in right), len(operators)) for p in ps},
        geomean_speedup=_geomean([item.speedup for item in right if item.speedup is not None]),
        pass_at=_pass_at_each_k(operators, ks) if run.strategy == "best-of-n" else (),
        attempts_to_success=_operators_by_first_right(right),
        mean_attempts_to_success=sum(item.first_right or 0 for item in right) / len(right) if right else None,
        usage=usage,
        tokens_per_right=usage.tokens / len(right) if right else None,
        cost_usd_per_right=None if usage.cost_usd is None or not right else usage.cost_usd / len(right),
        failures=dict(Counter(filter(None, map(failure_of, attempts))).most_common()),
        cheating_attempts=sum(map(_cheats, attempts)),
        cheating_operators=sum(item.cheating_attempts > 0 for item in operators),
        per_operator=operators,
    )


# ---- operators


def _per_operator(folders: Mapping[str, str], attempts: Sequence[Attempt]) -> tuple[OperatorScore, ...]:
    """The scores of every operator, in the order of names."""
    ordered = sorted(attempts, key=lambda attempt: (attempt.operator, attempt.number))
    found = {name: list(group) for name, group in groupby(ordered, key=lambda attempt: attempt.operator)}
    return tuple(_operator(name, found.get(name, [])) for name in sorted({*folders, *found}))


def _operator(name: str, attempts: Sequence[Attempt]) -> OperatorScore:
    right = [attempt for attempt in attempts if attempt.right]
    best = max(right, key=rank, default=None)
    outcome = best.outcome if best is not None and isinstance(best.outcome, Judged) else None
    usage = _added(attempt.usage for attempt in attempts)
    return OperatorScore(
        operator=name,
        attempts=sum(map(_is_answered, attempts)),
        right_attempts=len(right),
        own_code_attempts=sum(_authorship(attempt) in ("own", "mixed") for attempt in right),
        is_torch_only=bool(right) and all(_authorship(attempt) == "torch" for attempt in right),
        first_right=min((attempt.number for attempt in right), default=None),
        best=None if best is None else best.number,
        speedup=None if outcome is None else outcome.speedup,
        speedup_low=None if outcome is None else outcome.speedup_low,
        speedup_high=None if outcome is None else outcome.speedup_high,
        cheating_attempts=sum(map(_cheats, attempts)),
        tokens=usage.tokens,
        cost_usd=usage.cost_usd,
    )


def _authorship(attempt: Attempt) -> str:
    return attempt.outcome.authorship if isinstance(attempt.outcome, Judged) else "unknown"


def _is_answered(attempt: Attempt) -> bool:
    """Whether the attempt counts for the model's scores: it got a reply, and the machine could judge it."""
    return isinstance(attempt.outcome, Judged | NoCode)


def _cheats(attempt: Attempt) -> bool:
    return isinstance(attempt.outcome, Judged) and "cheated" in attempt.outcome.verdicts


def failure_of(attempt: Attempt) -> str:
    """The kind of failure of an attempt; empty if it is right."""
    match attempt.outcome:
        case Judged() as judged:
            return "" if judged.right else judged.verdict
        case NoCode():
            return "no code"
        case ProviderFailed(reason=reason):
            return f"no reply: {reason}"
        case NotJudged():
            return "not judged"


def _added(usages: Iterable[Usage]) -> Usage:
    """The sum. Its cost is unknown if the cost of any usage with tokens is unknown."""
    known = [usage for usage in usages if usage.tokens or usage.cost_usd is not None]
    costs = [usage.cost_usd for usage in known]
    return Usage(
        sum(usage.input_tokens for usage in known),
        sum(usage.output_tokens for usage in known),
        sum(usage.cached_input_tokens for usage in known),
        None if None in costs or not costs else math.fsum(cost for cost in costs if cost is not None),
    )


def _operators_by_first_right(right: Iterable[OperatorScore]) -> dict[str, int]:
    found = Counter(item.first_right for item in right if item.first_right is not None)
    return {str(number): found[number] for number in sorted(found)}


def _geomean(values: Sequence[float]) -> float | None:
    return math.exp(math.fsum(map(math.log, values)) / len(values)) if values else None


# ---- estimates and intervals


def pass_at_k(attempts: int, right: int, k: int) -> float:
    """Unbiased estimate that one of k attempts is right: 1 - C(n-c, k) / C(n, k), with n = attempts and c = right."""
    return 1.0 - math.comb(attempts - right, k) / math.comb(attempts, k)


def _pass_at_each_k(operators: Sequence[OperatorScore], ks: Iterable[int]) -> tuple[PassAtK, ...]:
    """pass@k for each k for which some operator has enough attempts."""
    found = {k: [item for item in operators if item.attempts >= k] for k in ks}
    return tuple(
        PassAtK(k, mean([pass_at_k(item.attempts, item.right_attempts, k) for item in enough]), len(enough))
        for k, enough in found.items()
        if enough
    )


def share(count: int, total: int) -> Interval:
    """A share with its Wilson interval, which is valid for few operators and for shares near 0 and 1."""
    if not total:
        return Interval(0.0, 0.0, 1.0)
    value, z2 = count / total, Z_95**2 / total
    centre = (value + z2 / 2) / (1 + z2)
    half = math.sqrt(z2 * (value * (1 - value) + z2 / 4)) / (1 + z2)
    return Interval(value, min(max(0.0, centre - half), value), max(min(1.0, centre + half), value))


def mean(values: Sequence[float]) -> Interval:
    """A mean over operators with its bootstrap interval. If all values are 0 or all are 1, the interval of a share."""
    value = math.fsum(values) / len(values)
    low, high = _bootstrap_interval(values, lambda drawn: math.fsum(drawn) / len(drawn))
    if min(values) == max(values) and value in (0.0, 1.0):  # all resamples are equal: their interval has no width
        whole = share(round(value * len(values)), len(values))
        low, high = whole.low, whole.high
    return Interval(value, low, high)


def _bootstrap_interval(values: Sequence[float], statistic: Callable[[Sequence[float]], float]) -> tuple[float, float]:
    chance = random.Random(_SEED)
    drawn = sorted(statistic(chance.choices(values, k=len(values))) for _ in range(_RESAMPLES))
    cut_off = round(0.025 * _RESAMPLES)
    return drawn[cut_off], drawn[-cut_off - 1]


def difference(first: RunScores, second: RunScores) -> Difference:
    """Compare the second run with the first, operator by operator."""
    one, other = ({item.operator: item for item in run.per_operator} for run in (first, second))
    common = sorted(one.keys() & other.keys())
    pairs = [(one[name], other[name]) for name in common]
    only_first = sum(a.first_right is not None and b.first_right is None for a, b in pairs)
    only_second = sum(a.first_right is None and b.first_right is not None for a, b in pairs)
    return Difference(
        first=first.run,
        second=second.run,
        operators=len(common),
        both_right=sum(a.first_right is not None and b.first_right is not None for a, b in pairs),
        only_first=only_first,
        only_second=only_second,
        chance=sign_test(only_first, only_second),
        speedup_ratio=_speedup_ratio(pairs),
    )


def _speedup_ratio(pairs: Iterable[tuple[OperatorScore, OperatorScore]]) -> Interval | None:
    ratios = [math.log(b.speedup / a.speedup) for a, b in pairs if a.speedup and b.speedup]
    if len(ratios) < 2:
        return None
    found = mean(ratios)
    return Interval(*(math.exp(value) for value in (found.value, found.low, found.high)))


def sign_test(one: int, other: int) -> float:
    """Two-sided exact probability of a split at least as uneven, if both sides are equally likely."""
    total = one + other
    tail = sum(math.comb(total, count) for count in range(min(one, other) + 1))
    return min(1.0, math.ldexp(2.0 * tail, -total))
