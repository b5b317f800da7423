"""Checks that documentation and docstrings are plain technical English; part of ``make check``.

python tools/prose.py             the check: findings as file:line, exit 1 if there are any
python tools/prose.py --report    also how many findings each file has
python tools/prose.py --room NAME also every finding of one room of the package

Three rules:

- no phrase of ``BANNED`` stands in a page, a docstring, a comment or a message;
- at most ``MOST_LONG`` of all sentences in pages and docstrings have more than ``LONG_SENTENCE`` words;
- no paragraph has more than ``LONG_PARAGRAPH`` words.
"""

from __future__ import annotations

import ast
import re
import sys
from argparse import ArgumentParser
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from inspect import cleandoc
from pathlib import Path

LONG_SENTENCE = 25
"""Words of the longest sentence that is not counted as long. An inline code span is one word."""

MOST_LONG = 0.02
"""Largest share of long sentences, over all files together."""

LONG_PARAGRAPH = 120
"""Words of the longest paragraph. A list item, a table cell and a docstring's paragraph are paragraphs."""

BANNED = {
    "a number that is none": "NaN",
    "who is careful": "name the kernel and what it does",
    "whoever": "the kernel, the candidate or the user",
    "who asks": "the caller",
    "what is said": "name the text",
    "what was said": "name the text",
    "what is told": "name what is reported",
    "and that is said": "is reported",
    "its like": "name the class of things",
    "and its kin": "name the members",
    "and their kin": "name the members",
    "bears out": "confirms",
    "borne out": "confirmed",
    "bear out": "confirm",
    "stands by its": "agrees with itself",
    "stand by its": "agree with itself",
    "holds for itself": "agrees with itself",
    "is no fault": "is allowed",
    "what becomes of": "what happens to",
    "so many once in": "state the probability",
    "is held against": "is compared with, or counts against",
    "has nothing left": "the remainder is 0",
    "takes the place of": "replaces",
    "in the place of": "instead of",
    "in its stead": "instead",
    "as good as always": "almost always",
    "afresh": "again",
    "anew": "again",
    "is asked of": "is required of",
    "the like": "name the class of things",
}
"""Each phrase, in small letters, and what to write instead."""

ROOT = Path(__file__).resolve().parents[1]
PAGES = ("*.md", "docs/*.md", "examples/**/*.md")
SOURCES = ("src/torchstone/**/*.py", "tools/*.py", "benchmarks/*.py")
NOT_CHECKED = ("tools/prose.py", "src/torchstone/redteam/corpus/")
"""This file quotes banned phrases; the corpus is other people's code."""

_FENCE = re.compile(r"^\s*(```|~~~)")
_ITEM = re.compile(r"^\s*([-*+]|\d+[.)])\s+")
_QUOTED = re.compile(r"(`+)(.+?)\1", re.DOTALL)
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_TAG = re.compile(r"<!--.*?-->|</?[a-zA-Z][^>]*>", re.DOTALL)
_ENDED = re.compile(r"(?<=[.!?])[\"')\]*_]*\s+(?=[\"'(\[*_]*[A-Z0-9])")
_SHORTENED = re.compile(r"\b(?:e\.g|i\.e|vs|etc|cf|approx|Fig|No)\.$")
_WORD = re.compile(r"[^\W_]")
_COMMENT_START = re.compile(r"\n\s*#:?")


@dataclass(frozen=True)
class Paragraph:
    """A piece of text that is read in one go."""

    line: int
    text: str
    is_heading: bool = False

    def sentences(self) -> list[str]:
        """The sentences, inline code replaced by one word, links by their text."""
        if self.is_heading:
            return []
        found: list[str] = []
        for part in _ENDED.split(" ".join(_readable(self.text).split())):
            if found and _SHORTENED.search(found[-1]):
                found[-1] += " " + part
            elif part:
                found.append(part)
        return found


@dataclass(frozen=True)
class Finding:
    """One thing that breaks a rule."""

    path: str
    line: int
    rule: str
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.rule}: {self.text}"


@dataclass
class FileReport:
    """What one file holds."""

    path: str
    sentences: int = 0
    long: list[Finding] = field(default_factory=list)
    others: list[Finding] = field(default_factory=list)

    @property
    def room(self) -> str:
        """The folder of ``src/torchstone`` that the file lies in; empty for all other files."""
        parts = Path(self.path).parts
        return parts[2] if parts[:2] == ("src", "torchstone") and len(parts) > 3 else ""


def main() -> int:
    parser = ArgumentParser(description="Check that documentation and docstrings are plain technical English.")
    parser.add_argument("--report", action="store_true", help="also print how many findings each file has")
    parser.add_argument("--room", metavar="NAME", help="also print every finding of this folder of src/torchstone")
    asked = parser.parse_args()
    reports = [report_on(path, ROOT) for path in checked_files(ROOT)]
    if asked.report:
        for each in sorted(reports, key=lambda one: -len(one.long)):
            print(f"{len(each.long):4} of {each.sentences:4} sentences long, {len(each.others):3} others  {each.path}")
    if asked.room:
        print(*(f for each in reports if each.room == asked.room for f in (*each.long, *each.others)), sep="\n")
    problems = list(broken_rules(reports))
    print("\n".join([*problems, summary(reports)]))
    return 1 if problems else 0


def checked_files(root: Path) -> list[Path]:
    """Pages and sources, each once."""
    found = {path for pattern in (*PAGES, *SOURCES) for path in root.glob(pattern)}
    return sorted(path for path in found if not path.relative_to(root).as_posix().startswith(NOT_CHECKED))


def report_on(path: Path, root: Path) -> FileReport:
    """Read one file and look for everything that a rule forbids."""
    text, name = path.read_text(encoding="utf-8"), path.relative_to(root).as_posix()
    is_source = path.suffix == ".py"
    report = FileReport(name)
    for paragraph in docstring_paragraphs(text) if is_source else list(markdown_paragraphs(text)):
        sentences = paragraph.sentences()
        report.sentences += len(sentences)
        for sentence in sentences:
            if (words := count_words(sentence)) > LONG_SENTENCE:
                report.long.append(Finding(name, paragraph.line, f"{words} words in a sentence", sentence))
        if (words := sum(map(count_words, sentences))) > LONG_PARAGRAPH:
            report.others.append(Finding(name, paragraph.line, f"{words} words in a paragraph", sentences[0]))
    report.others += banned_phrases(name, _COMMENT_START.sub("\n", text) if is_source else text)
    return report


def broken_rules(reports: Iterable[FileReport]) -> Iterator[str]:
    """Findings that break a rule."""
    reports = list(reports)
    for each in reports:
        yield from map(str, each.others)
    long = [finding for each in reports for finding in each.long]
    sentences = sum(each.sentences for each in reports)
    if len(long) > MOST_LONG * sentences:
        yield from map(str, long)
        yield f"{len(long)} of {sentences} sentences have more than {LONG_SENTENCE} words; allowed: {MOST_LONG:.0%}."


def summary(reports: Iterable[FileReport]) -> str:
    """One line on all files."""
    reports = list(reports)
    long, sentences = sum(len(each.long) for each in reports), sum(each.sentences for each in reports)
    return f"prose: {len(reports)} files, {long} of {sentences} sentences over {LONG_SENTENCE} words"


def banned_phrases(name: str, text: str) -> Iterator[Finding]:
    """Each place where a banned phrase stands, also across a line break."""
    for found in _BANNED.finditer(text.lower()):
        phrase = " ".join(found.group().split())
        line = text.count("\n", 0, found.start()) + 1
        yield Finding(name, line, "banned phrase", f'"{phrase}"; write: {BANNED[phrase]}')


def markdown_paragraphs(text: str) -> Iterator[Paragraph]:
    """Paragraphs, list items, table cells and headings; fenced and indented code is left out."""
    gathered: list[str] = []
    start, in_code = 1, False
    for number, line in enumerate([*text.splitlines(), ""], 1):
        if _FENCE.match(line):
            in_code = not in_code
        plain = line.strip()
        is_apart = in_code or _FENCE.match(line) or plain.startswith(("|", "#")) or not plain
        if gathered and (is_apart or _ITEM.match(line)):
            yield Paragraph(start, " ".join(gathered))
            gathered = []
        if in_code or _FENCE.match(line) or not plain or (not gathered and line.startswith("    ")):
            continue
        if plain.startswith("|"):
            yield from (Paragraph(number, cell) for cell in plain.strip("|").split("|") if _WORD.search(cell))
        elif plain.startswith("#"):
            yield Paragraph(number, plain.lstrip("# "), is_heading=True)
        else:
            start = start if gathered else number
            gathered.append(_ITEM.sub("", line).strip())


def docstring_paragraphs(source: str) -> list[Paragraph]:
    """Paragraphs of every docstring, those of fields and constants included; code and columns of text are left out."""
    found: list[Paragraph] = []
    for first, text in _docstrings(ast.parse(source).body):
        shown = "\n".join("" if _is_code(line) else line for line in cleandoc(text).splitlines())
        found += (Paragraph(first + each.line - 1, each.text) for each in markdown_paragraphs(shown))
    return found


def count_words(text: str) -> int:
    """Words: what stands between spaces and has a letter or a digit."""
    return sum(1 for word in text.split() if _WORD.search(word))


def _docstrings(body: list[ast.stmt]) -> Iterator[tuple[int, str]]:
    """Line and text of every string that stands alone, in classes and functions too. Expressions are not walked."""
    for node in body:
        match node:
            case ast.Expr(value=ast.Constant(value=str(text))):
                yield node.lineno, text
            case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                yield from _docstrings(node.body)


def _is_code(line: str) -> bool:
    return line.startswith(("    ", ">>> ", "python ", "torchstone ")) or "  " in line.strip()


def _readable(text: str) -> str:
    return _TAG.sub("", _LINK.sub(r"\1", _QUOTED.sub("Code", text)))


def _any_of(phrases: Iterable[str]) -> re.Pattern[str]:
    longest_first = sorted(phrases, key=len, reverse=True)
    words = "|".join(r"\s+".join(map(re.escape, phrase.split())) for phrase in longest_first)
    return re.compile(rf"\b(?:{words})\b")


_BANNED = _any_of(BANNED)


if __name__ == "__main__":
    sys.exit(main())
