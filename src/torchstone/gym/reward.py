"""Computes the reward of a judged kernel from its evaluation: bounded, and aware of noise. Pure functions.

- What the machine could not judge has no reward: None, never 0.
- A kernel that cheated has a reward of its own, below every other.
- Speed counts by the lower end of its 95 % interval, so a noisy measurement never pays.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import msgspec

from torchstone.api import Evaluation
from torchstone.errors import UsageError
from torchstone.schema import Agrees, Cheated, Record, Unjudged, Unsupported


class RewardSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a kernel earns. The weights need not add up to 1; their sum is the highest reward."""

    correctness_weight: float = 0.3
    """Earned by a kernel that is right in every case."""
    speedup_weight: float = 0.7
    """Earned by a right kernel that is `fast_speedup` times as fast as PyTorch, and in part by a slower one."""
    limit_weight: float = 0.0
    """Earned by a right kernel that needs no more time than the device's limit, and in proportion by others."""
    slow_speedup: float = 0.25
    """A right kernel of this speedup or less earns nothing for its speed."""
    fast_speedup: float = 4.0
    """A higher speedup earns no more: an outlier cannot rule a batch."""
    partial_credit: bool = True
    """A wrong kernel earns the share of its right cases. False: it earns nothing."""
    no_code: float = 0.0
    """For a reply without a kernel."""
    cheating: float = -1.0
    """For a kernel that a guard proved to seek credit without computing."""

    def __post_init__(self) -> None:
        for name in ("correctness_weight", "speedup_weight", "limit_weight"):
            weight = getattr(self, name)
            if not (math.isfinite(weight) and weight >= 0):
                raise UsageError(f"{name} is {weight:g}; it must be 0 or more.")
        if self.highest <= 0:
            raise UsageError("all reward weights are 0: every kernel would have the same reward. Set one above 0.")
        if not 0 < self.slow_speedup < self.fast_speedup < math.inf:
            given = f"slow_speedup {self.slow_speedup:g} and fast_speedup {self.fast_speedup:g}"
            raise UsageError(f"{given} give no range; 0 < slow_speedup < fast_speedup is expected.")
        if not (math.isfinite(self.no_code) and self.no_code <= 0):
            raise UsageError(
                f"no_code is {self.no_code:g}; it must be 0 or less: no kernel is no better than a wrong one."
            )
        if not (math.isfinite(self.cheating) and self.cheating < self.no_code):
            raise UsageError(f"cheating is {self.cheating:g}; it must be below no_code, which is {self.no_code:g}.")

    @property
    def highest(self) -> float:
        """No kernel earns more."""
        return self.correctness_weight + self.speedup_weight + self.limit_weight


DEFAULT = RewardSettings()


class RewardFacts(msgspec.Struct, frozen=True):
    """Everything on which a reward depends."""

    judged: bool
    """False: the machine could not judge at least one case, or no case counts."""
    cheated: bool = False
    correct_share: float = 0.0
    """Cases that agree, of those that torch itself can compute here."""
    speedup_low: float | None = None
    """Lower end of the speedup's interval. None: some case is wrong, or no time was resolved."""
    of_limit_percent: float | None = None
    """The device's least time over the kernel's time, in percent, times `speedup_low` over the speedup."""


class RewardParts(msgspec.Struct, frozen=True):
    """The parts of a reward, each from 0 to 1."""

    correctness: float
    speedup: float
    limit: float


def facts_of(evaluation: Evaluation | Iterable[Record]) -> RewardFacts:
    """The facts for a reward, from a kernel's records. Cases that torch or the device cannot compute do not count."""
    records = tuple(evaluation.records if isinstance(evaluation, Evaluation) else evaluation)
    if any(isinstance(record.verdict, Cheated) for record in records):
        return RewardFacts(judged=True, cheated=True)
    counted = tuple(record for record in records if not _is_excused(record))
    if not counted or any(isinstance(record.verdict, Unjudged) for record in counted):
        return RewardFacts(judged=False)
    right = sum(isinstance(record.verdict, Agrees) for record in counted)
    together = Evaluation(counted[0].implementation.operator, counted)
    speedup, low = together.speedup, together.speedup_low
    if speedup is None or low is None:
        return RewardFacts(judged=True, correct_share=right / len(counted))
    percents = [item.of_limit_percent for item in together.summary.operators if item.of_limit_percent is not None]
    percent = math.exp(sum(map(math.log, percents)) / len(percents)) * low / speedup if percents else None
    return RewardFacts(judged=True, correct_share=1.0, speedup_low=low, of_limit_percent=percent)


def correctness(facts: RewardFacts, settings: RewardSettings = DEFAULT) -> float:
    """From 0 to 1: the share of right cases; without partial credit 1 for a right kernel and 0 for others."""
    share = _clamped(facts.correct_share)
    return share if settings.partial_credit or share == 1 else 0.0


def speedup(facts: RewardFacts, settings: RewardSettings = DEFAULT) -> float:
    """From 0 to 1: the logarithm of the speedup's lower end, between `slow_speedup` and `fast_speedup`."""
    if facts.speedup_low is None or facts.correct_share < 1 or facts.speedup_low <= settings.slow_speedup:
        return 0.0
    gained = math.log(min(facts.speedup_low, settings.fast_speedup) / settings.slow_speedup)
    return _clamped(gained / math.log(settings.fast_speedup / settings.slow_speedup))


def limit(facts: RewardFacts) -> float:
    """From 0 to 1: the share of the device's limit that the kernel reaches; 0 if the limit is not known."""
    if facts.of_limit_percent is None or facts.correct_share < 1:
        return 0.0
    return _clamped(facts.of_limit_percent / 100)


def parts_of(facts: RewardFacts, settings: RewardSettings = DEFAULT) -> RewardParts:
    """Every part of the reward. All are 0 for a kernel that cheated or was not judged."""
    if facts.cheated or not facts.judged:
        return RewardParts(0.0, 0.0, 0.0)
    return RewardParts(correctness(facts, settings), speedup(facts, settings), limit(facts))


def reward_of_facts(facts: RewardFacts, settings: RewardSettings = DEFAULT) -> float | None:
    """The weighted sum of the parts; `cheating` for a cheat; None if nothing is known about the kernel."""
    if facts.cheated:
        return settings.cheating
    if not facts.judged:
        return None
    parts = parts_of(facts, settings)
    weighted = (
        settings.correctness_weight * parts.correctness,
        settings.speedup_weight * parts.speedup,
        settings.limit_weight * parts.limit,
    )
    return min(math.fsum(weighted), settings.highest)


def reward_of(evaluation: Evaluation | Iterable[Record], settings: RewardSettings = DEFAULT) -> float | None:
    """The reward of a kernel's records."""
    return reward_of_facts(facts_of(evaluation), settings)


def _is_excused(record: Record) -> bool:
    return isinstance(record.verdict, Unsupported) and record.verdict.by != "candidate"


def _clamped(value: float) -> float:
    return min(1.0, max(0.0, value))
