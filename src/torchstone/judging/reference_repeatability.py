"""Tests whether torch's operator, called again, stays within the error bound that a candidate must meet.

On a GPU some of torch's operators add by atomics, in a varying order; if terms cancel, results differ much. Some are
wrong for memory layouts that only hidden variants use (attention on the CPU, if the last dimension is not contiguous).
If torch disagrees with itself on a call, the call is skipped. This is checked only after a mismatch,
and without the candidate, so that no candidate can cause it.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace

import torch

from torchstone import operators, schema
from torchstone.calls.draw_arguments import DrawnTensor
from torchstone.calls.reference_calls import ReferenceFailure
from torchstone.judging.compare.agreement import compare
from torchstone.judging.compare.reference_trust import decomposition_has_same_shapes, reference_is_consistent
from torchstone.judging.comparison_result import Mismatch
from torchstone.judging.reference.case_reference import Reference
from torchstone.judging.reference.expected import Expected, ExpectedOutput
from torchstone.judging.reference.unused_randomness import draws_nothing
from torchstone.judging.variants.memory import on_plain_memory

_REPEATED_CALLS = 4
"""How often torch's operator is called again."""
_NOT_DETERMINISTIC_TEXT = "does not have a deterministic implementation"
"""Part of torch's error message."""


def agrees_with_itself(expected: Expected, device: torch.device, arithmetic_device: torch.device) -> bool:
    """Whether torch, called four more times, agrees with the expected result by the rules for candidates."""
    reference = Reference(expected.call.case, device, arithmetic_device)
    if reference.random_results is not None:
        return True  # random results are not expected to repeat
    for _ in range(_REPEATED_CALLS):
        (again,) = reference.expect_many([expected.call], with_bounds=False)
        outputs = [output.native for output in again.outputs]
        if isinstance(compare(expected, outputs, again.inputs_after), Mismatch):
            return False
    return True


def declares_nondeterminism(expected: Expected, device: torch.device, arithmetic_device: torch.device) -> bool:
    """Whether torch declares that it has no deterministic implementation for a call: threads add in any order.

    Then two results may differ, even if several calls happen to agree.
    """
    call, before = expected.call, torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        Reference(call.case, device, arithmetic_device).expect_many([call], with_bounds=False)
    except ReferenceFailure as failure:
        return _NOT_DETERMINISTIC_TEXT in str(failure)
    finally:
        torch.use_deterministic_algorithms(before)
    return False


def agrees_on_contiguous_memory(expected: Expected, device: torch.device, arithmetic_device: torch.device) -> bool:
    """Whether torch, called with the same values in contiguous memory, agrees by the rules for candidates.

    Random results are compared by distribution. An operator that reads out of bounds looks random too. If its results
    are not random in contiguous memory, torch disagrees with itself.
    """
    call = expected.call
    plain = on_plain_memory(call.case)
    if plain == call.case:
        return True
    reference = Reference(plain, device, arithmetic_device)
    tensors = tuple(map(_with_recipe, call.tensors, schema.tensors_of(plain)))
    (again,) = reference.expect_many([replace(call, case=plain, tensors=tensors)], with_bounds=False)
    if draws_nothing(again) and not draws_nothing(expected):
        return False
    after = [drawn.storage for drawn in call.tensors]
    for position in reference.contract.mutated:
        written = operators.view_of(again.inputs_after[position], tensors[position].recipe)
        after[position] = _storage_with_values(written, call.tensors[position])
    outputs = [output.native for output in again.outputs]
    return not isinstance(compare(replace(expected, with_bounds=True), outputs, after), Mismatch)


def agrees_on_empty_arguments(expected: Expected) -> bool:
    """If an argument is empty, whether torch's result equals float64's and that of its own decomposition; else True.

    In torch's layer norm the mean of no elements is 0, by the formula it is NaN. A product without elements has the
    shape of the added tensor (``addmv``).
    """
    empty = any(0 in recipe.shape for recipe in schema.tensors_of(expected.call.case))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "degrees of freedom <= 0"
        return not empty or (decomposition_has_same_shapes(expected) and reference_is_consistent(expected))


def _with_recipe(drawn: DrawnTensor, recipe: schema.Tensor) -> DrawnTensor:
    """The same values, in the memory layout of another recipe."""
    storage = drawn.storage.new_zeros(operators.storage_extent(recipe))
    view = operators.view_of(storage, recipe)
    return DrawnTensor(recipe, storage, view.copy_(drawn.view))


def _storage_with_values(values: torch.Tensor, drawn: DrawnTensor) -> torch.Tensor:
    storage = drawn.storage.clone()
    operators.view_of(storage, drawn.recipe).copy_(values)
    return storage


def has_result_dtypes_of(one: Expected, stated: Sequence[ExpectedOutput]) -> bool:
    """Whether a call returns the same number of results, with the same dtypes, as the stated case.

    torch itself sometimes does not if there are no elements: the mask of an empty dropout is not boolean. A kernel
    must return what torch documents. The lengths of lists may differ, because they depend on sizes.
    """
    dtypes = [[output.dtype or type(output.native) for output in outputs] for outputs in (one.outputs, stated)]
    returns = one.batch.reference.evaluator.operator._schema.returns
    if any(isinstance(item.type, torch.ListType) for item in returns):
        return set(dtypes[0]) <= set(dtypes[1])
    return dtypes[0] == dtypes[1]
