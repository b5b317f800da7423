"""What dropout keeps may be divided or multiplied: a unit in the last place is no other draw, two percent are."""

from __future__ import annotations

import pytest
import torch

from torchstone.judging.stochastic.distribution import ReferenceDraws, mismatch_text, quick_mismatch_text


def kept(x: torch.Tensor, p: float, factor: float, divide: bool) -> torch.Tensor:
    mask = torch.rand(x.shape) >= p
    return (x * mask / (1 - p) if divide else x * mask * (1 / (1 - p))).mul(factor).to(x.dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("p", [0.1, 0.3, 0.9])
@pytest.mark.parametrize("constant", [True, False])
def test_rounding_is_no_other_draw_and_another_scale_is(dtype: torch.dtype, p: float, constant: bool) -> None:
    torch.manual_seed(3)
    x = torch.full((64, 128), 0.7, dtype=dtype) if constant else torch.randn(64, 128).to(dtype)
    own = torch.stack([kept(x, p, 1.0, divide=False) for _ in range(32)])
    draws = ReferenceDraws("aten.native_dropout.default", own, None)
    for _ in range(5):
        honest, wrong = kept(x, p, 1.0, divide=True), kept(x, p, 1.02, divide=False)
        assert mismatch_text(draws, honest) is None
        assert quick_mismatch_text("aten.native_dropout.default", own[0], honest) is None
        assert mismatch_text(draws, wrong) is not None
