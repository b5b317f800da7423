"""From a file to a benchmark: what it offers, what it may import, and what is said where it offers nothing."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from torchstone.benchmarks.loading import BenchmarkLoadError, load_benchmark
from torchstone.benchmarks.protocol import BaseBenchmark

METHODS = """
    def setup(self): pass
    def benchmark_fn(self): pass
    def teardown(self): pass
"""


@pytest.fixture(autouse=True)
def _imports_are_undone() -> Iterator[None]:
    before, path = set(sys.modules), list(sys.path)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - before:
        if name.startswith(("ch", "baseline", "optimized", "common", "helpers")):
            del sys.modules[name]


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_the_only_class_with_the_methods_is_the_benchmark(tmp_path: Path) -> None:
    text = f"from torchstone.harness import BaseBenchmark\nclass Helper: pass\nclass Mine:{METHODS}"
    assert type(load_benchmark(write(tmp_path / "ch1" / "baseline_x.py", text))).__name__ == "Mine"


def test_get_benchmark_wins_and_main_blocks_do_not_run(tmp_path: Path) -> None:
    text = (
        f"class A:{METHODS}\nclass B:{METHODS}\ndef get_benchmark(): return B()\n"
        "if __name__ == '__main__': raise SystemExit(1)"
    )
    assert type(load_benchmark(write(tmp_path / "ch1" / "baseline_x.py", text))).__name__ == "B"


def test_root_and_own_folder_are_importable_and_imported_classes_do_not_count(tmp_path: Path) -> None:
    write(tmp_path / "ch13" / "helpers_of_mine.py", "VALUE = 3")
    write(tmp_path / "common_tools" / "base.py", f"class TheirBase:{METHODS}")
    write(tmp_path / "ch13" / "baseline_x.py", f"class Base:{METHODS}")
    text = """
from ch13.helpers_of_mine import VALUE
import helpers_of_mine
from .helpers_of_mine import VALUE as again
from common_tools.base import TheirBase
from ch13.baseline_x import Base
class Optimized(Base, TheirBase):
    value = VALUE + again + helpers_of_mine.VALUE
"""
    found = load_benchmark(write(tmp_path / "ch13" / "optimized_x.py", text))
    assert type(found).__name__ == "Optimized"
    assert found.value == 9
    assert type(found).__module__ == "ch13.optimized_x"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1", "baseline_x.py has no get_benchmark() and no class with the methods setup, benchmark_fn, teardown"),
        (f"class A:{METHODS}\nclass B:{METHODS}", "baseline_x.py has 2 benchmark classes (A, B)"),
        ("def get_benchmark(): return 3", "baseline_x.py: get_benchmark() returned a int without setup"),
    ],
)
def test_a_file_without_one_benchmark_is_told_in_one_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(BenchmarkLoadError) as caught:
        load_benchmark(write(tmp_path / "ch1" / "baseline_x.py", text))
    assert str(caught.value).startswith(message)


def test_constructor_arguments_are_remembered() -> None:
    class Sized(BaseBenchmark):
        def __init__(self, size: int, *, depth: int = 1) -> None:
            self.size = size * depth

    assert Sized(3, depth=2)._constructor_arguments == ((3,), {"depth": 2})


def test_the_public_names_are_listed_and_the_base_class_does_not_import_torch() -> None:
    code = (
        "import sys, torchstone.harness as h\n"
        "from torchstone.harness import BaseBenchmark, BenchmarkConfig, SkipBenchmark, load_benchmark, Comparison\n"
        "assert 'torch' not in sys.modules and 'numpy' not in sys.modules\n"
        "assert set(h.__all__) <= set(dir(h)) and set(h.__all__) == set(h._HOMES)\n"
        "assert all(getattr(h, name) for name in h.__all__)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
