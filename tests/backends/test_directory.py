"""The directory backend, on real folders."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torchstone import registry
from torchstone.backends import BackendOptions
from torchstone.backends.directory import DirectoryBackend
from torchstone.backends.python_source import MAX_PARSED_CHARACTERS
from torchstone.backends.source_files import MAX_BYTES
from torchstone.errors import UsageError
from torchstone.schema import SourceFiles

RUN_1 = "run_20240101_120000"
RUN_2 = "run_20240102_090000"


def write(path: Path, text: str = "def kernel(): ...\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def backend(root: Path) -> DirectoryBackend:
    return DirectoryBackend(BackendOptions(kernels_dir=root))


def origin(root: Path, operator: str) -> SourceFiles:
    found = backend(root).implementation(operator)
    assert found is not None
    assert isinstance(found.origin, SourceFiles)
    return found.origin


def chosen(root: Path, operator: str) -> str:
    return origin(root, operator).label


def reasons(root: Path) -> dict[str, str]:
    """Problems of a root in which one good kernel keeps the backend alive."""
    write(root / "mm/mm.py")
    return {problem.where: problem.reason for problem in backend(root).problems()}


# ---- layouts


def test_the_old_layout_is_read_with_its_entry_and_its_metadata_ignored(tmp_path: Path) -> None:
    source = "def relu_kernel_impl(x):\n    return x.clamp(min=0)\n"
    write(tmp_path / RUN_1 / "relu/relu_attempt_1.py", source)
    for stray in ("README.md", "OVERALL_SUMMARY.txt", "relu/metadata.txt", "relu/relu_summary.txt", "notes.py"):
        write(tmp_path / RUN_1 / stray)
    found = backend(tmp_path).implementation("aten.relu.default")
    assert found is not None
    assert (found.backend, found.operator, found.language) == ("directory", "aten.relu.default", "python")
    assert isinstance(found.origin, SourceFiles)
    assert found.origin.entry == "relu_kernel_impl"
    assert found.origin.label == f"{RUN_1}/relu/relu_attempt_1.py"
    assert [(file.name, file.text) for file in found.origin.files] == [("relu_attempt_1.py", source)]
    assert backend(tmp_path).problems() == ()


def test_kernels_written_by_hand_are_read(tmp_path: Path) -> None:
    write(tmp_path / "evaluation_only/relu/relu.py")
    assert chosen(tmp_path, "aten.relu.default") == "evaluation_only/relu/relu.py"


def test_the_new_layout_is_read_and_serves_its_overload_only(tmp_path: Path) -> None:
    write(tmp_path / "add__Tensor/add__Tensor_implementation_v1.py")
    found = origin(tmp_path, "aten.add.Tensor")
    assert found.entry == "add__Tensor_kernel_impl"
    assert found.label == "add__Tensor/add__Tensor_implementation_v1.py"
    assert backend(tmp_path).implementation("aten.add.Scalar") is None
    assert backend(tmp_path).implementation("aten.add_.Tensor") is None


def test_an_in_place_folder_serves_the_in_place_overload(tmp_path: Path) -> None:
    write(tmp_path / "add___Tensor/add___Tensor_implementation_v1.py")
    assert origin(tmp_path, "aten.add_.Tensor").entry == "add___Tensor_kernel_impl"
    assert backend(tmp_path).implementation("aten.add.Tensor") is None


@pytest.mark.parametrize(
    ("folder", "served", "unserved"),
    [
        ("relu", "aten.relu.default", "aten.relu.out"),
        ("add", "aten.add.Tensor", "aten.add.Scalar"),
        ("add_", "aten.add_.Tensor", "aten.add.Tensor"),
        ("_softmax", "aten._softmax.default", "aten.softmax.int"),
        ("__and__", "aten.__and__.Tensor", "aten.__and__.Scalar"),
    ],
)
def test_a_base_name_serves_default_and_tensor(tmp_path: Path, folder: str, served: str, unserved: str) -> None:
    write(tmp_path / folder / f"{folder}.py")
    assert origin(tmp_path, served).entry == f"{folder}_kernel_impl"
    assert backend(tmp_path).implementation(unserved) is None


@pytest.mark.parametrize("place", ["", RUN_1, "evaluation_only"])
def test_the_root_is_a_collection_one_run_or_a_plain_folder(tmp_path: Path, place: str) -> None:
    write(tmp_path / RUN_1 / "relu/relu_attempt_1.py")
    write(tmp_path / "evaluation_only/relu/relu.py")
    assert backend(tmp_path / place).operators() == ("aten.relu",)


def test_operators_of_other_namespaces_are_not_offered(tmp_path: Path) -> None:
    write(tmp_path / "nms/nms.py")
    assert backend(tmp_path).implementation("torchvision.nms.default") is None


def test_the_names_found_are_listed(tmp_path: Path) -> None:
    for folder in ("relu", "add__Tensor", "add___Tensor"):
        write(tmp_path / folder / f"{folder}.py")
    (tmp_path / "broken").mkdir()
    assert backend(tmp_path).operators() == ("aten.add.Tensor", "aten.add_.Tensor", "aten.relu")


def test_hidden_folders_and_caches_are_no_problems(tmp_path: Path) -> None:
    write(tmp_path / ".git/config")
    write(tmp_path / "__pycache__/relu.py")
    assert reasons(tmp_path) == {}


# ---- which one wins


def test_the_highest_attempt_wins_as_a_number(tmp_path: Path) -> None:
    for attempt in (1, 2, 10, 9):
        write(tmp_path / f"relu/relu_attempt_{attempt}.py")
    assert chosen(tmp_path, "aten.relu.default") == "relu/relu_attempt_10.py"


def test_the_highest_version_wins_as_a_number(tmp_path: Path) -> None:
    for version in ("", "_v2", "_v10", "_v9"):
        write(tmp_path / f"relu__default/relu__default_implementation{version}.py")
    assert chosen(tmp_path, "aten.relu.default") == "relu__default/relu__default_implementation_v10.py"


@settings(max_examples=25, deadline=None)
@given(
    st.sets(st.integers(0, 10**12), min_size=1, max_size=6),
    st.sampled_from(["_attempt_", "_implementation_v"]),
    st.data(),
)
def test_no_version_in_a_folder_is_newer_than_the_chosen_one(
    numbers: set[int], ending: str, data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        for number in numbers:
            zeros = "0" * data.draw(st.integers(0, 3))
            write(root / f"relu/relu{ending}{zeros}{number}.py")
        label = chosen(root, "aten.relu.default")
        assert int(label.removesuffix(".py").rpartition(ending)[2].lstrip("0") or "0") == max(numbers)


def test_a_file_without_a_number_is_older_than_every_numbered_one(tmp_path: Path) -> None:
    write(tmp_path / "relu/relu.py")
    write(tmp_path / "relu/relu_attempt_0.py")
    found = origin(tmp_path, "aten.relu.default")
    assert [file.name for file in found.files] == ["relu_attempt_0.py"]


def test_of_equal_numbers_the_newer_layout_wins(tmp_path: Path) -> None:
    for ending in ("_attempt_2", "_implementation_v2", "_implementation_v1"):
        write(tmp_path / f"relu/relu{ending}.py")
    assert chosen(tmp_path, "aten.relu.default") == "relu/relu_implementation_v2.py"


def test_the_newest_run_that_has_the_operator_wins(tmp_path: Path) -> None:
    write(tmp_path / RUN_1 / "relu/relu_attempt_5.py")
    write(tmp_path / RUN_1 / "mm/mm_attempt_1.py")
    write(tmp_path / RUN_2 / "relu/relu_attempt_1.py")
    assert chosen(tmp_path, "aten.relu.default") == f"{RUN_2}/relu/relu_attempt_1.py"
    assert chosen(tmp_path, "aten.mm.default") == f"{RUN_1}/mm/mm_attempt_1.py"


def test_runs_are_ordered_by_their_numbers_whatever_stands_before(tmp_path: Path) -> None:
    for run in ("run_9", "run_10", "llm_run_2", "zz_run_3"):
        write(tmp_path / run / "relu/relu_attempt_1.py")
    assert chosen(tmp_path, "aten.relu.default").startswith("run_10/")


def test_kernels_by_hand_win_over_runs_and_over_plain_folders(tmp_path: Path) -> None:
    write(tmp_path / RUN_2 / "relu__default/relu__default_implementation_v3.py")
    assert chosen(tmp_path, "aten.relu.default").startswith(RUN_2)
    write(tmp_path / "relu/relu.py")
    assert chosen(tmp_path, "aten.relu.default").startswith("relu/")
    write(tmp_path / "evaluation_only/relu/relu.py")
    assert chosen(tmp_path, "aten.relu.default").startswith("evaluation_only/")


@pytest.mark.parametrize(("base", "exact"), [("relu", "relu__default"), ("add_", "add___Tensor")])
def test_an_exact_overload_folder_wins_over_a_base_name_folder(tmp_path: Path, base: str, exact: str) -> None:
    write(tmp_path / base / f"{base}_attempt_9.py")
    write(tmp_path / exact / f"{exact}_implementation_v1.py")
    operator = "aten.relu.default" if base == "relu" else "aten.add_.Tensor"
    assert chosen(tmp_path, operator).startswith(f"{exact}/")


def test_a_broken_newest_attempt_is_not_replaced_by_an_older_one(tmp_path: Path) -> None:
    write(tmp_path / "relu/relu_attempt_1.py")
    write(tmp_path / "relu/relu_attempt_2.py", "")
    assert reasons(tmp_path) == {"relu": "relu_attempt_2.py is empty"}
    assert backend(tmp_path).implementation("aten.relu.default") is None


def test_an_unreadable_folder_is_reported_and_the_next_run_takes_its_place(tmp_path: Path) -> None:
    write(tmp_path / RUN_1 / "relu/relu_attempt_1.py")
    write(tmp_path / RUN_2 / "relu/metadata.txt")
    assert chosen(tmp_path, "aten.relu.default").startswith(RUN_1)
    assert list(reasons(tmp_path)) == [f"{RUN_2}/relu"]


# ---- what travels


def test_helper_modules_travel_along_and_other_attempts_do_not(tmp_path: Path) -> None:
    write(tmp_path / "relu/relu_attempt_2.py", "import tiles\n")
    for name in (
        "relu_attempt_1.py",
        "relu.py",
        "tiles.py",
        "blocks.py",
        "not-a-module.py",
        "notes.txt",
        "sub/deep.py",
    ):
        write(tmp_path / "relu" / name, f"# {name}\n")
    files = origin(tmp_path, "aten.relu.default").files
    assert [(file.name, file.text) for file in files] == [
        ("relu_attempt_2.py", "import tiles\n"),
        ("blocks.py", "# blocks.py\n"),
        ("tiles.py", "# tiles.py\n"),
    ]


def test_the_key_changes_with_a_helper_and_not_with_the_place(tmp_path: Path) -> None:
    keys = []
    for place, helper in (("a", "one"), ("b/run_1", "one"), ("c", "two")):
        write(tmp_path / place / "relu/relu.py")
        write(tmp_path / place / "relu/tiles.py", helper)
        found = backend(tmp_path / place.partition("/")[0]).implementation("aten.relu.default")
        assert found is not None
        keys.append(found.key)
    assert keys[0] == keys[1] != keys[2]


def test_a_byte_order_mark_is_left_out_of_the_text(tmp_path: Path) -> None:
    write(tmp_path / "relu/relu.py").write_bytes(b"\xef\xbb\xbfx = '\xc3\xa9'\r\n")
    assert origin(tmp_path, "aten.relu.default").files[0].text == "x = 'é'\r\n"


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("import triton\n", "triton"),
        ("import torch, triton.language as tl\n", "triton"),
        ("def f():\n    from triton import jit\n", "triton"),
        ("# import triton\n", "python"),
        ('"""\nimport triton\n"""\n', "python"),
        ("import tritonclient\n", "python"),
        ("from .triton import jit\n", "python"),
        ("import triton (\n", "python"),
        ("import triton\n\0", "python"),
        ("x = '\\d'\nimport triton\n", "triton"),
        ("import triton\nx = " + "-" * 100_000 + "1\n", "python"),
        ("import triton\n" + "#" * MAX_PARSED_CHARACTERS, "python"),
    ],
)
def test_the_language_is_read_from_the_imports(tmp_path: Path, text: str, language: str) -> None:
    write(tmp_path / "relu/relu.py", text)
    found = backend(tmp_path).implementation("aten.relu.default")
    assert found is not None
    assert found.language == language


def test_a_helper_that_imports_triton_makes_it_a_triton_kernel(tmp_path: Path) -> None:
    write(tmp_path / "relu/relu.py", "import tiles\n")
    write(tmp_path / "relu/tiles.py", "import triton\n")
    found = backend(tmp_path).implementation("aten.relu.default")
    assert found is not None
    assert found.language == "triton"


def test_reading_runs_nothing_and_imports_no_torch(tmp_path: Path) -> None:
    write(tmp_path / "relu/relu.py", f"open({str(tmp_path / 'ran')!r}, 'w')\nimport triton\n")
    code = (
        "import sys; from pathlib import Path; from torchstone.backends import BackendOptions; "
        "from torchstone.backends.directory import DirectoryBackend; "
        f"assert DirectoryBackend(BackendOptions(Path({str(tmp_path)!r}))).implementation('aten.relu.default'); "
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    assert not (tmp_path / "ran").exists()


# ---- problems


def test_a_folder_without_a_kernel_file_says_what_was_expected(tmp_path: Path) -> None:
    write(tmp_path / "relu/metadata.txt")
    write(tmp_path / "relu/kernel.py")
    assert reasons(tmp_path) == {
        "relu": "no kernel file; expected relu.py or relu_attempt_1.py or relu_implementation_v1.py"
    }


def test_a_run_within_a_run_is_reported(tmp_path: Path) -> None:
    write(tmp_path / RUN_2 / RUN_1 / "relu/relu.py")
    (where,) = reasons(tmp_path)
    assert where == f"{RUN_2}/{RUN_1}"


@pytest.mark.parametrize("name", ["my-kernel", "__Tensor", "3d"])
def test_a_name_that_is_no_operators_is_reported(tmp_path: Path, name: str) -> None:
    write(tmp_path / name / f"{name}.py")
    assert reasons(tmp_path) == {name: "the name is no operator's; write for instance 'relu' or 'add__Tensor'"}


@pytest.mark.parametrize("file", ["relu.py", "tiles.py"])
def test_text_that_is_not_utf_8_is_reported(tmp_path: Path, file: str) -> None:
    write(tmp_path / "relu/relu.py")
    (tmp_path / "relu" / file).write_bytes(b"# caf\xe9\n")
    assert reasons(tmp_path) == {"relu": f"{file} is not UTF-8 (byte 5); save it as UTF-8"}


def test_a_blank_kernel_is_reported_and_a_blank_helper_is_not(tmp_path: Path) -> None:
    write(tmp_path / "relu/relu.py", " \n\n")
    write(tmp_path / "add/add.py")
    write(tmp_path / "add/__init__.py", "")
    assert reasons(tmp_path) == {"relu": "relu.py is empty"}


def test_source_up_to_the_limit_is_read_and_one_byte_more_is_reported(tmp_path: Path) -> None:
    write(tmp_path / "relu/relu.py", "#" * (MAX_BYTES - 4))
    write(tmp_path / "relu/tiles.py", "####")
    assert reasons(tmp_path) == {}
    write(tmp_path / "relu/tiles.py", "#####")
    assert reasons(tmp_path) == {"relu": "too large: more than 4 MiB of source"}


@pytest.mark.parametrize("link", ["relu", "relu/relu.py", "relu/tiles.py"])
def test_a_link_out_of_the_kernels_folder_is_reported(tmp_path: Path, link: str) -> None:
    root, outside = tmp_path / "kernels", tmp_path / "outside"
    write(outside / "relu.py", "secret")
    if link != "relu":
        (root / "relu").mkdir(parents=True)
    if link == "relu/tiles.py":
        write(root / "relu/relu.py")
    root.mkdir(exist_ok=True)
    (root / link).symlink_to(outside if link == "relu" else outside / "relu.py")
    name = Path(link).name
    assert reasons(root) == {"relu": f"{name} is a link out of the kernels folder; copy what it names"}


def test_a_run_that_is_a_link_out_of_the_kernels_folder_is_reported(tmp_path: Path) -> None:
    write(tmp_path / "outside/relu/relu.py")
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels" / RUN_1).symlink_to(tmp_path / "outside")
    assert reasons(tmp_path / "kernels") == {RUN_1: f"{RUN_1} is a link out of the kernels folder; copy what it names"}


def test_links_within_the_kernels_folder_are_followed(tmp_path: Path) -> None:
    write(tmp_path / "real/relu/relu_attempt_1.py", "x = 1\n")
    (tmp_path / "real/relu/relu_attempt_2.py").symlink_to("relu_attempt_1.py")
    (tmp_path / "kernels").symlink_to(tmp_path / "real")
    assert origin(tmp_path / "kernels", "aten.relu.default").files[0].text == "x = 1\n"


def test_what_is_no_file_is_reported_and_never_waited_for(tmp_path: Path) -> None:
    for folder in ("relu", "exp", "log", "sin"):
        (tmp_path / folder).mkdir()
    os.mkfifo(tmp_path / "relu/relu.py")
    (tmp_path / "exp/exp.py").mkdir()
    (tmp_path / "log/log.py").symlink_to("nowhere.py")
    (tmp_path / "sin/sin.py").symlink_to("sin.py")
    assert reasons(tmp_path) == {
        "exp": "exp.py is not a file",
        "log": "log.py is a link to nothing",
        "relu": "relu.py is not a file",
        "sin": "sin.py is a link to nothing",
    }


def test_a_link_that_leads_to_itself_hurts_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "relu").symlink_to("relu")
    assert reasons(tmp_path) == {}
    assert backend(tmp_path).operators() == ("aten.mm",)


@contextmanager
def not_root() -> Iterator[None]:
    """Root may read everything; for the time of the block this process is somebody else."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that others than its owner can enter, unlike ``tmp_path``."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        os.chmod(name, 0o755)
        yield Path(name)


@pytest.mark.parametrize("forbidden", ["relu", "relu/relu.py", RUN_1])
def test_a_folder_or_file_that_may_not_be_read_is_reported(open_folder: Path, forbidden: str) -> None:
    write(open_folder / "relu/relu.py")
    write(open_folder / RUN_1 / "exp/exp.py")
    write(open_folder / "mm/mm.py")
    (open_folder / forbidden).chmod(0)
    with not_root():
        found = backend(open_folder)
    (open_folder / forbidden).chmod(0o700)
    assert [(item.where, item.reason) for item in found.problems()] == [
        (forbidden.partition("/")[0], "permission denied")
    ]
    assert found.implementation("aten.mm.default") is not None


def test_a_root_that_may_not_be_read_is_a_usage_error(open_folder: Path) -> None:
    write(open_folder / "kernels/relu/relu.py")
    (open_folder / "kernels").chmod(0)
    for root in (open_folder / "kernels", open_folder / "kernels/relu"):
        with not_root(), pytest.raises(UsageError, match=r"cannot be read: permission denied\."):
            backend(root)
    (open_folder / "kernels").chmod(0o700)


def test_names_of_strange_bytes_are_reported_in_one_printable_line(tmp_path: Path) -> None:
    os.mkdir(os.fsencode(tmp_path) + b"/caf\xe9\nx")
    (where,) = reasons(tmp_path)
    assert where == "caf\\udce9\\nx"


# ---- nothing to offer


def test_without_a_folder_the_option_is_named() -> None:
    with pytest.raises(UsageError, match=r"needs the folder of kernels: add --kernels-dir DIR\. Expected one folder"):
        DirectoryBackend(BackendOptions())


def test_a_missing_folder_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"nowhere does not exist\. Expected one folder per operator"):
        backend(tmp_path / "nowhere")


def test_a_file_is_no_kernels_folder(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"relu\.py is not a folder\. Give the folder"):
        backend(write(tmp_path / "relu.py"))


def test_an_empty_folder_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no kernel can be read from .*: it holds no folders\. Expected"):
        backend(tmp_path)


def test_only_unreadable_folders_are_a_usage_error_that_names_the_first(tmp_path: Path) -> None:
    write(tmp_path / "relu/relu.py", "")
    (tmp_path / "exp").mkdir()
    with pytest.raises(UsageError, match=r"exp: no kernel file; .* \(and 1 more\)\. Expected") as caught:
        backend(tmp_path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["directory", "pregenerated"])
def test_the_registry_knows_it_by_both_names(name: str) -> None:
    assert registry.backends.factory(name) is DirectoryBackend


# ---- folders of `torchstone generate`


def generation(folder: Path, started_unix_ns: int = 1_700_000_000_000_000_000) -> Path:
    write(folder / "generation.json", f'{{"started_unix_ns": {started_unix_ns}, "model": "some"}}')
    return folder


def test_the_attempt_that_best_json_names_is_taken(tmp_path: Path) -> None:
    for number in (1, 2, 3):
        write(tmp_path / f"{RUN_1}/relu/relu_attempt_{number}.py", f"relu_kernel_impl = {number}\n")
    write(tmp_path / f"{RUN_1}/relu/best.json", '{"file": "relu_attempt_2.py", "number": 2, "right": true}')
    found = origin(tmp_path, "aten.relu.default")
    assert found.label == f"{RUN_1}/relu/relu_attempt_2.py"
    assert [file.name for file in found.files] == ["relu_attempt_2.py"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"file": "relu_attempt_9.py"}', "best.json names 'relu_attempt_9.py', which is no attempt in this folder"),
        ('{"file": "../../secret.py"}', "which is no attempt in this folder"),
        ('{"attempt": 2}', "best.json is not readable"),
        ("[" * 100_000, "best.json is not readable"),
        ("", "best.json is not readable"),
    ],
    ids=["absent", "outside", "other", "deep", "empty"],
)
def test_a_best_json_that_names_no_attempt_is_a_problem_and_no_other_attempt_is_taken(
    text: str, reason: str, tmp_path: Path
) -> None:
    write(tmp_path / "relu/relu_attempt_1.py")
    write(tmp_path / "relu/best.json", text)
    assert reason in reasons(tmp_path)["relu"]


def test_runs_of_any_name_are_recognised_and_ordered_by_their_beginning(tmp_path: Path) -> None:
    write(tmp_path / RUN_1 / "relu/relu_attempt_1.py")
    write(generation(tmp_path / "my_experiment_v1") / "relu/relu_attempt_1.py")
    assert chosen(tmp_path, "aten.relu.default").startswith(RUN_1)  # of 2024; the other began in 2023
    write(generation(tmp_path / "mm", 1_800_000_000_000_000_000) / "relu/relu_attempt_1.py")  # no operator's folder
    assert chosen(tmp_path, "aten.relu.default").startswith("mm/")
    assert backend(tmp_path).problems() == ()
    assert chosen(tmp_path / "mm", "aten.relu.default") == "relu/relu_attempt_1.py"


def test_a_run_whose_beginning_cannot_be_read_is_older_than_all(tmp_path: Path) -> None:
    write(tmp_path / "torn/generation.json", '{"started_unix')
    write(tmp_path / "torn/relu/relu_attempt_7.py")
    assert chosen(tmp_path, "aten.relu.default").startswith("torn")
    write(tmp_path / RUN_1 / "relu/relu_attempt_1.py")
    assert chosen(tmp_path, "aten.relu.default").startswith(RUN_1)
