"""Strategies: choose the next attempt and the earlier ones shown with it. No state of their own, so runs resume."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

import msgspec

from torchstone.errors import unknown_name
from torchstone.schema.generation import Attempt, Judged, NoCode

_SHOWN_BEFORE = 2
"""Earlier attempts in a conversation that refines, besides the best: more cost tokens at every step."""
_POPULATION = 3
"""Attempts that evolution begins with, and that it makes at the same time."""
_PARENTS = 2
"""Attempts that a later one of evolution is made from."""


class Ask(msgspec.Struct, frozen=True):
    """An attempt to make."""

    number: int
    parents: tuple[int, ...] = ()
    """Earlier attempts that are shown with their feedback, in the order of their numbers."""


class Goal(msgspec.Struct, frozen=True):
    """When an operator is done."""

    max_attempts: int
    target_speedup: float | None = None
    """Go on until the lower end of the speedup's interval reaches this; None: a right kernel is enough."""

    def is_met(self, attempt: Attempt) -> bool:
        """Whether this attempt is good enough."""
        if not (isinstance(attempt.outcome, Judged) and attempt.outcome.right):
            return False
        return self.target_speedup is None or (attempt.outcome.speedup_low or 0.0) >= self.target_speedup


class Strategy(Protocol):
    """How attempts at one operator follow from one another."""

    def next_asks(self, attempts: Sequence[Attempt], running: Collection[int], goal: Goal) -> tuple[Ask, ...]:
        """The attempts to make now. If there are none and none is running, the operator is done."""
        ...

    def shows_right(self, goal: Goal) -> bool:
        """Whether a right attempt may be shown to the author of a later one."""
        ...


class Refine:
    """One after another, each from the feedback of those before."""

    def next_asks(self, attempts: Sequence[Attempt], running: Collection[int], goal: Goal) -> tuple[Ask, ...]:
        free = _free(attempts, running, goal)
        if running or not free or any(map(goal.is_met, attempts)):
            return ()
        answered = [attempt for attempt in attempts if _is_answered(attempt)]
        shown = sorted(answered, key=lambda attempt: attempt.number)[-_SHOWN_BEFORE:]
        shown += sorted(answered, key=rank)[-1:]
        return (Ask(free[0], tuple(sorted({attempt.number for attempt in shown}))),)

    def shows_right(self, goal: Goal) -> bool:
        return goal.target_speedup is not None


class BestOfN:
    """All from the first prompt, independent of one another, as pass@k needs. A right attempt does not end them."""

    def next_asks(self, attempts: Sequence[Attempt], running: Collection[int], goal: Goal) -> tuple[Ask, ...]:
        return tuple(Ask(number) for number in _free(attempts, running, goal))

    def shows_right(self, goal: Goal) -> bool:
        return False


class Evolve:
    """A few independent ones, then each from the two best so far."""

    def next_asks(self, attempts: Sequence[Attempt], running: Collection[int], goal: Goal) -> tuple[Ask, ...]:
        free = _free(attempts, running, goal)
        if goal.target_speedup is not None and any(map(goal.is_met, attempts)):
            return ()
        first = tuple(Ask(number) for number in free if number <= _POPULATION)
        if first or any(number <= _POPULATION for number in running):
            return first
        places = _POPULATION - len(running)
        judged = [attempt for attempt in attempts if isinstance(attempt.outcome, Judged)]
        best = tuple(sorted(attempt.number for attempt in sorted(judged, key=rank)[-_PARENTS:]))
        return tuple(Ask(number, best) for number in free[: max(places, 0)])

    def shows_right(self, goal: Goal) -> bool:
        return True


STRATEGIES: dict[str, type[Strategy]] = {"refine": Refine, "best-of-n": BestOfN, "evolve": Evolve}


def strategy_named(name: str) -> Strategy:
    """The strategy of this name."""
    if name not in STRATEGIES:
        raise unknown_name("strategy", name, STRATEGIES)
    return STRATEGIES[name]()


def rank(attempt: Attempt) -> tuple[bool, float, float, int]:
    """Higher is better: right, then fastest by the interval's lower end, then the share of right cases, then newer."""
    outcome = attempt.outcome
    if not isinstance(outcome, Judged):
        return (False, 0.0, -1.0, attempt.number)
    return (outcome.right, outcome.speedup_low or 0.0, outcome.correctness, attempt.number)


def best_of(attempts: Sequence[Attempt]) -> Attempt | None:
    """The best attempt that was judged."""
    return max((each for each in attempts if isinstance(each.outcome, Judged)), key=rank, default=None)


def _free(attempts: Sequence[Attempt], running: Collection[int], goal: Goal) -> list[int]:
    taken = {attempt.number for attempt in attempts}.union(running)
    return [number for number in range(1, goal.max_attempts + 1) if number not in taken]


def _is_answered(attempt: Attempt) -> bool:
    """Whether there is something to show: a reply, and what is wrong with it."""
    return isinstance(attempt.outcome, (Judged, NoCode))
