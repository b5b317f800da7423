"""Attention with dropout, judged where every element is made of one value."""

from __future__ import annotations

import math

import pytest
import torch

from torchstone.calls.draw_arguments import draw_calls
from torchstone.judging import Reference, planted_calls
from torchstone.judging.compare.agreement import compare_many
from torchstone.judging.comparison_result import Agreement, Mismatch
from torchstone.judging.plans import CaseFacts
from torchstone.judging.plans.attention_dropout_one_key import OneKey
from torchstone.judging.reference.expected import Expected
from torchstone.schema import Case, Normal, Scalar, Tensor

CPU = torch.device("cpu")


def case(rate: float = 0.1, causal: bool = False, dtype: str = "float32", keys: int = 48) -> Case:
    query, key, value = (Tensor((2, 3, size, 16), dtype, Normal()) for size in (40, keys, keys))
    operator = "aten.scaled_dot_product_attention.default"
    return Case("test", operator, (query, key, value, Scalar(None), Scalar(rate), Scalar(causal)))


def lone_call(wanted: Case, seed: int) -> Expected:
    usual = Reference(wanted, CPU, CPU).expect_many(draw_calls(wanted, seed, 1, CPU))[0]
    (found,) = planted_calls(usual, seed)
    assert found.call.planted == OneKey.name
    return found


def attention(expected: Expected, rate: float, causal: bool, *, leak: bool = False, low: bool = False) -> torch.Tensor:
    """In float32 inside, as people write it."""
    wide = torch.bfloat16 if low else torch.float32
    query, key, value = (tensor.view.to(wide).float() for tensor in expected.call.tensors)
    scores = query @ key.mT / math.sqrt(query.shape[-1])
    if causal:
        seen = torch.ones(scores.shape[-2:], dtype=torch.bool).tril(diagonal=1 if leak else 0)
        scores = scores.masked_fill(~seen, -math.inf)
    weights = torch.softmax(scores, -1) * (torch.rand(scores.shape) >= rate) / (1.0 - rate)
    return (weights @ value).to(expected.call.tensors[0].view.dtype)


def verdict(expected: Expected, result: torch.Tensor) -> Agreement | Mismatch:
    return compare_many([expected], [[result]], [[tensor.storage for tensor in expected.call.tensors]])


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize(("rate", "causal"), [(0.1, False), (0.5, True), (0.9, False)])
def test_honest_attention_agrees(dtype: str, rate: float, causal: bool) -> None:
    for seed in range(4):
        expected = lone_call(case(rate, causal, dtype), seed)
        assert isinstance(verdict(expected, attention(expected, rate, causal)), Agreement)


@pytest.mark.parametrize("scale", [0.99, 1.01])
def test_one_percent_more_or_less_is_refused(scale: float) -> None:
    expected = lone_call(case(), 3)
    found = verdict(expected, attention(expected, 0.1, False) * scale)
    assert isinstance(found, Mismatch)
    assert "neither 0 nor the result of the one key" in found.message


def test_fewer_bits_and_the_wrong_rate_of_what_is_kept_are_refused() -> None:
    expected = lone_call(case(), 5)
    assert isinstance(verdict(expected, attention(expected, 0.1, False, low=True)), Mismatch)
    assert isinstance(verdict(expected, attention(expected, 0.1, False) * 0.9), Mismatch)


def test_a_key_that_should_not_be_seen_shows() -> None:
    expected = lone_call(case(causal=True), 7)
    assert isinstance(verdict(expected, attention(expected, 0.1, True)), Agreement)
    assert isinstance(verdict(expected, attention(expected, 0.1, True, leak=True)), Mismatch)
    appeared = attention(expected, 0.1, True)
    appeared[:, :, :6] += 1.0 * (appeared[:, :, :6] == 0)
    found = verdict(expected, appeared)
    assert isinstance(found, Mismatch)


def test_only_attention_that_drops_something_but_not_everything() -> None:
    assert OneKey().applies(CaseFacts(case(), tells_positions=False))
    assert not OneKey().applies(CaseFacts(case(0.0), tells_positions=False))
    assert not OneKey().applies(CaseFacts(case(1.0), tells_positions=False))
    assert not OneKey().applies(
        CaseFacts(
            Case("test", "aten.native_dropout.default", (case().args[0], Scalar(0.5), Scalar(True))),
            tells_positions=False,
        )
    )
