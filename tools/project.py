"""What this project asks for: read from `pyproject.toml` and `constraints.txt`, in one place for all tools."""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Iterable, Iterator
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

from pep508 import Distribution, Requirement, combine, normalise

ROOT = Path(__file__).resolve().parent.parent
EXTRAS = {"run": (), "test": ("test",), "check": ("dev",)}
"""The extras that each make target needs; each level holds the ones before it."""

UNTOUCHABLE = ("torch", "numpy", "triton")
"""Built to match each other and the machine's driver: where a machine has them, they stay as they are."""


def requirements(extras: Iterable[str]) -> list[Requirement]:
    """The project's own dependencies and those of the extras; tools are pinned as `constraints.txt` says."""
    project = _tables()["project"]
    pins = {pin.name: pin for pin in _pins()}
    asked = list(project["dependencies"])
    for extra in extras:
        asked += _expand(extra, project)
    return [_pinned(Requirement.parse(text), pins) for text in asked]


def project_digest() -> str:
    """A hash of all in the project's files that decides what gets installed, and of nothing else in them."""
    tables = _tables()
    return digest(tables["project"], tables["build-system"], tables.get("tool", {}).get("hatch"), _constraints())


def digest(*parts: object) -> str:
    """A short hash of plain data."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def installed(folders: Iterable[Path | str]) -> dict[str, Distribution]:
    """The distributions in the folders, by name; earlier folders win, as on the import path."""
    found: dict[str, Distribution] = {}
    for one in distributions(path=[str(folder) for folder in folders]):
        name: str | None = one.metadata["Name"]
        if name and one.version:
            found.setdefault(normalise(name), Distribution(one.version, tuple(one.requires or ())))
    return found


def _tables() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def _constraints() -> str:
    return (ROOT / "constraints.txt").read_text()


def _pins() -> Iterator[Requirement]:
    lines = (line.partition("#")[0].strip() for line in _constraints().splitlines())
    return (Requirement.parse(line) for line in lines if line)


def _pinned(asked: Requirement, pins: dict[str, Requirement]) -> Requirement:
    pin = pins.get(asked.name)
    if pin is None or asked.name in UNTOUCHABLE:
        return asked
    both = combine([asked, pin])
    return Requirement(both.name, both.extras, both.specifier, asked.marker)


def _expand(extra: str, project: dict[str, Any]) -> Iterator[str]:
    """An extra's lines, with those of other extras of this project (`torchstone[test]`) in their place."""
    for text in project["optional-dependencies"][extra]:
        asked = Requirement.parse(text)
        if asked.name != normalise(project["name"]):
            yield text
            continue
        for inner in sorted(asked.extras):
            yield from _expand(inner, project)
