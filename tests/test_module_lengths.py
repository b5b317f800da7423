"""Modules are short enough to be read in one go."""

from __future__ import annotations

from pathlib import Path

import house_figures
from house_figures import LONGER_FOR_A_REASON, LONGEST_MODULE, PACKAGE, ROOT


def test_no_module_is_longer_than_a_newcomer_reads_in_one_go() -> None:
    found = house_figures.too_long(ROOT)
    unexplained = {module: lines for module, lines in found.items() if module not in LONGER_FOR_A_REASON}
    assert unexplained == {}, f"over {LONGEST_MODULE} lines: split along jobs that the modules' names can tell"


def test_every_exception_is_still_needed() -> None:
    assert set(LONGER_FOR_A_REASON) <= set(house_figures.too_long(ROOT))


def test_a_module_that_is_one_line_too_long_is_found(tmp_path: Path) -> None:
    room = tmp_path / PACKAGE / "room"
    room.mkdir(parents=True)
    (room / "short.py").write_text("x = 1\n" * LONGEST_MODULE)
    (room / "long.py").write_text("x = 1\n" * (LONGEST_MODULE + 1))
    assert house_figures.too_long(tmp_path) == {"room/long.py": LONGEST_MODULE + 1}
