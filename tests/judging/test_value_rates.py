"""How often random values lie where, over the calls of a trial: what is refused, and what never is."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from torchstone.judging.stochastic.value_rates import RESOLUTION, Rates
from torchstone.judging.tail_bound import unlikelihood

Draw = Callable[[int], torch.Tensor]

DRAWS: dict[str, Draw] = {
    "uniform": torch.rand,
    "uniform, bfloat16": lambda n: torch.rand(n, dtype=torch.bfloat16),
    "normal": torch.randn,
    "normal, float64": lambda n: torch.randn(n, dtype=torch.float64),
    "cauchy": lambda n: torch.empty(n).cauchy_(),
    "half of the flags": lambda n: torch.rand(n) < 0.5,
    "few of the flags": lambda n: torch.rand(n) < 0.01,
    "one of five": lambda n: torch.randint(0, 5, (n,)),
    "many integers": lambda n: torch.randint(0, 1 << 40, (n,)),
    "a permutation": torch.randperm,
    "complex": lambda n: torch.randn(n, dtype=torch.complex64),
    "elements that depend": lambda n: torch.rand(n // 16 + 1).repeat_interleave(16)[:n],
    "always the same": torch.ones,
}


def refused(own: Draw, kernel: Draw, count: int, calls: int, operator: str = "aten.dropout.default") -> str | None:
    """The first call in full, one in eight of the others, the rest with one or two draws of torch's."""
    first = torch.stack([own(count) for _ in range(24)])
    rates = Rates(operator, first)
    for index in range(calls):
        drawn = (
            first if not index else torch.stack([own(count) for _ in range(24 if index % 8 == 7 else 1 + index % 2)])
        )
        text = rates.mismatch_text(drawn, kernel(count))
        if text is not None:
            return text
    return None


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 1 << 32),
    kind=st.sampled_from(sorted(DRAWS)),
    count=st.integers(1, 4000),
    calls=st.integers(1, 40),
)
def test_honest_draws_are_never_refused(seed: int, kind: str, count: int, calls: int) -> None:
    torch.manual_seed(seed)
    assert refused(DRAWS[kind], DRAWS[kind], count, calls) is None


def flags(rate: float) -> Draw:
    return lambda n: torch.rand(n) < rate


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 1 << 32), rate=st.floats(0.01, 0.99), other=st.floats(0.01, 0.99))
def test_another_rate_is_refused_once_enough_was_drawn(seed: int, rate: float, other: float) -> None:
    """A difference of 12 deviations is beyond the bound of about 7, and what few flags are allowed."""
    torch.manual_seed(seed)
    count, calls = 1 << 14, 24
    assume(abs(rate - other) > 12.0 * math.sqrt(rate * (1 - rate) / (count * calls)) + 60.0 / (count * calls))
    assert "in" in (refused(flags(rate), flags(other), count, calls) or "")


def cut_off(n: int) -> torch.Tensor:
    return torch.randn(n).clamp(-3.49, 3.49)


def twelve(n: int) -> torch.Tensor:
    return torch.rand(12, n).sum(0) - 6.0


WRONG: dict[str, tuple[Draw, Draw]] = {
    "no tails": (torch.randn, cut_off),
    "the sum of uniform numbers": (torch.randn, twelve),
    "heavier tails": (torch.randn, lambda n: torch.randn(n) * torch.where(torch.rand(n) < 1e-3, 4.0, 1.0)),
    "no small numbers": (torch.rand, lambda n: torch.rand(n).clamp(min=2e-4)),
    "a wider range": (torch.rand, lambda n: torch.rand(n) * 1.01),
    "a rate of six bits": (flags(0.1), flags(6 / 64)),
    "another scale": (lambda n: torch.randn(n).bfloat16(), lambda n: (torch.randn(n) * 1.06).bfloat16()),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_one_call_does_not_show_is_refused_over_several(name: str) -> None:
    torch.manual_seed(7)
    own, kernel = WRONG[name]
    assert refused(own, kernel, 1 << 16, 40) is not None


def test_few_elements_are_told_over_many_calls() -> None:
    torch.manual_seed(7)
    assert refused(torch.rand, lambda n: torch.rand(n) * 0.9, 8, 40) is None
    assert refused(torch.randn, torch.zeros, 8, 40) is not None


@pytest.mark.parametrize(
    ("operator", "bits", "right"),
    [
        ("aten.native_dropout.default", 16, True),
        ("aten.native_dropout.default", 8, False),
        ("aten.scaled_dot_product_attention.default", 8, True),
    ],
)
def test_the_resolution_that_is_demanded(operator: str, bits: int, right: bool) -> None:
    """As many elements as no trial has, and no noise: what is left are the steps of a generator."""
    rates = Rates(operator, torch.stack([torch.rand(3000) < 0.1 for _ in range(24)]))
    elements = 1 << 40
    share = round(0.1 * 2**bits) / 2**bits
    counts = [torch.full_like(rates._resolution, value * elements) for value in (share, 0.1)]
    rates._calls = 1
    rates._add(counts[0], counts[1].unsqueeze(0), elements)
    assert (rates._text(rates._allowed(1.0)) is None) == right
    assert abs(round(0.1 * 2**16) / 2**16 - 0.1) < RESOLUTION


def test_nothing_is_said_of_nothing() -> None:
    rates = Rates("aten.dropout.default", torch.empty(24, 0))
    assert rates.mismatch_text(torch.empty(24, 0), torch.empty(0)) is None


@given(mean=st.floats(1e-6, 50.0), count=st.integers(0, 120))
def test_counts_are_less_likely_than_said(mean: float, count: int) -> None:
    tail = math.fsum(math.exp(k * math.log(mean) - mean - math.lgamma(k + 1)) for k in range(count, count + 400))
    assert tail <= math.exp(-unlikelihood(count, mean)) * (1.0 + 1e-9) + 1e-12 * (count <= mean)


def test_what_never_comes_is_impossible() -> None:
    assert unlikelihood(0, 0.0) == 0.0
    assert unlikelihood(1, 0.0) == math.inf
