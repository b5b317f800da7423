"""``torchstone show``: show the results of a run folder again, computed from its records."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from torchstone.cli.parameters import NumberRange, report_options

if TYPE_CHECKING:
    from torchstone.reports import RunReport


def _picture_file(context: click.Context, parameter: click.Parameter, value: Path | None) -> Path | None:
    if value is not None and value.suffix.lower() not in (".svg", ".png"):
        raise click.BadParameter(f"'{value}' does not end in .svg or .png.", context, parameter)
    return value


@click.command(short_help="Show the results of a run folder again.")
@click.argument("run_folder", type=click.Path(path_type=Path))
@click.option(
    "--p",
    type=NumberRange(min=0, min_open=True),
    default=1.0,
    show_default=True,
    help="The p of perf@p: share of operators faster than this.",
)
@click.option(
    "--roofline",
    callback=_picture_file,
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE.svg",
    help="Also write a plot of the timed cases under the ceilings of their device (.svg or .png; extra plots).",
)
@click.option(
    "--case",
    "case_text",
    metavar="TEXT",
    help="Everything about the cases whose operator and arguments contain this, or of this job key.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout, nothing else.")
@report_options()
def show(
    run_folder: Path,
    p: float,
    roofline: Path | None,
    case_text: str | None,
    as_json: bool,
    junit: Path | None,
    **how: Any,
) -> int:
    """Show the results of a run folder or run id again: of a finished run, a stopped one, or one still going on."""
    from torchstone.cli.output import print_json, print_report, write_junit
    from torchstone.reports import make_report
    from torchstone.reports.safe_text import one_line
    from torchstone.runs import read_run
    from torchstone.runs.earlier import named_run

    run_folder = named_run(run_folder)
    stored = read_run(run_folder)
    for problem in stored.problems if as_json or case_text is not None else ():  # the tables list them otherwise
        click.echo(f"warning: {one_line(f'{problem.where}: {problem.reason}', limit=1000)}", err=True)
    if stored.note:
        click.echo(f"warning: {stored.note}", err=True)
    report = make_report(stored.records, stored.problems, stored.description, p)
    if junit is not None:
        write_junit(report, junit)
    if roofline is not None:
        _write_roofline(report, roofline)
    if case_text is not None:
        _print_cases(report, run_folder, case_text, as_json)
    elif as_json:
        print_json(report, run_folder, durations=how["durations"])
    else:
        print_report(report, run_folder, **how)
    return 0


def _print_cases(report: RunReport, run_folder: Path, text: str, as_json: bool) -> None:
    from torchstone.cli.output import terminal_width
    from torchstone.errors import UsageError
    from torchstone.reports.detail import details, matching
    from torchstone.reports.safe_text import one_line
    from torchstone.schema import encode

    found = matching(report.results, text)
    if not found:
        raise UsageError(f"no case of this run contains '{text}'. Operators: {one_line(_some_operators(report))}.")
    if as_json:
        click.echo(encode({"run_folder": str(run_folder), "records": [item.record for item in found]}))
    else:
        click.echo(details(found, terminal_width()))


def _some_operators(report: RunReport) -> str:
    names = [item.operator for item in report.summary.operators]
    return ", ".join(names[:10]) + (" …" if len(names) > 10 else "")


def _write_roofline(report: RunReport, path: Path) -> None:
    """Write the chart. If the plotting libraries are missing, warn: the tables are still shown."""
    from torchstone.cli.output import write_file
    from torchstone.errors import MissingExtraError, UsageError
    from torchstone.reports.roofline import roofline_chart

    try:
        chart = roofline_chart(report.results)
    except MissingExtraError as error:
        click.echo(f"warning: {path} is not written: {error}", err=True)
        return
    if chart is None:
        raise UsageError("there is nothing to plot: no timed case of this run has a resolved time and a known limit.")
    from torchstone.plots.rendering import RENDERERS

    write_file(path, RENDERERS[path.suffix.lower().removeprefix(".")](chart))
