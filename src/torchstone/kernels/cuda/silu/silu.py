"""SiLU (Swish) in CUDA C++: x times sigmoid(x). One pass: each block reads a tile of x and writes that tile of y."""

import torch

from torchstone.kernels.compile_and_launch_cuda import CudaKernel
from torchstone.kernels.cuda_launch_geometry import launch_elementwise
from torchstone.kernels.cuda_source import ELEMENTWISE
from torchstone.kernels.input_preparation import dense, require_float

SOURCE = ELEMENTWISE + r"""
extern "C" __global__ void __launch_bounds__(THREADS) silu(const T* x, T* y, long long count) {
    Pack<T, VEC> values[LOADS];
    read(values, x, blockIdx.x, count);
    #pragma unroll
    for (int k = 0; k < LOADS; ++k) {
        #pragma unroll
        for (int i = 0; i < VEC; ++i) {
            const float value = widen(values[k].at[i]);
            // A quotient, as torch computes it: at -infinity x * sigmoid(x) and x / (1 + exp(-x)) are both NaN.
            narrow(quotient<T>(value, 1.0f + exponential<T>(-value)), values[k].at[i]);
        }
    }
    write(y, values, blockIdx.x, count);
}
"""  # fmt: skip
_silu = CudaKernel("silu", SOURCE)


def silu_kernel_impl(self: torch.Tensor) -> torch.Tensor:
    require_float(self)
    x = dense(self)
    y = torch.empty_like(x)
    launch_elementwise(_silu, (x, y), T=x.dtype)
    return y
