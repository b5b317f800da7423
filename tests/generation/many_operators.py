"""A run of generation over 100 operators, judged by a fake: what faults of servers do to it. Also a program."""

from __future__ import annotations

import os
import re
import sys
import time
from pathlib import Path

import torch

from torchstone import registry
from torchstone.api import Judge
from torchstone.executors import FakeExecutor
from torchstone.generation import GenerationRequest, GenerationResult, generate
from torchstone.generation.run import GenerationPlan
from torchstone.schema import Agrees, Case, Disagrees, ErrorStatistics, Job, Normal, SourceFiles, Tensor, Verdict
from torchstone.schema.generation import Attempt
from torchstone.suites import ListedSuite

JUDGING_SECONDS = 0.02
"""For each kernel, one after another."""
_SIGNATURE = re.compile(r"aten::(\w+)\(Tensor self\) -> Tensor")


def unary_operators(count: int) -> list[str]:
    """Operators of torch that take one tensor and return a new one."""
    names = [name for name in sorted(dir(torch.ops.aten)) if not name.startswith("_")]
    found = []
    for name in names:
        packet = getattr(torch.ops.aten, name)
        overloads = packet.overloads() if hasattr(packet, "overloads") else []
        if "default" in overloads and _SIGNATURE.fullmatch(str(packet.default._schema)):
            found.append(f"aten.{name}.default")
    return found[:count]


def script(messages: list[dict[str, str]]) -> str:
    """The first kernel of an operator is wrong, the next is right. No memory but the conversation."""
    entry = re.search(r"def (\w+_kernel_impl)\(", messages[0]["content"])
    assert entry is not None
    worth = "right" if len(messages) > 1 else "wrong"
    return f"```python\nimport torch\n\n\ndef {entry[1]}(self):  # {worth}\n    return self\n```\n"


def decide(job: Job) -> Verdict:
    time.sleep(JUDGING_SECONDS)
    assert isinstance(job.implementation.origin, SourceFiles)
    if "# right" in job.implementation.origin.files[0].text:
        return Agrees(ErrorStatistics(), 1)
    return Disagrees("check", "values", "output 0 differs")


class Watcher:
    """Prints what happens, for whoever started the program."""

    def planned(self, plan: GenerationPlan, folder: Path) -> None:
        print("planned", plan.total, len(plan.done), flush=True)

    def recorded(self, record: Attempt | None) -> None:
        print("made" if record else "not needed", flush=True)

    def warned(self, message: str) -> None:
        print("warning", message, flush=True)


def run(folder: Path, url: str, *, operators: int = 100, resume: bool = False) -> GenerationResult:
    """Generate for so many operators with the server at this address."""
    cases = [Case("many", name, (Tensor((4,), "float32", Normal()),)) for name in unary_operators(operators)]
    registry.suites = registry.Registry("suite", {"many": f"{__name__}:_suite"})
    globals()["_suite"] = lambda: ListedSuite(cases)
    os.environ["OPENAI_API_KEY"] = "sk-many-SECRET"
    request = GenerationRequest(
        suite="many",
        provider="openai",
        model="scripted",
        base_url=f"{url}/v1",
        dsl="pytorch",
        device="cpu",
        concurrency=16,
        retries=8,
        request_timeout_seconds=5,
        output_dir=folder,
        run_id="many",
        resume=resume,
    )
    executor = FakeExecutor(decide)
    return generate(
        request,
        Watcher(),
        judge=lambda request, device: Judge(device=device, executor=executor),
        required_layers=frozenset(),
    )


if __name__ == "__main__":
    sys.modules["generation.many_operators"] = sys.modules["__main__"]
    run(Path(sys.argv[1]), sys.argv[2], resume=len(sys.argv) > 3)
