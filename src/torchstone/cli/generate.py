"""``torchstone generate``: a model writes kernels, is told what the judge found, and writes again."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from torchstone.cli.earlier_runs import merged
from torchstone.cli.lazy import LazyGroup
from torchstone.cli.model_options import model_options, price_of
from torchstone.cli.option_groups import GroupedCommand, GroupedOption, option
from torchstone.cli.parameters import NumberRange, split_commas
from torchstone.cli.run import deadlines_of, limits_of
from torchstone.cli.run import run as run_command

if TYPE_CHECKING:
    from torchstone.generation import GenerationRequest, GenerationResult
    from torchstone.schema.generation import Attempt

GENERATE_COMMANDS = {
    "report": ("torchstone.cli.generate_report:report", "Scores of runs: pass@k, speed, tokens, kinds of failure."),
}
"""Name -> import path of the command, and its line in the help."""

_WHAT, _MODEL, _ASKING, _WHERE, _LIMITS, _OUTPUT = GROUPS = (
    "What to write",
    "Which model, and for how much",
    "Asking",
    "Where to judge, and how",
    "Limits of kernels",
    "Output",
)
_GROUP_OF_SHARED_OPTION = {
    "dtypes": _WHAT,
    "source": _WHAT,
    "largest": _WHAT,
    "sample": _WHAT,
    "mode": _WHAT,
    "device": _WHERE,
    "threads": _WHERE,
    "judges": _WHERE,
    "shapes": _WHERE,
    "non_finite": _WHERE,
    "require_authored_kernel": _WHERE,
    "load_timeout": _LIMITS,
    "compile_timeout": _LIMITS,
    "check_timeout": _LIMITS,
    "measure_timeout": _LIMITS,
    "timeout_multiplier": _LIMITS,
    "memory_limit": _LIMITS,
    "scratch_limit": _LIMITS,
    "process_limit": _LIMITS,
}
"""Option with the same meaning as in `run` -> the group in which this command's help shows it."""


class _GenerateGroup(GroupedCommand, LazyGroup):
    """A command group that shows its own options under headings."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_options(ctx, formatter)
        self.format_commands(ctx, formatter)


@click.group(
    cls=_GenerateGroup,
    groups=GROUPS,
    commands_at=GENERATE_COMMANDS,
    invoke_without_command=True,
    short_help="Let a model write kernels and tell it what the judge found.",
)
@option("--suite", group=_WHAT, metavar="NAME", default="smoke", show_default=True, help="Where the cases come from.")
@option("--ops", group=_WHAT, multiple=True, metavar="NAMES", help="Operators, comma separated: add,aten.relu.default.")
@model_options(_MODEL, ("--max-attempts", "--llm-max-attempts"), 5)
@option(
    "--target-speedup",
    group=_MODEL,
    type=NumberRange(min=0, min_open=True),
    metavar="X",
    help="Go on until the lower end of the speedup reaches X; without it a right kernel is enough.",
)
@option(
    "--feedback-tokens",
    group=_ASKING,
    type=click.IntRange(min=1),
    metavar="N",
    default=1500,
    show_default=True,
    help="Longest feedback on one attempt.",
)
@option(
    "--feedback-profile", group=_ASKING, is_flag=True, help="Add to the feedback on a right kernel where its time goes."
)
@option(
    "--retries",
    group=_ASKING,
    type=click.IntRange(min=0),
    metavar="N",
    default=5,
    show_default=True,
    help="Further tries after a failure that may pass; waits double, and Retry-After is honoured.",
)
@option(
    "--request-timeout",
    "request_timeout_seconds",
    group=_ASKING,
    type=NumberRange(min=0, min_open=True),
    metavar="SECONDS",
    default=600.0,
    show_default=True,
    help="Limit for one whole reply.",
)
@option(
    "--max-output-tokens",
    group=_ASKING,
    type=click.IntRange(min=1),
    metavar="N",
    default=16_000,
    show_default=True,
    help="Longest reply, reasoning included.",
)
@option(
    "--temperature",
    group=_ASKING,
    type=NumberRange(min=0),
    metavar="X",
    help="For servers that take one; default: the model's own.",
)
@option("--no-stream", group=_ASKING, is_flag=True, help="Take replies in one piece.")
@option(
    "--effort",
    group=_WHERE,
    type=click.Choice(["quick", "normal", "thorough"]),
    default="quick",
    show_default=True,
    help="How thoroughly attempts are judged.",
)
@option(
    "--isolation",
    group=_WHERE,
    type=click.Choice(["strict", "best"]),
    default="best",
    show_default=True,
    help="Isolation layers around a kernel: all, or those that the machine offers.",
)
@option(
    "--output-dir",
    group=_OUTPUT,
    type=click.Path(path_type=Path),
    default=Path("generated_kernels"),
    show_default=True,
    help="Where run folders are made.",
)
@option("--run-id", group=_OUTPUT, help="Name of the run's folder; default: run_YYYYMMDD_HHMMSS.")
@option(
    "--resume", group=_OUTPUT, is_flag=True, help="Continue the run of that id, or the newest one, with its options."
)
@option("--quiet", group=_OUTPUT, is_flag=True, help="No progress and no summary, only the closing line.")
@option("-v", "--verbose", group=_OUTPUT, is_flag=True, help="One line for each attempt, on stderr.")
@option("--json", "as_json", group=_OUTPUT, is_flag=True, help="One JSON object on stdout, nothing else.")
@click.pass_context
def generate(context: click.Context, /, **given: Any) -> int:
    """A model writes a kernel for each operator of a suite. The judge says what is wrong or slow, and it writes again.

    Keys are read from ANTHROPIC_API_KEY or OPENAI_API_KEY. Kernels run only in the judge's sandbox.
    """
    if context.invoked_subcommand is not None:
        return 0
    result = generated(_request(given), quiet=given["quiet"], verbose=given["verbose"])
    code = exit_code(result)
    _print_result(result, code, as_json=given["as_json"], quiet=given["quiet"])
    return code


def _add_options_of_run() -> None:
    shared = {parameter.name: parameter for parameter in run_command.params}
    for name, group in _GROUP_OF_SHARED_OPTION.items():
        parameter = copy.copy(shared[name])
        assert isinstance(parameter, GroupedOption)
        parameter.group = group
        generate.params.append(parameter)


_add_options_of_run()


def generated(
    request: GenerationRequest, *, quiet: bool, verbose: bool = False, begun: Callable[[Path], None] | None = None
) -> GenerationResult:
    """Carry out the request, with progress on stderr. ``begun`` gets the run folder before the first request."""
    from torchstone.cli.progress import Counting, watching_any
    from torchstone.generation import generate as carry_out

    counting: Counting[Attempt | None] = Counting("attempt", "made", "generating", _status, _counts_text, _attempt_line)
    with watching_any(sys.stderr, quiet, counting, verbose) as observer:
        return carry_out(request, observer, begun=begun)


def _request(given: Mapping[str, Any]) -> GenerationRequest:
    from torchstone.generation import GenerationRequest

    fields: dict[str, Any] = {
        **{name: given[name] for name in GenerationRequest.__struct_fields__ if name in given},
        "operators": split_commas(given["ops"]),
        "dtypes": split_commas(given["dtypes"]),
        "stream": not given["no_stream"],
        "require_authored": given["require_authored_kernel"],
        "price": price_of(given),
        "deadlines": deadlines_of(given),
        "limits": limits_of(given),
        "command": tuple(click.get_current_context().obj or ()),
    }
    return GenerationRequest(**(with_remembered(fields, given) if given["resume"] else fields))


def with_remembered(fields: dict[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Fields with options that are given now take precedence over those of the resumed run, and these over defaults."""
    from torchstone.generation.request import remembered
    from torchstone.generation.run_folder import newest_generation
    from torchstone.runs.folder import MANIFEST, read_manifest, unknown_run

    folder = fields["output_dir"] / fields["run_id"] if fields["run_id"] else newest_generation(fields["output_dir"])
    if not folder.is_dir():
        raise unknown_run(folder.name, folder.parent)
    fields = {**fields, "run_id": folder.name}
    if not (folder / MANIFEST).exists():
        return fields
    earlier = remembered(read_manifest(folder).configuration)
    found = merged(fields, earlier)
    if given["prices"] is not None:  # the model whose price counts may be that of the resumed run
        found["price"] = price_of({**given, "model": found["model"]}) or earlier.get("price")
    return found


def _status(attempt: Attempt | None) -> str:
    from torchstone.schema.generation import Judged, NoCode

    if attempt is None:
        return "not needed"
    if attempt.right:
        return "right"
    return "wrong" if isinstance(attempt.outcome, (Judged, NoCode)) else "without a reply or verdict"


def _counts_text(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {status}" for status, count in counts.items()) or "none yet"


def _attempt_line(attempt: Attempt | None) -> str:
    from torchstone.generation.operator_task import outcome_text

    return (
        "an attempt is not needed"
        if attempt is None
        else f"{attempt.operator} attempt {attempt.number}: {outcome_text(attempt)}"
    )


def exit_code(result: GenerationResult) -> int:
    """0: every operator has a right kernel; 1: some have none."""
    from torchstone.cli import INTERRUPTED

    if result.interrupted:
        return INTERRUPTED
    return 0 if result.all_right else 1


def _print_result(result: GenerationResult, code: int, *, as_json: bool, quiet: bool) -> None:
    from torchstone.generation.summary import SUMMARY
    from torchstone.schema import encode

    right, total = len(result.right_operators), len(result.run.folders)
    if as_json:
        told = {
            "run_folder": str(result.folder),
            "interrupted": result.interrupted,
            "stopped_by_budget": result.spent or None,
            "exit_code": code,
            "operators": total,
            "right_operators": list(result.right_operators),
            "usage": result.usage,
            "attempts": result.attempts,
        }
        click.echo(encode(told).decode())
        return
    if not quiet:
        click.echo((result.folder / SUMMARY).read_text())
    click.echo(f"{right} of {total} operators have a right kernel, in {result.folder}")
    if result.interrupted:
        _print_resuming_command(result)


def _print_resuming_command(result: GenerationResult) -> None:
    from torchstone.generation.run import resuming_command

    click.echo(f"interrupted; go on with: {resuming_command(result.folder)}", err=True)
