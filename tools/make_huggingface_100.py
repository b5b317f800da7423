"""Make the data of the suite huggingface_100: the operators that 100 models call in a step of training.

    python3 -m venv /tmp/hf
    /tmp/hf/bin/pip install torch==2.13.0 numpy transformers==5.22.2 msgspec
    PYTHONPATH=src /tmp/hf/bin/python tools/make_huggingface_100.py

Each model is built from its configuration (`huggingface_models.py`) at full size, with all of its layers, under torch's
FakeTensorMode: no weight is downloaded, none exists. One forward and one backward pass are recorded below autograd. The
same versions make the same files, byte for byte. A model whose number of parameters is off by more than 3 % of the
published one, or that cannot be traced, stops the making.
"""

from __future__ import annotations

import argparse
import gzip
import logging
import os
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import msgspec
import numpy as np
import torch
import transformers
from torch._subclasses.fake_tensor import FakeTensorMode
from transformers import masking_utils
from transformers.initialization import no_init_weights

from huggingface_models import MODELS, Model
from torchstone import operators
from torchstone.suites.recorded_call_from_case import Untraceable, traced
from torchstone.suites.recorded_call_text import format_call, parse_call
from torchstone.suites.recorder import RecordedCall, Recorder

DATA = Path(__file__).resolve().parent.parent / "src" / "torchstone" / "suites" / "data"
CALLS, TABLE = "huggingface_100.jsonl.gz", "huggingface_100_models.json"
COUNT = 100
MOST_OFF = 0.03
VIEW = "makes a view: no kernel runs"
UNDECLARED_WRITE = "writes to running statistics, which its schema does not say"
_TRAINING = 5
"""Which argument of a batch norm says that it is training."""
_WHOLE = ("input_ids", "attention_mask", "labels", "decoder_input_ids")


@dataclass(frozen=True)
class Traced:
    """What came of one model."""

    model: Model
    parameters: int
    recorder: Recorder
    seconds: float


class WrongSizeError(Exception):
    """A configuration that is not the published one."""


def main() -> None:
    parser = argparse.ArgumentParser(description="Make the data of the suite huggingface_100.")
    parser.add_argument("--only", default="", help="a part of a hub id; nothing is written")
    parser.add_argument("--keep-going", action="store_true", help="try every model; nothing is written if one fails")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    chosen = [model for model in MODELS if arguments.only in model.hub_id]
    found, failed = _trace_all(chosen, keep_going=arguments.keep_going)
    if arguments.only or failed:
        sys.exit(f"{len(failed)} of {len(chosen)} models failed: {', '.join(failed)}" if failed else 0)
    if len(found) != COUNT:
        sys.exit(f"there are {len(found)} models, and the suite is named for {COUNT}")
    _write(found)


def _trace_all(models: Iterable[Model], *, keep_going: bool) -> tuple[list[Traced], list[str]]:
    found: list[Traced] = []
    failed: list[str] = []
    for model in models:
        try:
            one = trace(model)
        except Exception as error:
            if not keep_going:
                raise
            failed.append(model.hub_id)
            print(f"{model.hub_id}: FAILED {type(error).__name__}: {str(error)[:300]}", flush=True)
            continue
        found.append(one)
        calls = one.recorder.calls
        print(
            f"{model.hub_id}: {one.parameters / 1e6:.1f} M ({model.parameters} published), {len(calls)} unique calls, "
            f"{len({call.operator for call in calls.values()})} operators, {one.seconds:.1f} s, "
            f"not recorded: {dict(one.recorder.unrecorded)}",
            flush=True,
        )
    return found, failed


# ---- one model


def trace(model: Model) -> Traced:
    """Forward and backward of one model, without data."""
    began = time.perf_counter()
    recorder = Recorder(reads_values=False)
    dtype = getattr(torch, model.dtype)
    with FakeTensorMode(allow_non_fake_inputs=True):
        with _default_dtype(dtype), no_init_weights():
            built = _build(model)
        parameters = sum(weight.numel() for weight in dict.fromkeys(built.parameters()))
        _check_size(model, parameters)
        inputs = {name: _input(name, shape, dtype, built.config) for name, shape in model.inputs.items()}
        with recorder, _no_packed_sequences():
            _loss(built(**inputs)).backward()  # type: ignore[no-untyped-call]
    return Traced(model, parameters, recorder, time.perf_counter() - began)


def _build(model: Model) -> Any:
    architecture = getattr(transformers, model.architecture)
    config = architecture.config_class(**model.config)
    if hasattr(config, "use_cache"):
        config.use_cache = False
    with _readable_schedules():
        built = architecture(config)
    built.tie_weights()
    if model.config.get("tie_word_embeddings") is False:
        _untie(built)
    return built.train(model.train)


def _untie(built: Any) -> None:
    """T5's configuration ties its embeddings whatever it is told, and leaves it to the weights to tell otherwise."""
    head = built.get_output_embeddings()
    if head.weight is built.get_input_embeddings().weight:
        head.weight = torch.nn.Parameter(torch.empty_like(head.weight))


class _Rates(np.ndarray):
    """As much of a tensor as a schedule needs."""

    def split(self, sizes: Sequence[int]) -> list[Any]:
        return np.split(self, np.cumsum(sizes)[:-1])


@contextmanager
def _readable_schedules() -> Iterator[None]:
    """Models that drop paths read their rates from a tensor as they are built, and fake tensors have no values."""
    fake = torch.linspace
    torch.linspace = lambda *ends, **_: np.linspace(*ends).view(_Rates)  # type: ignore[assignment]
    try:
        yield
    finally:
        torch.linspace = fake


def _check_size(model: Model, parameters: int) -> None:
    off = parameters / (model.parameters * 1e6) - 1
    if abs(off) > MOST_OFF:
        raise WrongSizeError(
            f"{model.hub_id} has {parameters / 1e6:.2f} million parameters, {off:+.1%} of the published "
            f"{model.parameters}. Its configuration is wrong."
        )


def _input(name: str, shape: tuple[int, ...], dtype: torch.dtype, config: Any) -> torch.Tensor:
    if name == "labels" and getattr(config, "num_labels", 2) == 1:
        return torch.rand(shape, dtype=dtype)
    if name in _WHOLE:
        return torch.ones(shape, dtype=torch.int64)
    return torch.rand(shape, dtype=dtype)


@contextmanager
def _no_packed_sequences() -> Iterator[None]:
    """transformers looks at positions to see whether several sequences are packed into one. It cannot look at fake
    ones, takes them for packed, and would then make a mask where a real run lets the kernel do causal attention."""
    real = masking_utils.find_packed_sequence_indices
    masking_utils.find_packed_sequence_indices = lambda *_, **__: None
    try:
        yield
    finally:
        masking_utils.find_packed_sequence_indices = real


def _loss(output: Any) -> torch.Tensor:
    """The model's own; for a model without one, the mean of the first result that has a gradient."""
    if getattr(output, "loss", None) is not None:
        loss: torch.Tensor = output.loss
        return loss
    results = (value for value in output.values() if isinstance(value, torch.Tensor) and value.requires_grad)
    return next(results).mean()


@contextmanager
def _default_dtype(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


# ---- the files


def _write(found: list[Traced]) -> None:
    rows = _rows(found)
    DATA.mkdir(exist_ok=True)
    lines = b"".join(msgspec.json.encode(row) + b"\n" for row in rows)
    (DATA / CALLS).write_bytes(gzip.compress(lines, compresslevel=9, mtime=0))
    table = {
        "torch": torch.__version__.partition("+")[0],
        "transformers": transformers.__version__,
        "rows": len(rows),
        "models": [_entry(one) for one in found],
    }
    (DATA / TABLE).write_bytes(msgspec.json.format(msgspec.json.encode(table), indent=1) + b"\n")
    included = [row for row in rows if row.get("included_in_benchmark", True)]
    print(
        f"{len(found)} models, {len(rows)} unique calls of {len({row['op_name'] for row in rows})} operators, "
        f"{len(included)} of {len({row['op_name'] for row in included})} operators to be judged, "
        f"{(DATA / CALLS).stat().st_size} bytes, {sum(one.seconds for one in found):.0f} s"
    )


def _entry(one: Traced) -> dict[str, Any]:
    model, calls = one.model, one.recorder.calls.values()
    return {
        "hub_id": model.hub_id,
        "architecture": model.architecture,
        "dtype": model.dtype,
        "mode": "train" if model.train else "eval",
        "config": model.config,
        "inputs": model.inputs,
        "parameters": one.parameters,
        "published_millions": model.parameters,
        "calls": sum(call.count for call in calls),
        "unique_calls": len({(call.operator, _text_of(call)) for call in calls}),
        "operators": len({call.operator for call in calls}),
        "not_recorded": {f"{operator}: {why}": count for (operator, why), count in one.recorder.unrecorded.items()},
    }


def _rows(found: Iterable[Traced]) -> list[dict[str, Any]]:
    """Each call once, in the order of operators and texts, with the models that make it."""
    counts: Counter[tuple[str, str]] = Counter()
    models: dict[tuple[str, str], dict[str, None]] = {}
    for one in found:
        for call in one.recorder.calls.values():
            key = call.operator, _text_of(call)
            counts[key] += call.count
            models.setdefault(key, {})[one.model.hub_id.partition("/")[2]] = None
    return [_row(*key, counts[key], models[key]) for key in sorted(counts)]


def _row(operator: str, text: str, count: int, models: Mapping[str, None]) -> dict[str, Any]:
    row: dict[str, Any] = {"op_name": operator, "args": text, "count": count, "in_models": list(models)}
    reason = _reason_against(operator, text)
    return row | {"included_in_benchmark": False, "why_excluded": [reason]} if reason else row


def _reason_against(operator: str, text: str) -> str:
    if operators.is_view(operator) or torch.Tag.inplace_view in operators.resolve(operator).tags:
        return VIEW
    if operator == "aten.native_batch_norm.default" and parse_call(text).args[_TRAINING] is True:
        return UNDECLARED_WRITE
    return ""


def _text_of(call: RecordedCall) -> str:
    try:
        return format_call(traced(call.args, call.kwargs))
    except Untraceable as error:
        raise ValueError(f"{call.operator}: {error}") from error


if __name__ == "__main__":
    main()
