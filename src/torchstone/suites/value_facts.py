"""What the values of a recorded call must be like, where only shapes and dtypes were recorded.

An index must lie within what it indexes, a variance is not negative, a logarithm needs positive numbers. One table
holds these facts by operator: names of arguments, and a function from the sizes of a call to the fills of those
arguments. Other arguments are filled by their dtype. It needs shapes only and does not import torch.

An invalid call (a ``gather`` without an index) is no error here: torch's own operator will refuse it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from torchstone.schema import (
    Argument,
    Booleans,
    DType,
    Fill,
    Given,
    Integers,
    JudgedDevice,
    Layout,
    MemoryFormat,
    NonFinite,
    Normal,
    PositiveDefinite,
    Scalar,
    Sequence,
    Simplex,
    SortedIntegers,
    Tensor,
    Uniform,
    WindowPositions,
)
from torchstone.suites.trace_text import TorchName, TracedCall, TracedTensor, Value

SIGNED = Normal()
POSITIVE = Uniform(0.125, 8.0)
"""Logarithms, roots, divisors, variances: well away from zero in every dtype."""
UNIT = Uniform(0.0, 1.0)
"""Probabilities that need not add up to one."""
INSIDE_UNIT = Uniform(0.0078125, 0.9921875)
"""Probabilities whose logarithm is taken, of them and of what they lack to one."""
BALANCED = Uniform(-1.0, 1.0)
NUMBERS = Integers(-100, 100)
COUNTS = Integers(0, 100)
DIVISORS = Integers(1, 100)

_DEVICE = re.compile(r"(?:torch\.device\(')?(?:cpu|cuda)(?::\d+)?(?:'\))?")


class ValuedCall(NamedTuple):
    """A recorded call as the arguments of a case."""

    args: tuple[Argument, ...]
    kwargs: dict[str, Argument]
    jitter: bool
    """Whether the judge may try other sizes: not where an index out of range is an error that torch does not see."""


def fills_for(operator: str, call: TracedCall) -> ValuedCall:
    """The arguments of a case for this call of the operator (``aten.embedding.default``)."""
    fact = _fact_of(operator)
    named = NamedCall(fact.arguments, call)
    fills = fact.fills(named)
    args = tuple(
        _argument(value, fills.get(fact.arguments[place]) if place < len(fact.arguments) else None)
        for place, value in enumerate(call.args)
    )
    kwargs = {name: _argument(value, fills.get(name)) for name, value in call.kwargs.items()}
    return ValuedCall(args, kwargs, fact.jitter)


# ---- from recorded values to recipes


Fills = Mapping[str, "Fill | tuple[Fill | None, ...] | None"]
"""Argument name -> its fill; for a list of tensors one for all or one for each; None: by the dtype."""


def _argument(value: Value, fill: Fill | tuple[Fill | None, ...] | None) -> Argument:
    match value:
        case TracedTensor():
            return _tensor(value, None if isinstance(fill, tuple) else fill)
        case TorchName(kind="dtype", name=name):
            return DType(name)
        case TorchName(kind="layout", name=name):
            return Layout(name)
        case TorchName(name=name):
            return MemoryFormat(name)
        case tuple():
            each = fill if isinstance(fill, tuple) and len(fill) == len(value) else (fill,) * len(value)
            return Sequence(tuple(_argument(item, one) for item, one in zip(value, each, strict=True)))
        case str() if _DEVICE.fullmatch(value):
            return JudgedDevice()
        case float() if not math.isfinite(value):
            return NonFinite("nan" if math.isnan(value) else "inf" if value > 0 else "-inf")
        case _:
            return Scalar(value)


def _tensor(tensor: TracedTensor, fill: Fill | None) -> Tensor:
    strides = None if tensor.strides == _contiguous(tensor.shape) else tensor.strides
    return Tensor(tensor.shape, tensor.dtype, _fitting(tensor, fill), strides)


def _contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(math.prod(max(size, 1) for size in shape[place + 1 :]) for place in range(len(shape)))


def _fitting(tensor: TracedTensor, fill: Fill | None) -> Fill:
    """The fill, if the dtype and the memory of the tensor allow it; the nearest that they do otherwise."""
    if tensor.dtype == "bool":
        return fill if isinstance(fill, Booleans | Given) else Booleans()
    if fill is not None and _is_expanded(tensor):
        fill = _per_element(fill)
    if isinstance(fill, PositiveDefinite) and not _is_square(tensor.shape):
        fill = None
    if tensor.dtype.startswith("complex"):
        return fill if isinstance(fill, Normal | Uniform | PositiveDefinite) else SIGNED
    if not tensor.dtype.startswith(("float", "bfloat")):
        return _whole(fill, unsigned=tensor.dtype.startswith("uint"))
    return SIGNED if fill is None or isinstance(fill, Booleans | WindowPositions) else fill


def _is_expanded(tensor: TracedTensor) -> bool:
    """Elements that are one and the same cannot differ from one another."""
    strides = tensor.strides or ()
    return any(stride == 0 and size > 1 for stride, size in zip(strides, tensor.shape, strict=False))


def _is_square(shape: tuple[int, ...]) -> bool:
    return len(shape) > 1 and shape[-1] == shape[-2]


def _per_element(fill: Fill) -> Fill | None:
    match fill:
        case SortedIntegers(low=low, high=high):
            return Integers(low, high)
        case Simplex():
            return UNIT
        case WindowPositions(plane=plane):
            return Integers(0, math.prod(plane))
        case PositiveDefinite() | Given():
            return None
        case _:
            return fill


def _whole(fill: Fill | None, *, unsigned: bool) -> Fill:
    """For integer dtypes: the whole numbers of a domain."""
    match fill:
        case Integers() | SortedIntegers() | Given() | WindowPositions():
            return fill
        case Uniform(low=low) if low > 0:
            return DIVISORS
        case Uniform(low=low) if low >= 0:
            return COUNTS
        case _:
            return COUNTS if unsigned else NUMBERS


# ---- the table


class NamedCall:
    """A recorded call whose arguments have names. What is not there is None, a size that is not there 1."""

    def __init__(self, names: tuple[str, ...], call: TracedCall) -> None:
        self._values = dict(zip(names, call.args, strict=False)) | call.kwargs

    def __getitem__(self, name: str) -> Value:
        return self._values.get(name)

    def shape(self, name: str) -> tuple[int, ...]:
        value = self[name]
        return value.shape if isinstance(value, TracedTensor) else ()

    def size(self, name: str, dimension: Value = 0) -> int:
        shape = self.shape(name)
        return shape[dimension] if isinstance(dimension, int) and -len(shape) <= dimension < len(shape) else 1

    def elements(self, name: str) -> int:
        return math.prod(self.shape(name))

    def number(self, name: str, otherwise: float) -> float:
        value = self[name]
        return float(value) if isinstance(value, int | float) and abs(value) < math.inf else otherwise

    def integer(self, name: str, otherwise: int) -> int:
        value = self[name]
        return value if isinstance(value, int) else otherwise

    def sizes(self, name: str) -> tuple[int, ...]:
        value = self[name]
        return tuple(item for item in value if isinstance(item, int)) if isinstance(value, tuple) else ()

    def tensors(self, name: str) -> tuple[TracedTensor | None, ...]:
        """The tensors of a list, with None for what is none."""
        value = self[name]
        items = value if isinstance(value, tuple) else ()
        return tuple(item if isinstance(item, TracedTensor) else None for item in items)

    def is_whole(self, name: str) -> bool:
        value = self[name]
        return isinstance(value, TracedTensor) and value.dtype.startswith(("int", "uint"))


class Fact(NamedTuple):
    """What is known about an operator."""

    arguments: tuple[str, ...]
    fills: Callable[[NamedCall], Fills]
    jitter: bool = True


FACTS: dict[str, Fact] = {}
"""By base name, every overload and the in-place twin included."""
_NOTHING = Fact((), lambda call: {})


def is_known(operator: str) -> bool:
    """Whether the table says anything about the values of the operator's arguments."""
    return _fact_of(operator) is not _NOTHING


def _fact_of(operator: str) -> Fact:
    base = operator.split(".")[1] if "." in operator else operator
    return FACTS.get(base) or FACTS.get(base.removesuffix("_")) or _NOTHING


def _fact(
    operators: str, arguments: str, *, jitter: bool = True
) -> Callable[[Callable[[NamedCall], Fills]], Callable[[NamedCall], Fills]]:
    """Enter a fact into the table for each of the operators; both are words in one string."""

    def enter(fills: Callable[[NamedCall], Fills]) -> Callable[[NamedCall], Fills]:
        for name in operators.split():
            FACTS[name] = Fact(tuple(arguments.split()), fills, jitter)
        return fills

    return enter


def _always(operators: str, arguments: str, *, jitter: bool = True, **fills: Fill) -> None:
    """A fact that no size bears on."""
    _fact(operators, arguments, jitter=jitter)(lambda call: fills)


def below(size: int) -> Integers:
    """Valid indices into a dimension. An empty one has none; torch's operator then says so, or takes no index."""
    return Integers(0, max(size, 1))


def distinct_below(size: int, length: int) -> Integers | SortedIntegers:
    """Indices of which no two in a row are equal, if there are enough."""
    return SortedIntegers(0, size) if length <= size else below(size)


# ---- indices


@_fact("embedding embedding_renorm", "weight indices")
def _embedding(call: NamedCall) -> Fills:
    return {"indices": below(call.size("weight"))}


@_fact("embedding_dense_backward embedding_backward", "grad_output indices num_weights", jitter=False)
def _embedding_dense_backward(call: NamedCall) -> Fills:
    """torch passes over an index out of range on the CPU; on a GPU it is written to."""
    return {"indices": below(call.integer("num_weights", 1))}


@_fact(
    "_embedding_bag _embedding_bag_forward_only embedding_bag",
    "weight indices offsets scale_grad_by_freq mode sparse per_sample_weights include_last_offset padding_idx",
    jitter=False,
)
def _embedding_bag(call: NamedCall) -> Fills:
    """Offsets begin with 0 and never fall; with ``include_last_offset`` the last is the number of indices."""
    total, bags = call.elements("indices"), call.elements("offsets")
    closed = call["include_last_offset"] is True
    return {"indices": below(call.size("weight")), "offsets": Given(tuple(_offsets(total, bags, closed)))}


def _offsets(total: int, count: int, closed: bool) -> Iterator[int]:
    """Where bags begin: the first are empty or small, the last large."""
    steps = max(1, count - 1 if closed else count)
    return (int(total * (place / steps) ** 1.5) for place in range(count))


@_fact(
    "_embedding_bag_per_sample_weights_backward",
    "grad weight indices offsets offset2bag mode padding_idx",
    jitter=False,
)
def _embedding_bag_per_sample_weights_backward(call: NamedCall) -> Fills:
    """Which bag each index is in is said by ``offset2bag`` alone; the offsets are only looked at without it."""
    offsets = Given(tuple(_offsets(call.elements("indices"), call.elements("offsets"), closed=False)))
    return {"indices": below(call.size("weight")), "offsets": offsets, "offset2bag": below(call.size("grad"))}


@_fact("_grouped_mm", "self mat2 offs bias out_dtype", jitter=False)
def _grouped_mm(call: NamedCall) -> Fills:
    """Ends of groups of rows; of the summed dimension if both arguments are matrices.

    They never fall, the last is the size, and the steps are aligned as CUDA's kernels need. Small groups come first,
    large ones last.
    """
    groups = call.elements("offs")
    matrices, stacked = len(call.shape("self")) == 2, len(call.shape("mat2")) == 3
    total = call.size("mat2", -1) if not matrices else call.size("self", 0 if stacked else -1)
    ends = [int(total * (place / groups) ** 1.5) // 16 * 16 for place in range(1, groups)]
    return {"offs": Given((*ends, total))}


@_fact("gather scatter_add scatter_reduce take_along_dim", "self dim index src")
def _gather(call: NamedCall) -> Fills:
    """Sums and reductions are defined for an index that stands twice."""
    return {"index": below(call.size("self", call["dim"]))}


@_fact("scatter", "self dim index src")
def _scatter(call: NamedCall) -> Fills:
    """Of two writes to one place either may win, so indices are distinct along the dimension where a recipe can do it.

    It can along the last dimension. Along another one, rows of one index cannot meet; longer ones are left to chance.
    No recipe makes columns distinct, and valid indices that sometimes meet check more than none.
    """
    dim, index = call["dim"], call.shape("index")
    size = call.size("self", dim)
    is_last = index and dim in (-1, len(index) - 1)
    return {"index": distinct_below(size, index[-1]) if is_last else below(size)}


@_fact("index_select index_fill", "self dim index")
@_fact("index_add", "self dim index source")
@_fact("index_reduce", "self dim index source reduce include_self")
def _index_select(call: NamedCall) -> Fills:
    return {"index": below(call.size("self", call["dim"]))}


@_fact("index_copy", "self dim index source")
def _index_copy(call: NamedCall) -> Fills:
    """Of two copies to one place either may win."""
    return {"index": distinct_below(call.size("self", call["dim"]), call.elements("index"))}


@_fact("index _unsafe_index", "self indices")
def _index(call: NamedCall) -> Fills:
    return {"indices": tuple(below(size) for size in _indexed_sizes(call))}


@_fact("index_put _index_put_impl _unsafe_index_put", "self indices values accumulate")
def _index_put(call: NamedCall) -> Fills:
    """Of two writes to one place either may win, unless they are added: then one of the indices never repeats.

    That needs an index of one dimension that alone says which of the values is meant; where none has room, indices
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
    """For each index the size that it indexes: a mask takes as many dimensions as it has, None and numbers one."""
    sizes: list[int] = []
    dimension = 0
    for tensor in call.tensors("indices"):
        sizes.append(call.size("self", dimension))
        dimension += len(tensor.shape) if tensor is not None and tensor.dtype == "bool" else 1
    return tuple(sizes)


@_fact("take", "self index")
@_fact("put", "self index source accumulate")
def _take(call: NamedCall) -> Fills:
    size = call.elements("self")
    if call["source"] is not None and call["accumulate"] is not True and len(call.shape("index")) == 1:
        return {"index": distinct_below(size, call.elements("index"))}
    return {"index": below(size)}


@_fact("value_selecting_reduction_backward", "grad dim indices sizes")
def _value_selecting_reduction_backward(call: NamedCall) -> Fills:
    sizes, dim = call.sizes("sizes"), call.integer("dim", 0)
    return {"indices": below(sizes[dim] if -len(sizes) <= dim < len(sizes) else 1)}


@_fact("one_hot", "self num_classes")
def _one_hot(call: NamedCall) -> Fills:
    classes = call.integer("num_classes", -1)
    return {"self": below(classes if classes > 0 else 16)}


@_fact("_sparse_coo_tensor_with_dims_and_tensors", "sparse_dim dense_dim size indices values", jitter=False)
@_fact("sparse_coo_tensor _sparse_coo_tensor_unsafe", "indices values size", jitter=False)
def _sparse(call: NamedCall) -> Fills:
    """One fill serves every row of the indices: the smallest sparse size bounds all."""
    sparse_dims = call.size("indices")
    return {"indices": below(min(call.sizes("size")[:sparse_dims], default=1))}


_always("bincount", "self weights minlength", self=COUNTS)
_always("repeat_interleave", "self repeats", self=Integers(0, 5), repeats=Integers(0, 5))


# ---- memory


@_fact("as_strided as_strided_scatter as_strided_copy", "self size stride", jitter=False)
def _as_strided(call: NamedCall) -> Fills:
    """Speaks of the storage, not of the view: on other memory it is another call."""
    return {}


# ---- pooling


_POOL_BACKWARD = "grad_output self kernel_size stride padding dilation ceil_mode indices"


@_fact("max_pool2d_with_indices_backward", _POOL_BACKWARD, jitter=False)
def _max_pool2d_backward(call: NamedCall) -> Fills:
    """Each index lies in the window of its element: kernels may look only there. torch checks none on the CPU."""
    plane = _pair((0, *call.shape("self"))[-2:], 1)
    kernel = _pair(call.sizes("kernel_size"), 1)
    stride = _pair(call.sizes("stride"), 0)
    windows = WindowPositions(
        plane=plane,
        kernel=kernel,
        stride=stride if all(stride) else kernel,
        padding=_pair(call.sizes("padding"), 0),
        dilation=_pair(call.sizes("dilation"), 1),
    )
    return {"indices": windows if len(call.shape("indices")) > 1 else below(math.prod(plane))}


def _pair(sizes: tuple[int, ...], otherwise: int) -> tuple[int, int]:
    """One number counts for both directions."""
    first, *rest = sizes or (otherwise,)
    return first, rest[0] if rest else first


@_fact("adaptive_max_pool2d_backward fractional_max_pool2d_backward", "grad_output self indices", jitter=False)
def _other_max_pool2d_backward(call: NamedCall) -> Fills:
    """These add to the place that an index names, wherever it lies."""
    return {"indices": below(math.prod(call.shape("self")[-2:]))}


@_fact("max_pool3d_with_indices_backward", _POOL_BACKWARD, jitter=False)
@_fact("adaptive_max_pool3d_backward fractional_max_pool3d_backward", "grad_output self indices", jitter=False)
def _max_pool3d_backward(call: NamedCall) -> Fills:
    return {"indices": below(math.prod(call.shape("self")[-3:]))}


@_fact("max_unpool2d max_unpool3d", "self indices output_size", jitter=False)
def _max_unpool(call: NamedCall) -> Fills:
    """Where two indices meet, either value may win; no recipe makes a whole plane of them distinct."""
    return {"indices": below(math.prod(call.sizes("output_size")))}


# ---- losses


@_fact("nll_loss_forward nll_loss2d_forward nll_loss nll_loss2d nll_loss_nd", "self target weight")
@_fact("cross_entropy_loss", "self target weight")
@_fact("multi_margin_loss", "self target p margin weight")
def _class_target(call: NamedCall) -> Fills:
    """Targets are classes, or (cross entropy) shares of classes. A lone sample has its classes first."""
    return {"target": _classes(call), "weight": POSITIVE}


@_fact("nll_loss_backward nll_loss2d_backward", "grad_output self target weight reduction ignore_index total_weight")
def _nll_loss_backward(call: NamedCall) -> Fills:
    return {"target": _classes(call), "weight": POSITIVE, "total_weight": POSITIVE}


def _classes(call: NamedCall) -> Fill:
    classes = call.size("self", 1 if len(call.shape("self")) > 1 else 0)
    return below(classes) if call.is_whole("target") else UNIT


_always("binary_cross_entropy", "self target weight", self=INSIDE_UNIT, target=UNIT, weight=POSITIVE)
_always(
    "binary_cross_entropy_backward", "grad_output self target weight", self=INSIDE_UNIT, target=UNIT, weight=POSITIVE
)
_always(
    "binary_cross_entropy_with_logits",
    "self target weight pos_weight",
    target=UNIT,
    weight=POSITIVE,
    pos_weight=POSITIVE,
)
_always("kl_div", "self target", self=Uniform(-8.0, 0.0), target=UNIT)


# ---- statistics that an earlier call computed


_always(
    "native_batch_norm batch_norm _native_batch_norm_legit _native_batch_norm_legit_no_training cudnn_batch_norm "
    "miopen_batch_norm _batch_norm_with_update _batch_norm_no_update",
    "input weight bias running_mean running_var",
    running_var=POSITIVE,
)
_always(
    "native_batch_norm_backward",
    "grad_out input weight running_mean running_var save_mean save_invstd",
    jitter=False,  # without a row torch divides by zero on CUDA, which ends the process
    running_var=POSITIVE,
    save_invstd=POSITIVE,
)
_always(
    "cudnn_batch_norm_backward miopen_batch_norm_backward",
    "input grad_output weight running_mean running_var save_mean save_var",
    running_var=POSITIVE,
    save_var=POSITIVE,
)
_always(
    "batch_norm_backward",
    "grad_out input weight running_mean running_var save_mean save_var",
    running_var=POSITIVE,
    save_var=POSITIVE,
)
_always("native_layer_norm_backward", "grad_out input normalized_shape mean rstd", rstd=POSITIVE)
_always("native_group_norm_backward", "grad_out input mean rstd", rstd=POSITIVE)
_always("_fused_rms_norm_backward", "grad_out input normalized_shape rstd weight", rstd=POSITIVE)
_always("sigmoid_backward", "grad_output output", output=UNIT)
_always("tanh_backward", "grad_output output", output=BALANCED)
_always("_log_softmax_backward_data", "grad_output output dim input_dtype", output=Uniform(-8.0, 0.0))


@_fact("_softmax_backward_data", "grad_output output dim input_dtype")
def _softmax_backward(call: NamedCall) -> Fills:
    """Rows of probabilities, where rows lie along the last dimension."""
    dimensions = len(call.shape("output"))
    return {"output": Simplex() if call["dim"] in (-1, dimensions - 1) else UNIT}


_ATTENTION = "query key value"


@_fact(
    "_scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_flash_attention "
    "_scaled_dot_product_efficient_attention",
    _ATTENTION,
    jitter=False,
)
def _attention(call: NamedCall) -> Fills:
    """Rows must be dense, and the heads of queries a multiple of those of keys.

    torch ensures both before it makes these calls, and does not check them inside. Other sizes and layouts give
    garbage, or end the process.
    """
    return {}


@_fact(
    "_scaled_dot_product_flash_attention_for_cpu_backward",
    f"grad_out {_ATTENTION} out logsumexp dropout_p is_causal attn_mask scale",
    jitter=False,
)
@_fact(
    "_scaled_dot_product_flash_attention_backward",
    f"grad_out {_ATTENTION} out logsumexp cum_seq_q cum_seq_k max_q max_k dropout_p is_causal philox_seed "
    "philox_offset",
    jitter=False,
)
@_fact(
    "_scaled_dot_product_efficient_attention_backward",
    f"grad_out_ {_ATTENTION} attn_bias out logsumexp philox_seed philox_offset dropout_p grad_input_mask is_causal",
    jitter=False,
)
def _attention_backward(call: NamedCall) -> Fills:
    """The logarithms of sums of exponentials lie above the scores, or the weights that follow would be no weights."""
    width = call.size("query", -1)
    spread = max(1.0, abs(call.number("scale", 1 / math.sqrt(max(width, 1)))) * math.sqrt(width))
    return {"logsumexp": Uniform(6.0 * spread, 6.0 * spread + 4.0), "philox_seed": COUNTS, "philox_offset": COUNTS}


# ---- domains


_always("log log2 log10 sqrt rsqrt lgamma digamma mvlgamma polygamma special_entr", "self", self=POSITIVE)
_always("log1p", "self", self=Uniform(-0.875, 8.0))
_always("asin acos atanh arcsin arccos arctanh", "self", self=Uniform(-0.984375, 0.984375))
_always("erfinv special_ndtri", "self", self=Uniform(-0.984375, 0.984375))
_always("acosh arccosh", "self", self=Uniform(1.015625, 8.0))
_always("logit", "self eps", self=INSIDE_UNIT)
_always("xlogy special_xlogy special_xlog1py", "self other", other=POSITIVE)
_always("prod cumprod", "self dim", self=Uniform(0.75, 1.25))
_always("lerp", "self end weight", weight=UNIT)
_always("div divide true_divide floor_divide remainder fmod", "self other", other=POSITIVE)
_always("addcdiv", "self tensor1 tensor2", tensor2=POSITIVE)
_always("grid_sampler_2d grid_sampler_3d grid_sampler", "input grid", grid=BALANCED)
_always("grid_sampler_2d_backward grid_sampler_3d_backward", "grad_output input grid", grid=BALANCED)
_always("_foreach_sqrt _foreach_log _foreach_rsqrt", "self", self=POSITIVE)
_always("_foreach_div", "self other", other=POSITIVE)
_always("_foreach_addcdiv", "self tensor1 tensor2", tensor2=POSITIVE)


@_fact("pow float_power", "self exponent")
def _power(call: NamedCall) -> Fills:
    """Whole exponents take every base; any other wants positive ones. Integers to a negative power are an error."""
    exponent = call["exponent"]
    if isinstance(exponent, int | float):
        plain = float(exponent).is_integer() and exponent >= 0
        return {"self": (Integers(-9, 10) if call.is_whole("self") else SIGNED) if plain else POSITIVE}
    bases: Fill = Integers(-9, 10) if call.is_whole("self") else POSITIVE
    return {"self": bases, "exponent": Integers(0, 5) if call.is_whole("exponent") else BALANCED}


@_fact("bitwise_left_shift bitwise_right_shift __lshift__ __rshift__ __ilshift__ __irshift__", "self other")
def _shift(call: NamedCall) -> Fills:
    """Shifting by the width of the dtype or more is not defined."""
    value = call["self"]
    digits = re.search(r"\d+", value.dtype) if isinstance(value, TracedTensor) else None
    return {"other": Integers(0, int(digits.group()) if digits else 8)}


# ---- probabilities and matrices


_always("bernoulli", "self p", self=UNIT, p=UNIT)
_always("multinomial", "self num_samples", self=Uniform(0.125, 1.0))
_always("poisson", "self", self=POSITIVE)
_always("normal", "mean std", std=POSITIVE)
_always(
    "cholesky linalg_cholesky_ex linalg_cholesky cholesky_inverse linalg_inv_ex linalg_inv inverse _linalg_det "
    "_linalg_slogdet _linalg_eigh linalg_lu_factor_ex linalg_solve_triangular _linalg_solve_ex linalg_solve",
    "A B",
    A=PositiveDefinite(),
    self=PositiveDefinite(),
)
_always("triangular_solve cholesky_solve", "self A", A=PositiveDefinite(), input2=PositiveDefinite())


# ---- answers that are nearly always the same


_LARGEST_FLOAT16 = 65504.0
_WHOLE_UP_TO = {"int64": 1 << 40, "int32": 1 << 30, "float64": 1 << 40, "float32": 1 << 23}
"""Whole numbers that a dtype tells from their neighbours, with room around them; others at least up to 1024."""


@_fact("eq ne lt le gt ge", "self other")
def _compare(call: NamedCall) -> Fills:
    """With a number: some values below it, some above, some equal if it is whole.

    Two tensors that are alike are made equal in places when their values are drawn; others by being few whole numbers.
    """
    one, other = call["self"], call["other"]
    if isinstance(one, TracedTensor) and isinstance(other, TracedTensor):
        alike = (one.shape, one.dtype) == (other.shape, other.dtype)
        return {} if alike else {"self": Integers(-3, 4), "other": Integers(-3, 4)}
    if isinstance(other, bool) or not isinstance(other, int | float) or not math.isfinite(other):
        return {}
    if float(other).is_integer() and abs(other) < _WHOLE_UP_TO.get(getattr(one, "dtype", ""), 1024):
        return {"self": Integers(int(other) - 3, int(other) + 4)}
    return {"self": Normal(float(other), max(1.0, abs(float(other))))}


@_fact("clamp clip", "self min max")
@_fact("hardtanh", "self min max")
@_fact("hardtanh_backward", "grad_output self min max")
def _clamp(call: NamedCall) -> Fills:
    """Values on both sides of both bounds."""
    low, high = call.number("min", -1.0), call.number("max", 1.0)
    if low >= high:
        return {}
    if max(abs(low), abs(high)) > 1024:  # what a model takes care of that nothing becomes infinite
        reach = min(1.25 * max(abs(low), abs(high)), _LARGEST_FLOAT16)
        return {} if call.is_whole("self") or math.isinf(low - high) else {"self": Uniform(-reach, reach)}
    width = math.ceil(high - low)
    if call.is_whole("self"):
        return {"self": Integers(int(low) - width, int(high) + width + 1)}
    return {"self": Normal((low + high) / 2, high - low)}


_always("hardsigmoid hardswish relu6", "self", self=Normal(0.0, 3.0))
_always("hardsigmoid_backward hardswish_backward", "grad_output self", self=Normal(0.0, 3.0))


@_fact("bucketize", "self boundaries")
def _bucketize(call: NamedCall) -> Fills:
    return _sorted_and_sought(call, "boundaries", "self")


@_fact("searchsorted", "sorted_sequence self")
def _searchsorted(call: NamedCall) -> Fills:
    return _sorted_and_sought(call, "sorted_sequence", "self")


def _sorted_and_sought(call: NamedCall, ordered: str, sought: str) -> Fills:
    """What is looked for lies between, below and above what is sorted."""
    reach = 4 * max(1, call.size(ordered, -1))
    among: Fill = Integers(-2, reach + 2) if call.is_whole(sought) else Uniform(-2.0, reach + 2.0)
    return {ordered: SortedIntegers(0, reach), sought: among}
