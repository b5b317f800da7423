"""``torchstone run``: judge a backend's kernels on a suite."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from torchstone.cli.parameters import case_of, case_options, size_in_bytes, split_commas

if TYPE_CHECKING:
    from torchstone.reports import RunReport
    from torchstone.runs import RunRequest, RunResult

_SECONDS = click.FloatRange(min=0, min_open=True)


@click.command(short_help="Judge a backend's kernels on a suite of cases.")
@click.option("--suite", show_default="smoke", help="Where the cases come from.")
@click.option("--case", callback=case_of, metavar="JSON|@FILE", help="Judge on this case instead of a suite's.")
@click.option("--backend", default="aten", show_default=True, help="Where the kernels come from.")
@click.option("--ops", multiple=True, metavar="NAMES", help="Operators, comma separated: add,aten.relu.default.")
@click.option("--kernels-dir", type=click.Path(path_type=Path), help="Folder of kernels, for backends that read one.")
@click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda or cuda:N.")
@click.option("--dtype", "dtypes", multiple=True, metavar="NAMES", help="float32,bf16 …; the suite's choice otherwise.")
@case_options
@click.option(
    "--mode",
    type=click.Choice(["fwd", "bwd", "fwd+bwd"]),
    default="fwd",
    show_default=True,
    help="Judge results, results with gradients, or both.",
)
@click.option("--effort", type=click.Choice(["quick", "normal", "thorough"]), default="normal", show_default=True)
@click.option(
    "--cache", type=click.Choice(["cold", "warm"]), default="cold", show_default=True, help="For timed calls."
)
@click.option(
    "--shapes",
    type=click.Choice(["near", "stated"]),
    default="near",
    show_default=True,
    help="stated: no other sizes and layouts than the suite's, for kernels made for these.",
)
@click.option(
    "--non-finite",
    type=click.Choice(["check", "ignore"]),
    default="check",
    show_default=True,
    help="NaN and infinities among the inputs of pointwise operators.",
)
@click.option("--run-id", help="Name of the run's folder; made from the time otherwise.")
@click.option("--resume", is_flag=True, help="Go on with the run of that id, keeping what it has.")
@click.option("--output-dir", type=click.Path(path_type=Path), default=Path("torchstone_runs"), show_default=True)
@click.option("--isolation", type=click.Choice(["strict", "best", "none"]), default="best", show_default=True)
@click.option("--executor", default="local", show_default=True, help="Where the jobs run.")
@click.option("--threads", type=click.IntRange(min=1), default=1, show_default=True, help="CPU threads of each side.")
@click.option("--judges", type=click.IntRange(min=1), default=1, show_default=True, help="How many share a device.")
@click.option("--no-measure", is_flag=True, help="Check only, time nothing.")
@click.option("--require-authored-kernel", is_flag=True, help="Work that torch or a library does is not the kernel's.")
@click.option("--load-timeout", type=_SECONDS, metavar="SECONDS", help="For importing a kernel.")
@click.option("--compile-timeout", type=_SECONDS, metavar="SECONDS", help="For a case's first call.")
@click.option("--check-timeout", type=_SECONDS, metavar="SECONDS", help="For checking a case.")
@click.option("--measure-timeout", type=_SECONDS, metavar="SECONDS", help="For timing a case.")
@click.option("--timeout-multiplier", type=_SECONDS, default=1.0, metavar="X", help="Stretches all four.")
@click.option("--memory-limit", callback=size_in_bytes, metavar="SIZE", help="Memory of a kernel's processes: 8GiB.")
@click.option("--scratch-limit", callback=size_in_bytes, metavar="SIZE", help="Files a kernel may write: 2GiB.")
@click.option("--process-limit", type=click.IntRange(min=1), metavar="N", help="Processes a kernel may start: 256.")
@click.option("--p", type=_SECONDS, default=1.0, show_default=True, help="Speedup that perf@p asks for.")
@click.option("--fail-on-missing", is_flag=True, help="Exit 1 if the backend lacks an operator.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout, nothing else.")
@click.option("--quiet", is_flag=True, help="No progress and no tables, only the closing line.")
def run(**given: Any) -> int:
    """Judge a backend's kernels on a suite of cases, and keep every result in a run folder."""
    from torchstone.cli.exit_codes import exit_code
    from torchstone.cli.progress import watching
    from torchstone.reports import make_report
    from torchstone.runs import execute

    request = _request(given)
    with watching(sys.stderr, quiet=given["quiet"]) as observer:
        if request.isolation == "none":
            observer.warned(
                "--isolation none: kernels run with your rights on this machine. Judge only code you trust."
            )
        result = execute(request, observer, partial(make_report, p=given["p"]))
    code = exit_code(result.report.summary, result.interrupted, given["fail_on_missing"])
    _tell(result, code, as_json=given["as_json"], quiet=given["quiet"])
    return code


def _request(given: dict[str, Any]) -> RunRequest:
    from torchstone.runs import RunRequest
    from torchstone.schema import Limits

    if given["case"] is not None and given["suite"] is not None:
        raise click.UsageError("--case is judged instead of a suite. Leave out --suite, or --case.")
    limits = {"memory_bytes": "memory_limit", "scratch_bytes": "scratch_limit", "processes": "process_limit"}
    return RunRequest(
        operators=split_commas(given["ops"]),
        dtypes=split_commas(given["dtypes"]),
        measured=not given["no_measure"],
        require_authored=given["require_authored_kernel"],
        deadlines=_deadlines(given),
        limits=Limits(**{name: given[option] for name, option in limits.items() if given[option] is not None}),
        suite=(given["suite"] or "smoke") if given["case"] is None else given["case"].suite,
        **{name: given[name] for name in ("case", "backend", "kernels_dir", "device", "effort", "run_id", "resume")},
        **{name: given[name] for name in ("shapes", "non_finite")},
        **{name: given[name] for name in ("source", "largest", "sample", "overhead_dominated", "mode")},
        **{name: given[name] for name in ("output_dir", "isolation", "executor", "threads", "cache", "judges")},
    )


def _deadlines(given: dict[str, Any]) -> Any:
    from torchstone.schema import Deadlines

    usual = Deadlines()
    seconds = {
        f"{stage}_seconds": given[f"{stage}_timeout"] or getattr(usual, f"{stage}_seconds")
        for stage in ("load", "compile", "check", "measure")
    }
    return Deadlines(**{name: value * given["timeout_multiplier"] for name, value in seconds.items()})


def _tell(result: RunResult[RunReport], code: int, *, as_json: bool, quiet: bool) -> None:
    from torchstone.cli.output import print_json, print_report

    if as_json:
        print_json(result.report, result.folder, interrupted=result.interrupted, exit_code=code)
    else:
        print_report(result.report, result.folder, quiet=quiet)
    if result.interrupted:
        more = f"interrupted; go on with --resume --run-id {result.folder.name}"
        click.echo(more, err=True)
