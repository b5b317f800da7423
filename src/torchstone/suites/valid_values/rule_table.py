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
    """Rules by base name of the operator. A rule is for every overload and for the in-place form, too."""

    def of(
        self, operators: str, arguments: str, *, jitter: bool = True
    ) -> Callable[[Callable[[NamedCall], Fills]], Callable[[NamedCall], Fills]]:
        """Return a decorator that enters a function as the rule of some operators. It maps a call to fills.

        ``operators``: base names, separated by spaces. ``arguments``: names of the call's arguments in their order,
        separated by spaces. ``jitter``: whether the judge may try other sizes.
        """

        def enter(fills: Callable[[NamedCall], Fills]) -> Callable[[NamedCall], Fills]:
            for name in operators.split():
                self[name] = Rule(tuple(arguments.split()), fills, jitter)
            return fills

        return enter

    def always(self, operators: str, arguments: str, /, *, jitter: bool = True, **fills: Fill) -> None:
        """Enter a rule with the same fills for every call: ``always("bincount", "self weights", self=COUNTS)``.

        A rule says how valid values of an operator's arguments are drawn. ``fills``: argument name -> fill. The other
        parameters are those of :meth:`of`.
        """
        self.of(operators, arguments, jitter=jitter)(lambda call: fills)


def below(size: int) -> Integers:
    """Valid indices into a dimension. An empty one has none: torch then refuses the call, or there are no indices."""
    return Integers(0, max(size, 1))


def distinct_below(size: int, length: int) -> Integers | SortedIntegers:
    """Valid indices, distinct along the last dimension of this length if the size allows."""
    return SortedIntegers(0, size) if length <= size else below(size)
