"""Cross-entropy in Triton, forward and backward, for class indices and for class probabilities.

A row is the logits of one sample. Forward reads it once, block by block, and keeps the running maximum and the sum of
exponentials relative to it; only the logarithm of that sum is stored for the backward pass. Softmax is never stored.
Each program adds up the losses of its tile of rows, and one program adds these sums in a fixed order.
Both passes are one autograd function, because PyTorch has no backward overload of this operator.
"""

import torch
import triton
import triton.language as tl

from torchstone.kernels.input_preparation import MEAN, NONE, programs_for, require_float

TILE_BYTES = 2048
"""Size of a tile of rows: 64 bytes for each thread of a warp. Rows that are longer take more warps."""
WIDEST_BYTES = 16384
"""Size of a block of columns; longer rows take several."""
PROGRAMS_PER_MULTIPROCESSOR = 32
"""Of one warp each: about half of the threads that a multiprocessor can hold, for the kernel that adds their sums."""
SUMS = 8192
"""Sums of programs that are read at a time."""


@triton.jit
def _wanted(
    target_ptr, w_ptr, target, place, column, inside, columns, smoothing,
    HAS_WEIGHT: tl.constexpr, PROBABILITIES: tl.constexpr,
):  # fmt: skip
    """Weight times smoothed probability of each class."""
    if PROBABILITIES:
        wanted = tl.load(target_ptr + place, mask=inside, other=0.0).to(tl.float32)
    else:
        wanted = tl.where(column[None, :] == target[:, None], 1.0, 0.0)
    wanted = wanted * (1.0 - smoothing) + smoothing / columns
    if HAS_WEIGHT:
        wanted *= tl.load(w_ptr + column, mask=column < columns, other=0.0).to(tl.float32)[None, :]
    return tl.where(inside, wanted, 0.0)


@triton.jit
def _forward(
    x_ptr, target_ptr, w_ptr, loss_ptr, lse_ptr, sums_ptr, rows, columns, ignored, smoothing,
    HAS_WEIGHT: tl.constexpr, PROBABILITIES: tl.constexpr, SMOOTHED: tl.constexpr, REDUCED: tl.constexpr,
    KEEPS_LSE: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """Loss of each row, or their sum and the sum of their weights; and the logarithm of each sum of exponentials."""
    if EXACT:
        columns = COLUMNS  # a constant lets the compiler prove that 16-byte loads are aligned
    program, programs = tl.program_id(0).to(tl.int64), tl.num_programs(0)
    row = program * ROWS + tl.arange(0, ROWS)
    there = row < rows
    counted = there
    target = tl.zeros((ROWS,), tl.int32)
    share = tl.full((ROWS,), 1.0, tl.float32)
    if not PROBABILITIES:
        label = tl.load(target_ptr + row, mask=there, other=0)
        counted = there & (label != ignored)
        known = counted & (label >= 0) & (label < columns)  # a class that does not exist makes the loss NaN
        target = label.to(tl.int32)
        aim = tl.load(x_ptr + row * columns + target, mask=known, other=float("nan")).to(tl.float32)
        if HAS_WEIGHT:
            share = tl.load(w_ptr + target, mask=known, other=0.0).to(tl.float32)
    highest = tl.full((ROWS,), float("-inf"), tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    chosen = tl.zeros((ROWS,), tl.float32)  # sum over classes of weight * probability * logit
    mass = tl.zeros((ROWS,), tl.float32)  # sum over classes of weight * probability
    for start in range(0, columns, COLUMNS):
        column = start + tl.arange(0, COLUMNS)
        inside = there[:, None] & (column < columns)[None, :]
        place = row[:, None] * columns + column[None, :]
        x = tl.load(x_ptr + place, mask=inside, other=float("-inf")).to(tl.float32)
        higher = tl.maximum(highest, tl.max(x, axis=1))
        level = tl.where(higher == float("-inf"), 0.0, higher)  # a row of -inf has no other reference point
        total = total * tl.exp(highest - level) + tl.sum(tl.exp(x - level[:, None]), axis=1)
        highest = higher
        if PROBABILITIES or SMOOTHED:
            wanted = _wanted(
                target_ptr, w_ptr, target, place, column, inside, columns, smoothing, HAS_WEIGHT, PROBABILITIES
            )
            # A logit of -inf that is not wanted costs nothing.
            chosen += tl.sum(tl.where(wanted != 0.0, wanted * x, 0.0), axis=1)
            mass += tl.sum(wanted, axis=1)
    lse = tl.where(highest == float("-inf"), 0.0, highest) + tl.log(total)
    if PROBABILITIES or SMOOTHED:
        loss = mass * lse - chosen
    else:
        loss = share * (lse - aim)
    loss = tl.where(counted, loss, 0.0)
    if KEEPS_LSE:
        tl.store(lse_ptr + row, lse, mask=there)
    if REDUCED:
        tl.store(sums_ptr + program, tl.sum(loss, axis=0))
        tl.store(sums_ptr + programs + program, tl.sum(tl.where(counted, share, 0.0), axis=0))
    else:
        tl.store(loss_ptr + row, loss.to(loss_ptr.dtype.element_ty), mask=there)


@triton.jit
def _forward_of_short_rows(
    x_ptr, target_ptr, w_ptr, loss_ptr, lse_ptr, sums_ptr, rows, columns, ignored,
    HAS_WEIGHT: tl.constexpr, REDUCED: tl.constexpr, KEEPS_LSE: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """The same for class indices without smoothing, where a row is one block: a program takes several tiles in turn."""
    if EXACT:
        columns = COLUMNS  # a constant lets the compiler prove that 16-byte loads are aligned
    program, programs = tl.program_id(0).to(tl.int64), tl.num_programs(0)
    column = tl.arange(0, COLUMNS)
    loss_sum = tl.zeros((ROWS,), tl.float32)
    share_sum = tl.zeros((ROWS,), tl.float32)
    for tile in range(program, tl.cdiv(rows, ROWS), programs):
        row = tile * ROWS + tl.arange(0, ROWS)
        there = row < rows
        inside = there[:, None] & (column < columns)[None, :]
        x = tl.load(x_ptr + row[:, None] * columns + column[None, :], mask=inside, other=float("-inf")).to(tl.float32)
        label = tl.load(target_ptr + row, mask=there, other=ignored)
        counted = label != ignored
        known = counted & (label >= 0) & (label < columns)  # a class that does not exist makes the loss NaN
        aim = tl.load(x_ptr + row * columns + label, mask=known, other=float("nan")).to(tl.float32)
        highest = tl.max(x, axis=1)
        level = tl.where(highest == float("-inf"), 0.0, highest)  # a row of -inf has no other reference point
        lse = level + tl.log(tl.sum(tl.exp(x - level[:, None]), axis=1))
        share = tl.where(counted, 1.0, 0.0)
        if HAS_WEIGHT:
            share = tl.load(w_ptr + label, mask=known, other=0.0).to(tl.float32)
        loss = tl.where(counted, share * (lse - aim), 0.0)
        if KEEPS_LSE:
            tl.store(lse_ptr + row, lse, mask=there)
        if REDUCED:
            loss_sum += loss
            share_sum += share
        else:
            tl.store(loss_ptr + row, loss.to(loss_ptr.dtype.element_ty), mask=there)
    if REDUCED:
        tl.store(sums_ptr + program, tl.sum(loss_sum, axis=0))
        tl.store(sums_ptr + programs + program, tl.sum(share_sum, axis=0))


@triton.jit
def _add_sums(
    sums_ptr, y_ptr, divisor_ptr, programs, rows, MEAN: tl.constexpr, BY_ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    """The reduced loss, and the number by which the sum was divided."""
    losses = tl.zeros((BLOCK,), tl.float32)
    shares = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, programs, BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        losses += tl.load(sums_ptr + offsets, mask=offsets < programs, other=0.0)
        if MEAN and not BY_ROWS:
            shares += tl.load(sums_ptr + programs + offsets, mask=offsets < programs, other=0.0)
    divisor = 1.0
    if MEAN and BY_ROWS:
        divisor = 1.0 * rows  # an int where it was compiled for one row
    elif MEAN:
        divisor = tl.sum(shares, axis=0)
    tl.store(divisor_ptr, divisor)
    tl.store(y_ptr, (tl.sum(losses, axis=0) / divisor).to(y_ptr.dtype.element_ty))


@triton.jit
def _backward(
    x_ptr, target_ptr, w_ptr, lse_ptr, dy_ptr, divisor_ptr, dx_ptr, rows, columns, ignored, smoothing, dy_stride,
    HAS_WEIGHT: tl.constexpr, PROBABILITIES: tl.constexpr, SMOOTHED: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """dx = dy / divisor * (mass * softmax - weight * probability)."""
    if EXACT:
        columns = COLUMNS
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    there = row < rows
    lse = tl.load(lse_ptr + row, mask=there, other=0.0)
    dy = tl.load(dy_ptr + row * dy_stride, mask=there, other=0.0).to(tl.float32) / tl.load(divisor_ptr)
    counted = there
    target = tl.zeros((ROWS,), tl.int32)
    if not PROBABILITIES:
        label = tl.load(target_ptr + row, mask=there, other=0)
        counted = there & (label != ignored)
        target = label.to(tl.int32)
        if HAS_WEIGHT and not SMOOTHED:
            known = counted & (label >= 0) & (label < columns)
            dy *= tl.load(w_ptr + target, mask=known, other=0.0).to(tl.float32)
    mass = tl.full((ROWS,), 1.0, tl.float32)
    if PROBABILITIES or (SMOOTHED and HAS_WEIGHT):
        mass = tl.zeros((ROWS,), tl.float32)
        for start in range(0, columns, COLUMNS):
            column = start + tl.arange(0, COLUMNS)
            inside = there[:, None] & (column < columns)[None, :]
            place = row[:, None] * columns + column[None, :]
            mass += tl.sum(
                _wanted(
                    target_ptr, w_ptr, target, place, column, inside, columns, smoothing, HAS_WEIGHT, PROBABILITIES
                ),
                axis=1,
            )
    for start in range(0, columns, COLUMNS):
        column = start + tl.arange(0, COLUMNS)
        inside = there[:, None] & (column < columns)[None, :]
        place = row[:, None] * columns + column[None, :]
        x = tl.load(x_ptr + place, mask=inside, other=0.0).to(tl.float32)
        if PROBABILITIES or SMOOTHED:
            wanted = _wanted(
                target_ptr, w_ptr, target, place, column, inside, columns, smoothing, HAS_WEIGHT, PROBABILITIES
            )
        else:
            wanted = tl.where(column[None, :] == target[:, None], 1.0, 0.0)
        dx = dy[:, None] * (mass[:, None] * tl.exp(x - lse[:, None]) - wanted)
        dx = tl.where(counted[:, None], dx, 0.0)  # an ignored row gets 0 even where its softmax is NaN
        tl.store(dx_ptr + place, dx.to(dx_ptr.dtype.element_ty), mask=inside)


class _CrossEntropy(torch.autograd.Function):
    """Rows of logits and their targets, already brought into shape."""

    @staticmethod
    def forward(ctx, x, target, weight, reduction, ignored, smoothing):
        rows = x.shape[0]
        kind = _kind(x, target, weight, smoothing)
        short = smoothing == 0.0 and target.dim() == 1 and x.shape[1] <= kind["COLUMNS"]
        programs = triton.cdiv(max(1, rows), kind["ROWS"])
        if short and reduction != NONE:
            programs = programs_for(x, programs, PROGRAMS_PER_MULTIPROCESSOR)
        keeps_lse = ctx.needs_input_grad[0]
        lse = torch.empty(rows if keeps_lse else 0, dtype=torch.float32, device=x.device)
        sums = torch.empty(2 * programs if reduction != NONE else 0, dtype=torch.float32, device=x.device)
        result = torch.empty(rows if reduction == NONE else (), dtype=x.dtype, device=x.device)
        outputs = {"REDUCED": reduction != NONE, "KEEPS_LSE": keeps_lse}
        if short and (rows or reduction != NONE):
            tile = {name: value for name, value in kind.items() if name not in ("PROBABILITIES", "SMOOTHED")}
            _forward_of_short_rows[(programs,)](
                x, target, weight, result, lse, sums, rows, x.shape[1], ignored, **outputs, **tile
            )
        elif rows or reduction != NONE:
            _forward[(programs,)](
                x, target, weight, result, lse, sums, rows, x.shape[1], ignored, smoothing, **outputs, **kind
            )
        divisor = _reduced(sums, result, programs, rows, reduction == MEAN, target) if reduction != NONE else None
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
        divisor = torch.ones((), device=x.device) if divisor is None else divisor
        if x.numel():
            stride = dy.stride(0) if dy.dim() else 0
            _backward[(triton.cdiv(rows, kind["ROWS"]),)](
                x, target, weight, lse, dy, divisor, dx, rows, columns, ignored, smoothing, stride, **kind
            )
        return dx, None, None, None, None, None


def _kind(x, target, weight, smoothing) -> dict[str, int]:
    """What the kernels are compiled for."""
    size = x.element_size()
    width = min(WIDEST_BYTES // size, triton.next_power_of_2(max(1, x.shape[1])))
    height = max(1, TILE_BYTES // size // width)
    return {
        "HAS_WEIGHT": weight is not None,
        "PROBABILITIES": target.dim() == 2,
        "SMOOTHED": smoothing != 0.0,
        "ROWS": height,
        "COLUMNS": width,
        "EXACT": width == x.shape[1],
        "num_warps": max(1, height * width * size // 2048),
    }


def _reduced(sums, result, programs, rows, mean: bool, target) -> torch.Tensor:
    """Write the loss; the number by which the sum was divided."""
    divisor = torch.empty((), dtype=torch.float32, device=sums.device)
    block = min(SUMS, triton.next_power_of_2(programs))
    kind = {"MEAN": mean, "BY_ROWS": target.dim() == 2, "BLOCK": block}
    _add_sums[(1,)](sums, result, divisor, programs, rows, **kind, num_warps=max(1, min(32, block // 256)))
    return divisor


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
    by_index = not target.is_floating_point()
    wanted = target.reshape(-1) if by_index else target.movedim(classes_at, -1).reshape(shape.numel(), columns)
    rows = x.reshape(shape.numel(), columns).contiguous()
    weight = None if weight is None else weight.contiguous()
    loss = _CrossEntropy.apply(rows, wanted.contiguous(), weight, reduction, ignore_index, label_smoothing)
    return loss.view(shape) if reduction == NONE else loss
