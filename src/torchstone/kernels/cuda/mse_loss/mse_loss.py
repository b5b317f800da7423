"""Mean squared error in CUDA C++.

A reduction is one kernel: each block sums the squares of its share in float32, and the block that finishes last adds
these sums. The order of additions is fixed, so that equal inputs give equal results; atomic additions would not.
"""

import torch

from torchstone.kernels.cuda_layout import (
    ELEMENTWISE_THREADS,
    block_counter,
    divide_up,
    elements_per_load,
    launch_elementwise,
    loads_for,
)
from torchstone.kernels.cuda_source import ELEMENTWISE, SUMS
from torchstone.kernels.launching import CudaKernel
from torchstone.kernels.layout import NONE, SUM, broadcast_together, programs_for, require_float

BLOCKS_PER_MULTIPROCESSOR = 8
"""Of 256 threads each: all that a multiprocessor can hold."""

SQUARES = ELEMENTWISE + r"""
extern "C" __global__ void __launch_bounds__(THREADS) squares(const T* x, const G* target, T* y, long long count) {
    Pack<T, VEC> values[LOADS];
    Pack<G, VEC> targets[LOADS];
    read(values, x, blockIdx.x, count);
    read(targets, target, blockIdx.x, count);
    #pragma unroll
    for (int k = 0; k < LOADS; ++k) {
        #pragma unroll
        for (int i = 0; i < VEC; ++i) {
            const float difference = widen(values[k].at[i]) - widen(targets[k].at[i]);
            narrow(difference * difference, values[k].at[i]);
        }
    }
    write(y, values, blockIdx.x, count);
}
"""  # fmt: skip

SUM_OF_SQUARES = ELEMENTWISE + SUMS + r"""
extern "C" __global__ void __launch_bounds__(THREADS) sum_of_squares(
    const T* x, const G* target, float* sums, unsigned int* finished, T* y, long long count, float divisor)
{
    float sum = 0.0f;
    for (long long tile = blockIdx.x; tile * TILE < count; tile += gridDim.x) {
        Pack<T, VEC> values[LOADS];
        Pack<G, VEC> targets[LOADS];
        read(values, x, tile, count);
        read(targets, target, tile, count);
        #pragma unroll
        for (int k = 0; k < LOADS; ++k) {
            #pragma unroll
            for (int i = 0; i < VEC; ++i) {
                const float difference = widen(values[k].at[i]) - widen(targets[k].at[i]);
                sum += difference * difference;
            }
        }
    }
    sum = sum_in_block<THREADS>(sum);
    if (threadIdx.x == 0) sums[blockIdx.x] = sum;
    if (!is_last_block(finished)) return;
    float total = 0.0f;
    for (unsigned int block = threadIdx.x; block < gridDim.x; block += THREADS) total += sums[block];
    total = sum_in_block<THREADS>(total);
    if (threadIdx.x == 0) narrow(total / divisor, *y);
}
"""  # fmt: skip
_squares = CudaKernel("squares", SQUARES)
_sum_of_squares = CudaKernel("sum_of_squares", SUM_OF_SQUARES)


def mse_loss_kernel_impl(self: torch.Tensor, target: torch.Tensor, reduction: int = 1) -> torch.Tensor:
    require_float(self, target)
    x, wanted = broadcast_together(self, target)
    if reduction == NONE:
        y = torch.empty_like(x)
        launch_elementwise(_squares, (x, wanted, y), T=x.dtype, G=wanted.dtype)
        return y
    y = torch.empty((), dtype=x.dtype, device=x.device)
    if not x.numel():
        return y.fill_(0.0 if reduction == SUM else float("nan"))
    _launch_sum(x, wanted, y, 1.0 if reduction == SUM else float(x.numel()))
    return y


def _launch_sum(x: torch.Tensor, wanted: torch.Tensor, y: torch.Tensor, divisor: float) -> None:
    count, vec = x.numel(), elements_per_load(x, wanted)
    loads = loads_for(count, vec, x)
    blocks = programs_for(x, divide_up(count, vec * loads * ELEMENTWISE_THREADS), BLOCKS_PER_MULTIPROCESSOR)
    sums = torch.empty(blocks, dtype=torch.float32, device=x.device)
    _sum_of_squares.launch(
        x, blocks, ELEMENTWISE_THREADS, (x, wanted, sums, block_counter(x), y, count, divisor),
        VEC=vec, LOADS=loads, THREADS=ELEMENTWISE_THREADS, T=x.dtype, G=wanted.dtype,
    )  # fmt: skip
