"""The options of a sweep, checked before anything is started. No torch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, get_args

import msgspec

from torchstone.errors import UsageError, unknown_name
from torchstone.runs.devices import device_type, resolve_device
from torchstone.runs.request import canonical_dtypes
from torchstone.schema import content_key
from torchstone.schema.sweep import SweepMode, SweepPoint
from torchstone.sweeps import operation_names
from torchstone.sweeps.axes import checked_axis
from torchstone.sweeps.profile_request import SweepProfiler
from torchstone.sweeps.profile_sweep import profilers_named

BATCH_SIZES = (16, 32, 64, 128)
SEQUENCE_LENGTHS = (256, 512, 1024, 2048)
TENSOR_DIMENSIONS = (8, 16, 32, 64, 128, 256, 512)
OUTPUT = Path("benchmark_results.json")
IDENTITY = ("files", "implementations", "dtype", "mode", "device", "threads", "judged", "seed")
"""The parts of a configuration that a resumed sweep must share with its beginning. The grid may grow."""


class SweepRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One sweep. Names are those of the output."""

    operations: tuple[str, ...] = operation_names.OPERATIONS
    """Built-in operations, and files that define others."""
    implementations: tuple[str, ...] = operation_names.DEFAULT_IMPLEMENTATIONS
    batch_sizes: tuple[int, ...] = BATCH_SIZES
    sequence_lengths: tuple[int, ...] = SEQUENCE_LENGTHS
    tensor_dimensions: tuple[int, ...] = TENSOR_DIMENSIONS
    dtype: str = "float32"
    mode: SweepMode = "fwd"
    output: Path = OUTPUT
    resume: bool = False
    """Keep the points that an interrupted sweep has measured, and measure the others."""
    overwrite: bool = False
    """Replace the files of an earlier sweep; False: refuse."""
    device: str = "auto"
    """``auto``, ``cpu``, ``cuda`` (the first visible one) or ``cuda:N``."""
    threads: int = 1
    """CPU threads."""
    judged: bool = True
    """Whether implementations are judged at the corners of the grid. False: they are only checked in process."""
    seed: int = 0
    profilers: tuple[SweepProfiler, ...] = ()
    """Profilers that run after timing, in separate processes."""
    profile_all: bool = False
    """ncu and nsys see every point. False: the largest of each operation and implementation."""

    @property
    def files(self) -> tuple[str, ...]:
        """The operations that files define."""
        return tuple(name for name in self.operations if operation_names.is_file(name))


def make_request(
    *,
    operations: Iterable[str] | None = None,
    implementations: Iterable[str] | None = None,
    batch_sizes: Iterable[int] | None = None,
    sequence_lengths: Iterable[int] | None = None,
    tensor_dimensions: Iterable[int] | None = None,
    dtype: str = "float32",
    mode: str = "fwd",
    output: str | Path = OUTPUT,
    profilers: Iterable[str] | None = None,
    **others: Any,
) -> SweepRequest:
    """Check a user's options and make the request. None is the default. Raises `UsageError`."""
    axes: dict[str, tuple[Iterable[int] | None, tuple[int, ...]]] = {
        "batch_sizes": (batch_sizes, BATCH_SIZES),
        "sequence_lengths": (sequence_lengths, SEQUENCE_LENGTHS),
        "tensor_dimensions": (tensor_dimensions, TENSOR_DIMENSIONS),
    }
    checked: dict[str, Any] = {
        name: checked_axis(name, usual if given is None else given) for name, (given, usual) in axes.items()
    }
    request = SweepRequest(
        operations=operation_names.operations_named(operation_names.OPERATIONS if operations is None else operations),
        implementations=operation_names.implementations_named(
            operation_names.DEFAULT_IMPLEMENTATIONS if implementations is None else implementations
        ),
        dtype=_dtype(dtype),
        mode=_mode(mode),
        output=Path(output),
        profilers=profilers_named(profilers or ()),
        **(checked | others),
    )
    for file in request.files:
        if not Path(file).is_file():
            raise UsageError(f"there is no file '{file}' that could define an operation.")
    if not request.output.absolute().parent.is_dir():
        raise UsageError(f"there is no folder '{request.output.parent}' to write into. Make it first.")
    return request


def _dtype(name: str) -> str:
    try:
        (found,) = canonical_dtypes((name,))
    except UsageError:
        found = name
    if found not in operation_names.DTYPES:
        raise unknown_name("dtype of a sweep", name, operation_names.DTYPES)
    return found


def _mode(name: str) -> SweepMode:
    for mode in get_args(SweepMode):
        if mode == name:
            return mode  # type: ignore[no-any-return]  # get_args tells nothing of what it returns
    raise unknown_name("mode", name, get_args(SweepMode))


def one_device(asked: str) -> str:
    """The one device on which the sweep runs: ``cpu`` or ``cuda:N``."""
    from torchstone.executors.devices import find_devices

    return find_devices(resolve_device(asked))[0].label


def configuration(request: SweepRequest, device: str) -> dict[str, Any]:
    """The part of the request that the manifest records."""
    return {
        "kind": "sweep",
        "operations": list(request.operations),
        "files": [content_key(Path(file).read_text(errors="replace")) for file in request.files],
        "implementations": list(request.implementations),
        "batch_sizes": list(request.batch_sizes),
        "sequence_lengths": list(request.sequence_lengths),
        "tensor_dimensions": list(request.tensor_dimensions),
        "dtype": request.dtype,
        "mode": request.mode,
        "device": device,
        "threads": request.threads if device_type(device) == "cpu" else 1,
        "judged": request.judged,
        "seed": request.seed,
    }


def remembered(configuration: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a resumed sweep's request, from its manifest."""
    grid = ("batch_sizes", "sequence_lengths", "tensor_dimensions")
    kept = ("operations", "implementations", *grid, "dtype", "mode", "device", "threads", "judged", "seed")
    return {name: configuration[name] for name in kept if name in configuration}


def points_of(request: SweepRequest, operations: Iterable[str]) -> tuple[SweepPoint, ...]:
    """Every point of the grid. The operations of one shape are adjacent, since they share inputs."""
    listed = tuple(operations)
    return tuple(
        SweepPoint(operation, batch, sequence, dimension, request.dtype, request.mode)
        for batch in request.batch_sizes
        for sequence in request.sequence_lengths
        for dimension in request.tensor_dimensions
        for operation in listed
    )


def point_key(point: SweepPoint) -> str:
    """Hash that identifies a point when a sweep is resumed."""
    return content_key(point)
