"""Table of values for indices and offsets: within the indexed size, and distinct where two writes would race."""

from __future__ import annotations

import math
from collections.abc import Iterator

from torchstone.schema import Fill, Given, Integers, SortedIntegers
from torchstone.suites.valid_values.named_call import Fills, NamedCall
from torchstone.suites.valid_values.rule_table import COUNTS, RuleTable, below, distinct_below

RULES = RuleTable()


@RULES.of("embedding embedding_renorm", "weight indices")
def _embedding(call: NamedCall) -> Fills:
    return {"indices": below(call.size("weight"))}


@RULES.of("embedding_dense_backward embedding_backward", "grad_output indices num_weights", jitter=False)
def _embedding_dense_backward(call: NamedCall) -> Fills:
    """On the CPU torch skips an index out of range; on a GPU it writes there."""
    return {"indices": below(call.integer("num_weights", 1))}


@RULES.of(
    "_embedding_bag _embedding_bag_forward_only embedding_bag",
    "weight indices offsets scale_grad_by_freq mode sparse per_sample_weights include_last_offset padding_idx",
    jitter=False,
)
def _embedding_bag(call: NamedCall) -> Fills:
    """Offsets begin with 0 and never decrease. With ``include_last_offset`` the last is the number of indices."""
    total, bags = call.elements("indices"), call.elements("offsets")
    closed = call["include_last_offset"] is True
    return {"indices": below(call.size("weight")), "offsets": Given(tuple(_offsets(total, bags, closed)))}


def _offsets(total: int, count: int, closed: bool) -> Iterator[int]:
    """Offsets at which bags begin. The first bags are empty or small, the last are large."""
    steps = max(1, count - 1 if closed else count)
    return (int(total * (place / steps) ** 1.5) for place in range(count))


@RULES.of(
    "_embedding_bag_per_sample_weights_backward",
    "grad weight indices offsets offset2bag mode padding_idx",
    jitter=False,
)
def _embedding_bag_per_sample_weights_backward(call: NamedCall) -> Fills:
    """``offset2bag`` alone tells which bag each index is in; torch reads the offsets only without it."""
    offsets = Given(tuple(_offsets(call.elements("indices"), call.elements("offsets"), closed=False)))
    return {"indices": below(call.size("weight")), "offsets": offsets, "offset2bag": below(call.size("grad"))}


@RULES.of("_grouped_mm", "self mat2 offs bias out_dtype", jitter=False)
def _grouped_mm(call: NamedCall) -> Fills:
    """``offs`` states where each group ends. The offsets never decrease, and the last is the size that is divided.

    The groups divide the rows of ``self`` if only ``mat2`` is a stack of matrices, and the columns of ``mat2`` if only
    ``self`` is one. They divide the summed dimension if neither is. The other offsets are aligned as CUDA's kernels
    need. Small groups come first, large ones last.
    """
    groups = call.elements("offs")
    matrices, stacked = len(call.shape("self")) == 2, len(call.shape("mat2")) == 3
    total = call.size("mat2", -1) if not matrices else call.size("self", 0 if stacked else -1)
    ends = [int(total * (place / groups) ** 1.5) // 16 * 16 for place in range(1, groups)]
    return {"offs": Given((*ends, total))}


@RULES.of("gather scatter_add scatter_reduce take_along_dim", "self dim index src")
def _gather(call: NamedCall) -> Fills:
    """Repeated indices are allowed: sums and reductions are defined for them."""
    return {"index": below(call.size("self", call["dim"]))}


@RULES.of("scatter", "self dim index src")
def _scatter(call: NamedCall) -> Fills:
    """Indices are distinct along the last dimension: of two writes to one element either may win.

    No fill makes them distinct along another dimension. There they may repeat by chance if the index is longer than 1:
    valid indices that sometimes repeat check more than none.
    """
    dim, index = call["dim"], call.shape("index")
    size = call.size("self", dim)
    is_last = index and dim in (-1, len(index) - 1)
    return {"index": distinct_below(size, index[-1]) if is_last else below(size)}


@RULES.of("index_select index_fill", "self dim index")
@RULES.of("index_add", "self dim index source")
@RULES.of("index_reduce", "self dim index source reduce include_self")
def _index_select(call: NamedCall) -> Fills:
    return {"index": below(call.size("self", call["dim"]))}


@RULES.of("index_copy", "self dim index source")
def _index_copy(call: NamedCall) -> Fills:
    """Indices are distinct: of two copies to one element either may win."""
    return {"index": distinct_below(call.size("self", call["dim"]), call.elements("index"))}


@RULES.of("index _unsafe_index", "self indices")
def _index(call: NamedCall) -> Fills:
    return {"indices": tuple(below(size) for size in _indexed_sizes(call))}


@RULES.of("index_put _index_put_impl _unsafe_index_put", "self indices values accumulate")
def _index_put(call: NamedCall) -> Fills:
    """One of the indices is distinct: of two writes to one element either may win, unless they are added.

    That needs an index of one dimension and full length, no longer than the size that it indexes. Without one, indices
    are left to chance.
    """
    fills: list[Fill | None] = [below(size) for size in _indexed_sizes(call)]
    if call["accumulate"] is not True:
        longest = max((math.prod(tensor.shape) for tensor in call.tensors("indices") if tensor), default=0)
        for place, (tensor, size) in enumerate(zip(call.tensors("indices"), _indexed_sizes(call), strict=True)):
            if tensor is not None and tensor.shape == (longest,) and longest <= size:
                fills[place] = SortedIntegers(0, size)
                break
    return {"indices": tuple(fills)}


def _indexed_sizes(call: NamedCall) -> tuple[int, ...]:
    """For each index the size that it indexes. A mask indexes as many dimensions as it has, other indices one."""
    sizes: list[int] = []
    dimension = 0
    for tensor in call.tensors("indices"):
        sizes.append(call.size("self", dimension))
        dimension += len(tensor.shape) if tensor is not None and tensor.dtype == "bool" else 1
    return tuple(sizes)


@RULES.of("take", "self index")
@RULES.of("put", "self index source accumulate")
def _take(call: NamedCall) -> Fills:
    size = call.elements("self")
    if call["source"] is not None and call["accumulate"] is not True and len(call.shape("index")) == 1:
        return {"index": distinct_below(size, call.elements("index"))}
    return {"index": below(size)}


@RULES.of("value_selecting_reduction_backward", "grad dim indices sizes")
def _value_selecting_reduction_backward(call: NamedCall) -> Fills:
    sizes, dim = call.sizes("sizes"), call.integer("dim", 0)
    return {"indices": below(sizes[dim] if -len(sizes) <= dim < len(sizes) else 1)}


@RULES.of("one_hot", "self num_classes")
def _one_hot(call: NamedCall) -> Fills:
    classes = call.integer("num_classes", -1)
    return {"self": below(classes if classes > 0 else 16)}


@RULES.of("_sparse_coo_tensor_with_dims_and_tensors", "sparse_dim dense_dim size indices values", jitter=False)
@RULES.of("sparse_coo_tensor _sparse_coo_tensor_unsafe", "indices values size", jitter=False)
def _sparse(call: NamedCall) -> Fills:
    """One fill serves all rows of the indices, so the smallest sparse size bounds every index."""
    sparse_dims = call.size("indices")
    return {"indices": below(min(call.sizes("size")[:sparse_dims], default=1))}


RULES.always("bincount", "self weights minlength", self=COUNTS)
RULES.always("repeat_interleave", "self repeats", self=Integers(0, 5), repeats=Integers(0, 5))


@RULES.of("as_strided as_strided_scatter as_strided_copy", "self size stride", jitter=False)
def _as_strided(call: NamedCall) -> Fills:
    """The sizes and strides refer to the storage, so that the call means something else with another layout."""
    return {}
