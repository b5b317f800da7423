"""Computes how many calls of a case must be checked before a lucky guess is ruled out.

A kernel that always returns ``True`` is right about ``any`` of sparse booleans five times in six: three right results
prove nothing. The weight of a result, in bits, is -log2 of the probability that the best constant result equals it. A
floating-point element whose values do not repeat counts for eight bits. Others count for -log2 of the share of their
most frequent value. For each output, the calls must carry twenty bits together: then a guess is right with probability
1e-6.
"""

from __future__ import annotations

import math
import secrets
from typing import Any

import torch

from torchstone.calls.draw_arguments import draw_calls
from torchstone.judging.reference.case_reference import Reference
from torchstone.judging.reference.expected import Expected
from torchstone.judging.reference.unused_randomness import draws_nothing

ENOUGH_BITS = 20.0
"""Bits that the checked calls of a case must carry together."""
MOST_CALLS = 24
"""Most calls that are required. More calls do not help where results (almost) never differ."""
_ELEMENT_BITS = 8.0
"""Bits of an element whose values do not repeat. Fewer than it holds, because a wrong value may be close."""
_SAMPLED_CALLS = 16
"""Most calls of torch's operator that are sampled."""
_CALLS_SAMPLED_FIRST = 8
"""Calls that are sampled first. If these carry far more than enough bits, the others are not sampled."""
_ENOUGH_MULTIPLE = 4.0
"""How many times :data:`ENOUGH_BITS` the first sampled calls must carry."""
_FEW_ELEMENTS = 4
"""For outputs of fewer elements all calls are sampled: the first eight may mislead by chance."""
_SAMPLED_ELEMENTS = 1 << 12
"""Elements of an output that are sampled, or up to twice as many."""
_MOST_SAMPLED_VALUES = 1 << 22
"""Most elements of all sampled calls together. Larger cases are not sampled: outputs count for all bits they hold."""


def calls_needed_against_guessing(expected: Expected) -> int:
    """How many checked calls this case needs: 1, except for small outputs and outputs that seldom differ.

    No number of calls suffices for an output that never differs, such as how often each random row occurs. It is
    ignored if there is another output.
    """
    reference = expected.batch.reference
    drawn = _SAMPLED_CALLS * sum(tensor.view.numel() for tensor in expected.call.tensors)
    if reference.undefined or not drawn or not draws_nothing(expected):
        return 1  # judged by metadata or by distribution, or without tensor arguments
    leaves = _leaves(expected)
    few_bits = [position for position, leaf in enumerate(leaves) if leaf.numel() and _bits_within(leaf) < ENOUGH_BITS]
    if not few_bits:
        return 1
    bits = (
        _bits_across(reference, few_bits)
        if drawn <= _MOST_SAMPLED_VALUES
        else [_bits_held(leaves[i]) for i in few_bits]
    )
    positive_bits = [each for each in bits if each > 0.0]
    if not positive_bits and len(few_bits) < len(leaves):
        return 1
    bits_of_call = min(positive_bits, default=0.0)
    return MOST_CALLS if bits_of_call * MOST_CALLS <= ENOUGH_BITS else math.ceil(ENOUGH_BITS / bits_of_call)


def _leaves(expected: Expected) -> list[torch.Tensor]:
    """A sample of every output of a call; for an operator without outputs, of the arguments that it writes to."""
    evaluation, index = expected.batch.evaluation, expected.index
    found: list[Any] = evaluation.results[index] or [tensor[index] for tensor in evaluation.tensors.values()]
    return [_sample(leaf) for leaf in found]


def _sample(leaf: Any) -> torch.Tensor:
    """A flat, real sample of a leaf, with NaN replaced by a number: NaN would not equal itself."""
    if not isinstance(leaf, torch.Tensor):
        leaf = torch.tensor([leaf] if isinstance(leaf, bool | int | float) else [])
    flat = (torch.view_as_real(leaf.resolve_conj()) if leaf.is_complex() else leaf).reshape(-1)
    sample = flat[:: max(1, flat.numel() // _SAMPLED_ELEMENTS)]
    return sample.nan_to_num(nan=math.e) if sample.is_floating_point() else sample


def _bits_within(leaf: torch.Tensor) -> float:
    """Bits of one result, estimated from how its elements differ from one another."""
    ordered = leaf.sort().values
    counts = torch.unique_consecutive(ordered, return_counts=True)[1]
    return leaf.numel() * min(_ELEMENT_BITS, math.log2(leaf.numel() / int(counts.max())))


def _bits_across(reference: Reference, positions: list[int]) -> list[float]:
    """Bits of each output, from how its elements differ from call to call."""
    calls = draw_calls(reference.case, secrets.randbits(63), _SAMPLED_CALLS, reference.device)
    few, others = calls[:_CALLS_SAMPLED_FIRST], calls[_CALLS_SAMPLED_FIRST:]
    answers = [_leaves(expected) for expected in reference.expect_many(few)]
    if not all(_suffice([answer[position] for answer in answers]) for position in positions):
        answers += [_leaves(expected) for expected in reference.expect_many(others)]
    return [_bits_of_answers([answer[position] for answer in answers]) for position in positions]


def _suffice(leaves: list[torch.Tensor]) -> bool:
    """Whether the first sampled calls already carry far more bits than needed."""
    wanted = min(leaves[0].numel() * _ELEMENT_BITS, _ENOUGH_MULTIPLE * ENOUGH_BITS)
    return leaves[0].numel() >= _FEW_ELEMENTS and _bits_of_answers(leaves) >= wanted


def _bits_of_answers(leaves: list[torch.Tensor]) -> float:
    """Bits of one output, from its values in several calls; infinite if its shape differs from call to call."""
    return _bits_of_columns(torch.stack(leaves)) if len({leaf.shape for leaf in leaves}) == 1 else math.inf


def _bits_of_columns(values: torch.Tensor) -> float:
    """Bits of ``(calls, elements)``: the sum of -log2 of the share of each element's most frequent value."""
    calls = values.shape[0]
    commonest = (values.unsqueeze(0) == values.unsqueeze(1)).sum(dim=0).amax(dim=0).to(torch.float64)
    return float(torch.where(commonest <= 1, _ELEMENT_BITS, (calls / commonest).log2()).sum())


def _bits_held(leaf: torch.Tensor) -> float:
    """The most bits that an output can carry."""
    return leaf.numel() * (1.0 if leaf.dtype is torch.bool else _ELEMENT_BITS)
