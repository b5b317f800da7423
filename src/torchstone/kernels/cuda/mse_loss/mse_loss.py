"""Mean squared error in CUDA C++.

A reduction takes two kernels: each block of the first sums the squares of its share in float32, and the one block of
the second adds these sums. The order of additions is fixed, so that equal inputs give equal results; atomic additions
would not. A second kernel costs less than a counter of finished blocks, which must be set to zero in a CUDA graph.
"""

import torch

from torchstone.kernels.compile_and_launch_cuda import CudaKernel, device_of, multiprocessors
from torchstone.kernels.cuda_launch_geometry import (
    ADD_THREADS,
    ELEMENTWISE_THREADS,
    divide_up,
    elements_per_load,
    launch_elementwise,
    loads_for,
)
from torchstone.kernels.cuda_source import ELEMENTWISE, NUMBERS, SUMS
from torchstone.kernels.input_preparation import NONE, SUM, broadcast_together, require_float

ELEMENTS = 8
"""Of each tensor, that a thread of the sum has in flight. More would need more than 32 registers, and fewer threads."""

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
// One sum per block. The bounds ask for 32 registers at most: then a multiprocessor holds 2048 threads.
extern "C" __global__ void __launch_bounds__(THREADS, 2048 / THREADS) sum_of_squares(
    const T* x, const G* target, float* sums, long long count)
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
}
"""  # fmt: skip

ADD_SUMS = NUMBERS + SUMS + r"""
extern "C" __global__ void __launch_bounds__(THREADS) add_sums(
    const Pack<float, 1>* sums, T* y, long long blocks, float divisor)
{
    const Pack<float, 1> total = sum_of_packs<THREADS>(sums, blocks);
    if (threadIdx.x == 0) narrow(total.at[0] / divisor, *y);
}
"""  # fmt: skip
_squares = CudaKernel("squares", SQUARES)
_sum_of_squares = CudaKernel("sum_of_squares", SUM_OF_SQUARES)
_add_sums = CudaKernel("add_sums", ADD_SUMS)


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
    _launch_sums(x, wanted, y, 1.0 if reduction == SUM else float(x.numel()))
    return y


def _launch_sums(x: torch.Tensor, wanted: torch.Tensor, y: torch.Tensor, divisor: float) -> None:
    count, vec = x.numel(), elements_per_load(x, wanted)
    loads = min(loads_for(count, vec, x), max(1, ELEMENTS // vec))
    threads = ELEMENTWISE_THREADS
    constants = {"VEC": vec, "LOADS": loads, "THREADS": threads, "T": x.dtype, "G": wanted.dtype}
    at_once = _sum_of_squares.blocks_per_multiprocessor(x, threads, (x, wanted, None, count), **constants)
    blocks = min(divide_up(count, vec * loads * threads), at_once * multiprocessors(device_of(x)))
    sums = torch.empty(blocks, dtype=torch.float32, device=x.device)
    _sum_of_squares.launch(x, blocks, threads, (x, wanted, sums, count), **constants)
    _add_sums.launch(x, 1, ADD_THREADS, (sums, y, blocks, divisor), THREADS=ADD_THREADS, T=x.dtype)
