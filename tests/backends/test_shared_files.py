"""Files that kernels of a folder share: which of them travel with which kernel. No kernel is run."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchstone.backends import BackendOptions
from torchstone.backends.directory import DirectoryBackend, kernel_in
from torchstone.backends.shared_files import MAX_FILES
from torchstone.backends.source_files import MAX_BYTES
from torchstone.schema import Implementation, SourceFiles

RUN = "run_20240101_120000"


def write(root: Path, **files: str) -> None:
    """``write(root, **{"relu/relu.py": "import common_ops"})``."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def kernel(root: Path, operator: str = "aten.relu.default") -> Implementation:
    found = DirectoryBackend(BackendOptions(root)).implementation(operator)
    assert found is not None
    return found


def travelling(root: Path, operator: str = "aten.relu.default") -> dict[str, str]:
    """Files beside the kernel's own, by name."""
    origin = kernel(root, operator).origin
    assert isinstance(origin, SourceFiles)
    return {file.name: file.text for file in origin.files[1:]}


def problems(root: Path) -> dict[str, str]:
    write(root, **{"mm/mm.py": "x = 1"})
    return {problem.where: problem.reason for problem in DirectoryBackend(BackendOptions(root)).problems()}


def test_a_module_at_the_root_travels_with_the_kernels_that_import_it(tmp_path: Path) -> None:
    write(tmp_path, **{"common_ops.py": "import inner", "inner.py": "import triton", "other.py": "", "notes.txt": ""})
    write(
        tmp_path, **{"relu/relu.py": "def f():\n    from common_ops import clip", "abs/abs.py": "# import common_ops"}
    )
    assert travelling(tmp_path) == {"common_ops.py": "import inner", "inner.py": "import triton"}
    assert kernel(tmp_path).language == "triton"
    assert travelling(tmp_path, "aten.abs.default") == {}
    assert problems(tmp_path) == {}


def test_the_key_changes_with_the_shared_files_in_use_and_with_no_others(tmp_path: Path) -> None:
    write(tmp_path, **{"common_ops.py": "x = 1", "other.py": "x = 1", "relu/relu.py": "import common_ops"})
    first = kernel(tmp_path).key
    write(tmp_path, **{"other.py": "x = 2"})
    assert kernel(tmp_path).key == first
    write(tmp_path, **{"common_ops.py": "x = 2"})
    assert kernel(tmp_path).key != first


def test_of_a_package_the_modules_travel_that_are_imported(tmp_path: Path) -> None:
    write(tmp_path, **{"relu/relu.py": "from common.deep import blocks\nimport common.tiles as t\n"})
    write(tmp_path, **{"common/__init__.py": "from . import base", "common/base.py": "", "common/unused.py": ""})
    write(tmp_path, **{"common/deep/__init__.py": "", "common/deep/blocks.py": "from ..base import x, y"})
    write(tmp_path, **{"common/tiles.py": "from .sizes import *\nfrom ... import beyond", "common/sizes.py": ""})
    assert sorted(travelling(tmp_path)) == [
        "common/__init__.py",
        "common/base.py",
        "common/deep/__init__.py",
        "common/deep/blocks.py",
        "common/sizes.py",
        "common/tiles.py",
    ]
    assert problems(tmp_path) == {}


def test_a_folder_that_nobody_imports_is_no_package(tmp_path: Path) -> None:
    write(tmp_path, **{"relu/__init__.py": "", "relu/kernel.py": "x = 1"})
    assert problems(tmp_path) == {
        "relu": "no kernel file; expected relu.py or relu_attempt_1.py or relu_implementation_v1.py; "
        "no kernel imports it as a package"
    }


def test_an_operators_folder_is_no_package(tmp_path: Path) -> None:
    write(tmp_path, **{"relu/relu.py": "from abs import abs", "abs/__init__.py": "", "abs/abs.py": "x = 1"})
    assert travelling(tmp_path) == {}


def test_files_of_the_own_folder_come_first_then_those_of_the_run_then_the_root(tmp_path: Path) -> None:
    write(tmp_path, **dict.fromkeys(("one.py", "two.py", "three.py"), "root"))
    write(tmp_path / RUN, **{"one.py": "run = 1", "two.py": "run = 1", "relu/one.py": "own = 1"})
    write(tmp_path / RUN, **{"relu/relu.py": "import one, two, three"})
    assert travelling(tmp_path) == {"one.py": "own = 1", "two.py": "run = 1", "three.py": "root"}


def test_a_shared_file_replaces_no_module_of_python_or_torch_and_that_is_told(tmp_path: Path) -> None:
    write(tmp_path, **{"random.py": "", "torch.py": "", "string.py": "", "relu/relu.py": "import random, torch"})
    assert travelling(tmp_path) == {}
    found = problems(tmp_path)
    assert sorted(found) == ["random.py", "torch.py"]
    assert "'random' is a module of Python or of torch; give the file another name" in found["random.py"]


def test_headers_travel_with_what_includes_them(tmp_path: Path) -> None:
    write(tmp_path, **{"blocks.cuh": '#include "types.h"', "types.h": "", "unused.h": "", "system.h": "", "own.h": ""})
    write(tmp_path, **{"relu/relu.cpp": '  #  include "blocks.cuh"\n#include <system.h>\n#include "own.h"\n'})
    write(tmp_path, **{"relu/own.h": "// own", "abs/abs.cpp": '#include "../types.h"\n#include "/etc/passwd.h"\n'})
    assert travelling(tmp_path) == {"own.h": "// own", "blocks.cuh": '#include "types.h"', "types.h": ""}
    assert travelling(tmp_path, "aten.abs.default") == {}


def test_more_files_than_may_be_shared_are_a_problem(tmp_path: Path) -> None:
    write(tmp_path, **{f"part_{number}.py": f"import part_{number + 1}" for number in range(MAX_FILES)})
    write(tmp_path, **{"relu/relu.py": "import part_0"})
    assert problems(tmp_path) == {}
    write(tmp_path, **{f"part_{MAX_FILES}.py": ""})
    assert problems(tmp_path) == {
        "relu": f"imports more than {MAX_FILES} shared files; install what many kernels share as a package"
    }


def test_shared_text_counts_towards_the_size_of_the_kernel(tmp_path: Path) -> None:
    write(tmp_path, **{"relu/relu.py": "import big", "big.py": "#" * (MAX_BYTES - len("import big"))})
    assert problems(tmp_path) == {}
    write(tmp_path, **{"big.py": "#" * MAX_BYTES})
    assert problems(tmp_path) == {"relu": "too large: more than 4 MiB of source"}


@pytest.mark.parametrize("linked", ["common_ops.py", "common"])
def test_a_shared_link_out_of_the_kernels_folder_is_a_problem(tmp_path: Path, linked: str) -> None:
    write(tmp_path, **{"outside/__init__.py": "secret", "secret.py": "", "kernels/relu/relu.py": "import common_ops"})
    write(tmp_path, **{"kernels/abs/abs.py": "import common"})
    (tmp_path / "kernels" / linked).symlink_to(tmp_path / ("secret.py" if linked.endswith(".py") else "outside"))
    user = "relu" if linked.endswith(".py") else "abs"
    assert "is a link out of the kernels folder" in problems(tmp_path / "kernels")[user]


def test_imports_of_what_is_not_there_or_no_python_are_left_to_the_worker(tmp_path: Path) -> None:
    write(tmp_path, **{"relu/relu.py": "import nowhere\nfrom . import common_ops\n", "common_ops.py": ""})
    write(tmp_path, **{"abs/abs.py": "import common_ops\ndef ("})
    assert travelling(tmp_path) == travelling(tmp_path, "aten.abs.default") == {}
    assert problems(tmp_path) == {}


def test_a_single_folder_is_read_with_what_it_shares(tmp_path: Path) -> None:
    write(tmp_path, **{"common_ops.py": "x = 1", "relu/relu.py": "import common_ops"})
    assert [file.name for file in kernel_in(tmp_path / "relu").origin.files] == ["relu.py", "common_ops.py"]


def test_the_pages_tell_the_limits_of_the_code() -> None:
    pages = Path(__file__).parents[2] / "docs"
    assert f"At most {MAX_FILES} shared files" in (pages / "backends.md").read_text()
    assert f"count towards its {MAX_BYTES >> 20} MiB" in (pages / "backends.md").read_text()
    assert f"At most {MAX_FILES} files and\n{MAX_BYTES >> 20} MiB." in (pages / "api.md").read_text()
