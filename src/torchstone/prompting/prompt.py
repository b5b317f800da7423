"""Builds the first message to a model: what to write, what it must compute, how it is judged, in which language.

Everything in it is public: torch's schema and documentation, the suite's cases, and the kinds of inputs that the judge
draws. It holds no seed and no value of a hidden variant.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torchstone.errors import UsageError
from torchstone.prompting.device_limits import DeviceLimits
from torchstone.prompting.folder_and_function_names import entry_of, kernel_folder
from torchstone.prompting.gradient import gradient_rules
from torchstone.prompting.languages import EXAMPLE_OPERATOR, Language, language_named
from torchstone.schema import (
    Case,
    NonFiniteInputs,
    Shapes,
    forward_operator,
    is_gradient,
    is_model,
    tensors_of,
)
from torchstone.suites.case_overview import CaseOverview, overview_of

_MOST_CALLS = 24
"""Most calls that the prompt lists, at about 40 tokens each. If there are more, it gives the number of the rest."""


def prompt_for(
    operator: str,
    cases: Sequence[Case],
    language: str,
    *,
    device: DeviceLimits | None = None,
    folder: str | None = None,
    shapes: Shapes = "near",
    non_finite: NonFiniteInputs = "check",
    require_authored: bool = False,
) -> str:
    """The prompt for one operator, ``aten.add.Tensor``, judged on these cases.

    ``folder``: the kernel's folder, after which its function is named; None: `kernel_folder` of the operator.
    The other options are the judge's options that an author must know.
    """
    from torchstone.operators.documentation import documentation, memory_notes, parameters, schema_text  # torch

    operator = forward_operator(operator)
    if is_model(operator):
        raise UsageError(f"'{operator}' is a model of a problem file: its prompt is problem_prompt, not prompt_for.")
    chosen = language_named(language)
    entry = entry_of(folder or kernel_folder(operator))
    gradients = [case for case in cases if is_gradient(case.operator)]
    also = ", and its gradient" if gradients else ""
    parts = [
        f"Write a kernel in {chosen.title} that computes PyTorch's operator {operator}{also}, right first and then "
        "fast.",
        f"# Signature\n{schema_text(operator)}\n\n{_entry_point(entry, parameters(operator), chosen)}",
        f"# What it computes\n{documentation(operator, whole=True)}",
        f"# Memory\n{memory_notes(operator)}",
        *([_section("Gradient", gradient_rules(operator, gradients, chosen))] if gradients else []),
        _section("How it is judged", _judging(cases, require_authored)),
        _section("Calls that will be made", _calls(overview_of(cases), cases, shapes, non_finite)),
        _section("Device", (device or DeviceLimits("cpu")).lines()),
        _section(f"Rules of {chosen.title}", chosen.rules),
        _example(chosen, differentiable=bool(gradients)),
        f"# Reply\nReply with one code block (```{chosen.fence}) that holds the whole file, ready to run: imports, "
        f"helpers, and `{entry}`. No test code. Keep explanations short.",
    ]
    return "\n\n".join(parts) + "\n"


def _section(title: str, lines: Sequence[str] | Iterator[str]) -> str:
    return f"# {title}\n" + "\n".join(f"- {line}" for line in lines)


def _entry_point(entry: str, parameters: str, language: Language) -> str:
    if language.suffix == ".py":
        return (
            f"The entry point is a Python function at the top level of the file:\n"
            f"    def {entry}({parameters})\n"
            "It is called as the operator is: arguments by position or by keyword, under these names."
        )
    return f"The entry point is a C++ function at the top level of the file, named `{entry}`."


def _judging(cases: Sequence[Case], require_authored: bool) -> Iterator[str]:
    yield (
        "Results are compared with PyTorch's operator in float64. Errors may be a small multiple of those that "
        "PyTorch's own result has in the same dtype; integers, booleans and copies must be exact."
    )
    yield "Shape and dtype must be PyTorch's; so must strides, aliasing and changed arguments where it defines them."
    yield "One wrong call fails the case. Raising NotImplementedError for some call is not right either."
    yield "Every call has new random values. Keep nothing between calls: no results, no buffers, no captured graphs."
    yield "Only after all calls are right is the time compared with PyTorch's own, on the calls marked as timed."
    if require_authored:
        yield "The work must be the kernel's own: work of torch or a library, copies included, is refused."


def _calls(overview: CaseOverview, cases: Sequence[Case], shapes: Shapes, non_finite: NonFiniteInputs) -> Iterator[str]:
    yield f"dtypes: {', '.join(overview.dtypes) or 'no tensors'}"
    if overview.edges:
        yield f"among them: {', '.join(overview.edges)}"
    listed = [call for call in overview.calls if call.endswith("timed")]  # timed calls come first
    listed += [call for call in overview.calls if not call.endswith("timed")]
    more = [f"and {overview.count - _MOST_CALLS} more"] if overview.count > _MOST_CALLS else []
    yield "\n    ".join(["stated calls, T(shape, dtype):", *listed[:_MOST_CALLS], *more])
    if shapes == "near" and any(case.jitter or case.layouts for case in cases):
        yield from _other_calls()
    yield from _values(cases, non_finite)


def _other_calls() -> Iterator[str]:
    yield (
        "also calls near these that are not listed here: sizes of 0 and 1, primes, one more or less than a power "
        "of two, a batch of 1, sizes that differ where the stated ones are equal"
    )
    yield "also other memory: transposed, every second element, rows further apart, an offset, expanded (stride 0)"
    yield "also other values of floating-point scalars, where the operator accepts them"


def _values(cases: Sequence[Case], non_finite: NonFiniteInputs) -> Iterator[str]:
    dtypes = {tensor.dtype for case in cases for tensor in tensors_of(case)}
    if any(dtype.startswith(("float", "bfloat", "complex")) for dtype in dtypes):
        yield "float values: mostly normal; also 0, -0, very large and very small ones, runs of equal values (ties)"
    if non_finite == "check" and any(dtype.startswith(("float", "bfloat")) for dtype in dtypes):
        yield "NaN, inf and -inf, wherever PyTorch defines the result: NaN must propagate as in PyTorch"
    if any(dtype.startswith(("int", "uint")) for dtype in dtypes):
        yield "integers: both ends of their range; indices may repeat, and be negative where PyTorch accepts that"
    if "bool" in dtypes:
        yield "booleans: mixed, all True, all False"


def _example(language: Language, *, differentiable: bool) -> str:
    text = language.gradient_example if differentiable else language.example
    also = " and its gradient" if differentiable else ""
    return (
        f"# Example\nA complete kernel in {language.title} for another operator, {EXAMPLE_OPERATOR}"
        f" (self, lambd=0.5){also}:\n\n```{language.fence}\n{text}```"
    )
