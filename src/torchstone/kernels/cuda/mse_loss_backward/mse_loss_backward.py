"""Gradient of the mean squared error in CUDA C++: twice the difference, times the incoming gradient. One pass."""

import torch

from torchstone.kernels.compile_and_launch_cuda import CudaKernel
from torchstone.kernels.cuda_launch_geometry import launch_elementwise
from torchstone.kernels.cuda_source import ELEMENTWISE
from torchstone.kernels.input_preparation import MEAN, dense_together, require_float

ONE_GRADIENT = ELEMENTWISE + r"""
// The loss was reduced to one number, and so was its gradient.
extern "C" __global__ void __launch_bounds__(THREADS) one_gradient(
    const T* x, const G* target, T* dx, long long count, const D* dy, float factor)
{
    Pack<T, VEC> values[LOADS];
    Pack<G, VEC> targets[LOADS];
    read(values, x, blockIdx.x, count);
    read(targets, target, blockIdx.x, count);
    const float grad = widen(*dy);
    #pragma unroll
    for (int k = 0; k < LOADS; ++k) {
        #pragma unroll
        for (int i = 0; i < VEC; ++i) {
            const float difference = widen(values[k].at[i]) - widen(targets[k].at[i]);
            narrow(factor * difference * grad, values[k].at[i]);
        }
    }
    write(dx, values, blockIdx.x, count);
}
"""  # fmt: skip

MANY_GRADIENTS = ELEMENTWISE + r"""
extern "C" __global__ void __launch_bounds__(THREADS) many_gradients(
    const T* x, const G* target, const D* dy, T* dx, long long count, float factor)
{
    Pack<T, VEC> values[LOADS];
    Pack<G, VEC> targets[LOADS];
    Pack<D, VEC> grads[LOADS];
    read(values, x, blockIdx.x, count);
    read(targets, target, blockIdx.x, count);
    read(grads, dy, blockIdx.x, count);
    #pragma unroll
    for (int k = 0; k < LOADS; ++k) {
        #pragma unroll
        for (int i = 0; i < VEC; ++i) {
            const float difference = widen(values[k].at[i]) - widen(targets[k].at[i]);
            narrow(factor * difference * widen(grads[k].at[i]), values[k].at[i]);
        }
    }
    write(dx, values, blockIdx.x, count);
}
"""  # fmt: skip
_one_gradient = CudaKernel("one_gradient", ONE_GRADIENT)
_many_gradients = CudaKernel("many_gradients", MANY_GRADIENTS)


def mse_loss_backward_kernel_impl(
    grad_output: torch.Tensor, self: torch.Tensor, target: torch.Tensor, reduction: int
) -> torch.Tensor:
    require_float(self, target, grad_output)
    # As ATen: the mean is over the elements of the input before it is broadcast, and any other number is no mean.
    factor = 2.0 / max(1, self.numel()) if reduction == MEAN else 2.0
    dy, x, wanted = torch.broadcast_tensors(grad_output, self, target)
    if grad_output.numel() == 1:
        x, wanted = dense_together(x, wanted)
        dx = torch.empty_like(x)
        dtypes = {"T": x.dtype, "G": wanted.dtype, "D": grad_output.dtype}
        launch_elementwise(_one_gradient, (x, wanted, dx), grad_output, factor, **dtypes)
        return dx
    x, wanted, dy = dense_together(x, wanted, dy)
    dx = torch.empty_like(x)
    dtypes = {"T": x.dtype, "G": wanted.dtype, "D": dy.dtype}
    launch_elementwise(_many_gradients, (x, wanted, dy, dx), factor, **dtypes)
    return dx
