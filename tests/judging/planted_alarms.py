"""Honest kernels of other authors on planted values: torch's own decompositions against its operators.

    python -m judging.planted_alarms [--every 4] [--seed 1] [--dtype int32]       (with PYTHONPATH=src:tests)

Every operator of the opinfo catalogue (CPU) that torch can also express by others is judged on planted calls
only, in one process, and without asking the decomposition whether torch stands by its answer, as the judge does.
Prints what differs: each would be a false alarm for operators that have no decomposition.
"""

from __future__ import annotations

import argparse
import contextlib
from collections import Counter
from typing import Any
from unittest import mock

import torch

from torchstone import operators
from torchstone.judging import Mismatch, Reference, ReferenceFailure, compare_many, draw_calls, planted_calls
from torchstone.judging.compare import reference_trust
from torchstone.schema import Case
from torchstone.suites import CaseQuery
from torchstone.suites.opinfo import OpInfoSuite

CPU = torch.device("cpu")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--every", type=int, default=1, help="take one case in so many")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--dtype", default="float32")
    options = parser.parse_args()
    torch.set_num_threads(1)
    with mock.patch.object(reference_trust, "_decomposition_agrees", return_value=True):
        _sweep(options.every, options.seed, options.dtype)


def _sweep(every: int, seed: int, dtype: str) -> None:
    counts: Counter[str] = Counter()
    cases = [case for case in OpInfoSuite().cases(CaseQuery(dtypes=(dtype,))) if not case.timed]
    for number, case in enumerate(cases[::every]):
        decomposed = torch._decomp.decomposition_table.get(operators.resolve(case.operator))
        if decomposed is not None:
            for planted, message in judged(case, decomposed, 1000 * seed + number):
                counts["judged"] += 1
                if message:
                    counts["differ"] += 1
                    print(f"{case.operator} {case.label} ({planted}): {message[:300]}", flush=True)
    print(f"{counts['judged']} planted calls judged, {counts['differ']} differ")


def judged(case: Case, decomposed: Any, seed: int) -> list[tuple[str, str]]:
    """Per planted call its plan, and what is wrong with the decomposition's answer."""
    found: list[tuple[str, str]] = []
    with contextlib.suppress(ReferenceFailure):
        reference = Reference(case, CPU)
        (usual,) = reference.expect_many(draw_calls(case, seed, 1, CPU))
        for expected in planted_calls(usual, seed):
            args, kwargs = operators.build_arguments(
                case, [operators.view_of(t.storage.clone(), t.recipe) for t in expected.call.tensors], CPU
            )
            try:
                outputs = operators.flatten_outputs(decomposed(*args, **kwargs))
            except (
                RuntimeError,
                NotImplementedError,
                TypeError,
                ValueError,
                IndexError,
                AssertionError,
                AttributeError,
            ):
                continue
            if len(outputs) == len(expected.outputs):
                answer = compare_many([expected], [outputs], [expected.inputs_after])
                found.append((expected.call.planted, answer.message if isinstance(answer, Mismatch) else ""))
    return found


if __name__ == "__main__":
    main()
