"""How often honest kernels of the opinfo operators are refused.

    python -m judging.opinfo_alarms [--cases 3] [--seed 1] [--compile] [--part 1/4]     (with PYTHONPATH=src:tests)

Every operator of the float32 catalogue (CPU), some of its cases, in float32, bfloat16 and float16, three ways that are
honest: torch's own on arguments that lie otherwise in memory (which reorders what it adds up), torch's own in float64,
and torch.compile (only with ``--compile``, of the largest of them: a compilation takes seconds). Random results are
left out (``judging.random_alarms``), and so is what torch does not do in a dtype.
"""

from __future__ import annotations

import argparse
import itertools
import logging
import math
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import torch

from torchstone import operators
from torchstone.judging import Expected, Mismatch, Reference, ReferenceFailure, compare_many, draw_calls
from torchstone.judging.reference_repeatability import agrees_on_contiguous_memory
from torchstone.schema import Argument, Case, Sequence, Tensor, tensors_of
from torchstone.suites import CaseQuery
from torchstone.suites.opinfo import OpInfoSuite

CPU = torch.device("cpu")
DTYPES = ("float32", "bfloat16", "float16")
Kernel = Callable[..., Any]
ANOTHER_QUESTION = {
    "aten.as_strided.default": "reads memory, and not values",
    "aten.as_strided_copy.default": "reads memory, and not values",
    "aten.as_strided_scatter.default": "reads memory, and not values",
    "aten.nextafter.default": "the next number of float64 is another one",
    "aten._linalg_det.default": "of column-major matrices torch factorises the transposed one",
    "aten._linalg_slogdet.default": "of column-major matrices torch factorises the transposed one",
    "aten.native_group_norm.default": "torch takes weights for dense ones (1 of 8 cases)",
    "aten._embedding_bag_forward_only.default": "torch leaves parts of its results empty as its memory and dtype allow",
}
"""Operators of which the same values in another memory or dtype are not the same question."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=3, help="of each operator and dtype, spread over all it has")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--part", default="1/1", help="the first of four: 1/4")
    parser.add_argument("--operator", default="", help="part of its name")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    counts: Counter[str] = Counter()
    part, parts = map(int, options.part.split("/"))
    for number, found in enumerate(by_operator(options.operator)[part - 1 :: parts]):
        some = spread(found, options.cases)
        largest = max(some, key=elements)
        for dtype in DTYPES:
            for case in some:
                with_compiled = options.compile and case is largest
                judge(in_dtype(case, dtype), dtype, 1000 * options.seed + number, counts, with_compiled)
    for name, count in sorted(counts.items()):
        print(f"{count:7d} {name}")


def by_operator(part_of_name: str) -> list[list[Case]]:
    cases = [case for case in OpInfoSuite().cases(CaseQuery(dtypes=("float32",))) if not case.timed]
    named = sorted((case for case in cases if part_of_name in case.operator), key=lambda case: case.operator)
    grouped = itertools.groupby(named, key=lambda case: case.operator)
    return [list(same) for operator, same in grouped if operator not in ANOTHER_QUESTION]


def spread(cases: list[Case], count: int) -> list[Case]:
    return cases[:: -(-len(cases) // count)]


def elements(case: Case) -> int:
    return sum(math.prod(recipe.shape) for recipe in tensors_of(case))


def in_dtype(case: Case, dtype: str) -> Case:
    kwargs = {name: _recast(argument, dtype) for name, argument in case.kwargs.items()}
    return msgspec.structs.replace(case, args=tuple(_recast(each, dtype) for each in case.args), kwargs=kwargs)


def _recast(argument: Argument, dtype: str) -> Argument:
    match argument:
        case Tensor(dtype="float32"):
            return msgspec.structs.replace(argument, dtype=dtype)
        case Sequence(items=items):
            return Sequence(tuple(_recast(item, dtype) for item in items))
        case _:
            return argument


def judge(case: Case, dtype: str, seed: int, counts: Counter[str], with_compiled: bool) -> None:
    """Count what becomes of every honest way, and print what is refused."""
    try:
        reference = Reference(case, CPU)
        if reference.random_results is not None or reference.contract.mutated:
            return
        (expected,) = reference.expect_many(draw_calls(case, seed, 1, CPU), with_bounds=True)
    except ReferenceFailure:
        counts[f"cases of {dtype} that torch does not do"] += 1
        return
    for name, kernel in honest_ways(operators.resolve(case.operator), with_compiled):
        found = outcome(case, expected, kernel)
        counts[f"{name}, {dtype}: {'no answer' if found is None else 'refused' if found else 'agree'}"] += 1
        if found:
            print(f"{case.operator} {case.label} {dtype}, {name}: {found}", flush=True)


def honest_ways(native: Kernel, with_compiled: bool) -> Iterator[tuple[str, Kernel]]:
    yield "another order", lambda args, kwargs: native(*changed(args, relaid), **changed(kwargs, relaid))
    yield "float64 inside", lambda args, kwargs: native(*changed(args, widened), **changed(kwargs, widened))
    if with_compiled:
        torch._dynamo.reset()  # otherwise it gives up after eight cases and runs them uncompiled
        compiled = torch.compile(lambda *args, **kwargs: native(*args, **kwargs), dynamic=False)
        yield "compiled", lambda args, kwargs: compiled(*args, **kwargs)


def changed(value: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, dict):
        return {name: changed(each, change) for name, each in value.items()}
    return [changed(each, change) for each in value] if isinstance(value, list | tuple) else value


def relaid(tensor: torch.Tensor) -> torch.Tensor:
    """The same values: the first dimension innermost, of one dimension every second place."""
    if tensor.dim() < 2:
        return torch.stack([tensor, tensor], dim=-1)[..., 0]
    return tensor.transpose(0, -1).clone(memory_format=torch.contiguous_format).transpose(0, -1)


def widened(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.double() if tensor.is_floating_point() else tensor


def outcome(case: Case, expected: Expected, kernel: Kernel) -> str | None:
    """What is said against an honest kernel, "" if nothing is; None: it has no answer to these arguments."""
    views = [operators.view_of(drawn.storage.clone(), drawn.recipe) for drawn in expected.call.tensors]
    args, kwargs = operators.build_arguments(case, views, CPU)
    try:
        outputs = operators.flatten_outputs(kernel(args, kwargs))
    except Exception:  # noqa: BLE001 - torch does not take these dtypes, or cannot compile it
        return None
    if len(outputs) != len(expected.outputs):
        return None
    answer = compare_many([expected], [_as_expected(outputs, expected)], [expected.inputs_after])
    if not isinstance(answer, Mismatch):
        return ""
    stands = agrees_on_contiguous_memory(expected, CPU, CPU)
    return f"{answer.message[:250]} (torch stands by it on plain memory: {stands})"


def _as_expected(outputs: list[Any], expected: Expected) -> list[Any]:
    """In the dtypes that are asked for, and in memory of their own."""
    wanted = [output.dtype for output in expected.outputs]
    return [
        value.to(dtype, copy=True) if isinstance(value, torch.Tensor) and dtype is not None else value
        for value, dtype in zip(outputs, wanted, strict=True)
    ]


if __name__ == "__main__":
    main()
