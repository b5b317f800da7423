"""Sorts operators into categories by name, where torch's schemas and tags do not tell enough.

There is one table, :data:`CLASSES`. It maps each category (class) to a rule for names, and
:class:`torchstone.operators.Traits` has an attribute for each. What torch itself tells (pointwise, random, views, what
is written) is not here. The module does not import torch, so that suites can use it before a device is needed.

``tests/operators`` compares the table with the operators of the suite ``opinfo``: each of them is in a class or listed
there as plain.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple


class Rule(NamedTuple):
    """Which operator names belong to a class. One match is enough, unless a word of ``without`` excludes the name."""

    names: frozenset[str] = frozenset()
    """Whole base names."""
    bare_names: frozenset[str] = frozenset()
    """Whole base names, compared without the underscores of private, unsafe and in-place operators."""
    overloads: frozenset[str] = frozenset()
    """Names with their overload, ``max.default``."""
    words: frozenset[str] = frozenset()
    """Words between underscores."""
    begins: tuple[str, ...] = ()
    """Prefixes of base names."""
    parts: tuple[str, ...] = ()
    """Substrings of base names."""
    without: frozenset[str] = frozenset()
    """Words between underscores that exclude a name."""

    def fits(self, operator: str) -> bool:
        """Whether the rule matches an operator, given by its full name: ``aten.add.Tensor``."""
        base = base_name(operator)
        words = base.split("_")
        return self.without.isdisjoint(words) and (
            base in self.names
            or _bare(base) in self.bare_names
            or operator.partition(".")[2] in self.overloads
            or not self.words.isdisjoint(words)
            or base.startswith(self.begins)
            or any(part in base for part in self.parts)
        )


def _bare(base: str) -> str:
    return base.removesuffix("_").removeprefix("_unsafe_").removeprefix("_")


def base_name(operator: str) -> str:
    """An operator's name without namespace and overload: ``add`` for ``aten.add.Tensor``."""
    return operator.split(".")[1]


@lru_cache(maxsize=4096)
def classes_of(operator: str) -> frozenset[str]:
    """Names of all classes of :data:`CLASSES` that contain the operator with this full name (``aten.add.Tensor``)."""
    return frozenset(name for name, rule in CLASSES.items() if rule.fits(operator))


def is_of(operator: str, name: str) -> bool:
    """Whether the operator with this full name is in the class ``name``, a key of :data:`CLASSES`."""
    return name in classes_of(operator)


def _set(text: str) -> frozenset[str]:
    return frozenset(text.split())


CLASSES: dict[str, Rule] = {
    # What an operator computes.
    "factorizes": Rule(words=_set(
        "cholesky det eig eigh eigvals eigvalsh geqrf householder inv inverse ldl lstsq lu matrix orgqr ormqr pinv "
        "pinverse qr slogdet solve svd svdvals"
    )),
    "divides": Rule(parts=("div", "remainder", "fmod", "gcd", "lcm")),
    "reduces": Rule(names=_set(
        "sum mean prod amax amin max min logsumexp var std norm linalg_vector_norm cumsum _softmax softmax "
        "_log_softmax log_softmax native_layer_norm layer_norm native_group_norm native_batch_norm"
    )),
    "reduces_dimensions": Rule(names=_set("sum mean amax amin prod logsumexp max min")),
    "contracts": Rule(names=_set(
        "mm addmm bmm baddbmm matmul linear mv addmv dot convolution einsum"
    )),
    "measures_deviation": Rule(parts=("std", "var")),
    "seeks_extremes": Rule(names=_set("amax amin aminmax argmax argmin cummax cummin max min sort topk")),
    "adds": Rule(words=_set("add")),
    "is_attention": Rule(parts=("scaled_dot_product",)),
    "attends": Rule(parts=("attention",)),
    "is_fused_attention": Rule(begins=("_scaled_dot_product",), without=_set("backward cpu")),
    "makes_several_passes": Rule(
        words=_set(
            "attention rnn lstm gru cdist pdist bilinear trilinear ctc fft mm bmm addmm addbmm baddbmm matmul einsum "
            "tensordot sort argsort msort unique mode"
        ),
        parts=("conv",),
        without=_set("fftshift ifftshift fftfreq rfftfreq"),
    ),
    # What an operator does with bits and memory.
    "copies": Rule(names=_set("clone copy copy_ _to_copy contiguous fill fill_ zero zero_")),
    "may_copy": Rule(names=_set(
        "_to_copy _unsafe_view lift_fresh_copy lift_fresh clone contiguous alias_copy view_copy detach_copy copy copy_ "
        "reshape _reshape_copy unsqueeze_copy squeeze_copy"
    )),
    "moves_in_models": Rule(names=_set("clone _to_copy copy_ contiguous _unsafe_view detach")),
    "hands_on": Rule(names=_set("detach _has_compatible_shallow_copy_type is_same_size alias lift_fresh")),
    "sets_a_bit": Rule(names=_set("_conj _neg_view")),
    "lays_out": Rule(names=_set("contiguous")),
    "is_about_memory": Rule(begins=("as_strided", "set_", "resize", "_resize", "sparse_", "_sparse")),
    "takes_strides": Rule(parts=("as_strided",)),
    "leaves_undefined": Rule(names=_set(
        "empty empty_like empty_strided empty_permuted new_empty new_empty_strided"
    )),
    "asks_for_memory": Rule(begins=("empty", "new_empty")),
    "is_constant": Rule(overloads=_set(
        "fill_.Scalar fill.Scalar zero_.default zeros_like.default ones_like.default full_like.default "
        "new_zeros.default new_ones.default new_full.default empty_like.default new_empty.default "
        "new_empty_strided.default empty_strided.default"
    )),
    "overwrites": Rule(names=_set(
        "copy_ fill_ zero_ index_copy_ index_put_ put_ scatter_ bernoulli_ exponential_ normal_ random_ uniform_"
    )),
    "updates_statistics": Rule(names=_set("native_batch_norm batch_norm cudnn_batch_norm miopen_batch_norm")),
    # Indices.
    "counts_back": Rule(bare_names=_set("index index_put take put")),
    "reads_by_index": Rule(names=_set(
        "embedding embedding_bag gather index _unsafe_index index_select take take_along_dim"
    )),
    "writes_by_index": Rule(names=_set(
        "index_add_ index_copy_ index_put_ index_reduce_ put_ scatter_ scatter_add_ scatter_reduce_"
    )),
    "last_write_wins": Rule(names=_set(
        "scatter scatter_ index_copy index_copy_ index_put index_put_ put put_"
    )),
    "trusts_indices": Rule(names=_set(
        "max_pool2d_with_indices_backward max_pool3d_with_indices_backward segment_reduce _segment_reduce_backward "
        "fractional_max_pool2d_backward fractional_max_pool3d_backward adaptive_max_pool2d_backward "
        "adaptive_max_pool3d_backward"
    )),
    "leaves_ties_open": Rule(names=_set(
        "sort argsort msort topk kthvalue median nanmedian mode cummax cummin"
    )),
    "returns_several_indices": Rule(names=_set("topk sort argsort")),
    "is_running_extreme": Rule(names=_set("cummax cummin")),
    "promises_the_first": Rule(names=_set("argmax argmin max min")),
    "pools_a_plane": Rule(parts=("max_pool2d",)),
    "pools_a_volume": Rule(parts=("max_pool3d",)),
    # Values that an operator treats specially.
    "tells_zero_signs": Rule(names=_set("signbit copysign")),
    "about_non_finite": Rule(
        names=_set("isinf isfinite isposinf isneginf logaddexp logaddexp2"), parts=("nan",)
    ),
    "classifies": Rule(names=_set("isnan isinf isfinite isposinf isneginf")),
    "compares": Rule(names=_set("eq ne lt le gt ge isclose")),
    "compares_whole": Rule(names=_set("equal allclose")),
    "reduces_flags": Rule(names=_set("any all")),
    "returns_flags": Rule(names=_set(
        "eq ne lt le gt ge isnan isinf logical_not logical_and logical_or logical_xor bitwise_not bitwise_and "
        "bitwise_or"
    )),
    "finds_one_extreme": Rule(overloads=_set("max.default min.default")),
    "decides_about_all_flags": Rule(overloads=_set("any.default all.default")),
    "for_positive": Rule(parts=("gamma", "zeta", "special_", "bessel")),
    "keeps_its_range": Rule(parts=("backward", "fractional", "quant", "polynomial", "rnn", "fused")),
    "is_backward": Rule(parts=("backward",)),
    "steps_by_value": Rule(
        parts=("polynomial", "bincount", "one_hot", "repeat_interleave", "embedding", "segment", "unsafe")
    ),
    "has_float_degree": Rule(parts=("polynomial",)),
    "steps_by_exponent": Rule(parts=("pow", "shift")),
    "is_masked_in_use": Rule(bare_names=_set(
        "amax aminmax argmax cummax log_softmax logcumsumexp logsumexp max safe_softmax softmax topk"
    )),
    "undecided_non_finite": Rule(bare_names=_set("remainder softshrink")),
    # Random numbers.
    "draws_flags": Rule(begins=("bernoulli",)),
    "draws_each_once": Rule(names=_set("randperm multinomial")),
    "draws_unit_interval": Rule(names=_set("rand rand_like")),
    "draws_evenly": Rule(names=_set("rand rand_like uniform uniform_")),
    "has_heavy_tails": Rule(names=_set("cauchy cauchy_ log_normal log_normal_")),
    # Shapes.
    "is_internal": Rule(begins=("_", "native_", "cudnn_", "miopen_", "mkldnn_", "mkl_", "slow_", "thnn_")),
    "does_items_apart": Rule(begins=("_foreach_",)),
    "takes_scales": Rule(begins=("upsample_", "_upsample_")),
    "fails_on_variants": Rule(names=_set(
        "_scaled_dot_product_flash_attention_for_cpu multi_margin_loss rrelu_with_noise embedding_renorm_ "
        "native_batch_norm_backward"
    )),
    # Where torch has it.
    "is_cpu_only": Rule(parts=("mkldnn", "_for_cpu")),
    "is_cuda_only": Rule(
        parts=("cudnn", "_cuda"),
        names=_set(
            "_scaled_dot_product_flash_attention _scaled_dot_product_flash_attention_backward "
            "_scaled_dot_product_efficient_attention _scaled_dot_product_efficient_attention_backward"
        ),
    ),
}  # fmt: skip
"""Name of the class -> its rule. The attributes of :class:`torchstone.operators.Traits` say what each is for."""
