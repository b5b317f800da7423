"""Compares results before their elements: number and kind of outputs, dtypes, shapes, strides, plain values.

The kernel chooses the strides of a result, unless the case states them: ``x.transpose(1, 2).contiguous()`` often
precedes a ``view``, which would raise with other strides. A worker cannot misreport strides: the judge reads the result
with the strides that the worker names.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from torchstone.judging.comparison_result import Mismatch, Reason
from torchstone.judging.number_wording import counted
from torchstone.judging.reference.expected import Expected, ExpectedOutput, states_format
from torchstone.schema import WrongResult


def metadata_fits(expected: Expected, outputs: Sequence[Any]) -> bool:
    """Whether :func:`metadata_mismatch` finds nothing. Faster, for many calls."""
    leaves = expected.batch.evaluation.results[expected.index]
    if len(leaves) != len(outputs):
        return not leaves
    judges_strides = states_format(expected.call.case)
    return all(
        isinstance(got, torch.Tensor)
        and got.dtype == leaf.dtype
        and got.shape == leaf.shape
        and not (judges_strides and _has_other_strides(got, leaf.stride()))
        if isinstance(leaf, torch.Tensor)
        else _plain_value_mismatch(leaf, got) is None
        for leaf, got in zip(leaves, outputs, strict=True)
    )


def metadata_mismatch(wanted: Sequence[ExpectedOutput], outputs: Sequence[Any]) -> Mismatch | None:
    """The first mismatch, in the order structure, dtype, shape, plain value; None if there is none.

    Any output is accepted if the operator declares no return.
    """
    if not wanted:
        return None
    if len(outputs) != len(wanted):
        text = f"returned {counted(len(outputs), 'output')}, expected {len(wanted)}"
        return Mismatch("structure", text, wrong=WrongResult(text=text))
    mismatches = [_output_mismatch(want, got) for want, got in zip(wanted, outputs, strict=True)]
    found = [(position, mismatch) for position, mismatch in enumerate(mismatches) if mismatch is not None]
    if not found:
        return None
    order = ("structure", "dtype", "shape", "values")
    position, (reason, text) = min(found, key=lambda item: order.index(item[1][0]))
    wrong = WrongResult(position=position, text="the value is wrong" if reason == "values" else text)
    return Mismatch(reason, f"output {position}: {text}", wrong=wrong)


def _output_mismatch(wanted: ExpectedOutput, got: Any) -> tuple[Reason, str] | None:
    if wanted.dtype is None:
        return _plain_value_mismatch(wanted.native, got)
    if not isinstance(got, torch.Tensor):
        return "structure", f"got a {_kind(got)}, expected a tensor"
    if got.dtype != wanted.dtype:
        return "dtype", f"got {_dtype_name(got.dtype)}, expected {_dtype_name(wanted.dtype)}"
    if got.shape != wanted.shape:
        return "shape", f"got shape {list(got.shape)}, expected {list(wanted.shape or ())}"
    if wanted.has_stated_strides and _has_other_strides(got, wanted.strides or ()):
        return "structure", f"got strides {list(got.stride())}, expected {list(wanted.strides or ())} (memory_format)"
    return None


def _has_other_strides(got: torch.Tensor, strides: Sequence[int]) -> bool:
    """Whether strides differ in a dimension of more than one element. Always False for empty tensors."""
    steps = zip(got.shape, got.stride(), strides, strict=True)
    return got.numel() > 0 and any(own != wanted for size, own, wanted in steps if size > 1)


def _plain_value_mismatch(wanted: Any, got: Any) -> tuple[Reason, str] | None:
    if type(got) is not type(wanted):
        return "structure", f"got a {_kind(got)}, expected a {_kind(wanted)}"
    same = got == wanted or (got != got and wanted != wanted)
    return None if same else ("values", f"got {got!r}, expected {wanted!r}")


def _kind(value: Any) -> str:
    return "tensor" if isinstance(value, torch.Tensor) else type(value).__name__


def _dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
