"""Draws cases of an operator with the library hypothesis, and has it find the smallest that fails.

Only this module imports hypothesis, which the extra ``fuzz`` installs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from random import Random
from typing import TYPE_CHECKING, TypeVar

import msgspec

from torchstone.errors import MissingExtraError
from torchstone.schema import Case
from torchstone.suites.learned_call_forms import Operator, draw_case
from torchstone.suites.random_choices import EDGES
from torchstone.suites.shape_families import MOST_ELEMENTS
from torchstone.suites.torch_probe import TorchProbe

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
"""Strategy for sizes: numbers that shrink towards 1, sizes at which kernels often fail, and often 0."""


def cases(operator: Operator, probe: TorchProbe) -> SearchStrategy[Case | None]:
    """Strategy for cases of the operator; None where torch refuses the drawn call.

    The cases have no hidden variants: a case must fail on its own sizes, or shrinking would not work.
    """

    @st.composite
    def drawn(draw: DrawFn) -> Case | None:
        choices = DrawnChoices(draw)
        case = draw_case(operator, choices.one_of(operator.forms), choices)
        if case is None or not probe.takes(case):
            return None
        return msgspec.structs.replace(case, jitter=False)

    return drawn()


class DrawnChoices:
    """Implements `Choices` with hypothesis, which shrinks every choice."""

    def __init__(self, draw: DrawFn) -> None:
        self._draw = draw

    def one_of(self, options: Sequence[T]) -> T:
        return options[0] if len(options) == 1 else options[self._draw(_integers(0, len(options) - 1))]

    def whole(self, low: int, high: int) -> int:
        return low if low == high else self._draw(_integers(low, high))

    def size(self, most: int) -> int:
        """A size up to ``most``. The drawn number is independent of ``most``, which changes while others shrink."""
        size: int = self._draw(_SIZES)
        return size if size <= most else 1 + size % most


@cache
def _integers(low: int, high: int) -> SearchStrategy[int]:
    return st.integers(low, high)


def find_smallest(
    operator: Operator,
    probe: TorchProbe,
    fails: Callable[[Case | None], bool | None],
    examples: int,
    random: Random,
) -> Case | None:
    """The smallest failing case among those that are tried. None: no case fails, or hypothesis gave up.

    ``fails`` must give the same answer for the same case. None: the case is not counted.
    """

    def condition(case: Case | None) -> bool:
        answer = fails(case)
        hypothesis.assume(answer is not None)
        return bool(answer)

    try:
        return hypothesis.find(cases(operator, probe), condition, settings=_settings(examples), random=random)
    except hypothesis.errors.HypothesisException:  # nothing found, or nothing valid drawn
        return None


def _settings(examples: int) -> hypothesis.settings:
    """Settings of hypothesis: no database, no output and no deadline, because judging may take long."""
    return hypothesis.settings(
        max_examples=examples,
        database=None,
        deadline=None,
        phases=(hypothesis.Phase.generate, hypothesis.Phase.shrink),
        suppress_health_check=tuple(hypothesis.HealthCheck),
        verbosity=hypothesis.Verbosity.quiet,
    )
