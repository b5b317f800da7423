"""Replies of models, as they come: the kernel's code is found, or the reply's problem is named."""

from __future__ import annotations

import pytest

from torchstone.prompting import code_in

ENTRY = "relu_kernel_impl"
KERNEL = "import torch\n\n\ndef relu_kernel_impl(self):\n    return self.clamp(min=0)\n"
USAGE = "from kernel import relu_kernel_impl\n\nprint(relu_kernel_impl(x))\n"


def fenced(text: str, word: str = "python", fence: str = "```") -> str:
    return f"{fence}{word}\n{text}{fence}\n"


@pytest.mark.parametrize(
    "reply",
    [
        fenced(KERNEL),
        f"Here it is.\n\n{fenced(KERNEL)}\nIt is fast.",
        fenced(KERNEL, ""),
        fenced(KERNEL, "Python", "~~~~"),
        fenced(KERNEL).replace("\n", "\r\n"),
        f"A draft:\n{fenced(KERNEL.replace('min=0', 'min=1'))}\nBetter:\n{fenced(KERNEL)}",
        f"{fenced(KERNEL)}\nTry it:\n{fenced('out = relu_kernel_impl(torch.ones(3))' + chr(10))}",
        f"{fenced(KERNEL)}\nUse it:\n{fenced(USAGE)}",
        f"{fenced(KERNEL)}\nRun:\n{fenced('python relu.py' + chr(10), 'sh')}",
        KERNEL,
        fenced(KERNEL) + "\nAnd a variant:\n```python\ndef relu_kernel_impl(self):\n    return",
    ],
    ids=[
        "plain",
        "prose",
        "no word",
        "tildes",
        "crlf",
        "last",
        "call",
        "import",
        "shell",
        "bare",
        "complete before cut",
    ],
)
def test_the_last_complete_block_with_the_entry_point_is_the_kernel(reply: str) -> None:
    assert code_in(reply, ENTRY).code == KERNEL


def test_a_block_in_a_list_loses_the_indentation_of_its_fence() -> None:
    indented = "".join(f"   {line}\n" if line else "\n" for line in fenced(KERNEL).splitlines())
    assert code_in(f"1. The kernel:\n{indented}", ENTRY).code == KERNEL


def test_fences_in_a_docstring_do_not_end_the_block() -> None:
    text = KERNEL.replace("    return", '    """Use it:\n\n```\nrelu_kernel_impl(x)\n```\n    """\n    return')
    assert code_in(f"{fenced(text)}\nDone.\n{fenced('pip install x' + chr(10), 'sh')}", ENTRY).code == text


def test_code_that_does_not_parse_is_still_the_kernel_so_that_its_author_is_told() -> None:
    broken = "def relu_kernel_impl(self):\n    return self.clamp(min=0\n"
    assert code_in(fenced(broken), ENTRY).code == broken


def test_an_import_of_the_entry_point_counts_only_where_no_block_defines_it() -> None:
    defined_below_try = "try:\n    import triton\nexcept ImportError:\n    relu_kernel_impl = None\n"
    assert code_in(fenced(defined_below_try) + fenced(USAGE), ENTRY).code == defined_below_try
    assert code_in(fenced(USAGE), ENTRY).code == USAGE


def test_native_code_is_found_by_its_definition() -> None:
    text = "#include <ATen/ATen.h>\nat::Tensor relu_kernel_impl(const at::Tensor& self) {\n  return self;\n}\n"
    use = "auto y = relu_kernel_impl(x);\n"
    assert code_in(fenced(text, "cpp") + fenced(use, "cpp"), ENTRY).code == text
    assert code_in(text, ENTRY).code == text


@pytest.mark.parametrize(
    ("reply", "problem"),
    [
        ("", "The reply has no code block."),
        ("I cannot help with that.", "The reply has no code block."),
        ("x", "The reply has no code block."),
        (fenced(KERNEL).removesuffix("```\n"), "The reply ends inside a code block: it was cut off"),
        (
            fenced("def relu(x):\n    return x\n"),
            "does not define the entry point `relu_kernel_impl`; it defines `relu`",
        ),
        (fenced("x = 1\n") * 2, "None of the 2 code blocks defines the entry point"),
        (fenced("\x00\x01\n"), "it defines no functions"),
    ],
    ids=["empty", "refusal", "word", "cut off", "other name", "several", "garbage"],
)
def test_a_reply_without_a_kernel_names_its_problem_and_what_to_send(reply: str, problem: str) -> None:
    found = code_in(reply, ENTRY)
    assert found.code is None
    assert problem in found.problem
    assert "Send one code block with the whole file" in found.problem


def test_a_reply_of_megabytes_is_refused_without_parsing_it() -> None:
    found = code_in(fenced("x = 1\n" * 900_000 + KERNEL), ENTRY)
    assert "longer than 4 MiB" in found.problem


def test_thousands_of_fences_take_no_time() -> None:
    assert code_in("```\n" * 20_000, ENTRY).code is None


def test_a_class_with_a_syntax_error_is_the_solution_of_a_problem_all_the_same() -> None:
    text = "import torch\n\n\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return (x\n"
    assert code_in(f"```python\n{text}```", "ModelNew").code == text
    assert code_in(f"```python\n{text.replace('ModelNew', 'ModelNewer')}```", "ModelNew").code is None
