"""The code in the documentation runs: each example for real, in its own process; other blocks at least compile."""

from __future__ import annotations

import ast
import importlib.util
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from docs.pages import EXAMPLES, PAGES, ROOT, blocks, environment, name_of

PLUGIN = ROOT / "examples" / "plugin"
SAYS = {
    "check": ("relu: agrees on 100% of 6 cases", "leaky_relu: agrees on ", "disagrees"),
    "measure": ("agrees\n",),
    "evaluate": ("agrees: True", "T([1024, 512], f32): timed"),
    "capture": ("16 operators, 0 calls excluded", "was called 3 times", "agrees: True"),
    "capture_me": ("step 0: loss ", "step 2: loss "),
    "builtin_kernels": ("impl='torch': ", "loss ", "gradient of shape (8, 100)"),
    "trl_reward": ("right: 0.30", "wrong: 0.", "no code: 0.00"),
    "kernel_environment": (
        "disagrees: reward 0.",
        "agrees: reward 0.30, terminated True, truncated False",
    ),
    "modal_app": ("functions: judge_t4, judge_h100", "aten.relu.default: agrees in 6 cases", "results were copied"),
    "feedback": ("got zero, expected NaN, where self = NaN", "nonfinite: "),
    "mcp_client": ("expected NaN, where self = NaN", "right in all 6 cases", "right: True, speedup: "),
    "generate": (
        "aten.relu.default attempt 1: disagrees",
        "aten.add.Tensor attempt 1: no code",
        "Operators: 2, with a right kernel: 2",
        '"file": "relu_attempt_2.py"',
    ),
    "evaluate_many": ("aten.relu.default: agrees on 100%", "aten.gelu.default: agrees on ", "disagrees"),
}
"""What each example must print, among other things."""
PAGES_WITH_EXAMPLES = ("api", "feedback", "generation", "gym", "kernels", "mcp", "modal")
"""Pages that show an example, each as it is."""


def run(*command: str, cwd: Path, path: tuple[Path, ...] = ()) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *command],
        cwd=cwd,
        env=environment(*path),
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )


LONG = ("capture", "evaluate", "evaluate_many", "kernel_environment", "measure")
"""What they show is measured, or recorded, in other tests as well."""


@pytest.mark.parametrize(
    "example",
    [pytest.param(each, marks=[pytest.mark.slow] if each.stem in LONG else []) for each in EXAMPLES],
    ids=name_of,
)
def test_the_example_runs_and_says_what_it_should(example: Path, tmp_path: Path) -> None:
    if example.stem == "modal_app":
        pytest.importorskip("modal")
    outcome = run(str(example), cwd=tmp_path)
    assert outcome.returncode == 0, outcome.stderr
    for text in SAYS[example.stem]:
        assert text in outcome.stdout


def test_the_folder_of_kernels_is_judged_as_its_files_say(tmp_path: Path) -> None:
    kernels = str(ROOT / "examples" / "kernels")
    options = ("--ops", "relu,add,gelu", "--device", "cpu", "--effort", "quick", "--no-measure")
    outcome = run("-m", "torchstone", "run", "--backend", "directory", "--kernels-dir", kernels, *options, cwd=tmp_path)
    assert outcome.returncode == 1, outcome.stderr
    for text in ("| 9/9 agrees", "| 6/6 agrees"):
        assert text in outcome.stdout
    # The wrong kernel is right for nothing at all; whether that counts depends on the hidden variant.
    assert re.search(r"\| ([34]/6 agrees, [23] disagrees)", outcome.stdout)


def test_every_function_of_the_api_has_its_example_in_the_docs() -> None:
    assert {example.stem for example in EXAMPLES} == SAYS.keys()
    shown = [text for page in PAGES_WITH_EXAMPLES for text in blocks(ROOT / "docs" / f"{page}.md", "python")]
    for example in EXAMPLES:
        assert example.read_text() in shown, f"no page of {', '.join(PAGES_WITH_EXAMPLES)} holds {name_of(example)}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_block_of_python_compiles(page: Path) -> None:
    for text in blocks(page, "python"):
        compile(text, name_of(page), "exec")


@pytest.mark.parametrize("page", [ROOT / "README.md", ROOT / "docs" / "gym.md"], ids=name_of)
def test_every_reply_of_a_model_in_an_example_holds_a_kernel(page: Path) -> None:
    texts = [
        node.value
        for block in blocks(page, "python")
        for node in ast.walk(ast.parse(block))
        if isinstance(node, ast.Constant) and "_kernel_impl" in str(node.value)
    ]
    assert texts
    for text in texts:
        kernel = ast.parse(text.partition("```python\n")[2].partition("```")[0])
        assert any(isinstance(node, ast.Return) for node in ast.walk(kernel)), text


def test_the_plugin_of_the_docs_is_the_one_among_the_examples() -> None:
    page = ROOT / "docs" / "plugins.md"
    assert (PLUGIN / "squares.py").read_text() in blocks(page, "python")
    assert [(PLUGIN / "pyproject.toml").read_text()] == blocks(page, "toml")


@pytest.fixture
def plugin(tmp_path: Path) -> Path:
    """The example, built into a wheel and installed in a folder; by hand where its build tool is not here."""
    folder = tmp_path / "plugin"
    if importlib.util.find_spec("hatchling") is None or importlib.util.find_spec("pip") is None:
        _install_by_hand(folder)
        return folder
    source = tmp_path / "source"
    shutil.copytree(PLUGIN, source)
    options = ("--quiet", "--no-index", "--no-build-isolation", "--no-deps", "--disable-pip-version-check")
    installed = run("-m", "pip", "install", *options, "--target", str(folder), str(source), cwd=tmp_path)
    assert installed.returncode == 0, installed.stderr
    return folder


def _install_by_hand(folder: Path) -> None:
    metadata = folder / "torchstone_squares-1.0.dist-info"
    metadata.mkdir(parents=True)
    shutil.copy(PLUGIN / "squares.py", folder)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: torchstone-squares\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(entry_points((PLUGIN / "pyproject.toml").read_text()))


def entry_points(project: str) -> str:
    """As an installer writes them."""
    groups: dict[str, dict[str, str]] = tomllib.loads(project)["project"]["entry-points"]
    return "".join(
        f"[{group}]\n" + "".join(f"{name} = {where}\n" for name, where in points.items())
        for group, points in groups.items()
    )


def test_the_plugin_is_found_once_installed_and_judged(plugin: Path, tmp_path: Path) -> None:
    assert (
        "product\tSquares by multiplication.\n"
        in run("-m", "torchstone", "list", "backends", cwd=tmp_path, path=(plugin,)).stdout
    )
    listed = run("-m", "torchstone", "list", "operators", "--suite", "squares", cwd=tmp_path, path=(plugin,))
    assert listed.stdout == "aten.square.default\t4 cases\t2 timed\n"
    options = ("--suite", "squares", "--backend", "product", "--device", "cpu", "--effort", "quick", "--no-measure")
    outcome = run("-m", "torchstone", "run", *options, cwd=tmp_path, path=(plugin,))
    assert outcome.returncode == 0, outcome.stderr
    assert "| 4/4 agrees" in outcome.stdout
