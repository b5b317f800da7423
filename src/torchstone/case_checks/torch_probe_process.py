"""Child process that tries cases in torch (valid? result defined? how much NaN?), because an invalid call can crash.

It answers the questions of :mod:`torchstone.suites.torch_probe`, one per line. It imports torch once and forks a
process that answers. When a question kills that process, it forks another.
"""

from __future__ import annotations

import os
import signal
import sys
import warnings

from torchstone.schema import Case, decode, encode, tensors_of
from torchstone.suites.torch_probe import Answer, Question

_SECONDS = 60
"""Longest time of one answer. A longer one counts as one that killed the process."""


def main() -> None:
    """Fork a process that answers, and another whenever it dies, until there are no more questions."""
    import torch
    import torch._decomp
    import torch._refs

    import torchstone.judging
    import torchstone.suites.case_from_recorded_call  # noqa: F401 - before forking, so that each fork has it

    torch.set_num_threads(1)
    while True:
        child = os.fork()
        if child == 0:
            _answer_all()
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if os.WIFEXITED(status) and os.WEXITSTATUS(status) == 0:
            return
        os.write(1, b"null\n")


def _answer_all() -> None:
    warnings.simplefilter("ignore")  # "degrees of freedom <= 0": the answer is NaN, and defined
    for line in sys.stdin.buffer:
        signal.alarm(_SECONDS)
        answer = _answered(decode(line, Question))
        signal.alarm(0)
        sys.stdout.buffer.write(encode(answer) + b"\n")
        sys.stdout.buffer.flush()


def _answered(question: Question) -> Answer:
    import torch

    from torchstone.calls.reference_calls import OPERATOR_ERRORS, ReferenceFailure
    from torchstone.errors import UsageError
    from torchstone.judging.variants.validity import is_valid
    from torchstone.suites.case_from_recorded_call import excuse, share_of_nan

    cpu = torch.device("cpu")
    case, seed = question.case, question.seed
    try:
        match question.kind:
            case "takes":
                return is_valid(case, seed) and not _is_refused_elsewhere(case, seed)
            case "share_of_nan":
                return share_of_nan(case, seed, cpu)
            case "defines":
                return _is_consistent(case, seed)
            case "excuse":
                return excuse(case, cpu)
    except (ReferenceFailure, UsageError, *OPERATOR_ERRORS):
        return None


def _is_refused_elsewhere(case: Case, seed: int) -> bool:
    """Whether torch's second implementation refuses what its first takes, or gives results of other shapes.

    Some of torch's kernels do not check the shapes of their arguments and read beyond them. The decomposition of the
    operator into others does check. Pointwise operators are left out: all of them check shapes.
    """
    import torch
    from torch._decomp import decomposition_table

    from torchstone import operators
    from torchstone.calls.random_arguments import draw_call
    from torchstone.calls.reference_calls import OPERATOR_ERRORS, Evaluator

    overload = operators.resolve(case.operator)
    second = decomposition_table.get(overload)
    if second is None or operators.traits(case.operator).pointwise or len(tensors_of(case)) < 2:
        return False
    call = draw_call(case, seed, torch.device("cpu"))
    first = Evaluator(case, torch.device("cpu")).on([tensor.view.clone() for tensor in call.tensors], case)
    try:
        found = operators.flatten_outputs(second(*call.args, **call.kwargs))
    except (*OPERATOR_ERRORS, AssertionError):
        return True
    return [getattr(leaf, "shape", None) for leaf in first] != [getattr(leaf, "shape", None) for leaf in found]


def _is_consistent(case: Case, seed: int) -> bool:
    """Whether torch gives the same for strided arguments: its fast and slow code may differ on special values."""
    import torch

    from torchstone.calls.random_arguments import draw_call
    from torchstone.calls.reference_calls import Evaluator
    from torchstone.judging.compare.agreement import compare
    from torchstone.judging.comparison_result import Agreement
    from torchstone.judging.reference.case_reference import Reference

    cpu = torch.device("cpu")
    call = draw_call(case, seed, cpu)
    expected = Reference(case, cpu).expect(call)
    apart = [torch.stack([tensor.view, tensor.view], dim=-1)[..., 0] for tensor in call.tensors]
    outputs = Evaluator(case, cpu).on(apart, case)
    return isinstance(compare(expected, outputs, [tensor.storage for tensor in call.tensors]), Agreement)


if __name__ == "__main__":
    main()
