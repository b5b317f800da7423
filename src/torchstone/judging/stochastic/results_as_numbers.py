"""Converts random results of any dtype to rows of real numbers that the checks of random results can compare."""

from __future__ import annotations

import torch

_WIDER_DTYPES = {
    torch.bool: torch.uint8,
    torch.uint16: torch.int32,
    torch.uint32: torch.int64,
    torch.uint64: torch.int64,
}
"""Wider dtypes for those that devices cannot compare or sort well. The upper half of uint64 becomes negative, in
torch's draws and in the candidate's alike."""


def real_rows(values: torch.Tensor) -> torch.Tensor:
    """``(rows, elements)``: complex numbers become twice as many real ones, rare dtypes become a wider one."""
    if values.is_complex():
        values = torch.view_as_real(values.resolve_conj())
    elif values.is_floating_point() and values.element_size() == 1:
        values = values.to(torch.float32)
    values = values.to(_WIDER_DTYPES.get(values.dtype, values.dtype))
    return values.reshape(values.shape[0], -1) if values.numel() else values.new_empty((values.shape[0], 0))
