"""Python API of sweeps: `run_comprehensive_benchmark` for benchmark scripts, and `sweep` with every setting."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from torchstone.schema.sweep import SweepRecord
from torchstone.sweeps.request import OUTPUT, make_request
from torchstone.sweeps.run import SweepPlan, SweepResult, run_sweep


class _Notices:
    """Observer that prints warnings on stderr and ignores the progress."""

    def preparing(self, done: int, total: int, what: str) -> None:
        pass

    def planned(self, plan: SweepPlan, folder: Path) -> None:
        pass

    def recorded(self, record: SweepRecord) -> None:
        pass

    def warned(self, message: str) -> None:
        print(f"warning: {message}", file=sys.stderr, flush=True)


def run_comprehensive_benchmark(
    batch_sizes: Iterable[int] | None = None,
    sequence_lengths: Iterable[int] | None = None,
    tensor_dimensions: Iterable[int] | None = None,
    operations: Iterable[str] | None = None,
    output_file: str | Path = "benchmark_results.json",
) -> list[dict[str, Any]]:
    """Run a sweep with the usual implementations, write the file, print a table per operation, return the rows.

    None is the default of each axis; `operations` are names such as `LayerNorm`, `GELU`, `Swish`, `Loss`.
    """
    from torchstone.reports.console import make_console
    from torchstone.sweeps.tables import print_sweep

    result = sweep(
        batch_sizes=batch_sizes,
        sequence_lengths=sequence_lengths,
        tensor_dimensions=tensor_dimensions,
        operations=operations,
        output=output_file,
    )
    print_sweep(make_console(sys.stdout), result.rows, result.skipped)
    return [msgspec.to_builtins(row) for row in result.rows]


def sweep(
    *,
    operations: Iterable[str] | None = None,
    implementations: Iterable[str] | None = None,
    batch_sizes: Iterable[int] | None = None,
    sequence_lengths: Iterable[int] | None = None,
    tensor_dimensions: Iterable[int] | None = None,
    dtype: str = "float32",
    mode: str = "fwd",
    output: str | Path = OUTPUT,
    resume: bool = False,
    overwrite: bool = True,
    device: str = "auto",
    threads: int = 1,
    judged: bool = True,
    seed: int = 0,
    profilers: Iterable[str] | None = None,
    profile_all: bool = False,
) -> SweepResult:
    """Run a sweep with the settings of ``torchstone sweep``. The result has rows, skipped rows and records.

    Files of an earlier sweep are replaced, unless `overwrite` is false.
    """
    request = make_request(
        operations=operations,
        implementations=implementations,
        batch_sizes=batch_sizes,
        sequence_lengths=sequence_lengths,
        tensor_dimensions=tensor_dimensions,
        dtype=dtype,
        mode=mode,
        output=output,
        resume=resume,
        overwrite=overwrite,
        device=device,
        threads=threads,
        judged=judged,
        seed=seed,
        profilers=profilers,
        profile_all=profile_all,
    )
    return run_sweep(request, _Notices())
