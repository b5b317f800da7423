"""Large cases: which ones are checked within bounds of work instead of numbers of calls, and which ones do not fit.

A host that runs out of memory kills processes instead of refusing. So what a case needs is estimated before anything is
drawn, and one that cannot fit has no answer. On a GPU torch refuses by itself.
"""

from __future__ import annotations

import torch

from torchstone import operators, schema
from torchstone.calls.evaluation import ReferenceFailure, is_continuous
from torchstone.judge_process.call_layout import CallLayout
from torchstone.judging import Expected
from torchstone.processes.free_memory import free_host_bytes

_MANY_ELEMENTS = 1 << 24
"""Of the arguments and results of a call. To draw and answer so many takes a second of a CPU core."""
_FEW_ELEMENTS = 1 << 20
"""Of the same, up to which further calls are prepared while the candidate makes the first one."""
_COPIES = 7
"""Of arguments and results, in their own dtypes: drawn, presented, read back, and those of the worker. Measured."""
_WIDE_COPIES = 5
"""Of what has a float64 form, while a call is compared in full: exact values, both sides of a step, bounds. Measured:
12 to 14 times the bytes of arguments and results in all, in float32."""
_WIDE_BYTES = 8
_USABLE_SHARE = 0.6
"""Of the memory that is free now: others use the machine, too."""


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


def require_memory_for_arguments(case: schema.Case, device_type: str, judges: int) -> None:
    """Before anything is drawn. Raises :class:`ReferenceFailure` with figures."""
    _require(_needed_bytes(case), 0, device_type, judges, case)


def require_memory(case: schema.Case, first: Expected, layout: CallLayout, device_type: str, judges: int) -> None:
    """The same, once torch has answered a call, before it is compared."""
    results = first.new_tensors
    needed = sum(_copies_bytes(tensor.numel(), tensor.dtype) for tensor in results)
    held = layout.footprint_bytes + sum(tensor.nbytes for tensor in results)
    _require(_needed_bytes(case) + needed, held, device_type, judges, case)


def _needed_bytes(case: schema.Case) -> int:
    return sum(
        _copies_bytes(operators.storage_extent(recipe), operators.torch_dtype(recipe.dtype))
        for recipe in schema.tensors_of(case)
    )


def _copies_bytes(elements: int, dtype: torch.dtype) -> int:
    return elements * (_COPIES * dtype.itemsize + (_WIDE_COPIES * _WIDE_BYTES if is_continuous(dtype) else 0))


def _require(needed: int, held: int, device_type: str, judges: int, case: schema.Case) -> None:
    """``held``: what the case has taken already."""
    if device_type != "cpu":
        return
    usable = int(_USABLE_SHARE * (free_host_bytes() + held)) // judges
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
