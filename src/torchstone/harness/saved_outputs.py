"""Saves the output of a benchmark, found after its first call, in a file from which it is compared."""

from __future__ import annotations

import contextlib
import math
from pathlib import Path
from typing import Any

import torch
from torch.utils import _pytree as pytree

from torchstone.harness.benchmark_process_messages import Outputs, OutputTensor
from torchstone.tensor_files import save_tensors


def save_output(benchmark: Any, returned: Any, path: Path) -> Outputs:
    """Write the benchmark's output to the file. An error while reading the output becomes a note, not a failure."""
    try:
        with torch.no_grad():
            tensors = _named_tensors(_output_of(benchmark, returned))
            if not tensors:
                return Outputs()
            save_tensors(path, tensors)
    except Exception as error:  # noqa: BLE001 - the benchmark's own code, in its own ways
        return Outputs(note=f"offers no output: {type(error).__name__}: {_first_line(error)}")
    described = tuple(
        OutputTensor(name, str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape)) for name, tensor in tensors
    )
    return Outputs(described, tolerance=_declared_tolerance(benchmark), allows_tf32=_allows_tf32(tensors))


def _output_of(benchmark: Any, returned: Any) -> Any:
    """The first of: `get_verify_output()`, `output()`, an attribute `output`, the returned value."""
    if callable(capture := getattr(benchmark, "capture_verification_payload", None)):
        capture()
    if callable(verify := getattr(benchmark, "get_verify_output", None)):
        return verify()
    found = getattr(benchmark, "output", None)
    if found is not None and not isinstance(found, torch.nn.Module):
        if callable(found):
            return found()
        if _named_tensors(found):
            return found
    return returned


def _named_tensors(value: Any) -> list[tuple[str, torch.Tensor]]:
    leaves, _ = pytree.tree_flatten_with_path(value)
    return [
        (f"output{pytree.keystr(path)}", leaf)
        for path, leaf in leaves
        if isinstance(leaf, torch.Tensor) and leaf.device.type != "meta"
    ]


def _declared_tolerance(benchmark: Any) -> tuple[float, float] | None:
    with contextlib.suppress(Exception):
        rtol, atol = (float(value) for value in benchmark.get_output_tolerance())
        if min(rtol, atol) >= 0 and math.isfinite(rtol + atol):
            return rtol, atol
    return None


def _allows_tf32(tensors: list[tuple[str, torch.Tensor]]) -> bool:
    """Whether float32 products or convolutions of cuDNN may use TF32 (10 bits of mantissa) on this device."""
    if not any(tensor.is_cuda for _, tensor in tensors):
        return False
    try:
        return bool(torch.backends.cuda.matmul.allow_tf32 or torch.backends.cudnn.allow_tf32)
    except RuntimeError:  # torch's newer settings were used, which the older ones cannot tell
        return True


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).splitlines()), "")
