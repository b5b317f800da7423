# title: a Triton kernel that tunes itself on the first call
# kind: honest
# device: cuda
# case: relu_cuda_timed -> agrees
import torch
import triton
import triton.language as tl


@triton.autotune([triton.Config({"BLOCK": size}) for size in (512, 1024, 2048)], key=["n"])
@triton.jit
def _relu(x, out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(x + offsets, mask=offsets < n)
    tl.store(out + offsets, tl.where(values < 0.0, 0.0, values), mask=offsets < n)


def kernel(x):
    out = torch.empty_like(x)
    _relu[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, out, x.numel())
    return out
