"""Tests whether torch's operator, called again, stays within the error bound that a candidate must meet.

On a GPU some of torch's operators add by atomics, in a varying order; where terms cancel, no two results are alike.
And some are wrong on memory layouts that only a hidden variant of a case uses (attention on the CPU, if the last
dimension is not contiguous). If torch disagrees with itself on a call, the call is skipped. This is checked only after
a mismatch, without the candidate, so that no candidate can cause it.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace

import torch

from torchstone import operators, schema
from torchstone.calls.random_arguments import DrawnTensor
from torchstone.calls.reference_calls import ReferenceFailure
from torchstone.judging.compare.agreement import compare
from torchstone.judging.compare.reference_trust import has_shapes_of_parts, stands_by
from torchstone.judging.comparison_result import Mismatch
from torchstone.judging.reference.case_reference import Reference
from torchstone.judging.reference.expected import Expected, ExpectedOutput
from torchstone.judging.reference.unused_randomness import draws_nothing
from torchstone.judging.variants.memory import on_plain_memory

_TIMES = 4
_NOT_DETERMINISTIC = "does not have a deterministic implementation"
"""In torch's own words."""


def agrees_with_itself(expected: Expected, device: torch.device, arithmetic_device: torch.device) -> bool:
    """Make the same call in torch several more times, and compare each answer as a candidate's would be."""
    reference = Reference(expected.call.case, device, arithmetic_device)
    if reference.random_results is not None:
        return True  # random results are not expected to repeat
    for _ in range(_TIMES):
        (again,) = reference.expect_many([expected.call], with_bounds=False)
        outputs = [output.native for output in again.outputs]
        if isinstance(compare(expected, outputs, again.inputs_after), Mismatch):
            return False
    return True


def says_it_races(expected: Expected, device: torch.device, arithmetic_device: torch.device) -> bool:
    """Whether torch declares that it has no deterministic implementation for a call: threads add in any order.

    Then no two results need be alike, even if several calls happen to agree.
    """
    call, before = expected.call, torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        Reference(call.case, device, arithmetic_device).expect_many([call], with_bounds=False)
    except ReferenceFailure as failure:
        return _NOT_DETERMINISTIC in str(failure)
    finally:
        torch.use_deterministic_algorithms(before)
    return False


def agrees_on_plain_memory(expected: Expected, device: torch.device, arithmetic_device: torch.device) -> bool:
    """Ask torch for the same values on contiguous memory, and compare its answer in full, as a candidate's would be.

    Random results are compared by distribution. An operator that reads beside its memory looks random, too. If it draws
    nothing on contiguous memory, torch disagrees with itself.
    """
    call = expected.call
    plain = on_plain_memory(call.case)
    if plain == call.case:
        return True
    reference = Reference(plain, device, arithmetic_device)
    tensors = tuple(map(_moved, call.tensors, schema.tensors_of(plain)))
    (again,) = reference.expect_many([replace(call, case=plain, tensors=tensors)], with_bounds=False)
    if draws_nothing(again) and not draws_nothing(expected):
        return False
    after = [drawn.storage for drawn in call.tensors]
    for position in reference.contract.mutated:
        written = operators.view_of(again.inputs_after[position], tensors[position].recipe)
        after[position] = _storage_with(written, call.tensors[position])
    outputs = [output.native for output in again.outputs]
    return not isinstance(compare(replace(expected, with_bounds=True), outputs, after), Mismatch)


def agrees_about_nothing(expected: Expected) -> bool:
    """If an argument is empty, whether torch's answer is also what float64 and its own decomposition give.

    The mean of no elements is 0 in its layer norm, and NaN by the formula. A product of nothing has the shape of the
    added tensor (``addmv``).
    """
    empty = any(0 in recipe.shape for recipe in schema.tensors_of(expected.call.case))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "degrees of freedom <= 0"
        return not empty or (has_shapes_of_parts(expected) and stands_by(expected))


def _moved(drawn: DrawnTensor, recipe: schema.Tensor) -> DrawnTensor:
    """The same values, lying as another recipe says."""
    storage = drawn.storage.new_zeros(operators.storage_extent(recipe))
    view = operators.view_of(storage, recipe)
    return DrawnTensor(recipe, storage, view.copy_(drawn.view))


def _storage_with(values: torch.Tensor, drawn: DrawnTensor) -> torch.Tensor:
    storage = drawn.storage.clone()
    operators.view_of(storage, drawn.recipe).copy_(values)
    return storage


def has_the_kinds_of(one: Expected, stated: Sequence[ExpectedOutput]) -> bool:
    """Whether a call returns what the stated case does: as many results, of the same dtypes.

    torch itself sometimes does not where there is nothing to compute: the mask of an empty dropout is no mask. A
    kernel must return what torch documents. Lists may be longer or shorter, because sizes change them.
    """
    kinds = [[output.dtype or type(output.native) for output in outputs] for outputs in (one.outputs, stated)]
    returns = one.batch.reference.evaluator.operator._schema.returns
    if any(isinstance(item.type, torch.ListType) for item in returns):
        return set(kinds[0]) <= set(kinds[1])
    return kinds[0] == kinds[1]
