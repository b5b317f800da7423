"""A prompt says all that an author needs, nothing that is hidden, and its examples are right."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

import torchstone
from torchstone.errors import UsageError
from torchstone.prompting import (
    LANGUAGES,
    DeviceLimits,
    code_in,
    entry_of,
    kernel_folder,
    language_named,
    language_of_solutions,
    problem_prompt,
    prompt_for,
)
from torchstone.prompting.languages import EXAMPLE_OPERATOR, NATIVE_RULES
from torchstone.schema import Case, Deadlines, Integers, Normal, Scalar, SourceFile, SourceFiles, Tensor
from torchstone.suites import CaseQuery
from torchstone.suites.gradient_cases import backward_cases
from torchstone.suites.smoke import SmokeSuite

SHRINK = (
    Case("mine", EXAMPLE_OPERATOR, (Tensor((65, 7), "float32", Normal()),)),
    Case("mine", EXAMPLE_OPERATOR, (Tensor((8, 9), "float32", Normal(), strides=(1, 16), offset=3), Scalar(0.25))),
    Case("mine", EXAMPLE_OPERATOR, (Tensor((0, 3), "float32", Normal()),)),
)
HALF = Case("mine", EXAMPLE_OPERATOR, (Tensor((33, 5), "bfloat16", Normal()),))


def smoke(*operators: str) -> list[Case]:
    return list(SmokeSuite().cases(CaseQuery(operators)))


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_prompt_says_what_an_author_needs(language: str) -> None:
    prompt = prompt_for("aten.add.Tensor", smoke("add"), language)
    for part in (
        "aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor",
        "Adds other, scaled by alpha, to input.",
        "Writes to no argument.",
        "add_kernel_impl",
        "(T([13, 19], f32, stride=[1, 13]), T([13, 19], f32, stride=[0, 1]))",
        "NaN must propagate",
        f"Rules of {language_named(language).title}",
        language_named(language).example,
    ):
        assert part in prompt, part


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_prompt_for_a_gradient_says_what_autograd_asks(language: str) -> None:
    prompt = prompt_for("aten.mul.Tensor", backward_cases(smoke("mul"))[0], language)
    for part in (
        "computes PyTorch's operator aten.mul.Tensor, and its gradient",
        "# Gradient\n- Gradients are asked for",
        "sum over the dimensions that were broadcast",
        language_named(language).gradient_example,
    ):
        assert part in prompt, part
    assert language_named(language).example not in prompt
    assert "# Gradient" not in prompt_for("aten.mul.Tensor", smoke("mul"), language)


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_prompt_for_a_problem_holds_its_file_and_asks_for_a_class(language: str) -> None:
    source = SourceFiles((SourceFile("1_Relu.py", "class Model: ...\n"),), "Model", "1_Relu.py")
    case = Case("kernelbench", "kernelbench.level1__1_Relu.default", (), model=source)
    prompt = problem_prompt(case, language, DeviceLimits("cpu"), require_authored=True)
    assert "```python\nclass Model: ...\n```" in prompt
    assert "`ModelNew`" in prompt
    assert "The work must be the kernel's own" in prompt
    assert "load_inline" in prompt or language_named(language).suffix == ".py"
    assert not any(rule in prompt for rule in NATIVE_RULES)
    assert language_of_solutions(language_named(language)).suffix == ".py"


def test_the_example_in_a_prompt_is_not_mistaken_for_the_kernel() -> None:
    assert code_in(prompt_for("aten.relu.default", smoke("relu"), "pytorch"), "relu_kernel_impl").code is None


def test_a_prompt_names_the_device_and_the_deadlines() -> None:
    device = DeviceLimits("cuda", "NVIDIA H200", "9.0", 150 << 30, deadlines=Deadlines(compile_seconds=33))
    prompt = prompt_for("aten.relu.default", smoke("relu"), "triton", device=device, require_authored=True)
    assert "CUDA GPU (NVIDIA H200), compute capability 9.0, 150 GiB of memory" in prompt
    assert "33 s" in prompt
    assert "The work must be the kernel's own" in prompt


def test_a_prompt_tells_only_of_inputs_that_may_come() -> None:
    indices = [Case("mine", "aten.neg.default", (Tensor((4,), "int64", Integers(0, 9)),), jitter=False)]
    prompt = prompt_for("aten.neg.default", indices, "pytorch", shapes="stated", non_finite="ignore")
    assert "NaN" not in prompt.partition("# Rules")[0]
    assert "also other memory" not in prompt


def test_long_lists_of_calls_are_cut_and_counted() -> None:
    cases = [Case("mine", "aten.neg.default", (Tensor((size,), "float32", Normal()),)) for size in range(1, 101)]
    prompt = prompt_for("aten.neg.default", cases, "pytorch")
    assert "and 76 more" in prompt
    assert len(prompt) < 8000


def test_a_prompt_is_the_same_every_time_and_has_no_seed() -> None:
    prompts = {prompt_for("aten.relu.default", smoke("relu"), "triton") for _ in range(2)}
    assert len(prompts) == 1
    assert not re.search(r"seed", prompts.pop(), re.IGNORECASE)


def test_every_operator_of_torch_has_a_prompt_of_bounded_length() -> None:
    packets = [getattr(torch.ops.aten, name) for name in dir(torch.ops.aten)]
    overloads = [
        getattr(packet, name) for packet in packets if hasattr(packet, "overloads") for name in packet.overloads()
    ]
    names = [str(overload) for overload in overloads][::4]
    assert len(names) > 500
    for name in names:
        full = name if name.count(".") == 2 else f"{name}.default"
        assert 1000 < len(prompt_for(full, [Case("mine", full, ())], "triton")) < 10_000, full


def test_models_of_problem_files_and_unknown_languages_are_refused_in_one_line() -> None:
    with pytest.raises(UsageError, match="is a model of a problem file"):
        prompt_for("kernelbench.1_relu.default", [], "triton")
    with pytest.raises(UsageError, match=r"unknown language 'tritn'\. Did you mean 'triton'"):
        prompt_for("aten.relu.default", [], "tritn")


def test_folders_are_short_unless_two_overloads_need_one() -> None:
    assert kernel_folder("aten.relu.default") == "relu"
    assert kernel_folder("aten.add.Tensor") == "add"
    assert kernel_folder("aten.add_.Tensor") == "add_"
    assert kernel_folder("aten.add.Scalar") == "add__Scalar"
    assert kernel_folder("torchstone_grad.add.Tensor") == "add"
    both = frozenset({"aten.max.default", "aten.max.Tensor"})
    assert {kernel_folder(operator, both) for operator in both} == {"max__default", "max__Tensor"}
    assert kernel_folder("kernelbench.level1__19_ReLU.default") == "level1__19_ReLU"
    assert entry_of("add__Scalar") == "add__Scalar_kernel_impl"


def judged(text: str, suffix: str, cases: Sequence[Case], folder: Path) -> None:
    file = folder / f"softshrink{suffix}"
    file.write_text(text)
    found = torchstone.check(file, EXAMPLE_OPERATOR, cases=cases, effort="quick")
    assert found.agrees, found.failures()


@pytest.mark.parametrize("name", ["pytorch", "cpp"])
def test_the_worked_example_is_right(name: str, tmp_path: Path) -> None:
    language = language_named(name)
    assert language.example_checked == "judged"
    cases = (*SHRINK, HALF) if name == "pytorch" else (SHRINK[1], HALF)
    judged(language.example, language.suffix, cases, tmp_path)


@pytest.mark.parametrize("name", ["pytorch", pytest.param("cpp", marks=pytest.mark.slow)])
def test_the_worked_example_with_a_backward_pass_is_right(name: str, tmp_path: Path) -> None:
    cases = (*SHRINK, HALF)
    language = language_named(name)
    judged(language.gradient_example, language.suffix, (*cases, *backward_cases(cases)[0]), tmp_path)


@pytest.mark.slow
def test_the_cpp_example_builds_by_load_inline_too(tmp_path: Path) -> None:
    """As solutions of KernelBench have it."""
    text = (
        "from torch.utils.cpp_extension import load_inline\n\n"
        f"_SOURCE = r'''{language_named('cpp').example}'''\n"
        "_built = load_inline('softshrink_example', cpp_sources=_SOURCE, functions=['softshrink_kernel_impl'])\n\n\n"
        "def softshrink_kernel_impl(self, lambd=0.5):\n    return _built.softshrink_kernel_impl(self, lambd)\n"
    )
    judged(text, ".py", (SHRINK[1], HALF), tmp_path)


@pytest.mark.parametrize("kind", ["example", pytest.param("gradient_example", marks=pytest.mark.slow)])
def test_the_triton_example_is_right_in_the_interpreter(kind: str, tmp_path: Path) -> None:
    file = tmp_path / "softshrink.py"
    file.write_text(getattr(language_named("triton"), kind))
    more = "*backward_cases(SHRINK)[0]" if kind == "gradient_example" else ""
    program = f"""
        import torchstone
        from test_prompt import SHRINK, EXAMPLE_OPERATOR, backward_cases
        from pathlib import Path
        if __name__ == "__main__":
            cases = (*SHRINK, {more})
            found = torchstone.check(Path({str(file)!r}), EXAMPLE_OPERATOR, cases=cases, effort="quick")
            print(found.verdict, found.failures())
    """
    assert output_of(program, tmp_path, {"TRITON_INTERPRET": "1"}).startswith("agrees")


def output_of(program: str, folder: Path, environment: dict[str, str]) -> str:
    """Of a Python program in a process of its own."""
    script = folder / "judge.py"
    script.write_text(textwrap.dedent(program))
    path = os.pathsep.join(filter(None, (str(Path(__file__).parent), os.environ.get("PYTHONPATH"))))
    done = subprocess.run(
        [sys.executable, str(script)],
        env={**os.environ, **environment, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("name", [name for name, language in LANGUAGES.items() if language.suffix == ".py"])
def test_python_examples_can_be_parsed_and_define_the_entry_point(name: str) -> None:
    language = language_named(name)
    for text in (language.example, language.gradient_example):
        tree = ast.parse(text)
        assert "softshrink_kernel_impl" in [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]


ON_THE_CPU = """
    import importlib.util, sys, torch
    def module(path):
        spec = importlib.util.spec_from_file_location("kernel", path)
        made = importlib.util.module_from_spec(spec)
        sys.modules["kernel"] = made
        spec.loader.exec_module(made)
        return made
    def inputs():
        yield torch.randn(65, 7)
        yield torch.randn(8, 18)[:, ::2]
        yield torch.randn(33, 5).bfloat16()
        yield torch.empty(0, 3)
        yield torch.tensor([float("nan"), float("inf"), -0.0, 0.5, -0.5, 2.0])
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["example", "gradient_example"])
def test_the_helion_example_is_right_in_helions_interpreter(kind: str, tmp_path: Path) -> None:
    pytest.importorskip("helion")
    file = tmp_path / "kernel.py"
    file.write_text(getattr(language_named("helion"), kind))
    program = (
        ON_THE_CPU
        + f"""
    kernel = module({str(file)!r}).softshrink_kernel_impl
    for x in inputs():
        one, other = x.clone().requires_grad_(), x.clone().requires_grad_()
        torch.testing.assert_close(kernel(one), torch.nn.functional.softshrink(other), equal_nan=True)
        if {kind == "gradient_example"}:
            kernel(one).backward(torch.ones_like(x))
            torch.nn.functional.softshrink(other).backward(torch.ones_like(x))
            torch.testing.assert_close(one.grad, other.grad, equal_nan=True)
    print("right")
    """
    )
    assert output_of(program, tmp_path, {"HELION_INTERPRET": "1"}).endswith("right\n")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["example", "gradient_example"])
def test_the_cutedsl_example_compiles_for_a_gpu_that_is_not_here(kind: str, tmp_path: Path) -> None:
    pytest.importorskip("cutlass.cute")
    file = tmp_path / "kernel.py"
    file.write_text(getattr(language_named("cutedsl"), kind))
    program = (
        ON_THE_CPU
        + f"""
    import cutlass.cute as cute
    compile, compiled = cute.compile, []
    def compile_only(*given):
        compiled.append(type(compile(*given)).__name__)
        return lambda *arguments: None
    cute.compile = compile_only
    kernel = module({str(file)!r}).softshrink_kernel_impl
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        result = kernel(torch.ones(40, 3, dtype=dtype, requires_grad={kind == "gradient_example"}))
        if {kind == "gradient_example"}:
            result.backward(torch.ones_like(result))
    print(len(compiled), set(compiled))
    """
    )
    expected = 3 if kind == "example" else 6
    assert output_of(program, tmp_path, {"CUTE_DSL_ARCH": "sm_90a"}).startswith(f"{expected} {{")
