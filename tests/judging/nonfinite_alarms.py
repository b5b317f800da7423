"""How often honest kernels of pointwise operators are refused on NaN and infinities.

    python -m judging.nonfinite_alarms [--cases 3] [--seed 1] [--compile] [--part 1/4]     (with PYTHONPATH=src:tests)

Every pointwise operator of the opinfo catalogue (CPU), some of its cases, in float32, bfloat16 and float16, by torch's
own on other memory, torch's own in float64, torch's decomposition, and torch.compile (only with ``--compile``).
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import warnings
from collections import Counter
from collections.abc import Iterator
from typing import Any

import torch

from judging import opinfo_alarms
from torchstone import operators
from torchstone.judging import Mismatch, Reference, ReferenceFailure, compare_many, draw_calls, plant
from torchstone.judging.plans.nonfinite_pointwise_inputs import NonFiniteInputs
from torchstone.judging.planting.planted_calls import facts_of
from torchstone.schema import Case

CPU = torch.device("cpu")


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
    grouped = [found for found in opinfo_alarms.by_operator(options.operator) if _is_pointwise(found[0])]
    for number, found in enumerate(grouped[part - 1 :: parts]):
        for case in opinfo_alarms.spread(found, options.cases):
            for dtype in opinfo_alarms.DTYPES:
                with contextlib.suppress(ReferenceFailure):
                    _judge(opinfo_alarms.in_dtype(case, dtype), 1000 * options.seed + number, counts, options.compile)
    for name, count in sorted(counts.items()):
        print(f"{count:7d} {name}")


def _is_pointwise(case: Case) -> bool:
    return torch.Tag.pointwise in operators.resolve(case.operator).tags


def _judge(case: Case, seed: int, counts: Counter[str], compiling: bool) -> None:
    reference = Reference(case, CPU)
    (usual,) = reference.expect_many(draw_calls(case, seed, 1, CPU))
    if reference.random_results is not None or not NonFiniteInputs().applies(facts_of(case, usual)):
        return
    (expected,) = reference.expect_many([plant(draw_calls(case, seed + 1, 1, CPU)[0], NonFiniteInputs.name)])
    for way, kernel in _honest(case, compiling):
        try:
            outputs = operators.flatten_outputs(kernel(expected.call))
        except Exception:  # noqa: BLE001 - not made for these arguments
            counts[f"{way}: cannot"] += 1
            continue
        kinds = [getattr(got, "dtype", None) for got in outputs]
        if kinds != [wanted.dtype for wanted in expected.outputs]:
            counts[f"{way}: other results"] += 1
            continue
        found = compare_many([expected], [outputs], [expected.inputs_after])
        counts[f"{way}: judged"] += 1
        if isinstance(found, Mismatch):
            counts[f"{way}: REFUSED"] += 1
            print(f"{case.operator} {case.label} {way}: {found.message[:300]}", flush=True)


def _honest(case: Case, compiling: bool) -> Iterator[tuple[str, Any]]:
    overload = operators.resolve(case.operator)
    decomposed = torch._decomp.decomposition_table.get(overload)
    yield "torch", lambda call: _called(overload, call)
    yield "float64", lambda call: _in_float64(overload, call)
    if decomposed is not None:
        yield "decomposition", lambda call: _called(decomposed, call)
    if compiling:
        torch._dynamo.reset()
        yield "compiled", lambda call: _called(torch.compile(lambda *a, **k: overload(*a, **k), dynamic=False), call)


def _called(function: Any, call: Any) -> Any:
    """On copies that lie densely: elements meet other lanes of a vector than in the reference."""
    views = [tensor.view.clone(memory_format=torch.contiguous_format) for tensor in call.tensors]
    return function(*(parts := operators.build_arguments(call.case, views, CPU))[0], **parts[1])


def _in_float64(function: Any, call: Any) -> Any:
    views = [
        tensor.view.double() if tensor.view.is_floating_point() else tensor.view.clone() for tensor in call.tensors
    ]
    kinds = {tensor.view.dtype for tensor in call.tensors if tensor.view.is_floating_point()}
    args, kwargs = operators.build_arguments(call.case, views, CPU)
    result = function(*args, **kwargs)
    narrow = max(kinds, key=lambda kind: (kind.itemsize, torch.finfo(kind).bits), default=torch.float32)
    leaves = operators.flatten_outputs(result)
    return [leaf.to(narrow) if leaf.dtype is torch.float64 else leaf for leaf in leaves]


if __name__ == "__main__":
    main()
