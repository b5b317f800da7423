"""The part of a prompt about gradients: how autograd calls the kernel, and which gradients are compared."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torchstone.prompting.languages import Language
from torchstone.schema import Case, Tensor
from torchstone.schema import Sequence as Listed


def gradient_rules(operator: str, gradients: Sequence[Case], language: Language) -> Iterator[str]:
    """The rules, one sentence each. ``gradients`` are the cases of the operator's gradient."""
    is_python = language.suffix == ".py"
    function = "torch.autograd.Function" if is_python else "torch::autograd::Function"
    yield (
        "Gradients are asked for: floating-point arguments are made to require gradients, the entry point is called as "
        "always, and autograd is run backwards through what it returns."
    )
    yield f"Make the result differentiable: a {function} whose forward and backward are kernels of yours."
    if not is_python:
        yield "It is declared in torch/csrc/autograd/custom_function.h."
    nothing = "None" if is_python else "an undefined at::Tensor"
    yield (
        f"backward gets the gradient of each result of {operator} (the cotangent), with random values, in any memory "
        f"layout. It returns one gradient for each argument of forward; {nothing} for one that is no tensor."
    )
    yield "A gradient has the shape and dtype of its argument: sum over the dimensions that were broadcast."
    yield "Save tensors for backward with save_for_backward. Several calls may be made before the first backward pass."
    yield from _which(gradients)
    yield "Results and gradients are both compared with PyTorch's. The time of both passes together is what counts."


def _which(gradients: Sequence[Case]) -> Iterator[str]:
    """Rules for results without a derivative and arguments that require no gradient, if the cases have any."""
    without = [place for case in gradients[:1] for place, item in enumerate(_cotangents(case)) if not _is_tensor(item)]
    if without:
        named = ", ".join(map(str, without))
        yield f"Results without a derivative get no cotangent (places {named}, counted from 0)."
    if any("asking" in case.kwargs for case in gradients):
        yield "In some calls only some arguments require a gradient: ctx.needs_input_grad tells which."


def _cotangents(case: Case) -> Sequence[object]:
    first = case.args[0]
    return first.items if isinstance(first, Listed) else ()


def _is_tensor(item: object) -> bool:
    return isinstance(item, Tensor)
