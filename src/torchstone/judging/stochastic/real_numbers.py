"""Values of any dtype as numbers that every kernel takes: random results are judged by them. And how odd a count is."""

from __future__ import annotations

import torch

_WIDER = {torch.bool: torch.uint8, torch.uint16: torch.int32, torch.uint32: torch.int64, torch.uint64: torch.int64}
"""Of dtypes that can hardly be compared or sorted on a device. The upper half of uint64 becomes negative: for torch's
draws as for the candidate's."""


def real_rows(values: torch.Tensor) -> torch.Tensor:
    """``(rows, elements)``; complex numbers as twice as many real ones, and what few kernels know in a wider dtype."""
    if values.is_complex():
        values = torch.view_as_real(values.resolve_conj())
    elif values.is_floating_point() and values.element_size() == 1:
        values = values.to(torch.float32)
    values = values.to(_WIDER.get(values.dtype, values.dtype))
    return values.reshape(values.shape[0], -1) if values.numel() else values.new_empty((values.shape[0], 0))
