"""Arguments that torch writes to although the operator's schema does not say so."""

from __future__ import annotations

import pytest

from torchstone.operators import contract_of
from torchstone.schema import Case, Normal, Scalar, Tensor, Uniform

CHANNELS = Tensor((3,), "float32", Normal())
VARIANCES = Tensor((3,), "float32", Uniform(0.5, 2.0))


@pytest.mark.parametrize(("training", "mutated"), [(True, {3, 4}), (False, set())])
def test_batch_normalisation_writes_to_its_statistics_in_training_only(training: bool, mutated: set[int]) -> None:
    given = (Tensor((2, 3), "float32", Normal()), CHANNELS, CHANNELS, CHANNELS, VARIANCES)
    case = Case("x", "aten.native_batch_norm.default", (*given, Scalar(training), Scalar(0.1), Scalar(1e-5)))
    assert contract_of(case).mutated == mutated


def test_statistics_that_are_not_given_are_not_written_to() -> None:
    nothing = Scalar(None)
    given = (Tensor((2, 3), "float32", Normal()), nothing, nothing, nothing, nothing)
    case = Case("x", "aten.native_batch_norm.default", (*given, Scalar(True), Scalar(0.1), Scalar(1e-5)))
    assert contract_of(case).mutated == frozenset()
