"""Cross-entropy in Triton, forward and backward, for class indices and for class probabilities.

A row is the logits of one sample. Forward reads it once, block by block, and keeps the running maximum and the sum of
exponentials relative to it; only the logarithm of that sum is stored for the backward pass. Softmax is never stored.
Both passes are one autograd function, because PyTorch has no backward overload of this operator.
"""

import torch
import triton
import triton.language as tl

from torchstone.kernels.layout import MEAN, NONE, programs_for, require_float

TILE = 2048
"""Elements of a tile of rows."""
WIDEST = 4096
"""Columns of a block; longer rows take several."""


@triton.jit
def _forward(
    x_ptr, target_ptr, w_ptr, loss_ptr, share_ptr, lse_ptr, rows, columns, ignored, smoothing,
    HAS_WEIGHT: tl.constexpr, PROBABILITIES: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Loss of each row, its share in the mean's denominator, and the logarithm of its sum of exponentials."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    there = row < rows
    if not PROBABILITIES:
        target = tl.load(target_ptr + row, mask=there, other=0)
        counted = there & (target != ignored)
    highest = tl.full((ROWS,), float("-inf"), tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    chosen = tl.zeros((ROWS,), tl.float32)  # sum over classes of weight * probability * logit
    mass = tl.zeros((ROWS,), tl.float32)  # sum over classes of weight * probability
    for start in range(0, columns, COLUMNS):
        column = start + tl.arange(0, COLUMNS)
        within = column < columns
        inside = there[:, None] & within[None, :]
        place = row[:, None] * columns + column[None, :]
        x = tl.load(x_ptr + place, mask=inside, other=float("-inf")).to(tl.float32)
        higher = tl.maximum(highest, tl.max(x, axis=1))
        level = tl.where(higher == float("-inf"), 0.0, higher)  # a row of -inf has no other reference point
        total = total * tl.exp(highest - level) + tl.sum(tl.where(inside, tl.exp(x - level[:, None]), 0.0), axis=1)
        highest = higher
        if PROBABILITIES:
            wanted = tl.load(target_ptr + place, mask=inside, other=0.0).to(tl.float32)
        else:
            wanted = tl.where(column[None, :] == target[:, None], 1.0, 0.0)
        wanted = wanted * (1.0 - smoothing) + smoothing / columns
        if HAS_WEIGHT:
            wanted *= tl.load(w_ptr + column, mask=within, other=0.0).to(tl.float32)[None, :]
        used = inside & (wanted != 0.0)  # a logit of -inf that is not wanted costs nothing
        chosen += tl.sum(tl.where(used, wanted * x, 0.0), axis=1)
        mass += tl.sum(tl.where(inside, wanted, 0.0), axis=1)
    lse = tl.where(highest == float("-inf"), float("-inf"), highest + tl.log(total))
    loss = mass * lse - chosen
    share = tl.full((ROWS,), 1.0, tl.float32)
    if not PROBABILITIES:
        if HAS_WEIGHT:
            share = tl.load(w_ptr + target, mask=counted, other=0.0).to(tl.float32)
        loss = tl.where(counted, loss, 0.0)
        share = tl.where(counted, share, 0.0)
    tl.store(loss_ptr + row, loss, mask=there)
    tl.store(share_ptr + row, share, mask=there)
    tl.store(lse_ptr + row, lse, mask=there)


@triton.jit
def _partial_sums(loss_ptr, share_ptr, sums_ptr, rows, BLOCK: tl.constexpr):
    program, programs = tl.program_id(0).to(tl.int64), tl.num_programs(0)
    loss = tl.zeros((BLOCK,), tl.float32)
    share = tl.zeros((BLOCK,), tl.float32)
    for block in range(program, tl.cdiv(rows, BLOCK), programs):
        row = block * BLOCK + tl.arange(0, BLOCK)
        loss += tl.load(loss_ptr + row, mask=row < rows, other=0.0)
        share += tl.load(share_ptr + row, mask=row < rows, other=0.0)
    tl.store(sums_ptr + program, tl.sum(loss, axis=0))
    tl.store(sums_ptr + programs + program, tl.sum(share, axis=0))


@triton.jit
def _add_sums(
    sums_ptr, y_ptr, divisor_ptr, programs, rows, MEAN: tl.constexpr, BY_ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    offsets = tl.arange(0, BLOCK)
    loss = tl.sum(tl.load(sums_ptr + offsets, mask=offsets < programs, other=0.0), axis=0)
    divisor = 1.0
    if MEAN:
        divisor = tl.sum(tl.load(sums_ptr + programs + offsets, mask=offsets < programs, other=0.0), axis=0)
        if BY_ROWS:
            divisor = rows.to(tl.float32)
    tl.store(divisor_ptr, divisor)
    tl.store(y_ptr, (loss / divisor).to(y_ptr.dtype.element_ty))


@triton.jit
def _backward(
    x_ptr, target_ptr, w_ptr, lse_ptr, dy_ptr, divisor_ptr, dx_ptr, rows, columns, ignored, smoothing, dy_stride,
    HAS_WEIGHT: tl.constexpr, PROBABILITIES: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """dx = dy / divisor * (mass * softmax - weight * probability)."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    there = row < rows
    lse = tl.load(lse_ptr + row, mask=there, other=0.0)
    dy = tl.load(dy_ptr + row * dy_stride, mask=there, other=0.0).to(tl.float32) / tl.load(divisor_ptr)
    counted = there
    mass = tl.full((ROWS,), 1.0, tl.float32)
    if not PROBABILITIES:
        target = tl.load(target_ptr + row, mask=there, other=0)
        counted = there & (target != ignored)
    if PROBABILITIES or HAS_WEIGHT:
        mass = tl.zeros((ROWS,), tl.float32)
        for start in range(0, columns, COLUMNS):
            column = start + tl.arange(0, COLUMNS)
            within = column < columns
            inside = there[:, None] & within[None, :]
            if PROBABILITIES:
                place = row[:, None] * columns + column[None, :]
                wanted = tl.load(target_ptr + place, mask=inside, other=0.0).to(tl.float32)
            else:
                wanted = tl.where(column[None, :] == target[:, None], 1.0, 0.0)
            wanted = wanted * (1.0 - smoothing) + smoothing / columns
            if HAS_WEIGHT:
                wanted *= tl.load(w_ptr + column, mask=within, other=0.0).to(tl.float32)[None, :]
            mass += tl.sum(tl.where(inside, wanted, 0.0), axis=1)
    for start in range(0, columns, COLUMNS):
        column = start + tl.arange(0, COLUMNS)
        within = column < columns
        inside = there[:, None] & within[None, :]
        place = row[:, None] * columns + column[None, :]
        x = tl.load(x_ptr + place, mask=inside, other=0.0).to(tl.float32)
        if PROBABILITIES:
            wanted = tl.load(target_ptr + place, mask=inside, other=0.0).to(tl.float32)
        else:
            wanted = tl.where(column[None, :] == target[:, None], 1.0, 0.0)
        wanted = wanted * (1.0 - smoothing) + smoothing / columns
        if HAS_WEIGHT:
            wanted *= tl.load(w_ptr + column, mask=within, other=0.0).to(tl.float32)[None, :]
        dx = dy[:, None] * (mass[:, None] * tl.exp(x - lse[:, None]) - wanted)
        dx = tl.where(counted[:, None], dx, 0.0)
        tl.store(dx_ptr + place, dx.to(dx_ptr.dtype.element_ty), mask=inside)


class _CrossEntropy(torch.autograd.Function):
    """Rows of logits and their targets, already brought into shape."""

    @staticmethod
    def forward(ctx, x, target, weight, reduction, ignored, smoothing):
        rows, columns = x.shape
        loss, share, lse = (torch.empty(rows, dtype=torch.float32, device=x.device) for _ in range(3))
        probabilities = target.dim() == 2
        tile = _tile(columns)
        kind = {"HAS_WEIGHT": weight is not None, "PROBABILITIES": probabilities, **tile}
        if rows:
            grid = (triton.cdiv(rows, tile["ROWS"]),)
            _forward[grid](x, target, weight, loss, share, lse, rows, columns, ignored, smoothing, **kind)
        if reduction == NONE:
            result, divisor = loss.to(x.dtype), torch.ones((), device=x.device)
        else:
            result, divisor = _reduced(loss, share, x.dtype, reduction == MEAN, by_rows=probabilities)
        ctx.save_for_backward(x, target, weight, lse, divisor)
        ctx.settings = (ignored, smoothing, kind)
        return result

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dy):
        x, target, weight, lse, divisor = ctx.saved_tensors
        ignored, smoothing, kind = ctx.settings
        rows, columns = x.shape
        dx = torch.empty_like(x)
        if x.numel():
            stride = dy.stride(0) if dy.dim() else 0
            _backward[(triton.cdiv(rows, kind["ROWS"]),)](
                x, target, weight, lse, dy, divisor, dx, rows, columns, ignored, smoothing, stride,
                **kind,
            )  # fmt: skip
        return dx, None, None, None, None, None


def _tile(columns: int) -> dict[str, int]:
    width = min(WIDEST, triton.next_power_of_2(max(1, columns)))
    height = max(1, TILE // width)
    return {"ROWS": height, "COLUMNS": width, "num_warps": max(1, min(8, height * width // 512))}


def _reduced(loss, share, dtype, mean: bool, by_rows: bool) -> tuple[torch.Tensor, torch.Tensor]:
    rows = loss.numel()
    programs = programs_for(loss, triton.cdiv(max(1, rows), TILE))
    sums = torch.zeros(2 * programs, dtype=torch.float32, device=loss.device)
    result = torch.empty((), dtype=dtype, device=loss.device)
    divisor = torch.empty((), dtype=torch.float32, device=loss.device)
    _partial_sums[(programs,)](loss, share, sums, rows, BLOCK=TILE)
    block = triton.next_power_of_2(programs)
    _add_sums[(1,)](sums, result, divisor, programs, rows, MEAN=mean, BY_ROWS=by_rows, BLOCK=block)
    return result, divisor


def cross_entropy_loss_kernel_impl(
    self: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None = None,
    reduction: int = 1,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> torch.Tensor:
    require_float(self)
    if target.is_floating_point() and target.requires_grad:
        raise NotImplementedError("gradients of the target")
    classes_at = 0 if self.dim() == 1 else 1
    columns = self.shape[classes_at]
    x = self.movedim(classes_at, -1)
    shape = x.shape[:-1]
    wanted = target.movedim(classes_at, -1).reshape(-1, columns) if target.is_floating_point() else target.reshape(-1)
    rows = x.reshape(shape.numel(), columns).contiguous()
    weight = None if weight is None else weight.contiguous()
    loss = _CrossEntropy.apply(rows, wanted.contiguous(), weight, reduction, ignore_index, label_smoothing)
    return loss.view(shape) if reduction == NONE else loss
