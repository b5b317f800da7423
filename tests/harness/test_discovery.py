"""Discovery finds every pair under a root, and says of every other benchmark file why it is in none."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from harness.trees import SOURCE, write_pairs, write_tree
from torchstone.errors import UsageError
from torchstone.harness.discovery import belongs_to, discover, discover_benchmarks


def names(root: Path) -> list[str]:
    return [pair.name for pair in discover(root).pairs]


def problems(root: Path) -> dict[str, str]:
    return {problem.path: problem.reason for problem in discover(root).problems}


@pytest.mark.parametrize(
    ("optimized", "baseline"),
    [
        ("moe", "moe"),
        ("moe_sparse", "moe"),
        ("moe_dense_fast", "moe_dense"),
        ("moe_dense", "moe_dense"),
        ("moebius", None),
        ("mo", None),
        ("attention", None),
    ],
)
def test_the_most_specific_baseline_wins_at_a_name_boundary(optimized: str, baseline: str | None) -> None:
    assert belongs_to(optimized, ["moe", "moe_dense", "m"]) == baseline


def test_the_public_function_gives_baseline_optimized_files_and_example(tmp_path: Path) -> None:
    files = ("baseline_moe", "optimized_moe", "optimized_moe_sparse", "baseline_moe_dense", "optimized_moe_dense_fast")
    chapter = write_tree(tmp_path, [f"ch13/{name}.py" for name in files]) / "ch13"
    assert discover_benchmarks(str(tmp_path)) == [
        (chapter / "baseline_moe.py", [chapter / "optimized_moe.py", chapter / "optimized_moe_sparse.py"], "moe"),
        (chapter / "baseline_moe_dense.py", [chapter / "optimized_moe_dense_fast.py"], "moe_dense"),
    ]
    assert names(tmp_path) == ["ch13/moe", "ch13/moe_dense_fast", "ch13/moe_sparse"]


def test_chapters_may_have_any_name_and_depth_and_count_as_numbers(tmp_path: Path) -> None:
    write_pairs(tmp_path, "ch10/a", "ch2/a", "labs/moe/deep/a", "Kapitel Ä/a")
    assert names(tmp_path) == ["Kapitel Ä/a", "ch2/a", "ch10/a", "labs/moe/deep/a"]


def test_a_root_that_is_a_chapter_gives_its_own_name(tmp_path: Path) -> None:
    write_pairs(tmp_path, "ch13/moe")
    (pair,) = discover(tmp_path / "ch13").pairs
    assert pair.name == "ch13/moe"
    assert pair.import_root == tmp_path


def test_a_chapter_with_the_name_of_the_root_is_not_mixed_up_with_it(tmp_path: Path) -> None:
    write_pairs(tmp_path, "ch13/a", "ch13/ch13/a")
    assert names(tmp_path / "ch13") == ["ch13/a", "root/a"]


def test_cuda_sources_pair_among_themselves(tmp_path: Path) -> None:
    files = ("baseline_add.cu", "optimized_add.cu", "baseline_add.py", "optimized_add.py", "optimized_mul.cu")
    write_tree(tmp_path, [*(f"ch1/{name}" for name in files), "ch1/baseline_mul.py"])
    assert names(tmp_path) == ["ch1/add", "ch1/add.cu"]
    assert set(problems(tmp_path)) == {"ch1/optimized_mul.cu", "ch1/baseline_mul.py"}


def test_what_is_no_chapter_is_left_out(tmp_path: Path) -> None:
    write_pairs(tmp_path, "ch1/a", ".hidden/a", "ch1/__pycache__/a", "env/lib/a")
    (tmp_path / "env" / "pyvenv.cfg").write_text("")
    write_tree(tmp_path, ["ch1/helper.py", "ch1/test_baseline_a.py"])
    (tmp_path / "ch1" / "baseline_folder.py").mkdir()
    assert names(tmp_path) == ["ch1/a"]
    assert problems(tmp_path) == {}


def test_links_are_followed_once_and_loops_end(tmp_path: Path) -> None:
    outside = write_pairs(tmp_path / "outside", "linked/a")
    root = write_pairs(tmp_path / "root", "ch2/a")
    for link, to in (("ch1", root / "ch2"), ("loop", root), ("ch2/up", root), ("self", root / "self")):
        (root / link).symlink_to(to)
    (root / "more").symlink_to(outside / "linked")
    (root / "ch2" / "baseline_lost.py").symlink_to(root / "nowhere.py")
    assert names(root) == ["ch2/a", "more/a"]
    assert problems(root) == {"ch2/baseline_lost.py": "is no file: the link leads nowhere"}


BAD = {
    "latin.py": ("# caf\xe9\n".encode("latin-1"), "is not UTF-8: byte 5 is 0xe9"),
    "broken.py": (b"class A:\n    def setup(self:\n", "syntax error: line 2: "),
    "zero.py": (b"class A: pass\n\0", "null bytes"),
    "empty.py": (b"", "no benchmark in it: no class, and no function get_benchmark"),
    "script.py": (b"def main(): ...\nmain()\n", "no benchmark in it"),
    "deep.py": (b"x = " + b"(" * 5000 + b")" * 5000, ""),
}


@pytest.mark.parametrize("name", BAD)
def test_a_file_that_cannot_be_right_is_named_with_the_reason_and_stays_a_pair(name: str, tmp_path: Path) -> None:
    write_tree(tmp_path, [f"ch1/baseline_{name}"])
    content, reason = BAD[name]
    (tmp_path / "ch1" / f"optimized_{name}").write_bytes(content)
    found = problems(tmp_path)
    assert list(found) == [f"ch1/optimized_{name}"]
    assert reason in found[f"ch1/optimized_{name}"]
    assert len(names(tmp_path)) == 1, "the run reports it as failed, rather than leaving it out"


@pytest.mark.parametrize(
    "text",
    [
        "def get_benchmark(): ...",
        "from other import get_benchmark",
        "from other import make as get_benchmark",
        "from other import *",
        "get_benchmark = make",
        "if True:\n    class Work(imported.Base): ...",
        "# -*- coding: latin-1 -*-\nclass Caf\xe9: ...",
        "class Odd: '''\\d'''",
    ],
)
def test_nothing_is_said_of_a_file_that_may_hold_a_benchmark(text: str, tmp_path: Path) -> None:
    write_tree(tmp_path, ["ch1/baseline_a.py"])
    (tmp_path / "ch1" / "optimized_a.py").write_bytes(text.encode("latin-1"))
    assert problems(tmp_path) == {}


def test_files_without_a_partner_are_told_with_the_name_that_is_missing(tmp_path: Path) -> None:
    write_tree(tmp_path, ["ch1/baseline_alone.py", "ch1/optimized_moe_fast.py", "ch2/baseline_moe.py"])
    assert names(tmp_path) == []
    assert problems(tmp_path) == {
        "ch1/baseline_alone.py": "has no optimized file: optimized_alone*.py is not in its folder",
        "ch1/optimized_moe_fast.py": "has no baseline: baseline_moe_fast.py or one with a shorter name "
        "is not in its folder",
        "ch2/baseline_moe.py": "has no optimized file: optimized_moe*.py is not in its folder",
    }


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_what_may_not_be_read_is_a_problem(tmp_path: Path) -> None:
    write_pairs(tmp_path, "ch1/a", "ch2/a")
    (tmp_path / "ch1" / "baseline_a.py").chmod(0)
    (tmp_path / "ch2").chmod(0)
    found = problems(tmp_path)
    (tmp_path / "ch2").chmod(0o700)
    assert found == {
        "ch1/baseline_a.py": "cannot be read: Permission denied",
        "ch2": "folder cannot be read: Permission denied",
    }


def test_a_name_that_is_no_text_is_a_problem(tmp_path: Path) -> None:
    write_pairs(tmp_path, "ch1/a")
    Path(os.fsdecode(os.fsencode(tmp_path / "ch1") + b"/baseline_\xff.py")).write_text(SOURCE)
    assert names(tmp_path) == ["ch1/a"]
    assert problems(tmp_path) == {"ch1/baseline_\\udcff.py": "its path is not UTF-8"}


def test_a_root_that_is_no_folder_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not a folder"):
        discover(tmp_path / "nowhere")


def test_the_key_changes_with_either_file_and_with_nothing_else(tmp_path: Path) -> None:
    write_pairs(tmp_path, "ch1/a", "ch1/b", "ch2/a")
    before = {pair.name: pair.key for pair in discover(tmp_path).pairs}
    assert len(set(before.values())) == 3
    (tmp_path / "ch1" / "optimized_a.py").write_text(SOURCE + "# other\n")
    os.utime(tmp_path / "ch1" / "baseline_b.py", (0, 0))
    after = {pair.name: pair.key for pair in discover(tmp_path).pairs}
    assert {name for name in before if before[name] != after[name]} == {"ch1/a"}


@pytest.mark.parametrize(
    ("root", "expected"), [("repo", "repo/code"), ("repo/code", "repo/code"), ("repo/code/labs/moe", "repo/code")]
)
def test_the_folder_that_holds_what_the_files_import_is_importable(root: str, expected: str, tmp_path: Path) -> None:
    """A tree below or above the root that was named still finds its own packages."""
    folder = tmp_path / "repo/code/labs/moe"
    write_tree(tmp_path, ["repo/code/core/__init__.py"])
    write_tree(
        folder, ["baseline_a.py", "optimized_a.py"], text=f"import torch\nfrom core.harness import Base\n{SOURCE}"
    )
    (tmp_path / "repo" / ".git").mkdir()
    (pair,) = discover(tmp_path / root).pairs
    assert pair.import_root == tmp_path / expected
