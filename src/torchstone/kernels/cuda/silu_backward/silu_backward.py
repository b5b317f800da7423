"""Gradient of SiLU (Swish) in CUDA C++. One pass over x, dy and dx."""

import torch

from torchstone.kernels.compile_and_launch_cuda import CudaKernel
from torchstone.kernels.cuda_launch_geometry import launch_elementwise
from torchstone.kernels.cuda_source import ELEMENTWISE
from torchstone.kernels.input_preparation import dense_together, require_float

SOURCE = ELEMENTWISE + r"""
extern "C" __global__ void __launch_bounds__(THREADS) silu_backward(const G* dy, const T* x, T* dx, long long count) {
    Pack<T, VEC> values[LOADS];
    Pack<G, VEC> grads[LOADS];
    read(values, x, blockIdx.x, count);
    read(grads, dy, blockIdx.x, count);
    #pragma unroll
    for (int k = 0; k < LOADS; ++k) {
        #pragma unroll
        for (int i = 0; i < VEC; ++i) {
            const float value = widen(values[k].at[i]);
            const float share = quotient<T>(1.0f, 1.0f + exponential<T>(-value));
            narrow(widen(grads[k].at[i]) * share * (1.0f + value * (1.0f - share)), values[k].at[i]);
        }
    }
    write(dx, values, blockIdx.x, count);
}
"""  # fmt: skip
_silu_backward = CudaKernel("silu_backward", SOURCE)


def silu_backward_kernel_impl(grad_output: torch.Tensor, self: torch.Tensor) -> torch.Tensor:
    require_float(self, grad_output)
    dy, x = dense_together(grad_output, self)
    dx = torch.empty_like(x)
    launch_elementwise(_silu_backward, (dy, x, dx), T=x.dtype, G=dy.dtype)
    return dx
