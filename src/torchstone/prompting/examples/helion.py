import helion
import helion.language as hl
import torch


@helion.kernel(config=helion.Config(block_sizes=[1024]), static_shapes=False)  # a fixed configuration: no autotuning
def _softshrink(x: torch.Tensor, lambd: float) -> torch.Tensor:
    y = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        value = x[tile].to(torch.float32)
        inside = value * 0.0  # keeps NaN
        shrunk = torch.where(value > lambd, value - lambd, torch.where(value < -lambd, value + lambd, inside))
        y[tile] = shrunk.to(x.dtype)
    return y


def softshrink_kernel_impl(self: torch.Tensor, lambd: float = 0.5) -> torch.Tensor:
    if self.dtype not in (torch.float32, torch.float16, torch.bfloat16):
        raise NotImplementedError(f"{self.dtype}: this kernel takes float32, float16 and bfloat16")
    result = torch.empty_like(self)  # dense, with the strides that PyTorch's own result has
    if self.numel() == 0:
        return result
    x = torch.empty_like(self).copy_(self)  # the same order of memory as the result
    flat = x.as_strided((x.numel(),), (1,))
    result.as_strided((x.numel(),), (1,)).copy_(_softshrink(flat, float(lambd)))
    return result
