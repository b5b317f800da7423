"""What elements of random results depend on: what is refused in calls that are not judged in full, and what is not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from torchstone.judging import Agreement, Mismatch, Reference, compare, compare_many, draw_call, draw_calls
from torchstone.judging.stochastic.dependence import Dependence
from torchstone.judging.stochastic.results_as_numbers import real_rows
from torchstone.judging.stochastic.secret_places import secret_places
from torchstone.schema import Case, Normal, Scalar, Tensor, Uniform

CPU = torch.device("cpu")
Kernel = Callable[[torch.Tensor], torch.Tensor]


def judged(torchs: Kernel, kernel: Kernel, x: torch.Tensor, calls: int) -> str | None:
    """The first of several calls in full, with the right kernel; then as timed calls are, with another."""
    seen = Dependence()
    for index in range(calls):
        own = torch.stack([torchs(x) for _ in range(2 if index else 24)])
        text = seen.mismatch_text(own, (kernel if index else torchs)(x))
        if text is not None:
            return text
    return None


def dropped(x: torch.Tensor) -> torch.Tensor:
    return x * (torch.rand_like(x) < 0.5) * 2


def without_replacement(weights: torch.Tensor) -> torch.Tensor:
    return torch.multinomial(weights, 10, False)


def sixteenth(x: torch.Tensor) -> torch.Tensor:
    return ((torch.rand(x.numel() // 16, 1) + torch.rand(16)) % 1.0).view(x.shape)


def far_apart(x: torch.Tensor) -> torch.Tensor:
    half = torch.rand(x.numel() // 2)
    return torch.cat([half, (3 * half + 0.2) % 1.0]).view(x.shape)


def moved_along(x: torch.Tensor) -> torch.Tensor:
    draw = torch.rand(x.numel())
    return torch.where(torch.arange(len(draw)) % 3 == 0, (0.3 - draw.roll(77)) % 1.0, draw).view(x.shape)


X = torch.randn(64, 128)
WEIGHTS = 0.1 + torch.rand(16, 50)
WRONG: dict[str, tuple[Kernel, Kernel, torch.Tensor, str]] = {
    "values of other places": (dropped, lambda x: dropped(x.flip(0)), X, "inputs"),
    "other probabilities": (torch.bernoulli, lambda p: torch.bernoulli(p.flip(0)), X.sigmoid(), "inputs"),
    "one number for sixteen": (torch.rand_like, sixteenth, X, "elements"),
    "one half for the other": (torch.rand_like, far_apart, X, "elements"),
    "mirrored from far away": (torch.rand_like, moved_along, X, "elements"),
    "sorted": (without_replacement, lambda w: without_replacement(w).sort(-1).values, WEIGHTS, "along rows"),
    "twice": (without_replacement, lambda w: torch.multinomial(w, 10, True), WEIGHTS, "duplicate values"),
    "no permutation": (
        lambda x: torch.randperm(len(x)),
        lambda x: torch.randint(500, (500,)),
        X.view(-1)[:500],
        "duplicate values",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_dependence_is_refused_in_calls_that_are_not_judged_in_full(name: str) -> None:
    torchs, kernel, x, text = WRONG[name]
    assert text in (judged(torchs, kernel, x, 60) or "")


def topk_of_noise(weights: torch.Tensor) -> torch.Tensor:
    return (weights / -torch.rand_like(weights, dtype=torch.float64).log()).topk(10).indices


RIGHT: dict[str, tuple[Kernel, Kernel, torch.Tensor]] = {
    "dropout that rounds otherwise": (dropped, lambda x: dropped(x * (1 + 1e-7)), X),
    "fewer values": (torch.rand_like, lambda x: torch.randint(1 << 20, x.shape) * 2.0**-20, X),
    "many": (torch.rand_like, torch.rand_like, torch.empty(300, 300)),
    "each once": (without_replacement, topk_of_noise, WEIGHTS),
    "permutation": (lambda x: torch.randperm(len(x)), lambda x: torch.rand(len(x)).argsort(), X.view(-1)),
    "rows that depend": (lambda x: torch.randn(64, 1) + 0 * x, lambda x: torch.randn(64, 1) + 0 * x, X),
    "one element": (torch.bernoulli, torch.bernoulli, torch.full((1,), 0.5)),
    "complex": (torch.randn_like, torch.randn_like, torch.empty(300, dtype=torch.complex64)),
}


@pytest.mark.parametrize("name", RIGHT)
def test_honest_draws_of_any_kind_are_not_refused(name: str) -> None:
    torchs, kernel, x = RIGHT[name]
    assert judged(torchs, kernel, x, 60) is None


@pytest.mark.parametrize("dtype", [torch.uint16, torch.uint32, torch.uint64, torch.bool, torch.float8_e4m3fn])
def test_dtypes_that_few_kernels_know_become_numbers(dtype: torch.dtype) -> None:
    values = torch.tensor([[0, 1], [1, 1]]).to(dtype)
    rows = real_rows(values)
    assert rows.tolist() == [[0, 1], [1, 1]]
    assert int(rows.amax()) == 1


def test_secret_places_are_different_ones_all_over() -> None:
    for elements, most in ((10, 20), (21, 20), (39, 20), (1000, 7)):
        places = secret_places(elements, most)
        assert len(places.unique()) == len(places) == min(elements, most)
        assert int(places.max()) < elements
    assert not torch.equal(secret_places(1 << 20, 64), secret_places(1 << 20, 64))


@pytest.mark.parametrize("seed", range(3))
def test_few_values_that_torch_often_draws_are_no_surprise(seed: int) -> None:
    """A result is held against as many draws as each of torch's own: with ten values one more is a tenth less."""
    large = Case("x", "aten.randint_like.default", (Tensor((1024, 1024), "bfloat16", Normal()), Scalar(10)))
    reference = Reference(large, torch.device("cpu"))
    call = draw_call(large, seed, torch.device("cpu"))
    result = torch.ops.aten.randint_like.default(*call.args)
    found = compare(reference.expect(call), [result], [tensor.storage for tensor in call.tensors])
    assert isinstance(found, Agreement), found


@pytest.mark.parametrize("seed", range(10))
def test_what_may_come_once_may_not_come_twice(seed: int) -> None:
    """Eight rows of ten out of fifty: a few calls are no proof by counting."""
    weights = Tensor((8, 50), "float32", Uniform(0.01, 1.0))
    case = Case("test", "aten.multinomial.default", (weights, Scalar(10)))
    calls = draw_calls(case, seed, 3, CPU)

    def answer(replacement: bool) -> object:
        expected = Reference(case, CPU).expect_many(calls)
        drawn = [[torch.multinomial(call.args[0], 10, replacement)] for call in calls]
        return compare_many(expected, drawn, [each.inputs_after for each in expected])

    assert isinstance(answer(True), Mismatch)
    assert not isinstance(answer(False), Mismatch)
