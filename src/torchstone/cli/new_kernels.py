"""``torchstone new-kernels``: writes a folder of kernel stubs, one for each operator of a suite."""

from __future__ import annotations

from pathlib import Path

import click

from torchstone.cli.parameters import split_commas


@click.command("new-kernels", short_help="Write a folder of stubs for a suite's operators.")
@click.option("--suite", default="smoke", show_default=True, help="Suite whose operators get stubs.")
@click.option("--ops", multiple=True, metavar="NAMES", help="Operators, comma separated: add,aten.relu.default.")
@click.option("--dir", "folder", type=click.Path(path_type=Path), required=True, help="Folder to write to.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout, nothing else.")
def new_kernels(suite: str, ops: tuple[str, ...], folder: Path, as_json: bool) -> int:
    """Write a folder of stubs, one per operator of a suite, in the layout that the backend 'directory' reads.

    Each describes what its operator computes and how the suite will call it. Files that are there are never changed.
    """
    from torchstone import registry
    from torchstone.errors import UsageError
    from torchstone.installing.stubs import write_stubs
    from torchstone.reports.safe_text import counted
    from torchstone.schema import encode
    from torchstone.suites import CaseQuery

    cases = tuple(registry.suites.factory(suite)().cases(CaseQuery(split_commas(ops))))
    if not cases:
        raise UsageError(f"suite '{suite}' has no such operator. See 'torchstone list operators --suite {suite}'.")
    done = write_stubs(cases, suite, folder)
    if as_json:
        click.echo(encode(done).decode())
        return 0
    for path in done.written:
        click.echo(folder / path)
    for operator in done.kept:
        click.echo(f"notice: {operator} has a kernel there already; it is left as it is", err=True)
    written, kept = counted(len(done.written), "stub"), counted(len(done.kept), "operator")
    click.echo(f"{written} written, {kept} left alone; go on with {folder}/README.md")
    return 0
