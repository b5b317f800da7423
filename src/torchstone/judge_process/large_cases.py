"""Estimates the memory that a case needs: refuses cases that do not fit, and finds large ones that get fewer checks.

A host that runs out of memory kills processes instead of refusing. So what a case needs is estimated before anything is
drawn, and one that cannot fit has no answer. On a GPU torch refuses by itself.
"""

from __future__ import annotations

import torch

from torchstone import model_operators, operators, schema
from torchstone.calls.reference_calls import ReferenceFailure, is_continuous
from torchstone.judge_process.call_layout import CallLayout
from torchstone.judging import DrawnCall, Expected
from torchstone.processes.free_memory import USABLE_SHARE, free_host_bytes
from torchstone.protocol.peak_memory import PeakMemory

_MANY_ELEMENTS = 1 << 24
"""Of the arguments and results of a call. To draw and answer so many takes a second of a CPU core."""
_FEW_ELEMENTS = 1 << 20
"""Of the same, up to which further calls are prepared while the candidate makes the first one."""
_COPIES_OF_SET = 4
"""Of the arguments and results of each further call in a block: drawn, presented, read back, and the worker's."""
_COPIES = 7
"""Of arguments and results, in their own dtypes: drawn, presented, read back, and those of the worker. Measured."""
_WIDE_COPIES, _WIDE_COPIES_OF_ARGUMENTS = 5, 2
"""Of what has a float64 form, while a call is compared in full: of results exact values, both sides of a step, bounds;
of arguments one at a time, and which way each value moves. Measured for large calls (`LARGE_ELEMENTS`) in float32."""
_WIDE_BYTES = 8


def is_bounded(job: schema.Job, first: Expected) -> bool:
    """Whether a case is so large that at effort quick few further calls of it are made."""
    return job.effort == "quick" and _elements(first) > _MANY_ELEMENTS


def is_small(first: Expected) -> bool:
    """Whether calls of a case may be held in memory before they are needed."""
    return _elements(first) <= _FEW_ELEMENTS


def _elements(first: Expected) -> int:
    """Of the arguments and results of a call."""
    arguments = sum(operators.storage_extent(recipe) for recipe in schema.tensors_of(first.call.case))
    return arguments + sum(tensor.numel() for tensor in first.new_tensors)


def require_memory_for_arguments(case: schema.Case, device_type: str) -> None:
    """Before anything is drawn. Raises :class:`ReferenceFailure` with figures."""
    _require(bytes_for_arguments(case), 0, device_type, case)


def require_memory(case: schema.Case, first: Expected, layout: CallLayout, device_type: str) -> None:
    """The same, once torch has answered a call, before it is compared."""
    held = layout.footprint_bytes + sum(tensor.nbytes for tensor in first.new_tensors)
    _require(bytes_for_call(case, first), held, device_type, case)


def bytes_for_job(case: schema.Case, first: Expected, layout: CallLayout, sets: int) -> int:
    """What a job takes of the memory of its device, in all processes together, with so many calls in a block."""
    return bytes_for_call(case, first) + (sets - 1) * _COPIES_OF_SET * layout.footprint_bytes


def bytes_for_call(case: schema.Case, first: Expected) -> int:
    """What one call takes until it has been compared."""
    results = (_copies_bytes(each.numel(), each.dtype, _WIDE_COPIES) for each in first.new_tensors)
    return bytes_for_arguments(case) + sum(results)


def bytes_for_arguments(case: schema.Case) -> int:
    """What the arguments of one call take of that: known before anything is drawn."""
    return sum(
        _copies_bytes(operators.storage_extent(recipe), operators.torch_dtype(recipe.dtype), _WIDE_COPIES_OF_ARGUMENTS)
        for recipe in schema.tensors_of(case)
    )


def _copies_bytes(elements: int, dtype: torch.dtype, wide_copies: int) -> int:
    return elements * (_COPIES * dtype.itemsize + (wide_copies * _WIDE_BYTES if is_continuous(dtype) else 0))


def _require(needed: int, held: int, device_type: str, case: schema.Case) -> None:
    """``held``: what the case has taken already."""
    if device_type != "cpu":
        return
    usable = int(USABLE_SHARE * (free_host_bytes() + held))
    if needed > usable:
        given = sum(
            operators.storage_extent(recipe) * operators.torch_dtype(recipe.dtype).itemsize
            for recipe in schema.tensors_of(case)
        )
        raise ReferenceFailure(
            f"{case.operator} needs about {_gib(needed)} to be judged (arguments of {_gib(given)}, copies, results and "
            f"float64 reference), {_gib(usable)} of memory can be used"
        )


def _gib(size_bytes: int) -> str:
    return f"{size_bytes / 2**30:.1f} GiB"


def peak_bytes_of_reference(call: DrawnCall) -> int | None:
    """The most memory that torch's own operator takes beyond the arguments; None: it cannot be watched.

    torch's errors come out.
    """
    host = model_operators.host_of(call.case)
    if host is not None:
        return host.peak_bytes(call.case, call.args)
    with PeakMemory(call.device.type) as peak:
        operators.resolve(call.case.operator)(*call.args, **call.kwargs)
    return peak.size_bytes
