"""Makes the text of a generation run's summary files: metadata.txt, OVERALL_SUMMARY.txt, README.md."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path

from torchstone.generation.budget import added
from torchstone.generation.operator_task import outcome_text
from torchstone.generation.request import GenerationRequest
from torchstone.generation.strategies import best_of
from torchstone.schema import Manifest, is_model
from torchstone.schema.generation import Attempt, GenerationRun, Judged, Usage

SUMMARY, METADATA, README = "OVERALL_SUMMARY.txt", "metadata.txt", "README.md"

_README = """# Kernels written by {model}

Made by `torchstone generate`. One folder per operator of suite `{suite}`, {attempts} in {dsl} at most.

| file | content |
| --- | --- |
| `OVERALL_SUMMARY.txt` | what came of each operator |
| `metadata.txt`, `manifest.json` | model, options, versions, hardware |
| `records.jsonl` | one line per attempt |
| `relu/relu_attempt_1{suffix}` | the code of an attempt |
| `relu/relu_attempt_1.records.jsonl` | its records, one per case |
| `relu/best.json` | the attempt that counts: right, then fastest |
| `relu/transcript.md`, `relu/transcript.jsonl` | what was asked and answered |

1. Judge the best attempts: `{judging}`
2. Scores: `{report}`
3. Go on after an interruption: `{resuming}`
4. Judge the recorded replies again, without asking a model: `{replaying}`

The code was written by a model. Read it before you use it outside the sandbox.
"""


def readme_text(
    run: GenerationRun, folder: Path, suffix: str, resuming: str, operators: Sequence[str] | None = None
) -> str:
    """The text of README.md: how to use the folder.

    ``resuming`` is the command that resumes the run. ``operators`` are those that the user named; None: all of the
    suite.
    """
    attempts = "1 attempt" if run.max_attempts == 1 else f"{run.max_attempts} attempts"
    return _README.format(
        model=run.model,
        judging=_judging_command(run, folder, operators),
        suite=run.suite,
        dsl=run.dsl,
        attempts=attempts,
        report=shlex.join(["torchstone", "generate", "report", str(folder)]),
        resuming=resuming,
        replaying=_replaying_command(run, folder),
        suffix=suffix,
    )


def _judging_command(run: GenerationRun, folder: Path, operators: Sequence[str] | None) -> str:
    """The command that judges the best attempts of a run again, on the cases of the same operators and device."""
    cases = ["--suite", run.suite, *(["--source", run.source] if run.source else [])]
    cases += [*(["--ops", ",".join(operators)] if operators else []), "--device", run.device]
    mode = ["--mode", run.mode] if run.mode != "fwd" else []
    backend = "kernelbench" if any(map(is_model, run.folders)) else "directory"
    return shlex.join(["torchstone", "run", *cases, *mode, "--backend", backend, "--kernels-dir", str(folder)])


def _replaying_command(run: GenerationRun, folder: Path) -> str:
    """The command that judges the recorded replies again. It leaves out options that have their default value."""
    defaults = GenerationRequest()
    given = ["--replay", str(folder), "--suite", run.suite, *(["--source", run.source] if run.source else [])]
    given += ["--dsl", run.dsl, *(["--mode", run.mode] if run.mode != defaults.mode else [])]
    given += ["--strategy", run.strategy] if run.strategy != defaults.strategy else []
    given += ["--max-attempts", str(run.max_attempts)] if run.max_attempts != defaults.max_attempts else []
    return shlex.join(["torchstone", "generate", *given])


def metadata_text(run: GenerationRun, manifest: Manifest, command: Sequence[str]) -> str:
    """The text of metadata.txt: the run's model, options, hardware and versions, one `name: value` per line."""
    started = datetime.fromtimestamp(run.started_unix_ns / 1e9).astimezone().isoformat(timespec="seconds")
    packages = manifest.software.packages
    lines = {
        "started": started,
        "command": shlex.join(command) or "Python API",
        "provider": run.provider,
        "model": run.model,
        "language": run.dsl,
        "strategy": run.strategy,
        "max attempts": str(run.max_attempts),
        "suite": run.suite,
        "mode": run.mode,
        "operators": str(len(run.folders)),
        "device": run.device,
        "effort": run.effort,
        "processor": manifest.hardware.cpu,
        "gpus": ", ".join(gpu.name for gpu in manifest.hardware.gpus) or "none",
        "torchstone": manifest.software.torchstone,
        "torch": packages.get("torch", "not installed"),
        "triton": packages.get("triton", "not installed"),
    }
    return "".join(f"{name}: {value}\n" for name, value in lines.items())


def total_usage(attempts: Sequence[Attempt]) -> Usage:
    """The usage of all attempts. Its cost is known if the cost of each attempt with tokens is."""
    total = Usage()
    for attempt in attempts:
        total = added(total, attempt.usage)
    costs = [attempt.usage.cost_usd for attempt in attempts if attempt.usage.tokens]
    known = [cost for cost in costs if cost is not None]
    cost = sum(known) if known and len(known) == len(costs) else None
    return Usage(total.input_tokens, total.output_tokens, total.cached_input_tokens, cost)


def summary_text(run: GenerationRun, name: str, attempts: Sequence[Attempt], note: str = "") -> str:
    """The text of OVERALL_SUMMARY.txt: counts, then a line for each operator in the order of folder names."""
    by_operator: Mapping[str, list[Attempt]] = {operator: [] for operator in run.folders}
    for attempt in attempts:
        by_operator.get(attempt.operator, []).append(attempt)
    right = sum(any(attempt.right for attempt in own) for own in by_operator.values())
    usage = total_usage(attempts)
    cost = "unknown" if usage.cost_usd is None else f"${usage.cost_usd:.4f}"
    lines = [
        f"Run {name}: {run.model} ({run.provider}) writes {run.dsl} for suite {run.suite}, strategy {run.strategy}",
        f"Operators: {len(by_operator)}, with a right kernel: {right}{_without_own_code(by_operator)}",
        f"Attempts: {len(attempts)}, requests: {sum(attempt.requests for attempt in attempts)}",
        f"Tokens: {usage.input_tokens} in, {usage.output_tokens} out; cost: {cost}",
        *([note] if note else []),
        "",
        *_table(run, by_operator),
    ]
    return "\n".join(lines) + "\n"


def _without_own_code(by_operator: Mapping[str, list[Attempt]]) -> str:
    """The number of right operators whose right attempts are all torch's work, as a text; empty: there is none."""
    right = [[each.outcome for each in own if each.right] for own in by_operator.values()]
    count = sum(
        bool(own) and all(isinstance(each, Judged) and each.authorship == "torch" for each in own) for own in right
    )
    return f", of which {count} without code of their own (torch or a library does the work)" if count else ""


def _table(run: GenerationRun, by_operator: Mapping[str, list[Attempt]]) -> Iterator[str]:
    rows = [("operator", "folder", "attempts", "best", "outcome of the best attempt")]
    for operator, folder in sorted(run.folders.items(), key=lambda item: item[1]):
        own = by_operator[operator]
        best = best_of(own) or (own[-1] if own else None)
        best_outcome = "no attempt yet" if best is None else outcome_text(best)
        rows.append((operator, folder, str(len(own)), "" if best is None else str(best.number), best_outcome))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
