"""Makes large variants of small cases for timing: samples made for correctness are too small.

Every size grows to a power of two, all by about the same factor. They grow while torch accepts the call, gives the same
bits each time, and stays fast. Integer arguments that equal a size are first left unchanged. If that does not reach the
wanted size, they grow as well: it is not known which of them are sizes.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Iterator

import msgspec
import torch

from torchstone import operators, schema
from torchstone.calls.bitwise_equality import bits
from torchstone.calls.draw_arguments import DrawnCall, draw_call
from torchstone.calls.random_or_undefined_results import draws_random_numbers, leaves_values_undefined
from torchstone.calls.reference_calls import Evaluator, ReferenceFailure
from torchstone.calls.resizing import resized
from torchstone.errors import UsageError

LARGE = "large"
"""Tag of an enlarged case."""
ELEMENTS = {"cpu": 1 << 18, "cuda": 1 << 24}
"""Elements that the largest tensor should have at least, by device type."""
_MAX_CALL_SECONDS = 0.1
"""Longest time of one call of an enlarged case."""
_MOST_DOUBLINGS = 22


def enlarged(case: schema.Case, device: torch.device) -> schema.Case | None:
    """A timed variant whose largest tensor has at least a sixteenth of `ELEMENTS`; None if there is none."""
    wanted = ELEMENTS.get(device.type, ELEMENTS["cpu"])
    if not _takes_longer_when_enlarged(case):
        return None
    best: schema.Case | None = None
    for numbers in (False, True):
        for grown in _grown(case, numbers=numbers):
            if _largest(grown) > 4 * wanted or not _is_suitable(grown, device, 4 * wanted):
                break
            if best is None or _largest(grown) > _largest(best):
                best = grown
            if _largest(grown) >= wanted:
                break
        if best is not None and _largest(best) >= wanted:
            break
    if best is None or _largest(best) < max(wanted // 16, 4 * _largest(case)):
        return None
    return msgspec.structs.replace(best, timed=True, tags=(*case.tags, LARGE), indistinct="", occurrences=0)


def _takes_longer_when_enlarged(case: schema.Case) -> bool:
    """Whether a larger case would take longer: not for views, and cases with given values cannot be enlarged."""
    tensors = schema.tensors_of(case)
    fresh = operators.contract_of(case).fresh
    writes = bool(operators.contract_of(case).mutated)
    constant = any(isinstance(tensor.fill, schema.Given) for tensor in tensors)
    return bool(tensors) and not constant and (writes or any(fresh))


def _grown(case: schema.Case, *, numbers: bool) -> Iterator[schema.Case]:
    sizes = sorted({size for tensor in schema.tensors_of(case) for size in tensor.shape if size > 1})
    for doublings in range(1, _MOST_DOUBLINGS if sizes else 1):
        yield resized(case, {size: _power_of_two(size) << doublings for size in sizes}, numbers=numbers)


def _power_of_two(size: int) -> int:
    return 1 << (size - 1).bit_length()


def _largest(case: schema.Case) -> int:
    return max((math.prod(tensor.shape) for tensor in schema.tensors_of(case)), default=0)


def _is_suitable(case: schema.Case, device: torch.device, most_elements: int) -> bool:
    """Whether torch accepts the case, is fast and repeats its results, and no result has more than `most_elements`."""
    try:
        call = draw_call(case, 5, device)
        evaluator = Evaluator(case, device)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = evaluator.native([call])  # the first call of an operator may load and plan
            if found is not None and max((t.numel() for t in found.tensors.values()), default=0) > most_elements:
                return False
            _synchronize(device)
            began = time.perf_counter()
            evaluator.native([call])
            _synchronize(device)
            took = time.perf_counter() - began
            # Sums whose order depends on threads round differently each time. Of millions of such results, some exceed
            # any bound.
            return took < _MAX_CALL_SECONDS and repeats_itself(evaluator, call)
    except (ReferenceFailure, UsageError, MemoryError, torch.OutOfMemoryError):
        return False


def repeats_itself(evaluator: Evaluator, call: DrawnCall) -> bool:
    """Whether torch gives the same bits twice. True if an operator draws random numbers or leaves values undefined."""
    if draws_random_numbers(evaluator) or leaves_values_undefined(evaluator):
        return True
    one, other = evaluator.native([call]), evaluator.native([call])
    if one is None or other is None:
        return True
    return all(torch.equal(bits(tensor), bits(other.tensors[place])) for place, tensor in one.tensors.items())


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
