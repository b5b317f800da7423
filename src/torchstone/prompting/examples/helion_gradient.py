import helion
import helion.language as hl
import torch


@helion.kernel(config=helion.Config(block_sizes=[1024]), static_shapes=False)  # a fixed configuration: no autotuning
def _forward(x: torch.Tensor, lambd: float) -> torch.Tensor:
    y = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        value = x[tile].to(torch.float32)
        inside = value * 0.0  # keeps NaN
        shrunk = torch.where(value > lambd, value - lambd, torch.where(value < -lambd, value + lambd, inside))
        y[tile] = shrunk.to(x.dtype)
    return y


@helion.kernel(config=helion.Config(block_sizes=[1024]), static_shapes=False)
def _backward(x: torch.Tensor, grad: torch.Tensor, lambd: float) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        value = x[tile].to(torch.float32)
        passed = grad[tile].to(torch.float32)
        flat = (value >= -lambd) & (value <= lambd)
        out[tile] = torch.where(flat, 0.0, passed).to(x.dtype)
    return out


def _flat(tensor: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """The elements in the other one's order of memory."""
    return torch.empty_like(like).copy_(tensor).as_strided((like.numel(),), (1,))


class _Softshrink(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, lambd):
        ctx.save_for_backward(x)
        ctx.lambd = lambd
        result = torch.empty_like(x)  # dense, with the strides that PyTorch's own result has
        if x.numel():
            result.as_strided((x.numel(),), (1,)).copy_(_forward(_flat(x, result), lambd))
        return result

    @staticmethod
    def backward(ctx, grad):  # the gradient of the result, in any memory layout; one value for each argument of forward
        (x,) = ctx.saved_tensors
        out = torch.empty_like(x)
        if x.numel():
            out.as_strided((x.numel(),), (1,)).copy_(_backward(_flat(x, out), _flat(grad, out), ctx.lambd))
        return out, None


def softshrink_kernel_impl(self: torch.Tensor, lambd: float = 0.5) -> torch.Tensor:
    if self.dtype not in (torch.float32, torch.float16, torch.bfloat16):
        raise NotImplementedError(f"{self.dtype}: this kernel takes float32, float16 and bfloat16")
    return _Softshrink.apply(self, float(lambd))
