"""Calls that are made again with the same arguments: what is refused, and what never is."""

from __future__ import annotations

from collections.abc import Callable

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from torchstone.judging import DrawnCall, draw_calls
from torchstone.judging.stochastic.repeated_arguments import Repeats
from torchstone.schema import Case, Normal, Scalar, Tensor

CPU = torch.device("cpu")
Draw = Callable[[torch.Tensor], torch.Tensor]


def case(count: int) -> Case:
    x = Tensor((count,), "float32", Normal())
    return Case("test", "aten.native_dropout.default", (x, Scalar(0.1), Scalar(True)))


def dropped(x: torch.Tensor) -> torch.Tensor:
    return x * (torch.rand(x.shape) >= 0.1)


def tossed(x: torch.Tensor) -> torch.Tensor:
    return torch.rand(x.shape) < 0.01


def hashed(x: torch.Tensor) -> torch.Tensor:
    """Which elements are dropped is read off the values."""
    bits = (x.view(torch.int32).to(torch.int64) + torch.arange(x.numel())) * 0x9E3779B1
    return x * ((bits >> 13) % 10 > 0)


def half_hashed(x: torch.Tensor) -> torch.Tensor:
    return torch.cat([hashed(x)[: x.numel() // 2], dropped(x)[x.numel() // 2 :]])


def blocks(repeats: Repeats, count: int, lengths: list[int]) -> list[list[DrawnCall]]:
    return [repeats.insert_repeats(draw_calls(case(count), seed, each, CPU)) for seed, each in enumerate(lengths)]


def refused(torchs: Draw, kernel: Draw, count: int, lengths: list[int]) -> str | None:
    repeats = Repeats()
    for block in blocks(repeats, count, lengths):
        for call in block:
            x = call.tensors[0].view
            text = repeats.mismatch_text(call, "output 0", torchs(x), kernel(x), 1.0)
            if text is not None:
                return text
    return None


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 1 << 32),
    kind=st.sampled_from([dropped, tossed, torch.rand_like]),
    count=st.integers(1, 4000),
    lengths=st.lists(st.integers(1, 8), max_size=20),
)
def test_honest_draws_are_never_refused(seed: int, kind: Draw, count: int, lengths: list[int]) -> None:
    torch.manual_seed(seed)
    assert refused(kind, kind, count, lengths) is None


def test_a_hash_of_the_input_is_refused_in_a_block_of_two() -> None:
    text = refused(dropped, hashed, 2000, [1, 2])
    assert text is not None
    assert text.startswith("calls with the same arguments return too similar draws: 0 elements differ")


def test_half_a_hash_is_refused() -> None:
    assert refused(dropped, half_hashed, 4000, [1, 4, 4]) is not None


def test_small_results_tell_over_many_repeats() -> None:
    assert refused(dropped, hashed, 30, [1, 2]) is None
    assert refused(dropped, hashed, 30, [4] * 80) is not None


def test_what_never_differs_is_no_repeat() -> None:
    assert refused(torch.ones_like, torch.ones_like, 4000, [4] * 8) is None


def test_calls_come_again_in_their_block_and_in_later_ones() -> None:
    within = later = 0
    for _ in range(20):
        one, two = blocks(Repeats(), 5, [6, 6])
        within += len({id(call) for call in one}) < 6
        later += any(call is other for call in one for other in two)
    assert (within, later) == (20, 20)


def test_some_come_again_in_the_same_place() -> None:
    found = 0
    for _ in range(40):
        one, two = blocks(Repeats(), 5, [6, 6])
        found += any(call is other for call, other in zip(one, two, strict=True))
    assert found > 5


def test_calls_are_replaced_and_never_added() -> None:
    assert [len(block) for block in blocks(Repeats(), 5, [0, 1, 2, 3, 4])] == [0, 1, 2, 3, 4]
