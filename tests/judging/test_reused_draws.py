"""Draws that come again, whatever was done to them; and honest ones, which never are taken for such."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from judging.cases import case, tensor
from judging.random_alarms import KINDS, called, trial
from torchstone.judging import Mismatch, Reference, compare_many, draw_call
from torchstone.judging.stochastic.distribution import quick_mismatch_text
from torchstone.judging.stochastic.reused_draws import CLASSES, REMEMBERED, Recurrence, _Classes, _Memory, _Neighbours
from torchstone.schema import Case

CPU = torch.device("cpu")
Draw = Callable[[int], torch.Tensor]

DRAWS: dict[str, tuple[str, Draw]] = {
    "uniform": ("aten.rand_like.default", torch.rand),
    "uniform, bfloat16": ("aten.rand_like.default", lambda n: torch.rand(n, dtype=torch.bfloat16)),
    "uniform, float16": ("aten.rand_like.default", lambda n: torch.rand(n, dtype=torch.float16)),
    "normal": ("aten.randn_like.default", torch.randn),
    "normal, float64": ("aten.normal_.default", lambda n: torch.randn(n, dtype=torch.float64)),
    "half of the flags": ("aten.native_dropout.default", lambda n: torch.rand(n) < 0.5),
    "a tenth of the flags": ("aten.bernoulli.default", lambda n: (torch.rand(n) < 0.1).float()),
    "one of five": ("aten.randint.default", lambda n: torch.randint(0, 5, (n,))),
    "a permutation": ("aten.randperm.default", torch.randperm),
    "complex": ("aten.randn_like.default", lambda n: torch.randn(n, dtype=torch.complex64)),
}
CONTINUOUS = ("uniform", "normal", "normal, float64")


def one_changed(old: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
    return torch.cat([new[:1], old[1:]])


ANY_KIND: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "one element changed": one_changed,
    "a tenth new": lambda old, new: torch.where(torch.rand(old.shape) < 0.9, old, new),
    "begun elsewhere": lambda old, _: old.roll(len(old) // 3),
    "backwards": lambda old, _: old.flip(0),
}
CONTINUOUS_KINDS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "in another order": lambda old, _: old[torch.randperm(len(old))],
    "transposed": lambda old, _: old.view(-1, 8).T.reshape(-1),
    "a tenth of it": lambda old, new: torch.cat([old[: len(old) // 10], new[len(old) // 10 :]]),
}


def refused(operator: str, draw: Draw, results: list[torch.Tensor]) -> str | None:
    count = len(results[0])
    memory = Recurrence(operator, torch.stack([draw(count) for _ in range(24)]))
    return next((text for result in results if (text := memory.mismatch_text(draw(count), result)) is not None), None)


def pooled(draw: Draw, change: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], count: int) -> list[torch.Tensor]:
    pool = [draw(count) for _ in range(3)]
    return [*pool, *(change(pool[turn % 3], draw(count)) for turn in range(60))]


@pytest.mark.parametrize("kind", DRAWS)
@pytest.mark.parametrize("change", ANY_KIND)
def test_stored_draws_are_refused(kind: str, change: str) -> None:
    """In secret places, so that once in a while the few flags that are looked at tell nothing."""
    operator, draw = DRAWS[kind]
    assert any(refused(operator, draw, pooled(draw, ANY_KIND[change], 4096)) is not None for _ in range(3))


@pytest.mark.parametrize("kind", CONTINUOUS)
@pytest.mark.parametrize("change", CONTINUOUS_KINDS)
def test_stored_draws_of_continuous_numbers_are_refused_in_any_order(kind: str, change: str) -> None:
    operator, draw = DRAWS[kind]
    assert refused(operator, draw, pooled(draw, CONTINUOUS_KINDS[change], 4096)) is not None


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 1 << 32), moved=st.floats(0.0, 0.999), mirrored=st.booleans(), begun=st.integers(0, 4095))
def test_a_uniform_draw_that_is_moved_around_is_refused(seed: int, moved: float, mirrored: bool, begun: int) -> None:
    torch.manual_seed(seed)
    old = torch.rand(4096)
    new = ((1.0 - old if mirrored else old).roll(begun) + moved).frac()
    assert refused("aten.rand_like.default", torch.rand, [old, new, (new + 0.37).frac().flip(0)]) is not None


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 1 << 32))
def test_normal_draws_made_of_two_old_ones_are_refused(seed: int) -> None:
    torch.manual_seed(seed)
    one, other = torch.randn(4096), torch.randn(4096)
    turns = (torch.rand(8) * 6.28).tolist()
    assert (
        refused("aten.randn_like.default", torch.randn, [math.cos(t) * one + math.sin(t) * other for t in turns])
        is not None
    )


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 1 << 32), kind=st.sampled_from(sorted(DRAWS)), count=st.integers(16, 3000))
def test_honest_draws_are_never_refused(seed: int, kind: str, count: int) -> None:
    torch.manual_seed(seed)
    operator, draw = DRAWS[kind]
    assert refused(operator, draw, [draw(count) for _ in range(40)]) is None


@pytest.mark.parametrize("bits", [20, 22, 23])
def test_a_generator_may_be_coarser_than_torchs(bits: int) -> None:
    results = [torch.randint(1 << bits, (1 << 15,)) * 2.0**-bits for _ in range(60)]
    assert refused("aten.rand_like.default", torch.rand, results) is None


def test_elements_that_depend_on_one_another_widen_the_bound() -> None:
    draw = lambda n: torch.rand(n // 64).repeat_interleave(64)[:n]  # noqa: E731
    assert refused("aten.rand_like.default", draw, [draw(4096) for _ in range(200)]) is None


def test_a_large_result_is_looked_at_in_part_and_old_parts_of_it_are_found() -> None:
    old = torch.rand(1 << 19)
    new = [torch.cat([old[: 1 << 18], torch.rand(1 << 18)]) for _ in range(3)]
    assert refused("aten.rand_like.default", torch.rand, [old, *new]) is not None


@given(seed=st.integers(0, 1 << 32), count=st.integers(1, 500))
def test_the_least_of_each_class_depends_on_the_set_alone(seed: int, count: int) -> None:
    torch.manual_seed(seed)
    classes, numbers = _Classes(), torch.randint(-(1 << 62), 1 << 62, (count,))
    shuffled = torch.cat([numbers, numbers[:3]])[torch.randperm(count + min(3, count))]
    assert torch.equal(classes.least(numbers), classes.least(shuffled))
    assert not torch.equal(classes.least(numbers), _Classes().least(numbers))


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 1 << 32), count=st.integers(100, 500))
def test_windows_are_the_same_backwards_and_with_the_opposite_sign(seed: int, count: int) -> None:
    torch.manual_seed(seed)
    values = torch.randn(count, dtype=torch.float64)
    neighbours = _Neighbours("aten.randn.default", values.unsqueeze(0))
    windows = neighbours._windows(values).sort().values
    for other in (values.flip(0), -values, 3.0 - values.flip(0)):
        same = torch.isin(windows, neighbours._windows(other)).double().mean()
        assert same > 0.9  # a difference in the middle of two steps may be rounded otherwise


def test_memory_is_bounded() -> None:
    memory = _Memory(CLASSES, torch.int32, CPU)
    for number in range(REMEMBERED + 50):
        memory.add(torch.full((CLASSES,), number, dtype=torch.int32))
    assert memory.rows.shape == (REMEMBERED, CLASSES)
    assert int(memory.rows.amax()) == REMEMBERED + 49


# Whole calls.


def judged(wanted: Case, kernel: Callable[..., torch.Tensor | tuple[torch.Tensor, ...]], calls: int) -> str | None:
    reference = Reference(wanted, CPU)
    for seed in range(calls):
        call = draw_call(wanted, seed, CPU)
        (expected,) = reference.expect_many([call], with_bounds=seed == 0)
        result = kernel(*call.args)
        outputs = list(result) if isinstance(result, tuple) else [result]
        found = compare_many([expected], [outputs], [[drawn.storage for drawn in call.tensors]])
        if isinstance(found, Mismatch):
            return found.message
    return None


def test_an_old_mask_is_found_in_the_mask_and_in_what_it_drops() -> None:
    wanted = case("aten.native_dropout.default", tensor(64, 64), 0.4, True)
    old = torch.rand(2, 64, 64) >= 0.4
    turns = iter(range(1000))

    def both(x: torch.Tensor, p: float, _: bool) -> tuple[torch.Tensor, torch.Tensor]:
        mask = old[next(turns) % 2]
        return x * mask / (1 - p), mask.clone()

    def for_show(x: torch.Tensor, p: float, _: bool) -> tuple[torch.Tensor, torch.Tensor]:
        return both(x, p, True)[0], torch.rand_like(x) >= p

    assert "output 0" in (judged(wanted, both, 20) or "")
    assert "output 0" in (judged(wanted, for_show, 20) or "")
    assert judged(wanted, torch.ops.aten.native_dropout.default, 20) is None


@pytest.mark.parametrize("name", KINDS)
def test_torchs_own_draws_agree_at_every_size(name: str) -> None:
    make, dtypes = KINDS[name]
    for size in (0, 1, 15, 16, 200):
        if size < 4 and name == "multinomial, each once":
            continue  # torch itself refuses to draw nothing
        for dtype in dtypes:
            assert trial(make(size, dtype), 6, size, CPU)[1] is None, (size, dtype)


def test_numbers_that_are_drawn_for_some_values_only_are_random_from_then_on() -> None:
    """rrelu draws for negative elements: calls without any say nothing about the next."""
    wanted = case("aten.rrelu_with_noise.default", tensor(32), tensor(32), 0.1, 0.3, True)
    reference = Reference(wanted, CPU)
    assert reference.random_results is not None
    for seed, sign in enumerate((1.0, 1.0, -1.0, -1.0)):
        call = draw_call(wanted, seed, CPU)
        call.tensors[0].storage.abs_().mul_(sign)
        (expected,) = reference.expect_many([call], with_bounds=seed == 0)
        outputs, after = called(reference, call)
        assert not isinstance(compare_many([expected], [outputs], [after]), Mismatch)
        assert reference.random_results.draws_nothing is (sign > 0)
    wrong = [torch.full_like(outputs[0], 5.0), *outputs[1:]]
    assert isinstance(compare_many([expected], [wrong], [after]), Mismatch)


def test_few_flags_may_be_the_same_twice() -> None:
    wanted = case("aten.bernoulli.p", tensor(16), 0.1)
    kept = torch.zeros(16)
    kept[3] = 1.0
    assert judged(wanted, lambda x, _: kept.clone(), 2) is None


def test_rare_drops_of_small_results_do_not_count_as_constant() -> None:
    wanted = case("aten.native_dropout.default", tensor(16), 0.01, True)
    for seed in range(20):
        torch.manual_seed(seed)
        assert judged(wanted, torch.ops.aten.native_dropout.default, 10) is None


def test_a_heavy_tail_may_reach_infinity_but_not_beyond_numbers() -> None:
    own = torch.empty(500, dtype=torch.float16).cauchy_().clamp_(-1000, 1000)
    got = own.clone()
    got[7] = torch.inf
    assert quick_mismatch_text("aten.cauchy.default", own, got) is None
    assert quick_mismatch_text("aten.randn.default", own, got) is not None
    got[7] = torch.nan
    assert quick_mismatch_text("aten.cauchy.default", own, got) is not None


def test_undefined_values_of_any_size_agree() -> None:
    for shape in ((0,), (3, 0), (1,), (40,)):
        wanted = case("aten.empty_like.default", tensor(*shape))
        assert judged(wanted, torch.ones_like, 3) is None, shape
