import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import from_dlpack

_THREADS = 256
_compiled: dict[torch.dtype, object] = {}  # code only; never keep results


@cute.kernel
def _softshrink_kernel(x: cute.Tensor, y: cute.Tensor, count: cutlass.Int64, lambd: cutlass.Float32):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    place = cutlass.Int64(block) * _THREADS + thread
    if place < count:
        value = x[place].to(cutlass.Float32)
        shrunk = value * 0.0  # keeps NaN
        if value > lambd:
            shrunk = value - lambd
        if value < -lambd:
            shrunk = value + lambd
        y[place] = shrunk.to(y.element_type)


@cute.jit
def _launch(x: cute.Tensor, y: cute.Tensor, count: cutlass.Int64, lambd: cutlass.Float32):
    blocks = (count + _THREADS - 1) // _THREADS
    _softshrink_kernel(x, y, count, lambd).launch(grid=[blocks, 1, 1], block=[_THREADS, 1, 1])


def softshrink_kernel_impl(self: torch.Tensor, lambd: float = 0.5) -> torch.Tensor:
    if self.dtype not in (torch.float32, torch.float16, torch.bfloat16):
        raise NotImplementedError(f"{self.dtype}: this kernel takes float32, float16 and bfloat16")
    result = torch.empty_like(self)  # dense, with the strides that PyTorch's own result has
    count = self.numel()
    if count == 0:  # a grid of 0 blocks is an error
        return result
    x = self if self.stride() == result.stride() else torch.empty_like(self).copy_(self)  # same order of memory
    flat = [from_dlpack(each.detach().as_strided((count,), (1,))).mark_layout_dynamic() for each in (x, result)]
    arguments = (*flat, cutlass.Int64(count), cutlass.Float32(lambd))
    if self.dtype not in _compiled:
        _compiled[self.dtype] = cute.compile(_launch, *arguments)
    _compiled[self.dtype](*arguments)
    return result
