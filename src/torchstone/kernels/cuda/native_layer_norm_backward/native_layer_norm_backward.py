"""Gradients of layer normalisation in CUDA C++.

Each block takes rows in turn: it writes their dx, and adds up in registers what they contribute to the gradients of
weight and bias. A second kernel adds these sums of all blocks, column by column, in a fixed order. Rows that do not fit
into registers are read twice, and the sums per column come from a kernel of their own.
"""

from collections.abc import Sequence

import torch

from torchstone.kernels.compile_and_launch_cuda import CudaKernel, device_of, multiprocessors
from torchstone.kernels.cuda_launch_geometry import divide_up, elements_per_load, plan_rows
from torchstone.kernels.cuda_source import ADD_COLUMNS, COLUMN_TOTALS, NUMBERS, ROWS, SUMS
from torchstone.kernels.input_preparation import require_float, rows_of

ELEMENTS, ELEMENTS_WITHOUT_PREFETCH = 8, 16
"""Of x and of dy, that a thread holds, and as many sums for the weight and for the bias.

With few, registers are left to fetch the next row while this one is worked on; longer rows need more.
"""
MOST_THREADS = 512
LONG_ROW_THREADS = 512
COLUMN_THREADS = 256
ADD_THREADS, ADD_WIDTH = 1024, 32
"""Threads of a block that adds sums, and columns that it takes."""
ROWS_OF_SUM = 64
"""Rows that a block of the sums per column takes at least, where rows are long."""

SHORT_ROWS = ROWS + COLUMN_TOTALS + r"""
struct Row {
    Pack<G, VEC> dy[PACKS];
    Pack<T, VEC> x[PACKS];
    float mean, rstd;
};

// Zeros if there is no such row.
__device__ inline Row fetch(const G* dy, const T* x, const float* means, const float* rstds, long long row,
                            long long rows, int columns, long long dy_stride, long long x_stride)
{
    Row found;
    const bool there = row < rows;
    read_row(found.dy, dy + row * dy_stride, there ? columns : 0);
    read_row(found.x, x + row * x_stride, there ? columns : 0);
    found.mean = there ? means[row] : 0.0f;
    found.rstd = there ? rstds[row] : 0.0f;
    return found;
}

extern "C" __global__ void __launch_bounds__(THREADS, 512 / THREADS) short_rows(
    const G* dy, const T* x, const W* w, const float* means, const float* rstds, T* dx, float* dw_sums, float* db_sums,
    long long rows, long long width, long long dy_stride, long long x_stride)
{
    const int columns = width;
    float dw[PACKS][VEC] = {}, db[PACKS][VEC] = {};
    const long long step = (long long)gridDim.x * ROWS_OF_BLOCK;
    long long row = (long long)blockIdx.x * ROWS_OF_BLOCK + threadIdx.x / LANES;
    Row next;
    if (PREFETCH) next = fetch(dy, x, means, rstds, row, rows, columns, dy_stride, x_stride);
    // All threads of a block make as many rounds, with or without a row, since they add up together.
    for (long long first = (long long)blockIdx.x * ROWS_OF_BLOCK; first < rows; first += step, row += step) {
        const Row now = PREFETCH ? next : fetch(dy, x, means, rstds, row, rows, columns, dy_stride, x_stride);
        if (PREFETCH) next = fetch(dy, x, means, rstds, row + step, rows, columns, dy_stride, x_stride);
        float level = 0.0f, along = 0.0f;
        #pragma unroll
        for (int p = 0; p < PACKS; ++p) {
            float weight[VEC];
            read_parameter(weight, w, p, columns, 1.0f);
            #pragma unroll
            for (int i = 0; i < VEC; ++i) {
                const float grad = widen(now.dy[p].at[i]);
                const float normal = (widen(now.x[p].at[i]) - now.mean) * now.rstd;
                dw[p][i] += grad * normal;
                db[p][i] += grad;
                level += grad * weight[i];
                along += grad * weight[i] * normal;
            }
        }
        if (dx == nullptr) continue;
        level = mean_of(sum_of_row(level), columns);
        along = mean_of(sum_of_row(along), columns);
        if (row >= rows) continue;
        #pragma unroll
        for (int p = 0; p < PACKS; ++p) {
            if (column_of(p) >= columns) break;
            float weight[VEC];
            Pack<T, VEC> result;
            read_parameter(weight, w, p, columns, 1.0f);
            #pragma unroll
            for (int i = 0; i < VEC; ++i) {
                const float normal = (widen(now.x[p].at[i]) - now.mean) * now.rstd;
                narrow((widen(now.dy[p].at[i]) * weight[i] - level - normal * along) * now.rstd, result.at[i]);
            }
            *reinterpret_cast<Pack<T, VEC>*>(dx + row * columns + column_of(p)) = result;
        }
    }
    if (dw_sums == nullptr) return;
    write_sums(dw_sums, dw, columns);
    write_sums(db_sums, db, columns);
}
"""  # fmt: skip

LONG_ROWS = NUMBERS + SUMS + r"""
extern "C" __global__ void __launch_bounds__(THREADS) long_rows(
    const G* dy, const T* x, const W* w, const float* means, const float* rstds, T* dx,
    long long columns, long long dy_stride, long long x_stride)
{
    const long long row = blockIdx.x;
    dy += row * dy_stride;
    x += row * x_stride;
    dx += row * columns;
    const float mean = means[row], rstd = rstds[row];
    float level = 0.0f, along = 0.0f;
    #pragma unroll 2
    for (long long column = threadIdx.x * VEC; column < columns; column += THREADS * VEC) {
        const Pack<G, VEC> grads = *reinterpret_cast<const Pack<G, VEC>*>(dy + column);
        const Pack<T, VEC> values = *reinterpret_cast<const Pack<T, VEC>*>(x + column);
        #pragma unroll
        for (int i = 0; i < VEC; ++i) {
            const float grad = widen(grads.at[i]) * (w == nullptr ? 1.0f : widen(w[column + i]));
            level += grad;
            along += grad * (widen(values.at[i]) - mean) * rstd;
        }
    }
    level = mean_of(sum_in_block<THREADS>(level), columns);
    along = mean_of(sum_in_block<THREADS>(along), columns);
    #pragma unroll 2
    for (long long column = threadIdx.x * VEC; column < columns; column += THREADS * VEC) {
        const Pack<G, VEC> grads = *reinterpret_cast<const Pack<G, VEC>*>(dy + column);
        Pack<T, VEC> values = *reinterpret_cast<const Pack<T, VEC>*>(x + column);
        #pragma unroll
        for (int i = 0; i < VEC; ++i) {
            const float grad = widen(grads.at[i]) * (w == nullptr ? 1.0f : widen(w[column + i]));
            const float normal = (widen(values.at[i]) - mean) * rstd;
            narrow((grad - level - normal * along) * rstd, values.at[i]);
        }
        *reinterpret_cast<Pack<T, VEC>*>(dx + column) = values;
    }
}
"""  # fmt: skip

COLUMN_SUMS = NUMBERS + r"""
// Block (stripe, part) of a grid that is one number: a stripe of THREADS * VEC columns, and every `parts`-th row.
extern "C" __global__ void __launch_bounds__(THREADS) column_sums(
    const G* dy, const T* x, const float* means, const float* rstds, float* dw_sums, float* db_sums,
    long long rows, long long columns, long long dy_stride, long long x_stride, long long parts)
{
    const long long part = blockIdx.x % parts, stripe = blockIdx.x / parts;
    const long long column = (stripe * THREADS + threadIdx.x) * VEC;
    if (column >= columns) return;
    float dw[VEC] = {}, db[VEC] = {};
    #pragma unroll 4
    for (long long row = part; row < rows; row += parts) {
        const Pack<G, VEC> grads = *reinterpret_cast<const Pack<G, VEC>*>(dy + row * dy_stride + column);
        const Pack<T, VEC> values = *reinterpret_cast<const Pack<T, VEC>*>(x + row * x_stride + column);
        const float mean = means[row], rstd = rstds[row];
        #pragma unroll
        for (int i = 0; i < VEC; ++i) {
            dw[i] += widen(grads.at[i]) * (widen(values.at[i]) - mean) * rstd;
            db[i] += widen(grads.at[i]);
        }
    }
    #pragma unroll
    for (int i = 0; i < VEC; ++i) {
        dw_sums[part * columns + column + i] = dw[i];
        db_sums[part * columns + column + i] = db[i];
    }
}
"""  # fmt: skip

_short_rows = CudaKernel("short_rows", SHORT_ROWS)
_long_rows = CudaKernel("long_rows", LONG_ROWS)
_column_sums = CudaKernel("column_sums", COLUMN_SUMS)
_add_columns = CudaKernel("add_columns", NUMBERS + SUMS + ADD_COLUMNS)


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
    require_float(*(item for item in (input, grad_out, weight, bias) if item is not None))
    wants_dx, wants_dw, wants_db = output_mask
    columns = input.shape[input.dim() - len(normalized_shape) :].numel()
    x, dy = rows_of(input, columns), rows_of(grad_out, columns)
    dx = torch.empty(input.shape, dtype=input.dtype, device=input.device) if wants_dx else None
    like = weight if weight is not None else bias if bias is not None else input
    make = torch.empty if input.numel() else torch.zeros
    dw, db = (make(tuple(normalized_shape), dtype=like.dtype, device=input.device) for _ in range(2))
    if input.numel():
        weight = None if weight is None else weight.contiguous()
        wants_sums = (wants_dw and weight is not None) or wants_db
        _launch(dy, x, weight, mean.float().contiguous(), rstd.float().contiguous(), dx, dw, db, wants_sums)
    return dx, dw if wants_dw and weight is not None else None, db if wants_db else None


def _launch(dy, x, weight, mean, rstd, dx, dw, db, wants_sums: bool) -> None:
    rows, columns = x.shape
    steps = (columns, dy.stride(0), x.stride(0)) if rows > 1 else (columns,)
    vec = elements_per_load(dy, x, weight, dx, steps=steps)
    dtypes = {"G": dy.dtype, "T": x.dtype, "W": dw.dtype}
    plan = plan_rows(columns, vec, ELEMENTS, MOST_THREADS)
    prefetch = plan is not None
    plan = plan or plan_rows(columns, vec, ELEMENTS_WITHOUT_PREFETCH, MOST_THREADS)
    if plan is not None:
        sums = _launch_short_rows(plan, {**dtypes, "PREFETCH": prefetch}, dy, x, weight, mean, rstd, dx, wants_sums)
    else:
        given = (dy, x, weight, mean, rstd, dx, columns, dy.stride(0), x.stride(0))
        constants = {"VEC": vec, "THREADS": LONG_ROW_THREADS, **dtypes}
        if dx is not None:
            _long_rows.launch(x, rows, LONG_ROW_THREADS, given, **constants)
        sums = _launch_column_sums(vec, dtypes, dy, x, mean, rstd) if wants_sums else None
    if sums is not None:
        blocks = divide_up(columns, ADD_WIDTH)
        _add_columns.launch(x, blocks, ADD_THREADS, (sums[0], sums[1], dw, db, sums.shape[1], columns), W=dw.dtype)


def _launch_short_rows(plan, dtypes, dy, x, weight, mean, rstd, dx, wants_sums: bool) -> torch.Tensor | None:
    """Returns the sums of each block, (2, blocks, columns), for weight and bias."""
    rows, columns = x.shape
    constants = {**plan._asdict(), **dtypes}
    fixed = (dy, x, weight, mean, rstd, dx)
    sizes = (rows, columns, dy.stride(0), x.stride(0))
    at_once = _short_rows.blocks_per_multiprocessor(x, plan.THREADS, (*fixed, None, None, *sizes), **constants)
    blocks = min(divide_up(rows, plan.rows_of_block), at_once * multiprocessors(device_of(x)))
    sums = torch.empty((2, blocks, columns), dtype=torch.float32, device=x.device) if wants_sums else None
    places = (None, None) if sums is None else (sums[0], sums[1])
    _short_rows.launch(x, blocks, plan.THREADS, (*fixed, *places, *sizes), **constants)
    return sums


def _launch_column_sums(vec: int, dtypes, dy, x, mean, rstd) -> torch.Tensor:
    rows, columns = x.shape
    stripes = divide_up(columns, COLUMN_THREADS * vec)
    most = divide_up(8 * multiprocessors(device_of(x)), stripes)
    parts = min(divide_up(rows, ROWS_OF_SUM), most)
    sums = torch.empty((2, parts, columns), dtype=torch.float32, device=x.device)
    given = (dy, x, mean, rstd, sums[0], sums[1], rows, columns, dy.stride(0), x.stride(0), parts)
    constants = {"VEC": vec, "THREADS": COLUMN_THREADS, **dtypes}
    _column_sums.launch(x, parts * stripes, COLUMN_THREADS, given, **constants)
    return sums
