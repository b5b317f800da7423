"""Targets choose chapters and examples, by name or by pattern."""

from __future__ import annotations

import pytest

from harness.trees import write_pairs
from torchstone.errors import UsageError
from torchstone.harness.discovery import Pair, discover
from torchstone.harness.target_patterns import select_pairs


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Pair, ...]:
    root = write_pairs(tmp_path_factory.mktemp("tree"), "ch1/moe", "ch13/moe", "ch13/gelu", "labs/moe/routing")
    (root / "ch13" / "optimized_moe_sparse.py").write_text("class A: ...")
    return discover(root).pairs


ALL = ["ch1/moe", "ch13/gelu", "ch13/moe", "ch13/moe_sparse", "labs/moe/routing"]


@pytest.mark.parametrize(
    ("targets", "chosen"),
    [
        (None, ALL),
        (["ch13"], ["ch13/gelu", "ch13/moe", "ch13/moe_sparse"]),
        (["./ch13/"], ["ch13/gelu", "ch13/moe", "ch13/moe_sparse"]),
        (["ch1"], ["ch1/moe"]),
        (["ch13:moe"], ["ch13/moe", "ch13/moe_sparse"]),
        (["ch13:moe_sparse"], ["ch13/moe_sparse"]),
        (["ch13/moe"], ["ch13/moe"]),
        (["ch*:moe"], ["ch1/moe", "ch13/moe", "ch13/moe_sparse"]),
        (["ch*:*_sparse", "ch1"], ["ch1/moe", "ch13/moe_sparse"]),
        ([":gelu"], ["ch13/gelu"]),
        (["labs"], ["labs/moe/routing"]),
        (["labs/moe"], ["labs/moe/routing"]),
        (["moe"], ["labs/moe/routing"]),
        (["ch1[3]:g?lu"], ["ch13/gelu"]),
    ],
)
def test_a_target_means(targets: list[str] | None, chosen: list[str], pairs: tuple[Pair, ...]) -> None:
    assert [pair.name for pair in select_pairs(pairs, targets)] == chosen


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("ch14", r"target 'ch14' matches no pair\. Nearest: ch1, ch13, .* shows all 5\."),
        ("ch13:geul", r"Nearest: ch13:gelu"),
        ("ch13:mo", r"Nearest: ch13:moe"),
        ("zzz", r"target 'zzz' matches no pair\. 'torchstone pairs list'"),
    ],
)
def test_a_target_that_means_nothing_is_told_with_the_nearest(target: str, said: str, pairs: tuple[Pair, ...]) -> None:
    with pytest.raises(UsageError, match=said):
        select_pairs(pairs, ["ch1", target])
