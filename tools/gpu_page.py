"""Writes the figures of benchmarks/on_device.py into docs/gpu-benchmarks.md.

python tools/gpu_page.py results/results-1.json results/results-2.json

A line that was measured again replaces its earlier row. A line that was left out or not run changes nothing.
So figures of several calls, or of several days, stand in one table, each with its machine and date.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

PAGE = Path(__file__).resolve().parents[1] / "docs" / "gpu-benchmarks.md"
BEGINNING, END = "<!-- figures -->\n", "<!-- end of figures -->\n"
COLUMNS = ("line", "issue", "what", "wanted", "measured", "met", "machine and date")
WORDS = {True: "yes", False: "**no**", None: "–"}


def main() -> int:
    """Merge the files into the page."""
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(with_figures(page, (json.loads(Path(name).read_text()) for name in sys.argv[1:])), encoding="utf-8")
    return 0


def with_figures(page: str, results: Iterable[Mapping[str, Any]]) -> str:
    """The page with the rows that it has and those of these results."""
    before, rest = page.split(BEGINNING)
    table, after = rest.split(END)
    rows = _rows(table)
    for told in results:
        where = f"{told.get('machine') or told['device']}, {told.get('date') or 'no date'}"
        for line in told["lines"]:
            if "command" in line:
                rows[line["name"]] = _row(line, where)
    heads = f"| {' | '.join(COLUMNS)} |\n{'| --- ' * len(COLUMNS)}|\n"
    return before + BEGINNING + heads + "".join(rows.values()) + END + after


def _rows(table: str) -> dict[str, str]:
    """By the name of the line."""
    lines = table.splitlines(keepends=True)[2:]
    return {line.split("|")[1].strip(): line for line in lines if line.startswith("|")}


def _row(line: Mapping[str, Any], where: str) -> str:
    cells = (line["name"], line["issue"], line["what"], line["wanted"], line["measured"], WORDS[line["met"]], where)
    return "| " + " | ".join(str(cell).replace("|", "/").replace("\n", " ") for cell in cells) + " |\n"


if __name__ == "__main__":
    sys.exit(main())
