"""Reads the fixtures of the red team: kernels that cheat or look like it, one file each in ``corpus/``, never imported.

    # title: a thread finishes the work after the call returned
    # family: 2
    # kind: cheat                      cheat, honest or reported
    # device: cpu                      cpu or cuda
    # case: gelu_timed -> cheated/quiescence | no-credit
    # twin: h_twin_gelu                honest fixture with the same true speed, for timed cases
    # deadline: 2                      seconds for each stage, if the default deadlines are too long
    # hole: why it gets credit today   only while it does (for an honest fixture: why it is refused)

The id is the name of the file. An expectation is a verdict and, after a slash, its guard, reason, kind or author.
`no-credit` allows `agrees`, but no speed beyond the twin's; `agrees/faster` is for an honest kernel whose speed must be
seen. The header is data, so that reading the corpus never runs a line of it.
"""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path
from typing import Literal, get_args

import msgspec

from torchstone.errors import UsageError
from torchstone.redteam.fixture_inputs import CASES

Kind = Literal["cheat", "honest", "reported"]
CORPUS = Path(__file__).parent / "corpus"
ENTRY = "kernel"
NO_CREDIT = "no-credit"
_VERDICTS = ("agrees", "disagrees", "cheated", "crashed", "timed_out", "unsupported", NO_CREDIT)
_HEADER_LINE = re.compile(r"# ([a-z]+): +(.+?) *")
_SINGLE_KEYS = ("title", "family", "kind", "device", "twin", "deadline", "hole")


class Expectation(msgspec.Struct, frozen=True):
    """One verdict that a fixture may get."""

    verdict: str
    detail: str = ""
    """Guard of `cheated`, reason of `disagrees`, kind of `crashed`, author of `unsupported`; empty: any."""

    def __str__(self) -> str:
        return f"{self.verdict}/{self.detail}" if self.detail else self.verdict


class Fixture(msgspec.Struct, frozen=True):
    """One kernel of the corpus, with the verdicts that it may get."""

    id: str
    title: str
    families: tuple[int, ...]
    """Numbers of the families of attacks; none for honest look-alikes."""
    kind: Kind
    device: str
    expected: dict[str, tuple[Expectation, ...]]
    """Case name -> the allowed verdicts."""
    text: str
    twin: str | None = None
    """Id of an honest fixture. Its speed on the same case is the true speed."""
    deadline_seconds: float | None = None
    hole: str = ""
    """Why a cheat gets credit today, or an honest fixture is refused; empty: that is not allowed."""


FASTER = Expectation("agrees", "faster")


@lru_cache(maxsize=1)
def read_corpus() -> tuple[Fixture, ...]:
    """Every fixture, in the order of ids."""
    found = tuple(parse(path.stem, path.read_text(encoding="utf-8")) for path in sorted(CORPUS.glob("*.py")))
    known = {fixture.id: fixture for fixture in found}
    for fixture in found:
        if fixture.twin is not None and (fixture.twin not in known or known[fixture.twin].kind != "honest"):
            raise UsageError(f"{fixture.id}: its twin '{fixture.twin}' is no honest fixture.")
    return found


def parse(name: str, text: str) -> Fixture:
    """A fixture from the text of its file. Raises UsageError, with the file's name, for a wrong header."""
    lines = _header(name, text)
    fields = {key: value for key, value in lines if key in _SINGLE_KEYS}
    for key in ("title", "kind"):
        if key not in fields:
            raise UsageError(f"{name}: the header has no '{key}'.")
    kind = fields["kind"]
    if kind not in get_args(Kind):
        raise UsageError(f"{name}: kind '{kind}' is not one of {', '.join(get_args(Kind))}.")
    expected = dict(_expected(name, value) for key, value in lines if key == "case")
    if not expected:
        raise UsageError(f"{name}: the header names no case.")
    return Fixture(
        id=name,
        title=fields["title"],
        families=tuple(int(number) for number in fields.get("family", "").replace(",", " ").split()),
        kind=kind,  # type: ignore[arg-type]
        device=fields.get("device", "cpu"),
        expected=expected,
        text=text,
        twin=fields.get("twin"),
        deadline_seconds=float(fields["deadline"]) if "deadline" in fields else None,
        hole=fields.get("hole", ""),
    )


def _header(name: str, text: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for line in text.splitlines():
        match = _HEADER_LINE.fullmatch(line)
        if match is None:
            break
        key, value = match.groups()
        if key not in (*_SINGLE_KEYS, "case"):
            raise UsageError(f"{name}: unknown header line '{key}'.")
        if key in _SINGLE_KEYS and key in dict(found):
            raise UsageError(f"{name}: '{key}' stands twice in the header.")
        found.append((key, value))
    return found


def _expected(name: str, value: str) -> tuple[str, tuple[Expectation, ...]]:
    """Case name and allowed verdicts from a header value: ``relu -> disagrees/values | crashed``."""
    case, arrow, right = (part.strip() for part in value.partition("->"))
    if case not in CASES:
        raise UsageError(f"{name}: unknown case '{case}'. Known: {', '.join(CASES)}.")
    allowed = tuple(Expectation(*part.strip().split("/", 1)) for part in right.split("|")) if arrow else ()
    for expectation in allowed:
        if expectation.verdict not in _VERDICTS:
            raise UsageError(f"{name}: unknown verdict '{expectation.verdict}'. Known: {', '.join(_VERDICTS)}.")
    if not allowed:
        raise UsageError(f"{name}: case '{case}' says nothing after '->'.")
    return case, allowed
