"""``torchstone pairs list``: lists the pairs of benchmark files that a run would find, without running them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from torchstone.cli.parameters import split_commas

if TYPE_CHECKING:
    from torchstone.harness.discovery import Discovery, Pair


@click.command("list", short_help="Show the pairs under a folder, and every file that is in none.")
@click.argument("root", type=click.Path(path_type=Path), default=".")
@click.option("--targets", multiple=True, metavar="NAMES", help="Only these: ch13, ch13:moe, 'ch*:moe*'.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout, nothing else.")
def list_pairs(root: Path, targets: tuple[str, ...], as_json: bool) -> int:
    """Show every pair under ROOT, and every benchmark file that could not be paired or read, with the reason."""
    from torchstone.harness.discovery import discover
    from torchstone.harness.target_patterns import select_pairs
    from torchstone.schema import encode

    found = discover(root)
    chosen = select_pairs(found.pairs, split_commas(targets))
    if as_json:
        pairs = [{"name": pair.name, **_told(pair, found.root)} for pair in chosen]
        click.echo(encode({"root": str(found.root), "pairs": pairs, "problems": found.problems}))
    else:
        _print(chosen, found)
    return 0


def _told(pair: Pair, root: Path) -> dict[str, str]:
    return {
        "chapter": pair.chapter,
        "example": pair.example,
        "variant": pair.variant,
        "baseline": pair.baseline.relative_to(root).as_posix(),
        "optimized": pair.optimized.relative_to(root).as_posix(),
    }


def _print(chosen: tuple[Pair, ...], found: Discovery) -> None:
    import sys

    from rich.text import Text

    from torchstone.reports.console import make_console, make_table, print_table
    from torchstone.reports.safe_text import one_line

    console = make_console(sys.stdout)
    if chosen:
        table = make_table(console, "Pairs")
        for name in ("chapter", "example", "baseline", "optimized"):
            table.add_column(name, overflow="fold")
        for pair in chosen:
            cells = (pair.chapter, pair.short_name, pair.baseline.name, pair.optimized.name)
            table.add_row(*(Text(one_line(cell)) for cell in cells))
        print_table(console, table)
        console.print()
    if found.problems:
        table = make_table(console, "Files in no pair, or with an error")
        table.add_column("file", overflow="fold")
        table.add_column("reason", overflow="fold")
        for problem in found.problems:
            table.add_row(Text(one_line(problem.path)), Text(one_line(problem.reason)))
        print_table(console, table)
        console.print()
    chapters = len({pair.chapter for pair in chosen})
    counts = f"{len(chosen)} pairs in {chapters} chapters, {len(found.problems)} files in no pair or with an error"
    console.print(counts, soft_wrap=True)
