"""Gradient of the mean squared error in Triton: twice the difference, times the incoming gradient. One pass."""

import torch
import triton
import triton.language as tl

from torchstone.kernels.input_preparation import MEAN, block_for, dense_together, require_float


@triton.jit
def _mse_loss_backward(dy_ptr, x_ptr, target_ptr, dx_ptr, count, factor, ONE_DY: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < count
    difference = tl.load(x_ptr + offsets, mask=inside).to(tl.float32)
    difference -= tl.load(target_ptr + offsets, mask=inside).to(tl.float32)
    if ONE_DY:  # the loss was reduced to one number
        dy = tl.load(dy_ptr).to(tl.float32)
    else:
        dy = tl.load(dy_ptr + offsets, mask=inside).to(tl.float32)
    tl.store(dx_ptr + offsets, (factor * difference * dy).to(dx_ptr.dtype.element_ty), mask=inside)


def mse_loss_backward_kernel_impl(
    grad_output: torch.Tensor, self: torch.Tensor, target: torch.Tensor, reduction: int
) -> torch.Tensor:
    require_float(self, target, grad_output)
    one_dy = grad_output.numel() == 1
    dy, x, wanted = torch.broadcast_tensors(grad_output, self, target)
    if one_dy:
        dy, (x, wanted) = grad_output, dense_together(x, wanted)
    else:
        dy, x, wanted = dense_together(dy, x, wanted)
    count = x.numel()
    dx = torch.empty_like(x)
    if not count:
        return dx
    # As ATen: the mean is over the elements of the input before it is broadcast, and any other number is no mean.
    factor = 2.0 / self.numel() if reduction == MEAN else 2.0
    block = block_for(x)
    grid = (triton.cdiv(count, block),)
    _mse_loss_backward[grid](dy, x, wanted, dx, count, factor, ONE_DY=one_dy, BLOCK=block, num_warps=4)
    return dx
