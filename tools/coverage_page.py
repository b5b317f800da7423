"""Writes docs/coverage.md: what each suite covers on this machine, and what it leaves out and why.

python tools/coverage_page.py docs/coverage.md smoke opinfo:float32 cuda/opinfo:bfloat16 torchbench=calls.parquet
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from torchstone import registry
from torchstone.suites import CaseQuery, left_out, select_cases

HEAD = """# Coverage

Operators and cases of each suite, by device and dtype. Below, what each leaves out, with the number of calls and the
reason. Written by `python tools/coverage_page.py`; torch {torch}.

| suite | device | dtype | operators | cases | timed | tell little, and say why | left out |
| --- | --- | --- | --- | --- | --- | --- | --- |
"""


def main() -> None:
    from importlib.metadata import version

    page, *wanted = sys.argv[1:]
    rows, lists = [], []
    for word in wanted:
        name, _, source = word.partition("=")
        device, _, name = name.rpartition("/")
        name, _, dtype = name.partition(":")
        dtypes = (dtype,) if dtype else None
        query = CaseQuery(dtypes=dtypes, source=source or None, device_type=device or "cpu")
        suite = registry.suites.factory(name)()
        cases, missing = select_cases(name, suite, query), left_out(suite, query)
        marked = sum(bool(case.indistinct) for case in cases)
        counts = len({case.operator for case in cases}), len(cases), sum(case.timed for case in cases), marked
        shown = [name, query.device_type, dtype or "its own", *map(str, counts), str(sum(missing.values()))]
        rows.append(f"| {' | '.join(shown)} |")
        lists.append(_section(name, query.device_type, dtype, missing, Counter(c.indistinct for c in cases)))
    text = HEAD.format(torch=version("torch").partition("+")[0]) + "\n".join(rows) + "\n" + "".join(lists)
    Path(page).write_text(text, encoding="utf-8")


def _section(name: str, device: str, dtype: str, missing: Mapping[str, int], marks: Counter[str]) -> str:
    title = " ".join(filter(None, (name, "on", device, dtype)))
    lines = [f"\n## {title}\n"]
    lines += ["\nLeft out:\n\n", *(f"- {count}: {reason}\n" for reason, count in missing.items())] if missing else []
    told = [(reason, count) for reason, count in marks.most_common() if reason]
    lines += ["\nTell little:\n\n", *(f"- {count}: {reason}\n" for reason, count in told)] if told else []
    return "".join(lines) if len(lines) > 1 else f"\n## {title}\n\nNothing is left out.\n"


if __name__ == "__main__":
    main()
