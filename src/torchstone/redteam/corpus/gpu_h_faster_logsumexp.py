# title: one kernel for what torch does in several: faster, and rightly so
# family: 5
# kind: honest
# device: cuda
# case: logsumexp_cuda_timed -> agrees/faster
import torch
import triton
import triton.language as tl


@triton.jit
def _kernel(x, y, stride, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    values = tl.load(x + row * stride + offsets, mask=offsets < n, other=float("-inf"))
    largest = tl.max(values, axis=0)
    tl.store(y + row, tl.log(tl.sum(tl.exp(values - largest), axis=0)) + largest)


def kernel(x, dims, keepdim=False):
    y = torch.empty(x.shape[0], device=x.device, dtype=x.dtype)
    _kernel[(x.shape[0],)](x, y, x.stride(0), x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return y
