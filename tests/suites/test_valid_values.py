"""What values a recorded call gets: rules for single operators, and laws that hold for whatever was recorded."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchstone.schema import (
    Booleans,
    DType,
    Fill,
    Given,
    Integers,
    JudgedDevice,
    Layout,
    NonFinite,
    Normal,
    PositiveDefinite,
    Scalar,
    Simplex,
    SortedIntegers,
    Tensor,
    Uniform,
    WindowPositions,
    decode,
    encode,
    tensors_of,
)
from torchstone.schema import Case as CaseOf
from torchstone.suites.recorded_call_text import SHORT_DTYPES, TracedCall, TracedTensor, parse_call
from torchstone.suites.valid_values import RULES, ValuedCall, fills_for
from torchstone.suites.valid_values.rule_table import COUNTS, DIVISORS, NUMBERS, POSITIVE, SIGNED, UNIT

N = SIGNED


def valued(operator: str, text: str) -> ValuedCall:
    return fills_for(f"aten.{operator}", parse_call(text))


def fills(operator: str, text: str) -> list[Fill]:
    """Of every tensor of the call."""
    args, kwargs, _ = valued(operator, text)
    return [tensor.fill for tensor in tensors_of(CaseOf("x", "aten.x.y", args, kwargs))]


@pytest.mark.parametrize(
    ("operator", "text", "expected"),
    [
        ("embedding.default", "((T([50, 4], f16), T([3], i64)), {})", [N, Integers(0, 50)]),
        ("embedding.default", "((), {'weight': T([50, 4], f16), 'indices': T([3], i64)})", [N, Integers(0, 50)]),
        (
            "embedding_dense_backward.default",
            "((T([3, 4], f16), T([3], i64), 50, -1, False), {})",
            [N, Integers(0, 50)],
        ),
        (
            "_embedding_bag.default",
            "((T([9, 2], f16), T([4], i64), T([2], i64)), {})",
            [N, Integers(0, 9), Given((0, 1))],
        ),
        ("gather.default", "((T([5, 7], f16), -1, T([5, 2], i64)), {})", [N, Integers(0, 7)]),
        ("gather.default", "((T([], f16), 0, T([], i64)), {})", [N, Integers(0, 1)]),
        ("scatter_add_.default", "((T([5, 7], f16), 0, T([9, 7], i64), T([9, 7], f16)), {})", [N, Integers(0, 5), N]),
        ("scatter.src", "((T([5, 7], f16), 1, T([5, 3], i64), T([5, 3], f16)), {})", [N, SortedIntegers(0, 7), N]),
        ("scatter.src", "((T([5, 7], f16), 0, T([1, 7], i64), T([1, 7], f16)), {})", [N, Integers(0, 5), N]),
        ("index_select.default", "((T([5, 7], f16), 1, T([40], i64)), {})", [N, Integers(0, 7)]),
        ("index_add_.default", "((T([5], f16), 0, T([9], i64), T([9], f16)), {})", [N, Integers(0, 5), N]),
        ("index_copy.default", "((T([5], f16), 0, T([3], i64), T([3], f16)), {})", [N, SortedIntegers(0, 5), N]),
        ("index_copy.default", "((T([5], f16), 0, T([9], i64), T([9], f16)), {})", [N, Integers(0, 5), N]),
        ("index.Tensor", "((T([5, 7], f16), [None, T([2], i64)]), {})", [N, Integers(0, 7)]),
        ("index.Tensor", "((T([5, 7, 9], f16), [T([5, 7], b8), T([3], i64)]), {})", [N, Booleans(), Integers(0, 9)]),
        ("index_put_.default", "((T([5, 7], f16), [T([3], i64)], T([3, 7], f16)), {})", [N, SortedIntegers(0, 5), N]),
        ("index_put_.default", "((T([5, 7], f16), [T([3], i64)], T([3, 7], f16), True), {})", [N, Integers(0, 5), N]),
        (
            "index_put_.default",
            "((T([2, 7], f16), [T([6], i64), T([6], i64)], T([], f16)), {})",
            [N, Integers(0, 2), SortedIntegers(0, 7), N],
        ),
        ("take.default", "((T([5, 7], f16), T([3], i64)), {})", [N, Integers(0, 35)]),
        ("one_hot.default", "((T([5], i64), 12), {})", [Integers(0, 12)]),
        ("bincount.default", "((T([5], i64),), {})", [COUNTS]),
        ("nll_loss_forward.default", "((T([8, 10], f16), T([8], i64), None, 1, -100), {})", [N, Integers(0, 10)]),
        (
            "nll_loss_backward.default",
            "((T([], f16), T([8, 10], f16), T([8], i64), None, 1, -100, T([], f16)), {})",
            [N, N, Integers(0, 10), POSITIVE],
        ),
        ("cross_entropy_loss.default", "((T([8, 10], f16), T([8, 10], f16)), {})", [N, UNIT]),
        (
            "max_pool2d_with_indices_backward.default",
            "((T([8, 5, 5], f16), T([8, 11, 12], f16), [3, 3], [], [1], [1, 1], False, T([8, 5, 5], i64)), {})",
            [N, N, WindowPositions((11, 12), (3, 3), (3, 3), (1, 1), (1, 1))],
        ),
        (
            "native_batch_norm.default",
            "((T([2, 3], f16), None, None, T([3], f16), T([3], f16), False, 0.1, 1e-05), {})",
            [N, N, POSITIVE],
        ),
        (
            "native_group_norm_backward.default",
            "((T([2], f16), T([2], f16), T([2], f16), T([2], f16)), {})",
            [N, N, N, POSITIVE],
        ),
        ("_softmax_backward_data.default", "((T([2, 3], f16), T([2, 3], f16), -1, f16), {})", [N, Simplex()]),
        ("_softmax_backward_data.default", "((T([2, 3], f16), T([2, 3], f16, stride=(0, 1)), 1, f16), {})", [N, UNIT]),
        ("log2.default", "((T([], f32),), {})", [POSITIVE]),
        ("sqrt_.default", "((T([3], f32),), {})", [POSITIVE]),
        ("sqrt.default", "((T([3], i64),), {})", [DIVISORS]),
        ("floor_divide.default", "((T([3], i64), T([3], i64)), {})", [NUMBERS, DIVISORS]),
        ("pow.Tensor_Scalar", "((T([3], f16), 2.0), {})", [N]),
        ("pow.Tensor_Scalar", "((T([3], f16), 0.5), {})", [POSITIVE]),
        ("pow.Tensor_Scalar", "((T([3], f16), -1), {})", [POSITIVE]),
        ("bitwise_left_shift.Tensor", "((T([3], i32), T([3], i32)), {})", [NUMBERS, Integers(0, 32)]),
        ("le.Scalar", "((T([3], f16), 800), {})", [Integers(797, 804)]),
        ("eq.Tensor", "((T([5, 4], f32), T([4], f16)), {})", [Integers(-3, 4), Integers(-3, 4)]),
        ("eq.Tensor", "((T([4], f16), T([4], f16)), {})", [N, N]),
        ("gt.Scalar", "((T([3], f16), 0.05), {})", [Normal(0.05, 1.0)]),
        ("clamp.default", "((T([3], i64), 2, 5), {})", [Integers(-1, 9)]),
        ("hardtanh_.default", "((T([3], f16), 0.0, 6.0), {})", [Normal(3.0, 6.0)]),
        ("bernoulli.default", "((T([3], f32),), {})", [UNIT]),
        ("linalg_cholesky_ex.default", "((T([2, 3, 3], f32),), {})", [PositiveDefinite()]),
        ("linalg_cholesky_ex.default", "((T([3, 2], f32),), {})", [N]),
        ("grid_sampler_2d.default", "((T([1, 2, 3, 3], f16), T([1, 3, 3, 2], f16)), {})", [N, Uniform(-1.0, 1.0)]),
        ("add.Tensor", "((T([3], i64), T([3], u8)), {})", [NUMBERS, COUNTS]),
        ("where.self", "((T([3], b8), T([3], c64), T([3], f16)), {})", [Booleans(), N, N]),
    ],
)  # fmt: skip
def test_values_fit_the_operator(operator: str, text: str, expected: list[Fill]) -> None:
    assert fills(operator, text) == expected


def test_offsets_of_bags_begin_with_zero_and_end_where_asked() -> None:
    text = "((T([9, 2], f16), T([40], i64), T([6], i64), False, 0, False, None, True), {})"
    args, _, jitter = valued("_embedding_bag.default", text)
    assert isinstance(args[2], Tensor)
    assert isinstance(args[2].fill, Given)
    values = args[2].fill.values
    assert (values[0], values[-1]) == (0, 40)
    assert list(values) == sorted(values)
    assert not jitter


def test_arguments_that_are_no_tensors_stay_what_they_are() -> None:
    args, kwargs, jitter = valued(
        "to.x", "((inf, nan, 'mean', 'cuda:1', 'cpu', True, None), {'dtype': f16, 'layout': torch.strided})"
    )
    device = JudgedDevice()
    assert args == (NonFinite("inf"), NonFinite("nan"), Scalar("mean"), device, device, Scalar(True), Scalar(None))
    assert kwargs == {"dtype": DType("float16"), "layout": Layout("strided")}
    assert jitter


def test_strides_that_say_nothing_are_left_out() -> None:
    args, _, _ = valued("neg.default", "((T([2, 3], f16, stride=(3, 1)), T([2, 3], f16, stride=(1, 2))), {})")
    assert [tensor.strides for tensor in args if isinstance(tensor, Tensor)] == [None, (1, 2)]


@pytest.mark.parametrize(
    ("operator", "text"),
    [("clamp.default", "((T([3], f16), 2, 5), {})"), ("le.Scalar", "((T([3], f16), 5000), {})")],
)
def test_whole_numbers_of_a_call_make_the_same_case_wherever_it_is_sent(operator: str, text: str) -> None:
    args, kwargs, _ = valued(operator, text)
    case = CaseOf("x", f"aten.{operator}", args, kwargs)
    assert decode(encode(case), CaseOf).key == case.key


FITTING: dict[str, tuple[type, ...]] = {
    "bool": (Booleans, Given),
    "complex": (Normal, Uniform, PositiveDefinite),
    "int": (Integers, SortedIntegers, Given, WindowPositions),
    "float": (Normal, Uniform, Integers, SortedIntegers, Simplex, PositiveDefinite, Given),
}
sizes = st.lists(st.integers(0, 9), max_size=4).map(tuple)
tensors = sizes.flatmap(
    lambda shape: st.builds(
        TracedTensor,
        st.just(shape),
        st.sampled_from(sorted(SHORT_DTYPES.values())),
        st.none() | st.lists(st.integers(0, 9), min_size=len(shape), max_size=len(shape)).map(tuple),
    )
)
plain = st.one_of(tensors, tensors, st.integers(-9, 99), st.booleans(), st.none(), st.floats(-9, 9), st.just("cpu"))
values = plain | st.lists(plain, max_size=3).map(tuple)
calls = st.builds(
    TracedCall, st.lists(values, max_size=8).map(tuple), st.dictionaries(st.text("abc"), values, max_size=2)
)


@given(st.sampled_from(sorted(RULES)), calls)
def test_every_call_gets_fills_that_its_dtypes_and_its_memory_allow(operator: str, call: TracedCall) -> None:
    args, kwargs, _ = fills_for(f"aten.{operator}.default", call)
    assert len(args) == len(call.args)
    case = CaseOf("x", "aten.x.y", args, kwargs)
    assert decode(encode(case), CaseOf).key == case.key
    for tensor in tensors_of(case):
        kind = next((kind for kind in ("bool", "complex", "float") if kind in tensor.dtype), "int")
        assert isinstance(tensor.fill, FITTING[kind])
        expanded = any(
            stride == 0 and size > 1 for stride, size in zip(tensor.strides or (), tensor.shape, strict=False)
        )
        assert not (expanded and isinstance(tensor.fill, SortedIntegers | Simplex | PositiveDefinite | Given))


def test_rules_import_no_torch() -> None:
    code = "import sys, torchstone.suites.torchbench, torchstone.suites.valid_values; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
