"""Recorded calls as text: what is read, what is written back, and what is said about the rest."""

from __future__ import annotations

import contextlib
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchstone.suites.recorded_call_text import (
    SHORT_DTYPES,
    TorchName,
    TracedCall,
    TracedTensor,
    TraceTextError,
    format_call,
    parse_call,
)

DATASET = Path(__file__).parents[3] / "shared" / "data" / "torchbench_problems.parquet"


def test_every_form_is_read() -> None:
    text = (
        "((T([64, 50], f16, stride=(768, 1)), [T([], b8), 4], -inf, 1e-05, True, None, 'mean'),"
        " {'dtype': torch.float16, 'layout': torch.strided, 'device': 'cuda', 'd': i64, 'm': torch.channels_last})"
    )
    call = parse_call(text)
    assert call.args == (
        TracedTensor((64, 50), "float16", (768, 1)),
        (TracedTensor((), "bool"), 4),
        -math.inf,
        1e-05,
        True,
        None,
        "mean",
    )
    assert call.kwargs == {
        "dtype": TorchName("dtype", "float16"),
        "layout": TorchName("layout", "strided"),
        "device": "cuda",
        "d": TorchName("dtype", "int64"),
        "m": TorchName("memory_format", "channels_last"),
    }


def test_numbers_keep_their_kind() -> None:
    one, real, power = parse_call("((1, 1.0, 1e3), {})").args
    assert (type(one), type(real), type(power)) == (int, float, float)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "line 1, column 1: expected '('"),
        ("((T([2, 3], f16)), {}", "line 1, column 22: expected ')', got 'the end'"),
        ("((T([2, 3], f17),), {})", "column 13: expected a dtype"),
        ("((T([2, -3], f16),), {})", "column 5: sizes and strides are whole numbers"),
        ("((T([2, 3], f16, stride=(1,)),), {})", "1 strides for 2 dimensions"),
        ("((1,),\n {'a': 1, 'a': 2})", "line 2, column"),
        ("((__import__('os'),), {})", "unknown name '__import__'"),
        ("((torch.os,), {})", "unknown name 'torch.os'"),
        ("((1 + 2,), {})", "'+' has no place here"),
        ("((1,), {a: 1})", "expected the name of an argument in quotes"),
        ("((1,), {}) extra", "expected the end, got 'extra'"),
        ("((" + "[" * 50 + "]" * 50 + ",), {})", "more than 32 lists"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(text: str, says: str) -> None:
    with pytest.raises(TraceTextError) as caught:
        parse_call(text)
    assert says in str(caught.value)


sizes = st.lists(st.integers(0, 1 << 40), max_size=5).map(tuple)
tensors = st.builds(TracedTensor, sizes, st.sampled_from(sorted(SHORT_DTYPES.values())))
strided = sizes.flatmap(
    lambda shape: st.builds(
        TracedTensor,
        st.just(shape),
        st.sampled_from(sorted(SHORT_DTYPES.values())),
        st.lists(st.integers(0, 1 << 40), min_size=len(shape), max_size=len(shape)).map(tuple),
    )
)
names = st.sampled_from([TorchName("dtype", "float16"), TorchName("layout", "strided")])
words = st.text("abcdefgh_ .:0123456789()", max_size=12)
plain = st.one_of(st.integers(), st.booleans(), st.none(), words, st.floats(allow_nan=False), names, tensors, strided)
values = st.recursive(plain, lambda inner: st.lists(inner, max_size=4).map(tuple), max_leaves=12)
calls = st.builds(
    TracedCall, st.lists(values, max_size=5).map(tuple), st.dictionaries(st.text("abc_", min_size=1), values)
)


@given(calls)
def test_what_is_written_is_read_back(call: TracedCall) -> None:
    assert parse_call(format_call(call)) == call


@given(st.text(max_size=60))
def test_no_text_does_anything_but_parse_or_complain(text: str) -> None:
    with contextlib.suppress(TraceTextError):
        parse_call(text)


@pytest.mark.skipif(not DATASET.exists(), reason="the shared dataset is not here")
def test_every_row_of_the_shared_dataset_round_trips() -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    table = parquet.read_table(DATASET, columns=["op_name", "args"])
    rows = table.column("args").to_pylist()
    assert len(rows) == 19171
    assert len(set(table.column("op_name").to_pylist())) == 179
    for text in rows:
        call = parse_call(text)
        assert parse_call(format_call(call)) == call
