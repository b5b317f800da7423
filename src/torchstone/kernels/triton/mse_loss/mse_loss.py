"""Mean squared error in Triton.

A reduction takes two passes: each program of the first sums the squares of its share in float32, and one program adds
these sums. The order of additions is fixed, so that equal inputs give equal results; atomic additions would not.
"""

import torch
import triton
import triton.language as tl

from torchstone.kernels.input_preparation import NONE, SUM, broadcast_together, programs_for, require_float

BLOCK = 2048
PROGRAMS_PER_MULTIPROCESSOR = 8
"""With 256 threads each, all that a multiprocessor can hold."""


@triton.jit
def _squares(x_ptr, target_ptr, y_ptr, count, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < count
    difference = tl.load(x_ptr + offsets, mask=inside).to(tl.float32)
    difference -= tl.load(target_ptr + offsets, mask=inside).to(tl.float32)
    tl.store(y_ptr + offsets, (difference * difference).to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def _partial_sums(x_ptr, target_ptr, sums_ptr, count, BLOCK: tl.constexpr):
    program, programs = tl.program_id(0).to(tl.int64), tl.num_programs(0)
    total = tl.zeros((BLOCK,), tl.float32)
    for block in range(program, tl.cdiv(count, BLOCK), programs):
        offsets = block * BLOCK + tl.arange(0, BLOCK)
        inside = offsets < count
        difference = tl.load(x_ptr + offsets, mask=inside, other=0.0).to(tl.float32)
        difference -= tl.load(target_ptr + offsets, mask=inside, other=0.0).to(tl.float32)
        total += difference * difference
    tl.store(sums_ptr + program, tl.sum(total, axis=0))


@triton.jit
def _add_sums(sums_ptr, y_ptr, programs, divisor, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    total = tl.sum(tl.load(sums_ptr + offsets, mask=offsets < programs, other=0.0), axis=0)
    tl.store(y_ptr, (total / divisor).to(y_ptr.dtype.element_ty))


def mse_loss_kernel_impl(self: torch.Tensor, target: torch.Tensor, reduction: int = 1) -> torch.Tensor:
    require_float(self, target)
    x, wanted = broadcast_together(self, target)
    count = x.numel()
    if reduction == NONE:
        y = torch.empty_like(x)
        if count:
            _squares[(triton.cdiv(count, BLOCK),)](x, wanted, y, count, BLOCK=BLOCK)
        return y
    y = torch.empty((), dtype=x.dtype, device=x.device)
    if not count:
        return y.fill_(0.0 if reduction == SUM else float("nan"))
    programs = programs_for(x, triton.cdiv(count, BLOCK), PROGRAMS_PER_MULTIPROCESSOR)
    sums = torch.empty(programs, dtype=torch.float32, device=x.device)
    _partial_sums[(programs,)](x, wanted, sums, count, BLOCK=BLOCK, num_warps=8)
    divisor = 1.0 if reduction == SUM else float(count)
    _add_sums[(1,)](sums, y, programs, divisor, BLOCK=triton.next_power_of_2(programs))
    return y
