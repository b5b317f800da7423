"""Asking torch about cases, in a process that may die of the question.

Not every operator of ATen checks its arguments: called in a way that it does not expect, some end the process. So
what is not known to be a valid call is made elsewhere: ``python -m torchstone.suites.oracle`` imports torch once and
answers one question per line; when a question kills the answering process, another is forked at once.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import warnings
from types import TracebackType
from typing import Literal

import msgspec

from torchstone.errors import InfrastructureError
from torchstone.schema import Case, decode, encode, tensors_of

_SECONDS = 60
"""For one answer; then it counts as one that killed the process."""

Kind = Literal["takes", "share_of_nan", "defines", "excuse"]
Answer = bool | float | str | None


class Question(msgspec.Struct, frozen=True):
    """About one case, with the values of one seed."""

    kind: Kind
    case: Case
    seed: int = 0


class Oracle:
    """The asking side. Starts the process when it is entered."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Oracle:
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "torchstone.suites.oracle"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.communicate()
            self._process = None

    def takes(self, case: Case, seed: int = 0) -> bool:
        """Whether torch takes the case, with values as they come and with every index as large as it may be."""
        return self._ask("takes", case, seed) is True

    def share_of_nan(self, case: Case, seed: int = 0) -> float:
        """In the results of one call."""
        share = self._ask("share_of_nan", case, seed)
        return share if isinstance(share, float) else 1.0

    def defines(self, case: Case, seed: int = 0) -> bool:
        """Whether torch gives the same, as far as the judge can tell, if the values lie apart in memory."""
        return self._ask("defines", case, seed) is True

    def excuse(self, case: Case) -> str:
        """Why the case may not tell a trivial kernel from a right one."""
        return str(self._ask("excuse", case, 0) or "")

    def _ask(self, kind: Kind, case: Case, seed: int) -> Answer:
        """None: there is no answer, because torch refuses the case or dies of it."""
        assert self._process is not None, "an oracle is entered before it is asked"
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(encode(Question(kind, case, seed)) + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # said below
        line = self._process.stdout.readline()
        if not line:
            raise InfrastructureError("the process that asks torch about cases ended. Is torch installed here?")
        return decode(line, Answer)  # type: ignore[arg-type]


# ---- the answering side


def main() -> None:
    """Fork a process that answers, and another whenever it dies, until there is nobody to ask."""
    import torch
    import torch._decomp
    import torch._refs

    import torchstone.judging
    import torchstone.suites.fitting  # noqa: F401 - before forking, so that each fork has it

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

    from torchstone.errors import UsageError
    from torchstone.judging.evaluation import OPERATOR_ERRORS, ReferenceFailure
    from torchstone.judging.jitter import is_valid
    from torchstone.suites.fitting import excuse, share_of_nan

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

    Some kernels do not look at the shapes of their arguments and read beyond them. What torch has written down of the
    same operator in terms of others does look. Pointwise operators are left out: they all check alike.
    """
    import torch
    from torch._decomp import decomposition_table

    from torchstone import operators
    from torchstone.judging.evaluation import OPERATOR_ERRORS, Evaluator
    from torchstone.judging.inputs import draw_call

    overload = operators.resolve(case.operator)
    second = decomposition_table.get(overload)
    if second is None or torch.Tag.pointwise in overload.tags or len(tensors_of(case)) < 2:
        return False
    call = draw_call(case, seed, torch.device("cpu"))
    first = Evaluator(case, torch.device("cpu")).on([tensor.view.clone() for tensor in call.tensors], case)
    try:
        found = operators.flatten_outputs(second(*call.args, **call.kwargs))
    except (*OPERATOR_ERRORS, AssertionError):
        return True
    return [getattr(leaf, "shape", None) for leaf in first] != [getattr(leaf, "shape", None) for leaf in found]


def _is_consistent(case: Case, seed: int) -> bool:
    """torch's fast code and its slow code may differ on special values; what agrees with itself is defined."""
    import torch

    from torchstone.judging.agreement import compare
    from torchstone.judging.evaluation import Evaluator
    from torchstone.judging.inputs import draw_call
    from torchstone.judging.outcome import Agreement
    from torchstone.judging.reference import Reference

    cpu = torch.device("cpu")
    call = draw_call(case, seed, cpu)
    expected = Reference(case, cpu).expect(call)
    apart = [torch.stack([tensor.view, tensor.view], dim=-1)[..., 0] for tensor in call.tensors]
    outputs = Evaluator(case, cpu).on(apart, case)
    return isinstance(compare(expected, outputs, [tensor.storage for tensor in call.tensors]), Agreement)


if __name__ == "__main__":
    main()
