"""What a model is asked for a problem of KernelBench: the problem's file, and to write `ModelNew`."""

from __future__ import annotations

from torchstone.prompting import DeviceLimits, language_named
from torchstone.schema import Case

PROBLEM_ENTRY = "ModelNew"
"""The class that a solution defines."""


def problem_prompt(case: Case, language: str, device: DeviceLimits) -> str:
    """The prompt for the problem of the case."""
    assert case.model is not None, "only a problem has a model"
    chosen = language_named(language)
    rules = [rule for rule in chosen.rules if chosen.suffix == ".py"]
    sections = [
        f"Write a class `{PROBLEM_ENTRY}` that computes what `Model` of this problem computes, right first and then "
        f"fast. Replace its operators by kernels in {chosen.title}.",
        f"# Problem\n```python\n{case.model.files[0].text.strip()}\n```",
        _section("How it is judged", _JUDGING),
        _section("Device", device.lines()),
        _section(f"Rules of {chosen.title}", rules) if rules else "",
        f"# Reply\nReply with one code block (```python) that holds the whole file, ready to run: imports, helpers, "
        f"and `{PROBLEM_ENTRY}`. No test code. Keep explanations short.",
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


_JUDGING = (
    f"`{PROBLEM_ENTRY}` is made with the arguments of `get_init_inputs()`. It gets the parameters and buffers of "
    "`Model` by name, with new random values; constants it makes itself.",
    "`forward` is called with tensors like those of `get_inputs()`, with new random values in every call.",
    "Results are compared with those of `Model` in float64. Errors may be a small multiple of PyTorch's own.",
    "Keep nothing between calls: no results, no captured graphs.",
    "Only after all calls are right is the time compared with that of `Model`.",
)


def _section(title: str, lines: list[str] | tuple[str, ...]) -> str:
    return f"# {title}\n" + "\n".join(f"- {line}" for line in lines)
