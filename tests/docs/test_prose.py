"""tools/prose.py finds what it forbids, where it stands, and lets plain text pass."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import prose
from docs.pages import ROOT

PLAIN = "The kernel returns a new tensor. The judge compares it with the reference.\n"
LONG = " ".join(["word"] * 26) + ".\n"


def report(folder: Path, name: str, text: str) -> prose.FileReport:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return prose.report_on(path, folder)


def test_plain_text_has_no_finding(tmp_path: Path) -> None:
    found = report(
        tmp_path, "docs/page.md", f"# Title\n\n{PLAIN}\n- {PLAIN}\n| a | b |\n| --- | --- |\n| c | {PLAIN.strip()} |\n"
    )
    assert (found.sentences, found.long, found.others) == (9, [], [])


@pytest.mark.parametrize("phrase", ["Whoever", "a number that\nis none", "borne   out"])
def test_a_banned_phrase_is_found_across_lines_and_in_any_case(tmp_path: Path, phrase: str) -> None:
    (finding,) = report(tmp_path, "docs/page.md", f"{PLAIN}\nIt is {phrase} here.\n").others
    assert str(finding).startswith("docs/page.md:3: banned phrase:")


def test_a_banned_phrase_is_found_in_comments_and_messages(tmp_path: Path) -> None:
    source = "# Of what becomes\n# of it.\nraise ValueError('whoever calls')\n"
    assert [f.line for f in report(tmp_path, "src/torchstone/a.py", source.replace("Of what", "What")).others] == [1, 3]


def test_long_sentences_are_counted_in_pages_and_docstrings(tmp_path: Path) -> None:
    (page,) = report(tmp_path, "docs/page.md", f"{PLAIN}\n{LONG}").long
    source = f'"""{PLAIN}"""\n\nclass A:\n    size: int\n    """{PLAIN}\n\n    {LONG}    """\n'
    (docstring,) = report(tmp_path, "src/torchstone/a.py", source).long
    assert (page.line, docstring.line) == (3, 9)


def test_code_and_links_do_not_make_a_sentence_long(tmp_path: Path) -> None:
    text = f"See `{LONG.strip()}` and [this](https://{'x/' * 30}).\n\n```sh\n{LONG}```\n"
    assert not report(tmp_path, "docs/page.md", text).long


def test_an_abbreviation_ends_no_sentence() -> None:
    assert prose.Paragraph(1, "Some dtypes, e.g. Half, are fine. Others are not.").sentences() == [
        "Some dtypes, e.g. Half, are fine.",
        "Others are not.",
    ]


def test_a_paragraph_may_not_be_long_but_a_list_may(tmp_path: Path) -> None:
    (finding,) = report(tmp_path, "docs/page.md", PLAIN * 10).others
    assert "words in a paragraph" in finding.rule
    assert not report(tmp_path, "docs/list.md", f"- {PLAIN}" * 20).others


def test_two_percent_of_long_sentences_are_allowed_and_more_are_not(tmp_path: Path) -> None:
    allowed = report(tmp_path, "docs/a.md", f"- {PLAIN}" * 49 + f"- {LONG}" * 2)
    assert not list(prose.broken_rules([allowed]))
    broken = list(prose.broken_rules([allowed, report(tmp_path, "docs/b.md", LONG)]))
    assert len(broken) == 4
    assert broken[-1].startswith("3 of 101 sentences")


def test_the_findings_of_one_room_can_be_listed(tmp_path: Path) -> None:
    one = report(tmp_path, "src/torchstone/judging/plans/a.py", f'"""{LONG}"""\n# whoever\n')
    assert one.room == "judging"
    assert len(one.long) == len(one.others) == 1


def test_the_project_passes() -> None:
    done = subprocess.run([sys.executable, "tools/prose.py"], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout
