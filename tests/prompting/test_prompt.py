"""A prompt says all that an author needs, nothing that is hidden, and its examples are right."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch

import torchstone
from torchstone.errors import UsageError
from torchstone.prompting import LANGUAGES, DeviceLimits, code_in, entry_of, kernel_folder, language_named, prompt_for
from torchstone.prompting.languages import EXAMPLE_OPERATOR
from torchstone.schema import Case, Deadlines, Integers, Normal, Scalar, Tensor
from torchstone.suites import CaseQuery
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
        "NaN must come through",
        f"Rules of {language_named(language).title}",
        language_named(language).example,
    ):
        assert part in prompt, part


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
    assert entry_of("add__Scalar") == "add__Scalar_kernel_impl"


@pytest.mark.parametrize("name", ["pytorch", "cpp"])
def test_the_worked_example_is_right(name: str, tmp_path: Path) -> None:
    language = language_named(name)
    assert language.example_checked == "judged"
    file = tmp_path / f"softshrink{language.suffix}"
    file.write_text(language.example)
    cases = (*SHRINK, HALF) if name == "pytorch" else (SHRINK[1], HALF)
    found = torchstone.check(file, EXAMPLE_OPERATOR, cases=cases, effort="quick")
    assert found.agrees, found.failures()


def test_the_triton_example_is_right_in_the_interpreter(tmp_path: Path) -> None:
    file = tmp_path / "softshrink.py"
    file.write_text(language_named("triton").example)
    program = f"""
        import torchstone
        from test_prompt import SHRINK, EXAMPLE_OPERATOR
        from pathlib import Path
        if __name__ == "__main__":
            found = torchstone.check(Path({str(file)!r}), EXAMPLE_OPERATOR, cases=SHRINK, effort="quick")
            print(found.verdict, found.failures())
    """
    script = tmp_path / "judge.py"
    script.write_text(textwrap.dedent(program))
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(Path(__file__).parent)}
    done = subprocess.run(
        [sys.executable, str(script)], env=environment, capture_output=True, text=True, timeout=180, check=False
    )
    assert done.stdout.startswith("agrees"), done.stdout + done.stderr
