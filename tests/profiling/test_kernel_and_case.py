"""What the user wrote becomes one kernel and one case, or a line that says what to write."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchstone.errors import UsageError
from torchstone.profiling.kernel_and_case import Chosen, choose
from torchstone.profiling.request import ProfileRequest, check
from torchstone.schema import ImportPath, SourceFiles

KERNELS = Path(__file__).parents[2] / "examples" / "kernels"


def chosen(kernel: str | Path, **options: object) -> Chosen:
    return choose(check(ProfileRequest(kernel=str(kernel), **options)), "cpu")  # type: ignore[arg-type]


def source(found: Chosen) -> SourceFiles:
    assert isinstance(found.implementation.origin, SourceFiles)
    return found.implementation.origin


def test_an_operator_is_torchs_own_unless_a_backend_is_named() -> None:
    found = chosen("relu")
    assert isinstance(found.implementation.origin, ImportPath)
    assert found.case.operator == found.implementation.operator == "aten.relu.default"
    found = chosen("relu", kernels_dir=KERNELS)
    assert source(found).entry == "relu_kernel_impl"
    assert chosen("relu", kernels_dir=KERNELS, backend="pregenerated").implementation == found.implementation


def test_the_largest_timed_case_is_taken() -> None:
    case = chosen("aten.add.Tensor").case
    assert case.timed
    assert case.label == "T([768, 512], f32), T([768, 512], f32)"
    assert not chosen("mul").case.timed, "the largest at all where none is timed"


def test_a_case_is_named_by_key_label_or_part_of_them() -> None:
    by_part = chosen("relu", case="stride=").case
    assert "stride=" in by_part.label
    assert chosen("relu", case=by_part.key[:10]).case == chosen("relu", case=by_part.label).case == by_part
    with pytest.raises(UsageError, match=r"2 cases fit --case '\[7, 129\]'.*f16.*bf16"):
        chosen("relu", case="[7, 129]")
    with pytest.raises(UsageError, match="no case fits --case 'nix'"):
        chosen("relu", case="nix")


def test_dtypes_are_chosen_as_in_run() -> None:
    assert chosen("relu", dtypes=("bf16",)).case.label == "T([1024, 512], bf16)"


def test_a_file_names_its_operator() -> None:
    found = chosen(KERNELS / "add__Tensor" / "add__Tensor_implementation_v1.py")
    assert found.case.operator == "aten.add.Tensor"
    assert "v1" in source(found).files[0].name
    assert chosen(KERNELS / "gelu" / "gelu_attempt_1.py").case.operator == "aten.gelu.default"


def test_a_file_of_another_name_needs_to_be_told_its_operator(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("def one(x): return x\ndef two(x): return x\n")
    with pytest.raises(UsageError, match=r"mine.py' is not an operator of suite 'smoke'.*--operator"):
        chosen(file)
    assert source(chosen(file, operator="relu", entry="two")).entry == "two"


def test_a_folder_of_one_operator_gives_its_newest_kernel_whatever_lies_beside_it() -> None:
    found = chosen(KERNELS / "add__Tensor")
    assert found.case.operator == "aten.add.Tensor"
    assert source(found).files[0].name == "add__Tensor_implementation_v2.py"


def test_a_folder_of_several_operators_needs_one_to_be_named() -> None:
    with pytest.raises(UsageError, match=r"aten.add.Tensor, aten.gelu, aten.relu. Choose one with --operator"):
        chosen(KERNELS)
    assert chosen(KERNELS, operator="gelu").case.operator == "aten.gelu.default"
    with pytest.raises(UsageError, match=r"holds no kernel for aten.mm.default. It has: aten.add.Tensor"):
        chosen(KERNELS, operator="mm")


def test_a_path_and_a_backend_contradict_each_other() -> None:
    with pytest.raises(UsageError, match="is a path, and --backend"):
        chosen(KERNELS / "relu", backend="aten")


@pytest.mark.parametrize(
    ("kernel", "options", "said"),
    [
        ("nowhere/relu.py", {}, "there is no kernel 'nowhere/relu.py'"),
        ("rleu", {}, "'rleu'"),
        ("x" * 5000 + ".py", {}, "there is no kernel 'xxx"),
        ("relu\0", {}, "relu"),
        ("relu", {"operator": "relu"}, "Leave out --operator"),
        ("relu", {"entry": "f"}, "--entry names the function of a kernel file"),
        ("relu", {"profilers": ("nuc",)}, "unknown profiler 'nuc'. Did you mean 'ncu'? Known: ncu, nsys, torch."),
        ("relu", {"calls": 0}, "calls is 0; it must be 1 or more."),
        ("relu", {"seconds": 0.0}, "it must be above 0"),
        ("sum", {"kernels_dir": KERNELS}, "backend 'directory' offers no kernel for aten.sum.dim_IntList"),
    ],
)
def test_a_mistake_is_one_line_that_says_what_to_do(kernel: str, options: dict[str, object], said: str) -> None:
    with pytest.raises(UsageError) as error:
        chosen(kernel, **options)
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_an_empty_folder_and_an_unreadable_file_are_mistakes(tmp_path: Path) -> None:
    (tmp_path / "relu").mkdir()
    with pytest.raises(UsageError, match="no kernel can be read from"):
        chosen(tmp_path / "relu")
    (tmp_path / "relu" / "helper.py").write_text("")
    with pytest.raises(UsageError, match=r"no kernel can be read from .*expected relu.py"):
        chosen(tmp_path / "relu")
    (tmp_path / "gelu.py").write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="cannot be read"):
        chosen(tmp_path / "gelu.py")
