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
"""Parts of the names of arguments that may be indices."""
_STEP_ARGUMENTS = (("pow", "exponent"), ("shift", "other"), ("ldexp", "other"))
"""Part of an operator's name, and the argument that counts its steps (an exponent, a shift)."""


@dataclass(frozen=True)
class Traits:
    """Properties of one operator; each flag says whether its description holds."""

    operator: str
    """Full name, such as ``aten.add.Tensor``."""
    factorizes: bool
    """A matrix factorization or solver, as in LAPACK: with NaN or infinities it may not terminate."""
    divides: bool
    """Must not be given a divisor of 0, nor the least integer divided by -1, which ends the process on most hosts."""
    reduces: bool
    """Reduces many elements to one. For it, case audits submit a wrong kernel that leaves out some elements."""
    reduces_dimensions: bool
    """Reduces over stated dimensions. Over dimensions of one element it is a copy."""
    contracts: bool
    """Multiplies and adds along a dimension. For it, case audits submit a wrong kernel that rounds its inputs."""
    measures_deviation: bool
    """A variance or a standard deviation."""
    seeks_extremes: bool
    """Looks for the largest or the smallest value."""
    adds: bool
    """Adds all values that are written to the same element."""
    is_attention: bool
    """Scaled dot-product attention."""
    attends: bool
    """Any form of attention."""
    is_fused_attention: bool
    """Fused attention (flash, efficient, cuDNN) for a GPU, which returns working memory beside its result."""
    makes_several_passes: bool
    """Computes or compares more than once for each element: its bytes say nothing about its time."""
    copies: bool
    """Computes nothing, although torch tags it as pointwise."""
    may_copy: bool
    """May return its argument: with the arguments of most recorded calls, that is right."""
    moves_in_models: bool
    """Moves or copies values in models without changing them."""
    hands_on: bool
    """Returns its argument or a property of it, for torch's internal use."""
    sets_a_bit: bool
    """Sets the conjugate or negative bit of a view, and computes no values."""
    lays_out: bool
    """Promises the memory layout of its result, though no argument states one (``contiguous``)."""
    is_about_memory: bool
    """Its results depend on where elements lie."""
    takes_strides: bool
    """Takes strides as arguments (``as_strided``)."""
    leaves_undefined: bool
    """Returns memory with undefined values."""
    asks_for_memory: bool
    """Allocates memory and writes nothing to it."""
    is_constant: bool
    """Returns the same values for any values of its arguments."""
    overwrites: bool
    """Overwrites a tensor without reading its old values."""
    updates_statistics: bool
    """Writes to the running statistics in training although its schema does not say so."""
    counts_back: bool
    """Promises on every device that a negative index counts from the end."""
    reads_by_index: bool
    """Reads only the elements of its first tensor that indices select."""
    writes_by_index: bool
    """Writes only the elements of the changed tensor that indices select."""
    last_write_wins: bool
    """One of two writes to the same element stays; torch does not promise which."""
    trusts_indices: bool
    """Writes at its index arguments without a range check."""
    leaves_ties_open: bool
    """Returns indices and does not promise which of equal values they mean."""
    returns_several_indices: bool
    """Returns several indices along a dimension, which must differ."""
    is_running_extreme: bool
    """Returns the largest or smallest value so far, with its index: element i has an index of at most i."""
    promises_the_first: bool
    """Returns the first of equal values."""
    pools_a_plane: bool
    """Max pooling whose indices count through two dimensions."""
    pools_a_volume: bool
    """Max pooling whose indices count through three dimensions."""
    tells_zero_signs: bool
    """Gives different results for 0.0 and -0.0."""
    about_non_finite: bool
    """Exists for NaN or infinities. Most kernels of other operators treat these differently from torch."""
    classifies: bool
    """Classifies each number (``isnan``): nearly all drawn numbers are of one kind."""
    compares: bool
    """Compares elements: drawn elements are hardly ever equal."""
    compares_whole: bool
    """Compares two tensors as a whole."""
    reduces_flags: bool
    """``any`` and ``all``: one element decides the result."""
    returns_flags: bool
    """Returns one bit per element: a result of few elements may be right by chance."""
    finds_one_extreme: bool
    """Returns one extreme of all elements, which is seldom in a part that a wrong kernel leaves out."""
    decides_about_all_flags: bool
    """Returns one boolean for all elements (``any``, ``all``), nearly always the same for drawn values."""
    for_positive: bool
    """A function of mathematical physics, often written for positive arguments only."""
    keeps_its_range: bool
    """Needs the ranges that suites state: its arguments are results of a forward pass, or positions in a window."""
    is_backward: bool
    """Takes results of a forward pass as arguments."""
    steps_by_value: bool
    """An argument's value determines the number of steps or the memory, or is used as an unchecked index."""
    has_float_degree: bool
    """A floating-point argument counts steps: the degree of a polynomial."""
    steps_by_exponent: bool
    """A loop may take as many steps as the value of an integer exponent."""
    is_masked_in_use: bool
    """Users mask its arguments with -inf. For other operators honest formulas give NaN for -inf."""
    undecided_non_finite: bool
    """``torch.compile`` and eager torch give different results for NaN or infinities."""
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
    """Internal to torch, by its prefix: its callers must check shapes."""
    does_items_apart: bool
    """Processes each item of a list separately (``_foreach``)."""
    takes_scales: bool
    """Takes scales beside sizes, which must agree (``upsample``)."""
    fails_on_variants: bool
    """torch itself gives garbage for other strides, writes into the gaps of views, or crashes without rows."""
    is_cpu_only: bool
    """torch has it on the CPU only."""
    is_cuda_only: bool
    """torch has it on CUDA only."""

    @property
    def base(self) -> str:
        """Base name of the operator: ``add`` for ``aten.add.Tensor``."""
        return base_name(self.operator)

    @cached_property
    def pointwise(self) -> bool:
        """Each element of the result depends on one element of each argument, by torch's tag."""
        return torch.Tag.pointwise in resolve(self.operator).tags

    @cached_property
    def may_draw(self) -> bool:
        """Draws random numbers for some arguments, by torch's tag."""
        return torch.Tag.nondeterministic_seeded in resolve(self.operator).tags

    @cached_property
    def arguments(self) -> tuple[str, ...]:
        """Names of the arguments, in the order of the schema."""
        return tuple(argument.name for argument in resolve(self.operator)._schema.arguments)

    @cached_property
    def has_index_arguments(self) -> bool:
        """An argument may be an index, by its name: on a GPU, an index out of range ends the process."""
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
        """Dimensions that a flat index of max pooling spans: 2 or 3; 0 if the operator is not max pooling."""
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


_cached_traits = lru_cache(maxsize=4096)(_traits)


def traits(operator: str) -> Traits:
    """The traits of an operator with a full name such as ``aten.add.Tensor``."""
    # Torchstone's own operators (gradients, models) may be registered again, with another schema.
    return (_cached_traits if operator.startswith("aten.") else _traits)(operator)
