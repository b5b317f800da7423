"""Names in any spelling, defaults of document 003, the order of points, and the corners that are judged."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchstone.errors import UsageError
from torchstone.schema import Normal, Tensor, tensors_of
from torchstone.sweeps.judging_corners import MOST_ELEMENTS, cases_of, corners
from torchstone.sweeps.operation_names import implementations_named, operations_named
from torchstone.sweeps.request import make_request, points_of


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (["LayerNorm", "layer_norm", "LAYERNORM"], ("LayerNorm",)),
        (["silu", "Swish"], ("Swish",)),
        (["Loss"], ("MSE", "CrossEntropy")),
        (["mse", "cross_entropy", "CrossEntropy", "gelu"], ("MSE", "CrossEntropy", "GELU")),
        (["my_op.py", "GELU"], ("my_op.py", "GELU")),
    ],
)
def test_operations_are_found_in_any_spelling(written: list[str], meant: tuple[str, ...]) -> None:
    assert operations_named(written) == meant


def test_implementations_are_found_in_any_spelling() -> None:
    assert implementations_named(["torch", "TRITON", "Cuda", "torch.compile", "eager"]) == (
        "PyTorch", "Triton", "CUDA", "Compile",
    )  # fmt: skip


@pytest.mark.parametrize(("wrong", "near"), [("layernrm", "layer_norm"), ("swich", "swish"), ("los", "loss")])
def test_an_unknown_operation_is_refused_with_the_nearest(wrong: str, near: str) -> None:
    with pytest.raises(UsageError, match=f"Did you mean '{near}'"):
        operations_named([wrong])


@pytest.mark.parametrize(
    "settings", [{"dtype": "int8"}, {"mode": "sideways"}, {"implementations": ["tritn"]}, {"operations": []}]
)
def test_settings_that_are_none_are_refused(settings: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        make_request(**settings)  # type: ignore[arg-type]


def test_a_folder_that_is_not_there_is_told_before_anything_is_measured(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no folder"):
        make_request(output=tmp_path / "missing" / "rows.json")
    with pytest.raises(UsageError, match="no file"):
        make_request(operations=[str(tmp_path / "missing.py")])


def test_the_usual_request_is_the_grid_of_the_document() -> None:
    request = make_request()
    points = points_of(request, request.operations)
    assert len({(p.batch_size, p.sequence_length, p.tensor_dimension) for p in points}) == 112
    assert len(points) == 112 * 5
    assert request.implementations == ("PyTorch", "CUDA", "Triton")
    assert {point.dtype for point in points} == {"float32"}
    # Operations of one shape follow each other, because they share inputs.
    assert [point.operation for point in points[:5]] == list(request.operations)
    assert len({(p.batch_size, p.sequence_length, p.tensor_dimension) for p in points[:5]}) == 1


def test_corners_are_the_ends_of_the_axes_and_bounded_in_size() -> None:
    assert corners(make_request(batch_sizes=[2, 3, 4], sequence_lengths=[8], tensor_dimensions=[5, 7])) == (
        (2, 8, 5), (2, 8, 7), (4, 8, 5), (4, 8, 7),
    )  # fmt: skip
    for batch, sequence, dimension in corners(make_request()):
        assert batch * sequence * dimension <= MOST_ELEMENTS
        assert sequence in (256, 2048)
        assert dimension in (8, 512)


@pytest.mark.parametrize("mode", ["fwd", "bwd", "fwd+bwd"])
@pytest.mark.parametrize("operation", ["LayerNorm", "GELU", "Swish", "MSE", "CrossEntropy"])
def test_every_operation_has_cases_in_the_shapes_and_the_dtype_that_are_swept(operation: str, mode: str) -> None:
    request = make_request(
        batch_sizes=[2], sequence_lengths=[3], tensor_dimensions=[4, 5], mode=mode, dtype="bf16", operations=[operation]
    )
    cases = list(cases_of(operation, request))
    assert len(cases) == 2 * len(mode.split("+"))
    assert len({case.key for case in cases}) == len(cases)
    for case in cases:
        whole = [t for t in tensors_of(case) if isinstance(t, Tensor) and t.fill == Normal() and len(t.shape) > 1]
        assert whole
        assert all(tensor.dtype == "bfloat16" for tensor in whole)
