"""The Python API on real judges."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import torchstone
from torchstone.api import as_implementation
from torchstone.schema import Crashed, SourceFiles

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
    assert entry("from torch import add\ndef whatever(a, b): pass\n") == "whatever"
    assert entry("def one(): pass\ndef two(): pass\nif one:\n    add_kernel_impl = one\n") == "add_kernel_impl"
    assert entry("x = '\\d'\ndef whatever(a, b): pass\n") == "whatever"
    for unclear in ("", "x = 1\n", "def one(): pass\ndef two(): pass\n", "def (", "\0", "-" * 100_000 + "1"):
        assert entry(unclear) == "add_kernel_impl", unclear
    assert entry("I would put it into relu.py") == "add_kernel_impl", "no path"
    assert entry("#" * (1 << 20) + "\ndef add(a, b): pass\n") == "add"


def test_what_the_source_is_is_a_verdict_and_files_travel_along(tmp_path: Path) -> None:
    """One judged run: a loop over model output must not die of any of these."""
    native = tmp_path / "sin.cpp"
    native.write_text("int one() {\n  return 1;\n}\n")
    kernels: dict[str, Any] = {
        "aten.relu.default": "",
        "aten.neg.default": "def one(x): return -x\ndef two(x): return -x\n",
        "aten.sin.default": native,
        "aten.abs.default": "def abs(x):\n    'half of a character: \ud800'\n    return x.abs()\n",
        "aten.exp.default": "from common.powers import power\nimport numbers_of\n\n"
        "def exp(x):\n    return power(numbers_of.E, x)\n",
    }
    files = {
        "common/__init__.py": "",
        "common/powers.py": "import torch\n\ndef power(base, x):\n    return torch.exp(x * base)\n",
        "numbers_of.py": "E = 1\n",
    }
    shapes = [(operator, (5,)) for operator in kernels] + [("aten.neg.default", (7,))]
    cases = tuple(
        torchstone.Case("mine", operator, (torchstone.Tensor(shape, "float32", torchstone.Normal()),))
        for operator, shape in shapes
    )
    results = torchstone.evaluate_many(kernels, files=files, cases=cases, device="cpu", effort="quick")
    name = "the expected name of the kernel"
    assert [len(result.records) for result in results.values()] == [1, 2, 1, 1, 1]
    assert results["aten.abs.default"].agrees, results["aten.abs.default"].failures()
    assert results["aten.exp.default"].agrees, results["aten.exp.default"].failures()
    for operator, message in {
        "aten.relu.default": f"kernel.py defines no function 'relu_kernel_impl', {name}; it defines no functions",
        "aten.neg.default": f"kernel.py defines no function 'neg_kernel_impl', {name}; it defines one, two",
        "aten.sin.default": f"sin.cpp defines no function 'sin__default_kernel_impl', {name}; it defines one",
    }.items():
        for record in results[operator].records:
            assert isinstance(record.verdict, Crashed), record.verdict
            assert record.verdict.stage == "load"
            assert message in record.verdict.message


def test_files_are_given_as_texts_or_as_paths(tmp_path: Path) -> None:
    (tmp_path / "tiles.py").write_text("import triton\n")
    given = as_implementation("def relu(x): ...", RELU, files=[tmp_path / "tiles.py"])
    assert given.key == as_implementation("def relu(x): ...", RELU, files={"tiles.py": "import triton\n"}).key
    assert given.key != as_implementation("def relu(x): ...", RELU).key
    assert given.language == "triton"
    assert isinstance(given.origin, SourceFiles)
    assert [file.name for file in given.origin.files] == ["kernel.py", "tiles.py"]


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"../tiles.py": ""}, "plain relative names"),
        ({"/tmp/tiles.py": ""}, "plain relative names"),
        ({"a//b.py": ""}, "plain relative names"),
        ({"": ""}, "plain relative names"),
        ({"a\nb.py": ""}, "plain relative names"),
        ({"kernel.py": ""}, "the kernel's own"),
        ({"a": "", "a/b.py": ""}, "twice"),
        ({"random.py": ""}, "'random' is a module of Python or of torch"),
        ({"torch/nn.py": ""}, "'torch' is a module of Python or of torch"),
        ({"tiles.py": b""}, "maps names to text"),
        ("tiles.py", "Put the path into a list"),
        (["nowhere.py"], "file 'nowhere.py' cannot be read"),
        ({f"part_{number}.py": "" for number in range(65)}, "65 files; at most 64"),
        ({"big.py": "#" * ((4 << 20) + 1)}, "more than 4 MiB"),
    ],
)
def test_files_that_cannot_travel_are_refused(files: Any, message: str) -> None:
    with pytest.raises(torchstone.UsageError, match=message):
        torchstone.check("def relu(x): ...", RELU, files=files)


EIGHT = (torchstone.Tensor((8,), "float32", torchstone.Normal()),)
RELU_CASE = torchstone.Case(suite="mine", operator=RELU, args=EIGHT)
RELU_OUT_CASE = torchstone.Case(suite="mine", operator="aten.relu.out", args=EIGHT)
AMBIGUOUS = r"operator 'relu' may be any of aten\.relu\.default, aten\.relu\.out\. Write one of these"


def test_an_operator_has_a_short_name_or_is_an_overload_of_torchs() -> None:
    import torch

    settings: dict[str, Any] = {"device": "cpu", "effort": "quick", "sample": 1}
    for name in ("relu", "aten.relu", "relu.default", torch.ops.aten.relu.default, torch.ops.aten.relu):
        result = torchstone.check(relu_by_hand, name, **settings)
        assert (result.operator, result.agrees) == (RELU, True), name
    results = torchstone.evaluate_many({"relu": relu_by_hand}, **settings)
    assert {name: result.operator for name, result in results.items()} == {"relu": RELU}
    with pytest.raises(
        torchstone.UsageError, match=r"two of these names are the same operator: relu, aten\.relu\.default"
    ):
        torchstone.evaluate_many({"relu": relu_by_hand, RELU: relu_by_hand}, **settings)


@pytest.mark.parametrize(
    ("kernel", "operator", "settings", "message"),
    [
        (relu_by_hand, "rellu", {"device": "cpu"}, r"unknown smoke operator 'rellu'\. Did you mean 'relu'"),
        (relu_by_hand, 5, {}, "the operator is int; it must be a name"),
        (relu_by_hand, "relu", {"device": "cpu", "cases": (RELU_CASE, RELU_OUT_CASE)}, AMBIGUOUS),
        (relu_by_hand, RELU, {"effort": "fast"}, "effort is 'fast'; it must be one of quick, normal, thorough"),
        (relu_by_hand, RELU, {"mode": "both"}, r"mode is 'both'; it must be one of fwd, bwd, fwd\+bwd"),
        (relu_by_hand, RELU, {"cache": "hot"}, "cache is 'hot'; it must be one of cold, warm"),
        (
            relu_by_hand,
            RELU,
            {"deadlines": {}},
            r"deadlines is dict: {}; it must be torchstone\.Deadlines\(load_seconds=…",
        ),
        (relu_by_hand, RELU, {"limits": 8}, r"limits is int: 8; it must be torchstone\.Limits"),
        (relu_by_hand, RELU, {"cases": 5}, r"cases is int: 5; it must be a list of torchstone\.Case"),
        (relu_by_hand, RELU, {"verdict_cache": 5}, "verdict_cache is int: 5; it must be a path"),
        (relu_by_hand, RELU, {"threads": "two"}, r"threads is 'two'\. Expected int, got str"),
        (
            relu_by_hand,
            RELU,
            {"deadlines": torchstone.Deadlines(load_seconds="5")},
            r"load_seconds is '5'\. Expected float",
        ),
        (relu_by_hand, RELU, {"limits": torchstone.Limits(processes="x")}, r"processes is 'x'\. Expected int, got str"),
        (relu_by_hand, RELU, {"files": 5}, "files= takes a mapping from name to text"),
        (relu_by_hand, RELU, {"dtypes": 5}, r"dtypes is 5\. Expected list"),
        (relu_by_hand, RELU, {"dtypes": "flaot32"}, r"unknown dtype 'flaot32'\. Did you mean 'float32'"),
        (relu_by_hand, RELU, {"limits": torchstone.Limits(memory_bytes=8)}, "the memory limit is 8 bytes"),
        (relu_by_hand, RELU, {"limits": torchstone.Limits(processes=1)}, "the process limit is 1; "),
        (lambda x: x, RELU, {}, "top level"),
        (Path("nowhere.py"), RELU, {}, "cannot be read"),
        ("nowhere.py", RELU, {}, "cannot be read"),
        ("no\0where.py", RELU, {}, "cannot be read"),
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
