"""Traits of an operator that decide which inputs mean something for it.

What torch's schema and tags tell is read from them. What only a name can tell stands in one table, :data:`_TABLE`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property, lru_cache
from typing import NamedTuple

import torch

from torchstone.operators.overloads import resolve

_INDEX_ARGUMENTS = (
    "index", "indices", "idx", "target", "offset", "length", "repeats", "sorter", "splits", "bag", "boundaries",
)  # fmt: skip
"""Parts of the names of arguments that may be used as indices."""
_STEP_ARGUMENTS = (("pow", "exponent"), ("shift", "other"), ("ldexp", "other"))
"""Part of an operator's name, and the argument that says how often something is done there."""


class _Rule(NamedTuple):
    """Which names a trait fits: any of these is enough."""

    names: frozenset[str] = frozenset()
    """Whole base names."""
    bare_names: frozenset[str] = frozenset()
    """The same, of the base name without the underscores of private, unsafe and in-place operators."""
    words: frozenset[str] = frozenset()
    """Words between underscores."""
    parts: tuple[str, ...] = ()
    """Parts of the name."""

    def fits(self, base: str) -> bool:
        bare = base.removesuffix("_").removeprefix("_unsafe_").removeprefix("_")
        return (
            base in self.names
            or bare in self.bare_names
            or not self.words.isdisjoint(base.split("_"))
            or any(part in base for part in self.parts)
        )


@dataclass(frozen=True)
class Traits:
    """What is known of one operator."""

    operator: str
    """In full, ``aten.add.Tensor``."""
    factorizes: bool
    """Works as LAPACK does: with NaN or infinities it may not come to an end."""
    counts_back: bool
    """Promises on every device that a negative index counts from the end."""
    tells_zero_signs: bool
    """Tells 0 from -0."""
    about_non_finite: bool
    """Exists for NaN or infinities. Most kernels of other operators do not answer them as torch does."""
    for_positive: bool
    """A function of mathematical physics, often written for positive arguments only."""
    keeps_its_range: bool
    """Its stated ranges are more than a habit: results of a forward pass, or places in a window."""
    is_backward: bool
    """Takes what a forward pass gave."""
    divides: bool
    """Must not be given a divisor of 0, nor the least integer divided by -1, which ends the process on most hosts."""
    steps_by_value: bool
    """Takes as many steps, or as much memory, as an argument says, or trusts an index."""
    has_float_degree: bool
    """A floating-point argument says how often something is done: the degree of a polynomial."""
    steps_by_exponent: bool
    """A loop may take as many steps as an integer exponent says."""
    seeks_extremes: bool
    """Looks for the largest or the smallest value."""
    is_masked_in_use: bool
    """People mask its arguments with -inf. Elsewhere honest formulas make NaN of it."""
    undecided_non_finite: bool
    """``torch.compile`` answers NaN or infinities otherwise than torch."""
    leaves_ties_open: bool
    """Returns indices and does not promise which of equal values they mean."""
    measures_deviation: bool
    """A variance or a standard deviation."""
    is_attention: bool
    """Scaled dot-product attention."""

    @property
    def base(self) -> str:
        """``add`` of ``aten.add.Tensor``."""
        return self.operator.split(".")[1]

    @cached_property
    def pointwise(self) -> bool:
        """Each element of the result depends on one element of each argument, by torch's tag."""
        return torch.Tag.pointwise in resolve(self.operator).tags

    @cached_property
    def arguments(self) -> tuple[str, ...]:
        """Names of the arguments, in the order of the schema."""
        return tuple(argument.name for argument in resolve(self.operator)._schema.arguments)

    @cached_property
    def has_index_arguments(self) -> bool:
        """An argument may be an index, by its name: one out of range ends a process on a device."""
        return any(may_be_index(name) for name in self.arguments)

    @cached_property
    def returns_one_bool(self) -> bool:
        """Says yes or no of all its arguments: hardly any drawn call is a yes."""
        returns = resolve(self.operator)._schema.returns
        return len(returns) == 1 and str(returns[0].type) == "bool"

    @property
    def step_arguments(self) -> tuple[str, ...]:
        """Arguments that say how often something is done."""
        return tuple(name for part, name in _STEP_ARGUMENTS if part in self.base)


def may_be_index(argument: str) -> bool:
    """Whether an argument of this name may be used as an index."""
    return any(part in argument for part in _INDEX_ARGUMENTS)


_TABLE = {
    "factorizes": _Rule(words=frozenset({
        "cholesky", "det", "eig", "eigh", "eigvals", "eigvalsh", "geqrf", "householder", "inv", "inverse", "ldl",
        "lstsq", "lu", "matrix", "orgqr", "ormqr", "pinv", "pinverse", "qr", "slogdet", "solve", "svd", "svdvals",
    })),
    "counts_back": _Rule(bare_names=frozenset({"index", "index_put", "take", "put"})),
    "tells_zero_signs": _Rule(names=frozenset({"signbit", "copysign"})),
    "about_non_finite": _Rule(
        names=frozenset({"isinf", "isfinite", "isposinf", "isneginf", "logaddexp", "logaddexp2"}), parts=("nan",)
    ),
    "for_positive": _Rule(parts=("gamma", "zeta", "special_", "bessel")),
    "keeps_its_range": _Rule(parts=("backward", "fractional", "quant", "polynomial", "rnn", "fused")),
    "is_backward": _Rule(parts=("backward",)),
    "divides": _Rule(parts=("div", "remainder", "fmod", "gcd", "lcm")),
    "steps_by_value": _Rule(
        parts=("polynomial", "bincount", "one_hot", "repeat_interleave", "embedding", "segment", "unsafe")
    ),
    "has_float_degree": _Rule(parts=("polynomial",)),
    "steps_by_exponent": _Rule(parts=("pow", "shift")),
    "seeks_extremes": _Rule(names=frozenset({
        "amax", "amin", "aminmax", "argmax", "argmin", "cummax", "cummin", "max", "min", "sort", "topk",
    })),
    "is_masked_in_use": _Rule(bare_names=frozenset({
        "amax", "aminmax", "argmax", "cummax", "log_softmax", "logcumsumexp", "logsumexp", "max", "safe_softmax",
        "softmax", "topk",
    })),
    "undecided_non_finite": _Rule(bare_names=frozenset({"remainder", "softshrink"})),
    "leaves_ties_open": _Rule(names=frozenset({
        "sort", "argsort", "msort", "topk", "kthvalue", "median", "nanmedian", "mode", "cummax", "cummin",
    })),
    "measures_deviation": _Rule(parts=("std", "var")),
    "is_attention": _Rule(parts=("scaled_dot_product",)),
}  # fmt: skip
"""By the name of the trait."""
assert [field.name for field in fields(Traits)][1:] == list(_TABLE), "every trait has a rule"


def _traits(operator: str) -> Traits:
    base = operator.split(".")[1]
    return Traits(operator, **{name: rule.fits(base) for name, rule in _TABLE.items()})


_remembered = lru_cache(maxsize=4096)(_traits)


def traits(operator: str) -> Traits:
    """The traits of ``aten.add.Tensor``."""
    # Operators of ours (gradients, models) may be registered again, with another schema.
    return (_remembered if operator.startswith("aten.") else _traits)(operator)
