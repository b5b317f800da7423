"""The suite huggingface_100: the data fits its table of models, loads at once, and torch takes the values."""

from __future__ import annotations

import math
import subprocess
import sys
import warnings
from collections import Counter
from collections.abc import Iterable
from typing import Any

import msgspec
import pytest
import torch

import huggingface_models
from torchstone import operators
from torchstone.calls.draw_arguments import draw_call
from torchstone.schema import Case, Given, Scalar, Sequence, Uniform, tensors_of
from torchstone.suites import CaseQuery, input_bytes, select_cases
from torchstone.suites.cuda_attention import BACKWARD, FORWARD, on_cuda
from torchstone.suites.huggingface import CALLS_FILE, MODELS_FILE, HuggingFaceSuite
from torchstone.suites.recorded_call_files import Recorded, read_source
from torchstone.suites.recorded_call_text import TracedCall, TracedTensor
from torchstone.suites.torchbench import TIMED_BYTES
from torchstone.suites.valid_values import fills_for

CPU = torch.device("cpu")
MOST_BYTES = 4 << 20


@pytest.fixture(scope="module")
def rows() -> list[Recorded]:
    return read_source(str(CALLS_FILE))


@pytest.fixture(scope="module")
def table() -> dict[str, Any]:
    found: dict[str, Any] = msgspec.json.decode(MODELS_FILE.read_bytes())
    return found


@pytest.fixture(scope="module")
def cases() -> tuple[Case, ...]:
    return HuggingFaceSuite().cases(CaseQuery())


# The data.


def test_the_data_is_small_and_says_what_made_it(table: dict[str, Any]) -> None:
    assert CALLS_FILE.stat().st_size < 1_000_000
    assert table["torch"].startswith("2.")
    assert table["transformers"].startswith("5.")


def test_there_are_100_models_and_each_is_as_large_as_published(table: dict[str, Any]) -> None:
    models = table["models"]
    assert len({model["hub_id"] for model in models}) == 100
    for model in models:
        assert model["parameters"] == pytest.approx(model["published_millions"] * 1e6, rel=0.03), model["hub_id"]
        assert model["inputs"], model["hub_id"]


def test_calls_and_models_are_those_of_the_table(table: dict[str, Any], rows: list[Recorded]) -> None:
    assert len(rows) == table["rows"]
    unique = Counter(name for recorded in rows for name in recorded.row.in_models or ())
    assert unique == {model["hub_id"].partition("/")[2]: model["unique_calls"] for model in table["models"]}
    assert sum(recorded.row.count for recorded in rows) == sum(model["calls"] for model in table["models"])


def test_the_table_tells_the_models_that_the_maker_has(table: dict[str, Any]) -> None:
    made = [(m["hub_id"], m["architecture"], m["dtype"], m["config"], m["inputs"]) for m in table["models"]]
    listed = [(m.hub_id, m.architecture, m.dtype, m.config, m.inputs) for m in huggingface_models.MODELS]
    assert made == msgspec.json.decode(msgspec.json.encode(listed), type=list[tuple[Any, ...]])


def test_nothing_that_a_model_called_was_lost(table: dict[str, Any]) -> None:
    assert {model["hub_id"]: model["not_recorded"] for model in table["models"] if model["not_recorded"]} == {}


def test_each_call_stands_once_in_order(rows: list[Recorded]) -> None:
    keys = [(recorded.row.op_name, recorded.row.args) for recorded in rows]
    assert keys == sorted(set(keys))


# The suite.


def test_every_row_is_a_case_or_is_left_out_for_a_reason(rows: list[Recorded], cases: tuple[Case, ...]) -> None:
    left_out = Counter(why for recorded in rows for why in recorded.row.why_excluded or ())
    assert left_out.keys() == {
        "makes a view: no kernel runs",
        "writes to running statistics, which its schema does not say",
    }
    assert len(cases) + left_out.total() == len(rows)
    assert all(case.occurrences > 0 and case.tags for case in cases)
    assert all(case.timed == (input_bytes(case) >= TIMED_BYTES) for case in cases)


def test_forward_and_backward_are_there(cases: tuple[Case, ...]) -> None:
    seen = {case.operator.split(".")[1] for case in cases}
    assert {"mm", "addmm", "embedding", "native_layer_norm", "convolution", "gelu", "silu", "_log_softmax"} <= seen
    assert {"embedding_dense_backward", "native_layer_norm_backward", "convolution_backward", "gelu_backward"} <= seen


def test_a_query_for_few_operators_needs_no_torch_and_no_time() -> None:
    code = (
        "import sys, time\n"
        "from torchstone.suites.huggingface import HuggingFaceSuite\n"
        "from torchstone.suites import CaseQuery\n"
        "began = time.process_time()\n"
        "assert HuggingFaceSuite().cases(CaseQuery(('relu',)))\n"
        "assert 'torch' not in sys.modules\n"
        "print(time.process_time() - began)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert float(done.stdout) < 0.3


def test_the_suite_is_found_by_its_name_and_takes_no_source() -> None:
    from torchstone import registry
    from torchstone.errors import UsageError

    suite = registry.suites.factory("huggingface_100")()
    with pytest.raises(UsageError, match="has no use for --source"):
        select_cases("huggingface_100", suite, CaseQuery(source="calls.jsonl"))


# Attention.


def attention(dtype: str, mask: TracedTensor | None = None) -> tuple[TracedCall, TracedCall]:
    query, key = TracedTensor((2, 4, 40, 16), dtype), TracedTensor((2, 4, 50, 16), dtype)
    forward = TracedCall((query, key, key, 0.0, True), {"attn_mask": mask, "scale": 0.25})
    sums = TracedTensor((2, 4, 40), "float32", (160, 1, 4))
    backward = TracedCall((query, query, key, key, query, sums, 0.0, True), {"attn_mask": mask, "scale": 0.25})
    return forward, backward


def takes(operator: str, call: TracedCall) -> None:
    """Arguments that the operator's schema does not know are an error here, without a device."""
    declared = operators.resolve(operator)._schema.arguments
    names = {argument.name for argument in declared}
    required = sum(not argument.has_default_value() and not argument.kwarg_only for argument in declared)
    assert required <= len(call.args) <= sum(not argument.kwarg_only for argument in declared)
    assert call.kwargs.keys() <= names
    for argument, value in zip(declared, call.args, strict=False):
        kind = str(argument.type)
        assert isinstance(value, TracedTensor) or value is None or "Tensor" not in kind, argument.name


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("mask", [None, TracedTensor((2, 1, 40, 50), "float32")])
def test_attention_has_its_cuda_names_on_cuda(dtype: str, mask: TracedTensor | None) -> None:
    kind = "flash" if dtype == "bfloat16" and mask is None else "efficient"
    for operator, call, suffix in zip((FORWARD, BACKWARD), attention(dtype, mask), ("", "_backward"), strict=True):
        named, translated = on_cuda(operator, call)
        assert named == f"aten._scaled_dot_product_{kind}_attention{suffix}.default"
        takes(named, translated)
        assert translated.kwargs == {"scale": 0.25}


def test_a_mask_is_spread_over_heads_without_memory() -> None:
    _, call = on_cuda(FORWARD, attention("float32", TracedTensor((2, 1, 40, 50), "float32"))[0])
    assert call.args[3] == TracedTensor((2, 4, 40, 50), "float32", (2000, 0, 50, 1))


def test_other_calls_stay_as_they_are() -> None:
    call = TracedCall((TracedTensor((2,), "float32"),))
    assert on_cuda("aten.relu.default", call) == ("aten.relu.default", call)


def test_the_suite_has_no_operator_of_the_other_device(cases: tuple[Case, ...]) -> None:
    on_the_gpu = HuggingFaceSuite().cases(CaseQuery(("_scaled_dot_product_flash_attention",), device_type="cuda"))
    assert on_the_gpu
    assert len([case for case in cases if case.operator in (FORWARD, BACKWARD)]) > 0
    assert not any("efficient" in case.operator for case in cases)


def test_sums_of_exponentials_lie_above_the_scores(cases: tuple[Case, ...]) -> None:
    backward = next(case for case in cases if case.operator == BACKWARD)
    fill = tensors_of(backward)[5].fill
    assert isinstance(fill, Uniform)
    assert fill.low >= 6.0


# The values.


def test_groups_of_rows_end_where_the_rows_do(cases: tuple[Case, ...]) -> None:
    grouped = [case for case in cases if case.operator == "aten._grouped_mm.default"]
    assert grouped
    for case in grouped:
        left, _, ends = tensors_of(case)
        assert isinstance(ends.fill, Given)
        assert list(ends.fill.values) == sorted(ends.fill.values)
        assert ends.fill.values[-1] in left.shape


@pytest.mark.parametrize(
    ("left", "right", "shape"), [((64, 16), (4, 16, 32), (64, 32)), ((16, 64), (64, 32), (4, 16, 32))]
)
def test_torch_takes_groups_of_rows(left: tuple[int, ...], right: tuple[int, ...], shape: tuple[int, ...]) -> None:
    operator = "aten._grouped_mm.default"
    tensors = (TracedTensor(left, "bfloat16"), TracedTensor(right, "bfloat16"), TracedTensor((4,), "int32"))
    args, kwargs, jitter = fills_for(operator, TracedCall(tensors))
    call = draw_call(Case("tests", operator, args, kwargs), 1, CPU)
    result = operators.resolve(operator)(*call.args)
    assert (tuple(result.shape), jitter) == (shape, False)
    assert not result.isnan().any()


def sample(listed: Iterable[Case]) -> list[Case]:
    """Of each operator the two smallest calls in each dtype of its first argument, if they are small enough."""

    def size(case: Case) -> int:
        sizes = next((item.items for item in case.args if isinstance(item, Sequence)), ())
        asked = math.prod(size.value for size in sizes if isinstance(size, Scalar) and isinstance(size.value, int))
        return input_bytes(case) + asked

    found: dict[tuple[str, str], list[Case]] = {}
    for case in sorted(listed, key=size):
        tensors = tensors_of(case)
        group = found.setdefault((case.operator, tensors[0].dtype if tensors else ""), [])
        if len(group) < 2 and size(case) <= MOST_BYTES:
            group.append(case)
    return [case for group in found.values() for case in group]


def test_torch_takes_the_values_of_a_sample_of_small_calls(cases: tuple[Case, ...]) -> None:
    chosen = sample(cases)
    assert len({case.operator for case in chosen}) >= 0.85 * len({case.operator for case in cases})
    refused: dict[str, str] = {}
    for case in chosen:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                call = draw_call(case, 1, CPU)
                result = operators.resolve(case.operator)(*call.args, **call.kwargs)
        except (RuntimeError, IndexError, ValueError) as error:
            refused[f"{case.operator}({case.label})"] = str(error).partition("\n")[0]
            continue
        for leaf in operators.flatten_outputs(result):
            if isinstance(leaf, torch.Tensor) and leaf.is_floating_point() and "empty" not in case.operator:
                share = float(leaf.isnan().double().mean()) if leaf.numel() else 0.0
                assert share == 0, f"{case.operator}({case.label}): {share:.0%} NaN"
    assert refused == {}
