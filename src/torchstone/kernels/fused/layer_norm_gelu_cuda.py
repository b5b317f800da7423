"""GELU of a layer normalisation in one CUDA kernel: y = gelu((x - mean) * rstd * weight + bias).

Forward reads x once and writes y once; the input of GELU is never stored. Backward recomputes it from x and the kept
mean and rstd, in the kernel that makes dx and the sums for weight and bias. Rows that do not fit into
registers are read twice.
"""

from __future__ import annotations

import torch

from torchstone.kernels.compile_and_launch_cuda import Constant, CudaKernel, device_of, multiprocessors
from torchstone.kernels.cuda_launch_geometry import WARP, RowPlan, divide_up, elements_per_load, plan_rows
from torchstone.kernels.cuda_source import ADD_COLUMNS, COLUMN_TOTALS, GELU, MOMENTS, NUMBERS, ROWS, SUMS
from torchstone.kernels.input_preparation import require_float, rows_of

ELEMENTS_OF_WARP, ELEMENTS_OF_BLOCK = 32, 16
"""Elements of a row per thread, for rows of a warp and of a block. A block waits for its slowest warp. With fewer
elements, more blocks run beside it."""
ELEMENTS_BACKWARD, ELEMENTS_OF_LONGER_ROWS = 8, 16
"""Elements of x and of dy per thread, and as many sums for weight and bias. The larger number is for longer rows."""
MOST_THREADS_FORWARD, MOST_THREADS_BACKWARD = 1024, 512
LONG_ROW_THREADS = 512
ADD_THREADS, ADD_WIDTH = 1024, 32
"""Threads of a block that adds sums, and its columns."""

FORWARD = ROWS + GELU + r"""
extern "C" __global__ void __launch_bounds__(THREADS) short_rows(
    const T* x, const W* w, const W* b, T* y, float* means, float* rstds,
    long long rows, long long width, long long x_stride, float eps)
{
    const int columns = width;
    const long long row = (long long)blockIdx.x * ROWS_OF_BLOCK + threadIdx.x / LANES;
    const bool there = row < rows;  // the last block may have threads without a row; they take part in the sums
    Pack<T, VEC> packs[PACKS];
    read_row(packs, x + row * x_stride, there ? columns : 0);

    float sum = 0.0f;
    #pragma unroll
    for (int p = 0; p < PACKS; ++p) {
        #pragma unroll
        for (int i = 0; i < VEC; ++i) sum += widen(packs[p].at[i]);
    }
    const float mean = mean_of(sum_of_row(sum), columns);

    // The mean is rounded. What it is off by shows in the differences from it, and counts where they are small.
    float squares = 0.0f, rest = 0.0f;
    #pragma unroll
    for (int p = 0; p < PACKS; ++p) {
        #pragma unroll
        for (int i = 0; i < VEC; ++i) {
            const float centred = column_of(p) < columns ? widen(packs[p].at[i]) - mean : 0.0f;
            squares += centred * centred;
            rest += centred;
        }
    }
    const float off = mean_of(sum_of_row(rest), columns);
    const float rstd = rsqrtf(mean_of(sum_of_row(squares), columns) - off * off + eps);
    if (!there) return;

    #pragma unroll
    for (int p = 0; p < PACKS; ++p) {
        if (column_of(p) >= columns) break;
        float weight[VEC], bias[VEC];
        read_parameter(weight, w, p, columns, 1.0f);
        read_parameter(bias, b, p, columns, 0.0f);
        #pragma unroll
        for (int i = 0; i < VEC; ++i) {
            const float normal = (widen(packs[p].at[i]) - mean - off) * rstd;
            narrow(gelu_of<T>(normal * weight[i] + bias[i]), packs[p].at[i]);
        }
        *reinterpret_cast<Pack<T, VEC>*>(y + row * columns + column_of(p)) = packs[p];
    }
    if (lane() == 0) {
        means[row] = mean + off;
        rstds[row] = rstd;
    }
}
"""  # fmt: skip

FORWARD_LONG = NUMBERS + MOMENTS + GELU + r"""
extern "C" __global__ void __launch_bounds__(THREADS) long_rows(
    const T* x, const W* w, const W* b, T* y, float* means, float* rstds,
    long long rows, long long columns, long long x_stride, float eps)
{
    const long long row = blockIdx.x;
    x += row * x_stride;
    y += row * columns;
    const Moments moments = moments_of_row(x, columns);
    const float mean = moments.mean, rstd = rsqrtf(mean_of(moments.squares, columns) + eps);
    for (long long column = threadIdx.x * VEC; column < columns; column += THREADS * VEC) {
        Pack<T, VEC> pack = *reinterpret_cast<const Pack<T, VEC>*>(x + column);
        #pragma unroll
        for (int i = 0; i < VEC; ++i) {
            const float weight = w == nullptr ? 1.0f : widen(w[column + i]);
            const float bias = b == nullptr ? 0.0f : widen(b[column + i]);
            narrow(gelu_of<T>((widen(pack.at[i]) - mean) * rstd * weight + bias), pack.at[i]);
        }
        *reinterpret_cast<Pack<T, VEC>*>(y + column) = pack;
    }
    if (threadIdx.x == 0) {
        means[row] = mean;
        rstds[row] = rstd;
    }
}
"""  # fmt: skip

BACKWARD = ROWS + COLUMN_TOTALS + GELU + r"""
extern "C" __global__ void __launch_bounds__(THREADS, 512 / THREADS) short_rows(
    const G* dy, const T* x, const W* w, const W* b, const float* means, const float* rstds,
    T* dx, float* dw_sums, float* db_sums, long long rows, long long width, long long dy_stride, long long x_stride)
{
    const int columns = width;
    float dw[PACKS][VEC] = {}, db[PACKS][VEC] = {};
    const long long step = (long long)gridDim.x * ROWS_OF_BLOCK;
    long long row = (long long)blockIdx.x * ROWS_OF_BLOCK + threadIdx.x / LANES;
    // All threads of a block make as many rounds, with or without a row, since they add up together.
    for (long long first = (long long)blockIdx.x * ROWS_OF_BLOCK; first < rows; first += step, row += step) {
        const bool there = row < rows;
        Pack<G, VEC> grads[PACKS];
        Pack<T, VEC> values[PACKS];
        read_row(grads, dy + row * dy_stride, there ? columns : 0);
        read_row(values, x + row * x_stride, there ? columns : 0);
        const float mean = there ? means[row] : 0.0f, rstd = there ? rstds[row] : 0.0f;
        float level = 0.0f, along = 0.0f;
        float grad[PACKS][VEC];  // of what GELU was applied to
        #pragma unroll
        for (int p = 0; p < PACKS; ++p) {
            float weight[VEC], bias[VEC];
            read_parameter(weight, w, p, columns, 1.0f);
            read_parameter(bias, b, p, columns, 0.0f);
            #pragma unroll
            for (int i = 0; i < VEC; ++i) {
                const float normal = (widen(values[p].at[i]) - mean) * rstd;
                grad[p][i] = widen(grads[p].at[i]) * gelu_slope<T>(normal * weight[i] + bias[i]);
                dw[p][i] += grad[p][i] * normal;
                db[p][i] += grad[p][i];
                grad[p][i] *= weight[i];
                level += grad[p][i];
                along += grad[p][i] * normal;
            }
        }
        level = mean_of(sum_of_row(level), columns);
        along = mean_of(sum_of_row(along), columns);
        if (!there) continue;
        #pragma unroll
        for (int p = 0; p < PACKS; ++p) {
            if (column_of(p) >= columns) break;
            #pragma unroll
            for (int i = 0; i < VEC; ++i) {
                const float normal = (widen(values[p].at[i]) - mean) * rstd;
                narrow((grad[p][i] - level - normal * along) * rstd, values[p].at[i]);
            }
            *reinterpret_cast<Pack<T, VEC>*>(dx + row * columns + column_of(p)) = values[p];
        }
    }
    write_sums(dw_sums, dw, columns);
    write_sums(db_sums, db, columns);
}
"""  # fmt: skip

BACKWARD_LONG = NUMBERS + SUMS + GELU + r"""
// Blocks take rows in turn; each adds what they contribute to weight and bias to sums of its own in memory.
extern "C" __global__ void __launch_bounds__(THREADS, 2) long_rows(
    const G* dy, const T* x, const W* w, const W* b, const float* means, const float* rstds,
    T* dx, float* dw_sums, float* db_sums, long long rows, long long columns, long long dy_stride, long long x_stride)
{
    dw_sums += blockIdx.x * columns;
    db_sums += blockIdx.x * columns;
    for (long long row = blockIdx.x; row < rows; row += gridDim.x) {
        const float mean = means[row], rstd = rstds[row];
        const bool is_first = row == blockIdx.x;
        float level = 0.0f, along = 0.0f;
        #pragma unroll 1
        for (int pass = 0; pass < 2; ++pass) {
            for (long long column = threadIdx.x * VEC; column < columns; column += THREADS * VEC) {
                const Pack<G, VEC> grads = *reinterpret_cast<const Pack<G, VEC>*>(dy + row * dy_stride + column);
                Pack<T, VEC> values = *reinterpret_cast<const Pack<T, VEC>*>(x + row * x_stride + column);
                #pragma unroll
                for (int i = 0; i < VEC; ++i) {
                    const float weight = w == nullptr ? 1.0f : widen(w[column + i]);
                    const float bias = b == nullptr ? 0.0f : widen(b[column + i]);
                    const float normal = (widen(values.at[i]) - mean) * rstd;
                    const float grad = widen(grads.at[i]) * gelu_slope<T>(normal * weight + bias);
                    if (pass == 0) {
                        level += grad * weight;
                        along += grad * weight * normal;
                        dw_sums[column + i] = (is_first ? 0.0f : dw_sums[column + i]) + grad * normal;
                        db_sums[column + i] = (is_first ? 0.0f : db_sums[column + i]) + grad;
                    } else {
                        narrow((grad * weight - level - normal * along) * rstd, values.at[i]);
                    }
                }
                if (pass == 1) *reinterpret_cast<Pack<T, VEC>*>(dx + row * columns + column) = values;
            }
            if (pass == 0) {
                level = mean_of(sum_in_block<THREADS>(level), columns);
                along = mean_of(sum_in_block<THREADS>(along), columns);
            }
        }
    }
}
"""  # fmt: skip

_forward = CudaKernel("short_rows", FORWARD)
_forward_long = CudaKernel("long_rows", FORWARD_LONG)
_backward = CudaKernel("short_rows", BACKWARD)
_backward_long = CudaKernel("long_rows", BACKWARD_LONG)
_add_columns = CudaKernel("add_columns", NUMBERS + SUMS + ADD_COLUMNS)

Parameter = torch.Tensor | None


def forward(
    x: torch.Tensor, weight: Parameter, bias: Parameter, eps: float, approximate: str
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """gelu(layer_norm(x)) over the last dimension, and the mean and rstd of each row in float32."""
    weight, bias = _parameters(x, weight, bias)
    columns = x.shape[-1]
    rows = rows_of(x, columns)
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    mean, rstd = (torch.empty((*x.shape[:-1], 1), dtype=torch.float32, device=x.device) for _ in range(2))
    if not y.numel():
        return y, mean, rstd
    count = rows.shape[0]
    vec = elements_per_load(rows, weight, bias, y, steps=(columns, rows.stride(0) if count > 1 else columns))
    constants = _constants(rows, weight, bias, approximate)
    arguments = (rows, weight, bias, y, mean, rstd, count, columns, rows.stride(0), float(eps))
    plan = plan_rows(columns, vec, ELEMENTS_OF_WARP, WARP)
    plan = plan or plan_rows(columns, vec, ELEMENTS_OF_BLOCK, MOST_THREADS_FORWARD)
    if plan is not None:
        blocks = divide_up(count, plan.rows_of_block)
        _forward.launch(x, blocks, plan.THREADS, arguments, **plan._asdict(), **constants)
    else:
        threads = {"VEC": vec, "THREADS": LONG_ROW_THREADS}
        _forward_long.launch(x, count, LONG_ROW_THREADS, arguments, **threads, **constants)
    return y, mean, rstd


def backward(
    dy: torch.Tensor,
    x: torch.Tensor,
    weight: Parameter,
    bias: Parameter,
    mean: torch.Tensor,
    rstd: torch.Tensor,
    approximate: str,
) -> tuple[torch.Tensor, Parameter, Parameter]:
    """Gradients of x, weight and bias; None for a weight or bias that is None."""
    require_float(dy)
    weight, bias = _parameters(x, weight, bias)
    columns = x.shape[-1]
    rows, grads = rows_of(x, columns), rows_of(dy, columns)
    dx = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    constants = {**_constants(rows, weight, bias, approximate), "G": dy.dtype}
    make = torch.empty if x.numel() else torch.zeros
    dw, db = (make(columns, dtype=_dtype_of_parameters(x, weight, bias), device=x.device) for _ in range(2))
    if x.numel():
        given = (grads, rows, weight, bias, mean.contiguous(), rstd.contiguous(), dx)
        sums = _launch_backward(given, constants)
        arguments = (sums[0], sums[1], dw, db, sums.shape[1], columns)
        _add_columns.launch(x, divide_up(columns, ADD_WIDTH), ADD_THREADS, arguments, W=dw.dtype)
    return dx, None if weight is None else dw, None if bias is None else db


def plan_backward(columns: int, vec: int) -> RowPlan | None:
    """Plan for the backward pass. None: a row does not fit. Many loads of one element take too many registers."""
    plan = plan_rows(columns, vec, ELEMENTS_BACKWARD, MOST_THREADS_BACKWARD)
    return plan or (plan_rows(columns, vec, ELEMENTS_OF_LONGER_ROWS, MOST_THREADS_BACKWARD) if vec > 1 else None)


def _launch_backward(given: tuple[Parameter, ...], constants: dict[str, Constant]) -> torch.Tensor:
    """Launch the backward kernel. Returns the sums of each block for weight and bias, (2, blocks, columns)."""
    dy, x, weight, bias, _, _, dx = given
    assert dy is not None
    assert x is not None
    rows, columns = x.shape
    steps = (columns, dy.stride(0), x.stride(0)) if rows > 1 else (columns,)
    vec = elements_per_load(dy, x, weight, bias, dx, steps=steps)
    plan = plan_backward(columns, vec)
    kernel = _backward_long if plan is None else _backward
    constants = {**({"VEC": vec, "THREADS": LONG_ROW_THREADS} if plan is None else plan._asdict()), **constants}
    threads, rows_of_block = (LONG_ROW_THREADS, 1) if plan is None else (plan.THREADS, plan.rows_of_block)
    sizes = (rows, columns, dy.stride(0), x.stride(0))
    at_once = kernel.blocks_per_multiprocessor(x, threads, (*given, None, None, *sizes), **constants)
    blocks = min(divide_up(rows, rows_of_block), at_once * multiprocessors(device_of(x)))
    sums = torch.empty((2, blocks, columns), dtype=torch.float32, device=x.device)
    kernel.launch(x, blocks, threads, (*given, sums[0], sums[1], *sizes), **constants)
    return sums


def _parameters(x: torch.Tensor, weight: Parameter, bias: Parameter) -> tuple[Parameter, Parameter]:
    """Weight and bias, contiguous and of one dtype."""
    require_float(*(item for item in (x, weight, bias) if item is not None))
    dtype = _dtype_of_parameters(x, weight, bias)
    return (
        None if weight is None else weight.to(dtype).contiguous(),
        None if bias is None else bias.to(dtype).contiguous(),
    )


def _dtype_of_parameters(x: torch.Tensor, weight: Parameter, bias: Parameter) -> torch.dtype:
    return next((item.dtype for item in (weight, bias) if item is not None), x.dtype)


def _constants(x: torch.Tensor, weight: Parameter, bias: Parameter, approximate: str) -> dict[str, Constant]:
    return {"T": x.dtype, "W": _dtype_of_parameters(x, weight, bias), "TANH": approximate == "tanh"}
