"""Builds the prompt for a KernelBench problem: the problem's file, and the task to write `ModelNew`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from torchstone.prompting.device_limits import DeviceLimits
from torchstone.prompting.folder_and_function_names import PROBLEM_ENTRY
from torchstone.prompting.languages import EXAMPLE_OPERATOR, NATIVE_RULES, Language, language_named
from torchstone.schema import Case


def language_of_solutions(language: Language) -> Language:
    """The language for solutions of problem files. Their file is always Python, which builds C++ and CUDA itself."""
    return msgspec.structs.replace(language, suffix=".py", fence="python")


def problem_prompt(case: Case, language: str, device: DeviceLimits, *, require_authored: bool = False) -> str:
    """The prompt for the problem of the case."""
    assert case.model is not None, "only a problem has a model"
    chosen = language_named(language)
    sections = [
        f"Write a class `{PROBLEM_ENTRY}` that computes what `Model` of this problem computes, right first and then "
        f"fast. Replace its operators by kernels in {chosen.title}.",
        f"# Problem\n```python\n{case.model.files[0].text.strip()}\n```",
        _section("How it is judged", (*_JUDGING, *((_AUTHORED,) if require_authored else ()))),
        _section("Device", device.lines()),
        _section(f"Rules of {chosen.title}", tuple(_rules(chosen))),
        _example(chosen),
        f"# Reply\nReply with one code block (```python) that holds the whole file, ready to run: imports, helpers, "
        f"and `{PROBLEM_ENTRY}`. No test code. Keep explanations short.",
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


_JUDGING = (
    f"`{PROBLEM_ENTRY}` is made with the arguments of `get_init_inputs()`. It gets the parameters and buffers of "
    "`Model` by name, with new random values; it makes constants itself.",
    "`forward` is called with tensors like those of `get_inputs()`, with new random values in every call.",
    "Results are compared with those of `Model` in float64. Errors may be a small multiple of PyTorch's own.",
    "Keep nothing between calls: no results, no captured graphs.",
    "Only after all calls are right is the time compared with that of `Model`.",
)
_AUTHORED = "The work must be the kernel's own: work of torch or a library, copies included, is refused."
_BUILT = (
    "The file is Python. Build C++ and CUDA sources with torch.utils.cpp_extension.load_inline, once, at the top level "
    "of the file."
)


def _rules(language: Language) -> Iterator[str]:
    """The language's rules without those for a C++ entry point: here the entry point is always a class."""
    if language.suffix != ".py":
        yield _BUILT
    yield from (rule for rule in language.rules if rule not in NATIVE_RULES)


def _example(language: Language) -> str:
    """The section with an example function that `forward` may call. Empty for C++ and CUDA, whose example is a whole
    file, not a source for `load_inline`.
    """
    if language.suffix != ".py":
        return ""
    return (
        f"# Example\nA function in {language.title} for one operator, {EXAMPLE_OPERATOR} (self, lambd=0.5). `forward` "
        f"may call such functions:\n\n```python\n{language.example}```"
    )


def _section(title: str, lines: Sequence[str]) -> str:
    return f"# {title}\n" + "\n".join(f"- {line}" for line in lines)
