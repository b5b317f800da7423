"""GELU of a layer normalisation in Triton, forward and backward.

Forward reads a tile of rows once and writes the result; the normalised rows never go to memory. Only the mean and one
over the standard deviation of each row are kept. Backward computes the normalised rows again from these. It writes dx,
and each program adds up in registers what its rows contribute to the gradients of weight and bias. A second kernel adds
these sums of all programs, column by column, in a fixed order, so that equal inputs give equal gradients.
Rows of more columns than a program can hold are read block by block, several times.
"""

import torch
import triton
import triton.language as tl

from torchstone.kernels.input_preparation import programs_for, require_float, rows_of

LONGEST = 8192
"""Most columns of a row that a program of the forward pass holds in registers."""
LONGEST_BACKWARD = 4096
"""The same for the backward pass, which holds x, dy and two sums."""
TILE_BYTES = 4096
"""Size of a tile of short rows in the forward pass."""
TILE = 2048
"""Elements of a tile of short rows in the backward pass."""
PROGRAMS_PER_MULTIPROCESSOR = 4
"""Programs of the backward pass. More programs mean more sums for the last kernel to add."""
SUM_ROWS, SUM_COLUMNS = 256, 16
"""Tile of the kernel that adds the sums of all programs."""
LONG_ROWS, LONG_COLUMNS = 64, 64
"""Tile of the kernel that adds up the columns of long rows."""


@triton.jit
def _gelu(u, TANH: tl.constexpr):
    if TANH:
        # 0.5 * (1 + tanh(v)) is sigmoid(2v), which does not cancel for negative v.
        y = u * tl.sigmoid(1.5957691216057308 * (u + 0.044715 * u * u * u))
    else:
        y = 0.5 * u * (1.0 + tl.erf(u * 0.7071067811865476))
    return y


@triton.jit
def _gelu_derivative(u, TANH: tl.constexpr):
    if TANH:
        share = tl.sigmoid(1.5957691216057308 * (u + 0.044715 * u * u * u))
        slope = 1.5957691216057308 * (1.0 + 3.0 * 0.044715 * u * u)
        derivative = share + u * share * (1.0 - share) * slope
    else:
        density = 0.3989422804014327 * tl.exp(-0.5 * u * u)
        derivative = 0.5 * (1.0 + tl.erf(u * 0.7071067811865476)) + u * density
    return derivative


@triton.jit
def _short_rows(
    x_ptr, w_ptr, b_ptr, y_ptr, mean_ptr, rstd_ptr, rows, columns, x_stride, eps,
    TANH: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    if EXACT:
        columns = COLUMNS  # a constant lets the compiler prove that 16-byte loads are aligned
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, COLUMNS)
    within = column < columns
    inside = (row < rows)[:, None] & within[None, :]
    x = tl.load(x_ptr + row[:, None] * x_stride + column[None, :], mask=inside, other=0.0).to(tl.float32)
    w = tl.load(w_ptr + column, mask=within, other=0.0).to(tl.float32)
    b = tl.load(b_ptr + column, mask=within, other=0.0).to(tl.float32)
    mean = tl.sum(x, axis=1) / columns
    centred = tl.where(inside, x - mean[:, None], 0.0)
    # The mean is rounded. What it is off by shows in the differences from it, and counts where they are small.
    off = tl.sum(centred, axis=1) / columns
    rstd = 1.0 / tl.sqrt(tl.sum(centred * centred, axis=1) / columns - off * off + eps)
    centred -= off[:, None]
    mean += off
    y = _gelu(centred * rstd[:, None] * w[None, :] + b[None, :], TANH)
    tl.store(y_ptr + row[:, None] * columns + column[None, :], y.to(y_ptr.dtype.element_ty), mask=inside)
    tl.store(mean_ptr + row, mean, mask=row < rows)
    tl.store(rstd_ptr + row, rstd, mask=row < rows)


@triton.jit
def _long_rows(
    x_ptr, w_ptr, b_ptr, y_ptr, mean_ptr, rstd_ptr, columns, x_stride, eps,
    TANH: tl.constexpr, BLOCK: tl.constexpr,
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
        w = tl.load(w_ptr + column, mask=inside, other=0.0).to(tl.float32)
        b = tl.load(b_ptr + column, mask=inside, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + column, mask=inside, other=0.0).to(tl.float32)
        y = _gelu((x - mean) * rstd * w + b, TANH)
        tl.store(y_ptr + column, y.to(y_ptr.dtype.element_ty), mask=inside)
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)


@triton.jit
def _short_rows_backward(
    dy_ptr, x_ptr, w_ptr, b_ptr, mean_ptr, rstd_ptr, dx_ptr, dw_ptr, db_ptr, rows, columns, dy_stride, x_stride,
    TANH: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, EXACT: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    if EXACT:
        columns = COLUMNS
    program, programs = tl.program_id(0).to(tl.int64), tl.num_programs(0)
    column = tl.arange(0, COLUMNS)
    within = column < columns
    w = tl.load(w_ptr + column, mask=within, other=0.0).to(tl.float32)
    b = tl.load(b_ptr + column, mask=within, other=0.0).to(tl.float32)
    dw = tl.zeros((ROWS, COLUMNS), tl.float32)  # added up over the rows of the tile only at the end
    db = tl.zeros((ROWS, COLUMNS), tl.float32)
    for tile in tl.range(program, tl.cdiv(rows, ROWS), programs, num_stages=STAGES):
        row = tile * ROWS + tl.arange(0, ROWS)
        inside = (row < rows)[:, None] & within[None, :]
        x = tl.load(x_ptr + row[:, None] * x_stride + column[None, :], mask=inside, other=0.0).to(tl.float32)
        dy = tl.load(dy_ptr + row[:, None] * dy_stride + column[None, :], mask=inside, other=0.0).to(tl.float32)
        mean = tl.load(mean_ptr + row, mask=row < rows, other=0.0)
        rstd = tl.load(rstd_ptr + row, mask=row < rows, other=0.0)
        normal = tl.where(inside, (x - mean[:, None]) * rstd[:, None], 0.0)
        du = dy * _gelu_derivative(normal * w[None, :] + b[None, :], TANH)
        dw += du * normal
        db += du
        wdu = du * w[None, :]
        along = tl.sum(wdu * normal, axis=1) / columns
        level = tl.sum(wdu, axis=1) / columns
        dx = (wdu - level[:, None] - normal * along[:, None]) * rstd[:, None]
        tl.store(dx_ptr + row[:, None] * columns + column[None, :], dx.to(dx_ptr.dtype.element_ty), mask=inside)
    tl.store(dw_ptr + program * columns + column, tl.sum(dw, axis=0), mask=within)
    tl.store(db_ptr + program * columns + column, tl.sum(db, axis=0), mask=within)


@triton.jit
def _long_rows_backward(
    dy_ptr, x_ptr, w_ptr, b_ptr, mean_ptr, rstd_ptr, dx_ptr, columns, dy_stride, x_stride,
    TANH: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    mean = tl.load(mean_ptr + row)
    rstd = tl.load(rstd_ptr + row)
    along = tl.zeros((BLOCK,), tl.float32)
    level = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, columns, BLOCK):
        column = start + tl.arange(0, BLOCK)
        inside = column < columns
        w = tl.load(w_ptr + column, mask=inside, other=0.0).to(tl.float32)
        b = tl.load(b_ptr + column, mask=inside, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + row * x_stride + column, mask=inside, other=0.0).to(tl.float32)
        dy = tl.load(dy_ptr + row * dy_stride + column, mask=inside, other=0.0).to(tl.float32)
        normal = tl.where(inside, (x - mean) * rstd, 0.0)
        wdu = dy * _gelu_derivative(normal * w + b, TANH) * w
        along += wdu * normal
        level += wdu
    along_mean = tl.sum(along, axis=0) / columns
    level_mean = tl.sum(level, axis=0) / columns
    for start in range(0, columns, BLOCK):
        column = start + tl.arange(0, BLOCK)
        inside = column < columns
        w = tl.load(w_ptr + column, mask=inside, other=0.0).to(tl.float32)
        b = tl.load(b_ptr + column, mask=inside, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + row * x_stride + column, mask=inside, other=0.0).to(tl.float32)
        dy = tl.load(dy_ptr + row * dy_stride + column, mask=inside, other=0.0).to(tl.float32)
        normal = (x - mean) * rstd
        wdu = dy * _gelu_derivative(normal * w + b, TANH) * w
        dx = (wdu - level_mean - normal * along_mean) * rstd
        tl.store(dx_ptr + row * columns + column, dx.to(dx_ptr.dtype.element_ty), mask=inside)


@triton.jit
def _column_sums_of_long_rows(
    dy_ptr, x_ptr, w_ptr, b_ptr, mean_ptr, rstd_ptr, dw_ptr, db_ptr, rows, columns, dy_stride, x_stride,
    TANH: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    program, programs = tl.program_id(1).to(tl.int64), tl.num_programs(1)
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    within = column < columns
    w = tl.load(w_ptr + column, mask=within, other=0.0).to(tl.float32)
    b = tl.load(b_ptr + column, mask=within, other=0.0).to(tl.float32)
    dw = tl.zeros((COLUMNS,), tl.float32)
    db = tl.zeros((COLUMNS,), tl.float32)
    for tile in range(program, tl.cdiv(rows, ROWS), programs):
        row = tile * ROWS + tl.arange(0, ROWS)
        inside = (row < rows)[:, None] & within[None, :]
        x = tl.load(x_ptr + row[:, None] * x_stride + column[None, :], mask=inside, other=0.0).to(tl.float32)
        dy = tl.load(dy_ptr + row[:, None] * dy_stride + column[None, :], mask=inside, other=0.0).to(tl.float32)
        mean = tl.load(mean_ptr + row, mask=row < rows, other=0.0)
        rstd = tl.load(rstd_ptr + row, mask=row < rows, other=0.0)
        normal = tl.where(inside, (x - mean[:, None]) * rstd[:, None], 0.0)
        du = dy * _gelu_derivative(normal * w[None, :] + b[None, :], TANH)
        dw += tl.sum(du * normal, axis=0)
        db += tl.sum(du, axis=0)
    tl.store(dw_ptr + program * columns + column, dw, mask=within)
    tl.store(db_ptr + program * columns + column, db, mask=within)


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


def forward(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float, approximate: str
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The result, and of each row the mean and one over the standard deviation, in float32."""
    require_float(x, weight, bias)
    columns = weight.numel()
    flat = rows_of(x, columns)
    rows = flat.shape[0]
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    mean, rstd = (torch.empty(rows, dtype=torch.float32, device=x.device) for _ in range(2))
    if not y.numel():
        return y, mean, rstd
    tanh = approximate == "tanh"
    pointers = flat, weight.contiguous(), bias.contiguous(), y, mean, rstd
    if columns <= LONGEST:
        width = triton.next_power_of_2(columns)
        height = max(1, TILE_BYTES // x.element_size() // width)
        _short_rows[(triton.cdiv(rows, height),)](
            *pointers, rows, columns, flat.stride(0), eps,
            TANH=tanh, ROWS=height, COLUMNS=width, EXACT=width == columns,
            num_warps=max(1, min(32, height * width * x.element_size() // 2048)),
        )  # fmt: skip
    else:
        _long_rows[(rows,)](*pointers, columns, flat.stride(0), eps, TANH=tanh, BLOCK=LONGEST, num_warps=16)
    return y, mean, rstd


def backward(
    dy: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    mean: torch.Tensor,
    rstd: torch.Tensor,
    approximate: str,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The gradients of x, weight and bias."""
    require_float(dy, x, weight, bias)
    columns = weight.numel()
    flat, dy = rows_of(x, columns), rows_of(dy, columns)
    dx = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if not x.numel():
        return dx, torch.zeros_like(weight), torch.zeros_like(bias)
    dw = torch.empty(weight.shape, dtype=weight.dtype, device=x.device)
    db = torch.empty(bias.shape, dtype=bias.dtype, device=x.device)
    rows = flat.shape[0]
    short = columns <= LONGEST_BACKWARD
    width = triton.next_power_of_2(columns)
    height = max(1, TILE // width) if short else LONG_ROWS
    programs = programs_for(x, triton.cdiv(rows, height), PROGRAMS_PER_MULTIPROCESSOR)
    sums = torch.empty((2, programs, columns), dtype=torch.float32, device=x.device)
    pointers = dy, flat, weight.contiguous(), bias.contiguous(), mean, rstd
    strides = dy.stride(0), flat.stride(0)
    tanh = approximate == "tanh"
    if short:
        _short_rows_backward[(programs,)](
            *pointers, dx, sums[0], sums[1], rows, columns, *strides,
            TANH=tanh, ROWS=height, COLUMNS=width, EXACT=width == columns,
            STAGES=2 if x.element_size() == 4 else 3, num_warps=warps_for(2 * height * width),
        )  # fmt: skip
    else:
        _long_rows_backward[(rows,)](*pointers, dx, columns, *strides, TANH=tanh, BLOCK=LONGEST_BACKWARD, num_warps=16)
        _column_sums_of_long_rows[(triton.cdiv(columns, LONG_COLUMNS), programs)](
            *pointers, sums[0], sums[1], rows, columns, *strides, TANH=tanh, ROWS=LONG_ROWS, COLUMNS=LONG_COLUMNS
        )
    _add_columns[(triton.cdiv(columns, SUM_COLUMNS),)](
        sums[0], sums[1], dw, db, programs, columns, ROWS=SUM_ROWS, COLUMNS=SUM_COLUMNS
    )
    return dx, dw, db


def warps_for(elements: int) -> int:
    """Number of warps with which a thread holds about 16 elements of a tile."""
    return max(1, min(16, elements // 512))
