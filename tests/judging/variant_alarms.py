"""Honest kernels of other authors on hidden variants: torch's own decompositions against its operators.

    python -m judging.variant_alarms [--every 10] [--seed 1] [--operator celu]        (with PYTHONPATH=src:tests)

Like ``judging.planted_alarms``, with ordinary values and other sizes and numbers. Random results are left out
(``judging.random_alarms``), and so are operators whose decomposition differs on the stated case already. Prints what
differs, with whether torch stands by its answer there: where it does not, the judge holds it against nobody.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import warnings
from collections import Counter
from typing import Any

import torch

from torchstone import operators
from torchstone.judging import Mismatch, Reference, ReferenceFailure, compare_many, draw_calls
from torchstone.judging.reference_repeatability import agrees_on_contiguous_memory, agrees_on_empty_arguments
from torchstone.judging.variants.pool import VariantPool
from torchstone.schema import Case
from torchstone.suites import CaseQuery
from torchstone.suites.opinfo import OpInfoSuite

CPU = torch.device("cpu")
COUNT = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--every", type=int, default=1, help="take one case in so many")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--operator", default="", help="part of its name")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    counts: Counter[str] = Counter()
    cases = [case for case in OpInfoSuite().cases(CaseQuery(dtypes=("float32",))) if case.jitter and not case.timed]
    for number, case in enumerate([case for case in cases if options.operator in case.operator][:: options.every]):
        decomposed = torch._decomp.decomposition_table.get(operators.resolve(case.operator))
        if decomposed is not None:
            _sweep(case, decomposed, 1000 * options.seed + number, counts)
    print(dict(counts))


def _sweep(case: Case, decomposed: Any, seed: int, counts: Counter[str]) -> None:
    if judged(case, decomposed, seed) != "":
        counts["operators' cases without an answer to hold variants against"] += 1
        return
    for variant in VariantPool().draw(case, COUNT, random.Random(seed)):
        message = judged(variant, decomposed, seed)
        counts["unanswered" if message is None else "differ" if message else "agree"] += 1
        if message:
            print(
                f"{case.operator} {case.args} {case.kwargs}\n   {variant.args} {variant.kwargs}: {message}", flush=True
            )


def judged(case: Case, decomposed: Any, seed: int) -> str | None:
    """What is wrong with the decomposition's answer to a call; None: nobody knows."""
    with contextlib.suppress(ReferenceFailure):
        reference = Reference(case, CPU)
        if reference.random_results is not None:
            return None
        (expected,) = reference.expect_many(draw_calls(case, seed, 1, CPU))
        views = [operators.view_of(t.storage.clone(), t.recipe) for t in expected.call.tensors]
        args, kwargs = operators.build_arguments(case, views, CPU)
        try:
            outputs = operators.flatten_outputs(decomposed(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 - not made for these arguments
            return f"raises {error!r}"[:200] if "hidden" in case.tags else None
        if len(outputs) == len(expected.outputs):
            answer = compare_many([expected], [outputs], [expected.inputs_after])
            if not isinstance(answer, Mismatch):
                return ""
            stands = agrees_on_contiguous_memory(expected, CPU, CPU) and agrees_on_empty_arguments(expected)
            return f"{answer.message[:250]} (torch stands by it: {stands})"
    return None


if __name__ == "__main__":
    main()
