"""Layer normalisation in CUDA C++.

Rows of up to ELEMENTS_OF_BLOCK * MOST_THREADS columns are held in registers and read once: short ones by a warp or a
part of one, longer ones by a whole block. Still longer rows are read twice: for the mean and the variance, and to
normalise. The variance is that of the differences from the mean: E[x²] - E[x]² would cancel.
"""

from collections.abc import Sequence

import torch

from torchstone.kernels.compile_and_launch_cuda import CudaKernel
from torchstone.kernels.cuda_launch_geometry import WARP, divide_up, elements_per_load, plan_rows
from torchstone.kernels.cuda_source import MOMENTS, NUMBERS, ROWS
from torchstone.kernels.input_preparation import require_float, rows_of

ELEMENTS_OF_WARP, ELEMENTS_OF_BLOCK = 32, 16
"""Of a row, that a thread holds. A block waits for its slowest warp: fewer elements let more blocks run beside it."""
MOST_THREADS = 1024
LONG_ROW_THREADS = 512

SHORT_ROWS = ROWS + r"""
extern "C" __global__ void __launch_bounds__(THREADS) short_rows(
    const T* x, const W* w, const W* b, T* y,
    float* means, float* rstds,
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
            narrow((widen(packs[p].at[i]) - mean - off) * rstd * weight[i] + bias[i], packs[p].at[i]);
        }
        *reinterpret_cast<Pack<T, VEC>*>(y + row * columns + column_of(p)) = packs[p];
    }
    if (lane() == 0) {
        means[row] = mean + off;
        rstds[row] = rstd;
    }
}
"""  # fmt: skip

LONG_ROWS = NUMBERS + MOMENTS + r"""
extern "C" __global__ void __launch_bounds__(THREADS) long_rows(
    const T* __restrict__ x, const W* __restrict__ w, const W* __restrict__ b, T* __restrict__ y,
    float* __restrict__ means, float* __restrict__ rstds,
    long long rows, long long columns, long long x_stride, float eps)
{
    const long long row = blockIdx.x;
    x += row * x_stride;
    y += row * columns;
    const Moments moments = moments_of_row(x, columns);
    const float mean = moments.mean, rstd = rsqrtf(mean_of(moments.squares, columns) + eps);
    #pragma unroll 2
    for (long long column = threadIdx.x * VEC; column < columns; column += THREADS * VEC) {
        Pack<T, VEC> pack = *reinterpret_cast<const Pack<T, VEC>*>(x + column);
        #pragma unroll
        for (int i = 0; i < VEC; ++i) {
            const float weight = w == nullptr ? 1.0f : widen(w[column + i]);
            const float bias = b == nullptr ? 0.0f : widen(b[column + i]);
            narrow((widen(pack.at[i]) - mean) * rstd * weight + bias, pack.at[i]);
        }
        *reinterpret_cast<Pack<T, VEC>*>(y + column) = pack;
    }
    if (threadIdx.x == 0) {
        means[row] = mean;
        rstds[row] = rstd;
    }
}
"""  # fmt: skip
_short_rows = CudaKernel("short_rows", SHORT_ROWS)
_long_rows = CudaKernel("long_rows", LONG_ROWS)


def native_layer_norm_kernel_impl(
    input: torch.Tensor,
    normalized_shape: Sequence[int],
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    eps: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    require_float(*(item for item in (input, weight, bias) if item is not None))
    kept = input.shape[: input.dim() - len(normalized_shape)]
    columns = input.shape[len(kept) :].numel()
    x = rows_of(input, columns)
    y = torch.empty(input.shape, dtype=input.dtype, device=input.device)
    of_rows = (*kept, *[1] * len(normalized_shape))
    mean, rstd = (torch.empty(of_rows, dtype=torch.float32, device=input.device) for _ in range(2))
    if not y.numel():  # no columns: ATen's mean of nothing is 0, and its deviation is undefined
        return y, mean.zero_(), rstd.fill_(float("nan"))
    weight, bias = (None if item is None else item.contiguous() for item in (weight, bias))
    _launch(x, weight, bias, y, mean, rstd, eps)
    return y, mean, rstd


def _launch(x, weight, bias, y, mean, rstd, eps: float) -> None:
    rows, columns = x.shape
    if weight is not None and bias is not None and bias.dtype != weight.dtype:
        bias = bias.to(weight.dtype)
    dtypes = {"T": x.dtype, "W": next((item.dtype for item in (weight, bias) if item is not None), x.dtype)}
    vec = elements_per_load(x, weight, bias, y, steps=(columns, x.stride(0) if rows > 1 else columns))
    arguments = (x, weight, bias, y, mean, rstd, rows, columns, x.stride(0), float(eps))
    plan = plan_rows(columns, vec, ELEMENTS_OF_WARP, WARP) or plan_rows(columns, vec, ELEMENTS_OF_BLOCK, MOST_THREADS)
    if plan is not None:
        blocks = divide_up(rows, plan.rows_of_block)
        _short_rows.launch(x, blocks, plan.THREADS, arguments, **plan._asdict(), **dtypes)
    else:
        _long_rows.launch(x, rows, LONG_ROW_THREADS, arguments, VEC=vec, THREADS=LONG_ROW_THREADS, **dtypes)
