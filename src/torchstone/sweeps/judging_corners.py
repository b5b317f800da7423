"""Has the judge check implementations in the sandbox at the corners of a sweep's grid, before anything is timed.

A kernel must be right at the smallest and the largest values of every axis, on the judge's hidden variants too. It is
then compared in process at every point. The reference itself (PyTorch) and the user's own operations are not judged.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec

from torchstone import registry
from torchstone.atomic_files import write_atomically
from torchstone.backends import BackendOptions
from torchstone.errors import UsageError
from torchstone.executors import Executor, ExecutorOptions
from torchstone.runs.choose_cases_and_kernels import choose_implementations
from torchstone.runs.devices import device_type
from torchstone.schema import (
    Agrees,
    Case,
    Integers,
    Job,
    Missing,
    Normal,
    Record,
    Scalar,
    Sequence,
    Shapes,
    Tensor,
    Uniform,
    Unjudged,
    Unsupported,
    decode,
    encode,
    explain,
    gradient_operator,
    verdict_name,
)
from torchstone.sweeps import rows
from torchstone.sweeps.request import SweepRequest

BACKENDS = {"Compile": "compile", "CUDA": "torchstone-cuda", "Triton": "torchstone-triton", "Liger": "liger"}
"""Implementation of a sweep -> backend through which the judge gets the same kernels."""
MOST_ELEMENTS = 1 << 21
"""Most elements at a corner; larger corners are reduced. The judge holds many calls with references in float64."""
JUDGES_ON_CUDA = 4
"""Judges that share a CUDA device. They may, since nothing is timed meanwhile."""
KEPT = "judged.json"
"""File in the journal's folder: job -> why its implementation is not timed; empty if it agreed."""
_EPSILON = 1e-5


class Progress(Protocol):
    """Receives the progress of judging."""

    def preparing(self, done: int, total: int, what: str) -> None: ...

    def warned(self, message: str) -> None: ...


class CornerVerdict(NamedTuple):
    """Why an implementation of an operation must not be timed."""

    operation: str
    implementation: str
    reason: str


class _CornerJob(NamedTuple):
    """A job, with its operation and implementation."""

    job: Job
    operation: str
    implementation: str


def corners(request: SweepRequest) -> tuple[tuple[int, int, int], ...]:
    """Every combination of the ends of the axes, bounded in size, each once."""
    axes = (request.batch_sizes, request.sequence_lengths, request.tensor_dimensions)
    ends = itertools.product(*(dict.fromkeys((min(axis), max(axis))) for axis in axes))
    return tuple(dict.fromkeys(_bounded(*corner) for corner in ends))


def _bounded(batch: int, sequence: int, dimension: int) -> tuple[int, int, int]:
    """The corner, reduced to `MOST_ELEMENTS`: first the batch, then the sequence. `dimension`, the row size, stays."""
    batch = max(1, min(batch, MOST_ELEMENTS // (sequence * dimension)))
    return batch, max(1, min(sequence, MOST_ELEMENTS // (batch * dimension))), dimension


def cases_of(operation: str, request: SweepRequest) -> Iterator[Case]:
    """The cases to judge of an operation: of its forward overload, of its backward overload, or of both."""
    for shape in corners(request):
        if "fwd" in request.mode:
            yield _forward(operation, shape, request.dtype)
        if "bwd" in request.mode:
            yield _backward(operation, shape, request.dtype)


def _forward(operation: str, shape: tuple[int, int, int], dtype: str) -> Case:
    x = Tensor(shape, dtype, Normal())
    match operation:
        case "LayerNorm":
            parameters = (Tensor(shape[2:], dtype, Normal()),) * 2
            return _case("native_layer_norm", x, _sizes(shape[2:]), *parameters, Scalar(_EPSILON))
        case "GELU":
            return _case("gelu", x)
        case "Swish":
            return _case("silu", x)
        case "MSE":
            return _case("mse_loss", x, x)
        case "CrossEntropy":
            return _case("cross_entropy_loss", *_logits_and_classes(shape, dtype))
    raise AssertionError(operation)


def _backward(operation: str, shape: tuple[int, int, int], dtype: str) -> Case:
    x, number = Tensor(shape, dtype, Normal()), Tensor((), dtype, Normal())
    match operation:
        case "LayerNorm":
            rows_shape = (*shape[:2], 1)
            mean = Tensor(rows_shape, "float32", Normal(std=0.1))
            rstd = Tensor(rows_shape, "float32", Uniform(0.5, 2.0))
            parameters = (Tensor(shape[2:], dtype, Normal()),) * 2
            mask = Sequence((Scalar(True),) * 3)
            return _case("native_layer_norm_backward", x, x, _sizes(shape[2:]), mean, rstd, *parameters, mask)
        case "GELU":
            return _case("gelu_backward", x, x)
        case "Swish":
            return _case("silu_backward", x, x)
        case "MSE":
            return _case("mse_loss_backward", number, x, x, Scalar(1))
        case "CrossEntropy":  # torch has no backward overload of it
            forward = _forward(operation, shape, dtype)
            gradient = gradient_operator(forward.operator)
            return msgspec.structs.replace(forward, operator=gradient, args=(Sequence((number,)), *forward.args))
    raise AssertionError(operation)


def _case(name: str, *args: Tensor | Scalar | Sequence) -> Case:
    return Case("sweep", f"aten.{name}.default", args)


def _sizes(shape: tuple[int, ...]) -> Sequence:
    return Sequence(tuple(Scalar(size) for size in shape))


def _logits_and_classes(shape: tuple[int, int, int], dtype: str) -> tuple[Tensor, Tensor]:
    batch, sequence, dimension = shape
    number = batch * sequence
    return Tensor((number, dimension), dtype, Normal()), Tensor((number,), "int64", Integers(0, dimension))


def judge_corners(
    request: SweepRequest, device: str, wanted: Mapping[str, Iterable[str]], folder: Path, observer: Progress
) -> list[CornerVerdict]:
    """Judge every wanted implementation of every operation. Returns those that must not be timed, with the reason.

    Verdicts are kept in the folder, so that a resumed sweep does not judge again.
    """
    jobs = _jobs(request, device, wanted, observer)
    path = folder / KEPT
    kept = decode(path.read_bytes(), dict[str, str]) if path.exists() else {}
    asked = [each.job for key, each in jobs.items() if key not in kept]
    if asked:
        judges = JUDGES_ON_CUDA if device_type(device) == "cuda" else 1
        options = ExecutorOptions(device, threads=request.threads, manifest_key="sweep", judges_per_device=judges)
        executor: Executor = registry.executors.factory("local")(options)
        for done, record in enumerate(executor.run(asked), start=1):
            reason = _reason(record)
            if isinstance(record.verdict, Unjudged):
                observer.warned(f"{record.case.operator} was not judged: {reason}")
            else:
                kept[record.job_key] = reason
            observer.preparing(done, len(asked), "corners judged")
        write_atomically(path, encode(kept))
    found: dict[tuple[str, str], CornerVerdict] = {}
    for key, (_, operation, implementation) in jobs.items():
        if kept.get(key):
            found.setdefault((operation, implementation), CornerVerdict(operation, implementation, kept[key]))
    return list(found.values())


def _jobs(
    request: SweepRequest, device: str, wanted: Mapping[str, Iterable[str]], observer: Progress
) -> dict[str, _CornerJob]:
    """Job key -> job to judge."""
    pairs = [(operation, name) for operation, listed in wanted.items() for name in listed if name in BACKENDS]
    asked: dict[str, _CornerJob] = {}
    for implementation in dict.fromkeys(name for _, name in pairs):
        try:
            options = BackendOptions(device_type=device_type(device))
            backend = registry.backends.factory(BACKENDS[implementation])(options)
        except UsageError as error:
            observer.warned(f"{implementation} is compared in process, but not judged: {error}")
            continue
        for operation in (operation for operation, name in pairs if name == implementation):
            cases = tuple(cases_of(operation, request))
            offers = choose_implementations(cases, backend)
            for case in cases:
                offer = offers[case.operator]
                if offer is not None:
                    # Each hidden variant of a shape would be compiled again, for seconds.
                    shapes: Shapes = "stated" if implementation == "Compile" else "near"
                    job = Job(case, offer, "quick", measured=False, shapes=shapes)
                    asked[job.key] = _CornerJob(job, operation, implementation)
    return asked


def _reason(record: Record) -> str:
    """Why the implementation must not be timed; empty if it may."""
    verdict = record.verdict
    if isinstance(verdict, (Agrees, Missing)):
        return ""
    if isinstance(verdict, Unsupported):
        return f"{rows.UNSUPPORTED}: {verdict.reason}" if verdict.by == "candidate" else ""
    told = f"judged on {record.case.operator}({record.case.label}): {verdict_name(verdict)}: {explain(verdict)}"
    return f"{rows.WRONG}: {told}"
