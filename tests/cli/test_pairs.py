"""``torchstone pairs`` in real processes; the runner is a fake, see tests/harness/fake_program.py."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from harness import fake_program
from harness.trees import SOURCE, write_pairs, write_tree

PROGRAM = str(Path(fake_program.__file__))
Finished = subprocess.CompletedProcess[str]


def pairs(*arguments: str, cwd: Path) -> Finished:
    command = [sys.executable, PROGRAM, "pairs", *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return write_pairs(tmp_path / "tree", "ch1/a", "ch2/b")


def run(tree: Path, *arguments: str, run_id: str = "x") -> Finished:
    return pairs("run", str(tree), "--device", "cpu", "--run-id", run_id, *arguments, cwd=tree.parent)


def test_alone_it_prints_its_help(tmp_path: Path) -> None:
    result = pairs(cwd=tmp_path)
    assert result.returncode == 0
    for name in ("list", "run", "show", "compare", "expect"):
        assert re.search(rf"^  {name} ", result.stdout, re.MULTILINE)


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], ["compare", "--help"]])
def test_help_imports_nothing_heavy(arguments: list[str], tmp_path: Path) -> None:
    script = (
        "import sys; from torchstone.cli import main; code = main(['pairs', *sys.argv[1:]]); "
        "assert not {'torch', 'numpy', 'rich'} & set(sys.modules); sys.exit(code)"
    )
    command = [sys.executable, "-c", script, *arguments]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 0, result.stderr


def test_list_shows_pairs_and_what_is_in_none(tree: Path) -> None:
    write_tree(tree, ["ch1/optimized_alone.py"])
    (tree / "ch2" / "optimized_b.py").write_text("def broken(:")
    result = pairs("list", str(tree), cwd=tree)
    assert result.returncode == 0
    assert re.search(r"^\| ch1 +\| a +\| baseline_a.py \| optimized_a.py \|$", result.stdout, re.MULTILINE)
    assert re.search(r"^\| ch2/optimized_b.py +\| syntax error: line 1: ", result.stdout, re.MULTILINE)
    assert re.search(r"^\| ch1/optimized_alone.py +\| has no baseline: ", result.stdout, re.MULTILINE)
    found = json.loads(pairs("list", str(tree), "--targets", "ch1", "--json", cwd=tree).stdout)
    assert [pair["name"] for pair in found["pairs"]] == ["ch1/a"]
    assert len(found["problems"]) == 2


def test_run_leaves_a_folder_and_the_latest_reports_and_tells_in_tables(tree: Path) -> None:
    result = run(tree)
    assert result.returncode == 0, result.stderr
    assert re.search(r"^\| ch1 +\| a +\| +2\.00 \| +1\.00 \| +2\.00x \|", result.stdout, re.MULTILINE)
    assert re.search(r"^\| ch2 +\| PASS +\| +1 \| +1 \| +2\.00x \|$", result.stdout, re.MULTILINE)
    assert "Chapters tested: 2/2" in result.stdout
    assert "2 pairs, in artifacts/x" in result.stderr
    here = {path.name for path in tree.parent.iterdir()}
    assert here == {"tree", "artifacts", "benchmark_test_results.json", "benchmark_test_results.md"}
    shown = pairs("show", "x", cwd=tree.parent)
    assert (shown.returncode, shown.stdout) == (0, result.stdout)
    told = json.loads(pairs("show", "artifacts/x", "--json", cwd=tree.parent).stdout)
    assert told["summary"]["successful"] == 2
    assert told["run_folder"] == "artifacts/x"


@pytest.mark.parametrize(
    ("name", "code", "said"),
    [
        ("skips", 0, "skipped: needs 8 GPUs"),
        ("fails", 1, "ValueError: no such layer"),
        ("regresses", 1, "regression"),
        ("nan", 0, "succeeded"),
        ("breaks", 3, "the harness failed, not the benchmark: RuntimeError: a bug in the runner"),
    ],
)
def test_the_exit_code_says_what_came_of_the_run(name: str, code: int, said: str, tree: Path) -> None:
    write_pairs(tree, f"ch3/{name}")
    result = run(tree)
    assert result.returncode == code, result.stderr
    assert said in result.stdout


def test_a_machine_that_refuses_exits_3_and_keeps_what_is_done(tree: Path) -> None:
    write_pairs(tree, "ch3/dies")
    result = run(tree)
    assert result.returncode == 3
    assert result.stderr.endswith("error: the GPU fell off the bus. Restart the machine.\n")
    assert "2 pairs are kept. Go on with: torchstone pairs run --resume --run-id x" in result.stderr


def test_a_suite_timeout_exits_1_and_counts_what_was_not_run(tmp_path: Path) -> None:
    tree = write_pairs(tmp_path / "tree", *(f"ch{number}/slow" for number in range(1, 5)))
    result = run(tree, "--suite-timeout", "0.6s")
    assert result.returncode == 1
    assert "Not run: " in result.stdout
    assert "the suite timeout ended the run" in result.stderr
    assert run(tree, "--resume").returncode == 0


def test_a_resumed_run_has_the_options_of_its_beginning_that_are_not_given_again(tree: Path) -> None:
    options = ["--targets", "ch1", "--no-profile", "--iterations", "5", "--timeout-multiplier", "2", "--jobs", "2"]
    assert run(tree, *options).returncode == 0
    (tree.parent / "artifacts" / "x" / "records.jsonl").write_text("")
    command = ["run", "--resume", "--run-id", "x", "--quiet"]
    done = pairs(*command, cwd=tree.parent)
    assert done.returncode == 0, done.stderr
    assert "1 pairs, 1 successful" in done.stdout
    assert "circumstances differ" not in done.stderr
    assert pairs(*command, "--timeout-multiplier", "3", cwd=tree.parent).returncode == 0
    other = pairs(*command, "--iterations", "9", cwd=tree.parent)
    assert (other.returncode, other.stdout) == (2, "")
    assert "with another configuration: --iterations was 5, now 9. Use the same options, or another --run-id" in (
        other.stderr
    )


def test_a_run_that_is_not_there_is_told_with_those_that_are(tree: Path) -> None:
    run(tree)
    for command in (["compare", "x", "nosuch"], ["show", "nosuch"], ["expect", "nosuch"]):
        result = pairs(*command, cwd=tree.parent)
        assert result.returncode == 2
        assert "unknown run 'nosuch': artifacts has no such folder. Runs there: x." in result.stderr


def overrides(tree: Path, *arguments: str) -> dict[str, object]:
    assert run(tree, *arguments).returncode == 0
    manifest = json.loads((tree.parent / "artifacts" / "x" / "manifest.json").read_text())
    configuration = manifest["configuration"]
    return {**configuration["settings"]["overrides"], **configuration["timeouts"]["overrides"]}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], {}),
        (["--reproducible"], {"seed": 42, "deterministic": True}),
        (["--reproducible", "--seed", "7"], {"seed": 7, "deterministic": True}),
        (
            ["--cold-start", "--no-profile", "--timeout-multiplier", "2.0", "--iterations", "5", "--warmup", "0"],
            {
                "enable_cleanup": True,
                "enable_profiling": False,
                "timeout_multiplier": 2.0,
                "iterations": 5,
                "warmup": 0,
            },
        ),
        (["--mode", "pytorch", "--threads", "2", "--deterministic"],
         {"mode": "pytorch", "threads": 2, "deterministic": True}),
    ],
)  # fmt: skip
def test_only_the_options_that_are_given_become_settings(
    arguments: list[str], expected: dict[str, object], tree: Path
) -> None:
    assert overrides(tree, *arguments) == expected


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["run", "nowhere"], 2, "nowhere' is not a folder"),
        (["run", "tree", "--targets", "ch9"], 2, "target 'ch9' matches no pair. Nearest: ch2, ch1, "),
        (["run", "tree", "--targets", "ch1,,ch2"], 2, "empty name"),
        (["run", "tree", "--suite-timeout", "4x"], 2, "'4x' is no duration. Write it like 4h, 90m, 1h30m or 3600."),
        (["run", "tree", "--device", "gpu"], 2, "device 'gpu' is not understood"),
        (["run", "tree", "--run-id", "../x"], 2, "is not a plain folder name"),
        (["run", "tree", "--resume"], 2, "resume needs a run id"),
        (["run", "empty"], 2, "there is no pair under"),
        (["show", "nowhere"], 2, "unknown run 'nowhere': artifacts has no such folder. There is no run."),
        (["compare", "nowhere", "nowhere"], 2, "unknown run 'nowhere': artifacts has no such folder"),
        (["run", "tree", "--device", "cuda:99"], 3, "device 'cuda:99' is not"),
    ],
)
def test_a_mistake_is_one_line_that_says_what_to_do(arguments: list[str], code: int, said: str, tree: Path) -> None:
    (tree.parent / "empty").mkdir()
    result = pairs(*arguments, cwd=tree.parent)
    assert (result.returncode, result.stdout) == (code, "")
    assert said in result.stderr
    assert len(result.stderr.splitlines()) == 1, result.stderr
    assert not (tree.parent / "artifacts").exists()


def test_a_run_of_the_other_kind_is_named_with_its_command(tree: Path) -> None:
    run(tree)
    command = [sys.executable, PROGRAM, "show", "artifacts/x"]
    result = subprocess.run(command, cwd=tree.parent, capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 2
    assert "its records are of kind 'pair', not 'case'. Use 'torchstone pairs show'." in result.stderr


def test_compare_exits_1_if_a_pair_got_slower_and_tells_what_differs(tree: Path) -> None:
    run(tree, run_id="before")
    same = pairs("compare", "before", "before", cwd=tree.parent)
    assert same.returncode == 0
    assert "2 pairs in both runs: 2 same (threshold 5 %)" in same.stdout
    (tree / "ch1" / "optimized_a.py").write_text(SOURCE)
    run(tree, "--iterations", "5", run_id="after")
    journal = tree.parent / "artifacts" / "after" / "records.jsonl"
    lines = [json.loads(line) for line in journal.read_text().splitlines()]
    for line in lines:
        if line["example"] == "a":
            optimized = line["comparison"]["optimized"]["timing"]
            optimized["raw_times_ms"] = [3 * each for each in optimized["raw_times_ms"]]
            for name in ("speedup", "speedup_low", "speedup_high"):
                line["comparison"][name] /= 3
    journal.write_text("".join(json.dumps(line) + "\n" for line in lines))
    result = pairs("compare", "before", "after", cwd=tree.parent)
    assert result.returncode == 1
    assert re.search(r"^\| ch1/a .* 3\.00 \([^)]*\) .* slower, files changed \|$", result.stdout, re.MULTILINE)
    assert "configuration.settings.overrides.iterations: None -> 5" in result.stdout
    found = json.loads(pairs("compare", "before", "after", "--json", cwd=tree.parent).stdout)
    assert [pair["change"] for pair in found["pairs"]] == ["slower", "same"]


def test_expect_writes_checks_and_exits_1_on_a_regression(tree: Path) -> None:
    run(tree)
    new = pairs("expect", "x", cwd=tree.parent)
    assert new.returncode == 0
    assert "2 new" in new.stdout
    assert not (tree.parent / "expectations.json").exists()
    assert pairs("expect", "x", "--update", cwd=tree.parent).returncode == 0
    assert "2 met" in pairs("expect", "x", cwd=tree.parent).stdout
    path = tree.parent / "expectations.json"
    kept = json.loads(path.read_text())
    (by_pair,) = kept["hardware"].values()
    by_pair["ch1/a"].update(speedup=4.0, speedup_low=3.9, speedup_high=4.1)
    path.write_text(json.dumps(kept))
    result = pairs("expect", "x", "--file", "expectations.json", "--json", cwd=tree.parent)
    assert result.returncode == 1
    assert [each["finding"] for each in json.loads(result.stdout)["pairs"]] == ["regressed", "met"]
