"""Generated cases as hypothesis strategies. The only module that needs hypothesis, which the extra ``fuzz`` brings."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from torchstone.errors import MissingExtraError
from torchstone.schema import Case
from torchstone.suites.choices import edges_up_to
from torchstone.suites.forms import Operator, draw_case
from torchstone.suites.oracle import Oracle

try:
    import hypothesis.strategies as st
except ImportError as error:
    raise MissingExtraError("the search needs hypothesis: pip install 'torchstone[fuzz]'.") from error

if TYPE_CHECKING:
    from hypothesis.strategies import DrawFn, SearchStrategy

T = TypeVar("T")


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
        size: int = self._draw(_sizes(most))
        return size


@cache
def _whole(low: int, high: int) -> SearchStrategy[int]:
    return st.integers(low, high)


@cache
def _sizes(most: int) -> Any:
    """Numbers from 1 shrink one by one; the telling sizes come beside them, and nothing last."""
    numbers = st.integers(1, max(1, most))
    edges = edges_up_to(most)
    return st.one_of(numbers, st.sampled_from(edges)) if edges else numbers
