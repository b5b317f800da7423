"""Strategies: choose the next attempts, and the earlier ones shown with them. Stateless, so runs can resume."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

import msgspec

from torchstone.errors import unknown_name
from torchstone.schema.generation import Attempt, Judged, NoCode

_LATEST_SHOWN = 2
"""Latest attempts that `refine` shows besides the best one. More would cost tokens at every step."""
_POPULATION_SIZE = 3
"""Independent attempts with which `evolve` begins, and the most attempts that it has in progress."""
_PARENTS_PER_ATTEMPT = 2
"""Best attempts that `evolve` shows for a later attempt."""


class Ask(msgspec.Struct, frozen=True):
    """An attempt to make."""

    number: int
    parents: tuple[int, ...] = ()
    """Earlier attempts that are shown with their feedback, in the order of their numbers."""


class Goal(msgspec.Struct, frozen=True):
    """When an operator is done."""

    max_attempts: int
    target_speedup: float | None = None
    """Continue until the lower end of the speedup's interval reaches this; None: a right kernel is enough."""

    def is_met(self, attempt: Attempt) -> bool:
        """Whether this attempt is right, and fast enough if there is a target."""
        if not (isinstance(attempt.outcome, Judged) and attempt.outcome.right):
            return False
        return self.target_speedup is None or (attempt.outcome.speedup_low or 0.0) >= self.target_speedup


class Strategy(Protocol):
    """Chooses the attempts at one operator, one after another."""

    def next_asks(self, attempts: Sequence[Attempt], running: Collection[int], goal: Goal) -> tuple[Ask, ...]:
        """The attempts to make now. If there are none and none is running, the operator is done."""
        ...

    def shows_right(self, goal: Goal) -> bool:
        """Whether a right attempt may be shown to the author of a later one."""
        ...


class Refine:
    """Strategy `refine`: one attempt after another, each with the feedback on earlier ones."""

    def next_asks(self, attempts: Sequence[Attempt], running: Collection[int], goal: Goal) -> tuple[Ask, ...]:
        unused = _unused_numbers(attempts, running, goal)
        if running or not unused or any(map(goal.is_met, attempts)):
            return ()
        answered = [attempt for attempt in attempts if _is_answered(attempt)]
        shown = sorted(answered, key=lambda attempt: attempt.number)[-_LATEST_SHOWN:]
        shown += sorted(answered, key=rank)[-1:]
        return (Ask(unused[0], tuple(sorted({attempt.number for attempt in shown}))),)

    def shows_right(self, goal: Goal) -> bool:
        return goal.target_speedup is not None


class BestOfN:
    """Strategy `best-of-n`: independent attempts from the first prompt, as pass@k needs. A right one ends nothing."""

    def next_asks(self, attempts: Sequence[Attempt], running: Collection[int], goal: Goal) -> tuple[Ask, ...]:
        return tuple(Ask(number) for number in _unused_numbers(attempts, running, goal))

    def shows_right(self, goal: Goal) -> bool:
        return False


class Evolve:
    """Strategy `evolve`: a few independent attempts, then each from the two best so far."""

    def next_asks(self, attempts: Sequence[Attempt], running: Collection[int], goal: Goal) -> tuple[Ask, ...]:
        unused = _unused_numbers(attempts, running, goal)
        if goal.target_speedup is not None and any(map(goal.is_met, attempts)):
            return ()
        first = tuple(Ask(number) for number in unused if number <= _POPULATION_SIZE)
        if first or any(number <= _POPULATION_SIZE for number in running):
            return first
        places = _POPULATION_SIZE - len(running)
        judged = [attempt for attempt in attempts if isinstance(attempt.outcome, Judged)]
        best = tuple(sorted(attempt.number for attempt in sorted(judged, key=rank)[-_PARENTS_PER_ATTEMPT:]))
        return tuple(Ask(number, best) for number in unused[: max(places, 0)])

    def shows_right(self, goal: Goal) -> bool:
        return True


STRATEGIES: dict[str, type[Strategy]] = {"refine": Refine, "best-of-n": BestOfN, "evolve": Evolve}


def strategy_named(name: str) -> Strategy:
    """The strategy of this name."""
    if name not in STRATEGIES:
        raise unknown_name("strategy", name, STRATEGIES)
    return STRATEGIES[name]()


def rank(attempt: Attempt) -> tuple[bool, float, float, int]:
    """Sorting key; higher is better: right, then the lower end of the speedup, the share of right cases, newer."""
    outcome = attempt.outcome
    if not isinstance(outcome, Judged):
        return (False, 0.0, -1.0, attempt.number)
    return (outcome.right, outcome.speedup_low or 0.0, outcome.correctness, attempt.number)


def best_of(attempts: Sequence[Attempt]) -> Attempt | None:
    """The best attempt that was judged."""
    return max((each for each in attempts if isinstance(each.outcome, Judged)), key=rank, default=None)


def _unused_numbers(attempts: Sequence[Attempt], running: Collection[int], goal: Goal) -> list[int]:
    taken = {attempt.number for attempt in attempts}.union(running)
    return [number for number in range(1, goal.max_attempts + 1) if number not in taken]


def _is_answered(attempt: Attempt) -> bool:
    """Whether the attempt has a reply and an outcome to show to the model."""
    return isinstance(attempt.outcome, (Judged, NoCode))
