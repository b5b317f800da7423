"""Recorded calls as a suite: what is read from which file, what becomes a case, and what is said about the rest."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import msgspec
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from torchstone import operators
from torchstone.calls.draw_arguments import draw_call
from torchstone.errors import MissingExtraError, UsageError
from torchstone.schema import Case, JudgedDevice, Normal, Scalar, Sequence, Tensor, decode, encode, tensors_of
from torchstone.suites import CaseQuery, input_bytes
from torchstone.suites.device_only_operators import CUDA_ONLY
from torchstone.suites.recorded_call_files import DEFAULT_SOURCE, Row, identity_of, read_source
from torchstone.suites.torchbench import (
    NOT_DOMINATED,
    SAME_CALL,
    SYNTHETIC,
    TIMED_BYTES,
    TraceSuite,
    WholeTraceSuite,
)

DATASET = Path(__file__).parents[3] / "shared" / "data" / "torchbench_problems.parquet"
needs_dataset = pytest.mark.skipif(not DATASET.exists(), reason="the shared dataset is not here")

SMALL = "((T([2, 3], f16),), {})"
ROWS: list[dict[str, Any]] = [
    {"op_name": "aten.relu.default", "args": SMALL, "count": 3, "in_models": ["resnet", "vit", "a", "b", "c"]},
    {"op_name": "aten.relu.default", "args": "((T([1024, 1024], f16),), {})", "count": 2},
    {"op_name": "aten.relu.default", "args": "((T([2, 3], f16, stride=(3, 1)),), {})", "count": 4},
    {"op_name": "aten.neg.default", "args": SMALL, "included_in_benchmark": False, "why_excluded": ["no", "never"]},
    {"op_name": "aten.neg.default", "args": "((T([4], f32),), {})", "count": 0},
    {"op_name": "aten.neg.default", "args": "((T([5], f32),), {})", "count": 1},
    {"op_name": "aten._cudnn_rnn.default", "args": SMALL},
    {"op_name": "aten._to_copy.default", "args": "((T([3], f32),), {'device': 'cuda', 'dtype': f16})"},
]


def text_of(rows: Iterable[dict[str, Any]]) -> str:
    lines = [(f"Operator: {row['op_name']}", f"cnt: {row.get('count', 1)}, {row['args']}") for row in rows]
    return "\n".join(line for pair in lines for line in pair)


def write(folder: Path, ending: str, rows: list[dict[str, Any]]) -> str:
    path = folder / f"calls.{ending}"
    if ending == "parquet":
        arrow = pytest.importorskip("pyarrow")
        pytest.importorskip("pyarrow.parquet").write_table(arrow.Table.from_pylist(rows), path)
    elif ending == "txt":
        path.write_text(text_of(rows))
    elif ending == "json":
        path.write_text(json.dumps(rows))
    else:
        path.write_text("\n".join(map(json.dumps, rows)) + "\n")
    return str(path)


def cases(source: str, suite: type[TraceSuite] = TraceSuite, **query: Any) -> tuple[Case, ...]:
    return suite().cases(CaseQuery(source=source, **query))


# Files.


@pytest.mark.parametrize("ending", ["parquet", "json", "jsonl"])
def test_every_format_gives_the_same_cases(tmp_path: Path, ending: str) -> None:
    complete = [{"count": 1, "included_in_benchmark": True, "why_excluded": [], "in_models": [], **row} for row in ROWS]
    assert cases(write(tmp_path, ending, complete)) == cases(write(tmp_path, "json", ROWS))


def test_a_trace_text_gives_what_it_says(tmp_path: Path) -> None:
    found = cases(write(tmp_path, "txt", ROWS), operators=("relu",))
    assert [(case.operator, case.occurrences) for case in found] == [("aten.relu.default", 7), ("aten.relu.default", 2)]


def test_an_overload_that_was_renamed_has_its_new_name(tmp_path: Path) -> None:
    row = {"op_name": "aten.sum.SymInt", "args": "((T([2, 3], f16), [1]), {})"}
    assert cases(write(tmp_path, "txt", [row]))[0].operator == "aten.sum.dim_IntList"


ROW = st.builds(
    Row,
    st.sampled_from(["aten.relu.default", "aten.add.Tensor"]),
    st.text(max_size=20),
    st.integers(0, 1 << 40),
    st.booleans(),
    st.none() | st.lists(st.text(max_size=9), max_size=2).map(tuple),
    st.none() | st.booleans(),
    st.none() | st.lists(st.text(max_size=9), max_size=2).map(tuple),
)


@given(st.lists(ROW, max_size=5))
def test_rows_written_as_json_lines_are_read_back(rows: list[Row]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "calls.jsonl"
        path.write_bytes(b"\n".join(msgspec.json.encode(row) for row in rows))
        assert [recorded.row for recorded in read_source(str(path))] == rows


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("a.txt", "cnt: 1, ((), {})", "a.txt, line 1, column 1: expected 'Operator: aten.add.Tensor', got 'cnt: 1"),
        ("a.txt", "Operator: aten.add.Tensor\n\ncnt: x", "a.txt, line 3, column 1: expected 'cnt: 12"),
        ("a.txt", "Operator: add\ncnt: 1, ((), {})", "a.txt, line 2: 'add' is no operator"),
        ("a.txt", "Operator: aten.add.Tensor\ncnt: 1, ((T([2], f17),), {})", "a.txt, line 2, column 18: expected a d"),
        ("a.jsonl", '{"op_name": "aten.add.Tensor"}', "a.jsonl, line 1: Object missing required field `args`"),
        ("a.jsonl", '\n{"op_name": 1, "args": ""}', "a.jsonl, line 2: Expected `str`, got `int` - at `$.op_name`"),
        ("a.jsonl", '{"op_name": "aten.add.Tensor", "args": "(("}', "line 1, column 3 of args: expected a value"),
        ("a.json", '[{"op_name": "aten.add.Tensor", "args": null}]', "a.json, item 1: Expected `str`, got `null`"),
        ("a.txt", f"Operator: aten.neg.default\ncnt: 1, (({1 << 63},), {{}})", "column 11: a whole number that 64"),
        ("a.json", "{}", "Expected a list of objects with 'op_name' and 'args'"),
        ("a.parquet", "no", "a.parquet is no Parquet file"),
        ("a.csv", "", "has none of the endings .parquet, .json, .jsonl, .txt"),
        ("a.txt", "\udcff", "cannot be read"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_with_its_place(tmp_path: Path, name: str, content: str, says: str) -> None:
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow")
    path = tmp_path / name
    path.write_bytes(content.encode(errors="surrogateescape"))
    with pytest.raises(UsageError) as caught:
        cases(str(path))
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_row_of_a_parquet_file_is_named(tmp_path: Path) -> None:
    source = write(tmp_path, "parquet", [ROWS[0], {"op_name": "aten.neg.default", "args": "((1 + 1,), {})"}])
    with pytest.raises(UsageError, match=r"calls.parquet, row 2, column 5 of args: '\+' has no place here"):
        cases(source)


def test_a_file_that_is_not_there_is_said() -> None:
    for use in (cases, identity_of):
        with pytest.raises(UsageError, match=r"source 'nowhere.txt' cannot be read"):
            use("nowhere.txt")


@pytest.mark.parametrize(("package", "source"), [("pyarrow", "a.parquet"), ("huggingface_hub", DEFAULT_SOURCE)])
def test_a_missing_package_names_its_extra(monkeypatch: pytest.MonkeyPatch, package: str, source: str) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=rf"needs the package {package}. .*pip install torchstone\[traces\]"):
        read_source(source)


# Cases.


def test_calls_say_how_often_where_and_whether_speed_means_something(tmp_path: Path) -> None:
    small, large = cases(write(tmp_path, "json", ROWS), operators=("relu",))
    assert (small.occurrences, small.timed, small.suite) == (7, False, "torchbench")
    assert small.tags == ("resnet", "vit", "a", "and-2-more-models")
    assert small.args == (Tensor((2, 3), "float16", Normal()),)
    assert input_bytes(large) >= TIMED_BYTES
    assert large.timed


def test_the_largest_number_of_64_bits_is_read(tmp_path: Path) -> None:
    row = {"op_name": "aten.slice_backward.default", "args": f"((T([2], f16), [4], 0, 2, {(1 << 63) - 1}, 1), {{}})"}
    (case,) = cases(write(tmp_path, "json", [row]))
    assert case.args[4] == Scalar((1 << 63) - 1)


def test_calls_too_small_to_tell_say_so(tmp_path: Path) -> None:
    shapes = ("[0, 3]", "[]", "[2]")
    rows = [{"op_name": "aten.neg.default", "args": f"((T({shape}, f16),), {{}})"} for shape in shapes]
    assert [bool(case.indistinct) for case in cases(write(tmp_path, "json", rows))] == [True, True, False]


def test_a_recorded_device_is_the_one_under_judgement(tmp_path: Path) -> None:
    (copy,) = cases(write(tmp_path, "json", ROWS), operators=("_to_copy",))
    assert copy.kwargs["device"] == JudgedDevice()


def test_what_is_left_out_is_counted_with_its_reason(tmp_path: Path) -> None:
    source = write(tmp_path, "json", ROWS)
    expected = {"no; never": 1, SYNTHETIC: 1, CUDA_ONLY: 1, SAME_CALL: 1}
    assert TraceSuite().left_out(CaseQuery(source=source)) == expected
    without_rnn = {reason: count for reason, count in expected.items() if reason != CUDA_ONLY}
    assert TraceSuite().left_out(CaseQuery(source=source, device_type="cuda")) == without_rnn
    assert TraceSuite().left_out(CaseQuery(("neg",), source=source)) == {"no; never": 1, SYNTHETIC: 1}
    assert WholeTraceSuite().left_out(CaseQuery(source=source, device_type="cuda")) == {SAME_CALL: 1}


def test_only_asked_operators_are_parsed(tmp_path: Path) -> None:
    source = write(tmp_path, "json", [{"op_name": "aten.add.Tensor", "args": "nonsense"}, *ROWS])
    assert len(cases(source, operators=("neg",))) == 1


def test_an_operator_without_a_case_is_an_error_that_says_why(tmp_path: Path) -> None:
    source = write(tmp_path, "json", ROWS)
    with pytest.raises(UsageError, match=r"unknown recorded operator 'relu.out'"):
        cases(source, operators=("relu.out",))
    for names in (("_cudnn_rnn",), ("relu", "_cudnn_rnn")):
        with pytest.raises(UsageError, match=rf"every recorded call of '_cudnn_rnn': {CUDA_ONLY} \(1\)"):
            cases(source, operators=names)


def test_dtypes_keep_calls_that_use_one_of_them(tmp_path: Path) -> None:
    source = write(tmp_path, "json", ROWS)
    assert [case.operator for case in cases(source, dtypes=("float32",))] == [
        "aten.neg.default",
        "aten._to_copy.default",
    ]
    with pytest.raises(UsageError, match="no recorded call in bfloat16"):
        cases(source, dtypes=("bfloat16",))


def test_calls_dominated_by_overhead_can_be_asked_for_and_are_then_timed(tmp_path: Path) -> None:
    large = "((T([1024, 1024], f16),), {})"
    rows = [
        {"op_name": "aten.relu.default", "args": SMALL, "is_overhead_dominated_op": True},
        {"op_name": "aten.relu.default", "args": large, "is_overhead_dominated_op": True},
        {"op_name": "aten.neg.default", "args": large, "is_overhead_dominated_op": False},
    ]
    source = write(tmp_path, "json", rows)
    assert [case.timed for case in cases(source)] == [False, False, True]
    asked = cases(source, overhead_dominated=True)
    assert [(case.operator, case.timed) for case in asked] == [("aten.relu.default", True)] * 2
    assert all("overhead-dominated" in case.tags for case in asked)
    with pytest.raises(UsageError, match=rf"every recorded call of 'neg': {NOT_DOMINATED} \(1\)"):
        cases(source, operators=("neg",), overhead_dominated=True)
    with pytest.raises(UsageError, match="item 1: the row does not say"):
        cases(write(tmp_path, "json", ROWS), overhead_dominated=True)


def test_the_same_content_is_the_same_source(tmp_path: Path) -> None:
    one, other = tmp_path / "one.txt", tmp_path / "other.txt"
    one.write_text("a")
    other.write_text("a")
    assert identity_of(str(one)) == identity_of(str(other))
    other.write_text("b")
    assert identity_of(str(one)) != identity_of(str(other))
    assert identity_of(DEFAULT_SOURCE) == DEFAULT_SOURCE
    assert identity_of(None) is None


# The hub.


@pytest.mark.parametrize(
    "source", ["hf://datasets/a/b/c.txt", "hf://datasets/a/b/c.txt@main", "hf://a/b.txt@" + "0" * 40]
)
def test_a_file_of_the_hub_must_be_pinned(source: str) -> None:
    with pytest.raises(UsageError, match="40 digits of a commit"):
        read_source(source)


REVISION = "0123456789abcdef0123456789abcdef01234567"


class Hub(BaseHTTPRequestHandler):
    """As much of a hub as one file needs."""

    content = text_of(ROWS).encode()

    def _answer(self, body: bytes) -> None:
        known = self.path == f"/datasets/some/calls/resolve/{REVISION}/calls.txt"
        self.send_response(200 if known else 404)
        self.send_header("X-Repo-Commit", REVISION)
        self.send_header("ETag", '"one"')
        self.send_header("Content-Length", str(len(self.content) if known else 0))
        self.end_headers()
        self.wfile.write(body if known else b"")

    def do_HEAD(self) -> None:
        self._answer(b"")

    def do_GET(self) -> None:
        self._answer(self.content)

    def log_message(self, *_: object) -> None:
        pass


def test_a_file_is_fetched_from_a_hub_once_and_what_is_not_there_is_said(tmp_path: Path) -> None:
    pytest.importorskip("huggingface_hub")
    code = (
        "import sys; from torchstone.suites.recorded_call_files import read_source\n"
        "from torchstone.errors import InfrastructureError\n"
        "for source in sys.argv[1:]:\n"
        "    try: print(len(read_source(source)))\n"
        "    except InfrastructureError as error: print(error)\n"
    )
    there, missing = (f"hf://datasets/some/calls/{name}.txt@{REVISION}" for name in ("calls", "other"))
    with ThreadingHTTPServer(("127.0.0.1", 0), Hub) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        environment = {
            **{name: value for name, value in os.environ.items() if "proxy" not in name.lower()},
            "HF_ENDPOINT": f"http://127.0.0.1:{server.server_port}",
            "HF_HOME": str(tmp_path),
            "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        }
        command = [sys.executable, "-c", code, there, there, missing]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        server.shutdown()
    lines = done.stdout.splitlines()
    assert lines[:2] == [str(len(ROWS))] * 2, done.stderr
    assert f"{missing} cannot be fetched: " in lines[2]
    assert "--source PATH" in lines[2]


# The dataset.


@pytest.fixture(scope="module")
def everything() -> tuple[Case, ...]:
    pytest.importorskip("pyarrow")
    return cases(str(DATASET), WholeTraceSuite, device_type="cuda")


@needs_dataset
def test_every_row_of_the_dataset_is_a_case_or_is_left_out_for_a_reason(everything: tuple[Case, ...]) -> None:
    rows = read_source(str(DATASET))
    counted = sum(case.occurrences for case in everything)
    assert len(rows) == 19171
    assert len(everything) + 25 == len(rows), "25 rows repeat a call"
    assert counted == sum(recorded.row.count for recorded in rows)
    assert {case.operator for case in everything} == {recorded.operator for recorded in rows}
    assert all(decode(encode(case), Case).key == case.key for case in everything), "the same wherever it is sent"
    included = [recorded for recorded in rows if recorded.row.included_in_benchmark]
    assert len(included) == 15568
    suite = TraceSuite()
    few = CaseQuery(("relu", "addmm", "add"), source=str(DATASET))
    of_few = [recorded for recorded in rows if recorded.operator.split(".")[1] in ("relu", "addmm", "add")]
    assert len(suite.cases(few)) + sum(suite.left_out(few).values()) == len(of_few)


NOT_ON_THE_CPU = {
    "aten._cudnn_rnn.default": "runs on CUDA only",
    "aten._cudnn_rnn_backward.default": "runs on CUDA only",
    "aten._fft_c2c.default": "complex32, which no FFT on the CPU takes",
    "aten.native_batch_norm_backward.default": "float16 with statistics in float32, which only CUDA takes",
    "aten.native_layer_norm_backward.default": "float16 with statistics in float32, which only CUDA takes",
    "aten.col2im_backward.default": "no torch has it any more",
    "aten.im2col_backward.default": "no torch has it any more",
    "aten.upsample_bilinear2d_backward.vec": "no torch has it any more",
    "aten.upsample_nearest2d_backward.vec": "no torch has it any more",
}
MOST_BYTES = 16 << 20


def smallest(listed: Iterable[Case]) -> dict[str, Case]:
    """Of each operator the smallest call that has an element, with what its list of sizes asks for counted too."""

    def size(case: Case) -> tuple[bool, int]:
        sizes = next((item.items for item in case.args if isinstance(item, Sequence)), ())
        asked = math.prod(size.value for size in sizes if isinstance(size, Scalar) and isinstance(size.value, int))
        return all(0 in tensor.shape for tensor in tensors_of(case)), input_bytes(case) + asked

    found: dict[str, Case] = {}
    for case in sorted(listed, key=size):
        if size(case)[1] <= MOST_BYTES:
            found.setdefault(case.operator, case)
    return found


@needs_dataset
def test_torch_takes_the_values_of_a_call_of_every_operator(everything: tuple[Case, ...]) -> None:
    sample = smallest(everything)
    assert len(sample) > 160, "the smallest calls of the other operators are large"
    cpu = torch.device("cpu")
    refused: dict[str, str] = {}
    for operator, case in sample.items():
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # complex32 is experimental
                call = draw_call(case, 1, cpu)
                operators.resolve(operator)(*call.args, **call.kwargs)
        except (RuntimeError, UsageError, IndexError, ValueError) as error:
            refused[operator] = str(error)
    assert refused.keys() == NOT_ON_THE_CPU.keys() & sample.keys(), refused
