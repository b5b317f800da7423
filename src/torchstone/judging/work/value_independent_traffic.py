"""Estimates the share of a call's memory traffic that does not depend on its values, so that a kernel could prepare it.

Examples are a gradient that is zero but for a row, the padding around a picture, and the lower half of an upper
triangle. A kernel can write such parts into its own memory before its time is measured, and return that memory in call
after call. Its results are right and its time is too short, which looks like a fast kernel. So a speedup counts only as
far as it exceeds what could be saved that way.

Parts that are the same in most calls count too. For a gradient that is zero except in a few varying rows, a kernel
needs to write only those rows. Memory is written in lines of 64 bytes; single constant elements save nothing.
"""

from __future__ import annotations

import secrets

import torch

from torchstone.calls.bitwise_equality import bits
from torchstone.calls.draw_arguments import draw_calls, draw_storages
from torchstone.calls.torch_errors import operator_errors
from torchstone.judging.reference.case_reference import Reference

_COMPARED_CALLS = 8
"""Calls that are compared. With eight, results of few values (signs, comparisons) seldom agree by chance."""
_MOST_COMPARED_ELEMENTS = 1 << 16
"""Most elements of each result that are compared between calls, drawn at random."""
_LINE_BYTES = 64
"""Bytes of a line of memory."""
_MOST_COMPARED_LINES = 1 << 13
"""Most lines of each result that are compared, drawn at random."""
_NEGLIGIBLE_SHARE = 0.01
"""Shares up to this count as 0."""


def preparable_share(reference: Reference) -> float:
    """The share of a call's bytes that a kernel could prepare before its time is measured; 0 if it is negligible."""
    calls = [draw_calls(reference.case, secrets.randbits(63), 1, reference.device)[0] for _ in range(_COMPARED_CALLS)]
    results = [reference.expect_many([call], with_bounds=False)[0].new_tensors for call in calls]
    if not results[0] or len({tuple(tensor.shape for tensor in each) for each in results}) > 1:
        return 0.0
    sizes = [tensor.numel() * tensor.element_size() for tensor in results[0]]
    constant = sum(size * _constant_share(tensors) for size, *tensors in zip(sizes, *results, strict=True))
    written = sum(sizes)
    read = sum(tensor.storage.numel() * tensor.storage.element_size() for tensor in calls[0].tensors)
    if not constant:
        return 0.0
    if constant == written and _is_independent_of_inputs(reference, results[0]):
        return 1.0
    if all(tensor.is_floating_point() for tensor in results[0]):
        # Inputs of constant results need not be read, except by comparisons.
        read = int(read * (1 - constant / written))
    found = constant / (written + read)
    return found if found > _NEGLIGIBLE_SHARE else 0.0


def _constant_share(tensors: list[torch.Tensor]) -> float:
    """The share of one result that could be written before these calls.

    It is the share of elements that are the same in all calls, or of lines that mostly are, whichever is larger.
    """
    if not tensors[0].numel():
        return 0.0
    results = [bits(tensor.reshape(1, -1))[0] for tensor in tensors]
    return max(_constant_elements(results), _repeated_lines(results))


def _constant_elements(results: list[torch.Tensor]) -> float:
    """Share of sampled elements that are the same in all calls."""
    elements = len(results[0])
    positions = torch.randint(elements, (min(_MOST_COMPARED_ELEMENTS, 4 * elements),), device=results[0].device)
    seen = torch.stack([result[positions] for result in results])
    return float((seen == seen[:1]).all(dim=0).double().mean())


def _repeated_lines(results: list[torch.Tensor]) -> float:
    """Share of calls in which a line repeats its most frequent content, without the first time; mean over lines."""
    per_line = _LINE_BYTES // results[0].element_size()
    count = len(results[0]) // per_line
    if not count:
        return 0.0
    chosen = torch.randint(count, (min(_MOST_COMPARED_LINES, 4 * count),), device=results[0].device)
    lines = torch.stack([result[: count * per_line].view(count, per_line)[chosen] for result in results])
    equal_calls = torch.stack([(lines == each).all(dim=2).sum(dim=0) for each in lines])
    return float((equal_calls.amax(dim=0) - 1).double().mean()) / (len(results) - 1)


def _is_independent_of_inputs(reference: Reference, results: list[torch.Tensor]) -> bool:
    """Whether torch's results are the same even for random bits as arguments."""
    storages = draw_storages(reference.case, 0, 1, reference.device)
    for storage in storages:
        storage.view(torch.uint8).random_()
    try:
        found = reference.evaluator.native_on(storages, 1)
    except operator_errors():
        return False
    if found is None:
        return False
    tensors = [leaf for leaf in found.results[0] if isinstance(leaf, torch.Tensor)]
    return len(tensors) == len(results) and all(
        torch.equal(bits(one.contiguous()), bits(other.contiguous()))
        for one, other in zip(tensors, results, strict=True)
    )
