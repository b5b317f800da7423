"""Traits (properties) of an operator, from torch's schema and tags and from a table of operator names.

The table is :mod:`torchstone.operator_categories`: it assigns categories to names, and each category is one trait.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property, lru_cache

import torch

from torchstone.operator_categories import CLASSES, base_name, classes_of
from torchstone.operators.overloads import resolve

_INDEX_ARGUMENTS = (
    "index", "indices", "idx", "target", "offset", "length", "repeats", "sorter", "splits", "bag", "boundaries",
)  # fmt: skip
"""Parts of the names of arguments that may be used as indices."""
_STEP_ARGUMENTS = (("pow", "exponent"), ("shift", "other"), ("ldexp", "other"))
"""Part of an operator's name, and the argument that counts its steps (an exponent, a shift)."""


@dataclass(frozen=True)
class Traits:
    """What is known of one operator."""

    operator: str
    """In full, ``aten.add.Tensor``."""
    factorizes: bool
    """A matrix factorization or solver, as in LAPACK: with NaN or infinities it may not terminate."""
    divides: bool
    """Must not be given a divisor of 0, nor the least integer divided by -1, which ends the process on most hosts."""
    reduces: bool
    """Reduces many elements to one. Audits of cases submit a wrong kernel that leaves out a part of them."""
    reduces_dimensions: bool
    """Reduces over stated dimensions. Over dimensions of one element it is a copy."""
    contracts: bool
    """Multiplies and adds along a dimension. Audits of cases submit a wrong kernel that rounds its inputs."""
    measures_deviation: bool
    """A variance or a standard deviation."""
    seeks_extremes: bool
    """Looks for the largest or the smallest value."""
    adds: bool
    """Adds what is written to the same place."""
    is_attention: bool
    """Scaled dot-product attention."""
    attends: bool
    """Any form of attention."""
    is_fused_attention: bool
    """Fused attention (flash, efficient, cuDNN) for a GPU, which returns working memory beside its result."""
    makes_several_passes: bool
    """Calculates, or compares, more than once for each element: its bytes say nothing about its time."""
    copies: bool
    """Calculates nothing, although torch calls it pointwise."""
    may_copy: bool
    """May copy: with the arguments of most recorded calls, returning the argument itself is right."""
    moves_in_models: bool
    """Moves or copies what a model computes, without a change of values."""
    hands_on: bool
    """Returns its argument or a fact about it, for torch's own bookkeeping."""
    sets_a_bit: bool
    """Sets the conjugate or negative bit of a view, and computes no values."""
    lays_out: bool
    """Promises the memory layout of its result without an argument for it (``contiguous``)."""
    is_about_memory: bool
    """Its results depend on where elements lie."""
    takes_strides: bool
    """Takes strides as arguments (``as_strided``)."""
    leaves_undefined: bool
    """Only promises memory: its values are undefined."""
    asks_for_memory: bool
    """Writes nothing to the memory that it returns."""
    is_constant: bool
    """Gives the same values whatever its arguments hold."""
    overwrites: bool
    """Overwrites a tensor without reading what it held."""
    updates_statistics: bool
    """Writes to the running statistics in training although its schema does not say so."""
    counts_back: bool
    """Promises on every device that a negative index counts from the end."""
    reads_by_index: bool
    """Reads of its first tensor only what indices point at."""
    writes_by_index: bool
    """Touches of the tensor that it changes only what indices point at."""
    last_write_wins: bool
    """Of two writes to one place torch does not promise which one stays."""
    trusts_indices: bool
    """Writes at its index arguments without a range check."""
    leaves_ties_open: bool
    """Returns indices and does not promise which of equal values they mean."""
    returns_several_indices: bool
    """Returns several indices along a dimension, which must differ."""
    is_running_extreme: bool
    """The largest or smallest value so far: an index may not lie beyond its own place."""
    promises_the_first: bool
    """Returns the first of equal values."""
    pools_a_plane: bool
    """Max pooling whose indices count through two dimensions."""
    pools_a_volume: bool
    """Max pooling whose indices count through three dimensions."""
    tells_zero_signs: bool
    """Gives different results for 0.0 and -0.0."""
    about_non_finite: bool
    """Exists for NaN or infinities. Most kernels of other operators do not answer them as torch does."""
    classifies: bool
    """Classifies each number (``isnan``): drawn numbers are nearly all of one kind."""
    compares: bool
    """Compares elements: drawn ones are nearly never equal."""
    compares_whole: bool
    """Compares two tensors as a whole."""
    reduces_flags: bool
    """``any`` and ``all``: one element decides."""
    returns_flags: bool
    """Each result is one bit, and few of them are met by chance."""
    finds_one_extreme: bool
    """Returns one extreme of all elements, which seldom lies in a part that a wrong kernel leaves out."""
    decides_about_all_flags: bool
    """Returns one boolean for all elements (``any``, ``all``), of which nearly always one decides."""
    for_positive: bool
    """A function of mathematical physics, often written for positive arguments only."""
    keeps_its_range: bool
    """Needs the ranges that suites state: its arguments are results of a forward pass, or places in a window."""
    is_backward: bool
    """Takes results of a forward pass as arguments."""
    steps_by_value: bool
    """Takes as many steps, or as much memory, as an argument says, or trusts an index."""
    has_float_degree: bool
    """A floating-point argument counts steps: the degree of a polynomial."""
    steps_by_exponent: bool
    """A loop may take as many steps as an integer exponent says."""
    is_masked_in_use: bool
    """Users mask its arguments with -inf. For other operators honest formulas make NaN of -inf."""
    undecided_non_finite: bool
    """``torch.compile`` answers NaN or infinities otherwise than torch."""
    draws_flags: bool
    """Draws 0 and 1: two draws may be equal by chance."""
    draws_each_once: bool
    """Draws no number twice, unless an argument asks for replacement."""
    draws_unit_interval: bool
    """Draws from [0, 1)."""
    draws_evenly: bool
    """Draws evenly from a range, in which draws can be shifted."""
    has_heavy_tails: bool
    """Draws from a heavy-tailed distribution, whose moments do not exist or say little."""
    is_internal: bool
    """Internal to torch, by its prefix: callers must check that shapes fit."""
    does_items_apart: bool
    """Processes each item of a list separately (``_foreach``)."""
    takes_scales: bool
    """Takes scales beside sizes, which must agree (``upsample``)."""
    fails_on_variants: bool
    """torch itself gives garbage for other strides, writes beside views with gaps, or crashes without rows."""
    is_cpu_only: bool
    """torch has it on the CPU only."""
    is_cuda_only: bool
    """torch has it on CUDA only."""

    @property
    def base(self) -> str:
        """``add`` of ``aten.add.Tensor``."""
        return base_name(self.operator)

    @cached_property
    def pointwise(self) -> bool:
        """Each element of the result depends on one element of each argument, by torch's tag."""
        return torch.Tag.pointwise in resolve(self.operator).tags

    @cached_property
    def may_draw(self) -> bool:
        """Draws random numbers, by torch's tag; not with the arguments of every case."""
        return torch.Tag.nondeterministic_seeded in resolve(self.operator).tags

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
        """Returns one boolean for all its arguments (``equal``): hardly any drawn call gives True."""
        returns = resolve(self.operator)._schema.returns
        return len(returns) == 1 and str(returns[0].type) == "bool"

    @cached_property
    def open_indices(self) -> int | None:
        """Position of the output with indices, if torch does not promise which of equal values they mean; else None."""
        if not self.leaves_ties_open:
            return None
        names = [item.name for item in resolve(self.operator)._schema.returns]
        return names.index("indices") if "indices" in names else 0

    @property
    def pooled_dimensions(self) -> int:
        """Dimensions of the window's plane that an index of max pooling counts through; 0: no max pooling."""
        return 2 if self.pools_a_plane else 3 if self.pools_a_volume else 0

    @property
    def step_arguments(self) -> tuple[str, ...]:
        """Arguments that count steps (an exponent, a shift)."""
        return tuple(name for part, name in _STEP_ARGUMENTS if part in self.base)


def may_be_index(argument: str) -> bool:
    """Whether an argument of this name may be used as an index."""
    return any(part in argument for part in _INDEX_ARGUMENTS)


assert [field.name for field in fields(Traits)][1:] == list(CLASSES), "every class has a trait"


def _traits(operator: str) -> Traits:
    found = classes_of(operator)
    return Traits(operator, **{name: name in found for name in CLASSES})


_remembered = lru_cache(maxsize=4096)(_traits)


def traits(operator: str) -> Traits:
    """The traits of ``aten.add.Tensor``."""
    # Torchstone's own operators (gradients, models) may be registered again, with another schema.
    return (_remembered if operator.startswith("aten.") else _traits)(operator)
