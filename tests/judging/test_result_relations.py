"""What random results have to do with each other: what is refused, and what never is."""

from __future__ import annotations

from collections.abc import Callable

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from torchstone.judging.stochastic.result_relations import Relations

Drawn = dict[str, torch.Tensor]
Draw = Callable[[torch.Tensor], Drawn]


def dropped(x: torch.Tensor, p: float = 0.3) -> Drawn:
    mask = torch.rand(x.shape) >= p
    return {"output 0": x * mask / (1.0 - p), "output 1": mask}


def dropped_in_rows(x: torch.Tensor) -> Drawn:
    mask = (torch.rand(len(x) // 16 + 1) >= 0.02).repeat_interleave(16)[: len(x)]
    return {"output 0": x * mask, "output 1": mask}


def noisy(x: torch.Tensor) -> Drawn:
    noise = torch.where(x > 0, 1.0, 0.1 + 0.2 * torch.rand(x.shape))
    return {"output 0": x * noise, "argument 1": noise}


def uniform(x: torch.Tensor) -> Drawn:
    return {"output 0": torch.rand(x.shape)}


def coarse(x: torch.Tensor) -> Drawn:
    """With a zero once in 2**20 values, which torch has once in 2**24."""
    return {"output 0": torch.randint(0, 1 << 20, x.shape) / (1 << 20)}


def values(count: int) -> torch.Tensor:
    """With zeros among them, which stay zeros whatever the mask says."""
    return torch.where(torch.rand(count) < 0.05, 0.0, torch.randn(count))


def refused(torchs: Draw, kernel: Draw, count: int, calls: int, widened: float = 1.0) -> str | None:
    """The first call against many draws of torch's, the others against one."""
    relations = Relations()
    for index in range(calls):
        x = values(count)
        own = [torchs(x) for _ in range(1 if index else 24)]
        stacked = {name: torch.stack([each[name] for each in own]) for name in own[0]}
        found = relations.mismatch_text(stacked, kernel(x), {"argument 0": x}, widened)
        if found is not None:
            return found[1]
    return None


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 1 << 32),
    kind=st.sampled_from([dropped, noisy, uniform]),
    count=st.integers(1, 4000),
    calls=st.integers(1, 40),
)
def test_honest_draws_are_never_refused(seed: int, kind: Draw, count: int, calls: int) -> None:
    torch.manual_seed(seed)
    assert refused(kind, kind, count, calls) is None


def test_rows_that_go_together_count_for_one() -> None:
    torch.manual_seed(5)
    assert not any(refused(dropped_in_rows, dropped_in_rows, 400, 20, widened=5.0) for _ in range(20))


def test_a_coarser_generator_may_meet_its_limit() -> None:
    torch.manual_seed(5)
    assert refused(uniform, coarse, 1 << 18, 60) is None


def test_a_mask_that_was_not_applied_is_refused() -> None:
    torch.manual_seed(5)
    text = refused(dropped, lambda x: dropped(x) | {"output 1": torch.rand(x.shape) >= 0.3}, 1000, 1)
    assert text is not None
    assert text.endswith("in none of torch's 24000 elements")
    assert "output 1 is " in text


def test_a_few_elements_tell_over_many_calls() -> None:
    torch.manual_seed(5)
    wrong = lambda x: dropped(x) | {"output 1": torch.rand(x.shape) >= 0.3}  # noqa: E731
    assert refused(dropped, wrong, 40, 1) is None
    assert refused(dropped, wrong, 40, 40) is not None


def test_noise_that_was_not_multiplied_with_is_refused() -> None:
    torch.manual_seed(5)
    assert refused(noisy, lambda x: noisy(x) | {"argument 1": noisy(x)["argument 1"]}, 1000, 2) is not None


def test_nothing_is_said_of_results_without_a_partner() -> None:
    found = Relations().mismatch_text({"output 0": torch.rand(3, 5)}, {"output 0": torch.rand(5)}, {}, 1.0)
    assert found is None
    empty = {"output 0": torch.rand(0), "output 1": torch.rand(0)}
    assert Relations().mismatch_text({name: each[None] for name, each in empty.items()}, empty, {}, 1.0) is None
