"""Recorded calls that a trivial kernel gets right: each says so, and no other does."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from torchstone.judging.audit.adversaries import audit
from torchstone.schema import Case
from torchstone.suites import CaseQuery
from torchstone.suites.torchbench import TraceSuite
from torchstone.suites.uninformative_calls import (
    ANY,
    CONSTANT,
    COPY,
    EXTREME,
    FEW_FLAGS,
    FLAGS,
    MANY_TERMS,
    SWITCH,
    UNUSED,
    WEIGHTS,
    excuse,
)

TELLS_NOTHING = [
    ("aten._to_copy.default", "((T([30, 7], f32),), {'dtype': f16})", COPY),
    ("aten.clone.default", "((T([30, 7], f32),), {})", COPY),
    ("aten.stack.default", "(([T([30, 7], f32)],), {})", COPY),
    ("aten.mul.Scalar", "((T([30, 7], f32), 1), {})", COPY),
    ("aten.add.Tensor", "((T([30, 7], i32), 0), {})", COPY),
    ("aten.pow.Tensor_Scalar", "((T([30, 7], f32), 1.0), {})", COPY),
    ("aten.repeat.default", "((T([30, 7], f32), [1, 1]), {})", COPY),
    ("aten._adaptive_avg_pool2d.default", "((T([2, 8, 6, 7], f32), [6, 7]), {})", COPY),
    ("aten.upsample_nearest2d.default", "((T([2, 8, 6, 7], f32), [6, 7]), {})", COPY),
    ("aten.slice_backward.default", "((T([30, 7], f32), [30, 7], 0, 0, 9223372036854775807, 1), {})", COPY),
    ("aten.sum.dim_IntList", "((T([1, 30, 7], f32), [0], True), {})", COPY),
    ("aten.constant_pad_nd.default", "((T([30, 7], f32), [0, 0, 0, 0]), {})", COPY),
    ("aten.new_zeros.default", "((T([30], f32), [30, 7]), {})", CONSTANT),
    ("aten.fill_.Scalar", "((T([30, 7], i64), 2), {})", CONSTANT),
    ("aten.ne.Scalar", "((T([30, 7], i64), 0), {})", FLAGS),
    ("aten.gt.Scalar", "((T([30, 7], u8), 0), {})", FLAGS),
]
TELLS_LITTLE = [
    ("aten.max.default", "((T([5000, 4], f32),), {})", EXTREME),
    ("aten.any.default", "((T([2048], b8),), {})", ANY),
    ("aten.ge.Scalar", "((T([14], i64), 7), {})", FEW_FLAGS),
    ("aten.bitwise_and.Tensor", "((T([], b8), T([1, 1, 384, 1], b8)), {})", SWITCH),
    ("aten.nll_loss_forward.default", "((T([16, 10], f32), T([16], i64), None, 1, -100), {})", WEIGHTS),
    (
        "aten.native_group_norm.default",
        "((T([4, 512, 999], f32), T([512], f32), T([512], f32), 4, 512, 999, 512, 1e-05), {})",
        "",
    ),
    (
        "aten.native_group_norm.default",
        "((T([4, 512, 31999], f32), T([512], f32), T([512], f32), 4, 512, 31999, 512, 1e-05), {})",
        MANY_TERMS,
    ),
    (
        "aten.native_batch_norm.default",
        "((T([4, 8, 5, 5], f32), T([8], f32), T([8], f32), T([8], f32), T([8], f32), False, 0.1, 1e-05), {})",
        UNUSED,
    ),
]
TELLS = [
    ("aten.amax.default", "((T([30, 7], f32), [1]), {})"),
    ("aten.constant_pad_nd.default", "((T([30, 7], f32), [0, 1, 0, 0]), {})"),
    ("aten.clamp.default", "((T([300, 70], f16), -64504.0, 64504.0), {})"),
    ("aten.bernoulli_.float", "((T([32, 128], f32), 0.2), {})"),
    ("aten._adaptive_avg_pool2d.default", "((T([2, 8, 6, 7], f32), [3, 7]), {})"),
    ("aten.mul.Scalar", "((T([30, 7], f32), 2), {})"),
    ("aten.add.Tensor", "((T([30, 7], f32), T([30, 7], f32)), {})"),
    ("aten.stack.default", "(([T([30, 7], f32), T([30, 7], f32)],), {})"),
    ("aten.repeat.default", "((T([30, 7], f32), [1, 2]), {})"),
    ("aten.sum.dim_IntList", "((T([2, 30, 7], f32), [0], True), {})"),
    ("aten.eq.Scalar", "((T([32, 77], i32), 49407), {})"),
    ("aten.ne.Scalar", "((T([30, 7], i64), 1), {})"),
    ("aten.gt.Scalar", "((T([30, 7], i64), 0), {})"),
    ("aten.native_layer_norm.default", "((T([30, 7], f32), [7], T([7], f32), T([7], f32), 1e-05), {})"),
]


def recorded(folder: Path, operator: str, arguments: str) -> Case:
    source = folder / "calls.jsonl"
    source.write_text(json.dumps({"op_name": operator, "args": arguments, "count": 3}))
    (case,) = TraceSuite().cases(CaseQuery(source=str(source)))
    return case


@pytest.mark.parametrize(("operator", "arguments", "reason"), TELLS_NOTHING)
def test_what_a_trivial_kernel_gets_right_says_so(tmp_path: Path, operator: str, arguments: str, reason: str) -> None:
    case = recorded(tmp_path, operator, arguments)
    assert case.indistinct == excuse(case) == reason
    assert audit([case], torch.device("cpu")).findings


@pytest.mark.parametrize(("operator", "arguments", "reason"), TELLS_LITTLE)
def test_what_is_met_by_chance_says_so(tmp_path: Path, operator: str, arguments: str, reason: str) -> None:
    assert recorded(tmp_path, operator, arguments).indistinct == reason


@pytest.mark.parametrize(("operator", "arguments"), TELLS)
def test_others_tell_and_have_no_excuse(tmp_path: Path, operator: str, arguments: str) -> None:
    case = recorded(tmp_path, operator, arguments)
    assert not case.indistinct
    found = audit([case], torch.device("cpu"))
    assert (found.findings, found.unjudged) == ((), {})
