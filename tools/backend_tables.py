"""Writes docs/backends-measured.md: what backends cover, get right and how fast they are, from run folders.

python tools/backend_tables.py docs/backends-measured.md HEAD.md "Title=run_folder" …
"""

from __future__ import annotations

import sys
import textwrap
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

from torchstone.measuring import timing
from torchstone.schema import Agrees, Missing, Record, decode, explain, verdict_name

_MOST_CHARACTERS = 150


def main() -> None:
    page, head, *wanted = sys.argv[1:]
    parts = [Path(head).read_text(encoding="utf-8").rstrip() + "\n"]
    for word in wanted:
        title, _, folder = word.partition("=")
        lines = Path(folder, "records.jsonl").read_text(encoding="utf-8").splitlines()
        records = [decode(line.encode(), Record) for line in lines]
        parts.append(f"\n## {title}\n\n{_summary(records)}\n")
        parts += [*_speeds(records), *_wrongs(records)]
    Path(page).write_text("".join(parts), encoding="utf-8")


def _summary(records: list[Record]) -> str:
    by_operator: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        by_operator[record.case.operator].append(record)
    missing = [name for name, found in by_operator.items() if all(isinstance(r.verdict, Missing) for r in found)]
    right = [name for name, found in by_operator.items() if all(isinstance(r.verdict, Agrees) for r in found)]
    counts = Counter(verdict_name(record.verdict) for record in records)
    told = ", ".join(f"{number} {name}" for name, number in counts.most_common())
    offered = len(by_operator) - len(missing)
    lines = [f"{len(records)} cases of {len(by_operator)} operators: {told}."]
    if missing:
        lines.append(f"Offered: {offered} operators, of which {len(right)} are right in every case.")
    if not any(record.measurement for record in records):
        names = textwrap.fill(", ".join(sorted(_short(name) for name in right)), 116, break_long_words=False)
        lines.append(f"Right in every case:\n\n```text\n{names}\n```")
    return " ".join(lines)


def _speeds(records: list[Record]) -> Iterator[str]:
    timed = [record for record in records if record.measurement is not None]
    if not timed:
        return
    yield "\n| operator | arguments | torch | speedup, 95 % | |\n| --- | --- | --- | --- | --- |\n"
    for record in sorted(timed, key=lambda each: each.case.operator):
        assert record.measurement is not None
        found = timing(record.measurement)
        speed = found.speedup
        shown = f"{speed.ratio:.2f}x ({speed.low:.2f} to {speed.high:.2f})" if speed else "–"
        word = speed.outcome if speed else found.unresolved
        name, arguments = _short(record.case.operator), _cut(record.case.label, 60)
        yield f"| {name} | {arguments} | {found.reference_ns / 1e3:.1f} µs | {shown} | {word} |\n"


def _wrongs(records: list[Record]) -> Iterator[str]:
    wrong = [record for record in records if not isinstance(record.verdict, Agrees | Missing)]
    if not wrong:
        return
    yield "\n| operator | verdict | why |\n| --- | --- | --- |\n"
    for record in sorted(wrong, key=lambda each: each.case.operator):
        why = _cut(explain(record.verdict), _MOST_CHARACTERS)
        yield f"| {_short(record.case.operator)} | {verdict_name(record.verdict)} | {why} |\n"


def _short(operator: str) -> str:
    return operator.removeprefix("aten.").removesuffix(".default")


def _cut(text: str, most: int) -> str:
    text = " ".join(text.split()).replace("|", "\\|")
    return text if len(text) <= most else text[: most - 1] + "…"


if __name__ == "__main__":
    main()
