"""Gradients of layer normalisation in Triton.

Each program takes tiles of rows in turn: it writes their dx, and adds up in registers what they contribute to the
gradients of weight and bias. A second kernel adds these sums of all programs, column by column, in a fixed order.
Rows of more than LONGEST columns are read block by block, and the sums per column come from a kernel of their own.
"""

from collections.abc import Sequence

import torch
import triton
import triton.language as tl

from torchstone.kernels.input_preparation import programs_for, require_float, rows_of

LONGEST = 8192
TILE = 2048
PROGRAMS_PER_MULTIPROCESSOR = 4
"""More programs mean more sums for the second kernel to add."""
SUM_ROWS, SUM_COLUMNS = 256, 16
"""Tile of the kernel that adds the sums of all programs."""
LONG_ROWS, LONG_COLUMNS = 64, 64
"""Tile of the kernel that adds up the columns of long rows."""


@triton.jit
def _short_rows(
    dy_ptr, x_ptr, w_ptr, mean_ptr, rstd_ptr, dx_ptr, dw_ptr, db_ptr, rows, columns, dy_stride, x_stride,
    HAS_WEIGHT: tl.constexpr, WANTS_DX: tl.constexpr, WANTS_SUMS: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, EXACT: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    if EXACT:
        columns = COLUMNS  # a constant lets the compiler prove that 16-byte loads are aligned
    program, programs = tl.program_id(0).to(tl.int64), tl.num_programs(0)
    column = tl.arange(0, COLUMNS)
    within = column < columns
    dw = tl.zeros((ROWS, COLUMNS), tl.float32)  # added up over the rows of the tile only at the end
    db = tl.zeros((ROWS, COLUMNS), tl.float32)
    if HAS_WEIGHT:
        w = tl.load(w_ptr + column, mask=within, other=0.0).to(tl.float32)
    for tile in tl.range(program, tl.cdiv(rows, ROWS), programs, num_stages=STAGES):
        row = tile * ROWS + tl.arange(0, ROWS)
        inside = (row < rows)[:, None] & within[None, :]
        x = tl.load(x_ptr + row[:, None] * x_stride + column[None, :], mask=inside, other=0.0).to(tl.float32)
        dy = tl.load(dy_ptr + row[:, None] * dy_stride + column[None, :], mask=inside, other=0.0).to(tl.float32)
        mean = tl.load(mean_ptr + row, mask=row < rows, other=0.0).to(tl.float32)
        rstd = tl.load(rstd_ptr + row, mask=row < rows, other=0.0).to(tl.float32)
        normal = tl.where(inside, (x - mean[:, None]) * rstd[:, None], 0.0)
        if WANTS_SUMS:
            dw += dy * normal
            db += dy
        if WANTS_DX:
            wdy = dy
            if HAS_WEIGHT:
                wdy = dy * w[None, :]
            along = tl.sum(wdy * normal, axis=1) / columns
            level = tl.sum(wdy, axis=1) / columns
            dx = (wdy - level[:, None] - normal * along[:, None]) * rstd[:, None]
            tl.store(dx_ptr + row[:, None] * columns + column[None, :], dx.to(dx_ptr.dtype.element_ty), mask=inside)
    if WANTS_SUMS:
        tl.store(dw_ptr + program * columns + column, tl.sum(dw, axis=0), mask=within)
        tl.store(db_ptr + program * columns + column, tl.sum(db, axis=0), mask=within)


@triton.jit
def _long_rows(
    dy_ptr, x_ptr, w_ptr, mean_ptr, rstd_ptr, dx_ptr, columns, dy_stride, x_stride,
    HAS_WEIGHT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    mean = tl.load(mean_ptr + row).to(tl.float32)
    rstd = tl.load(rstd_ptr + row).to(tl.float32)
    along = tl.zeros((BLOCK,), tl.float32)
    level = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, columns, BLOCK):
        column = start + tl.arange(0, BLOCK)
        inside = column < columns
        x = tl.load(x_ptr + row * x_stride + column, mask=inside, other=0.0).to(tl.float32)
        wdy = tl.load(dy_ptr + row * dy_stride + column, mask=inside, other=0.0).to(tl.float32)
        if HAS_WEIGHT:
            wdy *= tl.load(w_ptr + column, mask=inside, other=0.0).to(tl.float32)
        along += tl.where(inside, wdy * (x - mean) * rstd, 0.0)
        level += wdy
    along_mean = tl.sum(along, axis=0) / columns
    level_mean = tl.sum(level, axis=0) / columns
    for start in range(0, columns, BLOCK):
        column = start + tl.arange(0, BLOCK)
        inside = column < columns
        x = tl.load(x_ptr + row * x_stride + column, mask=inside, other=0.0).to(tl.float32)
        wdy = tl.load(dy_ptr + row * dy_stride + column, mask=inside, other=0.0).to(tl.float32)
        if HAS_WEIGHT:
            wdy *= tl.load(w_ptr + column, mask=inside, other=0.0).to(tl.float32)
        dx = (wdy - level_mean - (x - mean) * rstd * along_mean) * rstd
        tl.store(dx_ptr + row * columns + column, dx.to(dx_ptr.dtype.element_ty), mask=inside)


@triton.jit
def _column_sums_of_long_rows(
    dy_ptr, x_ptr, mean_ptr, rstd_ptr, dw_ptr, db_ptr, rows, columns, dy_stride, x_stride,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    program, programs = tl.program_id(1).to(tl.int64), tl.num_programs(1)
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    dw = tl.zeros((COLUMNS,), tl.float32)
    db = tl.zeros((COLUMNS,), tl.float32)
    for tile in range(program, tl.cdiv(rows, ROWS), programs):
        row = tile * ROWS + tl.arange(0, ROWS)
        inside = (row < rows)[:, None] & (column < columns)[None, :]
        x = tl.load(x_ptr + row[:, None] * x_stride + column[None, :], mask=inside, other=0.0).to(tl.float32)
        dy = tl.load(dy_ptr + row[:, None] * dy_stride + column[None, :], mask=inside, other=0.0).to(tl.float32)
        mean = tl.load(mean_ptr + row, mask=row < rows, other=0.0).to(tl.float32)
        rstd = tl.load(rstd_ptr + row, mask=row < rows, other=0.0).to(tl.float32)
        dw += tl.sum(dy * (x - mean[:, None]) * rstd[:, None], axis=0)
        db += tl.sum(dy, axis=0)
    tl.store(dw_ptr + program * columns + column, dw, mask=column < columns)
    tl.store(db_ptr + program * columns + column, db, mask=column < columns)


@triton.jit
def _add_columns(
    dw_sums_ptr, db_sums_ptr, dw_ptr, db_ptr, programs, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    dw = tl.zeros((ROWS, COLUMNS), tl.float32)
    db = tl.zeros((ROWS, COLUMNS), tl.float32)
    for start in range(0, programs, ROWS):
        row = start + tl.arange(0, ROWS)
        inside = (row < programs)[:, None] & (column < columns)[None, :]
        place = row[:, None].to(tl.int64) * columns + column[None, :]
        dw += tl.load(dw_sums_ptr + place, mask=inside, other=0.0)
        db += tl.load(db_sums_ptr + place, mask=inside, other=0.0)
    tl.store(dw_ptr + column, tl.sum(dw, axis=0).to(dw_ptr.dtype.element_ty), mask=column < columns)
    tl.store(db_ptr + column, tl.sum(db, axis=0).to(db_ptr.dtype.element_ty), mask=column < columns)


def native_layer_norm_backward_kernel_impl(
    grad_out: torch.Tensor,
    input: torch.Tensor,
    normalized_shape: Sequence[int],
    mean: torch.Tensor,
    rstd: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    output_mask: Sequence[bool],
) -> tuple[torch.Tensor | None, torch.Tensor | None, torch.Tensor | None]:
    require_float(input, grad_out)
    wants_dx, wants_dw, wants_db = output_mask
    columns = input.shape[input.dim() - len(normalized_shape) :].numel()
    x, dy = rows_of(input, columns), rows_of(grad_out, columns)
    dx = torch.empty(input.shape, dtype=input.dtype, device=input.device) if wants_dx else None
    like = weight if weight is not None else bias if bias is not None else input
    wants_sums = (wants_dw and weight is not None) or wants_db
    made = torch.empty if input.numel() and wants_sums else torch.zeros
    dw, db = (made(tuple(normalized_shape), dtype=like.dtype, device=input.device) for _ in range(2))
    if input.numel():
        weight = None if weight is None else weight.contiguous()
        _launch(dy, x, weight, mean.contiguous(), rstd.contiguous(), dx, dw, db, wants_sums)
    return dx, dw if wants_dw and weight is not None else None, db if wants_db else None


def _launch(dy, x, weight, mean, rstd, dx, dw, db, wants_sums) -> None:
    rows, columns = x.shape
    has_weight = weight is not None
    short = columns <= LONGEST
    width = triton.next_power_of_2(columns)
    height = max(1, TILE // width) if short else 1
    programs = programs_for(x, triton.cdiv(rows, height if short else LONG_ROWS), PROGRAMS_PER_MULTIPROCESSOR)
    sums = torch.empty((2, programs if wants_sums else 1, columns), dtype=torch.float32, device=x.device)
    if short:
        _short_rows[(programs,)](
            dy, x, weight, mean, rstd, dx, sums[0], sums[1], rows, columns, dy.stride(0), x.stride(0),
            HAS_WEIGHT=has_weight, WANTS_DX=dx is not None, WANTS_SUMS=wants_sums,
            ROWS=height, COLUMNS=width, EXACT=width == columns, STAGES=2 if x.element_size() == 4 else 3,
            num_warps=warps_for(height * width),
        )  # fmt: skip
    elif dx is not None:
        _long_rows[(rows,)](
            dy, x, weight, mean, rstd, dx, columns, dy.stride(0), x.stride(0),
            HAS_WEIGHT=has_weight, BLOCK=LONGEST, num_warps=16,
        )  # fmt: skip
    if not wants_sums:
        return
    if not short:
        _column_sums_of_long_rows[(triton.cdiv(columns, LONG_COLUMNS), programs)](
            dy, x, mean, rstd, sums[0], sums[1], rows, columns, dy.stride(0), x.stride(0),
            ROWS=LONG_ROWS, COLUMNS=LONG_COLUMNS,
        )  # fmt: skip
    _add_columns[(triton.cdiv(columns, SUM_COLUMNS),)](
        sums[0], sums[1], dw, db, programs, columns, ROWS=SUM_ROWS, COLUMNS=SUM_COLUMNS
    )


def warps_for(elements: int) -> int:
    """A thread holds about 16 elements of a tile."""
    return max(1, min(16, elements // 512))
