"""Generated cases as hypothesis strategies. The only module that needs hypothesis, which the extra ``fuzz`` brings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from random import Random
from typing import TYPE_CHECKING, TypeVar

import msgspec

from torchstone.errors import MissingExtraError
from torchstone.schema import Case
from torchstone.suites.choices import EDGES
from torchstone.suites.families import MOST_ELEMENTS
from torchstone.suites.forms import Operator, draw_case
from torchstone.suites.oracle import Oracle

try:
    import hypothesis
    import hypothesis.errors
    import hypothesis.strategies as st
except ImportError as error:
    raise MissingExtraError("the search needs hypothesis: pip install 'torchstone[fuzz]'.") from error

if TYPE_CHECKING:
    from hypothesis.strategies import DrawFn, SearchStrategy

T = TypeVar("T")

_SIZES = st.one_of(st.integers(1, 12), st.integers(1, MOST_ELEMENTS), st.sampled_from((*EDGES, *[0] * 5)))
"""Numbers shrink one by one towards 1; the telling sizes come beside them, and often nothing at all."""


def cases(operator: Operator, oracle: Oracle) -> SearchStrategy[Case | None]:
    """Calls of the operator; None where torch refuses what was drawn.

    They have no hidden variants: a case that fails must fail for what it says, or shrinking would lead nowhere.
    """

    @st.composite
    def drawn(draw: DrawFn) -> Case | None:
        choices = DrawnChoices(draw)
        case = draw_case(operator, choices.one_of(operator.forms), choices)
        if case is None or not oracle.takes(case):
            return None
        return msgspec.structs.replace(case, jitter=False)

    return drawn()


class DrawnChoices:
    """Choices that hypothesis makes, and shrinks."""

    def __init__(self, draw: DrawFn) -> None:
        self._draw = draw

    def one_of(self, options: Sequence[T]) -> T:
        return options[0] if len(options) == 1 else options[self._draw(_whole(0, len(options) - 1))]

    def whole(self, low: int, high: int) -> int:
        return low if low == high else self._draw(_whole(low, high))

    def size(self, most: int) -> int:
        """What is drawn does not depend on ``most``: or 0 would be another number once a size before it shrinks."""
        size: int = self._draw(_SIZES)
        return size if size <= most else 1 + size % most


@cache
def _whole(low: int, high: int) -> SearchStrategy[int]:
    return st.integers(low, high)


def find_smallest(
    operator: Operator,
    oracle: Oracle,
    fails: Callable[[Case | None], bool | None],
    examples: int,
    random: Random,
) -> Case | None:
    """The smallest case that fails, of those that are tried; None: none does, or hypothesis could not say.

    ``fails`` gives the same answer for the same case, and None for one that does not count.
    """

    def condition(case: Case | None) -> bool:
        answer = fails(case)
        hypothesis.assume(answer is not None)
        return bool(answer)

    try:
        return hypothesis.find(cases(operator, oracle), condition, settings=_settings(examples), random=random)
    except hypothesis.errors.HypothesisException:  # nothing found, or nothing valid drawn; said by what was tried
        return None


def _settings(examples: int) -> hypothesis.settings:
    """Nothing is kept, printed, or hurried: judging takes as long as it takes."""
    return hypothesis.settings(
        max_examples=examples,
        database=None,
        deadline=None,
        phases=(hypothesis.Phase.generate, hypothesis.Phase.shrink),
        suppress_health_check=tuple(hypothesis.HealthCheck),
        verbosity=hypothesis.Verbosity.quiet,
    )
