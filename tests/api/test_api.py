"""The Python API on real judges."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import torchstone
from torchstone.api import as_implementation
from torchstone.schema import SourceFiles

RELU = "aten.relu.default"


def relu_by_hand(x: Any) -> Any:
    """Judged from this very file: only its text travels."""
    return x.clamp(min=0)


def wrong_relu(x: Any) -> Any:
    return x


def test_a_function_is_checked() -> None:
    result = torchstone.check(relu_by_hand, RELU, device="cpu", effort="quick")
    assert result.agrees, result.failures()
    assert result.correctness == 1.0
    assert all(record.measurement is None for record in result.records)


def test_a_wrong_function_says_where() -> None:
    result = torchstone.check(wrong_relu, RELU, device="cpu", effort="quick")
    assert not result.agrees
    assert 0 <= result.correctness < 1
    assert result.speedup is None
    assert any("expected" in line for line in result.failures())


def test_source_text_and_own_cases_are_measured() -> None:
    case = torchstone.Case("mine", RELU, (torchstone.Tensor((256, 256), "float32", torchstone.Normal()),), timed=True)
    text = "def relu_kernel_impl(x):\n    return x.clamp(min=0)\n"
    result = torchstone.measure(text, RELU, cases=(case,), device="cpu", effort="quick")
    (record,) = result.records
    assert result.agrees, result.failures()
    assert record.measurement is not None


def test_many_kernels_are_evaluated_at_once(tmp_path: Path) -> None:
    path = tmp_path / "neg.py"
    path.write_text("def neg(x):\n    return -x\n")
    cases = tuple(
        torchstone.Case("mine", operator, (torchstone.Tensor((5,), "float32", torchstone.Normal()),))
        for operator in (RELU, "aten.neg.default", "aten.abs.default")
    )
    results = torchstone.evaluate_many(
        {RELU: relu_by_hand, "aten.neg.default": path, "aten.abs.default": "def abs_kernel_impl(x): return x"},
        cases=cases,
        device="cpu",
        effort="quick",
    )
    assert {name: result.agrees for name, result in results.items()} == {
        RELU: True,
        "aten.neg.default": True,
        "aten.abs.default": False,
    }


def test_the_entry_point_is_found_or_asked_for() -> None:
    def entry(text: str) -> str:
        origin = as_implementation(text, "aten.add.Tensor").origin
        assert isinstance(origin, SourceFiles)
        return origin.entry

    assert entry("def helper(): pass\ndef add__Tensor_kernel_impl(a, b): pass\n") == "add__Tensor_kernel_impl"
    assert entry("def helper(): pass\ndef add_kernel_impl(a, b): pass\n") == "add_kernel_impl"
    assert entry("def whatever(a, b): pass\n") == "whatever"
    with pytest.raises(torchstone.UsageError, match="entry="):
        entry("def one(): pass\ndef two(): pass\n")


@pytest.mark.parametrize(
    ("kernel", "operator", "settings", "message"),
    [
        (relu_by_hand, "relu", {}, "not a full name"),
        (lambda x: x, RELU, {}, "top level"),
        (Path("nowhere.py"), RELU, {}, "cannot be read"),
        (relu_by_hand, RELU, {"efort": "quick"}, "unknown setting: efort"),
        (relu_by_hand, RELU, {"suite": "smok", "device": "cpu"}, "Did you mean 'smoke'"),
        (relu_by_hand, RELU, {"device": "gpu"}, "not understood"),
        (relu_by_hand, "aten.nosuch.default", {"device": "cpu"}, "nosuch"),
    ],
)
def test_wrong_usage_is_explained(kernel: Any, operator: str, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(torchstone.UsageError, match=message):
        torchstone.check(kernel, operator, **settings)


def test_importing_the_package_imports_no_torch() -> None:
    import subprocess
    import sys

    code = "import sys, torchstone; torchstone.check; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_tab_completion_finds_the_api() -> None:
    assert set(torchstone.__all__) <= set(dir(torchstone))
    assert all(hasattr(torchstone, name) for name in dir(torchstone))
