"""What a person reads about a failure, word for word: of one case, and of a replay.

Rendered by the real functions from fixed values.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import msgspec
import pytest
import torch

from golden import require_golden
from torchstone.calls.draw_arguments import calls_on
from torchstone.cli.replay import told
from torchstone.judge_process.verdict_wording import about_inputs, on_variant, replay_of, verdict_for_ending
from torchstone.judging import DrawnCall, ExpectedValues, ResultPosition
from torchstone.judging.compare.values import Subject, closer_look
from torchstone.judging.comparison_result import Mismatch
from torchstone.reports import evaluate
from torchstone.reports.detail import details
from torchstone.runs.replay import NothingFailed, Replayable, Replayed
from torchstone.schema import (
    Case,
    Crashed,
    Disagrees,
    Implementation,
    Isolation,
    Normal,
    Record,
    Replay,
    Scalar,
    Sequence,
    SourceFile,
    SourceFiles,
    Tensor,
    TimedOut,
    Verdict,
)

CPU = torch.device("cpu")
KERNEL = Implementation("directory", "aten.add.Tensor", SourceFiles((SourceFile("add.py", ""),), "add", "add.py"))
ADD = Case("smoke", "aten.add.Tensor", (Tensor((2, 3), "float32", Normal()), Tensor((3,), "float32", Normal())))
SUM = Case("smoke", "aten.sum.dim_IntList", (Tensor((2, 3), "float32", Normal()), Sequence((Scalar(1),))))
TRACE = """Traceback (most recent call last):
  File "/usr/lib/python3/site-packages/torchstone/worker/command_loop.py", line 226, in serve
    reply: Reply = self._answer(command, descriptor)
                   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "/scratch/kernel/add.py", line 12, in add_kernel_impl
    raise ValueError(f"block of {n} elements")
ValueError: block of 0 elements
"""
LOG = "tuning\x1b[2J for 6 elements\ncalled\ncalled\ncalled\n"


def call_of(case: Case, *values: list[float]) -> DrawnCall:
    return calls_on(case, [torch.tensor([each]) for each in values], 7, 1, CPU)[0]


def disagreement(call: DrawnCall, right: torch.Tensor, got: torch.Tensor, bound: float) -> Disagrees:
    """As the judge words it, for a bound that is the same for every element."""
    exact = right.double()
    values = ExpectedValues(right, exact, torch.full_like(exact, bound))
    found = closer_look(Subject(call, ResultPosition("output", 0), values, got))
    assert isinstance(found, Mismatch)
    replay = replay_of(call)
    return Disagrees("check", found.reason, found.message + about_inputs(replay, call.case), found.errors, replay)


def wrong_by_one_ulp() -> Disagrees:
    call = call_of(ADD, [0.5, 1.0, 1.5, 2.0, 2.5, 3.0], [0.25, 0.5, 1.0])
    right = call.args[0] + call.args[1]
    got = right.clone()
    got[1, 1] = torch.nextafter(got[1, 1], torch.tensor(9.0))
    return msgspec.structs.replace(disagreement(call, right, got, 1e-7), stage="compile")


def wrong_on_planted_values() -> Disagrees:
    call = call_of(ADD, [0.5, 1.0, 1.5, 2.0, -96.5, 3.0], [0.25, 0.5, 1.0])
    right = call.args[0] + call.args[1]
    found = disagreement(call, right, right.clamp(min=-64.0), 2e-5)
    assert found.replay is not None
    replay = msgspec.structs.replace(found.replay, planted="hundreds")
    return msgspec.structs.replace(found, message=found.message + about_inputs(replay, ADD), replay=replay)


def wrong_on_a_variant() -> Verdict:
    variant = Case(
        "smoke", SUM.operator, (Tensor((2, 2), "float32", Normal(), (1, 2), 3), SUM.args[1]), tags=("hidden",)
    )
    call = call_of(variant, [0.0, 0.0, 0.0, 1.5, -2.0, 0.25, 4.0])
    right = call.args[0].sum(1)
    return on_variant(disagreement(call, right, right.new_tensor([float("nan"), 2.0]), 3e-7), SUM, variant)


VERDICTS: dict[str, tuple[Case, Verdict, str]] = {
    "one ulp, first call": (ADD, wrong_by_one_ulp(), ""),
    "planted values": (ADD, wrong_on_planted_values(), ""),
    "variant": (SUM, wrong_on_a_variant(), ""),
    "raised": (
        ADD,
        Crashed("compile", "exception", "ValueError: block of 0 elements", TRACE, replay=Replay(ADD, 7)),
        LOG,
    ),
    "died": (ADD, verdict_for_ending("check", None, 11), "Fatal Python error: Segmentation fault\n"),
    "failed at load": (ADD, Crashed("load", "exception", "ModuleNotFoundError: No module named 'blocks'", TRACE), ""),
    "too slow": (ADD, TimedOut("compile", 120.0, 120.02), ""),
}


def record(case: Case, verdict: Verdict, log: str) -> Record:
    return Record(
        "0123456789abcdef0123", case, KERNEL.reference, verdict, "manifest", "cpu", Isolation("best"), log_tail=log
    )


def rendered(width: int) -> str:
    """All texts, each under its name."""
    parts = []
    for name, each in VERDICTS.items():
        parts += [f"== show --case: {name}", details(evaluate([record(*each)]), width)]
    for name, (case, verdict, log) in VERDICTS.items():
        call = getattr(verdict, "replay", None) or Replay(case, 0)
        source = Replayable(record(case, verdict, log), KERNEL, call)
        saved = Path("case-1.pt") if isinstance(verdict, Disagrees) else None
        parts += [f"== replay: {name}", told(Replayed(source, verdict, log, saved), width)]
    parts += ["== replay of a run without failures", str(NothingFailed(Counter(agrees=5)))]
    return "\n\n".join(parts) + "\n"


@pytest.mark.parametrize("width", [80, 140])
def test_what_is_said_about_failures_is_what_was_agreed_on(width: int) -> None:
    require_golden(f"failed_case_{width}", rendered(width))
