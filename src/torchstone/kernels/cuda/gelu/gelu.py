"""GELU in CUDA C++, exact (erf) or by tanh. One pass: each block reads a tile of x and writes the same tile of y."""

import torch

from torchstone.kernels.compile_and_launch_cuda import CudaKernel
from torchstone.kernels.cuda_launch_geometry import launch_elementwise
from torchstone.kernels.cuda_source import ELEMENTWISE, GELU
from torchstone.kernels.input_preparation import dense, require_float

SOURCE = ELEMENTWISE + GELU + r"""
extern "C" __global__ void __launch_bounds__(THREADS) gelu(const T* x, T* y, long long count) {
    Pack<T, VEC> values[LOADS];
    read(values, x, blockIdx.x, count);
    #pragma unroll
    for (int k = 0; k < LOADS; ++k) {
        #pragma unroll
        for (int i = 0; i < VEC; ++i) narrow(gelu_of<T>(widen(values[k].at[i])), values[k].at[i]);
    }
    write(y, values, blockIdx.x, count);
}
"""  # fmt: skip
_gelu = CudaKernel("gelu", SOURCE)


def gelu_kernel_impl(self: torch.Tensor, *, approximate: str = "none") -> torch.Tensor:
    require_float(self)
    x = dense(self)
    y = torch.empty_like(x)
    launch_elementwise(_gelu, (x, y), T=x.dtype, TANH=approximate == "tanh")
    return y
