"""Gradient of GELU in CUDA C++: dy times the derivative at x. One pass over x, dy and dx."""

import torch

from torchstone.kernels.compile_and_launch_cuda import CudaKernel
from torchstone.kernels.cuda_launch_geometry import launch_elementwise
from torchstone.kernels.cuda_source import ELEMENTWISE, GELU
from torchstone.kernels.input_preparation import dense_together, require_float

SOURCE = ELEMENTWISE + GELU + r"""
extern "C" __global__ void __launch_bounds__(THREADS) gelu_backward(const G* dy, const T* x, T* dx, long long count) {
    Pack<T, VEC> values[LOADS];
    Pack<G, VEC> grads[LOADS];
    read(values, x, blockIdx.x, count);
    read(grads, dy, blockIdx.x, count);
    #pragma unroll
    for (int k = 0; k < LOADS; ++k) {
        #pragma unroll
        for (int i = 0; i < VEC; ++i) {
            const float slope = gelu_slope<T>(widen(values[k].at[i]));
            narrow(widen(grads[k].at[i]) * slope, values[k].at[i]);
        }
    }
    write(dx, values, blockIdx.x, count);
}
"""  # fmt: skip
_gelu_backward = CudaKernel("gelu_backward", SOURCE)


def gelu_backward_kernel_impl(
    grad_output: torch.Tensor, self: torch.Tensor, *, approximate: str = "none"
) -> torch.Tensor:
    require_float(self, grad_output)
    dy, x = dense_together(grad_output, self)
    dx = torch.empty_like(x)
    launch_elementwise(_gelu_backward, (dy, x, dx), T=x.dtype, G=dy.dtype, TANH=approximate == "tanh")
    return dx
