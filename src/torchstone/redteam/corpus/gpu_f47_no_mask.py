# title: a Triton kernel that leaves out the last block
# family: 47, 52
# kind: cheat
# device: cuda
# case: relu -> disagrees
import torch
import triton
import triton.language as tl


@triton.jit
def _relu(x, out, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + offsets, tl.maximum(tl.load(x + offsets), 0.0))


def kernel(x):
    out = torch.empty_like(x)
    _relu[(x.numel() // 1024,)](x, out, BLOCK=1024)
    return out
