"""Audits a case: submits trivial wrong kernels (adversaries) to the judge's own comparison, which must refuse them.

Each adversary returns something that costs less than the operator:

- a constant, an input, or another call's result;
- a result with its end missing, or a reduction that leaves a part out;
- the result of inputs in the next lower precision.

A case on which an adversary agrees proves nothing about the kernels that agree on it. No worker is needed:
adversaries are computed here, from the right results, and compared like a candidate's outputs.

The audit does not show that better adversaries fail. An adversary passes if it agrees on :data:`CALLS_IN_A_TRIAL` calls
in a row, about as many as the quickest judging of a kernel compares. Several trials are made. So the audit also finds
most cases whose result (one boolean) is sometimes right by chance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import torch

from torchstone import operators, schema
from torchstone.calls.draw_arguments import DrawnCall, draw_call
from torchstone.calls.reference_calls import OPERATOR_ERRORS, ReferenceFailure, is_continuous
from torchstone.judging.compare.agreement import compare
from torchstone.judging.comparison_result import Agreement
from torchstone.judging.reference.case_reference import Reference
from torchstone.judging.reference.expected import Expected, ExpectedValues

CALLS_IN_A_TRIAL = 3
"""Calls on which an adversary must agree: not more than a quick judging of a kernel compares."""
TRIALS = 4
"""Trials of a case. An adversary that passes one of them is reported."""
LARGE = 1 << 14
"""Cases with more elements than this get one trial: no adversary agrees on so many elements by chance."""

Outputs = list[Any]
Adversary = Callable[["AdversaryInput"], Outputs | None]
"""Computes the outputs to submit instead of the right ones; None: the adversary does not apply to this call."""


class IndistinctCase(msgspec.Struct, frozen=True):
    """A case on which an adversary agrees."""

    operator: str
    case: str
    """The case's arguments."""
    adversaries: tuple[str, ...]
    excuse: str
    """The reason that the case gives why an adversary may agree; empty: a defect of the suite."""


class Audit(msgspec.Struct, frozen=True):
    """Results of the adversaries on the cases of a suite."""

    cases: int
    judgements: int
    findings: tuple[IndistinctCase, ...]
    unjudged: dict[str, str]
    """Case -> why torch cannot compute it on this device."""

    @property
    def unexcused(self) -> tuple[IndistinctCase, ...]:
        """Findings for which the case gives no reason."""
        return tuple(finding for finding in self.findings if not finding.excuse)


@dataclass(frozen=True)
class AdversaryInput:
    """One call, its right outputs, and everything else that an adversary may use."""

    reference: Reference
    call: DrawnCall
    right: Outputs
    other: Outputs
    """The outputs of another call."""
    generator: torch.Generator

    @property
    def traits(self) -> operators.Traits:
        """Traits of the operator."""
        return operators.traits(self.reference.case.operator)

    @property
    def adds_up(self) -> bool:
        """Whether the operator reduces, or multiplies and adds along a dimension."""
        return self.traits.reduces or self.traits.contracts


def audit(cases: Iterable[schema.Case], device: torch.device, seed: int = 0) -> Audit:
    """Submit every adversary to every case, and report the cases on which one agrees."""
    findings: list[IndistinctCase] = []
    unjudged: dict[str, str] = {}
    count = judgements = 0
    for case in cases:
        count += 1
        try:
            passed, judged = _audit_case(case, device, seed)
        except ReferenceFailure as failure:
            unjudged[f"{case.operator}({case.label})"] = str(failure)
            continue
        judgements += judged
        if passed:
            findings.append(IndistinctCase(case.operator, case.label, tuple(passed), case.indistinct))
    return Audit(count, judgements, tuple(findings), unjudged)


def _audit_case(case: schema.Case, device: torch.device, seed: int) -> tuple[list[str], int]:
    """The adversaries that agree on all calls of some trial, and how many comparisons were made."""
    reference = Reference(case, device)
    passed: list[str] = []
    judged = 0
    for trial in range(1 if _elements(case) > LARGE else TRIALS):
        names: set[str] | None = None
        for index in range(CALLS_IN_A_TRIAL):
            if names is not None and not names:
                break
            agreed, compared = _agreeing_names(reference, seed + trial * CALLS_IN_A_TRIAL + index, names)
            names = agreed
            judged += compared
        passed += [name for name in sorted(names or ()) if name not in passed]
    return passed, judged


def _elements(case: schema.Case) -> int:
    return sum(operators.storage_extent(recipe) for recipe in schema.tensors_of(case))


def _agreeing_names(reference: Reference, seed: int, names_to_try: set[str] | None) -> tuple[set[str], int]:
    """Names of those adversaries among the given ones (None: all) that agree on one call."""
    call = draw_call(reference.case, 2 * seed, reference.device)
    expected = reference.expect(call)
    other = _leaves(reference.expect(draw_call(reference.case, 2 * seed + 1, reference.device)))
    generator = torch.Generator(reference.device).manual_seed(seed)
    given = AdversaryInput(reference, call, _leaves(expected), other, generator)
    values = expected.values()
    agreed: set[str] = set()
    compared = 0
    for name, outputs in _submissions(given, names_to_try):
        compared += 1
        if isinstance(_compared(expected, outputs, values), Agreement):
            agreed.add(name)
    return agreed, compared


def _leaves(expected: Expected) -> Outputs:
    return [output.native for output in expected.outputs]


def _compared(expected: Expected, outputs: Outputs, values: dict[Any, ExpectedValues]) -> Any:
    """Compare as the judge does. An output that is an argument (in-place, out=) is first written to that argument."""
    after = list(expected.inputs_after)
    submitted = list(outputs)
    recipes = schema.tensors_of(expected.call.case)
    for position, wanted in enumerate(expected.outputs):
        if wanted.is_argument is not None:
            storage = after[wanted.is_argument].clone()
            view = operators.view_of(storage, recipes[wanted.is_argument])
            view.copy_(outputs[position])
            after[wanted.is_argument], submitted[position] = storage, view
    return compare(expected, submitted, after, values)


def _submissions(given: AdversaryInput, names_to_try: set[str] | None) -> Iterator[tuple[str, Outputs]]:
    """Each adversary for each output alone, with the other outputs right: a kernel must get all of them right."""
    tensors = [position for position, leaf in enumerate(given.right) if isinstance(leaf, torch.Tensor)]
    for name, adversary in _adversaries(given.call):
        submitted = adversary(given)
        for position in tensors if submitted is not None else ():
            full_name = name if len(tensors) == 1 else f"{name} in output {position}"
            if submitted is None or (names_to_try is not None and full_name not in names_to_try):
                continue
            if submitted[position] is not None:
                mixed = [submitted[i] if i == position else leaf for i, leaf in enumerate(given.right)]
                yield full_name, mixed


def _adversaries(call: DrawnCall) -> Iterator[tuple[str, Adversary]]:
    yield "zeros", _for_each_output(torch.zeros_like)
    yield "ones", _for_each_output(torch.ones_like)
    yield "mean", _mean
    yield "another call's answer", _another_answer
    yield "skipped tail", _skipped_tail
    for position in range(len(call.tensors)):
        yield f"copy of argument {position}", _copy_of(position)
        for dimension, size in enumerate(call.tensors[position].recipe.shape):
            if size > 1:
                name = f"reduction without the end of argument {position}, dimension {dimension}"
                yield name, _without_end(position, dimension)
    yield "tf32 inputs", _lower_precision


def _for_each_output(change: Callable[[torch.Tensor], torch.Tensor]) -> Adversary:
    return lambda given: [change(leaf) if isinstance(leaf, torch.Tensor) else None for leaf in given.right]


def _another_answer(given: AdversaryInput) -> Outputs | None:
    """The outputs of another call. None for random results: another draw is right too."""
    random_results = given.reference.random_results
    return given.other if random_results is None or random_results.draws_nothing else None


def _mean(given: AdversaryInput) -> Outputs:
    return [_mean_of(leaf) if isinstance(leaf, torch.Tensor) else None for leaf in given.right]


def _mean_of(right: torch.Tensor) -> torch.Tensor | None:
    """The mean of the right result in every element. None if all its elements are equal: then the mean is right."""
    if right.numel() == 0:
        return right
    wide = right.to(torch.complex128 if right.dtype.is_complex else torch.float64)
    return None if bool((wide == wide.flatten()[0]).all()) else wide.mean().to(right.dtype).expand_as(right)


def _skipped_tail(given: AdversaryInput) -> Outputs:
    """Outputs whose last sixteenth is never written: it holds random bytes, or what the argument held before."""
    leaves: Outputs = []
    returned = given.reference.contract.returned_arguments
    for position, leaf in enumerate(given.right):
        if not isinstance(leaf, torch.Tensor):
            leaves.append(None)
            continue
        argument = returned[position] if position < len(returned) else None
        stale = given.call.tensors[argument].view if argument is not None else _garbage(leaf, given.generator)
        cut = leaf.numel() - max(1, leaf.numel() // 16)
        parts = leaf.reshape(-1)[:cut], stale.reshape(-1)[cut:]  # no `where`: a device lacks it for some dtypes
        leaves.append(torch.cat(parts).reshape(leaf.shape))
    return leaves


def _garbage(like: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    noise = torch.randint(0, 256, (like.numel() * like.element_size(),), generator=generator, device=like.device)
    if like.dtype is torch.bool:
        return (noise > 127).reshape(like.shape)
    return noise.to(torch.uint8).view(like.dtype).reshape(like.shape)


def _copy_of(position: int) -> Adversary:
    """Adversary: an argument returned as a result of the same size, converted. Not for views of the argument."""

    def copied(leaf: Any, source: torch.Tensor) -> torch.Tensor | None:
        if not isinstance(leaf, torch.Tensor) or source.numel() != leaf.numel():
            return None
        copy = source.reshape(leaf.shape)
        return None if copy.dtype.is_complex and not leaf.dtype.is_complex else copy.to(leaf.dtype)

    def adversary(given: AdversaryInput) -> Outputs | None:
        if any(item.alias_info is not None and not item.alias_info.is_write for item in _declared(given).returns):
            return None  # A view operator: its result is a view of its argument.
        return [copied(leaf, given.call.tensors[position].view) for leaf in given.right]

    return adversary


def _declared(given: AdversaryInput) -> Any:
    return operators.resolve(given.reference.case.operator)._schema


def _without_end(position: int, dimension: int) -> Adversary:
    """Adversary: the last quarter of an argument's dimension is 0, for outputs that depend on the argument."""

    def adversary(given: AdversaryInput) -> Outputs | None:
        tensors = [tensor.view for tensor in given.call.tensors]
        if not given.adds_up or not is_continuous(tensors[position].dtype):
            return None
        size = tensors[position].shape[dimension]
        tensors[position] = tensors[position].clone()
        tensors[position].narrow(dimension, size - max(1, size // 4), max(1, size // 4)).zero_()
        without_end = _native(given, tensors)
        tensors[position].zero_()
        without = _native(given, tensors)
        if without_end is None or without is None:
            return None
        depends = [not _equal(one, right) for one, right in zip(without, given.right, strict=True)]
        return [leaf if matters else None for leaf, matters in zip(without_end, depends, strict=True)]

    return adversary


def _lower_precision(given: AdversaryInput) -> Outputs | None:
    """The operator with float32 inputs rounded to 11 bits, if it adds up. None where torch itself rounds them."""
    tensors = [tensor.view for tensor in given.call.tensors]
    if given.traits.base == "convolution" and tensors[0].is_cuda and torch.backends.cudnn.allow_tf32:
        return None
    if not given.adds_up or all(t.dtype != torch.float32 for t in tensors):
        return None
    leaves = _native(given, [to_tf32(t) if t.dtype == torch.float32 else t for t in tensors])
    return None if leaves is None else [leaf if _is_float(leaf) else None for leaf in leaves]


def _is_float(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor) and is_continuous(leaf.dtype)


def _equal(one: Any, other: Any) -> bool:
    return torch.equal(one, other) if isinstance(one, torch.Tensor) else bool(one == other)


def to_tf32(values: torch.Tensor) -> torch.Tensor:
    """float32 rounded to tf32's eleven significant bits."""
    bits = values.contiguous().view(torch.int32)
    return ((bits + 0x1000) >> 13 << 13).view(torch.float32)


def _native(given: AdversaryInput, tensors: Sequence[torch.Tensor]) -> Outputs | None:
    """The outputs of torch's own operator on other inputs; None if it refuses them."""
    case = given.reference.case
    args, kwargs = operators.build_arguments(case, [tensor.clone() for tensor in tensors], given.reference.device)
    try:
        with torch.no_grad():
            return operators.flatten_outputs(operators.resolve(case.operator)(*args, **kwargs))
    except OPERATOR_ERRORS:
        return None
