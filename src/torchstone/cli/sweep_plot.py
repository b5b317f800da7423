"""``torchstone sweep plot``: the charts of a sweep as SVG, PNG and one HTML page that works offline."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from torchstone.cli.parameters import split_commas
from torchstone.plots import CHARTS, FORMATS

if TYPE_CHECKING:
    from torchstone.plots.style import TopLevel

_PAGE = "index.html"


@click.command(short_help="Draw the results of a sweep: SVG, PNG, and an HTML page.")
@click.argument("results", type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "--output-dir",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("benchmark_plots"),
    show_default=True,
    help="Folder for the files; it is made if it is not there.",
)
@click.option(
    "--format",
    "formats",
    default=",".join(FORMATS),
    show_default=True,
    metavar="NAMES",
    help="Comma separated. html is one page with all charts.",
)
@click.option(
    "--only",
    metavar="NAMES",
    help=f"Only these charts, comma separated: {', '.join(CHARTS)}.",
)
def plot(results: Path, output_dir: Path, formats: str, only: str | None) -> int:
    """Draw charts of RESULTS, the file that a sweep wrote (benchmark_results.json)."""
    from torchstone.plots import require_libraries

    kinds = _known_names("format", formats, FORMATS)
    wanted = CHARTS if only is None else _known_names("chart", only, CHARTS)
    require_libraries()
    from torchstone.plots.sweep_charts import sweep_charts
    from torchstone.sweeps.output import journal_path
    from torchstone.sweeps.read_results import read_records, read_rows

    rows, records = read_rows(results), read_records(results)
    if not records:
        click.echo(f"note: there is no {journal_path(results)}: no roofline and no name of the device", err=True)
    charts = sweep_charts(rows, records, wanted)
    _report_missing_charts(wanted, charts)
    for path in _write(charts, kinds, output_dir, results.name):
        click.echo(str(path))
    return 0


def _known_names(kind: str, text: str, names: Sequence[str]) -> tuple[str, ...]:
    from torchstone.errors import unknown_name

    asked = tuple(name.lower() for name in split_commas((text,)) or ())
    for name in asked:
        if name not in names:
            raise unknown_name(kind, name, names)
    return asked


def _report_missing_charts(wanted: Iterable[str], charts: Collection[str]) -> None:
    """Report the charts for which the rows have no figures. Raises UsageError if no chart can be drawn."""
    from torchstone.errors import UsageError

    missing = [name for name in wanted if not any(drawn.split("-")[0] == name for drawn in charts)]
    if not charts:
        raise UsageError(f"there is nothing to draw: the rows have no figures for {', '.join(missing)}.")
    if missing:
        click.echo(f"note: not drawn, for the rows have no figures for it: {', '.join(missing)}", err=True)


def _write(charts: dict[str, TopLevel], kinds: Sequence[str], folder: Path, title: str) -> Iterable[Path]:
    """Write the charts. Yields the path of each file after it is written."""
    from torchstone.cli.output import write_file
    from torchstone.errors import UsageError
    from torchstone.plots import rendering

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot make the folder '{folder}': {error.strerror}.") from error
    renderers = {kind: render for kind, render in rendering.RENDERERS.items() if kind in kinds}
    for name, chart in charts.items():
        for kind, render in renderers.items():
            path = folder / f"{name}.{kind}"
            write_file(path, render(chart))
            yield path
    if "html" in kinds:
        write_file(folder / _PAGE, rendering.html_page(charts, f"Sweep: {title}"))
        yield folder / _PAGE
