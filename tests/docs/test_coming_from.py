"""Every name that docs/coming-from.md says is here is in the code."""

from __future__ import annotations

import re
from functools import cache
from importlib import import_module

import pytest

from docs.pages import ROOT
from docs.test_cli_page import COMMANDS, real_options

PAGE = (ROOT / "docs" / "coming-from.md").read_text()
HERE = [row.rsplit(" | ", 1)[1] for row in PAGE.splitlines() if row.startswith("| ") and "---" not in row]
NAMES = sorted({name for cell in HERE for name in re.findall(r"`([^`]+)`", cell)})


@cache
def options() -> frozenset[str]:
    return frozenset({"-k", *(option for command in COMMANDS for option in real_options(command))})


@cache
def source() -> str:
    files = (*ROOT.glob("src/torchstone/**/*.py"), ROOT / "docs" / "reports.md")
    return "\n".join(path.read_text() for path in files if "corpus" not in path.parts)


@pytest.mark.parametrize("name", NAMES)
def test_the_name_is_in_the_code(name: str) -> None:
    if name.startswith("torchstone "):
        assert name.removeprefix("torchstone ") in COMMANDS
    elif name.startswith("-"):
        assert name.partition(" ")[0] in options()
    elif name.startswith("torchstone."):
        module, _, attribute = name.rpartition(".")
        assert hasattr(import_module(module), attribute)
    else:
        assert name.removesuffix("()") in source()


def test_there_are_names() -> None:
    assert len(NAMES) > 40
