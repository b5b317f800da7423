"""Cross-entropy in CUDA C++, forward and backward, for class indices and for class probabilities.

A row is the logits of one sample. Forward reads it once: each thread keeps the highest logit that it met and the sum of
exponentials relative to it, and the threads of the row combine these. Only the logarithm of the sum is stored for the
backward pass; softmax never is. Each block adds up the losses of its rows, and a second kernel of one block adds these
sums in a fixed order. Forward and backward are one autograd function, because PyTorch has no backward overload of this
operator.
"""

import torch

from torchstone.kernels.compile_and_launch_cuda import CudaKernel, device_of, multiprocessors
from torchstone.kernels.cuda_launch_geometry import (
    ADD_THREADS,
    LOAD_BYTES,
    WARP,
    divide_up,
    elements_per_load,
    plan_rows,
    power_of_2,
)
from torchstone.kernels.cuda_source import NUMBERS, ROWS, SUMS
from torchstone.kernels.input_preparation import MEAN, NONE, require_float

ELEMENTS = 16
"""Elements of a row that a thread loads before it uses them."""
MOST_LANES = 512
"""Most threads that share one row."""
LEAST_THREADS = 128
PLAIN, SMOOTHED, PROBABILITIES = 0, 1, 2
"""Targets of a row: one class; one class with label smoothing; a probability for each class."""

# A row may begin anywhere in memory (a vocabulary of 50257 is odd). So it is taken in three parts: single elements up
# to an address that is a multiple of a pack, packs, and the single elements that remain.
SHARED = NUMBERS + SUMS + r"""
enum { PLAIN, SMOOTHED, PROBABILITIES };
constexpr int ROWS_OF_BLOCK = THREADS / LANES;

__device__ inline long long lane() { return threadIdx.x % LANES; }

template <typename E> __device__ inline long long elements_before_packs(const E* row, long long columns) {
    const long long beyond = reinterpret_cast<unsigned long long>(row) / sizeof(E) % VEC;
    const long long before = beyond == 0 ? 0 : VEC - beyond;
    return before < columns ? before : columns;
}

__device__ inline float weight_of(const W* w, long long column) { return w == nullptr ? 1.0f : widen(w[column]); }

// What a row wants of a class, apart from its own class.
__device__ inline float wanted_of_all(
    const W* w, const P* wanted, long long column, long long columns, float smoothing)
{
    float share = smoothing / columns;
    if constexpr (KIND == PROBABILITIES) share += widen(wanted[column]) * (1.0f - smoothing);
    return share * weight_of(w, column);
}
"""  # fmt: skip

# What both forward kernels end with.
SUMS_OF_BLOCK = r"""
using LossAndShare = Pack<float, 2>;  // summed over rows; the share is that in the mean's denominator

// Of the block's rows. All threads of the block must call it.
__device__ inline void write_sums(LossAndShare* sums, float own_losses, float own_shares) {
    const LossAndShare found{sum_in_block<THREADS>(own_losses), sum_in_block<THREADS>(own_shares)};
    if (threadIdx.x == 0) sums[blockIdx.x] = found;
}
"""  # fmt: skip

SHORT_ROWS = ROWS + SUMS_OF_BLOCK + r"""
// The same as `forward` for class indices without smoothing, of rows that fit into the registers of a warp or of a part
// of one. The next row is on its way while this one is worked on; beyond the last row, the last is read again.
extern "C" __global__ void __launch_bounds__(THREADS) short_rows(
    const T* x, const long long* targets, const W* w, T* losses, float* lses, float* masses, LossAndShare* sums,
    long long rows, long long width, long long ignored)
{
    const int columns = EXACT ? LANES * PACKS * VEC : width;  // a constant leaves no comparisons with it
    const long long step = (long long)gridDim.x * ROWS_OF_BLOCK;
    long long row = (long long)blockIdx.x * ROWS_OF_BLOCK + threadIdx.x / LANES;
    float own_losses = 0.0f, own_shares = 0.0f;
    Pack<T, VEC> packs[PACKS], next[PACKS];
    read_row(next, x + min(row, rows - 1) * columns, columns);
    long long next_target = targets[min(row, rows - 1)];
    // All threads of a warp make as many rounds, with or without a row, since they add up together.
    for (long long first = (long long)blockIdx.x * ROWS_OF_BLOCK; first < rows; first += step, row += step) {
        #pragma unroll
        for (int p = 0; p < PACKS; ++p) packs[p] = next[p];
        const long long target = next_target, following = min(row + step, rows - 1);
        read_row(next, x + following * columns, columns);
        next_target = targets[following];

        const bool writes = row < rows && lane() == 0;
        const bool counted = target != ignored, exists = target >= 0 && target < columns;
        float chosen = NOT_A_NUMBER, share = counted ? 1.0f : 0.0f;
        if (writes && counted && exists) {
            chosen = widen(x[row * columns + target]);  // the row has just been read: this comes from a cache
            if (w != nullptr) share = widen(w[target]);
        }
        float highest = -INFINITE, total = 0.0f;
        #pragma unroll
        for (int p = 0; p < PACKS; ++p) {
            if (column_of(p) >= columns) break;
            #pragma unroll
            for (int i = 0; i < VEC; ++i) highest = fmaxf(highest, widen(packs[p].at[i]));
        }
        #pragma unroll
        for (int distance = LANES / 2; distance > 0; distance /= 2) {
            highest = fmaxf(highest, __shfl_xor_sync(0xffffffff, highest, distance));
        }
        const float level = highest == -INFINITE ? 0.0f : highest;  // a row of -inf has no other reference point
        #pragma unroll
        for (int p = 0; p < PACKS; ++p) {
            if (column_of(p) >= columns) break;
            #pragma unroll
            for (int i = 0; i < VEC; ++i) total += fast_exp(widen(packs[p].at[i]) - level);
        }
        total = sum_in_warp<LANES>(total);
        if (!writes) continue;
        const float lse = level + logf(total);
        const float loss = counted ? share * (lse - chosen) : 0.0f;
        if (lses != nullptr) lses[row] = lse, masses[row] = share;
        if (losses != nullptr) narrow(loss, losses[row]);
        own_losses += loss;
        own_shares += share;
    }
    if (sums != nullptr) write_sums(sums, own_losses, own_shares);
}
"""  # fmt: skip

FORWARD = SHARED + SUMS_OF_BLOCK + r"""
struct Seen {
    float highest = -INFINITE, total = 0.0f;  // highest logit, and the sum of exponentials relative to it
    float chosen = 0.0f, mass = 0.0f;         // sums of what is wanted times the logit, and of what is wanted

    __device__ inline float level() const { return highest == -INFINITE ? 0.0f : highest; }
    __device__ inline void raise_to(float other) {
        const float before = highest;
        highest = fmaxf(highest, other);
        total *= exponential<T>(before - level());
    }
    __device__ inline void add(float x) { total += exponential<T>(x - level()); }
    __device__ inline void want(float share, float x) {
        mass += share;
        if (share != 0.0f) chosen += share * x;  // a logit of -inf that is not wanted costs nothing
    }
};

// What all threads of a row have seen. Every thread gets it.
__device__ inline Seen seen_in_row(Seen mine) {
    float highest = mine.highest;
    for (int distance = min(LANES, 32) / 2; distance > 0; distance /= 2) {
        highest = fmaxf(highest, __shfl_xor_sync(0xffffffff, highest, distance));
    }
    if constexpr (LANES <= 32) {
        mine.raise_to(highest);
        mine.total = sum_in_warp<LANES>(mine.total);
        if (KIND != PLAIN) mine.chosen = sum_in_warp<LANES>(mine.chosen), mine.mass = sum_in_warp<LANES>(mine.mass);
    } else {
        __shared__ float of_warps[32];
        if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = highest;
        __syncthreads();
        for (int warp = 0; warp < LANES / 32; ++warp) highest = fmaxf(highest, of_warps[warp]);
        mine.raise_to(highest);
        mine.total = sum_in_block<LANES>(mine.total);
        if (KIND != PLAIN) mine.chosen = sum_in_block<LANES>(mine.chosen), mine.mass = sum_in_block<LANES>(mine.mass);
    }
    return mine;
}

__device__ inline Seen read_logits(const T* x, const W* w, const P* wanted, long long columns, float smoothing) {
    Seen seen;
    const long long before = elements_before_packs(x, columns);
    const long long packs = (columns - before) / VEC;
    const auto single = [&](long long column) {
        const float value = widen(x[column]);
        seen.raise_to(value);
        seen.add(value);
        if constexpr (KIND != PLAIN) seen.want(wanted_of_all(w, wanted, column, columns, smoothing), value);
    };
    for (long long column = lane(); column < before; column += LANES) single(column);
    for (long long first = lane(); first < packs; first += (long long)LOADS * LANES) {
        Pack<T, VEC> loaded[LOADS];
        #pragma unroll
        for (int k = 0; k < LOADS; ++k) {
            const long long pack = first + (long long)k * LANES;
            if (pack < packs) loaded[k] = *reinterpret_cast<const Pack<T, VEC>*>(x + before + pack * VEC);
        }
        float highest = -INFINITE;
        #pragma unroll
        for (int k = 0; k < LOADS; ++k) {
            if (first + (long long)k * LANES >= packs) break;
            #pragma unroll
            for (int i = 0; i < VEC; ++i) highest = fmaxf(highest, widen(loaded[k].at[i]));
        }
        seen.raise_to(highest);
        #pragma unroll
        for (int k = 0; k < LOADS; ++k) {
            const long long pack = first + (long long)k * LANES;
            if (pack >= packs) break;
            #pragma unroll
            for (int i = 0; i < VEC; ++i) {
                const float value = widen(loaded[k].at[i]);
                const long long column = before + pack * VEC + i;
                seen.add(value);
                if constexpr (KIND != PLAIN) seen.want(wanted_of_all(w, wanted, column, columns, smoothing), value);
            }
        }
    }
    for (long long column = before + packs * VEC + lane(); column < columns; column += LANES) single(column);
    return seen_in_row(seen);
}

// Loss of each row, its share in the mean's denominator, and for the backward pass the logarithm of its sum of
// exponentials and the sum of what it wants. With `sums`, the sums of losses and shares over the rows of each block.
extern "C" __global__ void __launch_bounds__(THREADS) forward(
    const T* x, const void* targets, const W* w, T* losses, float* lses, float* masses, LossAndShare* sums,
    long long rows, long long columns, long long ignored, float smoothing)
{
    float own_losses = 0.0f, own_shares = 0.0f;
    // A block takes rows in turn: few blocks leave few sums to add.
    for (long long first = (long long)blockIdx.x * ROWS_OF_BLOCK; first < rows; first += gridDim.x * ROWS_OF_BLOCK) {
        const long long row = first + threadIdx.x / LANES;
        const bool there = row < rows;
        long long target = -1;
        bool counted = there;
        if constexpr (KIND != PROBABILITIES) {
            if (there) target = static_cast<const long long*>(targets)[row];
            counted = there && target != ignored;
        }
        const P* wanted = static_cast<const P*>(targets) + row * columns;
        // Nothing is read of rows that are ignored.
        Seen seen = read_logits(x + row * columns, w, wanted, counted ? columns : 0, smoothing);
        float loss = 0.0f, share = counted ? 1.0f : 0.0f;
        const float lse = seen.level() + logf(seen.total);
        if (KIND != PROBABILITIES && counted) {
            if (target >= 0 && target < columns) {
                share = weight_of(w, target);
                seen.want(share * (1.0f - smoothing), widen(x[row * columns + target]));
            } else {
                seen.chosen = NOT_A_NUMBER;  // there is no such class
            }
        }
        if (counted) loss = seen.mass * lse - seen.chosen;
        if (there && lane() == 0) {
            if (lses != nullptr) lses[row] = lse, masses[row] = seen.mass;
            if (losses != nullptr) narrow(loss, losses[row]);
            own_losses += loss;
            own_shares += share;
        }
    }
    if (sums != nullptr) write_sums(sums, own_losses, own_shares);
}
"""  # fmt: skip

ADD_SUMS = NUMBERS + SUMS + SUMS_OF_BLOCK + r"""
// The reduced loss, and for the backward pass the number by which the sum was divided.
extern "C" __global__ void __launch_bounds__(THREADS) add_sums(
    const LossAndShare* sums, T* result, float* divisor, long long blocks, long long is_mean)
{
    const LossAndShare all = sum_of_packs<THREADS>(sums, blocks);
    if (threadIdx.x == 0) {
        *divisor = is_mean ? all.at[1] : 1.0f;
        narrow(all.at[0] / (is_mean ? all.at[1] : 1.0f), *result);
    }
}
"""  # fmt: skip

BACKWARD = SHARED + r"""
// dx = dy / divisor * (mass * softmax - weight * probability)
extern "C" __global__ void __launch_bounds__(THREADS) backward(
    const T* x, const void* targets, const W* w, const float* lses, const float* masses, const T* dy,
    const float* divisor, T* dx, long long rows, long long columns, long long ignored, float smoothing,
    long long dy_stride)
{
    const long long row = (long long)blockIdx.x * ROWS_OF_BLOCK + threadIdx.x / LANES;
    if (row >= rows) return;
    long long target = -1;
    bool counted = true;
    if constexpr (KIND != PROBABILITIES) {
        target = static_cast<const long long*>(targets)[row];
        counted = target != ignored;
    }
    const P* wanted = static_cast<const P*>(targets) + row * columns;
    x += row * columns;
    dx += row * columns;
    const float grad = widen(dy[row * dy_stride]) / (divisor == nullptr ? 1.0f : *divisor);
    const float lse = lses[row], mass = masses[row];
    const float own = counted && target >= 0 && target < columns ? (1.0f - smoothing) * weight_of(w, target) : 0.0f;
    const auto gradient = [&](float value, long long column) {
        if (!counted) return 0.0f;
        float share = column == target ? own : 0.0f;
        if constexpr (KIND != PLAIN) share += wanted_of_all(w, wanted, column, columns, smoothing);
        return grad * (mass * exponential<T>(value - lse) - share);
    };
    const long long before = elements_before_packs(x, columns);
    const long long packs = (columns - before) / VEC;
    for (long long column = lane(); column < before; column += LANES) {
        narrow(gradient(widen(x[column]), column), dx[column]);
    }
    for (long long first = lane(); first < packs; first += (long long)LOADS * LANES) {
        Pack<T, VEC> loaded[LOADS];
        #pragma unroll
        for (int k = 0; k < LOADS; ++k) {
            const long long pack = first + (long long)k * LANES;
            if (counted && pack < packs) loaded[k] = *reinterpret_cast<const Pack<T, VEC>*>(x + before + pack * VEC);
        }
        #pragma unroll
        for (int k = 0; k < LOADS; ++k) {
            const long long pack = first + (long long)k * LANES;
            if (pack >= packs) break;
            #pragma unroll
            for (int i = 0; i < VEC; ++i) {
                narrow(gradient(widen(loaded[k].at[i]), before + pack * VEC + i), loaded[k].at[i]);
            }
            *reinterpret_cast<Pack<T, VEC>*>(dx + before + pack * VEC) = loaded[k];
        }
    }
    for (long long column = before + packs * VEC + lane(); column < columns; column += LANES) {
        narrow(gradient(widen(x[column]), column), dx[column]);
    }
}
"""  # fmt: skip
_short_rows = CudaKernel("short_rows", SHORT_ROWS)
_forward = CudaKernel("forward", FORWARD)
_add_sums = CudaKernel("add_sums", ADD_SUMS)
_backward = CudaKernel("backward", BACKWARD)


class _CrossEntropy(torch.autograd.Function):
    """The loss of rows of logits and their targets, as an autograd function."""

    @staticmethod
    def forward(ctx, x, target, weight, reduction, ignored, smoothing):
        rows = x.shape[0]
        losses = torch.empty(rows, dtype=x.dtype, device=x.device) if reduction == NONE else None
        result = None if reduction == NONE else torch.empty((), dtype=x.dtype, device=x.device)
        divisor = None if reduction == NONE else torch.empty((), dtype=torch.float32, device=x.device)
        lse = mass = None  # of each row, for the backward pass alone
        if ctx.needs_input_grad[0]:
            lse, mass = torch.empty((2, rows), dtype=torch.float32, device=x.device).unbind()
        kind = _constants(x, target, weight, smoothing)
        if rows:
            outputs = losses, lse, mass
            _launch_forward(x, target, weight, outputs, result, divisor, reduction == MEAN, ignored, smoothing, kind)
        elif result is not None:
            divisor.fill_(float(reduction != MEAN))
            result.fill_(float("nan") if reduction == MEAN else 0.0)
        ctx.save_for_backward(x, target, weight, lse, mass, divisor)
        ctx.settings = (ignored, smoothing, kind)
        return losses if result is None else result

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dy):
        x, target, weight, lse, mass, divisor = ctx.saved_tensors
        ignored, smoothing, kind = ctx.settings
        rows, columns = x.shape
        dx = torch.empty_like(x)
        if elements_per_load(dx) < kind["VEC"] or (x.data_ptr() - dx.data_ptr()) % LOAD_BYTES:
            kind = {**kind, "VEC": 1, "LOADS": ELEMENTS}  # a pack of x would not be one of dx
        if x.numel():
            stride = dy.stride(0) if dy.dim() else 0
            _backward.launch(
                x, divide_up(rows, kind["THREADS"] // kind["LANES"]), kind["THREADS"],
                (x, target, weight, lse, mass, dy, divisor, dx,
                 rows, columns, ignored, float(smoothing), stride),
                **kind,
            )  # fmt: skip
        return dx, None, None, None, None, None


def _launch_forward(x, target, weight, outputs, result, divisor, is_mean, ignored, smoothing, kind) -> None:
    """Launch ``short_rows`` if rows fit into it, else ``forward``. Then reduce the blocks' losses if wanted."""
    rows, columns = x.shape
    vec = elements_per_load(x, steps=(columns,))
    plan = plan_rows(columns, vec, ELEMENTS, WARP, 1) if kind["KIND"] == PLAIN else None
    kernel, constants, scalars = _forward, kind, (float(smoothing),)
    if plan is not None:
        exact = columns == plan.LANES * plan.PACKS * plan.VEC
        kernel, constants, scalars = _short_rows, {**plan._asdict(), "EXACT": exact, "T": x.dtype, "W": kind["W"]}, ()
    threads = constants["THREADS"]
    blocks = divide_up(rows, threads // constants["LANES"])
    inputs, sizes = (x, target, weight, *outputs), (rows, columns, ignored, *scalars)
    if result is None:
        kernel.launch(x, blocks, threads, (*inputs, None, *sizes), **constants)
        return
    at_once = kernel.blocks_per_multiprocessor(x, threads, (*inputs, None, *sizes), **constants)
    blocks = min(blocks, at_once * multiprocessors(device_of(x)))
    sums = torch.empty((blocks, 2), dtype=torch.float32, device=x.device)
    kernel.launch(x, blocks, threads, (*inputs, sums, *sizes), **constants)
    _add_sums.launch(x, 1, ADD_THREADS, (sums, result, divisor, blocks, int(is_mean)), THREADS=ADD_THREADS, T=x.dtype)


def _constants(x, target, weight, smoothing: float) -> dict:
    """Macros of ``forward`` and ``backward``. Part of a warp works on a short row, a block on a long one."""
    columns = x.shape[1]
    kind = PROBABILITIES if target.dim() == 2 else SMOOTHED if smoothing else PLAIN
    vec = LOAD_BYTES // x.element_size()
    lanes = power_of_2(divide_up(columns, ELEMENTS))
    lanes = min(MOST_LANES, max(lanes, min(8, power_of_2(divide_up(columns, vec)))))
    return {
        "T": x.dtype,
        "W": x.dtype if weight is None else weight.dtype,
        "P": target.dtype if target.dim() == 2 else x.dtype,
        "KIND": kind,
        "VEC": vec,
        "LOADS": ELEMENTS // vec,
        "LANES": lanes,
        "THREADS": lanes if lanes > WARP else LEAST_THREADS,
    }


def cross_entropy_loss_kernel_impl(
    self: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None = None,
    reduction: int = 1,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> torch.Tensor:
    require_float(*(item for item in (self, weight) if item is not None))
    if target.is_floating_point():
        require_float(target)
        if target.requires_grad:
            raise NotImplementedError("gradients of the target")
    classes_at = 0 if self.dim() == 1 else 1
    columns = self.shape[classes_at]
    x = self.movedim(classes_at, -1)
    shape = x.shape[:-1]
    if target.is_floating_point():
        wanted = target.movedim(classes_at, -1).reshape(shape.numel(), columns)
    else:
        wanted = target.reshape(-1).long()
    rows = x.reshape(shape.numel(), columns).contiguous()
    weight = None if weight is None else weight.contiguous()
    loss = _CrossEntropy.apply(rows, wanted.contiguous(), weight, reduction, ignore_index, label_smoothing)
    return loss.view(shape) if reduction == NONE else loss
