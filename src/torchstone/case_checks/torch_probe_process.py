"""Child process that tries cases in torch (valid? result defined? share of NaN?), because an invalid call can crash.

It answers the questions of :mod:`torchstone.suites.torch_probe`, one per line. It imports torch once and forks a
process that answers. If a question crashes that process, it answers null and forks another.
"""

from __future__ import annotations

import os
import signal
import sys
import warnings

from torchstone.schema import Case, decode, encode, tensors_of
from torchstone.suites.torch_probe import Answer, Question

_MOST_ANSWER_SECONDS = 60
"""Longest time for one answer in seconds. If it takes longer, SIGALRM ends the process."""


def main() -> None:
    """Fork a process that answers questions, and another one whenever it dies, until there are no more questions."""
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
    warnings.simplefilter("ignore")  # such as "degrees of freedom <= 0": NaN is then the defined result
    for line in sys.stdin.buffer:
        signal.alarm(_MOST_ANSWER_SECONDS)
        answer = _answer_to(decode(line, Question))
        signal.alarm(0)
        sys.stdout.buffer.write(encode(answer) + b"\n")
        sys.stdout.buffer.flush()


def _answer_to(question: Question) -> Answer:
    """The answer to one question; None if torch refuses the case."""
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
    """Whether torch's decomposition of the operator refuses the case, or gives results of other shapes.

    Some of torch's kernels do not check the shapes of their arguments and read beyond them. The decomposition into
    other operators does check. Pointwise operators are left out, because all of them check shapes.
    """
    import torch
    from torch._decomp import decomposition_table

    from torchstone import operators
    from torchstone.calls.draw_arguments import draw_call
    from torchstone.calls.reference_calls import OPERATOR_ERRORS, Evaluator

    overload = operators.resolve(case.operator)
    decomposed = decomposition_table.get(overload)
    if decomposed is None or operators.traits(case.operator).pointwise or len(tensors_of(case)) < 2:
        return False
    call = draw_call(case, seed, torch.device("cpu"))
    first = Evaluator(case, torch.device("cpu")).call_on_arithmetic_device(
        [tensor.view.clone() for tensor in call.tensors], case
    )
    try:
        found = operators.flatten_outputs(decomposed(*call.args, **call.kwargs))
    except (*OPERATOR_ERRORS, AssertionError):
        return True
    return [getattr(leaf, "shape", None) for leaf in first] != [getattr(leaf, "shape", None) for leaf in found]


def _is_consistent(case: Case, seed: int) -> bool:
    """Whether torch gives the same for strided arguments: its fast and slow code may differ on special values."""
    import torch

    from torchstone.calls.draw_arguments import draw_call
    from torchstone.calls.reference_calls import Evaluator
    from torchstone.judging.compare.agreement import compare
    from torchstone.judging.comparison_result import Agreement
    from torchstone.judging.reference.case_reference import Reference

    cpu = torch.device("cpu")
    call = draw_call(case, seed, cpu)
    expected = Reference(case, cpu).expect(call)
    strided = [torch.stack([tensor.view, tensor.view], dim=-1)[..., 0] for tensor in call.tensors]
    outputs = Evaluator(case, cpu).call_on_arithmetic_device(strided, case)
    return isinstance(compare(expected, outputs, [tensor.storage for tensor in call.tensors]), Agreement)


if __name__ == "__main__":
    main()
