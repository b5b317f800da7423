"""Estimates the memory that a case needs: refuses cases that do not fit, and finds large ones that get fewer checks.

A host that runs out of memory kills processes instead of refusing memory. So the needs of a case are estimated before
anything is drawn, and a case that cannot fit is refused. On a GPU torch itself refuses.
"""

from __future__ import annotations

import torch

from torchstone import model_operators, operators, schema
from torchstone.calls.reference_calls import ReferenceFailure, is_continuous
from torchstone.judge_process.call_layout import CallLayout
from torchstone.judging import DrawnCall, Expected
from torchstone.processes.free_memory import USABLE_SHARE, free_host_bytes
from torchstone.protocol.peak_memory import PeakMemory

_LARGE_CASE_ELEMENTS = 1 << 24
"""Elements of a call's arguments and results above which few calls are checked at effort quick. To draw and evaluate so
many takes a second of a CPU core."""
_SMALL_CASE_ELEMENTS = 1 << 20
"""Elements of a call up to which further calls are prepared while the candidate makes the first one."""
_COPIES_PER_FURTHER_CALL = 4
"""Copies of arguments and results of each further call in a block: drawn, in the buffers, read back, in the worker."""
_COPIES = 7
"""Copies of the first call's arguments and results, in their own dtypes: drawn, in the buffers, read back, and those of
the worker. Measured."""
_FLOAT64_COPIES_OF_RESULTS, _FLOAT64_COPIES_OF_ARGUMENTS = 5, 2
"""Float64 copies while a call of continuous dtypes is compared in full. Of results: exact values, both sides of a step,
bounds. Of arguments: one at a time, and the direction in which each value moves. Measured for large calls
(`LARGE_ELEMENTS`) in float32."""
_FLOAT64_BYTES = 8


def is_bounded(job: schema.Job, first: Expected) -> bool:
    """Whether few calls are checked because the case is large and the effort is quick."""
    return job.effort == "quick" and _elements(first) > _LARGE_CASE_ELEMENTS


def is_small(first: Expected) -> bool:
    """Whether calls of this case may be drawn and evaluated before they are needed."""
    return _elements(first) <= _SMALL_CASE_ELEMENTS


def _elements(first: Expected) -> int:
    """Elements of the arguments and results of a call."""
    arguments = sum(operators.storage_extent(recipe) for recipe in schema.tensors_of(first.call.case))
    return arguments + sum(tensor.numel() for tensor in first.new_tensors)


def require_memory_for_arguments(case: schema.Case, device_type: str) -> None:
    """Check the host's memory before anything is drawn. Raises :class:`ReferenceFailure` if arguments do not fit."""
    _require(bytes_for_arguments(case), 0, device_type, case)


def require_memory(case: schema.Case, first: Expected, layout: CallLayout, device_type: str) -> None:
    """Check the host's memory again, once a call has been evaluated and before it is compared."""
    held = layout.footprint_bytes + sum(tensor.nbytes for tensor in first.new_tensors)
    _require(bytes_for_call(case, first), held, device_type, case)


def bytes_for_job(case: schema.Case, first: Expected, layout: CallLayout, sets: int) -> int:
    """Bytes of device memory that a job needs in all processes, with ``sets`` calls in a block."""
    return bytes_for_call(case, first) + (sets - 1) * _COPIES_PER_FURTHER_CALL * layout.footprint_bytes


def bytes_for_call(case: schema.Case, first: Expected) -> int:
    """Bytes that one call needs until it has been compared."""
    results = (_copies_bytes(each.numel(), each.dtype, _FLOAT64_COPIES_OF_RESULTS) for each in first.new_tensors)
    return bytes_for_arguments(case) + sum(results)


def bytes_for_arguments(case: schema.Case) -> int:
    """The part of :func:`bytes_for_call` that arguments need, which is known before anything is drawn."""
    return sum(
        _copies_bytes(
            operators.storage_extent(recipe), operators.torch_dtype(recipe.dtype), _FLOAT64_COPIES_OF_ARGUMENTS
        )
        for recipe in schema.tensors_of(case)
    )


def _copies_bytes(elements: int, dtype: torch.dtype, float64_copies: int) -> int:
    return elements * (_COPIES * dtype.itemsize + (float64_copies * _FLOAT64_BYTES if is_continuous(dtype) else 0))


def _require(needed_bytes: int, held_bytes: int, device_type: str, case: schema.Case) -> None:
    """Raise ReferenceFailure if the host lacks memory. ``held_bytes``: bytes that the case has already taken."""
    if device_type != "cpu":
        return
    usable = int(USABLE_SHARE * (free_host_bytes() + held_bytes))
    if needed_bytes > usable:
        given = sum(
            operators.storage_extent(recipe) * operators.torch_dtype(recipe.dtype).itemsize
            for recipe in schema.tensors_of(case)
        )
        raise ReferenceFailure(
            f"{case.operator} needs about {_gib(needed_bytes)} to be judged (arguments of {_gib(given)}, copies, "
            f"results and float64 reference), {_gib(usable)} of memory can be used"
        )


def _gib(size_bytes: int) -> str:
    return f"{size_bytes / 2**30:.1f} GiB"


def peak_bytes_of_reference(call: DrawnCall) -> int | None:
    """Peak memory of torch's own operator beyond the arguments; None: not known. torch's errors are not caught."""
    host = model_operators.host_of(call.case)
    if host is not None:
        return host.peak_bytes(call.case, call.args)
    with PeakMemory(call.device.type) as peak:
        operators.resolve(call.case.operator)(*call.args, **call.kwargs)
    return peak.size_bytes
