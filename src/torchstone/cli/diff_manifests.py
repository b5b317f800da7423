"""``torchstone diff-manifests``: shows how two runs differ in hardware, software, git state and configuration."""

from __future__ import annotations

from pathlib import Path

import click


@click.command("diff-manifests", short_help="Show what differs between two runs' circumstances.")
@click.argument("before", type=click.Path(path_type=Path))
@click.argument("after", type=click.Path(path_type=Path))
def diff_manifests(before: Path, after: Path) -> int:
    """Show every field that differs between two run folders, run ids or manifest files.

    Exits 1 if any does, like diff.
    """
    from torchstone.reports.safe_text import one_line
    from torchstone.runs import read_manifest
    from torchstone.runs.earlier import named_run
    from torchstone.schema import difference

    changed = difference(read_manifest(named_run(before)), read_manifest(named_run(after)))
    for field, (old, new) in changed.items():
        click.echo(one_line(f"{field}: {old} -> {new}", limit=1000))
    return 1 if changed else 0
