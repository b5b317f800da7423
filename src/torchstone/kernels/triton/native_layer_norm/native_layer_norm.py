"""Layer normalisation in Triton.

Rows of up to LONGEST columns are held whole: a program normalises a tile of rows that it reads once. Longer rows are
read twice, block by block: for mean and variance, and to normalise. The variance is that of the differences from the
mean: E[x²] - E[x]² would cancel.
"""

from collections.abc import Sequence

import torch
import triton
import triton.language as tl

from torchstone.kernels.input_preparation import require_float, rows_of

LONGEST = 16384
"""Columns of a row that a program holds in registers."""
BLOCK = 8192
"""Columns of a longer row that are read at a time."""
TILE_BYTES = 4096
"""Size of a tile of short rows."""


@triton.jit
def _short_rows(
    x_ptr, w_ptr, b_ptr, y_ptr, mean_ptr, rstd_ptr, rows, columns, x_stride, eps,
    HAS_WEIGHT: tl.constexpr, HAS_BIAS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    if EXACT:
        columns = COLUMNS  # a constant lets the compiler prove that 16-byte loads are aligned
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, COLUMNS)
    inside = (row < rows)[:, None] & (column < columns)[None, :]
    x = tl.load(x_ptr + row[:, None] * x_stride + column[None, :], mask=inside, other=0.0).to(tl.float32)
    mean = tl.sum(x, axis=1) / columns
    centred = tl.where(inside, x - mean[:, None], 0.0)
    # The mean is rounded. What it is off by shows in the differences from it, and counts where they are small.
    off = tl.sum(centred, axis=1) / columns
    rstd = 1.0 / tl.sqrt(tl.sum(centred * centred, axis=1) / columns - off * off + eps)
    centred -= off[:, None]
    mean += off
    y = centred * rstd[:, None]
    if HAS_WEIGHT:
        y *= tl.load(w_ptr + column, mask=column < columns, other=0.0).to(tl.float32)[None, :]
    if HAS_BIAS:
        y += tl.load(b_ptr + column, mask=column < columns, other=0.0).to(tl.float32)[None, :]
    tl.store(y_ptr + row[:, None] * columns + column[None, :], y.to(y_ptr.dtype.element_ty), mask=inside)
    tl.store(mean_ptr + row, mean.to(mean_ptr.dtype.element_ty), mask=row < rows)
    tl.store(rstd_ptr + row, rstd.to(rstd_ptr.dtype.element_ty), mask=row < rows)


@triton.jit
def _long_rows(
    x_ptr, w_ptr, b_ptr, y_ptr, mean_ptr, rstd_ptr, columns, x_stride, eps,
    HAS_WEIGHT: tl.constexpr, HAS_BIAS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * x_stride
    y_ptr += row * columns
    # Welford's recurrence in every lane: its mean so far, and the sum of squares around it.
    means = tl.zeros((BLOCK,), tl.float32)
    squares = tl.zeros((BLOCK,), tl.float32)
    counts = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, columns, BLOCK):
        column = start + tl.arange(0, BLOCK)
        inside = column < columns
        x = tl.load(x_ptr + column, mask=inside, other=0.0).to(tl.float32)
        counts += tl.where(inside, 1.0, 0.0)
        step = tl.where(inside, x - means, 0.0)
        means += step / tl.maximum(counts, 1.0)
        squares += step * (x - means)
    mean = tl.sum(means * counts, axis=0) / columns
    apart = means - mean
    rstd = 1.0 / tl.sqrt(tl.sum(squares + counts * apart * apart, axis=0) / columns + eps)
    for start in range(0, columns, BLOCK):
        column = start + tl.arange(0, BLOCK)
        inside = column < columns
        y = (tl.load(x_ptr + column, mask=inside, other=0.0).to(tl.float32) - mean) * rstd
        if HAS_WEIGHT:
            y *= tl.load(w_ptr + column, mask=inside, other=0.0).to(tl.float32)
        if HAS_BIAS:
            y += tl.load(b_ptr + column, mask=inside, other=0.0).to(tl.float32)
        tl.store(y_ptr + column, y.to(y_ptr.dtype.element_ty), mask=inside)
    tl.store(mean_ptr + row, mean.to(mean_ptr.dtype.element_ty))
    tl.store(rstd_ptr + row, rstd.to(rstd_ptr.dtype.element_ty))


def native_layer_norm_kernel_impl(
    input: torch.Tensor,
    normalized_shape: Sequence[int],
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    eps: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    require_float(input)
    kept = input.shape[: input.dim() - len(normalized_shape)]
    columns = input.shape[len(kept) :].numel()
    x = rows_of(input, columns)
    rows = x.shape[0]
    y = torch.empty(input.shape, dtype=input.dtype, device=input.device)
    of_rows = (*kept, *[1] * len(normalized_shape))
    statistics = torch.float32 if input.device.type == "cuda" else input.dtype
    mean, rstd = (torch.empty(of_rows, dtype=statistics, device=input.device) for _ in range(2))
    if not y.numel():  # no columns: ATen's mean of nothing is 0, and its deviation is undefined
        return y, mean.zero_(), rstd.fill_(float("nan"))
    weight, bias = (None if item is None else item.contiguous() for item in (weight, bias))
    given = {"HAS_WEIGHT": weight is not None, "HAS_BIAS": bias is not None}
    if columns <= LONGEST:
        width = triton.next_power_of_2(columns)
        height = max(1, TILE_BYTES // x.element_size() // width)
        _short_rows[(triton.cdiv(rows, height),)](
            x, weight, bias, y, mean, rstd, rows, columns, x.stride(0), eps,
            **given, ROWS=height, COLUMNS=width, EXACT=width == columns,
            num_warps=warps_for(height * width * x.element_size()),
        )  # fmt: skip
    else:
        _long_rows[(rows,)](
            x, weight, bias, y, mean, rstd, columns, x.stride(0), eps, **given, BLOCK=BLOCK, num_warps=16
        )
    return y, mean, rstd


def warps_for(tile_bytes: int) -> int:
    """A thread holds about 64 bytes of a tile."""
    return max(1, min(32, tile_bytes // 2048))
