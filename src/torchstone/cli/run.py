"""``torchstone run``: judges the kernels of a backend, which says where they come from, on a suite of cases."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from torchstone.cli.earlier_runs import NothingFailed, with_earlier
from torchstone.cli.model_options import model_options
from torchstone.cli.option_groups import GroupedCommand, option
from torchstone.cli.parameters import (
    NumberRange,
    case_of,
    case_options,
    report_options,
    size_in_bytes,
    split_commas,
    timeout_options,
)

if TYPE_CHECKING:
    from torchstone.reports import RunReport
    from torchstone.runs import RunRequest, RunResult
    from torchstone.schema import Deadlines, Limits

_POSITIVE_NUMBER = NumberRange(min=0, min_open=True)
GENERATED = "llm"
"""Name of the backend whose kernels a model writes before they are judged."""


_WHAT, _KERNELS, _WHERE, _THOROUGHLY, _LIMITS, _OUTPUT, _MODEL = GROUPS = (
    "What to judge",
    "Which kernels",
    "Where",
    "How thoroughly",
    "Limits",
    "Output",
    "Generation, with --backend llm",
)


@click.command(cls=GroupedCommand, groups=GROUPS, short_help="Judge a backend's kernels on a suite of cases.")
@option(
    "--suite",
    group=_WHAT,
    metavar="NAME",
    show_default="smoke",
    help="Where the cases come from; see 'torchstone list suites'.",
)
@option("--ops", group=_WHAT, multiple=True, metavar="NAMES", help="Operators, comma separated: add,aten.relu.default.")
@option(
    "-k",
    "expression",
    group=_WHAT,
    metavar="EXPR",
    help="Only cases whose operator or arguments contain the words: 'relu and not bf16'.",
)
@option(
    "--dtype",
    "dtypes",
    group=_WHAT,
    multiple=True,
    metavar="NAMES",
    help="float32,bf16 …; default: the suite's choice.",
)
@option(
    "--mode",
    group=_WHAT,
    type=click.Choice(["fwd", "bwd", "fwd+bwd"]),
    default="fwd",
    show_default=True,
    help="Judge results, results with gradients, or both.",
)
@option(
    "--last-failed",
    group=_WHAT,
    metavar="RUN",
    help="Only the cases that failed in this run folder or run id, with its options.",
)
@option("--case", group=_WHAT, callback=case_of, metavar="JSON|@FILE", help="Judge on this case instead of a suite's.")
@case_options(_WHAT)
@option(
    "--backend",
    "backends",
    group=_KERNELS,
    multiple=True,
    metavar="NAMES",
    default=("aten",),
    show_default="aten",
    help="Where the kernels come from ('torchstone list backends'); several, comma separated, are compared.",
)
@option(
    "--kernels-dir",
    group=_KERNELS,
    type=click.Path(path_type=Path),
    help="Folder of kernels, for backends that read one.",
)
@option(
    "--require-authored-kernel",
    group=_KERNELS,
    is_flag=True,
    help="Refuse kernels in which torch or a library does the work.",
)
@option("--device", group=_WHERE, default="auto", show_default=True, help="auto, cpu, cuda or cuda:N.")
@option(
    "--threads",
    group=_WHERE,
    type=click.IntRange(min=1),
    metavar="N",
    default=1,
    show_default=True,
    help="CPU threads of each side.",
)
@option(
    "--judges",
    "--num-workers",
    "judges",
    group=_WHERE,
    type=click.IntRange(min=1),
    metavar="N",
    default=1,
    show_default=True,
    help="Judges that share a device.",
)
@option(
    "--isolation",
    group=_WHERE,
    type=click.Choice(["strict", "best", "none"]),
    default="best",
    show_default=True,
    help="Isolation layers around a kernel: all, those that the machine offers, or none.",
)
@option(
    "--executor",
    group=_WHERE,
    metavar="NAME",
    default="local",
    show_default=True,
    help="Where the jobs run: local, ray or modal.",
)
@option(
    "--ray-address",
    group=_WHERE,
    metavar="ADDRESS",
    default="auto",
    show_default=True,
    help="Of the Ray cluster, for --executor ray.",
)
@option("--gpu", group=_WHERE, metavar="TYPE", help="GPU type for --executor ray and modal: T4, H100 …")
@option(
    "--results",
    group=_WHERE,
    type=click.Choice(["read", "copied"]),
    default="read",
    show_default=True,
    help="copied: do without reading results in the kernel's memory, and without CUDA IPC.",
)
@option(
    "--effort",
    group=_THOROUGHLY,
    type=click.Choice(["quick", "normal", "thorough"]),
    default="normal",
    show_default=True,
    help="How many calls are checked, and how long is measured.",
)
@option("--no-measure", group=_THOROUGHLY, is_flag=True, help="Check only, time nothing.")
@option("-x", "--fail-fast", group=_THOROUGHLY, is_flag=True, help="Stop after the first case that is not right.")
@option(
    "--try-every-case",
    group=_LIMITS,
    is_flag=True,
    help="Go on with a kernel of which two cases timed out in the same stage.",
)
@option(
    "--cache",
    group=_THOROUGHLY,
    type=click.Choice(["cold", "warm"]),
    default="cold",
    show_default=True,
    help="Cache state before a timed call.",
)
@option(
    "--shapes",
    group=_THOROUGHLY,
    type=click.Choice(["near", "stated"]),
    default="near",
    show_default=True,
    help="stated: only the sizes and memory layouts of the suite.",
)
@option(
    "--non-finite",
    group=_THOROUGHLY,
    type=click.Choice(["check", "ignore"]),
    default="check",
    show_default=True,
    help="Whether pointwise operators also get NaN and infinities.",
)
@option(
    "--baseline",
    group=_THOROUGHLY,
    type=click.Choice(["eager", "compile"]),
    default="eager",
    show_default=True,
    help="What speed is compared with: torch as it stands, or torch.compile.",
)
@timeout_options(_LIMITS)
@option(
    "--memory-limit",
    group=_LIMITS,
    callback=size_in_bytes,
    metavar="SIZE",
    help="Memory of a kernel's processes; default: 8GiB.",
)
@option(
    "--scratch-limit",
    group=_LIMITS,
    callback=size_in_bytes,
    metavar="SIZE",
    help="Files that a kernel may write; default: 2GiB.",
)
@option(
    "--process-limit",
    group=_LIMITS,
    type=click.IntRange(min=1),
    metavar="N",
    help="Processes that a kernel may start; default: 256.",
)
@option(
    "--output-dir",
    group=_OUTPUT,
    type=click.Path(path_type=Path),
    default=Path("torchstone_runs"),
    show_default=True,
    help="Where run folders are made.",
)
@option("--run-id", group=_OUTPUT, help="Name of the run's folder; default: from the time.")
@option(
    "--resume",
    group=_OUTPUT,
    is_flag=True,
    help="Continue the run of that id, or the newest unfinished one, with its options.",
)
@option("--quiet", group=_OUTPUT, is_flag=True, help="No progress and no tables, only the closing line.")
@option("--json", "as_json", group=_OUTPUT, is_flag=True, help="One JSON object on stdout, nothing else.")
@option("--fail-on-missing", group=_OUTPUT, is_flag=True, help="Exit 1 if the backend lacks an operator.")
@option(
    "--p",
    group=_OUTPUT,
    type=_POSITIVE_NUMBER,
    metavar="X",
    default=1.0,
    show_default=True,
    help="The p of perf@p: share of operators faster than this.",
)
@option("-v", "--verbose", group=_OUTPUT, is_flag=True, help="One line for each case as it is judged, on stderr.")
@report_options(_OUTPUT)
@model_options(_MODEL, ("--llm-max-attempts",), None)
def run(**given: Any) -> int:
    """Judge a backend's kernels on a suite of cases, and keep every result in a run folder."""
    from torchstone.cli.exit_codes import exit_code
    from torchstone.cli.progress import watching
    from torchstone.reports import make_report
    from torchstone.runs import execute

    try:
        request = _request(given)
    except NothingFailed as answer:
        return _print_nothing_failed(str(answer), as_json=given["as_json"])
    if GENERATED in request.backends:
        from torchstone.cli import INTERRUPTED
        from torchstone.cli.run_with_llm import with_generated

        kernels = with_generated(request, given)
        if kernels is None:
            return INTERRUPTED
        request = kernels
    with watching(sys.stderr, quiet=given["quiet"], verbose=given["verbose"]) as observer:
        if request.isolation == "none":
            observer.warned(
                "--isolation none: kernels run with your rights on this machine. Judge only code you trust."
            )
        result = execute(request, observer, partial(make_report, p=given["p"]))
    code = exit_code(result.report.summary, result.interrupted, given["fail_on_missing"])
    _print_result(result, code, given)
    return code


_BACKENDS_WITHOUT_FOLDER = frozenset({"aten", "compile", "flag_gems", "liger", "torchstone-triton", "torchstone-cuda"})
"""Backends that do not read a folder of kernels."""


def _refuse_ignored_options(given: dict[str, Any]) -> None:
    """Raise UsageError for options that have no effect without another one.

    Otherwise a run that judges PyTorch instead of the user's kernels would look like success.
    """
    backends = set(split_commas(given["backends"]) or ())
    if (
        given["kernels_dir"] is not None
        and backends <= _BACKENDS_WITHOUT_FOLDER
        and not (given["resume"] or given["last_failed"])
    ):
        raise click.UsageError(f"backend '{', '.join(sorted(backends))}' reads no folder. Add --backend directory.")
    if given["model"] is not None and GENERATED not in backends and not given["resume"]:
        raise click.UsageError("--model needs a backend that asks a model. Add --backend llm.")
    if given["gpu"] and given["executor"] == "local":
        raise click.UsageError("--gpu chooses a type of GPU elsewhere. Add --executor ray or modal, or use --device.")


def _request(given: dict[str, Any]) -> RunRequest:
    from torchstone.runs import RunRequest

    if given["case"] is not None and given["suite"] is not None:
        raise click.UsageError("--case is judged instead of a suite. Leave out --suite, or --case.")
    if given["quiet"] and given["verbose"]:
        raise click.UsageError("give --quiet or --verbose, not both.")
    _refuse_ignored_options(given)
    fields = dict(
        command=click.get_current_context().obj or (),
        backend=split_commas(given["backends"]) or (),
        operators=split_commas(given["ops"]),
        dtypes=split_commas(given["dtypes"]),
        measured=not given["no_measure"],
        require_authored=given["require_authored_kernel"],
        deadlines=deadlines_of(given),
        limits=limits_of(given),
        suite=(given["suite"] or "smoke") if given["case"] is None else given["case"].suite,
        **{name: given[name] for name in ("case", "kernels_dir", "device", "effort", "run_id", "resume")},
        **{name: given[name] for name in ("expression", "fail_fast", "shapes", "non_finite", "try_every_case")},
        **{name: given[name] for name in ("source", "largest", "sample", "overhead_dominated", "mode", "baseline")},
        **{name: given[name] for name in ("output_dir", "isolation", "executor", "threads", "cache", "judges")},
        gpu=given["gpu"] or "",
        **{name: given[name] for name in ("ray_address", "results")},
    )
    return RunRequest(**with_earlier(fields, given))


def limits_of(given: Mapping[str, Any]) -> Limits:
    """The limits of a worker, from the options."""
    from torchstone.schema import Limits

    options = {"memory_bytes": "memory_limit", "scratch_bytes": "scratch_limit", "processes": "process_limit"}
    return Limits(**{name: given[option] for name, option in options.items() if given[option] is not None})


def deadlines_of(given: Mapping[str, Any], defaults: Deadlines | None = None) -> Deadlines:
    """The deadlines of the stages, from the options; ``defaults`` for stages without one."""
    from torchstone.schema import Deadlines

    default_deadlines = defaults or Deadlines()
    seconds = {
        f"{stage}_seconds": given[f"{stage}_timeout"] or getattr(default_deadlines, f"{stage}_seconds")
        for stage in ("load", "compile", "check", "measure")
    }
    return Deadlines(**{name: value * given["timeout_multiplier"] for name, value in seconds.items()})


def _print_result(result: RunResult[RunReport], code: int, given: dict[str, Any]) -> None:
    from torchstone.cli.output import print_json, print_report, write_junit
    from torchstone.reports.safe_text import counted
    from torchstone.runs.folder import resuming_command

    report, folder, durations = result.report, result.folder, given["durations"]
    if given["junit"] is not None:
        write_junit(report, given["junit"])
    if given["as_json"]:
        stopped_early = result.left_by_fail_fast > 0
        endings = {"interrupted": result.interrupted, "stopped_early": stopped_early, "exit_code": code}
        print_json(report, folder, durations=durations, **endings)
    else:
        print_report(report, folder, quiet=given["quiet"], wide=given["wide"], durations=durations)
    resuming = resuming_command(folder)
    if result.interrupted:
        click.echo(f"interrupted; go on with: {resuming}", err=True)
    elif result.left_by_fail_fast:
        why = f"stopped early (-x): {counted(result.left_by_fail_fast, 'case')} not judged"
        click.echo(f"{why}; go on with: {resuming}", err=True)


def _print_nothing_failed(message: str, *, as_json: bool) -> int:
    from torchstone.cli.exit_codes import ALL_AGREE
    from torchstone.schema import encode

    click.echo(encode({"exit_code": ALL_AGREE, "message": message}).decode() if as_json else message)
    return ALL_AGREE
