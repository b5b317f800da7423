"""The pages of the documentation, and what stands in them."""

from __future__ import annotations

import os
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = (*(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")), *sorted(ROOT.glob("docs/*.md")))
EXAMPLES = tuple(sorted((ROOT / "examples").glob("*.py")))

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


def name_of(path: Path) -> str:
    """How test reports name a page."""
    return str(path.relative_to(ROOT))


def blocks(page: Path, language: str) -> list[str]:
    """The fenced blocks of a language."""
    return [text for kind, text in _FENCE.findall(page.read_text()) if kind == language]


def prose(page: Path) -> str:
    """The page without its fenced blocks."""
    return _FENCE.sub("", page.read_text())


def links(page: Path) -> list[str]:
    """Where its links lead, those to other sites left out."""
    return [link for link in _LINK.findall(prose(page)) if not link.startswith(("http://", "https://", "mailto:"))]


def anchors(page: Path) -> set[str]:
    """The names that GitHub gives to its headings."""
    titles = (re.sub(r"[^\w\- ]", "", title.lower()) for title in _HEADING.findall(prose(page)))
    return {title.strip().replace(" ", "-") for title in titles}


def environment(*folders: Path) -> dict[str, str]:
    """This process's, with the source tree and the folders on the import path, and without a GPU."""
    theirs = [str(Path(part).resolve()) for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part]
    path = [*map(str, folders), str(ROOT / "src"), *theirs]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path), "CUDA_VISIBLE_DEVICES": ""}
