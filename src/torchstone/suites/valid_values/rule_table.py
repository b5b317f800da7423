"""Defines the tables of valid argument values by operator, and common ranges of values for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from torchstone.schema import Fill, Integers, Normal, SortedIntegers, Uniform
from torchstone.suites.valid_values.named_call import Fills, NamedCall

SIGNED = Normal()
POSITIVE = Uniform(0.125, 8.0)
"""For logarithms, roots, divisors, variances: well away from zero in every dtype."""
UNIT = Uniform(0.0, 1.0)
"""Probabilities that need not add up to one."""
INSIDE_UNIT = Uniform(0.0078125, 0.9921875)
"""Probabilities p of which log(p) and log(1 - p) are computed."""
BALANCED = Uniform(-1.0, 1.0)
NUMBERS = Integers(-100, 100)
COUNTS = Integers(0, 100)
DIVISORS = Integers(1, 100)


class Rule(NamedTuple):
    """Which values some arguments of an operator may have, and whether the judge may try other sizes."""

    arguments: tuple[str, ...]
    fills: Callable[[NamedCall], Fills]
    jitter: bool = True


class RuleTable(dict[str, Rule]):
    """Rules by base name of the operator, for every overload and the in-place variant."""

    def of(
        self, operators: str, arguments: str, *, jitter: bool = True
    ) -> Callable[[Callable[[NamedCall], Fills]], Callable[[NamedCall], Fills]]:
        """Enter a rule for each of the operators. Operators and arguments are words in one string each."""

        def enter(fills: Callable[[NamedCall], Fills]) -> Callable[[NamedCall], Fills]:
            for name in operators.split():
                self[name] = Rule(tuple(arguments.split()), fills, jitter)
            return fills

        return enter

    def always(self, operators: str, arguments: str, /, *, jitter: bool = True, **fills: Fill) -> None:
        """Enter a rule that does not depend on sizes."""
        self.of(operators, arguments, jitter=jitter)(lambda call: fills)


def below(size: int) -> Integers:
    """Valid indices into a dimension. An empty one has none: torch then refuses the call, or there are no indices."""
    return Integers(0, max(size, 1))


def distinct_below(size: int, length: int) -> Integers | SortedIntegers:
    """Indices of which no two in a row are equal, if there are enough."""
    return SortedIntegers(0, size) if length <= size else below(size)
